"""Keys of a simulated federation of several participants.

Signatures are hashes: anybody here could forge one, and nobody does. A connection has the key that its caller
has when it speaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_dht import DhtRules
from medusa.nodes.config.settings_market import MarketRules
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import ClientRules, PeerKey, Security
from medusa.ports import Buffer
from medusa.wire.statement import Certificate, Revocation, client_name, sign

__all__ = ["Keyring", "Signing", "signed_by"]

FEDERATION = "sim"
EXPIRY_US = 1 << 52
"""Statements outlive every run."""


class Signing:
    """The signing key of a participant."""

    def __init__(self, participant: str) -> None:
        self.key = "ed25519:" + blake2b(participant.encode(), digest_size=32).hexdigest()

    def sign(self, data: Buffer) -> bytes:
        return blake2b(self.key.encode() + bytes(data), digest_size=64).digest()


def signed_by(key: str, data: Buffer, signature: bytes) -> bool:
    """Whether a ``Signing`` of this key signed it."""
    return blake2b(key.encode() + bytes(data), digest_size=64).digest() == signature


def curve(name: str) -> str:
    """A public key."""
    return blake2b(name.encode(), digest_size=20).hexdigest()


class Keyring:
    """Who has which key, and what each node is configured to let others do.

    Args:
        owners: node -> its participant.
        clients: name -> what its programs may do at each node of its participant; ``key`` is filled in.
        offers: participant -> what its nodes offer to the others.
        trades: node -> how it trades, and by which contracts: name of a file -> its text.
    """

    def __init__(
        self,
        owners: Mapping[str, str],
        clients: Mapping[str, ClientRules],
        offers: Mapping[str, OfferRules],
        trades: Mapping[str, tuple[MarketRules, Mapping[str, str]]] | None = None,
    ) -> None:
        self.owners = owners
        self.participants = sorted(set(owners.values()))
        self.clients = {name: replace(rules, key=curve(name)) for name, rules in clients.items()}
        self._offers, self._trades = offers, trades or {}
        self._renewed: dict[str, int] = {}
        self._keys = {client_name(rules.key): rules.key for rules in self.clients.values()}

    def name_of(self, client: str, program: str) -> str:
        """What a program calls itself that has the key of a client."""
        return client_name(self.clients[client].key, program)

    def key_of(self, caller: str) -> str:
        """The key with which a node or program speaks; of a stranger an unknown one."""
        if caller in self.owners:
            return self.node_key(caller)
        return self._keys.get(caller[: len(client_name(""))], curve(f"stranger {caller}"))

    def node_key(self, node: str, renewed: int | None = None) -> str:
        """The key of a node, as it is, or as it is after so many renewals."""
        number = self._renewed.get(node, 0) if renewed is None else renewed
        return curve(f"{node} {number}")

    def renew(self, node: str) -> None:
        """From its next life on a node has its next key."""
        self._renewed[node] = self._renewed.get(node, 0) + 1

    def certificate(self, node: str, renewed: int) -> bytes:
        """A statement that this is a key of the node."""
        key = self.node_key(node, renewed)
        owner, sequence = self.owners[node], renewed
        made = Certificate(
            federation=FEDERATION,
            participant=owner,
            recipient="",
            epoch=1,
            sequence=sequence,
            expiry_us=EXPIRY_US,
            node=node,
            key=key,
        )
        return sign(made, Signing(owner)).to_bytes()

    def own_certificate(self, node: str) -> bytes:
        """What a node says of its own key; empty: its peers were configured with it."""
        renewed = self._renewed.get(node, 0)
        return self.certificate(node, renewed) if renewed else b""

    def revocation(self, participant: str, key: str) -> bytes:
        """A statement that nobody may come with this key any more."""
        made = Revocation(
            federation=FEDERATION,
            participant=participant,
            recipient="",
            epoch=1,
            sequence=1,
            expiry_us=EXPIRY_US,
            key=key,
        )
        return sign(made, Signing(participant)).to_bytes()

    def signer(self, node: str) -> Signing:
        """Of the participant whose node it is."""
        return Signing(self.owners[node])

    def papers(self, node: str) -> Mapping[str, str]:
        """The contracts by which a node trades."""
        return self._trades[node][1] if node in self._trades else {}

    def secured(self, settings: Settings) -> Settings:
        """The settings of a node with its keys, rules, offers and its part in the catalog between
        participants."""
        me = self.owners[settings.name]
        return replace(
            settings,
            participant=me,
            security=Security(
                node_key=f"{settings.name}.key",
                federation=FEDERATION,
                participants={each: Signing(each).key for each in self.participants},
                peers={
                    peer: PeerKey(participant=self.owners[peer], key=self.node_key(peer, 0))
                    for peer in settings.peers
                },
                clients={
                    name: replace(rules, participant="")
                    for name, rules in self.clients.items()
                    if rules.participant == me
                },
            ),
            offers={} if me not in self._offers else dict.fromkeys(self._others(me), self._offers[me]),
            market=self._trades[settings.name][0] if settings.name in self._trades else None,
            dht=DhtRules(join=tuple(settings.peers), key=f"{me}.key", publish=("*",)),
        )

    def _others(self, me: str) -> list[str]:
        return [each for each in self.participants if each != me]
