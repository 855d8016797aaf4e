"""Who holds the state of a fragment that is backed up upstream, and who goes on with it. Pure.

    owner ── checkpoints ──> the first backup node that is there, and no other
    owner lost ── that node takes over ── sends state to the first other node ── which takes it over
    now that one is the owner, and the backup node holds its state again

So one node at a time holds it. One that is lost, or has no room, is followed by the next in order; one that
comes before it in order and is back takes its place, and only once that counts is the other let go.
"""

from __future__ import annotations

from collections.abc import Callable

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.recovery import STATE_BACKUP
from medusa.wire.messages.configuration import Replicas

__all__ = ["followers_wanted", "relieves"]


def followers_wanted(
    spec: FragmentSpec,
    replicas: Replicas,
    *,
    is_up: Callable[[str], bool],
    refused: Callable[[str], bool],
    to: str = "",
    keeps_here: bool = False,
) -> tuple[str, ...]:
    """The nodes to which the owner of a fragment sends its state, or what it is fed.

    Args:
        is_up: whether a node is heard.
        refused: whether a node has said that it has no room, not long ago.
        to: the node that is to have the fragment by an order; empty: none is.
        keeps_here: its owner, which only held its state, restores it in parts: nobody else is sent the whole.
    """
    others = tuple(node for node in replicas.followers if node != replicas.owner)
    if spec.method != STATE_BACKUP or replicas.abroad:
        return others
    holders = [node for node in spec.backup_nodes if node in replicas.members]
    runners = [node for node in replicas.members if node not in holders]
    order = [*runners, *holders] if replicas.owner in holders else [*holders, *runners]
    there = (node for node in order if node != replicas.owner and is_up(node) and not refused(node))
    first = "" if keeps_here else next(there, "")
    coming = [node for node in (to, replicas.guest) if node in others]
    kept = () if first in replicas.secondaries else replicas.secondaries
    return tuple(dict.fromkeys(node for node in (first, *kept, *coming) if node))


def relieves(spec: FragmentSpec, replicas: Replicas, node: str) -> bool:
    """Whether a node that holds the state of a fragment takes it from its owner, which is there: that held
    it for others, and has it since the one before was lost."""
    if spec.method != STATE_BACKUP or node not in replicas.secondaries:
        return False
    return replicas.owner in spec.backup_nodes and node not in spec.backup_nodes
