"""Fragments that are being made beside the engine's thread, and what waits for them.

A graph of 4 MiB takes seconds to compile, and a state of a million groups its time to restore. Rows of other
queries don't wait for that; what was given for the fragment itself does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from medusa.engine.fragment import Fragment
from medusa.errors import MedusaError
from medusa.ports import Buffer, Clock
from medusa.query.boxes import Graph

__all__ = ["Made", "Openings"]

BOXES_MAX = 64
STATE_BYTES_MAX = 4 << 20
"""Of what is made in the engine's thread. Smaller: each deployment starts a thread and waits for two turns
more; larger: all other fragments wait for it, for some 5 ms per 64 boxes."""

Made = Fragment | str
"""A fragment, or why there is none."""


def _is_large(graph: Graph, files: Mapping[str, Buffer] | None) -> bool:
    """Whether others would wait while a fragment is made in the engine's thread."""
    state_bytes = sum(memoryview(data).nbytes for data in (files or {}).values())
    return len(graph.boxes) > BOXES_MAX or state_bytes > STATE_BYTES_MAX


@dataclass(slots=True)
class _Opening:
    life: int
    make: Callable[[], Made]
    jobs: list[Callable[[], None]] = field(default_factory=list)


class Openings:
    """Of one host; only the engine's thread calls it.

    Args:
        opened: told a fragment's name, its life, and the fragment, or why there is none.
        give: does a job in the engine's thread after all that it was given before.
        beside: does a job in a thread beside that.
    """

    def __init__(
        self,
        clock: Clock,
        opened: Callable[[str, int, Made], None],
        give: Callable[[Callable[[], None]], None],
        beside: Callable[[Callable[[], None]], None],
    ) -> None:
        self._clock = clock
        self._opened = opened
        self._give = give
        self._beside = beside
        self._under_way: dict[str, _Opening] = {}

    def open(self, name: str, life: int, graph: Graph, files: Mapping[str, Buffer] | None) -> bool:
        """Make it now, or beside; whether it is made."""
        make = partial(_make, graph, files, self._clock)
        if not _is_large(graph, files):
            self._opened(name, life, make())
            return True
        opening = self._under_way[name] = _Opening(life, make)

        def make_beside() -> None:
            if self._under_way.get(name) is opening:  # else it was closed while it waited for its turn
                made = make()
                self._give(lambda: self._made(name, life, made))

        self._beside(make_beside)
        return False

    def defers(self, name: str, job: Callable[[], None]) -> bool:
        """Whether a job has to wait until this fragment has been made."""
        if (opening := self._under_way.get(name)) is None:
            return False
        opening.jobs.append(job)
        return True

    def give_up(self, name: str) -> None:
        """It was closed: what waits is done now, without it."""
        if (opening := self._under_way.pop(name, None)) is not None:
            for job in opening.jobs:
                job()

    def finish(self) -> None:
        """Make now what isn't made yet."""
        for name, each in list(self._under_way.items()):
            self._made(name, each.life, each.make())

    def _made(self, name: str, life: int, made: Made) -> None:
        opening = self._under_way.get(name)
        if opening is None or opening.life != life:
            return  # nobody wants it any more
        del self._under_way[name]
        self._opened(name, life, made)
        for job in opening.jobs:
            job()


def _make(graph: Graph, files: Mapping[str, Buffer] | None, clock: Clock) -> Made:
    try:
        if files is None:
            return Fragment(graph, clock=clock)
        return Fragment.restore(graph, files, clock=clock)
    except MedusaError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
