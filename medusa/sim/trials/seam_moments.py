"""Whether a node has come to a moment at which something is to go wrong. Nothing is changed here."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.elements import END_US
from medusa.nodes.catalog.catalog import Catalog
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.catalog import newest_catalog

__all__ = ["HandOn", "comes_again", "ends_within", "is_at"]


def is_at(node: NodeMachine, moment: str) -> bool:
    """Whether it ``splits`` or merges a box, ``repeats`` a log, or a fragment ``arrives``, ``moves away``."""
    if moment == "repeats":
        return any(hosted.repeating for hosted in node.brain.fragments.values())
    sliding = node.brain.orders
    if moment == "splits":
        return bool(sliding.splits.status())
    moves = sliding.status()
    return bool(moves.coming if moment == "arrives" else moves.going)


def comes_again(node: NodeMachine) -> bool:
    """Whether the newest checkpoint of a fragment says that rows which were sent come out of it once more: it
    took the place of one that was ahead, and has written one since then."""
    return any(
        not hosted.frozen
        and hosted.checkpoints > 1
        and any(output.given < output.rows for output in hosted.outputs.values())
        for hosted in node.brain.fragments.values()
    )


def ends_within(node: NodeMachine) -> bool:
    """Whether the engine has the end of a stream to feed that one fragment here sends to another."""
    return any(
        hosted.under_way
        and any(input.peer == node.name and input.fed_us >= END_US for input in hosted.inputs.values())
        for hosted in node.brain.fragments.values()
    )


@dataclass(frozen=True, slots=True)
class HandOn:
    """What reads a stream goes to another node.

    Attributes:
        upstream: has the stream.
        to: where that goes.
    """

    upstream: str
    stream: str
    to: str

    def is_done(self, node: NodeMachine) -> bool:
        """Whether nobody else reads the stream, and the disk says so."""
        if node.name != self.upstream or self._readers(node.brain.catalog) != {self.to}:
            return False
        data = newest_catalog(node)
        return data is not None and self._readers(
            Catalog.from_bytes(data, node=node.name, where=node.name)
        ) == {self.to}

    def _readers(self, catalog: Catalog) -> set[str]:
        return {
            reader
            for spec in catalog.fragments.values()
            for sink, stream in spec.streams.items()
            if stream == self.stream
            for reader in spec.readers.get(sink, ())
        }
