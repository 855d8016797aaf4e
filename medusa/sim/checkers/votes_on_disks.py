"""A configuration is decided by the disks of more than half of the voters of the one before it.

Read from the disks alone, and not from what nodes say that they have accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.decoders import converter
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.sim.checkers.catalog import newest_catalog
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.configuration import Configuration

if TYPE_CHECKING:
    from medusa.sim.actors.node import NodeMachine

__all__ = ["VotesOnDisks"]

_KEPT = converter(KeptConfiguration)


class VotesOnDisks:
    """Of the voters on all queries.

    A vote counts once it is durable, and for ever: it counts also where the query has been removed from the
    voter since, which forgets all but that.
    """

    def __init__(self, nodes: Mapping[str, NodeMachine]) -> None:
        self._nodes = nodes
        self._looked: dict[str, tuple[int, int]] = {}
        """Node -> number of the catalog and life in which its disk was looked at last."""
        self._had: dict[str, set[Configuration]] = {}
        """Node -> what its disk said that it had accepted, or knew to be decided."""

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn: what it has said until now is on its disk still."""
        state = node.disk.history.catalog[0], node.lives
        if self._looked.get(node.name) == state:
            return
        self._looked[node.name] = state
        for kept in map(_KEPT, _facts(node).get("configurations", {}).values()):
            had = self._had.setdefault(node.name, set())
            had.add(kept.current)
            if kept.accepted is not None:
                had.add(kept.accepted.configuration)

    def check_decided(self, new: Configuration, before: Configuration) -> None:
        """Somebody knows that ``new`` follows ``before``.

        Raises:
            SimulationError: no more than half of those that vote on it have accepted it by their disks, or
                have lost a disk that may have said so.
        """
        voters = [self._nodes[name] for name in before.voters]
        have = [node.name for node in voters if node.disk.history.lost or self._has_accepted(node, new)]
        if 2 * len(have) <= len(before.voters):
            raise SimulationError(
                f"configuration: {new.number} is decided, and on the disks of {have} of {before.voters}"
            )

    def _has_accepted(self, node: NodeMachine, new: Configuration) -> bool:
        facts = _facts(node)
        known = facts.get("configurations", {}).get(new.query)
        if known is not None:
            kept = _KEPT(known)
            if kept.accepted is not None and kept.accepted.configuration == new:
                return True
            if kept.current.life == new.life:
                return kept.current.number >= new.number
        removed = new.life in facts.get("buried", {}).get(new.query, ())
        return removed and new in self._had.get(node.name, ())


def _facts(node: NodeMachine) -> dict[str, Any]:
    data = newest_catalog(node)
    return {} if data is None else msgspec.msgpack.decode(data)
