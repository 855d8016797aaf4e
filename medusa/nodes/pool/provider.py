"""The port to whoever starts and ends nodes: processes of this machine, a list, a cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["FixedList", "NodeProvider", "ProvidedNode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidedNode:
    """How a node is, as its provider knows.

    Attributes:
        state: ``absent``: it was never acquired, or is gone again; ``starting``; ``up``: its machine runs,
            and whether the node answers is seen by others; ``stopping``; ``failed``: it was acquired, and
            isn't there.
        why: it failed, in words.
    """

    state: Literal["absent", "starting", "up", "stopping", "failed"] = "absent"
    why: str = ""


class NodeProvider(Protocol):
    """What acquires and releases nodes; a user may have one of their own.

    One thread calls it, from time to time. Nothing here waits until a node is up or gone: ``nodes`` says that
    later. What is raised counts as failed, and is tried again after a while.
    """

    def acquire(self, now_us: int, node: str) -> None:
        """Begin to start a node that is ``absent`` or ``failed``.

        Args:
            now_us: a monotonic clock, in microseconds.
        """
        ...

    def release(self, now_us: int, node: str) -> None:
        """Begin to end a node that is ``starting`` or ``up``: as SIGTERM does, after which it writes its last
        checkpoint. It has nothing to do by then; what is on its disk may be kept, or not."""
        ...

    def nodes(self, now_us: int) -> Mapping[str, ProvidedNode]:
        """How its nodes are; one that isn't listed is ``absent``."""
        ...


class FixedList:
    """Nodes that somebody else runs, always: nothing is started, and nothing ended."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._nodes = {name: ProvidedNode(state="up") for name in nodes}

    def acquire(self, now_us: int, node: str) -> None:
        """Does nothing."""

    def release(self, now_us: int, node: str) -> None:
        """Does nothing: it stays."""

    def nodes(self, now_us: int) -> Mapping[str, ProvidedNode]:
        """All, and up."""
        return self._nodes
