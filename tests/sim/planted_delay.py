"""Mistakes in when a fragment forks, what the fork is given and when it goes."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["DELAY"]

_SCENARIOS = ("delay",)
_LOOK = "nodes.consistency.missing_inputs:MissingInputs._look"
_WAITED = "now_us - seen.silent_us >= self._wait_us"

DELAY: dict[str, Mistake] = {
    "a fragment forks after twice the time": Mistake(
        area="consistency",
        about="New results come later than X.",
        edits=edit(
            "nodes.consistency.missing_inputs:MissingInputs.__init__",
            "= fork_after_us(delay_us), margin_us(delay_us)",
            "= 2 * fork_after_us(delay_us), margin_us(delay_us)",
        ),
        scenarios=_SCENARIOS,
        seed=35,
        shows="SimulationError: answered",
    ),
    "a fragment forks as soon as a link is silent": Mistake(
        area="consistency",
        about="A failure that is shorter than X shows tentative rows.",
        edits=edit(_LOOK, _WAITED, "True"),
        scenarios=_SCENARIOS,
        seed=13,
        shows="SimulationError: masked",
    ),
    "what a sender says of its stream isn't heeded": Mistake(
        area="consistency",
        about="Behind a node that misses an input nobody forks: what it has is held up until all is well.",
        edits=edit(_LOOK, "silent or unsaid or state is ConsistencyState.UP_FAILURE", "silent or unsaid"),
        scenarios=_SCENARIOS,
        seed=35,
        shows="SimulationError: answered",
    ),
    "a fork waits for what is missing": Mistake(
        area="engine",
        about="It is told of no boundary for an input that isn't heard, so it is held up as its fragment is.",
        edits=edit(
            "engine.idle_sources:MissingSources.asked",
            "bool(sources) and all(each.id in silent or each.finished for each in sources)",
            "False",
        ),
        scenarios=_SCENARIOS,
        seed=16,
        shows="SimulationError: answered",
    ),
}
