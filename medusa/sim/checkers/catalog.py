"""When all is at rest, each node's disk holds the catalog that the node goes by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from medusa.engine.state.checkpoint import unseal
from medusa.errors import StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.ports import Buffer
from medusa.runtime.engine_host.group_names import GroupName, catalog_names, group_token
from medusa.sim.actors.node import NodeMachine
from medusa.sim.actors.start_check import check_marks
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["check_catalogs", "newest_catalog"]

LEARNED = "runs"
"""What a node has heard of others is written with the next change, not for itself."""


def newest_catalog(node: NodeMachine) -> Buffer | None:
    """The newest whole catalog on its disk; None: there is none."""
    groups = [(group_token("", name) or 0, name) for name in node.disk.names()]
    for token, name in sorted(groups, reverse=True):
        if not token:
            break
        try:
            return unseal(node.disk.read(name), name)[1][CATALOG]
        except StateError:
            continue  # Torn.
    return None


def _none_yet(node: NodeMachine) -> bytes:
    """What a folder without a catalog says: when it was begun the number of the life tells."""
    catalog = Catalog(node.name)
    catalog.begins(node.brain.catalog.birth.life)
    return catalog.to_bytes()


def check_catalogs(nodes: Iterable[NodeMachine]) -> None:
    """Of nodes with a disk, none of which is writing: it is there twice, and says what the node goes by.

    Raises:
        SimulationError: what a node goes by would be lost with it.
    """
    for node in nodes:
        if not node.alive or node.forgets or not node.brain.saved or node.brain.catalog.in_doubt.newest:
            continue  # What it can't know is as it was on disk, until it decides.
        _check_copies(node)
        check_marks(node.name, node.disk)
        data = newest_catalog(node) or _none_yet(node)
        here, there = _facts(node.brain.catalog.to_bytes()), _facts(data)
        for name in sorted({*here, *there} - {LEARNED}):
            if here.get(name) != there.get(name) and (here.get(name) or there.get(name)):
                raise SimulationError(
                    f"disk: the catalog of {node.name} has {name} {there.get(name)!r:.200}, "
                    f"the node goes by {here.get(name)!r:.200}"
                )


def _check_copies(node: NodeMachine) -> None:
    """The newest catalog is there twice: one damaged file takes nothing away."""
    disk = node.disk
    groups = [group for name in disk.names() if (group := GroupName.of(name)).kind == "catalog"]
    newest = max((group.number for group in groups), default=0)
    for name in catalog_names(newest) if newest else ():
        try:
            unseal(disk.read(name), name)
        except StateError as error:
            if name not in disk.history.harmed:
                raise SimulationError(f"disk: {node.name} has its catalog once: {error}") from error


def _facts(data: Buffer) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.msgpack.decode(data)
    return {name: each for name, each in facts.items() if name not in ("version", "node")}
