"""What ``status`` says of loads: docs/nodes.md describes each field."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from medusa.nodes.load.loads import Loads
from medusa.wire.messages.load import WHOLE, FragmentLoad, Load

__all__ = ["boxes_loads", "fragment_load", "node_load"]


def node_load(loads: Loads, now_us: int) -> dict[str, Any]:
    """``status()["load"]``."""
    usage = loads.usage
    return {
        "load": loads.load,
        "busy_share": loads.busy_share,
        "engine_share": loads.engine_share,
        "cpu_share": loads.cpu_share,
        "cores": None if usage is None else usage.cores,
        "memory_bytes": None if usage is None else usage.memory_bytes,
        "engine_held": None if usage is None or usage.held is None else asdict(usage.held),
        "overloaded": loads.overloaded,
        "overloaded_us": loads.overloaded_us(now_us),
        "causes": list(loads.causes()),
        "links": loads.link_status(),
        "peers": {peer: _said(now_us - at_us, load) for peer, (at_us, load) in loads.peers.items()},
    }


def fragment_load(loads: Loads, fragment: str) -> dict[str, Any] | None:
    """Of one fragment; None: nothing is known yet."""
    found = loads.fragment(fragment)
    return None if found is None else asdict(found)


def boxes_loads(loads: Loads, fragment: str) -> dict[str, dict[str, Any]]:
    """Of each of its boxes."""
    return {id: asdict(load) for id, load in loads.boxes(fragment).items()}


def _said(age_us: int, load: Load) -> dict[str, Any]:
    return {
        "age_us": age_us,
        "load": load.load / WHOLE,
        "overloaded": load.overloaded,
        "cpu_share": load.cpu_share / WHOLE,
        "cores": load.cores,
        "memory_bytes": load.memory_bytes,
        "fragments": {each.fragment: _fragment(each) for each in load.fragments},
    }


def _fragment(load: FragmentLoad) -> dict[str, Any]:
    return {
        "busy_share": load.busy_share / WHOLE,
        "rows_in_per_s": load.rows_in_per_s,
        "rows_out_per_s": load.rows_out_per_s,
        "bytes_out_per_s": load.bytes_out_per_s,
        "queue_bytes": load.queue_bytes,
    }
