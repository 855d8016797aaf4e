"""How often the fragments of a plan take a checkpoint, as somebody wishes. Pure.

    checkpoint_every = {"q/heavy": "200ms", "core": "2s"}

The keys are those of ``standby``: see ``fragment_keys``. What no key means keeps the interval of its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import msgspec

from medusa.errors import QueryError
from medusa.nodes.placement.fragment_keys import WishWords, by_fragment
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph

__all__ = ["IntervalWish", "intervals_of", "with_intervals"]

IntervalWish: TypeAlias = tuple[tuple[str, int], ...]
"""(key, us)."""

_WORDS = WishWords("checkpoint_every", "how often its fragments take a checkpoint", "query.placement")


def with_intervals(
    plan: PlacementPlan, graph: Graph, wish: IntervalWish, *, nodes: Mapping[str, StandbyNode]
) -> PlacementPlan:
    """The plan with the interval of each fragment.

    Args:
        graph: of the query.
        nodes: those that are known here, by name.

    Raises:
        QueryError: a key that names nothing, or a fragment whose node takes no checkpoints, or not as we
            wish.
    """
    if not wish:
        return plan
    against = [_against(fragment, nodes.get(fragment.node)) for fragment in plan.fragments]
    found = by_fragment(
        wish, plan, graph, words=_WORDS, rest=lambda place: against[place] is None, nodes=nodes
    )
    for place in found:
        if (refused := against[place]) is not None:
            raise refused
    if not found:
        raise next(each for each in against if each is not None)
    fragments = tuple(
        msgspec.structs.replace(each, checkpoint_every_us=found[place]) if place in found else each
        for place, each in enumerate(plan.fragments)
    )
    return replace(plan, fragments=fragments)


def intervals_of(plan: PlacementPlan) -> tuple[tuple[str, str, int], ...]:
    """(fragment, node, us) of the fragments that have an interval of their own."""
    return tuple(
        (each.name, each.node, each.checkpoint_every_us)
        for each in plan.fragments
        if each.checkpoint_every_us
    )


def _against(fragment: FragmentSpec, node: StandbyNode | None) -> QueryError | None:
    """Why nobody here can say how often a fragment takes a checkpoint; None: we can."""
    label = f"checkpoint_every: fragment {fragment.name!r} runs at {fragment.node!r}"
    if node is not None and node.abroad:
        return QueryError(
            f"{label} of participant {node.abroad!r}, which says itself how often it writes",
            hint="leave the fragment out",
            code="E_ROLE",
        )
    if node is not None and node.forgets:
        return QueryError(
            f"{label}, which keeps nothing and takes no checkpoints",
            hint=f'leave it out, put it at a node with a disk, or give {fragment.node} store = "disk"',
            code="E_STORE",
        )
    return None
