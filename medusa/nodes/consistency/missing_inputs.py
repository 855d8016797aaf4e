"""Which inputs of a fragment are missing, since when, and when that is due. Pure.

    heard ── not any more ──> silent ── for X - margin ──> missed ── heard again ──> behind ──> heard
      └────────── its sender says that the stream isn't stable ─────────┘

Silence counts from when the sender was last heard, not from when that was noticed. One that doesn't hear us
sends nothing, and is silent too. *Behind* is one that is back and hasn't brought all yet that its sender had
then, is far from where the fork stands that goes on without it (without one: from how far those are that wait
for it), or whose sender has corrections to come. *Late* is one that isn't heard for less than that, until it
has brought what its sender had then: nothing shows of it, but what waits for it isn't corrected.

A source into which nobody publishes is missing too (``unpublished_sources``); who then does is behind. So is
one of which the publishers are to come back (``awaited_publishers``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from medusa.elements import END_US, START_US
from medusa.nodes.consistency.approach import Approach
from medusa.nodes.consistency.awaited_publishers import AwaitedPublishers
from medusa.nodes.consistency.states import ConsistencyState
from medusa.nodes.consistency.unpublished_sources import UnpublishedSources
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.query.delay import fork_after_us, margin_us
from medusa.wire.link.automaton import ReceiverState

__all__ = ["MissingInputs", "flows"]


def flows(input: FragmentInput) -> bool:
    """Its sender is heard, and what it has comes."""
    return input.silent_since_us is None and input.receiver.state is ReceiverState.FLOWING


def _ended(input: FragmentInput) -> bool:
    return input.receiver.boundary_us >= END_US


@dataclass(slots=True)
class _Seen:
    """What is known of one input.

    Attributes:
        silent_us: since when it isn't heard; None: it is.
        said_us: since when its sender says that the stream isn't stable; None: it is.
        since_us: since when it isn't as it should be; None: it is.
        late: it isn't heard, or hasn't brought yet what its sender had when it was back.
        approach: how near it comes, once it has brought what its sender had when it was back.
        near: it was, since something was missing last.
    """

    silent_us: int | None = None
    said_us: int | None = None
    since_us: int | None = None
    missed: bool = False
    overdue: bool = False
    behind: bool = False
    late: bool = False
    approach: Approach | None = None
    near: bool = False

    def is_far(self) -> None:
        """How near it comes shows anew."""
        self.approach, self.near = None, False


class MissingInputs:
    """What is known of the inputs of one fragment.

    Args:
        inputs: by (source, peer); shared with its owner.
        delay_us: the bound of the fragment.
        broken_since_us: since when a peer isn't heard, or doesn't hear us; None: all is well.
        stands_us: where the fork stands at a source that it goes on without; None: it has what comes there.
        meeting: source that publishers feed, and that holds up others -> those that it meets.
        together: source -> those with which it shares a box, itself among them.
        has_ended: whether nothing more comes by such a source.
        restored: the fragment goes on where it stood before, so its inputs have something to catch up with.
        grace_us: publishers of which the node knows nothing have so long to come back to it.
    """

    def __init__(
        self,
        inputs: Mapping[tuple[str, str], FragmentInput],
        delay_us: int,
        broken_since_us: Callable[[str], int | None],
        stands_us: Callable[[str], int | None],
        *,
        meeting: Mapping[str, Set[str]] = MappingProxyType({}),
        together: Mapping[str, Set[str]] = MappingProxyType({}),
        has_ended: Callable[[str], bool] = lambda source: False,
        restored: bool = False,
        grace_us: int = 0,
    ) -> None:
        self._inputs = inputs
        self._broken_since_us = broken_since_us
        self._stands_us = stands_us
        self._together = together
        self._wait_us, self._margin_us = fork_after_us(delay_us), margin_us(delay_us)
        self._unpublished = UnpublishedSources(meeting, has_ended, self._wait_us)
        self._awaited = AwaitedPublishers(meeting, has_ended, grace_us)
        self._seen: dict[FragmentInput, _Seen] = {}
        self._restored = dict.fromkeys(inputs.values() if restored else ())
        """Those that haven't brought yet what came up while the fragment wasn't there."""
        self._came_us: dict[FragmentInput, int] = {}
        """When each brought something last, those that have ended too: what they brought may wait."""
        self._looked_us = 0

    # --- what happens ---------------------------------------------------------------------------

    def came(self, now_us: int, input: FragmentInput) -> None:
        """It brought rows or a promise."""
        self._came_us[input] = now_us

    def begin(self, now_us: int) -> None:
        """The fragment was there before the node started, or is the node's from now on: its inputs have
        something to catch up with, and not all who published may be known."""
        self.rest()
        self._restored.update(dict.fromkeys(self._inputs.values()))
        for seen in self._seen.values():
            seen.behind = True
            seen.is_far()
        self._awaited.begin(now_us, self._inputs.values())

    def rest(self) -> None:
        """Nobody is heard here meanwhile: whose silence was short counts anew when the fragment goes on. Who
        was missed, or is behind, is so until it is back."""
        self._unpublished.rest()
        for seen in self._seen.values():
            if not seen.missed:
                seen.silent_us = seen.since_us = None

    def look(self, now_us: int) -> None:
        """See how the inputs are now."""
        self._looked_us = now_us
        inputs = list(self._inputs.values())
        waited = {each.source for each in inputs if not each.gone}
        known, self._seen = self._seen, {}
        first = {each: self._first_seen(each) for each in inputs if each not in known}
        self._unpublished.look(now_us, inputs, self._came_us)
        self._awaited.look(now_us, inputs)
        if len(self._came_us) > len(inputs):
            there = set(inputs)
            self._came_us = {each: at_us for each, at_us in self._came_us.items() if each in there}
        for input in inputs:
            # Nobody waits for one that has ended, nor for a publisher that is gone while there are others.
            if not (_ended(input) or (input.gone and input.source in waited)):
                self._seen[input] = seen = known.get(input) or first[input]
                self._look(now_us, input, seen)

    def _first_seen(self, input: FragmentInput) -> _Seen:
        """Who is the first to publish into a source isn't there before it is heard, and what it brings."""
        before = self._unpublished.of(input.source)
        since_us = None if before is None else before.held_us
        awaited = input in self._restored or input.source in self._awaited.sources
        is_behind = awaited or (before is not None and before.missed)
        return _Seen(silent_us=since_us, since_us=since_us, behind=is_behind)

    def _look(self, now_us: int, input: FragmentInput, seen: _Seen) -> None:
        lane = input.receiver.tentative
        state, lost = ConsistencyState(lane.state), lane.lost
        broken_us = self._broken_since_us(input.by)
        was_silent_us = seen.silent_us
        if flows(input) and broken_us is None:
            seen.silent_us = None
        else:  # Who stood still may see that nothing flows before it sees since when the peer isn't heard.
            times = (each for each in (seen.silent_us, broken_us) if each is not None)
            seen.silent_us = min(times, default=now_us)
        if was_silent_us is not None and now_us - was_silent_us > self._margin_us:
            seen.is_far()  # It may be farther than before; who only attached anew isn't.
        if state is ConsistencyState.STABLE:
            seen.said_us = None
        elif seen.said_us is None and (lost or state is not ConsistencyState.FAILURE):
            seen.said_us = now_us
        silent = seen.silent_us is not None and now_us - seen.silent_us >= self._wait_us
        # Of one that says no more how its stream is, what it said last holds.
        unsaid = state is ConsistencyState.FAILURE and seen.said_us is not None
        seen.late = seen.silent_us is not None or not input.receiver.backlog_over
        seen.missed = silent or unsaid or state is ConsistencyState.UP_FAILURE
        if seen.missed or seen.said_us is not None:
            seen.behind = True
            seen.is_far()
        elif state is ConsistencyState.STABLE and seen.silent_us is None and input.receiver.backlog_over:
            seen.behind = seen.behind and not self._is_near(now_us, input, seen)
            self._restored.pop(input, None)
        if seen.silent_us is None and not seen.behind:
            # Who is heard again says only then that it is being corrected: others wait since before that.
            seen.since_us = seen.since_us if seen.late else None
        elif seen.since_us is None:
            seen.since_us = now_us if seen.silent_us is None else seen.silent_us
        seen.overdue = seen.since_us is not None and now_us - seen.since_us >= self._wait_us

    def _is_near(self, now_us: int, input: FragmentInput, seen: _Seen) -> bool:
        if seen.near or (goal_us := self._goal_us(input)) is None:
            return True
        if seen.approach is None:
            seen.approach = Approach(self._margin_us, self._wait_us)
        seen.near = seen.approach.is_over(now_us, input.receiver.boundary_us, goal_us)
        return seen.near

    def _goal_us(self, input: FragmentInput) -> int | None:
        """Where an input is waited for; None: it isn't, or it promises nothing, so nobody can say how near it
        is."""
        if input.receiver.boundary_us == START_US:
            return None
        stands_us = self._stands_us(input.source)
        return self._others_us(input) if stands_us is None else stands_us

    def _others_us(self, input: FragmentInput) -> int | None:
        """How far those have come that meet an input, and wait for it: what they brought below is held up by
        this one. Who isn't well itself holds up more, and doesn't count. None: nobody waits."""
        mine = self._together.get(input.source, frozenset())
        times = (
            each.receiver.boundary_us
            for each in self._inputs.values()
            if each is not input and each.source in mine and self._is_well(each)
        )
        return min((time_us for time_us in times if START_US < time_us < END_US), default=None)

    def _is_well(self, input: FragmentInput) -> bool:
        is_stable = ConsistencyState(input.receiver.tentative.state) is ConsistencyState.STABLE
        return is_stable and flows(input) and self._broken_since_us(input.by) is None

    # --- what is asked --------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        """All inputs are heard, none is behind or late, and no source that others wait for is without a
        publisher, or awaits one."""
        return not (self._unpublished.any or self._awaited.sources) and not any(
            seen.behind or seen.late for seen in self._seen.values()
        )

    def missed(self) -> list[FragmentInput]:
        """Those that have been missing for X less the margin, or of which the sender says so."""
        return [input for input, seen in self._seen.items() if seen.missed]

    def missed_since(self, input: FragmentInput) -> tuple[bool, int | None]:
        """Of one of those: whether it isn't heard itself, else its sender says that an input is missing
        there; and since when."""
        seen = self._seen[input]
        return (True, seen.silent_us) if seen.silent_us is not None else (False, seen.said_us)

    def unpublished_since(self, source: str) -> int | None:
        """Since when a source of ``unpublished`` has held up others."""
        one = self._unpublished.of(source)
        return None if one is None else one.held_us

    def behind(self) -> list[FragmentInput]:
        """Those, and those that are back and not done yet."""
        return [input for input, seen in self._seen.items() if seen.behind]

    def unpublished(self) -> list[str]:
        """Sources that have been missing for so long since nobody publishes into them."""
        return self._unpublished.missed()

    def missed_sources(self) -> set[str]:
        """Those by which something is missing."""
        return {*self.unpublished(), *(each.source for each in self.missed())}

    def lost_sources(self) -> set[str]:
        """Those by which nothing comes at all: nobody publishes into them, or all of their inputs are missing
        and no tentative lane stands in for one."""
        fed = {each.source for each, seen in self._seen.items() if not seen.missed or self.lane(each)}
        ended = {each.source for each in self._inputs.values() if _ended(each)}
        return self.missed_sources() - fed - ended | self._unpublished.sources

    def behind_sources(self) -> set[str]:
        """Those, those by which something is back that isn't done yet, and those that await a publisher."""
        behind = (each.source for each in self.behind())
        return {*self.unpublished(), *self._awaited.sources, *behind}

    def late_sources(self) -> set[str]:
        """Those by which something may be held up that isn't missing yet: an input isn't heard, or hasn't
        brought what its sender had when it was back; or nobody publishes."""
        late = {each.source for each, seen in self._seen.items() if seen.late}
        return late | self._unpublished.held_up()

    def lane(self, input: FragmentInput) -> int:
        """The fork from which tentative rows come in place of those that are missing; 0: none."""
        seen, lane = self._seen.get(input), input.receiver.tentative
        return lane.fork if seen is not None and seen.silent_us is None and not lane.lost else 0

    def is_behind(self, input: FragmentInput) -> bool:
        """Whether this is one of those."""
        seen = self._seen.get(input)
        return seen is not None and seen.behind

    def are_near(self, now_us: int, sources: Set[str]) -> bool:
        """Whether all inputs of these sources were, since something was missing last."""
        mine = [(input, seen) for input, seen in self._seen.items() if input.source in sources]
        near = [self._is_near(now_us, input, seen) for input, seen in mine]  # All begin to come nearer now.
        return all(near)

    def look_anew(self) -> None:
        """Something is missing, or behind: how near the others are shows once it is back."""
        for seen in self._seen.values():
            if not seen.behind:
                seen.is_far()

    def brought_after(self, input: FragmentInput, others: Iterable[FragmentInput]) -> bool:
        """Whether one of these has brought something after this one brought something last, or since this one
        isn't as it should be: what it brings from then on is old.

        When it was heard last says nothing: it is heard more often than it brings anything.
        """
        seen, last_us = self._seen.get(input), self._came_us.get(input)
        if last_us is not None and seen is not None and seen.since_us is not None:
            last_us = min(last_us, seen.since_us)
        times = (self._came_us.get(each) for each in others)
        return any(time is not None and (last_us is None or time > last_us) for time in times)

    def is_overdue(self, input: FragmentInput) -> bool:
        """Whether it may have held up others for X less the margin: it is missing or behind for so long, or
        its sender says that an input is missing there."""
        seen = self._seen.get(input)
        return seen is not None and (seen.missed or seen.overdue)

    def due_at_us(self) -> int | None:
        """When the next input that is silent will have been so for too long, or one that is behind is to have
        come nearer; None: there is none."""
        times = [
            seen.silent_us + self._wait_us
            for seen in self._seen.values()
            if seen.silent_us is not None and not seen.missed
        ]
        times += [
            seen.since_us + self._wait_us
            for seen in self._seen.values()
            if seen.since_us is not None and not seen.overdue
        ]
        approaches = [seen.approach for seen in self._seen.values() if seen.approach and not seen.near]
        near = [due_us for each in approaches if (due_us := each.due_at_us()) is not None]
        # Of whom nobody asks any more how near it is, since another one is behind again, nothing is due.
        times += [due_us for due_us in near if due_us > self._looked_us]
        more = (self._unpublished.due_at_us(), self._awaited.due_at_us())
        return min([*times, *(due_us for due_us in more if due_us is not None)], default=None)
