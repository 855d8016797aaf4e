"""Fragments that are being made beside the engine's thread, and what waits for them.

A graph of 4 MiB takes seconds to compile, and a state of a million groups its time to restore. Rows of other
queries don't wait for that; what was given for the fragment itself does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from medusa.engine.fragment import Fragment
from medusa.engine.state.delta import DeltaFiles, together, whole_bytes
from medusa.errors import MedusaError
from medusa.ports import Buffer, Clock
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.fair_turns import FairTurns

__all__ = ["Made", "Openings"]

BOXES_MAX = 64
STATE_BYTES_MAX = 4 << 20
"""Of what is made in the engine's thread. Smaller: each deployment starts a thread and waits for two turns
more; larger: all other fragments wait for it, for some 5 ms per 64 boxes."""

Made = Fragment | str
"""A fragment, or why there is none."""


def _is_large(graph: Graph, files: Mapping[str, Buffer] | None, deltas: tuple[DeltaFiles, ...]) -> bool:
    """Whether others would wait while a fragment is made in the engine's thread."""
    return len(graph.boxes) > BOXES_MAX or whole_bytes(files or {}, deltas) > STATE_BYTES_MAX


class _Opening:
    """One that is made beside, or by who ends the host: by the first of them alone."""

    def __init__(self, name: str, life: int, graph: Graph, make: Callable[[], Made]) -> None:
        self.name = name
        self.life = life
        self.graph = graph
        self.jobs: list[Callable[[], None]] = []
        self.took_us = 0
        self._make = make
        self._claim = threading.Lock()
        self._ready = threading.Event()
        self._made: Made = ""

    def make(self, clock: Clock) -> None:
        """Make it, and measure how long that takes."""
        began_us = clock.monotonic_us()
        self.made()
        self.took_us = clock.monotonic_us() - began_us

    def made(self) -> Made:
        """Make it; where another thread does, wait for that."""
        if self._claim.acquire(blocking=False):
            try:
                self._made = self._make()
            finally:
                self._ready.set()
        self._ready.wait()
        return self._made


class Openings:
    """Of one host; only the engine's thread calls it.

    One is made at a time, and then one of the owner for whom least time was spent on it.

    Args:
        opened: told a fragment's name, its life, its graph, and the fragment, or why there is none.
        give: does a job in the engine's thread after all that it was given before.
        beside: does a job in a thread beside that.
    """

    def __init__(
        self,
        clock: Clock,
        opened: Callable[[str, int, Graph, Made], None],
        give: Callable[[Callable[[], None]], None],
        beside: Callable[[Callable[[], None]], None],
    ) -> None:
        self._clock = clock
        self._opened = opened
        self._give = give
        self._beside = beside
        self._under_way: dict[str, _Opening] = {}
        self._turns = FairTurns()
        self._making: _Opening | None = None

    def open(
        self,
        name: str,
        life: int,
        graph: Graph,
        files: Mapping[str, Buffer] | None,
        *,
        deltas: tuple[DeltaFiles, ...] = (),
        owner: str = "",
    ) -> bool:
        """Make it now, or beside; whether it is made.

        Args:
            deltas: on the state that ``files`` brings.
        """
        make = partial(_make, graph, files, deltas, self._clock)
        if not _is_large(graph, files, deltas):
            self._opened(name, life, graph, make())
            return True
        self._under_way[name] = _Opening(name, life, graph, make)
        self._turns.enter(name, owner=owner, query=graph.name)
        self._make_next()
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
            self._turns.forget(name)
            for job in opening.jobs:
                job()

    def finish(self) -> None:
        """Make now what isn't made yet."""
        for opening in list(self._under_way.values()):
            self._end(opening, opening.made())

    def _make_next(self) -> None:
        if self._making is not None or (name := self._turns.next()) is None:
            return
        opening = self._making = self._under_way[name]

        def make_beside() -> None:
            if self._under_way.get(opening.name) is opening:  # else it was closed while it waited
                opening.make(self._clock)
            self._give(lambda: self._made(opening))

        self._beside(make_beside)

    def _made(self, opening: _Opening) -> None:
        if self._under_way.get(opening.name) is opening:  # else nobody wants it any more
            self._turns.used(opening.name, max(opening.took_us, 1))
            self._end(opening, opening.made())
        if self._making is opening:
            self._making = None
            self._make_next()

    def _end(self, opening: _Opening, made: Made) -> None:
        del self._under_way[opening.name]
        self._turns.forget(opening.name)
        self._opened(opening.name, opening.life, opening.graph, made)
        for job in opening.jobs:
            job()


def _make(
    graph: Graph, files: Mapping[str, Buffer] | None, deltas: tuple[DeltaFiles, ...], clock: Clock
) -> Made:
    try:
        if files is None:
            return Fragment(graph, clock=clock)
        state = together(files, deltas, "the state that came") if deltas else files
        return Fragment.restore(graph, state, clock=clock)
    except MedusaError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
