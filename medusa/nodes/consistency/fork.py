"""One fork: what it is fed, in which order, and what leaves of it. No IO.

    either lane ──> queue ──> rows below its boundary left out ──> RunFragment("NAME#3") ──> tentative lane
                                       ^
    ``Silent``: how far do missing and idle sources hold boxes back? ── the answer is their boundary

It is fed what the stable instance wasn't when the state was copied, and from then on all that comes. Nothing
is logged or waited for, since nothing of it counts. What comes is fed at once. Where new rows are to wait
(``query/delay_policies``) it is what stands in for the missing inputs that waits: as far as the others were a
while ago. What comes by a tentative lane has waited at its sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from medusa.elements import END_US, START_US, Boundary, Element, Kind, Silent, Train
from medusa.engine.operators.source import TIME_MAX_US
from medusa.nodes.consistency.both_lanes import BothLanes
from medusa.nodes.consistency.missing_inputs import MissingInputs
from medusa.nodes.consistency.promise_history import PromiseHistory
from medusa.nodes.fragment.inputs import FragmentInput, TentativeWork, Work
from medusa.query.boxes import Source
from medusa.wire.codec import latest_us, without_below
from medusa.wire.fork_names import fork_name
from medusa.wire.outbox import CloseFragment, Fork, Outbox, RunFragment

__all__ = ["Answer", "ForkedFragment"]

RUNNING_MAX = 16
"""Elements under way to the engine. Too few: it waits for us; too many: what is lifted comes late."""

CHANGES_MAX = 64
"""A fork that is behind asks after so many elements how far its sources are to be lifted. Too few: the engine
does little else; too many: it answers late."""

WAITS_BYTES_MAX = 64 << 20
"""What may wait for it; a fork that is further behind is replaced by a new copy. Too small: a burst costs a
copy; too large: memory, and what it answers is late."""

ELEMENT_BYTES = 256
"""What an element costs beside its rows."""


@dataclass(slots=True, eq=False)
class _Fed:
    """What it is fed.

    Attributes:
        input: that brought it; None: it lifts a source that brings nothing.
        tentative: it came by the tentative lane.
        fork: of the sender, that put it out; 0: the sender itself did.
        work: as the stable instance is fed it.
        asked_at: of a lift, how many trains of its source had been fed when it was asked for.
        came_us: when it came.
    """

    source: str
    element: Element | Silent
    input: FragmentInput | None = None
    tentative: bool = False
    fork: int = 0
    work: Work | None = None
    asked_at: int = 0
    came_us: int = 0

    @property
    def nbytes(self) -> int:
        rows = self.element.batch.nbytes if isinstance(self.element, Train) else 0
        return ELEMENT_BYTES + rows


@dataclass(slots=True)
class _Held:
    """A lift of which not all is due yet.

    Attributes:
        asked_us: how far boxes ask for it.
        given_us: how far it was given.
        asked_at: as of ``_Fed``.
    """

    asked_us: int
    given_us: int
    asked_at: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an element.

    Attributes:
        tentative: that came by a tentative lane.
        work: the stable instance has put out as much once it is done with this; None: it has.
    """

    outputs: Sequence[tuple[str, Element]]
    tentative: bool
    work: Work | None


class ForkedFragment:
    """A second instance of a fragment.

    Args:
        number: which of its fragment's forks it is, from 1 on.
        token: of the effect that makes it.
        inputs: of the fragment, by (source, peer); shared with their owner.
        fed_us: source -> the boundary at which the stable instance stands, and so this one.
        missing: what is known of the inputs.
        history: what they had promised a while ago; None: new rows never wait.
        newest: what the stable instance was given last, until what came of it may leave; None: all may.

    Attributes:
        is_there: it was copied.
        lifted: sources that were given boundaries that nobody has promised.
        lanes: input -> the fork of its sender whose rows came first by its tentative lane.
        newest: of what came for the stable instance too, what this one was given last; None: nothing.
        late_rows: that came below its boundaries, and didn't enter.
        overrun: too much waits for it.
    """

    def __init__(
        self,
        fragment: str,
        number: int,
        token: int,
        *,
        sources: Mapping[str, Source],
        inputs: Mapping[tuple[str, str], FragmentInput],
        fed_us: Mapping[str, int],
        missing: MissingInputs,
        history: PromiseHistory | None = None,
        newest: Work | None,
        outbox: Outbox,
    ) -> None:
        self.name = fork_name(fragment, number)
        self.number = number
        self.token = token
        self.is_there = self.overrun = False
        self.lifted: dict[str, None] = {}
        self._lifting: tuple[str, ...] = ()
        """Those that are, as of now."""
        self.lanes: dict[FragmentInput, int] = {}
        self.newest = newest
        self.late_rows = 0
        self._sources = sources
        self._inputs = inputs
        self._missing = missing
        self._history = history
        self._outbox = outbox
        self._hold_us = 0
        """For so long what waits for missing inputs is held at present."""
        self._as_of_us: int | None = None
        """The time at which what was promised counts; None: all that was."""
        self._held: dict[str, _Held] = {}
        """By source."""
        self._at_us = dict(fed_us)
        self._began = {each: (each.fed_seq, each.fed_us) for each in inputs.values()}
        """Input -> row and boundary at which the stable instance stood when it was copied."""
        self._promised_us = {each: each.fed_us for each in inputs.values()}
        """Publisher -> the last promise of it that has come by."""
        self._brought: dict[FragmentInput, tuple[int, int, int]] = {}
        """Input -> the fork of its sender that brought rows last; below which time those before it did; below
        which time it did too."""
        self._both: dict[FragmentInput, BothLanes] = {}
        """Of those by whose tentative lanes rows have come."""
        self._trains = dict.fromkeys(sources, 0)
        self._queue: deque[_Fed] = deque()
        self._queue_bytes = 0
        self._running: deque[_Fed] = deque()
        self._answers: deque[tuple[int, Answer]] = deque()
        """When came what this is the answer to, which hasn't left; 0: it has waited."""
        self._is_asking = False
        self._asked: tuple[str, ...] = ()
        """The sources that were silent when the engine was asked last."""
        self._changes = 1
        """So many elements were fed since."""
        outbox.append(Fork(token=token, fragment=fragment, fork=self.name))

    def close(self) -> None:
        """It goes."""
        self._outbox.append(CloseFragment(fragment=self.name))

    def was_made(self) -> None:
        """It was copied, and runs what it is fed."""
        self.is_there = True

    def is_behind(self) -> bool:
        """Whether the stable instance was fed what was missing here, at a source that was lifted, or where a
        tentative lane stood in."""
        inputs = self._inputs.values()
        mine = (each for each in inputs if each.source in self.lifted or each in self.lanes)
        return any((each.fed_seq, each.fed_us) > self._began.get(each, (0, START_US)) for each in mine)

    def stands_us(self, source: str) -> int | None:
        """Where it stands at a source that was lifted; None: it wasn't, or beside sources that have ended,
        where nothing gets on any more."""
        at_us = self._at_us[source]
        return at_us if source in self.lifted and at_us < TIME_MAX_US else None

    # --- what it is fed ---------------------------------------------------------------------------

    def take(self, now_us: int, work: Work) -> None:
        """This came, and is for the stable instance too."""
        if isinstance(work.element, Train | Boundary):
            self._take(_Fed(work.input.source, work.element, work.input, work=work, came_us=now_us))

    def has(self, input: FragmentInput, trains: Iterable[Train]) -> None:
        """It was copied with these rows of the stable lane: those that the tentative one has count once."""
        both = self._both.setdefault(input, BothLanes())
        for train in trains:
            both.new(train, self._at_us[input.source], tentative=False)

    def take_tentative(self, work: TentativeWork) -> None:
        """This came by a tentative lane, where it has waited for as long as it may."""
        self.lanes.setdefault(work.input, work.fork)
        self._take(_Fed(work.input.source, work.element, work.input, tentative=True, fork=work.fork))

    def _take(self, fed: _Fed) -> None:
        if self._queue_bytes + fed.nbytes > WAITS_BYTES_MAX:
            self.overrun = True
            return
        self._queue.append(fed)
        self._queue_bytes += fed.nbytes

    def feed(self, now_us: int, idle: Collection[str], hold_us: int = 0) -> None:
        """Give the engine what it may be given.

        Args:
            idle: sources that bring nothing at present, and may.
            hold_us: for so long is held what waits for missing inputs.
        """
        self._hold_us, self._as_of_us = hold_us, now_us - hold_us if hold_us else None
        self._let_others_go_on()
        silent = self._silent(idle)
        self._lift()
        while len(self._running) < RUNNING_MAX and self._queue:
            fed = self._queue.popleft()
            self._queue_bytes -= fed.nbytes
            self.newest = fed.work or self.newest
            if (element := self._entering(fed, silent)) is not None:
                self._changes += 1
                about = fed.input, fed.tentative
                self._run(_Fed(fed.source, element, *about, work=self.newest, came_us=fed.came_us))
            if self._changes >= CHANGES_MAX:
                self._ask(silent)
        if not self._queue:
            self._ask(silent)

    def waits_since_us(self) -> int | None:
        """When came what is fed next of what the stable instance is fed too; None: nothing of that waits."""
        return next((fed.came_us for fed in self._queue if fed.came_us), None)

    def due_at_us(self) -> int | None:
        """When ``feed`` may give more of what is held; None: only others may change anything."""
        if self._as_of_us is None or self._history is None:
            return None
        times = [self._history.after_us(self._as_of_us)]
        times += [came_us for came_us, _ in self._answers]
        return min((time_us + self._hold_us for time_us in times if time_us is not None), default=None)

    def _lift(self) -> None:
        """Let missing sources go on as far as is due."""
        for source, held in list(self._held.items()):
            if source not in self._lifting:
                del self._held[source]
                continue
            due_us = min(held.asked_us, self._others_us(source))
            if due_us > held.given_us:
                held.given_us = due_us
                self._put_first(_Fed(source, Boundary(due_us), asked_at=held.asked_at))
            if due_us >= held.asked_us:
                del self._held[source]

    def _others_us(self, source: str) -> int:
        """How far those that a missing source meets were when what waits for it began to; at a tentative
        lane they wait no more, and of one that has ended nothing waits."""
        others = [each for each in self._inputs.values() if each.source != source and each.fed_us < END_US]
        return max(
            (
                self._at_us[each.source] if self._missing.lane(each) else self._counts_us(each)
                for each in others
            ),
            default=END_US,
        )

    def _counts_us(self, input: FragmentInput) -> int:
        """What an input has promised, as far as that counts by now."""
        if self._as_of_us is None or self._history is None:
            return int(END_US)
        return self._history.as_of(self._as_of_us, input)

    def _put_first(self, fed: _Fed) -> None:
        self._queue.appendleft(fed)
        self._queue_bytes += fed.nbytes

    def _ask(self, silent: tuple[str, ...]) -> None:
        """How far these sources hold boxes back, unless that is being asked, or nothing has changed since."""
        if silent and not self._is_asking and (self._changes or silent != self._asked):
            self._is_asking, self._changes, self._asked = True, 0, silent
            self._run(_Fed(silent[0], Silent(silent)))

    def _run(self, fed: _Fed) -> None:
        self._running.append(fed)
        element = fed.element
        assert isinstance(element, Train | Boundary | Silent)
        self._outbox.append(RunFragment(fragment=self.name, stream=fed.source, element=element))

    def _entering(self, fed: _Fed, silent: Collection[str]) -> Train | Boundary | None:
        """What of an element enters; None: nothing."""
        element, at_us = fed.element, self._at_us[fed.source]
        if isinstance(element, Train):
            self._trains[fed.source] += 1
            element = msgspec.structs.replace(element, kind=Kind.STABLE)
            below_us = max(at_us, self._again_below_us(fed, element))
            if element.times is None:
                return element
            train, late = (element, 0) if below_us == START_US else without_below(element, below_us)
            self.late_rows += late
            return self._new(fed, train, at_us) if len(train) else None
        assert isinstance(element, Boundary)
        promised_us: int | None = element.time_us
        if fed.input is None:
            # Who has come back meanwhile, or was only idle and brings rows, speaks for itself.
            idle = fed.source in silent and self._trains[fed.source] == fed.asked_at
            promised_us = promised_us if idle or fed.source in self._lifting else None
        elif not fed.input.judged:
            self._promised_us[fed.input] = max(element.time_us, self._promised_us.get(fed.input, START_US))
            promised_us = self._promised(fed.source)
        return None if promised_us is None else self._raised(fed.source, promised_us)

    def _new(self, fed: _Fed, train: Train, at_us: int) -> Train | None:
        """What of it the other lane of its sender hasn't brought; None: nothing."""
        if fed.input is None or not (fed.tentative or fed.input in self._both):
            return train
        both = self._both.setdefault(fed.input, BothLanes())
        return both.new(train, at_us, tentative=fed.tentative)

    def _again_below_us(self, fed: _Fed, train: Train) -> int:
        """Below this an earlier fork of the sender has brought the rows: another one begins where the sender
        itself stands, and what both put out counts once."""
        if fed.input is None or not fed.fork or train.times is None:
            return START_US
        fork, again_us, end_us = self._brought.get(fed.input, (fed.fork, START_US, START_US))
        if fork != fed.fork:
            again_us = end_us
        self._brought[fed.input] = fed.fork, again_us, max(end_us, latest_us(train) + 1)
        return again_us

    def _raised(self, source: str, time_us: int) -> Boundary | None:
        if time_us <= self._at_us[source]:
            return None
        self._at_us[source] = time_us
        return Boundary(time_us)

    # --- sources that bring nothing -----------------------------------------------------------------

    def _publishers(self, source: str) -> list[FragmentInput]:
        """Those that count: all that haven't gone for good."""
        mine = [each for each in self._inputs.values() if each.source == source and not each.judged]
        there = [each for each in mine if not each.gone or self._promised_us.get(each, START_US) >= END_US]
        return there or mine

    def _promised(self, source: str) -> int | None:
        """What those publishers of a source have promised that aren't missing; None: nobody is there."""
        publishers = self._publishers(source)
        there = [each for each in publishers if not self._missing.is_behind(each)]
        promised_us = min((self._promised_us.get(each, each.fed_us) for each in there), default=None)
        if promised_us is not None and len(there) < len(publishers):
            all_us = min(self._promised_us.get(each, each.fed_us) for each in publishers)
            counts_us = min(self._counts_us(each) for each in there)
            promised_us = min(promised_us, max(counts_us, all_us))
        # Who is missing may have rows: without it the source doesn't end.
        ends = promised_us is not None and promised_us >= END_US and len(there) < len(publishers)
        return None if ends else promised_us

    def _let_others_go_on(self) -> None:
        """A publisher that is missing by now holds the others of its source up no more."""
        for source, box in self._sources.items():
            if box.judged or not box.timed or len(self._running) >= RUNNING_MAX:
                continue
            promised_us = self._promised(source)
            if promised_us is not None and (boundary := self._raised(source, promised_us)) is not None:
                self._changes += 1
                self._run(_Fed(source, boundary, work=self.newest))

    def _silent(self, idle: Collection[str]) -> tuple[str, ...]:
        """The sources for which boxes aren't to wait, in the order of the graph."""
        found, lifting = [], []
        unpublished = self._missing.unpublished()
        for source, box in self._sources.items():
            if not box.timed or self._at_us[source] >= END_US:
                continue
            if box.judged:
                inputs = [each for each in self._inputs.values() if each.source == source]
                is_silent = any(self._is_lifted(each) for each in inputs)
            else:
                is_missed = source in unpublished or bool(self._publishers(source))
                is_silent = is_missed and self._promised(source) is None
            if is_silent:
                lifting.append(source)
            if is_silent or source in idle:
                found.append(source)
        self._lifting = tuple(lifting)
        self.lifted |= dict.fromkeys(lifting)
        return tuple(found)

    def _is_lifted(self, input: FragmentInput) -> bool:
        """Whether nothing comes in place of what is missing, and others have waited for as long as they may:
        what it brings below where it was lifted to is too late here, and shows with the corrections."""
        missing = self._missing
        return missing.is_behind(input) and missing.is_overdue(input) and not missing.lane(input)

    # --- what comes of it -------------------------------------------------------------------------

    def ran(self, outputs: Sequence[tuple[str, Element]]) -> None:
        """The oldest element under way was run; ``answers`` has what leaves."""
        fed = self._running.popleft()
        if not isinstance(fed.element, Silent):
            self._answers.append((fed.came_us, Answer(outputs, fed.tentative, fed.work)))
            return
        self._is_asking = False
        for source, boundary in outputs:
            if isinstance(boundary, Boundary) and boundary.time_us < END_US:
                asked_us, asked_at = boundary.time_us, self._trains[source]
                if self._hold_us and source in self._lifting:
                    self._held[source] = _Held(asked_us, self._at_us[source], asked_at)
                else:
                    self._put_first(_Fed(source, boundary, asked_at=asked_at))

    def answers(self) -> list[Answer]:
        """What is due of what came, in order. What came just now of an input that is reached waits as what is
        held up does: the stable instance may have got there by the time that it is due."""
        due = [
            number
            for number, (came_us, _) in enumerate(self._answers, 1)
            if self._as_of_us is None or came_us <= self._as_of_us
        ]
        return [self._answers.popleft()[1] for _ in range(max(due, default=0))]
