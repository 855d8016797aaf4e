"""Where a fragment reads, by its spec and what is on disk.

What was written before a stream moved names the node that it came from then: it is read as it is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from medusa.nodes.fragment.checkpoint_record import InputRecord
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.input_log_records import Decision
from medusa.nodes.spec.fragment_spec import FragmentSpec

__all__ = ["at_feeds", "known_inputs"]


def at_feeds(spec: FragmentSpec, saved: SavedCheckpoint | None) -> SavedCheckpoint | None:
    """A checkpoint and the decisions after it, with each judged source read from where the spec says.

    Such a source has exactly one feed, and its rows the same numbers wherever they come from.
    """
    if saved is None:
        return None
    nodes = {feed.source: feed.node for feed in spec.feeds}
    record = saved.record
    if record is not None:
        inputs = tuple(
            msgspec.structs.replace(each, peer=nodes.get(each.source, each.peer)) for each in record.inputs
        )
        record = msgspec.structs.replace(record, inputs=inputs)
    decisions = [
        each if nodes.get(each.source, each.peer) == each.peer else replace(each, peer=nodes[each.source])
        for each in saved.decisions
    ]
    return replace(saved, record=record, decisions=decisions)


def known_inputs(
    spec: FragmentSpec, records: Sequence[InputRecord], decisions: Sequence[Decision]
) -> Iterator[tuple[str, str, str, InputRecord | None]]:
    """(source, stream, peer, position) of those of the plan, of a checkpoint and of what was fed after it."""
    positions = {(each.source, each.peer): each for each in records}
    known = {(feed.source, feed.node) for feed in spec.feeds} | set(positions)
    for feed in spec.feeds:
        yield feed.source, feed.stream, feed.node, positions.pop((feed.source, feed.node), None)
    for (source, peer), position in positions.items():
        yield source, spec.entries[source], peer, position
    for source, peer in dict.fromkeys((each.source, each.peer) for each in decisions):
        if (source, peer) not in known and peer != spec.node:
            yield source, spec.entries[source], peer, None
