"""Streams that a failure holds up for a while only, as nodes say how they are: what status, explain, top and
the dashboard show of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import UNSET

from medusa.units import duration_text, size_text
from medusa.wire.status_and_metrics import ConsistencyStatus, NodeStatus

__all__ = ["STABLE", "BoundedStream", "bounded_streams", "unstable_text"]

STABLE = "stable"


class BoundedStream(NamedTuple):
    """A stream with ``delay``.

    Attributes:
        sink: the box that it leaves by.
    """

    node: str
    query: str
    fragment: str
    sink: str
    stream: str
    consistency: ConsistencyStatus


def bounded_streams(statuses: Iterable[NodeStatus]) -> list[BoundedStream]:
    """All of these nodes, in their order."""
    return [
        BoundedStream(
            status.node, part.query, part.fragment, each.of or each.sink, each.stream, each.consistency
        )
        for status in statuses
        for part in status.fragments
        for each in part.outputs
        if each.consistency is not UNSET
    ]


def unstable_text(of: ConsistencyStatus) -> str:
    """In words, what is missing and how much is to be corrected: of a stream that isn't stable."""
    parts = ["nothing new comes of it"]
    if of.missing:
        parts = [f"missing: {', '.join(each.text for each in of.missing)}"]
    elif of.state == "stabilization":
        parts = ["what was missing is being corrected"]
    parts.append(f"{of.tentative_rows:,} tentative rows so far")
    parts.append(f"corrections to come: {_to_come(of)}")
    if of.dropped_rows:
        parts.append(f"{of.dropped_rows:,} not sent to slow readers")
    if of.why:
        parts.append(f"no fork: {of.why}")
    if of.disk_bytes:
        parts.append(f"{size_text(of.disk_bytes)} of inputs wait on disk")
    if of.suspended:
        held = size_text(of.held_bytes + of.disk_bytes)
        parts.append(f"SUSPENDED: {', '.join(of.suspended)} wait at their senders, since {held} wait here")
    return "; ".join(parts)


def _to_come(of: ConsistencyStatus) -> str:
    waits = f"of {of.uncorrected_rows:,} rows shown; {of.behind_rows:,} rows wait"
    if of.behind_us is None:
        return waits
    return f"{waits}, {duration_text(of.behind_us // 1000 * 1000)} behind"
