"""The part of a node's configuration that says when it has too much to do.

[load]
half_life = "5s"         # loads are means in which what was so long ago counts half
high = 0.9               # overloaded: above it for `high_for`
high_for = "1s"
low = 0.7                # not any more: below it for `low_for`
low_for = "5s"

[load.bandwidth]
core = "125 MB"          # per second and direction, of the line to this peer
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.query.suggest import did_you_mean
from medusa.units import byte_count, duration_text, duration_us, size_text

__all__ = ["LoadRules", "read_load"]

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRules:
    """When a node is overloaded."""

    half_life_us: int = 5 * SECOND_US
    """In [100 ms, 10 min]. Too small: a burst counts as load; too large: a change shows late."""

    high: float = 0.9
    """In [0.05, 1]. Too small: what it could do is left undone; too large: queues grow before it shows."""

    low: float = 0.7
    """In [0, ``high``). Too near to ``high``: what is done about overload is undone at once."""

    high_for_us: int = SECOND_US
    """In [0, 10 min]."""

    low_for_us: int = 5 * SECOND_US
    """In [0, 10 min]."""

    bandwidth: Mapping[str, int] = field(default_factory=dict)
    """Peer -> bytes per second that the line to it carries, each way; of others nobody knows."""


_DURATIONS = {
    "half_life": (100_000, 600 * SECOND_US),
    "high_for": (0, 600 * SECOND_US),
    "low_for": (0, 600 * SECOND_US),
}
_SHARES = {"high": (0.05, 1.0), "low": (0.0, 1.0)}
_BANDWIDTH = (1_000, 1_000_000_000_000)
FIELDS = (*_SHARES, *_DURATIONS, "bandwidth")


def read_load(file: ConfigFile, peers: Collection[str]) -> LoadRules:
    """The table ``[load]``.

    Args:
        peers: names in ``[peers]``.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    table = file.table("load")
    file.known("load", table, FIELDS)
    values: dict[str, Any] = {}
    for key, (least_us, most_us) in _DURATIONS.items():
        if key in table:
            shown = f"allowed: {duration_text(least_us)} to {duration_text(most_us)}"
            values[f"{key}_us"] = _duration(file, key, table[key], least_us, most_us, shown)
    for key, (least, most) in _SHARES.items():
        if key in table:
            values[key] = _share(file, key, table[key], least, most)
    rules = LoadRules(**values, bandwidth=_bandwidth(file, table, peers))
    if rules.low >= rules.high:
        hint = f"low is below high: {rules.low:g} and {rules.high:g} are not"
        raise file.error(
            "load", "low is not below high", hint=hint, within="low" if "low" in table else "high"
        )
    return rules


def _duration(file: ConfigFile, key: str, value: Any, least_us: int, most_us: int, shown: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise file.error("load", f"{value!r} has no unit", hint=f'write {key} = "{value}s"', within=key)
    try:
        found = duration_us(value, what=key, error=ConfigError)
    except ConfigError as error:
        why = error.message.removeprefix(f"{key}: ")
        raise file.error("load", why, hint=f'write "1s"; {shown}', within=key) from None
    if not least_us <= found <= most_us:
        raise file.error("load", f"{value!r} is out of range", hint=shown, within=key)
    return found


def _share(file: ConfigFile, key: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        hint = f"a share: {least:g} to {most:g}"
        raise file.error("load", f"{value!r:.80} is no such share", hint=hint, within=key)
    return float(value)


def _bandwidth(file: ConfigFile, table: dict[str, Any], peers: Collection[str]) -> dict[str, int]:
    given = table.get("bandwidth", {})
    if not isinstance(given, dict):
        hint = 'peers and bytes per second: bandwidth = {core = "125 MB"}'
        raise file.error("load", f"{given!r:.80} is no table", hint=hint, within="bandwidth")
    found: dict[str, int] = {}
    for peer, value in given.items():
        if peer not in peers:
            hint = did_you_mean(peer, peers) or "name a node of [peers]"
            raise file.error("load.bandwidth", f"{peer!r:.80} is no peer", hint=hint, within=peer)
        shown = f"allowed: {size_text(_BANDWIDTH[0])} to {size_text(_BANDWIDTH[1])} a second"
        try:
            number = byte_count(value, what=peer, error=ConfigError)
        except ConfigError as error:
            why = error.message.removeprefix(f"{peer}: ")
            raise file.error("load.bandwidth", why, hint=f'write "125 MB"; {shown}', within=peer) from None
        if not _BANDWIDTH[0] <= number <= _BANDWIDTH[1]:
            raise file.error("load.bandwidth", f"{value!r} is out of range", hint=shown, within=peer)
        found[peer] = number
    return found
