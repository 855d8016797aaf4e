"""The text of ``medusa status``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from medusa.cli.screens.market_rows import CONTRACTS, TASKS, contract_rows, market_lines, task_rows
from medusa.cli.screens.shedding_rows import shedding_lines
from medusa.cli.screens.terminal_text import figure, number, plain, share
from medusa.query.delay import delay_line, delay_promise
from medusa.query.delay_policies import PROCESS
from medusa.query.recovery import AMNESIA
from medusa.runtime.client.status.bounded_streams import STABLE, unstable_text
from medusa.runtime.client.status.guarded_fragments import GuardedFragment, guarded_fragments
from medusa.runtime.client.status.lost_state import LostState, lost_states
from medusa.units import duration_text, size_text
from medusa.wire.status_and_metrics import (
    BackupsStatus,
    CauseStatus,
    ConfigurationStatus,
    ConsistencyStatus,
    DoubtStatus,
    FragmentStatus,
    LinkStatus,
    NodeStatus,
    OutputStatus,
    ReplicasStatus,
    SecondaryStatus,
    SmoothedLoad,
    StatelessStatus,
    metrics_of,
    status_of,
    titled,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["lost_part_text", "lost_rows_text", "screen", "stateless_text"]

Status = Mapping[str, Any]


def screen(statuses: Sequence[Status]) -> RenderableType:
    """Of each node a line or more, then what runs, what goes over links, and who reads what.

    Raises:
        DataError: a status can't be read.
    """
    from rich.console import Group
    from rich.text import Text

    known = [status_of(said) if "rows_in" in said else None for said in statuses]
    whole = [status for status in known if status is not None]
    guarded, lost = guarded_fragments(whole), lost_states(whole)
    parts: list[RenderableType] = []
    for said, status in zip(statuses, known, strict=True):
        first, *others = _of_little(said) if status is None else _of_node(status, guarded, lost)
        parts.append(Text(plain(first), style="bold"))
        parts += [Text(plain(f"  {line}")) for line in others]
    for title, names, rows in (
        ("fragments", _FRAGMENTS, _fragments(whole)),
        ("links", _LINKS, _links(whole)),
        ("streams", _STREAMS, _streams(whole)),
        ("contracts", CONTRACTS, contract_rows(whole)),
        ("traded tasks", TASKS, task_rows(whole)),
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


def _of_node(
    status: NodeStatus,
    guarded: Sequence[GuardedFragment],
    lost: Mapping[tuple[str, str], LostState],
) -> Iterator[str]:
    load = status.load
    held = "" if load.memory_bytes is None else f", {size_text(load.memory_bytes)} of memory"
    yield (
        f"node {status.node} of {status.participant}: load {share(load.load)}{held}, "
        f"{number(status.rows_in_per_s)} rows/s in, {number(status.rows_out_per_s)} out, "
        f"{size_text(status.queue_bytes)} wait, {size_text(status.kept_bytes)} kept"
    )
    if load.overloaded:
        since = duration_text((load.overloaded_us or 0) // 1_000_000 * 1_000_000)
        yield f"OVERLOADED ({', '.join(load.overloaded)}) for {since}: {_causes(load.causes)}"
    yield from shedding_lines(status)
    silent = [_with_away(status, peer) for peer, state in status.peers.items() if state != "up"]
    if silent:
        yield f"SILENT: {', '.join(silent)}"
    gone = [of.gone_publishers for of in status.fragments if of.gone_publishers.count]
    if gone:
        last = duration_text(min(each.last_us or 0 for each in gone) // 1_000_000 * 1_000_000)
        count = sum(each.count for each in gone)
        yield f"gone publishers, whose positions are kept: {count:,}, the last for {last}"
    yield from market_lines(status)
    if status.disk_error:
        yield f"DISK: {status.disk_error}"
    yield from _doubts(status.in_doubt)
    for query, of in status.queries.items():
        if of.state != "running":
            yield f"query {query} is {of.state}"
        for fragment, node in of.stopped.items():
            yield f"STOPPED: {fragment}, by the owner of node {node}"
        for fragment, end in of.ended.items():
            yield f"ENDED: {fragment} at node {end.node}, {end.code}: {end.why}"
        if of.configuration is not UNSET:
            yield from _guarded(query, of.configuration)
            yield from (_replicas(each, status) for each in guarded if each.query == query)
        for stream, output in ({} if of.outputs is UNSET else of.outputs).items():
            yield f"{stream}, by {output.method.replace('_', ' ')}: {output.guarantee}"
        if of.scaling is not UNSET:
            yield f"query {query} is scaled by itself: {of.scaling.text}"
    for query, undecided in status.undecided.items():
        yield f"UNDECIDED: query {query}{_for(undecided.waits_us)}: {undecided.why}"
    for fragment, stateless in status.without_state.items():
        state = lost.get((status.participant, fragment), LostState())
        had = f". {state.text}" if stateless.lost and state.text else ""
        yield f"{'LOST' if stateless.lost else 'WITHOUT STATE'}: {stateless_text(fragment, stateless)}{had}"
    for each in guarded:
        told = status.queries.get(each.query)
        if each.replicas.owner == status.node and (told is None or told.configuration is UNSET):
            yield f"{_replicas(each, status)}; configuration {each.number} of query {each.query}"
    for part in status.fragments:
        if part.method_reason:
            yield f"{part.fragment} by {part.method.replace('_', ' ')}: {part.method_reason}"
        for leaving in part.outputs:
            if delay_us := leaving.delay_us:
                policies = leaving.delay_failure or PROCESS, leaving.delay_stabilization or PROCESS
                promise = delay_promise(delay_us, part.delay_us or delay_us, *policies)
                yield f"{leaving.stream}, {delay_line(delay_us, *policies)}: {promise}"
            if leaving.consistency is not UNSET and leaving.consistency.state != STABLE:
                yield _unstable(leaving.stream, leaving.consistency)
    for fragment, going in status.moves.going.items():
        waits = f"; {going.waits_for}" if going.waits_for else ""
        sent = size_text(going.bytes)
        yield f"{fragment} is being moved to {going.to}: {going.state}, {sent} sent{waits}"
    for fragment, coming in status.moves.coming.items():
        yield f"{fragment} is coming from {coming.origin}: {coming.state}"
    yield from _backups(status.backups)
    counts = (
        ("late", status.late),
        ("dead", status.dead),
        ("lost", status.lost_rows),
        ("shed", status.shed_rows),
    )
    if any(count for _, count in counts):
        yield ", ".join(f"{count:,} {name} rows" for name, count in counts if count)
    for part in status.fragments:
        if part.lost_unknown:
            known = lost_rows_text(part)
            yield f"LOST: {part.fragment}: rows, and nobody can say how many: {known}{_uncounted(part)}"
        elif part.uncounted and part.method == AMNESIA:
            yield f"{part.fragment}: were it lost, nobody could say how many rows{_uncounted(part)}"
    for title, field, value in (*titled(status), *titled(load)):
        if value:
            yield f"{title}: {figure(field, value)}"
    if status.refused:
        yield "refused: " + ", ".join(f"{code} {count:,}" for code, count in status.refused.items())


def _backups(backups: BackupsStatus) -> Iterator[str]:
    """States of others' fragments that are held."""
    for fragment, of in backups.held.items():
        yield f"holds {fragment} {of.text}"
    if backups.held:
        yield f"holds {size_text(backups.bytes)} of {size_text(backups.limit_bytes)} for others"


def _unstable(stream: str, of: ConsistencyStatus) -> str:
    return f"{of.state.upper()}: {stream}{_for(of.for_us)}: {unstable_text(of)}"


def _guarded(query: str, decided: ConfigurationStatus) -> Iterator[str]:
    """Who decides who has what of a query."""
    yield (
        f"query {query}: configuration {decided.number}, coordinated by {decided.coordinator}, voters "
        f"{', '.join(decided.voters)}"
    )


def _replicas(guarded: GuardedFragment, status: NodeStatus) -> str:
    """Who has a fragment, and who stands by."""
    of = guarded.replicas
    whose = status.abroad.get(of.owner, "")
    at = f"{of.owner} of {whose}, by contract" if whose else of.owner
    standby = ", ".join(_secondary(node, each) for node, each in of.secondaries.items()) or "nobody"
    alone = f"; ALONE{_for(of.alone_us)}" if of.alone_us is not None else ""
    taken = f"; taken over{_taken_over(of)}" if of.taken_over_us is not None else ""
    return f"{guarded.fragment} at {at}, epoch {of.epoch}{taken}; standby: {standby}{alone}"


def _taken_over(of: ReplicasStatus) -> str:
    whose = f" from {of.taken_over_from}" if of.taken_over_from else ""
    return f"{whose} {duration_text((of.taken_over_us or 0) // 1_000_000 * 1_000_000)} ago"


def _secondary(node: str, of: SecondaryStatus) -> str:
    behind = f", {size_text(of.behind_bytes)} behind" if of.behind_bytes else ""
    return f"{node} {of.state}{_for(of.since_us)}{behind}"


def _for(since_us: int | None) -> str:
    return "" if since_us is None else f" for {duration_text(since_us // 1_000_000 * 1_000_000)}"


def _with_away(status: NodeStatus, peer: str) -> str:
    """The name of a node, and in brackets since when it isn't there, where it isn't."""
    why = status.why_away(peer)
    return f"{peer} ({why})" if why else peer


def _doubts(doubt: DoubtStatus) -> Iterator[str]:
    for part in doubt.lost_parts or {}:
        yield f"LOST WITH THE DISK: {lost_part_text(doubt, part)}"
    if doubt.see is UNSET:
        return
    if doubt.lost_catalog:
        yield f"LOST: catalog {doubt.lost_catalog}; names that are unknown here wait"
    for fragment, of in (doubt.fragments or {}).items():
        yield f"IN DOUBT: {fragment}: {of.why}"
    for groups, why in (doubt.kept_groups or {}).items():
        yield f"KEPT: {groups}-*: {why}"
    yield f"what to do: {doubt.see}"


def stateless_text(fragment: str, of: StatelessStatus) -> str:
    """A fragment whose owner has nothing of it, and what to do."""
    had = f" ({', '.join(of.streams)})" if of.streams else ""
    return f"{fragment}{had}, epoch {of.epoch}: {of.why}"


def lost_part_text(doubt: DoubtStatus, part: str) -> str:
    """What a rebuilt node says of a part of a query that nobody stood by for, and what to do."""
    streams = (doubt.lost_parts or {}).get(part, ())
    had = f" ({', '.join(streams)})" if streams else ""
    query = part.partition("/")[0]
    return f"{part}{had}: nobody stood by for it. Undeploy query {query}, and deploy it again"


def _causes(causes: Iterable[CauseStatus]) -> str:
    told = [
        f"{each.fragment} {each.box} {share(each.busy_share)}"
        if each.box
        else f"{size_text(each.queue_bytes)} of {each.stream} wait"
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
    "checkpoint",
    "lost",
    *(metric.title for metric in metrics_of(FragmentStatus).values() if metric.title),
    "why",
)
_LINKS = ("link", "peer", "state", *(each.title for each in metrics_of(LinkStatus).values() if each.title))
_STREAMS = ("stream", "at", "reader", "state", "rows", "behind", "kept")


def _fragments(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        for each in status.fragments:
            yield (
                each.fragment,
                status.node,
                each.state,
                *_load(each.load),
                size_text(each.queue_bytes),
                size_text(each.kept_bytes),
                "ended" if each.finished else duration_text(each.lag_us // 1000 * 1000),
                duration_text(each.checkpoint_every_us) if each.checkpoint_every_us else "-",
                lost_rows_text(each),
                *(figure(field, value) for _, field, value in titled(each)),
                each.failed or each.disk_error,
            )


def lost_rows_text(fragment: FragmentStatus) -> str:
    """How many rows are lost, and of several sources of which each; of what nobody can count it says so."""
    total, by = number(fragment.lost_rows), fragment.lost_by
    if fragment.lost_unknown:
        total = f"at least {total}" if fragment.lost_rows else "unknown"
    if not fragment.lost_rows or len(by) < 2:
        return total
    return f"{total} ({', '.join(f'{source} {number(rows)}' for source, rows in by.items())})"


def _uncounted(fragment: FragmentStatus) -> str:
    """The boxes that hold rows which nobody can count."""
    return f"; can't be counted: {', '.join(fragment.uncounted)}" if fragment.uncounted else ""


def _load(load: SmoothedLoad | None) -> tuple[str, str, str, str]:
    """Load, rows in, rows out, and the cost of a row."""
    if load is None:
        return "-", "-", "-", "-"
    cost_us = "-" if load.cost_us is None else f"{load.cost_us:.3g}"
    return share(load.busy_share), number(load.rows_in_per_s), number(load.rows_out_per_s), cost_us


def _links(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        for peer in dict.fromkeys([*status.peers, *status.load.links]):
            link = status.load.links.get(peer) or LinkStatus()
            yield (
                status.node,
                peer,
                status.link_state(peer),
                *(figure(field, value) for _, field, value in titled(link)),
            )


def _streams(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, ...]]:
    for status in statuses:
        for fragment in status.fragments:
            for output in fragment.outputs:
                queries = sum(each.of == output.sink != each.sink for each in fragment.outputs)
                yield from _readers(status.node, output, queries)


def _readers(node: str, output: OutputStatus, queries: int) -> Iterator[tuple[str, ...]]:
    rows, kept = output.rows, size_text(output.kept_bytes)
    readers: list[tuple[str, str, int | None]] = [
        (each.to, each.state, each.received_row) for each in output.receivers
    ]
    for each in output.named:
        state = "read" if each.connected else "kept"
        readers.append((f"{each.name} {each.to}".strip(), state, each.acknowledged_row))
    nobody = "nobody reads" if not queries else "a query reads" if queries == 1 else f"{queries} queries read"
    for reader, state, row in readers or [("", nobody, None)]:
        behind = "-" if row is None else number(max(rows - row, 0))
        yield output.stream, node, reader, state, number(rows), behind, kept
