"""What the statuses of nodes say, put together: what each box waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.errors import LinkError
from medusa.query.suggest import did_you_mean

__all__ = ["check_entitled", "explanation"]

Status = Mapping[str, Any]


def check_entitled(status: Status) -> None:
    """A client that may use some streams sees those, and no boxes.

    Raises:
        LinkError: this is such a client.
    """
    if "rows_in" not in status:
        raise LinkError(
            f"node {status['node']!r} shows this client no boxes",
            hint="the node's configuration would have to say status = true in its [clients.NAME]",
            code="E_ROLE",
        )


def explanation(statuses: Sequence[Status], query: str | None) -> list[dict[str, Any]]:
    """Of each box what it waits for: see ``Federation.explain``.

    Raises:
        LinkError: the caller sees no boxes, or no node has this query.
    """
    for status in statuses:
        check_entitled(status)
    known = sorted({fragment["query"] for status in statuses for fragment in status["fragments"]})
    if query is not None and query not in known:
        nodes = ", ".join(status["node"] for status in statuses)
        raise LinkError(
            f"no fragment of a query {query!r:.100} at {nodes}",
            hint=did_you_mean(str(query), known),
            code="E_QUERY",
        )
    found = [
        _why(status["node"], fragment, id, box)
        for status in statuses
        for fragment in status["fragments"]
        for id, box in fragment["boxes"].items()
        if query is None or fragment["query"] == query
    ]
    return sorted(found, key=lambda each: (each["query"], each["fragment"]))


def _why(node: str, fragment: Status, id: str, box: Status) -> dict[str, Any]:
    return {
        "query": fragment["query"],
        "fragment": fragment["fragment"],
        "node": node,
        "box": id,
        "kind": box["kind"],
        "waits_for": box.get("waits_for", ""),
        "held_by": box.get("held_by", ""),
        "since_us": box.get("unmoved_us"),
        "boundary_us": box["boundary"],
        "lag_us": box["lag_us"],
    }
