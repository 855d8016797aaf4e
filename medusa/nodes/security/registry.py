"""Who is who, by key, and who may say what. Pure: keys are authenticated by the transport.

The key that the transport authenticated is the caller; a name in a message or a routing id is only a
claim. So each message is asked two things before anything else happens: does this name belong to this
key (``Registry.caller``), and may this caller say that (``nodes.message_table.refusal``). Both are look-ups.

What was declared (certificates of nodes' keys, revocations) lies in the catalog of the node: on disk
before a new key counts. A revoked key counts no more at once, whatever the disk does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from medusa.errors import RemoteProtocolError
from medusa.nodes.config.fields import matches
from medusa.nodes.config.settings_security import ClientRules, Security
from medusa.ports import SKEW_US, Verify
from medusa.wire.statement import (
    Certificate,
    Place,
    Revocation,
    Statement,
    check,
    client_name,
    opened,
)
from medusa.wire.status_and_metrics import NodeStatus, OwnInputs, VisibleStatus

__all__ = ["Caller", "Refusal", "Registry", "no_deploy", "no_role", "visible"]

STATEMENTS_MAX = 1000
"""Subjects of one participant that are remembered, so that it can't fill our disk."""

KEPT = 2
"""Certificates of one node that count: the last one and the one before, so that keys can be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who has a key.

    Attributes:
        name: of the node; of a client, what the configuration calls it.
        called: what it calls itself on the link, a client's without suffix.
        rules: of a client; None: a node.
        expiry_us: the key counts until then; None: no certificate says so.
    """

    name: str
    called: str
    participant: str
    rules: ClientRules | None = None
    expiry_us: int | None = None

    def may(self, role: str, name: str) -> bool:
        """Whether a client may do this with this stream or query; a node may."""
        if self.rules is None:
            return True
        patterns: tuple[str, ...] = getattr(self.rules, role)
        return any(matches(pattern, name) for pattern in patterns)


# --- what a caller may say ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a message of a caller who is who it says changes nothing."""

    code: str
    text: str
    hint: str


def visible(status: NodeStatus, caller: Caller, peer: str) -> VisibleStatus:
    """What a client that may not ask for the whole status sees of it: the streams that it may use, and how
    far what it has published itself has come.

    Args:
        peer: what it calls itself.
    """
    own = [tuple(each for each in one.inputs if each.origin == peer) for one in status.fragments]
    return VisibleStatus(
        node=status.node,
        sources={name: of for name, of in status.sources.items() if caller.may("publish", name)},
        streams=tuple(name for name in status.streams if caller.may("subscribe", name)),
        elsewhere={
            name: nodes
            for name, nodes in status.elsewhere.items()
            if caller.may("publish", name) or caller.may("subscribe", name)
        },
        fragments=tuple(OwnInputs(inputs=inputs) for inputs in own if inputs),
    )


def no_deploy(caller: Caller, query: str) -> Refusal:
    """A client that may not deploy a query of this name."""
    return no_role(caller, "deploy", query)


def no_role(caller: Caller, role: str, name: str) -> Refusal:
    """A client that lacks a role for this stream or query; empty: for all."""
    what = f" {name[:100]!r}" if name else ""
    allow = "status = true" if role == "status" else f'{role} = ["{name[:100] or "..."}"]'
    return Refusal(
        code="E_ROLE",
        text=f"client {caller.name!r} may not {_DOES[role]}{what}",
        hint=f"the node's configuration would have to say {allow} in [clients.{caller.name}]",
    )


_DOES = {
    "publish": "publish into",
    "subscribe": "read",
    "deploy": "deploy or remove",
    "status": "ask for the status",
}


# --- who a caller is ------------------------------------------------------------------------------


class Registry:
    """Keys and who has them.

    Args:
        security: from the configuration.
        node, participant: this node and whose it is.
        verify: checks signatures.
        statements: what was declared, as the catalog keeps it: subject -> signed statements, the last
            one at the end. The registry changes it; whoever made it makes it durable.
    """

    def __init__(
        self,
        security: Security,
        *,
        node: str,
        participant: str,
        verify: Verify,
        statements: dict[str, tuple[bytes, ...]],
    ) -> None:
        self.participant = participant
        self.statements = statements
        self._security = security
        self._denied: dict[str, str] = {}
        """Key -> the participant that is cut off."""
        self._node = node
        self._verify = verify
        self._last: dict[str, Place] = {}
        self._revoked: dict[str, list[str]] = {}
        """Key -> the participants who said so."""
        self._certificates: dict[str, list[Certificate]] = {}
        """Node -> those that count, the oldest first."""
        self._callers: dict[str, Caller] = {}
        self._own_nodes_only = False
        self.configure(security)

    def configure(self, security: Security, pending: Collection[bytes] = ()) -> None:
        """The configuration says this now; what was declared is weighed by it anew.

        Args:
            pending: what isn't durable yet: its certificates don't count yet.
        """
        self._security = security.counting()
        self._denied = security.denied_keys()
        self._certificates.clear()
        for subject, kept in self.statements.items():
            for data in kept:
                self._load(subject, data, counts=data not in pending)
        self._list()

    def _load(self, subject: str, data: bytes, *, counts: bool) -> None:
        """Take up what was checked in an earlier life; the configuration may have changed since."""
        signed, statement = opened(data)
        self._last[subject] = (statement.epoch, statement.sequence)
        if isinstance(statement, Revocation):
            self._revoke(statement)
        elif counts and self._security.participants.get(statement.participant) == signed.key:
            self.count(statement)

    # --- keys -----------------------------------------------------------------------------------

    def let_in(self, *, own_nodes_only: bool) -> None:
        """Whether only nodes of our own participant count: revocations may have been lost."""
        self._own_nodes_only = own_nodes_only
        self._list()

    def caller(self, name: str, key: str, *, client: bool | None = None) -> Caller:
        """Who has this key, if it is the one to call itself so.

        Args:
            client: whether it says that it is a client; None: it doesn't say.

        Raises:
            RemoteProtocolError: nobody's key, or another's name (``E_IDENTITY``), a key that was
                revoked (``E_REVOKED``), or one of a participant that is cut off here (``E_DENIED``).
        """
        caller = self._callers.get(key)
        if caller is None:
            if key in self._denied:
                text = f"participant {self._denied[key]!r} is cut off here"
                raise RemoteProtocolError(text, hint="its owner said deny = true", code="E_DENIED")
            if key in self._revoked:
                raise RemoteProtocolError(
                    "the key of this caller was revoked", hint="get a new key", code="E_REVOKED"
                )
            raise RemoteProtocolError(f"a key that nobody has here: {key!r:.50}", code="E_IDENTITY")
        is_client = caller.rules is not None
        fits = name == caller.called or (is_client and name.startswith(f"{caller.called}-"))
        if not fits or (client is not None and client is not is_client):
            kind = "client" if is_client else "node"
            raise RemoteProtocolError(
                f"calls itself {name[:80]!r}, its key is that of {kind} {caller.name!r}", code="E_IDENTITY"
            )
        return caller

    def keys(self) -> tuple[str, ...]:
        """All that count, nodes first."""
        return tuple(self._callers)

    def denies(self, key: str) -> str:
        """The participant of a key that doesn't count since that is cut off; empty: none."""
        return self._denied.get(key, "")

    def signing_key(self, participant: str) -> str | None:
        """Ed25519 key of a participant that is registered here; None: it isn't."""
        return self._security.participants.get(participant)

    def owner(self, peer: str) -> str | None:
        """Whose node a peer is; None: none of its keys counts."""
        pinned = self._security.peers.get(peer)
        return pinned.participant if pinned is not None and self.keys_of(peer) else None

    def keys_of(self, peer: str) -> tuple[str, ...]:
        """Those under which a node may be called, the newest first; empty: never call it."""
        certified = [each.key for each in reversed(self._certificates.get(peer, []))]
        pinned = self._security.peers.get(peer)
        found = dict.fromkeys([*certified, *([pinned.key] if pinned else [])])
        return tuple(key for key in found if key in self._callers)

    def _list(self) -> None:
        """Make the table of callers anew."""
        made: dict[str, Caller] = {}
        for name, peer in self._security.peers.items():
            if not self._is_revoked(peer.key, peer.participant):
                made[peer.key] = Caller(name=name, called=name, participant=peer.participant)
            for one in self._certificates.get(name, []):
                if not self._is_revoked(one.key, one.participant):
                    made.setdefault(
                        one.key,
                        Caller(name=name, called=name, participant=one.participant, expiry_us=one.expiry_us),
                    )
        for name, client in self._security.clients.items():
            if not self._is_revoked(client.key, self.participant):
                made.setdefault(
                    client.key,
                    Caller(
                        name=name,
                        called=client_name(client.key),
                        participant=self.participant,
                        rules=client,
                    ),
                )
        if self._own_nodes_only:
            own = ((key, each) for key, each in made.items() if each.rules is None)
            made = {key: each for key, each in own if each.participant == self.participant}
        self._callers = made

    def _is_revoked(self, key: str, owner: str) -> bool:
        """Whether its owner, or who owns this node, said that it counts no more."""
        said = self._revoked.get(key, ())
        return owner in said or self.participant in said

    # --- what is declared -----------------------------------------------------------------------

    def take(self, data: bytes, wall_us: int) -> Statement | None:
        """A signed statement came; None where it is known already. A certificate counts only once
        ``count`` was called with it: when what ``statements`` holds is durable.

        Raises:
            RemoteProtocolError: it doesn't count, and nothing changed. As ``statement.check``; also
                about what isn't its signer's (``E_IDENTITY``), or too much of one signer (``E_LIMIT``).
        """
        signed, statement = opened(data)
        subject = f"{statement.participant} {statement.subject}"
        kept = self.statements.get(subject, ())
        if data in kept:
            return None
        check(
            signed,
            statement,
            verify=self._verify,
            participants=self._security.participants,
            federation=self._security.federation,
            node=self._node,
            wall_us=wall_us,
            last=self._last.get(subject),
            revoked=isinstance(statement, Certificate)
            and self._is_revoked(statement.key, statement.participant),
        )
        self._check_subject(statement)
        mine = f"{statement.participant} "
        if not kept and sum(each.startswith(mine) for each in self.statements) >= STATEMENTS_MAX:
            raise RemoteProtocolError(
                f"participant {statement.participant!r} has declared {STATEMENTS_MAX:,} things already",
                code="E_LIMIT",
            )
        self._last[subject] = (statement.epoch, statement.sequence)
        self.statements[subject] = (*kept, data)[-KEPT if isinstance(statement, Certificate) else -1 :]
        if isinstance(statement, Revocation):
            self._revoke(statement)
            self._list()
        return statement

    def _check_subject(self, statement: Statement) -> None:
        """Whether its signer may say that of it."""
        who = statement.participant
        owner = self._callers.get(statement.key)
        if isinstance(statement, Revocation):
            if owner is not None and who not in (owner.participant, self.participant):
                raise RemoteProtocolError(
                    f"participant {who!r} revokes a key of {owner.participant!r}", code="E_IDENTITY"
                )
            return
        peer = self._security.peers.get(statement.node)
        if peer is None or peer.participant != who:
            raise RemoteProtocolError(
                f"node {statement.node!r} is no peer of {self._node!r} that belongs to {who!r}",
                hint="check [peers] in the configuration",
                code="E_IDENTITY",
            )
        if owner is not None and owner.name != statement.node:
            raise RemoteProtocolError(f"the key is that of {owner.name!r}", code="E_IDENTITY")

    def _revoke(self, statement: Revocation) -> None:
        said = self._revoked.setdefault(statement.key, [])
        if statement.participant not in said:
            said.append(statement.participant)

    def count(self, certificate: Certificate) -> None:
        """It is durable: its key counts from now on."""
        peer = self._security.peers.get(certificate.node)
        if peer is None or peer.participant != certificate.participant:
            return
        kept = [each for each in self._certificates.get(certificate.node, []) if each != certificate]
        self._certificates[certificate.node] = [*kept, certificate][-KEPT:]
        self._list()

    def expire(self, wall_us: int) -> bool:
        """Forget certificates whose time is over; whether there were any."""
        over = False
        for node, kept in self._certificates.items():
            left = [each for each in kept if wall_us <= each.expiry_us + SKEW_US]
            over = over or len(left) < len(kept)
            self._certificates[node] = left
        if over:
            self._list()
        return over

    def to_pass_on(self) -> Iterator[bytes]:
        """What every node of the federation should know."""
        for kept in self.statements.values():
            for data in kept:
                if not opened(data)[1].recipient:
                    yield data
