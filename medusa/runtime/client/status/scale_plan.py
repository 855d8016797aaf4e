"""In how many parts the boxes of a query should run, by the statuses of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from medusa.errors import LinkError
from medusa.nodes.scaling.measured_boxes import measured_boxes
from medusa.nodes.scaling.policy import Resize, ScaleRules, WorkPolicy
from medusa.wire.status_and_metrics import NodeStatus

__all__ = ["scale_plan", "scaling_text"]

RULES = ScaleRules(looks=1)
"""Rates are smoothed already, and whoever asks looks again before they act."""

OFF = "off: the node that coordinates it has no [scale]"


def scale_plan(statuses: Sequence[NodeStatus], query: str) -> list[dict[str, Any]]:
    """As ``Federation.scale_plan``.

    Raises:
        LinkError: these nodes have nothing of that query (``E_FRAGMENT``).
    """
    measured = measured_boxes(statuses, query)
    if not any(each.query == query for status in statuses for each in status.fragments):
        raise LinkError(
            f"no query {query!r:.80} runs here", hint="fed.queries() lists them", code="E_FRAGMENT"
        )
    work = {id: each.work for id, each in measured.items()}
    now = {id: len(each.parts) for id, each in measured.items()}
    known_work = {id: of for id, of in work.items() if of is not None}
    said = {each.box: each for each in WorkPolicy(RULES).look(0, known_work, now)}
    scaling = scaling_text(statuses, query)
    return [
        {
            "box": f"{query}/{id}",
            "parts": now[id],
            "work": work[id],
            **_says(work[id], now[id], said.get(id)),
            "scaling": scaling,
        }
        for id in sorted(measured, key=lambda id: (-(work[id] or 0.0), id))
    ]


def scaling_text(statuses: Sequence[NodeStatus], query: str) -> str:
    """Whether the parts of a query are seen to by a node, and what that did last, for people."""
    for status in statuses:
        of = status.queries.get(query)
        if of is not None and of.scaling is not UNSET:
            return f"on, by node {status.node}: {of.scaling.text}"
    return OFF


def _says(work: float | None, parts: int, resize: Resize | None) -> dict[str, Any]:
    if resize is not None:
        return {"wanted": resize.parts, "why": resize.why}
    if work is None:
        return {"wanted": parts, "why": "nothing is known of it: no rows came of late, or none through"}
    share = f"{work / parts:.2f} of a thread in each of {parts}"
    if parts == 1 and work < RULES.low:
        return {"wanted": 1, "why": f"{share}: one is enough"}
    return {"wanted": parts, "why": f"{share}, between {RULES.low:g} and {RULES.high:g} or nearest to it"}
