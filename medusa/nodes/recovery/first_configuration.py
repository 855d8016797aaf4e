"""The first configuration of a query, as its plan says. Pure."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

import msgspec

from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.recovered_outputs import ways_of
from medusa.nodes.recovery.regrouping import replicas_of_spec
from medusa.query.published_stream import reads_of
from medusa.wire.messages.configuration import (
    NAMES_BYTES_MAX,
    Configuration,
    QueryParts,
    names_bytes,
)

__all__ = ["first_configuration", "life_of"]


def life_of(node: str, request: int) -> int:
    """Of a query that a node deploys by this request: another one for each deployment, whoever does it. Two
    nodes that deploy a query one after the other may use the same number."""
    return int.from_bytes(blake2b(f"{node} {request}".encode(), digest_size=8).digest()) >> 2 | 1


def first_configuration(
    plan: PlacementPlan, coordinator: str, life: int, own: Collection[str] = ()
) -> Configuration | None:
    """Owners as planned, and nobody follows yet; None: no fragment has standbys.

    Args:
        life: tells this deployment from earlier ones of a query of that name.
        own: nodes of our participant. With a part elsewhere the coordinator's role stays where it is: nodes
            of others obey who deployed it, and aren't told of configurations.
    """
    guarded = plan.guarded()
    if not guarded:
        return None
    voters = [coordinator, *(node for each in guarded for node in (each.node, *each.standby))]
    who = tuple(dict.fromkeys((*voters, *plan.witnesses)))
    made = Configuration(
        query=plan.query,
        number=1,
        coordinator=coordinator,
        voters=who,
        fragments=tuple(replicas_of_spec(each, FIRST_EPOCH) for each in guarded),
        life=life,
        witnesses=tuple(dict.fromkeys((coordinator, *plan.witnesses))),
        voters_least=len(who),
    )
    parts = _parts(plan)
    ours = {coordinator, *own}.issuperset(parts.nodes)
    return msgspec.structs.replace(made, parts=parts) if ours and _fits(made, parts) else made


def _fits(made: Configuration, parts: QueryParts) -> bool:
    """Half of the room is for the rest: what whoever takes the role over has to know isn't what a deployment
    fails by."""
    secondaries = (node for each in made.fragments for node in each.members)
    return names_bytes((*made.names(), *secondaries, *parts.names())) <= NAMES_BYTES_MAX // 2


def _parts(plan: PlacementPlan) -> QueryParts:
    return QueryParts(
        nodes=(*plan.nodes(), *plan.idle()),
        streams=tuple(
            (name, each.node)
            for each in plan.fragments
            if not each.standby
            for name in (*each.entries.values(), *each.streams.values())
        ),
        reads=tuple(of for each in plan.fragments for box in reads_of(each.graph).values() if (of := box.of)),
        recovered=ways_of(plan),
    )
