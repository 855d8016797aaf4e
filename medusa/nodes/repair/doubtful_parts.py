"""Which parts of a catalog are in doubt after the disk lost something. Pure: called when a node starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt, InDoubt
from medusa.nodes.catalog.kept_moves import Ownership

__all__ = ["begin_doubt", "lost_state", "older_state", "others_have"]


def others_have(catalog: Catalog, fragment: str) -> bool:
    """Whether a fragment is this node's, and others stand by for it that have all of it."""
    kept = catalog.configurations.get(catalog.fragments[fragment].query)
    replicas = None if kept is None else kept.current.replicas(fragment)
    if replicas is None or replicas.epoch < catalog.epoch(fragment):
        return False
    keeps = not catalog.fragments[fragment].keeps_nothing
    return keeps and replicas.owner == catalog.node and bool(replicas.secondaries)


def older_state(catalog: Catalog, fragment: str, *, checkpoint: bool = True) -> None:
    """The newest checkpoint of a fragment that others have too is damaged, or its decision log: what they
    have is newer than what is left here, which stays, and waits in doubt.

    Args:
        checkpoint: one is whole.
    """
    why = "what it was last isn't whole here, and others stand by for it"
    _wait(catalog, fragment, "checkpoint" if checkpoint else "none", why)


def lost_state(catalog: Catalog, fragment: str) -> None:
    """A fragment of a catalog has lost all its checkpoints: it waits in doubt."""
    _wait(catalog, fragment, "lost", "it had checkpoints, and none of them is whole")


def _wait(catalog: Catalog, fragment: str, state: Literal["checkpoint", "lost", "none"], why: str) -> None:
    spec = catalog.fragments.pop(fragment)
    catalog.in_doubt.fragments[fragment] = FragmentInDoubt(
        spec=spec,
        coordinator=catalog.coordinator_of(spec.query, catalog.node),
        epoch=catalog.ownership.epoch(fragment),
        state=state,
        why=why,
    )


def begin_doubt(
    old: Catalog,
    *,
    newest: int,
    data: bytes,
    fragments: Mapping[str, FragmentInDoubt],
    unreadable: Mapping[str, str],
) -> Catalog:
    """A catalog of a node that has lost the newest one.

    What an older catalog says of what is here, of who is to read it and of what was being deployed or moved
    may be outdated, so nothing of that counts until ``nodes.repair.resolution`` takes it up from
    ``InDoubt.old``. What it says of where fragments have gone, of who took whose place, of declared keys and
    of remote definitions
    stays: a peer never believes it against a later epoch.

    Args:
        newest: the number of the catalog that was lost.
        data: the older one as it is on disk.
        fragments: all that it names or that lie on disk.
        unreadable: hash in the names of groups that nobody can read -> why.
    """
    made = Catalog(old.node)
    made.statements, made.runs, made.left = old.statements, old.runs, old.left
    made.remote, made.reading = old.remote, old.reading
    made.ownership = Ownership(taken=old.ownership.taken, replaced=old.ownership.replaced)
    # A doubt within a doubt: the catalog that was known last is what there is to go on from.
    made.in_doubt = InDoubt(
        fragments=dict(fragments),
        unreadable={**old.in_doubt.unreadable, **unreadable},
        newest=newest,
        old=old.in_doubt.old or data,
    )
    return made
