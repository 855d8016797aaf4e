"""Forks that are being made: second instances of fragments with the state that those had.

The state is copied in the engine's thread piece by piece, as for a checkpoint, and the fork is made of the
copy beside it. What is given for the fork waits until then. Nobody else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from medusa.engine.fragment import Fragment
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.errors import StateError
from medusa.ports import Clock
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.hosted import HostedFragment
from medusa.runtime.engine_host.openings import Made
from medusa.runtime.engine_host.repartition_jobs import why_of
from medusa.wire.outbox import GAVE_WAY, Fork

__all__ = ["Forks"]

Job = Callable[[], None]

AT_ONCE_ROWS = 1 << 20
"""A checkpoint of which no more is left is copied to its end before a fork is; others are taken later. Too
few: work is done twice; too many: the fragment rests meanwhile, and X goes by."""


@dataclass(slots=True)
class _Coming:
    """A fork that isn't there yet.

    Attributes:
        jobs: what waits for it.
        copying: the state that it will have; None: its fragment has something to do before.
    """

    effect: Fork
    life: int
    jobs: list[Job] = field(default_factory=list)
    copying: BackgroundCopy | None = None


class Forks:
    """Of one host; the engine's thread calls it.

    Args:
        running: the fragments of the host.
        give: does a job in the engine's thread after all that it was given before.
        beside: does a job in a thread beside that.
        room: makes room for one of this name and life that is as large as its fragment; why there is none.
        begin: takes a fork and its life, or why there is none.
    """

    def __init__(
        self,
        running: Mapping[str, HostedFragment],
        clock: Clock,
        *,
        give: Callable[[Job], None],
        beside: Callable[[Job], None],
        room: Callable[[str, int, HostedFragment], str],
        begin: Callable[[Fork, int, Made], None],
    ) -> None:
        self._running = running
        self._clock = clock
        self._give = give
        self._beside = beside
        self._room = room
        self._begin = begin
        self._coming: dict[str, _Coming] = {}

    def expect(self, effect: Fork, life: int) -> None:
        """From now on what is given for it waits."""
        self._coming[effect.fork] = _Coming(effect, life)

    def defers(self, name: str, job: Job) -> bool:
        """Whether a job has to wait until this fork is there."""
        if (coming := self._coming.get(name)) is None:
            return False
        coming.jobs.append(job)
        return True

    def copy(self, name: str) -> None:
        """Its fragment is at rest and has been fed all that came before."""
        if (coming := self._coming.get(name)) is None:
            return  # it was closed meanwhile
        try:
            running, fragment = self._fragment(coming.effect.fragment)
            running.pieces.give_way(GAVE_WAY, beyond_rows=AT_ONCE_ROWS)
            if why := self._room(name, coming.life, running):
                raise StateError(why, code="state.memory")
            copying = coming.copying = running.pieces.of(fragment)
        except Exception as error:
            self._end(coming, why_of(error))
            return
        running.pieces.begin(copying, partial(self._copied, coming, fragment.graph, copying))

    def _fragment(self, name: str) -> tuple[HostedFragment, Fragment]:
        if (running := self._running.get(name)) is None:
            raise StateError(f"fragment {name!r} was removed", code="state.gone")
        if running.failed or running.fragment is None:
            raise StateError(f"fragment {name!r} has failed", code="state.failed")
        return running, running.fragment

    def _copied(self, coming: _Coming, graph: Graph, copying: BackgroundCopy, why: str) -> None:
        if not self._waits(coming):
            return
        if why:
            self._end(coming, why)
            return

        def make_beside() -> None:
            if self._waits(coming):  # else it was closed while it waited
                made = _make(graph, copying, self._clock)
                self._give(lambda: self._made(coming, made))

        self._beside(make_beside)

    def _made(self, coming: _Coming, made: Made) -> None:
        if self._waits(coming):
            self._end(coming, made)

    def _waits(self, coming: _Coming) -> bool:
        return self._coming.get(coming.effect.fork) is coming

    def _end(self, coming: _Coming, made: Made) -> None:
        """It is there, or isn't to be; then what waits for it does nothing."""
        del self._coming[coming.effect.fork]
        self._begin(coming.effect, coming.life, made)
        for job in coming.jobs:
            job()

    def refuse(self, name: str, why: str) -> bool:
        """It isn't made, and that is told; whether it was being made."""
        if (coming := self._coming.get(name)) is None:
            return False
        self._stop_copying(coming, why)
        if self._waits(coming):
            self._end(coming, why)
        return True

    def give_up(self, name: str) -> None:
        """It was closed: it isn't made, and what waits for it is forgotten."""
        if (coming := self._coming.pop(name, None)) is not None:
            self._stop_copying(coming, "it was closed")

    def give_up_all(self) -> None:
        """The host ends."""
        for name in list(self._coming):
            self.give_up(name)

    def _stop_copying(self, coming: _Coming, why: str) -> None:
        running = self._running.get(coming.effect.fragment)
        if running is not None and coming.copying is not None:
            running.pieces.abandon(why, only=coming.copying)


def _make(graph: Graph, copying: BackgroundCopy, clock: Clock) -> Made:
    """In any thread."""
    try:
        return Fragment.restore(graph, copying.files(), clock=clock)
    except Exception as error:
        return why_of(error)
