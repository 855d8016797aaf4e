"""The part of a node's configuration that says who is who, and who may do what.

federation = "netmon"
participant = "alice"

[keys]
node = "keys/edge-1.key"             # made by medusa keygen; only its owner may read it
certificate = "keys/edge-1.cert"     # optional: said to peers when their links come up
introduce = "tcp://0.0.0.0:5556"     # optional: tells its public key there, to whoever asks

[participants.bob]
key = "ed25519:..."

[peers]
core = {address = "tcp://10.0.0.7:5557", participant = "bob", key = "..."}

[clients.reporting]
key = "..."
subscribe = ["netmon.*"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import NAME, NAME_RULE, ConfigFile
from medusa.nodes.config.fields import flag, names, read_fields
from medusa.query.suggest import did_you_mean
from medusa.wire.statement import is_curve_key, is_signing_key

__all__ = ["FIELDS", "ClientRules", "PeerKey", "Security", "address_of", "read_security"]

FIELDS = ("federation", "keys", "participants", "clients")
"""Of the file; ``peers`` has more fields beside."""

INTRODUCE = re.compile(r"tcp://(?:\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]+):(\d{1,5}|\*)")
KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerKey:
    """Whose node it is, and its CURVE key."""

    participant: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """What a client key may do: nothing, unless it is said. Patterns are names with ``*`` for any text."""

    key: str
    publish: tuple[str, ...] = names('["netmon.*"], where * is any text')
    """Sources, as `query.source`."""

    subscribe: tuple[str, ...] = names('["netmon.*"], where * is any text')
    """Streams, as `query.sink`."""

    deploy: tuple[str, ...] = names('["netmon*"], where * is any text')
    """Queries, to deploy and to remove."""

    status: bool = flag(False)
    """The whole status of the node; a client that may publish or read sees what concerns that in any case."""

    participant: str = ""
    """Whose program it is: cut off with that; empty: our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Keys and rules of a node.

    Attributes:
        node_key: path of the file with the node's secret CURVE key.
        certificate: path of the statement about it; empty: none.
        introduce: where whoever asks is told the node's public key; empty: nowhere.
        federation: where statements must be meant for.
        participants: name -> Ed25519 key, of those whose statements are believed.
        peers: of each peer.
        clients: by a name that only this configuration knows.
        denied: participants that are cut off: as if nothing of theirs stood here, until it is taken back.
    """

    node_key: str
    certificate: str = ""
    introduce: str = ""
    federation: str
    participants: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, PeerKey] = field(default_factory=dict)
    clients: Mapping[str, ClientRules] = field(default_factory=dict)
    denied: tuple[str, ...] = ()

    def counting(self) -> Security:
        """What counts of it: nothing of who is denied."""
        gone = self.denied
        return replace(
            self,
            participants={name: key for name, key in self.participants.items() if name not in gone},
            peers={name: peer for name, peer in self.peers.items() if peer.participant not in gone},
            clients={name: each for name, each in self.clients.items() if each.participant not in gone},
        )

    def denied_keys(self) -> dict[str, str]:
        """Key -> the denied participant whose it is."""
        callers: tuple[PeerKey | ClientRules, ...] = (*self.peers.values(), *self.clients.values())
        return {each.key: each.participant for each in callers if each.participant in self.denied}


def address_of(file: ConfigFile, peer: str, given: Any) -> object:
    """The address in an entry of ``peers``: text, or the field of a table.

    Raises:
        ConfigError: a table with a field that there isn't, or without address.
    """
    if not isinstance(given, dict):
        return given
    table = f"peers.{peer}"
    file.known(table, given, ("address", "participant", "key"))
    if "address" not in given:
        raise file.error("peers", "address is missing", hint='address = "tcp://..."', within=peer)
    return given["address"]


def read_security(file: ConfigFile, *, participant: str, folder: str) -> Security | None:
    """Keys and rules, checked; None where the file has no ``[keys]``.

    Args:
        participant: whose node this is.
        folder: what relative paths are relative to.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    if "keys" not in file.root:
        _refuse_without_keys(file)
        return None
    keys = file.table("keys")
    file.known("keys", keys, ("node", "certificate", "introduce"))
    if "node" not in keys:
        raise file.error(
            "keys", "node is missing", hint='node = "FILE"; medusa keygen makes it', within="keys"
        )
    participants = _participants(file)
    denied = _denied(file, participant)
    made = Security(
        node_key=_path(file, keys, "node", folder),
        certificate=_path(file, keys, "certificate", folder) if "certificate" in keys else "",
        introduce=_introduce(file, keys),
        federation=file.name("federation"),
        participants=participants,
        peers=_peers(file, participant, participants),
        clients=_clients(file, participants),
        denied=denied,
    )
    _each_key_once(file, made)
    return made


def _refuse_without_keys(file: ConfigFile) -> None:
    needs = 'add [keys] and node = "FILE", made by medusa keygen'
    for name in ("federation", "participants", "clients"):
        if name in file.root:
            raise file.error(name, "says nothing without keys", hint=needs, code="config.keys")
    for peer, given in file.table("peers").items():
        if isinstance(given, dict) and ("key" in given or "participant" in given):
            raise file.error("peers", "has a key, this node has none", hint=needs, within=peer)


def _path(file: ConfigFile, table: dict[str, Any], key: str, folder: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise file.error("keys", f"expected a file, got {value!r}", hint=f'{key} = "FILE"', within=key)
    return f"{folder}/{value}" if folder and not value.startswith("/") else value


def _introduce(file: ConfigFile, table: dict[str, Any]) -> str:
    if "introduce" not in table:
        return ""
    value = table["introduce"]
    found = INTRODUCE.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[1] != "*" and int(found[1]) > 65535):
        hint = 'introduce = "tcp://0.0.0.0:5556": whoever asks there is told the public key of this node'
        raise file.error("keys", f"expected an address, got {value!r:.100}", hint=hint, within="introduce")
    return str(value)


def _entries(file: ConfigFile, key: str, allowed: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The tables ``[key.NAME]``."""
    found: dict[str, dict[str, Any]] = {}
    for name, given in file.table(key).items():
        if not NAME.fullmatch(name):
            raise file.error(key, f"{name[:80]!r} is no name", hint=NAME_RULE, within=name)
        if not isinstance(given, dict):
            raise file.error(
                key, f"expected a table, got {given!r}", hint=f"write [{key}.{name}]", within=name
            )
        file.known(f"{key}.{name}", given, allowed)
        if "key" not in given:
            raise file.error(key, "key is missing", hint='key = "..."', within=name)
        found[name] = given
    if len(found) > KEYS_MAX:
        raise file.error(key, f"{len(found):,} of them", hint=f"at most {KEYS_MAX:,}")
    return found


def _participants(file: ConfigFile) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, given in _entries(file, "participants", ("key", "deny")).items():
        if not is_signing_key(given["key"]):
            raise _no_key(file, f"participants.{name}", given["key"], _SIGNING_RULE)
        found[name] = given["key"]
    return found


def _denied(file: ConfigFile, own: str) -> tuple[str, ...]:
    found = []
    for name, given in _entries(file, "participants", ("key", "deny")).items():
        deny = given.get("deny", False)
        if not isinstance(deny, bool) or (deny and name == own):
            why = (
                "is this node's own participant" if deny is True else f"expected true or false, got {deny!r}"
            )
            hint = "deny = true cuts off the nodes and clients of another participant"
            raise file.error(f"participants.{name}", why, hint=hint, within="deny")
        found += [name] if deny else []
    return tuple(found)


def _peers(file: ConfigFile, own: str, participants: Mapping[str, str]) -> dict[str, PeerKey]:
    found: dict[str, PeerKey] = {}
    for peer, given in file.table("peers").items():
        if not isinstance(given, dict) or "key" not in given:
            hint = f'{peer} = {{address = "...", key = "..."}}: what medusa keygen printed there'
            raise file.error("peers", "key is missing", hint=hint, within=peer, code="config.keys")
        if not is_curve_key(given["key"]):
            raise _no_key(file, f"peers.{peer}", given["key"], _CURVE_RULE)
        whose = given.get("participant", own)
        if whose != own and whose not in participants:
            raise file.error(
                f"peers.{peer}",
                f"there is no participant {whose!r:.80}",
                hint=did_you_mean(str(whose), [own, *participants]) or f"add [participants.{whose}]",
                within="participant",
            )
        found[peer] = PeerKey(participant=whose, key=given["key"])
    return found


def _clients(file: ConfigFile, participants: Mapping[str, str]) -> dict[str, ClientRules]:
    found: dict[str, ClientRules] = {}
    allowed = ("key", "publish", "subscribe", "deploy", "status", "participant")
    for name, given in _entries(file, "clients", allowed).items():
        table = f"clients.{name}"
        whose = given.get("participant", "")
        if whose and whose not in participants:
            hint = did_you_mean(str(whose), participants) or f"add [participants.{whose}]"
            raise file.error(table, f"there is no participant {whose!r:.80}", hint=hint, within="participant")
        if not is_curve_key(given["key"]):
            raise _no_key(file, table, given["key"], _CURVE_RULE)
        rules = read_fields(file, table, given, ClientRules, more=("key", "participant"))
        found[name] = ClientRules(key=given["key"], participant=whose, **rules)
    return found


def _each_key_once(file: ConfigFile, security: Security) -> None:
    """A key is one caller: else who has it could choose who to be."""
    known: dict[str, str] = {}
    entries = [("peers", name, peer.key) for name, peer in security.peers.items()]
    entries += [("clients", name, client.key) for name, client in security.clients.items()]
    for table, name, key in entries:
        shown = f"{table}.{name}"
        if key in known:
            raise file.error(
                shown, f"{known[key]} has the same key", hint="give each a key of its own", within="key"
            )
        known[key] = shown


def _no_key(file: ConfigFile, table: str, value: object, rule: str) -> ConfigError:
    hint = f"that is {_SIGNING_RULE}" if is_signing_key(value) else ""
    hint = f"that is {_CURVE_RULE}" if is_curve_key(value) else hint
    return file.error(table, f"expected {rule}", hint=hint or "medusa keygen prints it", within="key")


_CURVE_RULE = "the CURVE key of a node or client (40 characters)"
_SIGNING_RULE = "the key of a participant (ed25519: and 64 hexadecimal digits)"
