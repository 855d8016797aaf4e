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
        edits=edit(_LOOK, _WAITED, "now_us - seen.silent_us >= 2 * self._wait_us"),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: answered",
    ),
    "a fragment forks as soon as a link is silent": Mistake(
        area="consistency",
        about="A failure that is shorter than X shows tentative rows.",
        edits=edit(_LOOK, _WAITED, "True"),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: masked",
    ),
    "what a sender says of its stream isn't heeded": Mistake(
        area="consistency",
        about="Behind a node that misses an input nobody forks: what it has is held up until all is well.",
        edits=edit(_LOOK, "silent or unsaid or state is ConsistencyState.UP_FAILURE", "silent or unsaid"),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: answered",
    ),
    "a fork isn't given what waits": Mistake(
        area="consistency",
        about="What had come before the fork began shows only when all is well again.",
        edits=edit(
            "nodes.consistency.delay_bound:DelayBound._begin",
            "for work in self._of.waiting():",
            "for work in ():",
        ),
        scenarios=_SCENARIOS,
        seed=0,
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
        seed=0,
        shows="SimulationError: answered",
    ),
    "an input that was missing is never done": Mistake(
        area="consistency",
        about="Forks stay for ever, and the stream never says that it is stable again.",
        edits=edit(_LOOK, "seen.behind = seen.behind and not self._is_near(now_us, input, seen)", "pass"),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: liveness",
    ),
    "a table keeps the rows of a fork that is gone": Mistake(
        area="client",
        about="What was tentative stays in the table when all has been corrected.",
        edits=edit(
            "runtime.client.followed_table:CorrectedRows.turned",
            "self._guesses.clear()",
            "pass",
        ),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: ",
    ),
    "a stream is stable before its corrections have come": Mistake(
        area="consistency",
        about="Whoever reads takes for exact what isn't corrected yet.",
        edits=edit(
            "nodes.consistency.delay_bound:DelayBound._event",
            "return _E.CORRECTED if output.catching.is_over(self._of) else None",
            "return _E.CORRECTED",
        ),
        scenarios=_SCENARIOS,
        seed=0,
    ),
}
