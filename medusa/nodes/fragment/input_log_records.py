"""What a fragment was fed, in order, as values, as bytes of a log, and as a script to do it again.

    left   rows to 40 │ rows to 80 │              │ boundary 7
    right             │            │ rows to 25   │              ──> the log: 0 1 2 3

The rows themselves are not in the log: whoever sent them keeps them until a checkpoint holds them, and
sends them again. A record says of which fragment it is and the number of its first decision, so
records that don't follow what came before are noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.elements import END_US, START_US, WHOLE_PPM, Boundary, Shed, Train
from medusa.engine.recovery.decisions import framed, whole_records
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.ports import Buffer

__all__ = [
    "JOINED",
    "LOST",
    "PROMISE",
    "ROWS",
    "SHED",
    "Decision",
    "InputLogRecord",
    "InputReplay",
    "pack",
    "share_of",
    "unpack",
]

ROWS, LOST, PROMISE, JOINED = range(4)
"""A train was fed; rows that nobody has any more were passed over; a boundary was fed; a publisher came."""

SHED = 5
"""How much is left out of a source from here on. 4 is no decision (``change_feed.PASSED``)."""


def share_of(input: FragmentInput, share_ppm: int) -> Work:
    """That so much is left out of the source of an input; its position stays."""
    return Work(
        input,
        Shed(share_ppm),
        next_seq=input.fed_seq,
        boundary_us=input.fed_us,
        cost=0,
        note=input.fed_note,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """One element that was fed.

    Attributes:
        kind: ``ROWS``, ``LOST``, ``PROMISE``, ``JOINED`` or ``SHED``.
        source, peer: the input; of a promise of several publishers, one of them; of what is left out, any of
            the source.
        to: the position after the rows; of a promise, its time; of a publisher, where it begins: 0; of what
            is left out, the share in millionths.
        arrival_us: when the rows came, by the clock of the node; None: nobody asks.
    """

    kind: int
    source: str
    peer: str
    to: int
    arrival_us: int | None = None


# --- bytes ----------------------------------------------------------------------------------


_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class InputLogRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record of a log.

    Attributes:
        fragment: whose it is.
        first: the number of its first decision.
        inputs: (source, peer) of the inputs that it names.
        fed: kind, input and ``to`` of each decision, one behind the other.
        arrivals: place of a decision in this record, and when its rows came: pairs, one behind the other.
    """

    fragment: _Name
    first: Annotated[int, Meta(ge=0)]
    inputs: tuple[tuple[_Name, _Name], ...]
    fed: tuple[int, ...]
    arrivals: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        """The number of the decision after it."""
        return self.first + len(self.fed) // 3

    def decisions(self) -> list[Decision]:
        """Its decisions, in order."""
        fed = iter(self.fed)
        came_us = dict(zip(self.arrivals[::2], self.arrivals[1::2], strict=True))
        return [
            Decision(kind, *self.inputs[index], to, came_us.get(place))
            for place, (kind, index, to) in enumerate(zip(fed, fed, fed, strict=True))
        ]


_decoder = msgpack_decoder(InputLogRecord)


def pack(fragment: str, first: int, decisions: Iterable[Decision]) -> bytes:
    """Decisions as one record."""
    places: dict[tuple[str, str], int] = {}
    fed: list[int] = []
    arrivals: list[int] = []
    for place, each in enumerate(decisions):
        fed += each.kind, places.setdefault((each.source, each.peer), len(places)), each.to
        if each.arrival_us is not None:
            arrivals += place, each.arrival_us
    return framed(
        msgspec.msgpack.encode(InputLogRecord(fragment, first, tuple(places), tuple(fed), tuple(arrivals)))
    )


def unpack(data: Buffer) -> tuple[list[InputLogRecord], int]:
    """As ``whole_records``, of a fragment on a node."""
    return whole_records(data, _decoder.decode, _possible)


def _possible(record: InputLogRecord) -> bool:
    fed = record.fed
    return (
        len(fed) > 0
        and len(fed) % 3 == 0
        and all(_fits(kind, to) for kind, to in zip(fed[::3], fed[2::3], strict=True))
        and all(0 <= index < len(record.inputs) for index in fed[1::3])
        and _came(record)
    )


def _came(record: InputLogRecord) -> bool:
    places = record.arrivals[::2]
    return (
        len(record.arrivals) % 2 == 0
        and list(places) == sorted(set(places))
        and all(0 <= place < len(record.fed) // 3 for place in places)
        and all(record.fed[3 * place] == ROWS for place in places)
        and all(START_US < came_us < END_US for came_us in record.arrivals[1::2])
    )


def _fits(kind: int, to: int) -> bool:
    if kind == PROMISE:
        return START_US < to <= END_US
    if kind == SHED:
        return 0 <= to <= WHOLE_PPM
    return to == 0 if kind == JOINED else kind in (ROWS, LOST) and to > 0


# --- doing it again -------------------------------------------------------------------------


class InputReplay:
    """What has to be fed again, as it was, before anything else.

    What comes meanwhile waits here, by input. Boundaries that come are not fed: those of the script
    are, at their places. A sender may have merged its own since, and then stand at another.

    Args:
        inputs: all inputs of the fragment by (source, peer); shared with its owner.

    Attributes:
        named: those inputs that decisions name; they have to stay until it is over.
    """

    def __init__(
        self, decisions: Sequence[Decision], inputs: Mapping[tuple[str, str], FragmentInput]
    ) -> None:
        self._left = deque(decisions)
        self.named = frozenset((each.source, each.peer) for each in decisions)
        self._inputs = inputs
        self._queues: dict[tuple[str, str], deque[Work]] = {}
        self._promised: dict[tuple[str, str], Work] = {}
        """The last boundary of each input that was passed over."""
        self.unfit = ""
        """Why it can't be followed any more: what came is not what was fed."""

    @property
    def done(self) -> bool:
        return not self._left

    @property
    def left(self) -> int:
        """Decisions that are not done again yet."""
        return len(self._left)

    def renamed(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """An input comes from another node from now on, with the same rows."""
        self._left = deque(
            replace(each, peer=new[1]) if (each.source, each.peer) == old else each for each in self._left
        )
        self.named = (self.named - {old}) | {new} if old in self.named else self.named
        if old in self._queues:
            self._queues[new] = self._queues.pop(old)
        if old in self._promised:
            self._promised[new] = self._promised.pop(old)

    def void(self, why: str) -> None:
        """It is over."""
        self.unfit = self.unfit or why

    def add(self, works: Iterable[Work]) -> None:
        """Take what came."""
        for work in works:
            self._queues.setdefault((work.input.source, work.input.peer), deque()).append(work)

    @property
    def over(self) -> bool:
        """All is done again, or the rest never can be: whoever has the rows that come next is gone."""
        if self.done or self.unfit:
            return True
        key = self._left[0].source, self._left[0].peer
        waits = self._left[0].kind in (ROWS, LOST) and self._come(key) < self._left[0].to
        return waits and self._inputs[key].gone

    def _come(self, key: tuple[str, str]) -> int:
        queue = self._queues.get(key)
        return max(queue[-1].next_seq if queue else 0, self._inputs[key].fed_seq)

    def next(self) -> Work | None:
        """What to feed next; None: it hasn't come yet, or never will (``unfit``)."""
        if not self._left or self.unfit:
            return None
        decision = self._left[0]
        key = decision.source, decision.peer
        input = self._inputs[key]
        if decision.kind == PROMISE:
            self._left.popleft()
            # Of a publisher it is what all have promised together: it says nothing of this one.
            time_us = decision.to if input.judged else input.fed_us
            return Work(input, Boundary(decision.to), next_seq=input.fed_seq, boundary_us=time_us, cost=0)
        if decision.kind == SHED:
            self._left.popleft()
            return share_of(input, decision.to)
        if decision.kind == JOINED:
            self._left.popleft()
            return Work(input, None, next_seq=input.fed_seq, boundary_us=input.fed_us, cost=0)
        if decision.to <= input.fed_seq:
            self.unfit = f"row {decision.to} of {input.stream!r} was fed before"
            return None
        if self._come(key) < decision.to:
            return None
        self._left.popleft()
        work = self._taken(key, decision)
        if work is None:
            self.unfit = f"stream {input.stream!r} of {input.peer!r} brings other rows, or has lost some"
        return work

    def _taken(self, key: tuple[str, str], decision: Decision) -> Work | None:
        """What lies before the position of this decision, as one."""
        input, queue = self._inputs[key], self._queues[key]
        trains: list[Train] = []
        at, cost = input.fed_seq, 0
        while at < decision.to:
            work = queue.popleft()
            cost += work.cost
            if isinstance(work.element, Boundary):
                before = self._promised.pop(key, None)
                cost += 0 if before is None else before.cost
                cost -= work.cost
                self._promised[key] = work
                continue
            if (work.element is None) is not (decision.kind == LOST):
                queue.appendleft(work)
                return None
            if isinstance(work.element, Train):
                train = work.element
                if work.next_seq > decision.to:  # It is cut as it was; the rest holds its credit.
                    rest = work.next_seq - decision.to
                    cost -= work.cost
                    queue.appendleft(
                        Work(
                            input,
                            train.part(len(train) - rest, rest),
                            next_seq=work.next_seq,
                            boundary_us=work.boundary_us,
                            cost=work.cost,
                        )
                    )
                    train = train.part(0, len(train) - rest)
                trains.append(train)
            at = min(work.next_seq, decision.to)
        element = _joined(trains, decision.arrival_us) if trains else None
        return Work(input, element, next_seq=at, boundary_us=input.fed_us, cost=cost)

    def missing(self) -> list[tuple[FragmentInput, int, int]]:
        """Rows that were fed and haven't come again: input, the first, how many."""
        ends: dict[tuple[str, str], int] = {}
        for each in self._left:
            if each.kind in (ROWS, LOST):
                ends[each.source, each.peer] = each.to
        return [
            (self._inputs[key], come, end - come)
            for key, end in ends.items()
            if (come := self._come(key)) < end
        ]

    def rest(self) -> list[Work]:
        """What has come and wasn't fed, in order of each input; nothing is left here."""
        works: list[Work] = []
        for key, queue in self._queues.items():
            works += [self._promised[key]] if key in self._promised else []
            works += queue
        self._queues, self._promised = {}, {}
        return works


def _joined(trains: Sequence[Train], arrival_us: int | None) -> Train:
    """Pieces of what was one train, which came then."""
    first = trains[0]
    if len(trains) == 1:
        return msgspec.structs.replace(first, arrival_us=arrival_us)
    late = [pa.array([False] * len(each)) if each.late is None else each.late for each in trains]
    times = [each.times for each in trains if each.times is not None]
    return Train(
        batch=pa.concat_batches([each.batch for each in trains]),
        times=pa.concat_arrays(times) if times else None,
        first_seq=first.first_seq,
        kind=first.kind,
        late=pa.concat_arrays(late) if any(each.late is not None for each in trains) else None,
        arrival_us=arrival_us,
    )
