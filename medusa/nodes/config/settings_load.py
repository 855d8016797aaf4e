"""The part of a node's configuration that says when it has too much to do.

[load]
half_life = "5s"         # loads are means in which what was so long ago counts half
high = 0.9               # overloaded: above it for `high_for`
high_for = "1s"
low = 0.7                # not any more: below it for `low_for`
low_for = "5s"
shed = true              # leave rows out then, where all outputs that miss them have quality of service

[load.bandwidth]
core = "125 MB"          # per second and direction, of the line to this peer
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import bytes_kind, duration, flag, read_fields, read_value, share
from medusa.query.suggest import did_you_mean

__all__ = ["LoadRules", "read_load"]

BANDWIDTH = bytes_kind("1 kB", "1000 GB", "125 MB")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRules:
    """When a node is overloaded."""

    half_life_us: int = duration("5s", "100ms", "10 min")
    """Loads are means in which what was so long ago counts half. Too small: a burst counts as load; too
    large: a change shows late."""

    high: float = share(0.9, 0.05, 1.0)
    """Overloaded above it, for `high_for`. Too small: what it could do is left undone; too large: queues grow
    before it shows."""

    low: float = share(0.7, 0.0, 1.0)
    """Below `high`; not overloaded any more below it, for `low_for`. Too near to `high`: what is done about
    overload is undone at once."""

    high_for_us: int = duration("1s", "0s", "10 min")
    """See `high`."""

    low_for_us: int = duration("5s", "0s", "10 min")
    """See `low`."""

    shed: bool = flag(True)
    """Whether rows are left out when too much comes and nobody takes it: only where every output that
    misses them has `qos`. Otherwise whoever sends waits."""

    bandwidth: Mapping[str, int] = field(default_factory=dict)
    """Peer -> bytes per second that the line to it carries, each way; of others nobody knows."""


def read_load(file: ConfigFile, peers: Collection[str]) -> LoadRules:
    """The table ``[load]``.

    Args:
        peers: names in ``[peers]``.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    table = file.table("load")
    values = read_fields(file, "load", table, LoadRules, more=("bandwidth",))
    rules = LoadRules(**values, bandwidth=_bandwidth(file, table.get("bandwidth", {}), peers))
    if rules.low >= rules.high:
        hint = f"low is below high: {rules.low:g} and {rules.high:g} are not"
        raise file.error(
            "load", "low is not below high", hint=hint, within="low" if "low" in table else "high"
        )
    return rules


def _bandwidth(file: ConfigFile, given: Any, peers: Collection[str]) -> dict[str, int]:
    if not isinstance(given, dict):
        hint = 'peers and bytes per second: bandwidth = {core = "125 MB"}'
        raise file.error("load", f"{given!r:.80} is no table", hint=hint, within="bandwidth")
    for peer in given:
        if peer not in peers:
            hint = did_you_mean(peer, peers) or "name a node of [peers]"
            raise file.error("load.bandwidth", f"{peer!r:.80} is no peer", hint=hint, within=peer)
    return {peer: read_value(file, "load.bandwidth", peer, value, BANDWIDTH) for peer, value in given.items()}
