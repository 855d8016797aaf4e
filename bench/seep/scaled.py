"""One run of a box whose load rises and falls, over node processes: by a policy, or in parts made by hand.

Query, load, looks and the account of each car are those of ``medusa demo scale``; here the marks of the
policy, and how many nodes there are, are asked for. What a car costs is waited for, not computed: so the
nodes bear what they say on a machine with two processors too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medusa.apps.workloads.demos.crew import started
from medusa.apps.workloads.demos.federation_outcome import compare
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.scaling import scale_query as of
from medusa.apps.workloads.scaling.scale_demo import ScaleRun, node_config
from medusa.apps.workloads.scaling.scale_load import ScaleLoad
from medusa.apps.workloads.scaling.scale_outcome import AIM_S, ScaleOutcome
from medusa.apps.workloads.scaling.scale_query import RowCost

__all__ = ["LOW", "Marks", "figures", "run", "told", "vms"]

LOW = 0.4
"""``low`` of the policy is so much of ``high``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Of ``[scale]``.

    Attributes:
        every, looks: SEEP's r and k: so often a node looks, and so many looks have to say the same.
    """

    high: float
    every: str = "500ms"
    looks: int = 2
    cooldown: str = "3s"

    @property
    def table(self) -> str:
        """For a node's configuration."""
        return (
            f'\n[scale]\nevery = "{self.every}"\nhigh = {self.high}\nlow = {self.high * LOW:.4f}\n'
            f'looks = {self.looks}\ncooldown = "{self.cooldown}"\n'
        )


def vms(count: int) -> list[str]:
    """Nodes that can have parts of the box, the first of which has all of it at first."""
    return [of.TOLL, *(f"spare{number}" for number in range(1, count))]


def run(
    load: ScaleLoad, cost: RowCost, count: int, *, marks: Marks | None, by_hand: int = 1
) -> dict[str, Any]:
    """One run.

    Args:
        count: nodes that can have parts.
        marks: None: nothing is split by itself.
        by_hand: nodes that have a part each before the first car.

    Raises:
        AssertionError: the result isn't that of the query in one program, row by row.
        MedusaError: a node refused, or something didn't come in time.
    """
    names = vms(count)
    scale = "" if marks is None else marks.table

    def config(name: str, addresses: Mapping[str, str]) -> str:
        return node_config(name, addresses, scale=scale)

    def nodes_in(folder: Path, interruption: Interruption) -> LocalNodes:
        return LocalNodes((of.GATE, *names), folder, interruption, config=config)

    screen = DemoScreen(None)
    with (
        started(nodes_in, screen, prefix="md-seep-", keep=False) as (nodes, _, interruption),
        screen,
    ):
        made = ScaleRun(
            nodes,
            load,
            cost,
            screen=screen,
            interruption=interruption,
            by_hand=names[:by_hand] if by_hand > 1 else (),
            until_one=False,
        )
        made.run()
    return figures(made.outcome())


def figures(outcome: ScaleOutcome) -> dict[str, Any]:
    """How late results were, how many nodes had parts, and for how long results were later than the aim.

    Raises:
        AssertionError: the result isn't right.
    """
    same, found = compare(outcome.rows, outcome.expected), outcome.account
    assert same.equal, f"{same.rows:,} rows came, {same.expected:,} were expected: {same.example}"
    amount = f"{found.missing:,} cars missing, {found.doubled:,} doubled, {found.wrong:,} wrong"
    assert found.missing + found.doubled + found.wrong == 0, f"{amount}: {found.example}"
    late = np.array(outcome.late_s)
    p50, p95, p99 = (float(each) for each in np.quantile(late, [0.5, 0.95, 0.99]))
    peak = _within(outcome, (outcome.load.rises_s[1], outcome.load.falls_s[0]))
    seconds = outcome.by_second()
    return {
        "late_p50_s": p50,
        "late_p95_s": p95,
        "late_p99_s": p99,
        "peak_p95_s": float(np.quantile(peak, 0.95)) if peak else None,
        "nodes_most": outcome.nodes_most,
        "nodes_mean": _mean_nodes(outcome),
        "behind_s": sum(1 for each in seconds if each.p99_s is not None and each.p99_s > AIM_S),
        "acts": len([each for each in outcome.acts if each.done]),
        "published": outcome.published,
        "curve": [[each.second, each.offered, each.p99_s, each.nodes] for each in seconds],
    }


def told(made: Mapping[str, Any]) -> str:
    """A run, for who watches."""
    return f"{made['nodes_most']} nodes, p95 {made['late_p95_s'] * 1e3:,.0f} ms late"


def _within(outcome: ScaleOutcome, span_s: Sequence[float]) -> list[float]:
    """How late the results were whose windows ended in this time."""
    begin_s, end_s = span_s
    return [
        late_s
        for at_s, late_s in zip(outcome.at_s, outcome.late_s, strict=True)
        if begin_s <= at_s - late_s < end_s
    ]


def _mean_nodes(outcome: ScaleOutcome) -> float:
    """Over the load's time, from what was seen some times a second."""
    seen = [each for each in outcome.parts if each.at_s <= outcome.load.seconds and each.parts]
    return float(np.mean([len(each.parts) for each in seen])) if seen else 0.0
