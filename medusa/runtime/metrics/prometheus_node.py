"""What the status of a node says of its load, its links and who stands by, as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import UNSET

from medusa.wire.status import NodeStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["LINKS", "NODE", "STANDBY", "node_families"]

FOLLOWING = "following"

# Field of ``LoadStatus``: (metric, what it is, factor).
NODE: dict[str, tuple[str, str, float]] = {
    "load": ("load_ratio", "How much the node has to do, smoothed: 1 is all that can be done.", 1),
    "busy_share": ("busy_ratio", "Share of time that its boxes were busy, smoothed.", 1),
    "engine_share": ("engine_cpu_ratio", "CPU time of the engine's thread per second, smoothed.", 1),
    "cpu_share": ("cpu_ratio", "CPU time of the process per second and core, smoothed.", 1),
    "memory_bytes": ("memory_bytes", "Memory of the process, resident.", 1),
    "overloaded": ("overloaded", "1 while something is too much for the node.", 1),
}
# Field of ``LinkStatus``: the same.
LINKS: dict[str, tuple[str, str, float]] = {
    "bytes_out_per_s": ("sent_bytes_per_second", "Bytes of streams to the peer per second, smoothed.", 1),
    "bytes_in_per_s": (
        "received_bytes_per_second",
        "Bytes of streams from it per second, smoothed.",
        1,
    ),
    "share": ("bandwidth_ratio", "Share of the configured bandwidth, in the busier direction.", 1),
    "waiting_bytes": ("waiting_bytes", "Bytes for the peer that were not sent yet.", 1),
    "lag_rows": ("lag_rows", "Rows that the peer has not received yet.", 1),
    "queue_bytes": ("queue_bytes", "Bytes from the peer that are not through the engine.", 1),
    "lag_us": ("lag_seconds", "How far what the peer promised is behind another input.", 1e-6),
}
# Of a guarded fragment, at its owner: metric -> what it is.
STANDBY = {
    "secondaries": "Nodes that could take the fragment over now.",
    "alone_seconds": "For how long nobody could have taken the fragment over; 0: somebody can.",
    "behind_bytes": "What the owner has fed and the secondary hasn't.",
}


def node_families(status: NodeStatus) -> Iterator[Metric]:
    """Of the node itself, its links to other nodes and its guarded fragments; what is null has no sample."""
    from prometheus_client.core import GaugeMetricFamily

    load = status.load
    for field, (name, text, factor) in NODE.items():
        metric = GaugeMetricFamily(f"medusa_node_{name}", text, labels=["node"])
        value = getattr(load, field)
        if value is not None:
            metric.add_metric([status.node], float(bool(value) if field == "overloaded" else value) * factor)
        yield metric
    yield _up(status)
    for field, (name, text, factor) in LINKS.items():
        metric = GaugeMetricFamily(f"medusa_link_{name}", text, labels=["node", "peer"])
        for peer in status.peers:  # Clients come and go under names that nobody could list.
            value = getattr(load.links.get(peer), field, None)
            if value is not None:
                metric.add_metric([status.node, peer], float(value) * factor)
        yield metric
    yield from _standby(status)


def _standby(status: NodeStatus) -> Iterator[Metric]:
    """By the owner's word, which alone is whole."""
    from prometheus_client.core import GaugeMetricFamily

    labels = ["node", "query", "fragment"]
    count, alone, behind = (
        GaugeMetricFamily(f"medusa_fragment_{name}", text, labels=[*labels, *more])
        for (name, text), more in zip(STANDBY.items(), ([], [], ["secondary"]), strict=True)
    )
    for fragment in status.fragments:
        if fragment.replicas is UNSET:
            continue
        who = [status.node, fragment.query, fragment.fragment]
        secondaries = fragment.replicas.secondaries
        count.add_metric(who, float(sum(each.state == FOLLOWING for each in secondaries.values())))
        alone.add_metric(who, (fragment.replicas.alone_us or 0) * 1e-6)
        for node, each in secondaries.items():
            if each.behind_bytes is not None:
                behind.add_metric([*who, node], float(each.behind_bytes))
    yield from (count, alone, behind)


def _up(status: NodeStatus) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    up = GaugeMetricFamily("medusa_link_up", "1 while the peer is there.", labels=["node", "peer"])
    for peer, state in status.peers.items():
        up.add_metric([status.node, peer], float(state == "up"))
    return up
