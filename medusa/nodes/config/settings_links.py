"""The part of a node's configuration that says by how many connections streams go to each peer.

[links]
connections = 1          # for streams, beside the one for control
spread = "pinned"        # or "striped"
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import choice, number, read_fields
from medusa.wire.limits import LANES_MAX

__all__ = ["LinkRules", "read_links"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRules:
    """How streams of this node are spread over connections to one peer."""

    connections: int = number(1, 1, LANES_MAX)
    """To each peer, for streams, beside the one for control. Too small: one lost packet holds up all streams
    of the link. Too large: sockets and buffers; connections that compete with each other."""

    spread: str = choice("pinned", ("pinned", "striped"))
    """`pinned`: a stream keeps to one. `striped`: the frames of each go round over all."""

    @property
    def striped(self) -> bool:
        return self.spread == "striped" and self.connections > 1


def read_links(file: ConfigFile) -> LinkRules:
    """The table ``[links]``.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    return LinkRules(**read_fields(file, "links", file.table("links"), LinkRules))
