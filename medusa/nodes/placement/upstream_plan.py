"""Whether the fragments of a plan can be recovered by upstream backup that are to be. Pure."""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.upstream_backup.reach import has_both, refusal_of

__all__ = ["check_upstream"]


def check_upstream(plan: PlacementPlan) -> None:
    """Whether upstream backup can be what it is wished for.

    Raises:
        QueryError: names the fragment, the box, and what to do.
    """
    read_again = [each for each in plan.fragments if each.reads_again]
    streams = {stream for each in read_again for stream in each.streams.values()}
    for each in read_again:
        if (found := refusal_of(each.graph)) is not None:
            raise _refused(each, " ".join(found))
        feeds = [feed.stream for feed in each.feeds if feed.stream in streams]
        if feeds and has_both(each.graph):
            why = f"rows of stream {feeds[0]!r} may come again, and they go through windows to some outputs, "
            raise _refused(each, f"{why}and to others not: put those boxes at different nodes")


def _refused(fragment: FragmentSpec, why: str) -> QueryError:
    return QueryError(
        f"fragment {fragment.name!r} at {fragment.node!r} can't be recovered by upstream backup: {why}",
        hint='method="passive_standby" for the outputs that it feeds: then its state is kept, whatever it is',
        code="E_STANDBY",
    )
