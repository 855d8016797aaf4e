"""The text of ``medusa status``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.cli.screens.terminal_text import number, plain, share
from medusa.runtime.node.link_states import link_state, with_away
from medusa.units import duration_text, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["screen"]

Status = Mapping[str, Any]


def screen(statuses: Sequence[Status]) -> RenderableType:
    """Of each node a line or more, then what runs, what goes over links, and who reads what."""
    from rich.console import Group
    from rich.text import Text

    whole = [status for status in statuses if "rows_in" in status]
    parts: list[RenderableType] = []
    for status in statuses:
        first, *others = _of_node(status) if "rows_in" in status else _of_little(status)
        parts.append(Text(plain(first), style="bold"))
        parts += [Text(plain(f"  {line}")) for line in others]
    for title, names, rows in (
        ("fragments", _FRAGMENTS, _fragments(whole)),
        ("links", _LINKS, _links(whole)),
        ("streams", _STREAMS, _streams(whole)),
    ):
        lines = list(rows)
        if lines:
            parts += [Text(), _table(title, names, lines)]
    return Group(*parts)


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for place, name in enumerate((title, *names[1:])):
        is_text = name in _TEXTS or not place
        table.add_column(name, justify="left" if is_text else "right", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


_TEXTS = ("at", "state", "reader", "peer", "why")


# --- nodes ----------------------------------------------------------------------------------------


def _of_little(status: Status) -> Iterator[str]:
    """A client that may use some streams sees those."""
    yield f"node {status['node']}: this client sees what it may use"
    yield f"publishes into: {', '.join(status['sources']) or 'nothing'}"
    yield f"reads: {', '.join(status['streams']) or 'nothing'}"


def _of_node(status: Status) -> Iterator[str]:
    load = status["load"]
    memory = load["memory_bytes"]
    held = "" if memory is None else f", {size_text(memory)} of memory"
    yield (
        f"node {status['node']} of {status['participant']}: load {share(load['load'])}{held}, "
        f"{number(status['rows_in_per_s'])} rows/s in, {number(status['rows_out_per_s'])} out, "
        f"{size_text(status['queue_bytes'])} wait, {size_text(status['kept_bytes'])} kept"
    )
    if load["overloaded"]:
        since = duration_text((load["overloaded_us"] or 0) // 1_000_000 * 1_000_000)
        yield f"OVERLOADED ({', '.join(load['overloaded'])}) for {since}: {_causes(load['causes'])}"
    silent = [with_away(status, peer) for peer, state in status["peers"].items() if state != "up"]
    if silent:
        yield f"SILENT: {', '.join(silent)}"
    gone = [of["gone_publishers"] for of in status["fragments"] if of.get("gone_publishers", {}).get("count")]
    if gone:
        last = duration_text(min(each["last_us"] for each in gone) // 1_000_000 * 1_000_000)
        count = sum(each["count"] for each in gone)
        yield f"gone publishers, whose positions are kept: {count:,}, the last for {last}"
    if status["disk_error"]:
        yield f"DISK: {status['disk_error']}"
    yield from _doubts(status["in_doubt"])
    for query, of in status["queries"].items():
        if of["state"] != "running":
            yield f"query {query} is {of['state']}"
        for fragment, node in of.get("stopped", {}).items():
            yield f"STOPPED: {fragment}, by the owner of node {node}"
        for fragment, end in of.get("ended", {}).items():
            yield f"ENDED: {fragment} at node {end['node']}, {end['code']}: {end['why']}"
    for fragment, of in status["moves"]["going"].items():
        waits = f"; {of['waits_for']}" if of.get("waits_for") else ""
        yield f"{fragment} is being moved to {of['to']}: {of['state']}, {size_text(of['bytes'])} sent{waits}"
    for fragment, of in status["moves"]["coming"].items():
        yield f"{fragment} is coming from {of['from']}: {of['state']}"
    counts = {name: status[name] for name in ("late", "dead", "lost_rows", "shed_rows") if status[name]}
    if counts:
        yield ", ".join(f"{count:,} {name.removesuffix('_rows')} rows" for name, count in counts.items())
    if status["refused"]:
        yield "refused: " + ", ".join(f"{code} {count:,}" for code, count in status["refused"].items())


def _doubts(doubt: Status) -> Iterator[str]:
    if not doubt:
        return
    if doubt["lost_catalog"]:
        yield f"LOST: catalog {doubt['lost_catalog']}; names that are unknown here wait"
    for fragment, of in doubt["fragments"].items():
        yield f"IN DOUBT: {fragment}: {of['why']}"
    for groups, why in doubt["kept_groups"].items():
        yield f"KEPT: {groups}-*: {why}"
    yield f"what to do: {doubt['see']}"


def _causes(causes: Iterable[Status]) -> str:
    told = [
        f"{each['fragment']} {each['box']} {share(each['busy_share'])}"
        if "box" in each
        else f"{size_text(each['queue_bytes'])} of {each['stream']} wait"
        for each in causes
    ]
    return ", ".join(told) or "nobody knows by what"


# --- what runs, and what goes between -----------------------------------------------------------------

_FRAGMENTS = (
    "fragment",
    "at",
    "state",
    "load",
    "in/s",
    "out/s",
    "us/row",
    "queue",
    "kept",
    "lag",
    "lost",
    "why",
)
_LINKS = ("link", "peer", "state", "out/s", "in/s", "share", "waiting", "behind", "queue", "lag")
_STREAMS = ("stream", "at", "reader", "state", "rows", "behind", "kept")


def _fragments(statuses: Iterable[Status]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        for each in status["fragments"]:
            load = each["load"] or {}
            cost_us = load.get("cost_us")
            yield (
                each["fragment"],
                status["node"],
                each["state"],
                share(load.get("busy_share")),
                number(load.get("rows_in_per_s")),
                number(load.get("rows_out_per_s")),
                "-" if cost_us is None else f"{cost_us:.3g}",
                size_text(each["queue_bytes"]),
                size_text(each["kept_bytes"]),
                "ended" if each["finished"] else duration_text(each["lag_us"] // 1000 * 1000),
                number(each["lost_rows"]),
                each["failed"] or each["disk_error"],
            )


def _links(statuses: Iterable[Status]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        links = status["load"]["links"]
        for peer in dict.fromkeys([*status["peers"], *links]):
            link = links.get(peer, {})
            yield (
                status["node"],
                peer,
                link_state(status, peer),
                _rate(link.get("bytes_out_per_s")),
                _rate(link.get("bytes_in_per_s")),
                share(link.get("share")),
                size_text(link.get("waiting_bytes", 0)),
                number(link.get("lag_rows", 0)),
                size_text(link.get("queue_bytes", 0)),
                duration_text(link.get("lag_us", 0) // 1000 * 1000),
            )


def _streams(statuses: Iterable[Status]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        for fragment in status["fragments"]:
            for output in fragment["outputs"]:
                sink = output["sink"]
                queries = sum(each.get("of") == sink != each["sink"] for each in fragment["outputs"])
                yield from _readers(status["node"], output, queries)


def _readers(node: str, output: Status, queries: int) -> Iterator[tuple[str, ...]]:
    rows, kept = output["rows"], size_text(output["kept_bytes"])
    readers = [(each["to"], each["state"], each["received_row"]) for each in output["receivers"]]
    for each in output["named"]:
        state = "read" if each["connected"] else "kept"
        readers.append((f"{each['name']} {each['to']}".strip(), state, each["acknowledged_row"]))
    nobody = "nobody reads" if not queries else "a query reads" if queries == 1 else f"{queries} queries read"
    for reader, state, row in readers or [("", nobody, None)]:
        behind = "-" if row is None else number(max(rows - row, 0))
        yield output["stream"], node, reader, state, number(rows), behind, kept


def _rate(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else size_text(round(bytes_per_s))
