"""How a successor begins: it is fed again up to where the mark stood, and what comes out goes nowhere.

    promises of before ──> rows from the start to the mark ──> promises of the mark ──> as any other

What comes out was put out, and received, before the mark. Rows behind the mark wait until all inputs are
there: of those the output counts. Then the state is that of the owner at the mark.

Where the sender was succeeded too, rows have other numbers than at the mark. Then what was promised says how
far that was: windows that had closed by then close, and no other. Without windows nothing is fed ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from medusa.elements import START_US, Boundary, Train
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.upstream_backup.records import WarmUpRecord, WarmUpTarget
from medusa.wire.outbox import Outbox

__all__ = ["WarmUp"]

Key = tuple[str, str]


class WarmUp:
    """Of one fragment.

    Args:
        inputs: all inputs of the fragment by (source, peer); shared with its owner.
        windows: what comes out is what windows give.

    Attributes:
        closed: all is fed that there is to feed.
    """

    def __init__(
        self,
        record: WarmUpRecord,
        inputs: Mapping[Key, FragmentInput],
        entries: PublishedSources,
        outbox: Outbox,
        *,
        windows: bool,
    ) -> None:
        self.closed = False
        self._windows = windows
        self._renumbered: set[Key] = set()
        """Inputs whose rows have other numbers than at the mark."""
        self._promised: set[Key] = set()
        """Of those, who has promised more than at the mark."""
        self._targets = {(each.source, each.publisher): each for each in record.targets}
        self._first = dict(record.first)
        self._last = dict(record.last)
        self._inputs = inputs
        self._entries = entries
        self._outbox = outbox
        self._waiting: deque[Work] = deque()
        self._behind: list[Work] = []
        """Behind the mark."""
        self._closing: deque[Work] | None = None
        for target in self._targets.values() if not windows else ():
            if (input := self._input(target)) is not None:
                input.receiver.has_promised(target.boundary_us)

    def record(self) -> WarmUpRecord:
        """What is left of it."""
        return WarmUpRecord(tuple(self._targets.values()), dict(self._first), dict(self._last))

    def _input(self, target: WarmUpTarget) -> FragmentInput | None:
        about = target.source, target.publisher
        return next((i for i in self._inputs.values() if (i.source, i.publisher) == about), None)

    def add(self, works: Iterable[Work]) -> None:
        """Take what came."""
        self._waiting.extend(works)

    def rest(self) -> list[Work]:
        """What has come and wasn't fed, in order; nothing is left here."""
        works, self._behind, self._waiting = [*self._behind, *self._waiting], [], deque()
        return works

    def waiting(self) -> list[Work]:
        """The same, which stays here."""
        return [*self._behind, *self._waiting]

    def next(self) -> Work | None:
        """What to feed next; None: it hasn't come yet, or ``closed``."""
        while self._first:
            source, time_us = self._first.popitem()
            input = next((each for each in self._inputs.values() if each.source == source), None)
            if input is not None and time_us > START_US:
                return Work(
                    input, Boundary(time_us), next_seq=input.fed_seq, boundary_us=input.fed_us, cost=0
                )
        while self._closing is None and self._waiting:
            if (work := self._before(self._waiting.popleft())) is not None:
                work.input.issued(work)
                return work
        if self._closing is None and all(map(self._reached, self._targets.values())):
            self._closing = deque(self._close())
        if self._closing:
            work = self._closing.popleft()
            work.input.issued(work)
            return work
        self.closed = self._closing is not None
        return None

    def _before(self, work: Work) -> Work | None:
        """Of what came what lies before the mark; the rest waits. None: nothing does."""
        input = work.input
        target = self._targets.get((input.source, input.publisher))
        if target is None:
            self._behind.append(work)
            return None
        key = input.source, input.publisher
        if isinstance(work.element, Boundary):
            if work.boundary_us > target.boundary_us:
                self._promised.add(key)
                self._behind.append(work)
                return None
            if input.judged:
                return work
            # At the end all that publishers promised together is fed.
            return Work(input, None, next_seq=work.next_seq, boundary_us=work.boundary_us, cost=work.cost)
        train = work.element
        skips = not isinstance(train, Train) and input.receiver.skipped > 0
        if skips and input.fed_seq <= target.seq < work.next_seq:
            self._renumbered.add(key)
        if work.next_seq <= target.seq or not isinstance(train, Train):
            return work
        after = work.next_seq - target.seq
        if after >= len(train):
            if key in self._renumbered and self._windows and key not in self._promised:
                return work
            self._behind.append(work)
            return None
        rest = Work(
            input,
            train.part(len(train) - after, after),
            next_seq=work.next_seq,
            boundary_us=work.boundary_us,
            cost=work.cost,
        )
        self._behind.append(rest)
        first = train.part(0, len(train) - after)
        return Work(input, first, next_seq=target.seq, boundary_us=work.boundary_us, cost=0)

    def _reached(self, target: WarmUpTarget) -> bool:
        input = self._input(target)
        key = target.source, target.publisher
        if key in self._renumbered:
            return not self._windows or key in self._promised or target.boundary_us <= START_US
        return input is None or input.fed_seq >= target.seq or input.gone

    def _close(self) -> list[Work]:
        """What was promised at the mark."""
        works: list[Work] = []
        for key, target in self._targets.items():
            input = self._input(target)
            if input is None:
                continue
            if input.fed_seq < target.seq and key not in self._renumbered:
                rows = target.seq - input.fed_seq
                about = {"stream": input.stream, "peer": input.peer}
                first = input.fed_seq
                self._outbox.report("error", "rows missing", rows=rows, first=first, **about)
            input.receiver.has_promised(target.boundary_us)
            if input.fed_us < target.boundary_us:
                promise = Boundary(target.boundary_us) if input.judged else None
                work = Work(input, promise, next_seq=input.fed_seq, boundary_us=target.boundary_us, cost=0)
                works.append(work)
        for source, time_us in self._last.items():
            input = next((each for each in self._inputs.values() if each.source == source), None)
            raised = self._entries.raised(source, Boundary(time_us))
            if input is not None and raised is not None:
                works.append(Work(input, raised, next_seq=input.fed_seq, boundary_us=input.fed_us, cost=0))
        return works
