"""What ``status`` says of loads: docs/brain.md describes each field."""

from __future__ import annotations

from medusa.nodes.load.loads import NodeLoads
from medusa.wire.messages.load import WHOLE, FragmentLoad, Load
from medusa.wire.status_and_metrics import LoadStatus, PeerFragmentStatus, PeerStatus

__all__ = ["node_load"]


def node_load(loads: NodeLoads, now_us: int) -> LoadStatus:
    """``status()["load"]``."""
    usage = loads.usage
    return LoadStatus(
        load=loads.load,
        busy_share=loads.busy_share,
        engine_share=loads.engine_share,
        cpu_share=loads.cpu_share,
        cores=None if usage is None else usage.cores,
        memory_bytes=None if usage is None else usage.memory_bytes,
        engine_held=None if usage is None else usage.held,
        overloaded=tuple(loads.overloaded),
        overloaded_us=loads.overloaded_us(now_us),
        causes=tuple(loads.causes()),
        links=loads.link_status(),
        peers={peer: _said(now_us - at_us, load) for peer, (at_us, load) in loads.peers.items()},
    )


def _said(age_us: int, load: Load) -> PeerStatus:
    return PeerStatus(
        age_us=age_us,
        load=load.load / WHOLE,
        overloaded=load.overloaded,
        cpu_share=load.cpu_share / WHOLE,
        cores=load.cores,
        memory_bytes=load.memory_bytes,
        fragments={each.fragment: _fragment(each) for each in load.fragments},
    )


def _fragment(load: FragmentLoad) -> PeerFragmentStatus:
    return PeerFragmentStatus(
        busy_share=load.busy_share / WHOLE,
        rows_in_per_s=load.rows_in_per_s,
        rows_out_per_s=load.rows_out_per_s,
        bytes_out_per_s=load.bytes_out_per_s,
        queue_bytes=load.queue_bytes,
    )
