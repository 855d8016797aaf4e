"""Node processes of several owners on this machine: keys made on the fly, who knows and trusts whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import START_TIMEOUT_S, LocalNodes

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["OwnedNodes", "Owner"]

FEDERATION = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A participant.

    Attributes:
        nodes: that run from the start.
        later: nodes that are known to all, and not started yet.
        offers: other participant -> kinds of boxes that it may have run here.
        publish: patterns of streams that others may find.
        readers: other participants whose client may read the streams of ``publish``.
    """

    nodes: Sequence[str]
    later: Sequence[str] = ()
    offers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    publish: Sequence[str] = ()
    readers: Sequence[str] = ()


class OwnedNodes(LocalNodes):
    """Nodes that all know each other. Each owner has one client, who may do everything at its nodes.

    Args:
        owners: by name; names of nodes are unique among all.
        folder: for keys, configurations, state and logs; the caller removes it.
        more: gives the TOML that the configuration of a node has besides; empty: none.
        command, patience_s: as for ``LocalNodes``.

    Raises:
        ConfigError: there can be no keys here; the hint says what to install.
    """

    def __init__(
        self,
        owners: Mapping[str, Owner],
        folder: Path,
        interruption: Interruption | None = None,
        *,
        more: Callable[[str], str] = lambda node: "",
        command: Callable[[str], str] = lambda node: "node",
        patience_s: float = START_TIMEOUT_S,
    ) -> None:
        from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, write_key

        self._owners = dict(owners)
        self._owner_of = {node: name for name, of in owners.items() for node in (*of.nodes, *of.later)}
        self._public: dict[str, str] = {}
        self._keys, self._more = folder, more
        super().__init__(
            [node for of in owners.values() for node in of.nodes],
            folder,
            interruption,
            later=[node for of in owners.values() for node in of.later],
            config=self._with_keys,
            command=command,
            patience_s=patience_s,
        )
        for node in self._owner_of:
            curve = CurveKey.new()
            write_key(folder / f"{node}.key", "node", curve)
            self._public[node] = curve.public
        for name in owners:
            curve, signing = CurveKey.new(), ParticipantKey.new()
            write_key(folder / f"client-of-{name}.key", "client", curve)
            write_key(folder / f"{name}.key", "participant", signing)
            self._public[f"client-of-{name}"], self._public[name] = curve.public, signing.key

    def connect(self, node: str, owner: str | None = None) -> Federation:
        """A client of a node; of its owner, or of another one."""
        from medusa.runtime.client.client import connect

        whose = owner or self._owner_of[node]
        return connect(
            self.addresses[node],
            timeout="30s",
            key=self._keys / f"client-of-{whose}.key",
            server_key=self._public[node],
        )

    def _with_keys(self, node: str, addresses: Mapping[str, str]) -> str:
        """TOML of a node; JSON's quoting of text, and its lists, are TOML's too."""
        name = self._owner_of[node]
        owner = self._owners[name]
        lines = [
            f'name = "{node}"',
            f'listen = "{addresses[node]}"',
            f'data = "{node}"',
            f'federation = "{FEDERATION}"',
            f'participant = "{name}"',
            f'\n[keys]\nnode = "{node}.key"',
            '\n[limits]\ndeploy_timeout = "30s"',
            f'\n[dht]\nkey = "{name}.key"\npublish = {json.dumps(list(owner.publish))}',
        ]
        lines += [f'\n[participants.{other}]\nkey = "{self._public[other]}"' for other in self._owners]
        lines += [f"\n[offers.{who}]\nboxes = {json.dumps(list(of))}" for who, of in owner.offers.items()]
        for peer, whose in self._owner_of.items():
            if peer != node:
                lines.append(f'\n[peers.{peer}]\naddress = "{addresses[peer]}"')
                lines.append(f'participant = "{whose}"\nkey = "{self._public[peer]}"')
        everything = 'deploy = ["*"]\npublish = ["*"]\nsubscribe = ["*"]\nstatus = true'
        lines.append(f'\n[clients.{name}]\nkey = "{self._public[f"client-of-{name}"]}"\n{everything}')
        for other in owner.readers:
            lines.append(f'\n[clients.{other}]\nkey = "{self._public[f"client-of-{other}"]}"')
            lines.append(f"subscribe = {json.dumps(list(owner.publish))}")
        return "\n".join(lines) + "\n" + self._more(node)
