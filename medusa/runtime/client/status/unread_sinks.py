"""Sinks that keep published rows from being durable: by upstream backup senders keep rows until whoever reads
holds what came of them, and for who may yet come to read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from medusa.query.recovery import PRECISE_UPSTREAM, UPSTREAM
from medusa.wire.status_and_metrics import NodeStatus, OutputStatus

__all__ = ["unread_sinks"]

DETACHED = "detached"
"""As a receiver's status says: it has gone, and nobody waits for it."""


def unread_sinks(statuses: Iterable[NodeStatus], queries: Collection[str]) -> list[str]:
    """In words: each sink of these queries behind which somebody lags, and who."""
    found: dict[str, None] = {}
    for status in statuses:
        for part in status.fragments:
            if part.query in queries and part.method in (UPSTREAM, PRECISE_UPSTREAM):
                found |= dict.fromkeys(line for output in part.outputs for line in _lagging(output))
    return list(found)


def _lagging(output: OutputStatus) -> Iterator[str]:
    """Clients that read it and don't hold all of it, or that nobody does; what nodes read they hold by
    themselves."""
    there = [each for each in output.receivers if not each.plain or each.state != DETACHED]
    readers = [(each.to, each.durable_row) for each in there if each.plain]
    readers += [(f"the name {each.name!r}", each.acknowledged_row) for each in output.named]
    for who, row in readers:
        if row < output.rows:
            yield f"sink {output.stream!r} isn't read: {who} has {row:,} of {output.rows:,} rows"
    if not there and not output.named and output.oldest_row < output.rows:
        yield f"sink {output.stream!r} is read by nobody: its {output.rows:,} rows are kept for who comes"
