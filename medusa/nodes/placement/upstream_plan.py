"""Whether the fragments of a plan can be recovered by upstream backup that are to be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from medusa.errors import QueryError
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.upstream_backup.decisions import decision_in
from medusa.nodes.upstream_backup.reach import has_both, refusal_of
from medusa.query.boxes import Box, Distinct, SUnion

__all__ = ["check_repeats", "check_upstream", "repeat_warnings"]


def check_upstream(plan: PlacementPlan) -> None:
    """Whether upstream backup can be what it is wished for.

    Raises:
        QueryError: names the fragment, the box, and what to do.
    """
    read_again = [each for each in plan.fragments if each.reads_again]
    streams = {stream for each in read_again if not each.repeats for stream in each.streams.values()}
    for each in read_again:
        if (found := refusal_of(each.graph)) is not None:
            raise _refused(each, " ".join(found))
        feeds = [feed.stream for feed in each.feeds if feed.stream in streams]
        if feeds and has_both(each.graph):
            why = f"rows of stream {feeds[0]!r} may come again, and they go through windows to some outputs, "
            raise _refused(each, f"{why}and to others not: put those boxes at different nodes")


def check_repeats(sink: str, way: Sequence[FragmentSpec]) -> None:
    """Whether anything is recovered by upstream backup of an output that is to be so, and precise.

    Args:
        way: the fragments by which its rows come.

    Raises:
        QueryError: each of them goes on by another method; names the box, and what to do.
    """
    reasons = [(each, decision_in(each.graph)) for each in way]
    if any(why is None for _, why in reasons):
        return
    last, why = reasons[-1]
    raise QueryError(
        f"sink {sink!r} can't be precise by upstream backup: in fragment {last.name!r} at {last.node!r} "
        f"{' '.join(why or ())}",
        hint='method="passive_standby", or put the boxes behind that one at another node',
        code="E_STANDBY",
    )


def repeat_warnings(plan: PlacementPlan) -> Iterator[str]:
    """Of boxes behind a fragment that may repeat rows, for which those count again: once per fragment."""
    streams: dict[tuple[str, str], list[FragmentSpec]] = {}
    for each in plan.fragments:
        for feed in each.feeds:
            streams.setdefault((feed.node, feed.stream), []).append(each)
    for each in plan.fragments:
        if not each.reads_again or each.repeats:
            continue
        behind: dict[tuple[str, str], FragmentSpec] = {}
        stack = [each]
        while stack:
            at = stack.pop()
            for stream in at.streams.values():
                for reader in streams.get((at.node, stream), ()):
                    if (reader.node, reader.name) not in behind:
                        behind[reader.node, reader.name] = reader
                        stack.append(reader)
        if boxes := [box.id for of in behind.values() for box in of.graph.boxes if _counts_again(box)]:
            yield (
                f"rows of fragment {each.name!r} may come again when {each.node!r} is lost, and count again "
                f"in {' and '.join(map(repr, boxes))}: put those at the same node, or ask for "
                'recovery="precise"'
            )


def _counts_again(box: Box) -> bool:
    """Whether what it puts out isn't the same if a row comes twice."""
    return box.keeps_state and not isinstance(box, Distinct | SUnion)


def _refused(fragment: FragmentSpec, why: str) -> QueryError:
    return QueryError(
        f"fragment {fragment.name!r} at {fragment.node!r} can't be recovered by upstream backup: {why}",
        hint='method="passive_standby" for the outputs that it feeds: then its state is kept, whatever it is',
        code="E_STANDBY",
    )
