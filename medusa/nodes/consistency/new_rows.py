"""What becomes of new rows of a fragment while an input is missing, and while corrections come. Pure.

The fragment does as that of its outputs wishes by which new rows show first; to suspend is each output's own
affair: where another one goes on, the fork is there, and nothing of it leaves by this one.
"""

from __future__ import annotations

from collections.abc import Collection

from medusa.nodes.consistency.states import ConsistencyState
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Sink
from medusa.query.delay import fork_after_us
from medusa.query.delay_policies import DELAY, SUSPEND, Policies, policies_met

__all__ = ["NewRows"]

_S = ConsistencyState


class NewRows:
    """The policies of one fragment.

    Attributes:
        wait_us: new rows that are delayed are for so long.
        delays: some are, now or later.
    """

    def __init__(self, spec: FragmentSpec) -> None:
        self._all: Policies = spec.delay_failure, spec.delay_stabilization
        self._own = {
            box.id: policies_met(box.policies, [self._all])
            for box in spec.graph.boxes
            if isinstance(box, Sink) and box.delay_us is not None
        }
        self.wait_us = fork_after_us(spec.delay_us)
        self.delays = DELAY in self._all

    def hold_us(self, states: Collection[ConsistencyState]) -> int:
        """For how long what waits for a missing input is held in a fork, where the streams are so."""
        return self.wait_us if self._at(self._all, _foremost(states)) == DELAY else 0

    def all_wait(self, states: Collection[ConsistencyState]) -> bool:
        """Whether there is to be no fork, where the streams are so."""
        return self._at(self._all, _foremost(states)) == SUSPEND

    def wait(self, sink: str, state: ConsistencyState) -> bool:
        """Whether new rows of a stream that is so don't leave tentatively."""
        return self._at(self._own.get(sink, self._all), state) == SUSPEND

    def keeps_shown(self, sink: str, state: ConsistencyState) -> bool:
        """Whether what was shown before of a stream whose rows wait holds until it is corrected. To another
        fragment what will come there is of no use: it is to go on without."""
        return state is _S.STABILIZATION and sink in self._own

    @staticmethod
    def _at(policies: Policies, state: ConsistencyState) -> str:
        return policies[state is _S.STABILIZATION]


def _foremost(states: Collection[ConsistencyState]) -> ConsistencyState:
    return _S.STABILIZATION if {_S.UP_FAILURE, _S.FAILURE}.isdisjoint(states) else _S.UP_FAILURE
