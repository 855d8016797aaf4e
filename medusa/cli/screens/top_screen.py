"""The table of ``medusa top``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from medusa.cli.screens.terminal_text import TENTATIVE, number, plain
from medusa.cli.screens.top_read import Box, StreamRow
from medusa.runtime.client.status.bounded_streams import STABLE, unstable_text
from medusa.units import duration_text, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

__all__ = ["SORTS", "ordered", "screen"]

BAR = 8

SORTS: dict[str, Callable[[Box], float | None]] = {
    "load": lambda box: box.load,
    "in": lambda box: box.rows_in_per_s,
    "out": lambda box: box.rows_out_per_s,
    "cost": lambda box: box.cost_us,
    "queue": lambda box: box.queue_rows,
    "lag": lambda box: box.lag_us,
    "late": lambda box: box.late,
    "dead": lambda box: box.dead,
    "state": lambda box: box.state_bytes,
}


def ordered(boxes: Iterable[Box], by: str) -> list[Box]:
    """Largest first; what isn't known last; else as they stand in the query."""
    key = SORTS[by]

    def rank(box: Box) -> float:
        value = key(box)
        return 1.0 if value is None else -value

    return sorted(boxes, key=rank)


def screen(
    boxes: Sequence[Box],
    streams: Sequence[StreamRow] = (),
    market: Sequence[str] = (),
    shedding: Sequence[str] = (),
    *,
    address: str,
    by: str,
    trouble: str = "",
    keys: bool = False,
) -> RenderableType:
    """A line of sums, one for each stream that isn't stable, those of what is left out and of load that is
    traded, the table, largest first, and what is wrong.

    Args:
        trouble: why these numbers are old.
        keys: say which keys do what.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    several = len({(box.query, box.attached) for box in boxes}) > 1
    nodes = len({box.node for box in boxes}) > 1
    sheds = any(box.shed for box in boxes)
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("box", overflow="ellipsis", no_wrap=True, min_width=8)
    table.add_column("kind", overflow="ellipsis", no_wrap=True)
    table.add_column("load", no_wrap=True)
    for name in ("in/s", "out/s", "out/in", "us/row", "queue", "lag", "late", "dead"):
        table.add_column(name, justify="right", no_wrap=True)
    if sheds:
        table.add_column("shed", justify="right", no_wrap=True)
    for box in ordered(boxes, by):
        at = f"@{box.attached}" if box.attached else ""
        name = f"{box.query}{at}.{box.box}" if several else box.box
        name = f"{box.node}: {name}" if nodes else name
        cells = [
            Text(plain(name)),
            Text(plain(box.kind), style="dim"),
            _bar(box.load),
            Text(number(box.rows_in_per_s)),
            Text(number(box.rows_out_per_s)),
            Text("-" if box.selectivity is None else f"{box.selectivity:.3g}"),
            Text("-" if box.cost_us is None else f"{box.cost_us:.3g}"),
            _queue(box),
            Text(_lag(box)),
            _count(box.late),
            _count(box.dead),
        ]
        if sheds:
            cells.append(_count(box.shed or 0))
        table.add_row(*cells)
    parts: list[RenderableType] = [Text(_sums(boxes, address), style="bold")]
    parts += [Text(_unstable(each, nodes), style=TENTATIVE) for each in streams if each.state != STABLE]
    parts += [Text(plain(line)) for line in (*shedding, *market)]
    parts += [Text(), table]
    if trouble:
        parts += [Text(), Text(plain(trouble), style="bold")]
    if keys:
        parts += [Text(), Text(f"sorted by {by}; s sorts by the next column, q ends", style="dim")]
    return Group(*parts)


def _unstable(stream: StreamRow, nodes: bool) -> str:
    at = f"{stream.node}: " if nodes else ""
    since = "" if stream.for_us is None else f" for {duration_text(stream.for_us // 1_000_000 * 1_000_000)}"
    return plain(f"{at}{stream.stream} {stream.state.upper()}{since}: {unstable_text(stream)}")


def _sums(boxes: Sequence[Box], address: str) -> str:
    queries = list(dict.fromkeys(box.query for box in boxes))
    what = ", ".join(queries[:3]) + (f" and {len(queries) - 3} more" if len(queries) > 3 else "")
    rates = [box.rows_in_per_s for box in boxes if box.kind == "source" and not box.attached]
    came = [rate for rate in rates if rate is not None]
    rate = f"{number(sum(came))} rows/s in, " if came else ""
    waits = size_text(sum(box.queue_bytes for box in boxes))
    held = size_text(sum(box.state_bytes for box in boxes))
    text = f"{what or 'no query'} at {address}: {len(boxes)} boxes, {rate}{waits} wait, {held} of state"
    return plain(text)


def _bar(load: float | None) -> Text:
    from rich.text import Text

    if load is None:
        return Text("-")
    full = round(min(max(load, 0.0), 1.0) * BAR)
    return Text.assemble(
        (f"{load:4.0%} ", "bold" if load >= 0.5 else ""), "#" * full, ("." * (BAR - full), "dim")
    )


def _queue(box: Box) -> Text:
    from rich.text import Text

    return Text(f"{number(box.queue_rows)} ({size_text(box.queue_bytes)})" if box.queue_rows else "0")


def _count(count: int) -> Text:
    from rich.text import Text

    return Text(number(count), style="bold" if count else "dim")


def _lag(box: Box) -> str:
    if box.finished:
        return "ended"
    if box.lag_us is None:
        return "-"
    steps = ((1_000_000, 1_000), (60_000_000, 100_000), (3_600_000_000, 1_000_000))
    step = next((step for below, step in steps if box.lag_us < below), 60_000_000)
    return duration_text(box.lag_us // step * step)
