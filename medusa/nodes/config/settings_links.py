"""The part of a node's configuration that says by how many connections streams go to each peer.

[links]
connections = 1          # for streams, beside the one for control
spread = "pinned"        # or "striped"
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.query.suggest import did_you_mean
from medusa.wire.limits import LANES_MAX

__all__ = ["SPREADS", "LinkRules", "read_links"]

SPREADS = ("pinned", "striped")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRules:
    """How streams of this node are spread over connections to one peer."""

    connections: int = 1
    """In [1, 16]. Too small: one lost packet holds up all streams of the link. Too large: sockets and
    buffers; connections that compete with each other."""

    spread: str = "pinned"
    """``pinned``: a stream keeps to one. ``striped``: the frames of each go round over all."""

    @property
    def striped(self) -> bool:
        return self.spread == "striped" and self.connections > 1


def read_links(file: ConfigFile) -> LinkRules:
    """The table ``[links]``.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    table = file.table("links")
    file.known("links", table, ("connections", "spread"))
    connections = table.get("connections", 1)
    if isinstance(connections, bool) or not isinstance(connections, int) or not 1 <= connections <= LANES_MAX:
        hint = f"allowed: 1 to {LANES_MAX}"
        raise file.error(
            "links", f"{connections!r:.80} is no number of them", hint=hint, within="connections"
        )
    spread = table.get("spread", "pinned")
    if spread not in SPREADS:
        allowed = ", ".join(f'"{each}"' for each in SPREADS)
        near = did_you_mean(spread, SPREADS) if isinstance(spread, str) else ""
        hint = near or f"allowed: {allowed}"
        raise file.error("links", f"there is no {spread!r:.80}", hint=hint, within="spread")
    return LinkRules(connections=connections, spread=spread)
