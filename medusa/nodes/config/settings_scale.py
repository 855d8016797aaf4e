"""The part of a node's configuration by which it splits and merges boxes by itself; without it it doesn't.

[scale]
every = "5s"             # so often it looks at the queries that it coordinates
high = 0.7               # more of a thread in each part of a box is too much
low = 0.3                # less is too little
looks = 2                # so many in a row have to say the same
parts_max = 16           # a box never has more
cooldown = "15s"         # a box that was changed is left alone for so long
nodes = ["b", "c"]       # where parts may go; left out: this node and its peers
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import duration, names, number, read_fields, share
from medusa.query.suggest import did_you_mean

__all__ = ["ScaleSettings", "read_scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSettings:
    """When boxes of the queries that a node coordinates are split and merged, and where parts may be."""

    every_us: int = duration("5s", "100ms", "10 min")
    """So often it looks. Too small: nodes tell their status for nothing; too large: a burst is over before
    anything is done about it."""

    high: float = share(0.7, 0.05, 1.0)
    """More of a thread than this in each part of a box is too much. Too small: parts idle; too large: queues
    grow with every burst."""

    low: float = share(0.3, 0.0, 1.0)
    """Below `high`; less than this in each part is too little. Parts are planned for the middle of both. Too
    near to `high`: what was split is soon merged."""

    looks: int = number(2, 1, 100)
    """So many in a row have to say the same. Too small: a spike splits a box; too large: help comes late."""

    parts_max: int = number(16, 2, 256)
    """A box never has more parts."""

    cooldown_us: int = duration("15s", "0s", "1h")
    """A box that was changed, or couldn't be, is left alone for so long, and for longer the more often it
    couldn't. Too small: what is measured hasn't followed yet."""

    nodes: tuple[str, ...] = names('["b", "c"]', noun="nodes")
    """Where parts may go: names in `[peers]`, or this node. Left out: this node and all peers of its
    participant."""


def read_scale(
    file: ConfigFile, *, own: str, peers: Collection[str], abroad: Mapping[str, str]
) -> ScaleSettings | None:
    """The table ``[scale]``; None: there is none.

    Args:
        own: this node.
        peers: names in ``[peers]``.
        abroad: those of them that are another participant's -> whose.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    if "scale" not in file.root:
        return None
    table = file.table("scale")
    rules = ScaleSettings(**read_fields(file, "scale", table, ScaleSettings))
    if rules.low >= rules.high:
        hint = f"low is below high: {rules.low:g} and {rules.high:g} are not"
        within = "low" if "low" in table else "high"
        raise file.error("scale", "low is not below high", hint=hint, within=within)
    known = (own, *peers)
    for node in rules.nodes:
        if node in abroad:
            text = f"node {node!r} is one of participant {abroad[node]!r}"
            hint = "parts go to nodes of the own participant: leave it out"
            raise file.error("scale", text, hint=hint, within="nodes")
        if node not in known:
            hint = did_you_mean(node, known) or "name this node, or one of [peers]"
            raise file.error("scale", f"expected nodes, got {node!r:.80}", hint=hint, within="nodes")
    return rules
