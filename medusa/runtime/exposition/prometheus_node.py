"""What the status of a node says of itself, its links and its fragments, as metrics of Prometheus.

A new metric: in ``wire/status_and_metrics.py``, which says of each field what it is called and what it is.
Here stands of what it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from medusa.runtime.client.status.bounded_streams import BoundedStream, bounded_streams
from medusa.runtime.exposition.prometheus import family, number
from medusa.wire.messages.tentative import STREAM_STATES
from medusa.wire.status_and_metrics import (
    FOLLOWING,
    AgreementStatus,
    BackupsStatus,
    ConsistencyStatus,
    FragmentStatus,
    HeldBackupStatus,
    LinkStatus,
    LoadStatus,
    MarketContractStatus,
    MarketStatus,
    MissingStatus,
    NodeSheddingStatus,
    NodeStatus,
    ReplicasStatus,
    SecondaryStatus,
    StatelessStatus,
    metrics_of,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["node_families"]


def node_families(status: NodeStatus) -> Iterator[Metric]:
    """Of the node itself, its links to other nodes, its fragments, their streams with ``delay``, of queries
    of which something isn't decided, and of contracts by which it trades; what is null has no sample."""
    node, link, fragment = ["node"], ["node", "peer"], ["node", "query", "fragment"]
    yield from _families(LoadStatus, "node", node, [(status.load, [status.node])])
    yield from _families(
        NodeSheddingStatus,
        "node",
        node,
        [] if status.shedding is UNSET else [(status.shedding, [status.node])],
    )
    yield from _families(NodeStatus, "node", node, [(status, [status.node])])
    undecided = [(of, [status.node, query]) for query, of in status.undecided.items()]
    yield from _families(AgreementStatus, "query", ["node", "query"], undecided)
    stateless = [(of, [status.node, of.query, name]) for name, of in status.without_state.items()]
    yield from _families(StatelessStatus, "fragment", fragment, stateless)
    yield from _families(BackupsStatus, "node", node, [(status.backups, [status.node])])
    held = [(of, [status.node, name.partition("/")[0], name]) for name, of in status.backups.held.items()]
    yield from _families(HeldBackupStatus, "fragment", fragment, held)
    trading = [] if status.market is UNSET else [status.market]
    yield from _families(MarketStatus, "market", node, [(of, [status.node]) for of in trading])
    contracts = [(each, [status.node, each.partner, each.id]) for of in trading for each in of.contracts]
    yield from _families(MarketContractStatus, "contract", ["node", "partner", "contract"], contracts)
    yield _up(status, link)
    # Clients come and go under names that nobody could list.
    links = [(to, [status.node, peer]) for peer in status.peers if (to := status.load.links.get(peer))]
    yield from _families(LinkStatus, "link", link, links)
    fragments = [(each, [status.node, each.query, each.fragment]) for each in status.fragments]
    yield from _families(FragmentStatus, "fragment", fragment, fragments)
    yield _lost_by(fragments, [*fragment, "source"])
    # By the owner's word, which alone is whole.
    guarded = [(of.replicas, who) for of, who in fragments if of.replicas is not UNSET]
    yield _ready(guarded, fragment)
    yield from _families(ReplicasStatus, "fragment", fragment, guarded)
    secondaries = [(each, [*who, name]) for of, who in guarded for name, each in of.secondaries.items()]
    yield from _families(SecondaryStatus, "fragment", [*fragment, "secondary"], secondaries)
    streams = [(each, [each.node, each.query, each.stream]) for each in bounded_streams([status])]
    stream = ["node", "query", "stream"]
    yield _state(streams, [*stream, "state"])
    yield from _families(
        ConsistencyStatus, "stream", stream, [(each.consistency, who) for each, who in streams]
    )
    missing = [
        (input, [*who, input.stream, input.kind, input.origin])
        for each, who in streams
        for input in each.consistency.missing
    ]
    yield from _families(MissingStatus, "stream", [*stream, "input", "kind", "from"], missing)


def _families(
    kind: type[msgspec.Struct],
    prefix: str,
    labels: Sequence[str],
    parts: Sequence[tuple[msgspec.Struct, list[str]]],
) -> Iterator[Metric]:
    """One of each field that is served.

    Args:
        parts: of that kind, each with the values of its labels.
    """
    for field, of in metrics_of(kind).items():
        made = family(prefix, of, labels)
        for part, who in parts:
            if (value := number(of, getattr(part, field))) is not None:
                made.add_metric(who, value)
        yield made


def _lost_by(fragments: Sequence[tuple[FragmentStatus, list[str]]], labels: Sequence[str]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    text = "Input rows that are lost, by the source of the fragment that they came by."
    lost = CounterMetricFamily("medusa_fragment_source_lost_rows", text, labels=labels)
    for of, who in fragments:
        for source, rows in of.lost_by.items():
            lost.add_metric([*who, source], float(rows))
    return lost


def _ready(guarded: Sequence[tuple[ReplicasStatus, list[str]]], labels: Sequence[str]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    text = "Nodes that could take the fragment over now."
    count = GaugeMetricFamily("medusa_fragment_secondaries", text, labels=labels)
    for of, who in guarded:
        count.add_metric(who, float(sum(each.state == FOLLOWING for each in of.secondaries.values())))
    return count


def _state(streams: Sequence[tuple[BoundedStream, list[str]]], labels: Sequence[str]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    text = "1 for the state in which a stream with delay is, 0 for the others."
    state = GaugeMetricFamily("medusa_stream_state", text, labels=labels)
    for of, who in streams:
        for each in STREAM_STATES:
            state.add_metric([*who, each], float(of.consistency.state == each))
    return state


def _up(status: NodeStatus, labels: Sequence[str]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    up = GaugeMetricFamily("medusa_link_up", "1 while the peer is there.", labels=labels)
    for peer, state in status.peers.items():
        up.add_metric([status.node, peer], float(state == "up"))
    return up
