"""Mistakes in when a fragment forks, what the fork is given and when it goes."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["DELAY", "POLICIES"]

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

_POLICIES = ("policies",)
_NEW_ROWS = "nodes.consistency.new_rows:NewRows"

POLICIES: dict[str, Mistake] = {
    "what is to be delayed is processed at once": Mistake(
        area="consistency",
        about="Rows are tentative that would have been corrected by the time that they were due.",
        edits=edit(f"{_NEW_ROWS}.hold_us", "return self.wait_us if", "return 0 if"),
        scenarios=_POLICIES,
        seed=12,
        shows="SimulationError: held",
    ),
    "what was promised before counts as of now": Mistake(
        area="consistency",
        about="A fork that begins shows at once what came just before it, and that is to wait.",
        edits=edit(
            "nodes.consistency.promise_history:PromiseHistory.as_of", "if came_us > at_us:", "if False:"
        ),
        scenarios=_POLICIES,
        seed=12,
        shows="SimulationError: held",
    ),
    "what is to be suspended in a failure is processed": Mistake(
        area="consistency",
        about="Who takes back nothing is shown rows that may be wrong.",
        edits=(
            *edit(f"{_NEW_ROWS}.wait", "== SUSPEND", "== DELAY"),
            *edit(f"{_NEW_ROWS}.all_wait", "== SUSPEND", "== DELAY"),
        ),
        scenarios=_POLICIES,
        seed=4,
        shows="SimulationError: suspended",
    ),
}
