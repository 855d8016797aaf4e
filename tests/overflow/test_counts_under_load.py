"""What fragments that run elsewhere have counted is told while triggers follow each other without a rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from medusa.engine.fragment import Fragment
from medusa.nodes.reports import Stats
from medusa.runtime.engine_host.gathering import GatheringHost
from medusa.runtime.engine_host.host import STATS_EVERY_US
from medusa.sim.world.disk import Disk
from medusa.spark.overflow.remote_fragment import ElementAnswer, RemoteFragment
from medusa.wire.outbox import RunFragment
from tests.overflow.in_process import InProcess
from tests.runtime.engine_by_hand import ByHand, Ticking, passing, rows

ROWS = 10


class _NeverIdle(RemoteFragment):
    """During each trigger the next element comes, until there were enough of them."""

    def __init__(self, fragment: Fragment, clock: Ticking, more: Callable[[], None]) -> None:
        super().__init__(fragment, InProcess(), key="q", shards=1, clock=clock)
        self._time, self._more = clock, more

    def trigger(self) -> list[ElementAnswer]:
        answers = super().trigger()
        self._time.us += 2 * STATS_EVERY_US
        self._more()
        return answers


class _Elsewhere:
    def __init__(self, clock: Ticking, more: Callable[[], None]) -> None:
        self._clock, self._more = clock, more

    def take(self, name: str, fragment: Fragment) -> Any:
        return _NeverIdle(fragment, self._clock, self._more)


def test_counts_are_told_although_the_engine_is_never_idle() -> None:
    clock = Ticking()
    hands = ByHand(clock)
    known: list[int] = []
    """Rows that the node knew of as each trigger ended."""

    def more() -> None:
        told = [each for each in host.finished() if isinstance(each, Stats)]
        known.append(told[-1].counts["boxes"]["rows"]["rows_in"] if told else 0)
        if len(known) < 10:
            feed(len(known))

    def feed(number: int) -> None:
        host.run(RunFragment(fragment="q", stream="rows", element=rows(ROWS, first=number * ROWS)))

    host = GatheringHost(_Elsewhere(clock, more), Disk("d"), clock, wake=lambda: None, worker=hands)
    host.open("q", passing("q").graph)
    hands.engine()
    host.finished()
    feed(0)
    hands.engine()
    assert known == [0, *(ROWS * number for number in range(1, 10))], "each trigger's, before the next one"
