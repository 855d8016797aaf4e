"""What came by tentative lanes and isn't void yet: a fork that takes another one's place has it too. Pure.

    tentative lane ── 140, 145 ──> the forks that there are, and here ──> the next fork
    stable lane ──── 140 ────────> all of them, and here, while its sender hasn't promised more

A sender says each row of its fork once. Where another input is back, or its sender has another fork, the
state is copied anew: without what is kept here the copy would lack what this lane had said before, until that
is corrected.

Rows that came by the stable lane beyond what it has promised are in that copy; what the tentative lane has of
them counts once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from medusa.elements import Boundary, Train
from medusa.nodes.fragment.inputs import FragmentInput, TentativeWork, Work
from medusa.wire.codec import latest_us

__all__ = ["KeptLanes"]

KEPT_BYTES_MAX = 16 << 20
"""Of a fragment. Too small: a fork that begins in a long failure lacks what came first; too large: memory."""

ELEMENT_BYTES = 256
"""What an element costs beside its rows."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Something that came.

    Attributes:
        latest_us: the time of its last row; what promises this says nothing once the stable lane has promised
            more.
    """

    work: TentativeWork | Work
    latest_us: int
    nbytes: int


@dataclass(slots=True)
class _Lane:
    """Of one input.

    Attributes:
        fork: of the sender, that said it, as ``TentativeReceiver.fork`` counts.
        guesses: in their order.
        stable: rows that came by the stable lane meanwhile, beyond what it had promised.
        is_whole: nothing had to go that isn't void.
    """

    fork: int
    guesses: deque[_Kept] = field(default_factory=deque)
    stable: deque[_Kept] = field(default_factory=deque)
    is_whole: bool = True


class KeptLanes:
    """Of one fragment.

    Args:
        bytes_max: so much is kept, then of a lane goes what came first; None: ``KEPT_BYTES_MAX``.
    """

    def __init__(self, bytes_max: int | None = None) -> None:
        self._bytes_max = KEPT_BYTES_MAX if bytes_max is None else bytes_max
        self._lanes: dict[FragmentInput, _Lane] = {}
        self._bytes = 0

    # --- what comes -------------------------------------------------------------------------------

    def guessed(self, work: TentativeWork) -> None:
        """This came by a tentative lane."""
        lane = self._lanes.get(work.input)
        if lane is None or lane.fork != work.fork:
            self._forget(work.input)
            lane = self._lanes[work.input] = _Lane(work.fork)
        if isinstance(work.element, Train) and work.element.late is not None:
            lane.is_whole = False  # Which of these are void no boundary says.
            return
        self._keep(lane.guesses, work)
        self._leave_out_void(work.input, lane)
        self._bound(lane)

    def came(self, work: Work) -> None:
        """This came by the stable lane."""
        lane = self._lanes.get(work.input)
        if lane is not None and isinstance(work.element, Train):
            self._keep(lane.stable, work)
            self._leave_out_void(work.input, lane)
            self._bound(lane)

    def look(self, inputs: Collection[FragmentInput]) -> None:
        """Only these inputs are left, and of them only the lanes that they have now."""
        for input, lane in list(self._lanes.items()):
            if input not in inputs or input.receiver.tentative.fork != lane.fork:
                self._forget(input)

    def clear(self) -> None:
        """Nothing is tentative any more."""
        self._lanes.clear()
        self._bytes = 0

    # --- what is asked ----------------------------------------------------------------------------

    def guesses(self, input: FragmentInput) -> list[TentativeWork]:
        """What holds of its tentative lane."""
        lane = self._lanes.get(input)
        if lane is None or input.receiver.tentative.fork != lane.fork:
            return []
        return [each.work for each in lane.guesses if isinstance(each.work, TentativeWork)]

    def stable(self, input: FragmentInput) -> list[Work]:
        """What came by its stable lane beside those, beyond what it had promised."""
        lane = self._lanes.get(input)
        return [] if lane is None else [each.work for each in lane.stable if isinstance(each.work, Work)]

    def has_all(self, input: FragmentInput) -> bool:
        """Whether all is there that holds of its tentative lane."""
        lane = self._lanes.get(input)
        return lane is None or lane.is_whole

    # --- keeping ----------------------------------------------------------------------------------

    def _keep(self, works: deque[_Kept], work: TentativeWork | Work) -> None:
        element = work.element
        if isinstance(element, Train):
            kept = _Kept(work, latest_us(element), ELEMENT_BYTES + element.batch.nbytes)
        else:
            assert isinstance(element, Boundary)
            kept = _Kept(work, element.time_us - 1, ELEMENT_BYTES)
        works.append(kept)
        self._bytes += kept.nbytes

    def _leave_out_void(self, input: FragmentInput, lane: _Lane) -> None:
        """The stable lane has come past what is first."""
        boundary_us = input.receiver.boundary_us
        for works in (lane.guesses, lane.stable):
            while works and works[0].latest_us < boundary_us:
                self._bytes -= works.popleft().nbytes

    def _bound(self, lane: _Lane) -> None:
        """No more than there is room for. Without guesses the rows of the stable lane say nothing."""
        while self._bytes > self._bytes_max and lane.guesses:
            lane.is_whole = False
            self._bytes -= lane.guesses.popleft().nbytes
        if self._bytes > self._bytes_max:
            self._bytes -= sum(each.nbytes for each in lane.stable)
            lane.is_whole = lane.is_whole and not lane.stable
            lane.stable.clear()

    def _forget(self, input: FragmentInput) -> None:
        if (lane := self._lanes.pop(input, None)) is not None:
            self._bytes -= sum(each.nbytes for each in (*lane.guesses, *lane.stable))
