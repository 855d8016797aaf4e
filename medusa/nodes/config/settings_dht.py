"""The part of a node's configuration that lets it take part in the catalog between participants.

[dht]
join = ["core"]          # peers by which it finds the others; left out: all
key = "alice.key"        # of its participant: with it, it signs and publishes
publish = ["counts.*"]   # streams of its participant that others may find; nothing, unless it is said
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import names, read_fields
from medusa.nodes.config.settings_security import Security
from medusa.query.suggest import did_you_mean

__all__ = ["DhtRules", "read_dht"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtRules:
    """How a node takes part.

    Attributes:
        key: path of the file with its participant's secret Ed25519 key; empty: it publishes nothing.
    """

    join: tuple[str, ...] = names('["core"]', noun="peers")
    """Peers that it asks first; by default all."""

    key: str = ""
    publish: tuple[str, ...] = names('["counts.*"], where * is any text')
    """Streams of its participant that others may find."""


def read_dht(
    file: ConfigFile, *, participant: str, folder: str, peers: Mapping[str, str], security: Security | None
) -> DhtRules | None:
    """The table ``[dht]``; None where there is none.

    Args:
        participant: whose node this is.
        folder: what a relative path is relative to.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    if "dht" not in file.root:
        return None
    table = file.table("dht")
    values = read_fields(file, "dht", table, DhtRules, more=("key",))
    if security is None:
        hint = 'add [keys] and node = "FILE", made by medusa keygen'
        raise file.error("dht", "says nothing without keys", hint=hint, code="config.keys")
    if participant not in security.participants:
        hint = f'add [participants.{participant}] and key = "ed25519:..."'
        raise file.error("dht", f"participant {participant!r} isn't registered here", hint=hint)
    join, publish = values.get("join", tuple(peers)), values.get("publish", ())
    for name in join:
        if name not in peers:
            hint = did_you_mean(name, peers) or "add it to [peers]"
            raise file.error("dht", f"{name[:80]!r} is no peer", hint=hint, within="join")
    key = table.get("key", "")
    if not isinstance(key, str) or "\0" in key or ("key" in table and not key.strip()):
        raise file.error("dht", f"expected a file, got {key!r}", hint='key = "FILE"', within="key")
    if publish and not key:
        hint = 'key = "FILE", the secret key of the participant'
        raise file.error("dht", "nobody signs what is published", hint=hint, within="publish")
    if key and folder and not key.startswith("/"):
        key = f"{folder}/{key}"
    return DhtRules(join=join, key=key, publish=publish)
