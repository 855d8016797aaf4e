"""What a fragment is told by the clock of its node: a decision, since its rows don't say it.

    publisher ── rows ──> arrived at 12:00:03 ──> fed ──> logged with the train ──> judged by ``ahead=``
    publisher ── nothing for so long ──> who waits for it? ──> a boundary ──> fed, logged    (``idle=``)

A row is compared with the time at which its node received it. That is stamped into the header of the
train, noted with it when it is fed, and taken from the log when it is fed again.

A source is silent when no rows have come for so long. Then the engine is asked how far that holds boxes
back, and the answer is fed as a boundary, unless rows have come meanwhile. In the log such a boundary is
one of the node itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from medusa.elements import END_US, START_US, Boundary, Element, Silent, Train
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, Source
from medusa.query.graph import interleaves
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.outbox import Outbox

__all__ = ["ClockDecisions", "decides"]


def decides(graph: Graph) -> bool:
    """Whether what comes out depends on more than the rows: their interleaving, a clock, or the load."""
    return interleaves(graph) or any(
        isinstance(box, Source) and (_stamped(box) or _may_rest(box) or box.shed is not None)
        for box in graph.boxes
    )


def _stamped(source: Source) -> bool:
    return source.ahead_us is not None and source.arrival is None and not source.judged


def _may_rest(source: Source) -> bool:
    return source.idle_us is not None and not source.judged


class ClockDecisions:
    """Says of rows when they arrived, and of sources that they are silent, where sources ask for it.

    Args:
        sources: of the fragment.
        wall: the time of the node.
        incarnation, outbox, settings: as for its inputs.

    Attributes:
        own: (source, this node) -> the input by which a silent source takes boundaries.
    """

    def __init__(
        self,
        spec: FragmentSpec,
        sources: Mapping[str, Source],
        wall: WallClock,
        *,
        incarnation: int,
        outbox: Outbox,
        settings: LinkSettings,
    ) -> None:
        self._stamped = {id for id, source in sources.items() if _stamped(source)}
        self._wall = wall
        self._idle_us = {id: each.idle_us or 0 for id, each in sources.items() if _may_rest(each)}
        self.own = {
            (id, spec.node): FragmentInput(
                sources[id],
                spec.entries[id],
                spec.node,
                incarnation=incarnation,
                outbox=outbox,
                settings=settings,
            )
            for id in self._idle_us
        }
        self._inputs = {source: input for (source, _), input in self.own.items()}
        self._came_us: dict[str, int] = {}
        """Since when each of them may be silent."""
        self._fed = dict.fromkeys(self._idle_us, 0)
        """Trains that each was fed."""
        self._asking = False
        self._asked: dict[str, int] = {}
        """What each had been fed when the engine was asked last."""
        self._silent: tuple[str, ...] = ()
        """Those that were silent when the engine was asked last."""
        self._changed = False
        """Something was fed since."""
        self._wake_us: int | None = None

    def came(self, now_us: int, works: Iterable[Work]) -> None:
        """Take note of what has just come, and stamp it."""
        for work in works:
            if not isinstance(work.element, Train):
                continue
            if work.input.source in self._stamped:
                work.element = msgspec.structs.replace(work.element, arrival_us=self._wall.at(now_us))
            if work.input.source in self._idle_us:
                self._came_us[work.input.source] = now_us
                self._look(now_us)

    # --- silence ----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Time passes; before the first time no source is silent."""
        for source in self._idle_us:
            self._came_us.setdefault(source, now_us)
        self._look(now_us)

    def _look(self, now_us: int) -> None:
        times = (came_us + self._idle_us[source] for source, came_us in self._came_us.items())
        self._wake_us = min((at_us for at_us in times if at_us > now_us), default=None)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._wake_us

    def fed(self, work: Work) -> None:
        """The fragment was fed something that came."""
        self._changed = True
        if isinstance(work.element, Train) and work.input.source in self._fed:
            self._fed[work.input.source] += 1

    def silent(self, now_us: int) -> list[str]:
        """The sources of which no rows have come for as long as they may bring none."""
        return [
            source
            for source, idle_us in self._idle_us.items()
            if now_us - self._came_us.get(source, now_us) >= idle_us
        ]

    def ask(self, now_us: int, fed_us: Mapping[str, int]) -> Work | None:
        """The question how far silent sources hold boxes back; None: there is none, or nothing is new.

        Args:
            fed_us: the last boundary of each source.
        """
        if self._asking or not self._came_us:
            return None
        silent = tuple(source for source in self.silent(now_us) if fed_us[source] < END_US)
        if not silent or (silent == self._silent and not self._changed):
            return None
        self._asking, self._changed, self._silent = True, False, silent
        self._asked = dict(self._fed)
        input = self._inputs[silent[0]]
        return Work(input, Silent(silent), next_seq=0, boundary_us=int(START_US), cost=0)

    def answered(self, boundaries: Iterable[tuple[str, Element]]) -> list[Work]:
        """What to feed for it. Its positions are trains: rows that come before it make it void."""
        self._asking = False
        return [
            Work(
                self._inputs[source],
                boundary,
                next_seq=self._asked[source],
                boundary_us=int(START_US),
                cost=0,
            )
            for source, boundary in boundaries
            if isinstance(boundary, Boundary)
        ]

    def void(self, work: Work) -> bool:
        """Rows of its source were fed since the engine was asked for this boundary."""
        return work.next_seq != self._fed[work.input.source]
