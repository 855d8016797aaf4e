"""Which of the nodes that send to a fragment hold its state, where an output asks for ``state_backup``. Pure.

SEEP (SIGMOD 2013) holds the state of operator o at upstreams(o)[|hash(o)| mod n]: what one node sends to is
spread over all that send to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

__all__ = ["BACKUPS_MAX", "backup_order"]

BACKUPS_MAX = 2
"""Nodes upstream that may hold a fragment's state: one does, and the next once that is lost. Each votes."""


def backup_order(fragment: str, upstream: Sequence[str]) -> tuple[str, ...]:
    """The nodes in the order in which they hold its state: the first is that of the hash of its name, which
    is the same on every machine.

    Args:
        upstream: nodes that send to it, in the order of its inputs; each counts once.
    """
    nodes = tuple(dict.fromkeys(upstream))
    if not nodes:
        return ()
    first = int.from_bytes(blake2b(fragment.encode(), digest_size=8).digest(), "big") % len(nodes)
    return nodes[first:] + nodes[:first]
