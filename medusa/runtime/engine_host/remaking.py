"""What the engine does when a box of fragments is split or merged, as their node says it."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.engine.fragment import Fragment
from medusa.engine.regrouping import Regrouped, merge_fragments, split_fragment
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.errors import StateError
from medusa.ports import Clock
from medusa.query.boxes import Graph
from medusa.wire.outbox import Regroup

__all__ = ["remade", "remade_of"]


def remade(effect: Regroup, found: Mapping[str, Fragment | None], clock: Clock) -> Regrouped:
    """The new fragments.

    Raises:
        StateError, QueryError: nothing came of it, and the old ones are as they were.
    """
    olds = {name: fragment for name, fragment in found.items() if fragment is not None}
    if len(olds) < len(found):
        raise StateError("a fragment has failed", code="state.failed")
    about = effect.box, effect.whole, effect.opened, effect.arcs
    if effect.merges:
        return merge_fragments(olds, *about, clock=clock)
    (old,) = olds.values()
    return split_fragment(old, *about, clock=clock)


def remade_of(
    effect: Regroup, states: Mapping[str, tuple[Graph, BackgroundCopy]], clock: Clock
) -> tuple[Regrouped, dict[str, BackgroundCopy]]:
    """The new fragments made of what was copied of the old ones, in any thread; and a copy of each.

    Raises:
        StateError, QueryError: nothing came of it.
    """
    olds: dict[str, Fragment | None] = {
        name: Fragment.restore(graph, copying.files(), clock=clock)
        for name, (graph, copying) in states.items()
    }
    found = remade(effect, olds, clock)
    begun = {name: fragment.copying() for name, fragment in found.made.items()}
    for copying in begun.values():
        copying.finish()
    return found, begun
