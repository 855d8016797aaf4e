"""The first configuration of a query, as its plan says. Pure."""

from __future__ import annotations

from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import Configuration, Replicas

__all__ = ["first_configuration"]


def first_configuration(plan: PlacementPlan, coordinator: str, life: int) -> Configuration | None:
    """Owners as planned, and nobody follows yet; None: no fragment has standbys.

    Args:
        life: tells this deployment from earlier ones of a query of that name.
    """
    guarded = plan.guarded()
    if not guarded:
        return None
    voters = [coordinator, *(node for each in guarded for node in (each.node, *each.standby))]
    return Configuration(
        query=plan.query,
        number=1,
        coordinator=coordinator,
        voters=tuple(dict.fromkeys((*voters, *plan.witnesses))),
        fragments=tuple(map(_replicas, guarded)),
        life=life,
    )


def _replicas(fragment: FragmentSpec) -> Replicas:
    return Replicas(
        fragment=fragment.name,
        owner=fragment.node,
        epoch=FIRST_EPOCH,
        members=(fragment.node, *fragment.standby),
        reads=tuple(feed.stream for feed in fragment.feeds),
        streams=(*fragment.streams.values(), *fragment.entries.values()),
    )
