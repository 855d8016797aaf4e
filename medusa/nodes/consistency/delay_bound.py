"""When a fragment forks, what its forks are fed, and how its streams are: all that ``delay=`` adds to it.

    missed, and others bring something ──> Fork ──> answers ──────────────────────> all corrected ──> it goes
    tentative rows come ─────────────────┘            │                                   ^
                                                      └── outdated ──> its successor ──┘

Of a stream to which no box that waits for boundaries leads the stable lane has the rows at once: only the
fork's boundaries leave, and the rows that came by a tentative lane. So nothing is there twice.

A fork is outdated when the stable instance has got further and is held up again, since what came late for the
fork would stay wrong in it; when tentative rows come from another fork of a sender, since those before are
void then; and when it is too far behind. Its successor is given again what came by other tentative lanes.
Where not all of that is kept what came late is no reason: nobody has the rest any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from medusa.automaton import next_state
from medusa.elements import END_US, START_US, Boundary, Element, Train
from medusa.engine.operators.source import newest_time_us
from medusa.nodes.consistency.catching_up import CatchingUp, CatchingUpInRounds, FedInstance
from medusa.nodes.consistency.corrections import BoxesAbove, UncorrectedRows, behind_us
from medusa.nodes.consistency.fork import ForkedFragment
from medusa.nodes.consistency.held_state import HeldState
from medusa.nodes.consistency.kept_lanes import KeptLanes
from medusa.nodes.consistency.meeting_sources import MeetingSources
from medusa.nodes.consistency.missing_inputs import MissingInputs, flows
from medusa.nodes.consistency.new_rows import NewRows
from medusa.nodes.consistency.promise_history import PromiseHistory
from medusa.nodes.consistency.states import CONSISTENCY, ConsistencyEvent, ConsistencyState
from medusa.nodes.fragment.inputs import FragmentInput, TentativeCame, Work
from medusa.nodes.fragment.outputs import FragmentOutput, leaving
from medusa.nodes.fragment.rested_inputs import RestedInputs
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Source
from medusa.query.delay import margin_us
from medusa.query.waiting_rows import waiting_rows
from medusa.wire.codec import latest_us
from medusa.wire.link.named_subscriptions import owner_and_name
from medusa.wire.link.tentative_receiver import StateChanged
from medusa.wire.messages.tentative import StreamStateName
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import ConsistencyStatus, MissingStatus

__all__ = ["DelayBound", "StableInstance"]

RETRY_US = 1_000_000
"""A fork that couldn't be made, failed or was too slow is tried again after this. Too small: the engine
copies all the time; too large: so long nothing new shows."""

RETRY_US_MAX = 60_000_000
"""A copy for which too much waited is made again after twice the time, up to this: where copies take longer
than what comes leaves them none is ever near. Too small: the engine does little but copy through a long
failure; too large: so long nothing new shows once less comes."""

UNREAD_US = 5_000_000
"""So long a fork goes on that nobody reads. Too small: for a reader that comes again it is copied anew; too
large: it takes memory and half of the engine's time for nobody."""

LATE_SHARE = 3
"""Once new rows have waited for a fork for one part in so many of X, the fragment is fed one element at a
time. Too small: they are late before; too large: corrections stop for every hiccup."""

BEGUN_MAX = 2
"""So many forks begin within that time: a sender that says another one with each word costs no more."""

_S, _E = ConsistencyState, ConsistencyEvent

_SAID: Mapping[ConsistencyState, StreamStateName] = {
    _S.STABLE: "stable",
    _S.UP_FAILURE: "up_failure",
    _S.STABILIZATION: "stabilization",
    _S.FAILURE: "failure",
}

_MISSES = (_S.UP_FAILURE, _S.FAILURE)
_LATE = (_S.UP_FAILURE, _S.STABILIZATION)


class StableInstance(FedInstance, Protocol):
    """The fragment itself, as its bound asks it and looks at it."""

    @property
    def spec(self) -> FragmentSpec: ...

    @property
    def inputs(self) -> dict[tuple[str, str], FragmentInput]: ...

    @property
    def outputs(self) -> Mapping[str, FragmentOutput]: ...

    @property
    def may_fork(self) -> bool:
        """It feeds what comes, as it comes."""
        ...

    @property
    def fed_us(self) -> Mapping[str, int]:
        """Source that publishers feed -> the last boundary that it was fed."""
        ...

    def waiting(self) -> list[Work]:
        """What has come, isn't fed and is in memory."""
        ...

    @property
    def rested(self) -> RestedInputs:
        """What has come by sources that rest."""
        ...

    def idle_sources(self, now_us: int) -> Collection[str]:
        """Sources with ``idle`` that bring nothing."""
        ...


@dataclass(slots=True, eq=False)
class _Output:
    """How an output stream is.

    Attributes:
        since_us: when it became so; None: it always was.
        catching: what it waits for, once nothing that leads to it is behind, and all is near.
        uncorrected: what forks have put out and the stable lane hasn't passed.
    """

    state: ConsistencyState = _S.STABLE
    since_us: int | None = None
    catching: CatchingUpInRounds | None = None
    uncorrected: UncorrectedRows = field(default_factory=UncorrectedRows)


class DelayBound:
    """Of one fragment.

    Args:
        of: the fragment.
        broken_since_us: since when a peer isn't heard, or doesn't hear us; None: all is well.
        restored: it goes on where it stood before: until it has caught up its streams are behind.
        waiting_bytes_max: by so much the state may grow while an input is missing.
        grace_us: publishers have so long to come back to a node that has started.

    Attributes:
        is_calm: when it was last looked all was well: there is no fork, and nothing rests.
    """

    def __init__(
        self,
        of: StableInstance,
        broken_since_us: Callable[[str], int | None],
        *,
        restored: bool,
        outbox: Outbox,
        next_token: Callable[[], int],
        waiting_bytes_max: int = 1 << 62,
        grace_us: int = 0,
    ) -> None:
        graph = of.spec.graph
        self._of = of
        self._outbox = outbox
        self._next_token = next_token
        self._sources = {box.id: box for box in graph.boxes if isinstance(box, Source)}
        self._waits = {sink: rows.wait for sink, rows in waiting_rows(graph).items()}
        self._meeting = MeetingSources(graph)
        self._boxes = BoxesAbove(graph)
        self._state = HeldState(waiting_bytes_max, self._meeting.above, self._meeting.together)
        self._missing = MissingInputs(
            of.inputs,
            of.spec.delay_us,
            broken_since_us,
            self._stands_us,
            meeting={source: self._meeting.together[source] for source in self._waited()},
            together=self._meeting.together,
            has_ended=lambda source: of.fed_us[source] >= END_US,
            restored=restored,
            grace_us=grace_us,
        )
        self._new_rows = NewRows(of.spec)
        self._late_us, self._moment_us = of.spec.delay_us // LATE_SHARE, margin_us(of.spec.delay_us)
        before = {each: each.fed_us for each in of.inputs.values()}
        self._history = PromiseHistory(self._new_rows.wait_us, before) if self._new_rows.delays else None
        self._kept = KeptLanes()
        self._outputs: dict[str, _Output] = {}
        self._forks: list[ForkedFragment] = []
        """The one from which rows leave, or are to, and the one that is to succeed it."""
        self._number = self._now_us = 0
        self._begun_us: deque[int] = deque(maxlen=BEGUN_MAX)
        """When the last ones began."""
        self.is_calm = False
        self._is_again = False
        """An input went missing while corrections came."""
        self._is_due = False
        """The successor of a fork was lost before it answered: another one is tried."""
        self._held: deque[tuple[Work | None, FragmentOutput, Element]] = deque()
        """Boundaries of streams whose rows the stable lane has, and what those have to wait for."""
        self._healed: dict[str, CatchingUp] = {}
        """Sources that are back while others are missing."""
        self._retry_at_us: int | None = None
        self._again_us = RETRY_US // 2
        """The next fork for which too much waits is replaced after this."""
        self._unread_at_us: int | None = None
        """When there is to be no fork any more; None: somebody reads what it puts out, or there is none."""
        self.why = ""
        """Why there was no fork when there should have been one; empty: there was."""
        if restored:
            self._restore(0)

    def _waited(self) -> Iterator[str]:
        """Sources that publishers feed, and that may not bring nothing."""
        for source in self._of.spec.entries:
            box = self._sources[source]
            if box.timed and box.idle_us is None:
                yield source

    # --- what happens to the fragment -----------------------------------------------------------------

    def begin(self, now_us: int) -> None:
        """The node starts: before nobody could be heard, and it may not have known the time. Without a
        checkpoint of the fragment there may have been rows all the same."""
        self._missing.begin(now_us)
        self._restore(now_us)

    def _restore(self, now_us: int) -> None:
        """Until it has caught up its streams are behind."""
        self.is_calm = False
        for id in self._of.outputs:
            if self._output(id).state is _S.STABLE:
                self._outputs[id] = _Output(state=_S.STABILIZATION, since_us=now_us or None)
        self._say(now_us)

    def came(self, now_us: int, input: FragmentInput, works: Iterable[Work]) -> None:
        """A message came for an input, and brought this; ``look`` follows."""
        for work in works:
            if isinstance(work.element, Train | Boundary):
                self._missing.came(now_us, input)
                if self._history is not None:
                    self._history.came(now_us, input, self._promise_of(work))
                self._kept.came(work)
                for fork in self._forks:
                    fork.take(now_us, work)
        lane = input.take_tentative()
        if lane or not flows(input):
            self.is_calm = False
            self._take_lane(now_us, lane)

    def _promise_of(self, work: Work) -> int:
        """What follows from an element for what is still to come."""
        element, source = work.element, self._sources[work.input.source]
        if isinstance(element, Boundary):
            return element.time_us
        if source.judged or not isinstance(element, Train):
            return int(START_US)  # The sender says it itself.
        newest_us = newest_time_us(element, source)
        return int(START_US) if newest_us is None else newest_us - (source.slack_us or 0)

    def _take_lane(self, now_us: int, lane: Iterable[TentativeCame]) -> None:
        for each in lane:
            if isinstance(each, StateChanged):
                self._react(now_us)  # Before its rows come: they are for the fork that this begins.
                continue
            # A fork that is slow is replaced, so nothing is gained by letting the sender wait for it.
            each.input.took(now_us, each)
            self._missing.came(now_us, each.input)
            self._kept.guessed(each)
            for fork in self._forks:
                fork.take_tentative(each)

    def look(self, now_us: int) -> None:
        """Time has passed, or something about inputs, readers or the fragment is otherwise; while it isn't
        ``is_calm``, also when the fragment was given something, or what came of that may leave."""
        self._now_us = now_us
        for input in list(self._of.inputs.values()):
            self._take_lane(now_us, input.take_tentative())
        self._react(now_us)
        self._release(now_us)
        if self._forks:
            idle, hold_us = self._of.idle_sources(now_us), self._hold_us()
            for fork in self._forks:
                fork.feed(now_us, idle, hold_us)
            self._answer(now_us, self._forks[0])

    def is_late(self, now_us: int) -> bool:
        """Whether new rows have waited so long for a fork that it is to be served before the fragment."""
        since = (each.waits_since_us() for each in self._forks)
        return any(at_us is not None and now_us - at_us >= self._late_us for at_us in since)

    def gave(self, work: Work) -> None:
        """The engine was given rows."""
        if not self.is_calm:
            self._state.fed(work.cost)

    def weighed(self, now_us: int, held_bytes: int) -> bool:
        """The engine says how much the boxes hold; whether other sources rest than before."""
        self._state.told(held_bytes)
        if self.is_calm:
            self._state.calm()
            return False
        return self._look_at_state()

    @property
    def resting(self) -> frozenset[str]:
        """Sources of which nothing more is fed: too much waits for an input that is missing."""
        return self._state.resting

    def _look_at_state(self) -> bool:
        late = [self._sink(id) for id in self._of.outputs if self._output(id).state in _LATE]
        held_up = [sink for sink in late if self._waits[sink]]
        missed = self._missing.missed_sources()
        back = self._missing.behind_sources() - missed
        return self._state.look(missed, held_up, back, self._fed_us())

    def end(self) -> None:
        """It rests, or goes: no fork of it is left. Where it goes on there is another one, if need be."""
        self.is_calm = False
        if self._forks or any(out.sender.tentative.fork for out in self._of.outputs.values()):
            self._close_forks()
            # Who reads goes on without: nothing comes of them any more, and what came of them is void.
            self._say(self._now_us, over=True)

    def fail(self) -> None:
        """The fragment can't go on: nothing will come of it, which is as if it weren't heard."""
        self.end()
        for id in self._of.outputs:
            output = self._output(id)
            output.state = next_state(CONSISTENCY, output.state, _E.LOST, of=f"stream of {id!r}")
            output.since_us = self._now_us
        self.why = "the fragment has failed"
        self._say(self._now_us)

    def _close_forks(self) -> None:
        for fork in self._forks:
            fork.close()
        self._forks.clear()
        self._unread_at_us = None
        self._held.clear()
        self._healed.clear()
        self._is_due = False

    def wake_at_us(self) -> int | None:
        """When ``look`` has work; None: not before something else happens."""
        if self.is_calm or not self._of.may_fork:
            return None
        times = [self._missing.due_at_us(), self._retry_at_us, self._unread_at_us]
        times += [each.due_at_us() for each in self._forks]
        return min((time_us for time_us in times if time_us is not None), default=None)

    # --- what becomes of forks --------------------------------------------------------------------------

    def _stands_us(self, source: str) -> int | None:
        """Where the fork stands at a source that it goes on without; None: there is none, or it doesn't."""
        return self._forks[0].stands_us(source) if self._forks else None

    def _fork(self, name: str) -> ForkedFragment | None:
        return next((each for each in self._forks if each.name == name), None)

    def forked(self, now_us: int, name: str, why: str) -> None:
        """A fork is there, or can't be made: why. Of one that was closed meanwhile nothing counts."""
        if (fork := self._fork(name)) is None:
            return
        if why:
            self._lose(now_us, fork, why)
            return
        fork.was_made()
        if self.why:
            self.why = ""
            self._say(now_us)

    @property
    def is_copying(self) -> bool:
        """A fork is asked for and isn't there: the engine copies the state."""
        return any(not each.is_there for each in self._forks)

    def failed(self, now_us: int, name: str, why: str) -> None:
        """A fork can't go on."""
        if (fork := self._fork(name)) is not None:
            fork.close()
            self._lose(now_us, fork, why)

    def ran(self, now_us: int, name: str, outputs: Sequence[tuple[str, Element]]) -> None:
        """A fork has run an element; what came of it goes on the tentative lane."""
        if (fork := self._fork(name)) is None:
            return
        fork.ran(outputs)
        if fork is not self._forks[0]:
            self._forks.pop(0).close()
            self._held.clear()
            self._is_due = False
            self._say(now_us)
        self._answer(now_us, fork)
        self._release(now_us)
        fork.feed(now_us, self._of.idle_sources(now_us), self._hold_us())

    def _answer(self, now_us: int, fork: ForkedFragment) -> None:
        of = self._of
        for answer in fork.answers():
            for output, element in leaving(of.outputs, of.spec.guests, answer.outputs):
                waits = self._waits[self._sink(output.sink)]
                if waits or isinstance(element, Train):
                    self._leave(now_us, output, element, rows=waits or answer.tentative)
                else:
                    self._held.append((answer.work, output, element))

    def _leave(self, now_us: int, output: FragmentOutput, element: Element, *, rows: bool) -> None:
        fork = output.sender.tentative.fork
        if not fork or self._suspends(output.sink):
            return
        if self._new_rows.delays and _is_void(element, output.boundary_us):
            return  # While it waited the right rows have come.
        output.tentative_take(now_us, element, rows=rows)
        if rows and isinstance(element, Train):
            self._output(output.sink).uncorrected.shown(fork, element, output.boundary_us)

    def _release(self, now_us: int) -> None:
        """Where the stable lane has the rows, what the fork promises follows them."""
        while self._held and ((work := self._held[0][0]) is None or self._of.has_left(work)):
            _, output, boundary = self._held.popleft()
            self._leave(now_us, output, boundary, rows=False)

    def _lose(self, now_us: int, fork: ForkedFragment, why: str) -> None:
        was_first = fork is self._forks[0]
        self._forks.remove(fork)
        self._retry_at_us = now_us + RETRY_US
        # Once: it is tried again and again, and status goes on saying why.
        if not self._forks:
            if not self.why:
                self._warn("no fork: nothing new shows while an input is missing", fork, why)
            self.why, self._is_due = why, False
        elif not was_first:
            if not self._is_due:
                self._warn("no newer fork: what is tentative lacks more", fork, why)
            self._is_due = True
        self._say(now_us)

    def _warn(self, what: str, fork: ForkedFragment, why: str) -> None:
        self._outbox.report("warning", what, fragment=self._of.spec.name, fork=fork.number, why=why)

    # --- what is due ------------------------------------------------------------------------------------

    def _react(self, now_us: int) -> None:
        if not self._of.may_fork:
            self.end()
            self._missing.rest()
            return
        self._missing.look(now_us)
        if self._history is not None:
            self._history.look(self._of.inputs)
        self._kept.look(self._of.inputs.values())
        while self._step(now_us):
            pass
        states = [self._output(id).state for id in self._of.outputs]
        self.is_calm = self._missing.calm and all(state is _S.STABLE for state in states)
        if self.is_calm:
            self._state.calm()
        else:
            self._look_at_state()
        self._decide(now_us, states)
        self._say(now_us)

    def _sink(self, id: str) -> str:
        """The box by which an output leaves."""
        guests = self._of.spec.guests
        return guests[id].sink if id in guests else id

    def _output(self, id: str) -> _Output:
        return self._outputs.setdefault(id, _Output())

    def _step(self, now_us: int) -> bool:
        """How the streams are by what is known of the inputs; whether any is otherwise than before."""
        changed = False
        missing = self._missing
        missed, behind, lost = missing.missed_sources(), missing.behind_sources(), missing.lost_sources()
        late = missing.late_sources()
        for id in self._of.outputs:
            output, above = self._output(id), self._meeting.above[self._sink(id)]
            event = self._event(now_us, output, above, missed, behind, lost, late)
            if event is None:
                continue
            before = output.state
            output.state = next_state(CONSISTENCY, before, event, of=f"stream of {id!r}")
            if output.state is not _S.STABILIZATION:
                output.catching = None
            if output.state is not before:
                self._is_again |= before is _S.STABILIZATION and output.state in _MISSES
                output.since_us, changed = now_us, True
                if before is _S.STABLE or output.state in _MISSES:
                    missing.look_anew()
                self._tell(id, output.state)
        return changed

    def _event(
        self,
        now_us: int,
        output: _Output,
        above: Set[str],
        missed: Set[str],
        behind: Set[str],
        lost: Set[str],
        late: Set[str],
    ) -> ConsistencyEvent | None:
        if not missed.isdisjoint(above):
            return _E.LOST if above <= lost else _E.MISSED
        if output.state in _MISSES:
            return _E.BACK
        if not behind.isdisjoint(above):
            output.catching = None
            return _E.BEHIND
        if output.state is _S.STABLE:
            return None
        if not late.isdisjoint(above):  # Too short to show; but what it holds up isn't corrected yet.
            output.catching = None
            return _E.BEHIND
        if not self._missing.are_near(now_us, above):  # What holds one up is too short for its sender to say.
            output.catching = None
            return _E.BEHIND
        if output.catching is None:
            inputs = [each for each in self._of.inputs.values() if each.source in above]
            output.catching = CatchingUpInRounds(now_us, inputs, self._moment_us)
        return _E.CORRECTED if output.catching.is_over(now_us, self._of) else None

    def _tell(self, id: str, state: ConsistencyState) -> None:
        level = "warning" if state in _MISSES else "info"
        about = {
            "stream": self._of.outputs[id].stream,
            "state": state.value,
            "missing": ", ".join(each.what for each in self._missing_inputs(self._now_us, id)),
        }
        self._outbox.report(level, "stream is otherwise", **about)

    def _suspends(self, id: str) -> bool:
        """Whether new rows of a stream, as it is now, don't leave tentatively."""
        return self._new_rows.wait(self._sink(id), self._output(id).state)

    def _hold_us(self) -> int:
        """For how long what waits for missing inputs is held in forks."""
        return self._new_rows.hold_us([self._output(id).state for id in self._of.outputs])

    def _say(self, now_us: int, *, over: bool = False) -> None:
        """To readers, how the streams are.

        Args:
            over: nothing holds any more that forks have put out.
        """
        # After one that couldn't be made the next is named once it is there: readers follow each that is.
        there = self._forks[0].number if self._forks and not self.why else 0
        for id, output in self._of.outputs.items():
            state, lane = self._output(id).state, output.sender.tentative
            number = 0 if state is _S.STABLE or over else there
            if number != lane.fork and self._suspends(id):
                keeps = self._new_rows.keeps_shown(self._sink(id), state) and not over
                number = lane.fork if keeps else 0
            lane.state(now_us, _SAID[state], number)

    # --- forks --------------------------------------------------------------------------------------------

    def _decide(self, now_us: int, states: Sequence[ConsistencyState]) -> None:
        self._is_again = self._is_again and not {*_MISSES}.isdisjoint(states)
        if all(state is _S.STABLE for state in states) or self._new_rows.all_wait(states):
            self._close_forks()
            self._kept.clear()
            self.why, self._retry_at_us, self._again_us = "", None, RETRY_US // 2
            return
        if self._is_unread(now_us):
            self._close_forks()
        if self._retry_at_us is not None and now_us < self._retry_at_us:
            return
        self._retry_at_us = None
        if len(self._begun_us) == BEGUN_MAX and now_us < self._begun_us[0] + RETRY_US:
            self._retry_at_us = self._begun_us[0] + RETRY_US
        elif not self._forks:
            if self._has_reason():
                self._begin(now_us)
        elif self._forks[-1].overrun:
            self._replace_slow(now_us)
        elif len(self._forks) == 1 and (self._is_due or self._is_outdated(self._forks[0], states)):
            self._begin(now_us)

    def _begin(self, now_us: int) -> None:
        self._number += 1
        self._begun_us.append(now_us)
        self._retry_at_us, self._is_again = None, False
        self._healed.clear()
        fork = ForkedFragment(
            self._of.spec.name,
            self._number,
            self._next_token(),
            sources=self._sources,
            inputs=self._of.inputs,
            fed_us=self._fed_us(),
            missing=self._missing,
            history=self._history,
            newest=self._of.newest,
            outbox=self._outbox,
        )
        self._feed_what_came(now_us, fork)
        self._forks.append(fork)

    def _feed_what_came(self, now_us: int, fork: ForkedFragment) -> None:
        """What the stable instance can't use yet, and what the tentative lanes have said that holds."""
        waiting = self._of.waiting()
        waits = set(map(id, waiting))
        guesses = {each: self._kept.guesses(each) for each in self._of.inputs.values()}
        for input in (each for each, works in guesses.items() if works):
            come = (work.element for work in self._kept.stable(input) if id(work) not in waits)
            fork.has(input, [each for each in come if isinstance(each, Train)])
        for work in waiting:
            fork.take(now_us, work)
        for works in guesses.values():
            for guess in works:
                fork.take_tentative(guess)

    def _replace_slow(self, now_us: int) -> None:
        """The newest fork can't keep up: a copy of what the fragment is by now is nearer."""
        if len(self._forks) > 1:
            self._forks.pop().close()
        else:
            self._begin(now_us)
            self._again_us = min(2 * self._again_us, RETRY_US_MAX)
        self._retry_at_us = now_us + self._again_us

    def _fed_us(self) -> dict[str, int]:
        """Source -> the boundary at which the fragment stands."""
        judged = {each.source: each.fed_us for each in self._of.inputs.values() if each.judged}
        return judged | dict(self._of.fed_us)

    def _is_read(self) -> bool:
        """Whether somebody reads what a fork puts out."""
        outputs = self._of.outputs.items()
        return any(
            self._output(id).state is not _S.STABLE and out.sender.tentative.wanted and not self._suspends(id)
            for id, out in outputs
        )

    def _is_unread(self, now_us: int) -> bool:
        """Whether nobody has read what the forks put out for long enough."""
        if not self._forks or self._is_read():
            self._unread_at_us = None
            return False
        if self._unread_at_us is None:
            self._unread_at_us = now_us + UNREAD_US
        return now_us >= self._unread_at_us

    def _has_reason(self) -> bool:
        """Whether somebody would read of a fork what the fragment can't say now."""
        if not self._is_read():
            return False
        missing = self._missing
        return bool(missing.unpublished()) or any(
            missing.lane(each) or (missing.is_overdue(each) and self._holds_up(each))
            for each in missing.behind()
        )

    def _holds_up(self, input: FragmentInput) -> bool:
        """Whether something has come that waits for this input."""
        mine = self._meeting.together[input.source]
        others = [each for each in self._of.inputs.values() if each is not input and each.source in mine]
        return self._missing.brought_after(input, others)

    def _is_outdated(self, fork: ForkedFragment, states: Collection[ConsistencyState]) -> bool:
        lanes = {each: number for each in self._missing.behind() if (number := self._missing.lane(each))}
        if any(fork.lanes.get(each, number) != number for each, number in lanes.items()):
            return True
        if not all(map(self._kept.has_all, lanes)):  # Who has less of a lane is more wrong than who is late.
            return False
        healed = not {*_MISSES}.isdisjoint(states) and self._has_healed(fork)
        return (self._is_again or healed) and fork.is_behind()

    def _has_healed(self, fork: ForkedFragment) -> bool:
        """Whether a source that was lifted is back, or one for which a tentative lane stood in, and the
        fragment was fed what it had."""
        behind = self._missing.behind_sources()
        for source in {**fork.lifted, **dict.fromkeys(each.source for each in fork.lanes)}:
            if source in behind:
                self._healed.pop(source, None)
            elif source not in self._healed:
                mine = [each for each in self._of.inputs.values() if each.source == source]
                self._healed[source] = CatchingUp(mine)
        return any(each.is_over(self._of) for each in self._healed.values())

    # --- status -------------------------------------------------------------------------------------------

    @property
    def forks_made(self) -> int:
        """How many there have been, those included that never came to be."""
        return self._number

    def status(
        self, now_us: int, id: str, figures: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ) -> ConsistencyStatus:
        """How an output stream is.

        Args:
            figures: box -> what the engine last told of it.
        """
        output, leaves = self._output(id), self._of.outputs[id]
        lane, sink = leaves.sender.tentative, self._sink(id)
        is_stable = output.state is _S.STABLE
        timed = {each for each in self._meeting.above[sink] if self._sources[each].timed}
        return ConsistencyStatus(
            state=output.state.value,
            for_us=None if output.since_us is None else now_us - output.since_us,
            missing=tuple(self._missing_inputs(now_us, id)),
            fork=lane.fork,
            why=self.why,
            tentative_rows=lane.rows,
            uncorrected_rows=output.uncorrected.count(lane.fork, leaves.boundary_us),
            behind_rows=0 if is_stable else self._behind_rows(sink, figures),
            behind_us=0 if is_stable else behind_us(timed, self._fed_us(), self._of.inputs.values()),
            dropped_rows=lane.dropped_rows,
            late_rows=self._forks[0].late_rows if self._forks else 0,
            held_bytes=0 if is_stable else self._state.nbytes,
            disk_bytes=0 if is_stable else self._of.rested.disk_bytes,
            suspended=tuple(self._suspended(id)),
        )

    def _behind_rows(self, sink: str, figures: Mapping[str, Mapping[str, Any]]) -> int:
        on_disk = sum(map(self._of.rested.disk_rows, self._meeting.above[sink]))
        return self._boxes.waiting_rows(sink, figures, self._of.waiting()) + on_disk

    def _suspended(self, id: str) -> Iterator[str]:
        """The inputs that lead to an output and are held back: stream and who sends it."""
        above, held_back = self._meeting.above[self._sink(id)], self._of.rested.held_back
        for each in self._of.inputs.values():
            if each.source in held_back and each.source in above:
                yield f"{each.stream} of {each.by}"

    def _missing_inputs(self, now_us: int, id: str) -> Iterator[MissingStatus]:
        """Those that lead to an output."""
        above = self._meeting.above[self._sink(id)]
        for input in self._missing.missed():
            if input.source in above:
                yield self._missing_input(now_us, input)
        for source in self._missing.unpublished():
            if source in above:
                yield self._unpublished_input(now_us, source)

    def _missing_input(self, now_us: int, input: FragmentInput) -> MissingStatus:
        is_silent, since_us = self._missing.missed_since(input)
        return MissingStatus(
            source=input.source,
            stream=input.stream,
            kind="node" if input.judged else "publisher",
            origin=owner_and_name(input.peer)[1] if input.named else input.peer,
            why="isn't heard" if is_silent else "says that an input of it is missing",
            for_us=None if since_us is None else now_us - since_us,
        )

    def _unpublished_input(self, now_us: int, source: str) -> MissingStatus:
        since_us = self._missing.unpublished_since(source)
        return MissingStatus(
            source=source,
            stream=self._of.spec.entries[source],
            kind="nobody",
            why="nobody publishes into it",
            for_us=None if since_us is None else now_us - since_us,
        )


def _is_void(element: Element, boundary_us: int) -> bool:
    """Whether the stable lane has come past all rows of it."""
    if not isinstance(element, Train) or element.times is None or not len(element):
        return False
    return latest_us(element) < boundary_us
