"""What the page says of a thing that somebody points at: lines of a name and a value. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from medusa.apps.dashboard.network import (
    UP,
    Link,
    NetworkView,
    NodeView,
    StandbyView,
    StreamView,
    unstable,
)
from medusa.apps.dashboard.picture import key_of, stream_key
from medusa.apps.dashboard.words import (
    ago,
    count,
    figure,
    lag,
    per_second,
    percent,
    plain,
    secondary,
    size,
    taken_over,
    unstable_for,
)
from medusa.runtime.client.status.guarded_fragments import GuardedFragment
from medusa.units import duration_text
from medusa.wire.status_and_metrics import BoxStatus, ConsistencyStatus, FragmentStatus, titled

__all__ = ["Details", "details_of"]

Lines = list[tuple[str, str]]
Details = dict[str, tuple[str, Lines]]
"""Key in the drawing -> title, and lines."""


def details_of(network: NetworkView) -> Details:
    """Of everything in the drawing."""
    return {
        key: (plain(title), [(plain(name), plain(value)) for name, value in lines])
        for key, title, lines in _all(network)
    }


def _all(network: NetworkView) -> Iterator[tuple[str, str, Iterator[tuple[str, str]]]]:
    guarded = {(each.replicas.owner, each.fragment): each for each in network.guarded}
    for node in network.nodes:
        stands_by = [each for each in network.standbys if each.node == node.name]
        yield key_of("node", node.name), f"node {node.name}", _of_node(node, stands_by)
        for fragment in node.fragments:
            key = key_of("fragment", node.name, fragment.fragment)
            yield (
                key,
                f"fragment {fragment.fragment} at {node.name}",
                _of_fragment(fragment, guarded.get((node.name, fragment.fragment))),
            )
            for output in fragment.outputs:
                if (of := unstable(output)) is not None and node.state == UP:
                    key = key_of("output", node.name, fragment.fragment, output.stream)
                    yield key, f"stream {output.stream} at {node.name}", _of_unstable(of)
            for name, box in fragment.boxes.items():
                key = key_of("box", node.name, fragment.fragment, name)
                yield key, f"{box.kind} {name} of {fragment.fragment} at {node.name}", _of_box(box)
    for standby in network.standbys:
        title = f"standby {standby.node} for {standby.fragment} at {standby.owner}"
        for kind in ("standby", "follows"):
            yield key_of(kind, standby.node, standby.fragment), title, _of_standby(standby)
    for stream in network.streams:
        yield stream_key(stream), f"stream {stream.name}", _of_stream(stream)
    for link in network.links:
        yield key_of("link", link.a, link.b), f"link between {link.a} and {link.b}", _of_link(link)


def _of_link(link: Link) -> Iterator[tuple[str, str]]:
    yield "state", link.state
    yield f"{link.a} says of {link.b}", link.said_by_a or "it doesn't answer"
    yield f"{link.b} says of {link.a}", link.said_by_b or "it doesn't answer"


def _of_standby(standby: StandbyView) -> Iterator[tuple[str, str]]:
    yield "state", standby.state
    yield "for", "not known" if standby.since_us is None else ago(standby.since_us // 1_000_000)
    behind = standby.behind_bytes
    yield "behind", "not known" if behind is None else size(behind)
    yield "fragment", standby.fragment
    yield "has it", standby.owner
    yield "place in the order", str(standby.place)
    yield "configuration", f"{standby.number:,} of query {standby.query}"


def _of_guarded(guarded: GuardedFragment) -> Iterator[tuple[str, str]]:
    replicas = guarded.replicas
    yield "configuration", f"{guarded.number:,}, epoch {replicas.epoch:,} of the fragment"
    if taken := taken_over(replicas):
        yield "taken over", taken
    for node, each in replicas.secondaries.items():
        yield f"standby {node}", secondary(each.state, each.since_us, each.behind_bytes)
    if guarded.alone:
        since_us = replicas.alone_us
        since = "" if since_us is None else f" for {ago(since_us // 1_000_000)}"
        yield "ALONE", f"nobody could take it over{since}"


def _of_node(node: NodeView, standbys: Sequence[StandbyView]) -> Iterator[tuple[str, str]]:
    yield "state", node.state
    if node.why:
        yield "why", node.why
    if node.address:
        yield "address", node.address
    yield "owner", node.owner or "not known"
    for each in standbys:
        how = secondary(each.state, each.since_us, each.behind_bytes)
        yield f"stands by for {each.fragment}", f"{how}; {each.owner} has it"
    if node.status is None:
        return
    status = node.status
    yield "last answer", "now" if node.state == UP else f"{ago(node.age_s)} ago"
    yield "rows in", f"{status.rows_in:,}, {per_second(status.rows_in_per_s)}"
    yield "rows out", f"{status.rows_out:,}, {per_second(status.rows_out_per_s)}"
    yield "largest lag", lag(status.lag_us)
    yield "arrived, not yet through", size(status.queue_bytes)
    yield "kept for readers", size(status.kept_bytes)
    yield "late, dead, lost, shed rows", _four(status.late, status.dead, status.lost_rows, status.shed_rows)
    yield "disk", status.disk_error or "no error"
    for query, of in status.undecided.items():
        yield f"UNDECIDED: query {query}", f"{of.why}, for {ago(of.waits_us // 1_000_000)}"
    for fragment, stateless in status.without_state.items():
        yield f"{'LOST' if stateless.lost else 'WITHOUT STATE'}: {fragment}", stateless.why
    for query, coordinated in status.queries.items():
        if coordinated.scaling is not UNSET:
            yield f"scales query {query}", coordinated.scaling.text
    for fragment, held in status.backups.held.items():
        yield f"holds {fragment}", held.text
    for name, field, value in (*titled(status), *titled(status.load)):
        yield name, figure(field, value)
    for peer, state in sorted(status.peers.items()):
        refused = status.away.get(peer)
        yield f"link to {peer}", f"{state}: it {refused.refusal}" if refused and refused.refusal else state


def _of_fragment(fragment: FragmentStatus, guarded: GuardedFragment | None) -> Iterator[tuple[str, str]]:
    yield "query", fragment.query
    yield "state", fragment.state
    if guarded is not None:
        yield from _of_guarded(guarded)
    if fragment.failed:
        yield "failed", fragment.failed
    yield "rows in", f"{fragment.rows_in:,}, {per_second(fragment.rows_in_per_s)}"
    yield "rows out", f"{fragment.rows_out:,}, {per_second(fragment.rows_out_per_s)}"
    yield "lag", lag(fragment.lag_us)
    yield "arrived, not yet through", size(fragment.queue_bytes)
    yield "kept for readers", size(fragment.kept_bytes)
    yield "state of its boxes", size(fragment.state_bytes)
    yield (
        "late, dead, lost, shed rows",
        _four(fragment.late, fragment.dead, fragment.lost_rows, fragment.shed_rows),
    )
    if fragment.lost_rows and len(fragment.lost_by) > 1:
        yield "lost, by source", ", ".join(f"{source} {rows:,}" for source, rows in fragment.lost_by.items())
    every = f", every {duration_text(fragment.checkpoint_every_us)}" if fragment.checkpoint_every_us else ""
    yield "checkpoints", f"{fragment.checkpoints:,}{every}"
    if fragment.disk_error:
        yield "disk", fragment.disk_error
    for name, field, value in titled(fragment):
        yield name, figure(field, value)
    for input in fragment.inputs:
        text = f"{input.rows:,} rows, {input.state}"
        yield f"from {input.origin}: {input.stream}", f"{text}: {input.refusal}" if input.refusal else text
    for output in fragment.outputs:
        yield f"out: {output.stream}", f"{output.rows:,} rows, {size(output.kept_bytes)} kept"
        for reader in output.receivers:
            behind = max(output.rows - reader.received_row, 0)
            yield f"read by {reader.to}", f"{reader.state}, {behind:,} rows behind"
        for named in output.named:
            behind = max(output.rows - named.acknowledged_row, 0)
            reads = "read now" if named.connected else "nobody reads"
            yield f"named {named.name}", f"{reads}, {behind:,} rows not acknowledged"


def _of_box(box: BoxStatus) -> Iterator[tuple[str, str]]:
    yield "waits for", box.waits_for or "not known"
    if box.held_by:
        yield "lowest input", box.held_by
    if box.unmoved_us is not None:
        yield "boundary stands for", lag(box.unmoved_us)
    yield "load", percent(box.load)
    yield "rows in", f"{box.rows_in:,}, {per_second(box.rows_in_per_s)}"
    yield "rows out", f"{box.rows_out:,}, {per_second(box.rows_out_per_s)}"
    yield "selectivity", count(box.selectivity)
    yield "cost per row", "?" if box.cost_us is None else f"{box.cost_us:.3g} us"
    yield "lag", lag(box.lag_us)
    yield "waiting", f"{box.queue_rows:,} rows, {size(box.queue_bytes)}"
    yield "state", size(box.state_bytes)
    yield "late, dead rows", f"{box.late:,}, {box.dead:,}"
    for name, field, value in titled(box):
        yield name, figure(field, value)


def _of_stream(stream: StreamView) -> Iterator[tuple[str, str]]:
    yield "state", f"{stream.state}: {stream.why}" if stream.why else stream.state
    yield "from", f"{stream.origin} {stream.origin_fragment}"
    yield "to", f"{stream.target} {stream.target_fragment}"
    yield "rate", per_second(stream.rate)
    yield "rows under way", count(stream.behind_rows)
    if stream.unstable is not None:
        yield from _of_unstable(stream.unstable)


def _of_unstable(of: ConsistencyStatus) -> Iterator[tuple[str, str]]:
    """Of a stream with ``delay``."""
    yield "rows", unstable_for(of)
    for missing in of.missing:
        yield "missing", missing.text
    yield "tentative rows", f"{of.tentative_rows:,}"
    yield "corrections to come", f"of {of.uncorrected_rows:,} rows shown"
    yield "waiting input", f"{of.behind_rows:,} rows, {lag(of.behind_us)} behind"
    if of.why:
        yield "no fork", of.why
    if of.dropped_rows:
        yield "not sent to slow readers", f"{of.dropped_rows:,} rows"


def _four(*numbers: int) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
