"""``store = "memory"``: a node keeps nothing over its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from medusa.errors import StateError
from medusa.nodes.config.settings import Settings
from medusa.ports import Buffer, Clock, Content

__all__ = ["NoStore", "open_nothing"]

SECOND_US = 1_000_000


class NoStore:
    """Implements ``medusa.ports.NodeStore``, and its groups: nothing is ever found in it."""

    journal: Final = None

    @property
    def groups(self) -> NoStore:
        return self

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        """Nothing is written, and nobody is told that it was durable over our end."""

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        """As ``write``."""

    def read(self, name: str) -> dict[str, Buffer]:
        raise StateError(f"no group {self.where(name)}", code="state.io")

    def names(self) -> list[str]:
        return []

    def delete(self, name: str) -> None:
        """It isn't there."""

    def where(self, name: str, file: str = "") -> str:
        return f"(in memory)/{name}/{file}".rstrip("/")

    def age_s(self, group: str) -> float:
        return 0.0

    def beside(self, name: str) -> NoStore:
        return NoStore()

    def close(self) -> None:
        """Nothing is open."""


def open_nothing(settings: Settings, clock: Clock, existing: bool) -> NoStore:
    """Lives are told apart by the second in which they begin: it waits so that no two begin in one."""
    time.sleep((SECOND_US - clock.now_us() % SECOND_US) / SECOND_US)
    return NoStore()
