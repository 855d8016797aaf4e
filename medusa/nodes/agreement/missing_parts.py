"""What a configuration says that a node has, and that it was never given. Pure."""

from __future__ import annotations

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.wire.messages.configuration import Configuration

__all__ = ["missing_parts", "never_given"]

NAMED_MAX = 4


def missing_parts(catalog: Catalog, current: Configuration) -> tuple[str, ...]:
    """Fragments, and streams and sources of fragments that nobody stands by for, which were to be installed
    here when the query was deployed, and are neither here nor were before.

    A node that has lost anything can't know that, and names none; nor can one that keeps nothing over its
    end, which isn't to be asked.
    """
    me, had = catalog.node, {*catalog.ownership.replaced, *catalog.left}
    if not catalog.is_whole:
        return ()
    fragments = [
        each.fragment
        for each in current.fragments
        if (each.owner, each.epoch, each.gone) == (me, FIRST_EPOCH, False)
        and each.fragment not in catalog.fragments
        and each.fragment not in had
    ]
    streams = () if current.parts is None else current.parts.streams
    missing = (name for name, node in streams if node == me and not catalog.has_name(name))
    return (*fragments, *(name for name in missing if catalog.place(name) is None))


def never_given(node: str, missing: tuple[str, ...]) -> str:
    """What is said of them."""
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return f"node {node!r} was never given {', '.join(map(repr, missing[:NAMED_MAX]))}{more}"
