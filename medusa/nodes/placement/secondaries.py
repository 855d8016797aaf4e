"""Who stands by where nobody is named: what one node has is spread over several others, so that after the
loss of any one node the longest recovery is shortest. Pure.

What is recovered after a loss are the fragments of one owner, each by the one that stands by for it, and all
of those at once. So for each owner the largest sum of work that falls on one other node is to be smallest
(Hwang, Xing, Cetintemel and Zdonik, ICDE 2007: min-max). Largest first, each to whom the least falls so far,
is at most 4/3 - 1/(3 m) of the best over m nodes (Graham 1969), where nobody was named for any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from medusa.nodes.placement.estimating import BoxTraffic
from medusa.nodes.placement.fragment_keys import boxes_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, Input

__all__ = ["UNKNOWN_WORK", "Unguarded", "fed_bytes_per_s", "recovery_work", "spread"]

UNKNOWN_WORK = 1.0
"""Of a fragment of whose traffic nothing is known: then their number is what is spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unguarded:
    """A fragment for which somebody is to stand by.

    Attributes:
        owner: the node that has it.
        work: what its recovery takes, above 0, in any unit that all have in common.
        cost: the share of a core that it takes, of whoever stands by too.
        candidates: who may stand by, at least one; of equals the first is chosen.
    """

    owner: str
    work: float
    cost: float
    candidates: tuple[str, ...]


def spread(
    fragments: Sequence[Unguarded],
    *,
    falls_on: Mapping[tuple[str, str], float],
    loads: Mapping[str, float],
    voters: Iterable[str] = (),
    voters_max: int | None = None,
) -> list[str]:
    """One of its candidates for each fragment, in their order.

    Args:
        falls_on: (owner, node) -> the work that falls on the node already when the owner is lost.
        loads: the share of a core that nodes are busy with: of those on whom as much falls the least busy
            is chosen.
        voters: who votes on takeovers anyway. Whoever stands by votes too.
        voters_max: once so many vote, those that don't are chosen only where no candidate votes.
    """
    falls, busy, voting = dict(falls_on), dict(loads), set(voters)
    chosen = [""] * len(fragments)
    for place in sorted(range(len(fragments)), key=lambda place: -fragments[place].work):
        each = fragments[place]
        fit = each.candidates
        if voters_max is not None and len(voting) >= voters_max:
            fit = tuple(name for name in fit if name in voting) or fit
        best = min(fit, key=lambda name: (falls.get((each.owner, name), 0.0), busy.get(name, 0.0)))
        falls[each.owner, best] = falls.get((each.owner, best), 0.0) + each.work
        busy[best] = busy.get(best, 0.0) + each.cost
        voting.add(best)
        chosen[place] = best
    return chosen


def recovery_work(fragment: FragmentSpec, graph: Graph, traffic: BoxTraffic) -> float:
    """What the recovery of a fragment takes: as much as it is fed, since that is what is read again."""
    return fed_bytes_per_s(fragment, graph, traffic) or UNKNOWN_WORK


def fed_bytes_per_s(fragment: FragmentSpec, graph: Graph, traffic: BoxTraffic) -> float:
    """Bytes per second that a fragment is fed; of a window that is split, as many as come to all parts."""
    own = boxes_of(fragment)
    arcs = [arc for box in graph.boxes if box.id in own for arc in box.inputs if arc.box not in own]
    sources = [Input(source) for source in fragment.entries]
    return sum(traffic.bytes_per_s.get(arc, 0.0) for arc in dict.fromkeys([*arcs, *sources]))
