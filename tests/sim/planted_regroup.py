"""Mistakes in how what others stand by for is split and merged; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["REGROUP"]

_SCENARIOS = ("regroup",)

REGROUP: dict[str, Mistake] = {
    "a split begins while others may take it over": Mistake(
        area="regrouping",
        about="The owner doesn't wait until it is decided that nobody else may have the fragment. A "
        "secondary takes it over while its parts begin: two have the same rows.",
        edits=edit(
            "nodes.recovery.guards:Guards.left",
            "return replicas is None or (replicas.owner == self._me and is_alone(replicas))",
            "return True",
        ),
        scenarios=_SCENARIOS,
        seed=9,
    ),
    "those that are to leave still stand by": Mistake(
        area="regrouping",
        about="The configuration by which the owner alone may have the fragment names its secondaries still.",
        edits=edit(
            "nodes.recovery.regrouping:alone",
            'members=(replicas.owner,), secondaries=(), guest=""',
            'members=(replicas.owner,), guest=""',
        ),
        tests="tests/nodes/recovery/test_guarded_splits.py"
        "::test_meanwhile_nobody_takes_it_over_and_the_status_says_so",
    ),
    "what was split may still be had": Mistake(
        area="regrouping",
        about="The configuration that names the parts doesn't say that the fragment is no more.",
        edits=edit(
            "nodes.recovery.regrouping:listed",
            'members=(), secondaries=(), guest="", reads=(), streams=()',
            "reads=(), streams=()",
        ),
        scenarios=_SCENARIOS,
        seed=9,
    ),
    "what is merged is taken for what was split": Mistake(
        area="regrouping",
        about="A merged fragment has the name of the one before. That its epoch is higher isn't looked at, "
        "so nobody comes to stand by for it.",
        edits=edit(
            "nodes.recovery.regrouping:unlisted",
            "known.get(spec.name, 0) < epoch(spec.name)",
            "spec.name not in known",
        ),
        scenarios=_SCENARIOS,
        seed=9,
    ),
    "the parts are never guarded": Mistake(
        area="regrouping",
        about="Nobody proposes who is to stand by for what was made, unless something else changes.",
        edits=edit(
            "nodes.recovery.proposals:Proposals._look_after",
            "for query in self._unlisted():",
            "for query in ():",
        ),
        scenarios=_SCENARIOS,
        seed=9,
    ),
}
