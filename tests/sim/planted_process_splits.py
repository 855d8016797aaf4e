"""Mistakes in how classes of users with timers are split and merged; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["PROCESS_SPLITS"]

_SCENARIOS = ("splits",)
_UNIT = "tests/engine/test_splitting_process.py"

PROCESS_SPLITS: dict[str, Mistake] = {
    "a timer's key goes to the wrong part": Mistake(
        area="splits",
        about="Keys that have begun go to the first part with their state and timers, their rows to the part "
        "whose range they are in: they are counted anew, and timers ring at the wrong count.",
        edits=edit(
            "engine.repartition.keyed_calls:cut_process",
            "cut.owners(cut.keys(keys, whole.keys))",
            "0 * cut.owners(cut.keys(keys, whole.keys))",
        ),
        scenarios=_SCENARIOS,
        seed=8,
    ),
    "timers of one time go by the place of a row alone": Mistake(
        area="splits",
        about="A part doesn't say at which time the first row of a timer's key came. Keys that began before "
        "the split, in an order of their own, stand among those that began after it.",
        edits=edit(
            "engine.udf.process_output:_release_order",
            "np.where(timers, positions[0], START_US)",
            "np.full(len(called), START_US)",
        ),
        scenarios=_SCENARIOS,
        seed=8,
    ),
    "merged keys stand part by part": Mistake(
        area="splits",
        about="Keys of the parts are put one behind the other when they are merged: the order in which they "
        "began, by which timers of one time ring, is lost.",
        edits=edit(
            "engine.repartition.keyed_calls:join_process",
            'keys = ordered(keys, ints(keys, "@first_us"), ints(keys, "@first"))',
            "pass",
        ),
        tests=f"{_UNIT}::test_timers_of_one_time_go_by_the_first_row_of_their_key_before_and_after_a_split",
    ),
    "a part's watermark is released too early": Mistake(
        area="splits",
        about="The merge sends what the foremost part has passed, and not what all have: rows of a part that "
        "is behind come too late.",
        edits=edit(
            "engine.operators.ordered_merge:OrderedMergeBox.on_boundary",
            "self._waiting.ready(min(time_us + self._spec.within_us, int(END_US)))",
            "self._waiting.ready(max(self.inputs_us))",
        ),
        scenarios=_SCENARIOS,
        seed=38,
    ),
    "a timer is released with the rows of its time": Mistake(
        area="splits",
        about="Rows of the time of a timer are sorted in front of what it gave.",
        edits=edit(
            "engine.udf.process_output:_release_order",
            "[called - timers, ",
            "[called, ",
        ),
        tests=f"{_UNIT}::test_parts_at_several_nodes_give_what_one_box_gives",
    ),
    "a part doesn't hear of the last row": Mistake(
        area="splits",
        about="Timers that set themselves again stop in each part at its own last row.",
        edits=edit(
            "engine.operators.key_router:KeyRouterBox._tell_last_time",
            "if time_us == START_US:",
            "if True:",
        ),
        tests=f"{_UNIT}::test_parts_at_several_nodes_give_what_one_box_gives",
    ),
    "the last row is told by a boundary": Mistake(
        area="splits",
        about="A link brings of boundaries that follow each other the last one: the end, and not the time of "
        "the last row before it.",
        edits=edit(
            "engine.operators.key_router:KeyRouterBox.on_boundary",
            "self._tell_last_time(max(self._last_us, self.boundary_us))",
            "self.advance(self._last_us)",
        ),
        tests=f"{_UNIT}::test_parts_at_several_nodes_give_what_one_box_gives",
    ),
}
"""Name: the mistake. Seeds that end in 8 split such classes."""
