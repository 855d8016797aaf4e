"""Mistakes in how nodes scale by themselves, each with a seed of ``scale`` that notices it."""

from __future__ import annotations

from tests.sim.planting import Edit, Mistake, edit

__all__ = ["SCALE"]

_SCALER = "nodes.scaling.query_scaler:QueryScaler"

SCALE = {
    "acts in the middle of another move": Mistake(
        area="scaling",
        about="what a client has ordered of a fragment isn't waited for: both pull at the query at once",
        edits=edit(f"{_SCALER}.look", "under_way(statuses, self._query)", '""'),
        scenarios=("scale",),
        seed=1,
        shows="SimulationError: scaling: ",
    ),
    "merges while still loaded": Mistake(
        area="scaling",
        about="what runs in parts is taken for what has little to do: it is split and merged in turns",
        edits=(
            Edit(
                "nodes.scaling.policy:WorkPolicy._judge",
                "ceil(work / rules.target)",
                "ceil(work / rules.target if parts == 1 else 1)",
            ),
            Edit("nodes.scaling.policy:WorkPolicy._judge", "share < rules.low", "parts > 1"),
        ),
        beside=(
            Edit(f"{_SCALER}._still", "share < self._rules.low", "True"),
            Edit("nodes.scaling.next_step:_shrinks", "<= _work_max(each, rules)", ">= 0"),
            Edit("nodes.scaling.next_step:_gathered", "_work(away) > rules.high", "_work(away) < 0"),
        ),
        scenarios=("scale",),
        seed=7,
        shows="SimulationError: scaling: ",
    ),
}
