"""Where routers, parts and merges of boxes that are split stand: by the statuses of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from medusa.nodes.scaling.measured_boxes import BoxPart, BoxWork
from medusa.query.rewrite.split import routed_box
from medusa.wire.status_and_metrics import FragmentStatus, NodeStatus

__all__ = ["SplitSet", "split_sets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSet:
    """A box, or a part of one, whose parts are all known and none of which is split itself.

    Attributes:
        box: that is split.
        home: the node that has its router; ``router`` is the fragment there.
        merges: (node, fragment) of those that have its merges.
    """

    box: str
    home: str
    router: str
    parts: tuple[BoxPart, ...]
    merges: tuple[tuple[str, str], ...]


def split_sets(statuses: Iterable[NodeStatus], query: str, measured: Mapping[str, BoxWork]) -> list[SplitSet]:
    """Those that can be merged next, as far as these nodes tell all of them."""
    placed = [(status.node, each) for status in statuses for each in status.fragments if each.query == query]
    parts = {part.box: part for of in measured.values() for part in of.parts}
    found: dict[str, SplitSet] = {}
    for node, fragment in placed:
        for id, box in fragment.boxes.items():
            name = routed_box(id)
            if box.kind != "key_router" or name in found:
                continue
            own = [f"{name}-{number}" for number in range(1, _ports(fragment, id) + 1)]
            merges = _merges(placed, name)
            if own and merges and all(each in parts for each in own):
                found[name] = SplitSet(
                    box=name,
                    home=node,
                    router=fragment.fragment,
                    parts=tuple(parts[each] for each in own),
                    merges=merges,
                )
    return list(found.values())


def _ports(fragment: FragmentStatus, router: str) -> int:
    """How many parts a router sends to."""
    return len(dict.fromkeys(port for box, port, _ in fragment.arcs if box == router))


def _merges(placed: Sequence[tuple[str, FragmentStatus]], box: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (node, each.fragment)
        for node, each in placed
        if any(
            (id == box or id.startswith(f"{box}-out-")) and of.kind not in ("source", "sink")
            for id, of in each.boxes.items()
        )
    )
