"""Which fragments of a plan a wish is about: ``{"q/heavy": ..., "core": ..., "*": ...}``. Pure.

A key is a fragment (``query/box``), a box, a node, or ``*``; for each fragment the first of these counts that
is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from medusa.errors import QueryError
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph
from medusa.query.published_stream import reads_of
from medusa.query.suggest import did_you_mean

__all__ = ["REST", "WishWords", "boxes_of", "by_fragment"]

REST = "*"
"""The key of what no other key names."""

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class WishWords:
    """How refusals speak of a wish.

    Attributes:
        argument: its name for users.
        means: what it gives for a node.
        code: of a refusal that is about the wish, and not about a name in it.
    """

    argument: str
    means: str
    code: str


def by_fragment(
    wish: Sequence[tuple[str, W]],
    plan: PlacementPlan,
    graph: Graph,
    *,
    words: WishWords,
    rest: Callable[[int], bool],
    nodes: Iterable[str],
) -> dict[int, W]:
    """Place in the plan -> what is wished for that fragment; one that no key means isn't there.

    Args:
        graph: of the query.
        rest: whether ``*`` means the fragment at this place.
        nodes: those that are known, whatever runs there.

    Raises:
        QueryError: a key that names nothing, one that is there twice, or two that say different things of
            one fragment.
    """
    said = dict(wish)
    if len(said) != len(wish):
        text = f"{words.argument} names a fragment, box or node twice"
        raise QueryError(text, code="query.placement")
    boxes = [boxes_of(fragment) for fragment in plan.fragments]
    ids = [box.id for box in graph.boxes]
    for key in said:
        _check_key(key, plan, boxes, ids, words, nodes)
    found: dict[int, W] = {}
    for place, fragment in enumerate(plan.fragments):
        keys = [key for key in said if key == fragment.name]
        keys = keys or [key for key in said if key in boxes[place]]
        keys = keys or [key for key in said if key == fragment.node and key not in ids]
        if any(said[key] != said[keys[0]] for key in keys):
            raise QueryError(
                f"fragment {fragment.name!r} has boxes {' and '.join(map(repr, keys))}, and {words.argument} "
                "says another thing of each",
                hint=f"name it as a whole: {fragment.name!r}",
                code=words.code,
            )
        if keys:
            found[place] = said[keys[0]]
        elif REST in said and rest(place):
            found[place] = said[REST]
    return found


def _check_key(
    key: str,
    plan: PlacementPlan,
    boxes: Sequence[Sequence[str]],
    ids: Iterable[str],
    words: WishWords,
    nodes: Iterable[str],
) -> None:
    """Whether it names anything that runs."""
    names = [fragment.name for fragment in plan.fragments]
    if key == REST or key in names or any(key in each for each in boxes):
        return
    if key in ids:
        raise QueryError(
            f"{words.argument} names box {key!r}, which leads to no sink and runs nowhere",
            code="query.placement.box",
        )
    if key in plan.nodes():
        return
    if key in nodes:
        raise QueryError(
            f"{words.argument} is node -> {words.means}, and nothing of query {plan.query!r} runs at {key!r}",
            hint=did_you_mean(key, plan.nodes()),
            code="query.placement.node",
        )
    raise QueryError(
        f"{words.argument} names {key[:100]!r}: query {plan.query!r} has no box and no node of that name",
        hint=did_you_mean(key, [*plan.nodes(), *ids]),
        code="query.placement.box",
    )


def boxes_of(fragment: FragmentSpec) -> tuple[str, ...]:
    """The boxes of the query in it, and not those that only read what another fragment sends."""
    stand_in = {feed.source for feed in fragment.feeds} - set(reads_of(fragment.graph))
    return tuple(box.id for box in fragment.graph.boxes if box.id not in stand_in)
