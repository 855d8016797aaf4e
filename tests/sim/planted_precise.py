"""Mistakes in how rows that are read again get their old numbers; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["PRECISE"]

_SCENARIOS = ("precise",)
_MARK = "nodes.upstream_backup.marks:Marks._mark"
_ROWS = "rows = {output.sink: output.rows for output in outputs}"

PRECISE: dict[str, Mistake] = {
    "numbering begins one too low": Mistake(
        area="upstream backup",
        about="A mark says one row less than had come out: the last one comes again under the next number.",
        edits=edit(_MARK, _ROWS, "rows = {output.sink: max(output.rows - 1, 0) for output in outputs}"),
        scenarios=_SCENARIOS,
        seed=2,
    ),
    "numbering begins one too high": Mistake(
        area="upstream backup",
        about="A mark says one row more than had come out: a number is left to no row.",
        edits=edit(_MARK, _ROWS, "rows = {output.sink: output.rows + 1 for output in outputs}"),
        scenarios=_SCENARIOS,
        seed=0,
    ),
    "an input is trimmed that a late window still needs": Mistake(
        area="upstream backup",
        about="A row counts as needed until its own time is promised, not until its last window has left.",
        edits=edit(
            "nodes.upstream_backup.reach:Reach.over",
            "_last(newest[source], steps) <",
            "newest[source] <",
        ),
        scenarios=_SCENARIOS,
        seed=2,
    ),
    "a mark goes out before readers hold what came before it": Mistake(
        area="upstream backup",
        about="Rows that were on their way when the owner was lost are with nobody: nobody makes them again.",
        edits=edit("nodes.upstream_backup.marks:Marks.settle", "and at < seq", "and False"),
        scenarios=_SCENARIOS,
        seed=40,
    ),
    "senders forget what the newest mark doesn't need": Mistake(
        area="durability",
        about="Rows are acknowledged by the owner's newest mark, whatever those who stand by have of it.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.covers",
            "return all(moment.token <= at for at in self._covered.values())",
            "return True",
        ),
        scenarios=_SCENARIOS,
        seed=0,
    ),
    "rows behind the mark count as read again": Mistake(
        area="upstream backup",
        about="What one input brings behind the mark is fed while another reads up to it: what comes out of "
        "it is taken for what had been there.",
        edits=edit(
            "nodes.upstream_backup.warm_up:WarmUp._before",
            "if key in self._renumbered and self._windows and key not in self._promised:",
            "if True:",
        ),
        scenarios=_SCENARIOS,
        seed=303,
    ),
    "a promise behind the mark counts as read again": Mistake(
        area="upstream backup",
        about="A window that was open at the mark closes while what comes out is dropped.",
        edits=edit(
            "nodes.upstream_backup.warm_up:WarmUp._before",
            "if work.boundary_us > target.boundary_us:",
            "if False:",
        ),
        scenarios=_SCENARIOS,
        seed=50,
    ),
    "order of arrival counts as an order": Mistake(
        area="plan",
        about="A union is recovered as if its rows came in the same order again.",
        edits=edit(
            "nodes.upstream_backup.decisions:decision_in",
            'if box.determinism == "arbitrary":',
            "if False:",
        ),
        scenarios=_SCENARIOS,
        seed=4,
        shows="",
    ),
    "whoever takes over says that rows may be others": Mistake(
        area="upstream backup",
        about="The version of a stream is raised whose rows are the same: readers are told of what isn't.",
        edits=edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver.open",
            "and not self.spec.repeats",
            "",
        ),
        scenarios=_SCENARIOS,
        seed=2,
    ),
}
