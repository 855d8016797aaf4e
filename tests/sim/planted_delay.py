"""Mistakes in when a fragment forks, what the fork is given and when it goes."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["DELAY", "POLICIES"]

_SCENARIOS = ("delay",)
_LOOK = "nodes.consistency.missing_inputs:MissingInputs._look"
_BOUND = "nodes.consistency.delay_bound:DelayBound"
_WAITED = "now_us - seen.silent_us >= self._wait_us"

_UNHEARD = "nodes.recovery.unheard_senders:UnheardSenders"
_UNHEARD_TESTS = "tests/nodes/recovery/test_unheard_senders.py"

DELAY: dict[str, Mistake] = {
    "a fragment goes to who doesn't hear the sender either": Mistake(
        area="recovery",
        about="It is handed over blindly, and stands as still there. Nobody stands by in this scenario.",
        edits=edit(
            f"{_UNHEARD}._is_heard",
            "if ago_us is None:\n        return False",
            "if ago_us is None:\n        return True",
        ),
        tests=f"{_UNHEARD_TESTS}::test_who_stands_by_does_not_hear_it_either_and_the_owner_forks",
    ),
    "a fragment goes to who hasn't noticed yet that the sender is lost": Mistake(
        area="recovery",
        about="All lose it between two heartbeats, the owner first.",
        edits=edit(f"{_UNHEARD}._is_heard", ">= missing[sender] + ALIVE_US", ">= 0"),
        tests=f"{_UNHEARD_TESTS}::test_what_is_lost_for_both_counts_as_heard_by_nobody",
    ),
    "a fragment goes to and fro": Mistake(
        area="recovery",
        about="Over lines that come and go it is at another node each second.",
        edits=edit(f"{_UNHEARD}._ask", "now_us < came_us + STAYS_US", "False"),
        tests=f"{_UNHEARD_TESTS}::test_its_new_owner_misses_it_soon_and_forks",
    ),
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
        about="Behind a node that misses an input nobody forks: what it has is held up until all is well. No"
        " seed of the first 45 meets it where frames keep their order.",
        edits=(
            *edit(_LOOK, "silent or unsaid or state is ConsistencyState.UP_FAILURE", "silent or unsaid"),
            *edit(_LOOK, "(lost or state is not ConsistencyState.FAILURE)", "lost"),
        ),
        tests="tests/nodes/consistency/test_delay_bound.py::"
        "test_the_first_link_of_a_chain_is_cut_and_both_fork_at_once",
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
    "a stream is said to be stable before what came late has left": Mistake(
        area="consistency",
        about="Tentative rows are void, and the right ones aren't there yet: windows that had been shown go.",
        edits=edit(
            f"{_BOUND}._event",
            "_E.CORRECTED if output.catching.is_over(now_us, self._of) else None",
            "_E.CORRECTED",
        ),
        scenarios=_SCENARIOS,
        seed=10,
        shows="SimulationError: corrected",
    ),
    "a stream is said to be stable while another input of it isn't heard": Mistake(
        area="consistency",
        about="That isn't missing yet, so it shows nothing; but what it holds up isn't corrected. Seed 399"
        " met it until messages took another time.",
        edits=edit(f"{_BOUND}._event", "not late.isdisjoint(above)", "False"),
        tests="tests/nodes/consistency/test_late_inputs.py",
    ),
    "an input that was missing is so until its source ends": Mistake(
        area="consistency",
        about="Its stream is tentative for ever: status names an input that is there, a fork takes memory.",
        edits=edit(_LOOK, "seen.missed = silent", "seen.missed = seen.missed or silent"),
        scenarios=_SCENARIOS,
        seed=0,
        shows="SimulationError: settled",
    ),
    "a table keeps what a fork that has gone had put out": Mistake(
        area="client",
        about="Rows that are void stay in `Subscription.table`, as tentative ones.",
        edits=edit("runtime.client.followed_table:CorrectedRows.turned", "self._guesses.clear()", "pass"),
        scenarios=_SCENARIOS,
        seed=2,
        shows="SimulationError: lanes",
    ),
    "a fragment that has lost all of its inputs doesn't say so": Mistake(
        area="consistency",
        about="Who reads it waits for its fork, of which nothing comes: so do the rows of its other inputs.",
        edits=edit(f"{_BOUND}._event", "_E.LOST if above <= lost else _E.MISSED", "_E.MISSED"),
        scenarios=_SCENARIOS,
        seed=1,
        shows="SimulationError: answered",
    ),
    "a row that a sender puts out on both of its lanes enters a fork twice": Mistake(
        area="consistency",
        about="Amid corrections a count that is tentative is too high. No seed meets it: the stable lane of a"
        " sender is ahead of what its fork has promised for a moment only.",
        edits=edit("nodes.consistency.both_lanes:BothLanes.new", "found := other.rows(below_us)", "False"),
        tests="tests/nodes/consistency/test_several_lanes.py",
    ),
    "a fork isn't given what had waited when it began": Mistake(
        area="consistency",
        about="What came before and wasn't fed yet shows nowhere. An engine has 64 elements under way: in the"
        " scenario none is so busy that others wait.",
        edits=edit(f"{_BOUND}._begin", "for work in self._of.waiting()", "for work in ()"),
        tests="tests/nodes/consistency/test_fork_feeding.py::"
        "test_what_the_engine_had_no_room_for_when_the_fork_began_is_given_to_it",
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
