"""The store of a node that keeps nothing over its end (``store = "memory"``)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from medusa.errors import StateError
from medusa.ports import Buffer, Clock, Content

__all__ = ["Unstored", "wait_for_a_new_second"]

SECOND_US = 1_000_000


class Unstored:
    """A ``Store`` in which nothing is ever found."""

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        """Nothing is written, and nobody is told that it was durable over our end."""

    def read(self, name: str) -> dict[str, Buffer]:
        raise StateError(f"no group {self.where(name)}", code="state.io")

    def names(self) -> list[str]:
        return []

    def delete(self, name: str) -> None:
        """It isn't there."""

    def where(self, name: str, file: str = "") -> str:
        return f"(in memory)/{name}/{file}".rstrip("/")

    def close(self) -> None:
        """Nothing is open."""


def wait_for_a_new_second(clock: Clock) -> None:
    """Lives are told apart by the second in which they begin: no two begin in one."""
    time.sleep((SECOND_US - clock.now_us() % SECOND_US) / SECOND_US)
