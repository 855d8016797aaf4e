"""A query with wishes for its fragments: who stands by for them, how often they take a checkpoint. A release
that doesn't know this message refuses it whole, where it would have skipped a further field of ``Deploy`` and
run the query without any."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import Count, MessageBase, Name, Names, Payload

__all__ = ["DeployGuarded", "PlannedStandby"]

Standby = Annotated[tuple[Name, ...], Meta(max_length=limits.STANDBY_MAX)]
CheckpointEvery = Annotated[int, Meta(ge=limits.CHECKPOINT_EVERY_US_LEAST, le=limits.CHECKPOINT_EVERY_US_MAX)]


class DeployGuarded(MessageBase, frozen=True, tag="deploy-guarded"):
    """From a client: run this query, with these wishes for its fragments. Payload: the graph, as msgpack.

    Attributes:
        at, reads: as in ``Deploy``.
        standby: (a node or a box of the query, or ``*`` for what nothing else names; the nodes that stand by
            for the fragments there, in the order in which they succeed). No nodes: the asked node chooses.
        witnesses: nodes that vote on who takes over and run nothing of it.
        dry: deploy nothing; the answer says what would be.
        checkpoint_every: (a key as in ``standby``; us between two checkpoints of the fragments there).
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count
    at: Annotated[tuple[tuple[Name, Names], ...], Meta(max_length=limits.PLACES_MAX)]
    reads: Annotated[tuple[tuple[Name, Name, Name, Count], ...], Meta(max_length=limits.PLACES_MAX)] = ()
    standby: Annotated[tuple[tuple[Name, Standby], ...], Meta(max_length=limits.PLACES_MAX)] = ()
    witnesses: Standby = ()
    dry: bool = False
    checkpoint_every: Annotated[
        tuple[tuple[Name, CheckpointEvery], ...], Meta(max_length=limits.PLACES_MAX)
    ] = ()


class PlannedStandby(msgspec.Struct, frozen=True, kw_only=True):
    """What the node would do that was asked ``dry``: the JSON of its answer.

    Attributes:
        standby: fragment -> who would stand by for it.
        backups: of those, the nodes that would hold a fragment's state for others to go on with.
        voters: who would decide together on who takes over.
        away: those of them that don't answer.
        warnings: what is less than one might think.
        checkpoint_every: (fragment, node, us) of those that have an interval of their own.
    """

    standby: dict[str, tuple[str, ...]] = {}
    backups: dict[str, tuple[str, ...]] = {}
    witnesses: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpoint_every: tuple[tuple[str, str, int], ...] = ()
