"""What ``medusa status`` and ``medusa top`` say of rows that nodes leave out under overload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from medusa.units import duration_text
from medusa.wire.status_and_metrics import NodeStatus, ShedSourceStatus

__all__ = ["shedding_lines", "top_shedding_lines"]


def shedding_lines(status: NodeStatus) -> Iterator[str]:
    """Of one node: whether it leaves rows out, where, and how many have been."""
    shedding = status.shedding
    if shedding is UNSET:
        return
    work = "" if shedding.work is None else f"work {shedding.work:.2f}"
    if shedding.waits_for_others:
        yield f"TOO MUCH COMES, {work}: rows are left out unless a partner takes some of it"
    elif shedding.shedding_us is not None:
        since = duration_text(shedding.shedding_us // 1_000_000 * 1_000_000)
        told = ", ".join(_share(each) for each in shedding.sources if each.share) or "none just now"
        yield f"LEAVES ROWS OUT for {since}, {work}, {shedding.kept:.0%} of it is done: {told}"
    rows = sum(each.left_out_rows for each in shedding.sources)
    if rows:
        yield f"left out: {rows:,} rows"


def _share(each: ShedSourceStatus) -> str:
    return (
        f"{each.share:.0%} of {each.fragment}.{each.source}, {_HOW[each.how]}, for {', '.join(each.outputs)}"
    )


_HOW = {"windows": "by whole windows", "value": "the least important first", "random": "at random"}


def top_shedding_lines(statuses: Iterable[NodeStatus]) -> Iterator[str]:
    """Of each node that has something to say of it."""
    for status in statuses:
        yield from (f"{status.node}: {line}" for line in shedding_lines(status))
