"""The owner's side of upstream backup: where a successor could begin, and up to where that is nothing new.

    checkpoint ──> on our disk, and all readers hold what was put out before it ──> a mark, for secondaries
        └── of the moments before it the newest whose rows no state needs: it is read again from there

A *moment* is where the inputs stood at a checkpoint. Senders hear that rows before it are durable once every
secondary has a mark that begins there or later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from medusa.elements import END_US, START_US, Train
from medusa.engine.operators.source import newest_time_us
from medusa.nodes.fragment.checkpoint_record import (
    RECORD,
    EntryRecord,
    FragmentRecord,
    InputRecord,
    OutputRecord,
)
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.upstream_backup.reach import Reach
from medusa.nodes.upstream_backup.records import InputMoment, MarksRecord, WarmUpRecord, WarmUpTarget
from medusa.nodes.upstream_backup.warm_up import WarmUp
from medusa.query.boxes import Source
from medusa.wire.link.sender import SKIPS_MAX
from medusa.wire.outbox import Outbox

__all__ = ["STEP", "Mark", "Marks"]

MOMENTS_MAX = 64
MOMENTS_LEAST = 4
POSITIONS_MAX = 4_096
"""Of more moments, or of more than four with so many positions of inputs, every second one is forgotten: a
successor begins earlier, and senders keep a little more. All are in each checkpoint."""

WAITING_MAX = 32
"""Checkpoints whose output readers don't hold yet; the last one gives way to a later one."""

STEP = 1 << 38
"""Where rows of an input come again, what comes of them has so much higher numbers. More rows than leave
between two checkpoints."""

JUMP = 1 << 46
"""A successor's first row has a number so much higher than that of the mark: rows may come again, and in
another order. More than all numbers between two marks. There is no jump where it gives the same rows again
(``FragmentSpec.repeats``): those go on with the numbers of the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """From where a successor begins.

    Attributes:
        token: of the checkpoint.
        decided: the number of the next decision then.
        outputs: (sink, next row) of each output.
        record: what the successor opens.
    """

    token: int
    decided: int
    outputs: tuple[tuple[str, int], ...]
    record: FragmentRecord

    def files(self) -> dict[str, bytes]:
        """As those of a checkpoint."""
        return {RECORD: self.record.to_bytes()}


class Marks:
    """Of one fragment.

    Args:
        record: of the checkpoint, or the mark, with which it begins; None: it begins with nothing.

    Attributes:
        newest: what secondaries are sent; None: nothing yet.
        warm_up: what is to be fed again before anything counts; None: nothing is.
    """

    warm_up: WarmUp | None = None

    def __init__(
        self, spec: FragmentSpec, sources: Mapping[str, Source], record: FragmentRecord | None
    ) -> None:
        known = MarksRecord((InputMoment(),), {}) if record is None or record.marks is None else record.marks
        self.newest: Mark | None = None
        self._jump = 0 if spec.repeats else JUMP
        self._entries = spec.entries
        self._reach = Reach(spec.graph)
        self._sources = sources
        self._moments = list(known.moments)
        self._newest_us = dict(known.newest)
        self._waiting: deque[Mark] = deque()
        self._begins_with = known.warm_up

    def begin(
        self,
        inputs: Mapping[tuple[str, str], FragmentInput],
        entries: PublishedSources,
        outbox: Outbox,
    ) -> WarmUp | None:
        """What is to be fed again first; None: nothing is.

        Args:
            inputs: all inputs of the fragment by (source, peer); shared with its owner.
            entries: its published sources.
        """
        if self._begins_with is not None:
            windows = self._reach.windows
            self.warm_up = WarmUp(self._begins_with, inputs, entries, outbox, windows=windows)
        return self.warm_up

    def warmed_up(self) -> None:
        """The state is that of the mark."""
        self.warm_up = None

    @property
    def start(self) -> InputMoment:
        """Rows before it are needed by nobody."""
        return self._moments[0]

    def ran(self, work: Work) -> None:
        """The engine took this."""
        train = work.element
        if not isinstance(train, Train) or not len(train):
            return
        source = self._sources[work.input.source]
        if (newest_us := newest_time_us(train, source)) is not None:
            before_us = self._newest_us.get(source.id, newest_us)
            self._newest_us[source.id] = max(newest_us, before_us)

    def begun_anew(self) -> None:
        """A sender has lost its stream, and numbers its rows anew: all that it has is read again."""
        self._moments = [InputMoment()]
        self._waiting.clear()

    # --- checkpoints --------------------------------------------------------------------------------

    def taken(self, record: FragmentRecord, outputs: Collection[FragmentOutput]) -> FragmentRecord:
        """What a checkpoint says beside; a mark follows from it."""
        if self.warm_up is None:
            boundaries = {output.sink: output.boundary_us for output in outputs}
            self._add(self._moment(record), boundaries)
        warm_up = None if self.warm_up is None else self.warm_up.record()
        marks = MarksRecord(
            moments=tuple(self._moments),
            newest=dict(self._newest_us),
            warm_up=warm_up,
            ahead={output.sink: output.ahead for output in outputs},
            skips={output.sink: output.skips for output in outputs},
        )
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.pop()
        self._waiting.append(
            Mark(
                token=record.token,
                decided=record.decided,
                outputs=tuple((output.sink, output.rows) for output in outputs),
                record=self._mark(record, outputs, warm_up),
            )
        )
        return msgspec.structs.replace(record, marks=marks)

    def _promised(self, record: FragmentRecord) -> dict[str, int]:
        """Of each source that publishers feed the time below which rows are late: what they promised, or the
        largest time less the slack."""
        promised: dict[str, int] = {}
        for source in self._entries:
            at_us = record.fed_us.get(source, int(START_US))
            if (newest_us := self._newest_us.get(source)) is not None:
                at_us = max(at_us, newest_us - (self._sources[source].slack_us or 0))
            promised[source] = at_us
        return promised

    def _moment(self, record: FragmentRecord) -> InputMoment:
        inputs = tuple(
            (each.source, self._publisher(each), each.next_seq, each.note) for each in record.inputs
        )
        return InputMoment(inputs, dict(self._newest_us), self._promised(record))

    def _publisher(self, input: InputRecord) -> str:
        return input.peer if input.source in self._entries else ""

    def _add(self, moment: InputMoment, boundaries: Mapping[str, int]) -> None:
        """A successor that begins at a later mark begins at the newest of which no state needs anything."""
        self._moments.append(moment)
        fit = [
            place
            for place, each in enumerate(self._moments)
            if place == 0 or self._reach.over(each.newest, boundaries)
        ]
        del self._moments[: max(fit)]
        most = min(MOMENTS_MAX, max(POSITIONS_MAX // max(len(moment.inputs), 1), MOMENTS_LEAST))
        if len(self._moments) > most:
            del self._moments[1:-1:2]

    def _mark(
        self, record: FragmentRecord, outputs: Collection[FragmentOutput], warm_up: WarmUpRecord | None
    ) -> FragmentRecord:
        """What a successor opens instead of the checkpoint."""
        start = self.start
        if warm_up is None:
            targets = tuple(
                WarmUpTarget(i.source, self._publisher(i), i.next_seq, i.boundary_us) for i in record.inputs
            )
            last = {source: record.fed_us.get(source, int(START_US)) for source in self._entries}
        else:
            targets, last = warm_up.targets, warm_up.last
        first = {source: start.promised.get(source, int(START_US)) for source in self._entries}
        boundaries_us = {output.sink: output.boundary_us for output in outputs}
        rows = {output.sink: output.rows for output in outputs}
        begins = {sink: seq + self._jump for sink, seq in rows.items()}
        skips = {o.sink: o.skips for o in outputs}
        if self._jump:
            skips = {sink: (*of, (rows[sink], begins[sink]))[-SKIPS_MAX:] for sink, of in skips.items()}
        return msgspec.structs.replace(
            record,
            inputs=tuple(_begins_at(each, self._publisher(each), start) for each in record.inputs),
            outputs=tuple(_begins(each, begins, boundaries_us) for each in record.outputs),
            fed_us=dict(first),
            spec=b"",
            marks=MarksRecord(
                moments=(start,),
                newest=dict(start.newest),
                warm_up=WarmUpRecord(targets, first, last),
                ahead=begins,
                skips=skips,
            ),
        )

    def waits(self, on_disk: int) -> bool:
        """Whether a checkpoint that is on our disk, the newest by this token, isn't a mark yet."""
        return bool(self._waiting) and self._waiting[0].token <= on_disk

    def settle(self, on_disk: int, received: Mapping[str, int | None]) -> bool:
        """Whether there is a newer mark: it is on our disk, and readers hold all that came before it.

        Args:
            on_disk: the newest checkpoint that is, by token.
            received: sink -> the rows below it every reader holds durably; None: nobody reads.
        """
        newest = None
        while self._waiting and self._waiting[0].token <= on_disk:
            mark = self._waiting[0]
            if any((at := received.get(sink)) is not None and at < seq for sink, seq in mark.outputs):
                break
            newest = self._waiting.popleft()
        self.newest = newest or self.newest
        return newest is not None

    def failed(self, token: int) -> None:
        """This checkpoint isn't on disk."""
        self._waiting = deque(each for each in self._waiting if each.token != token)


def _begins_at(input: InputRecord, publisher: str, start: InputMoment) -> InputRecord:
    """It is read from there on; what its sender promised comes again."""
    seq = start.position(input.source, publisher)
    return msgspec.structs.replace(
        input,
        next_seq=seq,
        boundary_us=int(START_US),
        note=start.note(input.source, publisher),
        acknowledged=min(input.acknowledged, seq),
    )


def _begins(output: OutputRecord, rows: Mapping[str, int], boundaries_us: Mapping[str, int]) -> OutputRecord:
    """Nothing is kept of what was put out before, but that it has ended: a reader may not have heard it."""
    first_seq, promised_us = rows[output.sink], boundaries_us[output.sink]
    entries: tuple[EntryRecord, ...] = ()
    if output.entries and output.entries[-1].time_us == END_US:
        entries = (EntryRecord(first_seq, first_seq, int(END_US)),)
        *_, promised_us = (output.first_boundary_us, *_promises(output))
    return msgspec.structs.replace(
        output,
        first_seq=first_seq,
        first_boundary_us=promised_us,
        entries=entries,
        segments=(),
        again=0,
        held=0,
    )


def _promises(output: OutputRecord) -> Iterator[int]:
    """Those before the end, in order."""
    return (each.time_us for each in output.entries if each.time_us is not None and each.time_us < END_US)
