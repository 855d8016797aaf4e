"""Whether anything is done with a query just now that scaling has to wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from medusa.wire.status_and_metrics import SEEDING, NodeStatus

__all__ = ["under_way"]


def under_way(statuses: Iterable[NodeStatus], query: str) -> str:
    """What is, in words; empty: nothing."""
    return next((why for status in statuses for why in _at(status, query)), "")


def _at(status: NodeStatus, query: str) -> Iterator[str]:
    """At one node."""
    own = f"{query}/"
    for each in status.splits:
        if any(name.startswith(own) for name in each.fragments):
            yield f"box {each.box} is being split or merged at {status.node}"
    for name in (*status.moves.going, *status.moves.coming):
        if name.startswith(own):
            yield f"fragment {name} is being moved"
    if query in status.undecided:
        yield f"votes are waited for: {status.undecided[query].why}"
    for name, lost in status.without_state.items():
        if lost.query == query:
            yield f"node {status.node} has no state of fragment {name}"
    doubtful = status.in_doubt.fragments
    for name, doubt in {} if doubtful is UNSET else doubtful.items():
        if doubt.query == query:
            yield f"fragment {name} is in doubt at {status.node}"
    for fragment in status.fragments:
        if fragment.query == query:
            if fragment.failed:
                yield f"fragment {fragment.fragment} has failed"
            replicas = fragment.replicas
            for node, of in {} if replicas is UNSET else replicas.secondaries.items():
                if of.state == SEEDING:
                    yield f"node {node} is being seeded with fragment {fragment.fragment}"
