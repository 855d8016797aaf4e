"""What a brain does about keys: it asks for each message, passes on what is declared, cuts who is revoked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_definitions import kept_for
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_security import Security
from medusa.nodes.message_table import no_contract, refusal
from medusa.nodes.security.registry import Caller, Refusal, Registry
from medusa.nodes.security.sessions import CLIENTS_PER_KEY, say_no
from medusa.ports import Verify
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Declare, Install, Reply
from medusa.wire.messages.links import Refuse
from medusa.wire.outbox import CutPeer, Outbox, Trust
from medusa.wire.statement import Certificate, Statement

__all__ = ["Guard", "may_say"]


def may_say(guard: Guard | None, peer: str, caller: Caller | None, message: Message, *, client: bool) -> bool:
    """Whether the table of rights lets ``peer`` say that; a refusal was answered, and changes nothing else.

    Args:
        guard: None: this node has no keys, and every peer has the rights of its kind.
        caller: whose key it came with; None: without keys.
        client: ``peer`` came as a client.

    Raises:
        RemoteProtocolError: it is not for this kind of caller to say.
    """
    if guard is None or caller is None:
        return refusal(peer, None, message, "", client=client) is None
    return not guard.refuses(peer, caller, message, client=client)


class Guard:
    """Keys and rules of a node, in its brain.

    Args:
        settings: with ``security``.
        catalog: where statements are kept; ``saver`` makes it durable.
        verify: checks signatures.
        certificate: of our own key, said to peers when they come up; empty: none.
        wall: the time of the node.
        count: told the code of each message that a known caller may not say.
        permits: what stands against a message that only a contract allows.

    Attributes:
        registry: who is who.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        verify: Verify | None,
        certificate: bytes = b"",
        wall: WallClock,
        count: Callable[[str], None],
        permits: Callable[[Caller, Message], Refusal | None] = no_contract,
    ) -> None:
        self._permits = permits
        if settings.security is None or verify is None:
            raise LocalProtocolError("a guard needs [keys] and something that checks signatures")
        self.registry = Registry(
            settings.security,
            node=settings.name,
            participant=settings.participant,
            verify=verify,
            statements=catalog.statements,
        )
        self._count = count
        self._outbox = outbox
        self._saver = saver
        self._certificate = certificate
        self._remote = catalog.remote
        self._peers = tuple(settings.peers)
        self._bound: dict[str, str] = {}
        """Who spoke with us -> the key it did that with."""
        self._trusted: tuple[str, ...] | None = None
        self._pending: list[tuple[int, str, bytes, Statement]] = []
        """What was taken and isn't on disk yet: token, who brought it, as it came, what it says."""
        self._token = 0
        self._wall = wall

    # --- time -------------------------------------------------------------------------------------

    def _at(self, now_us: int) -> int:
        wall_us = self._wall.at(now_us)
        if wall_us is None:
            raise RemoteProtocolError("nobody has told this node the time yet", code="E_EXPIRED")
        return wall_us

    # --- each message -----------------------------------------------------------------------------

    def caller(self, peer: str, key: str, *, client: bool | None = None) -> Caller:
        """Who speaks.

        Raises:
            RemoteProtocolError: as ``Registry.caller``.
        """
        caller = self.registry.caller(peer, key, client=client)
        self._bound[peer] = key
        return caller

    def admit(self, peer: str, key: str, *, client: bool) -> None:
        """Whether who calls so may come in.

        Raises:
            RemoteProtocolError: as ``caller``; or too many are here already with this key (``E_LIMIT``).
        """
        caller = self.registry.caller(peer, key, client=client)
        if client and peer not in self._bound and len(self.bound(key)) >= CLIENTS_PER_KEY:
            raise RemoteProtocolError(
                f"{CLIENTS_PER_KEY} programs are here already with the key of client {caller.name!r}",
                hint="close some of them, or give programs keys of their own",
                code="E_LIMIT",
            )
        self._bound[peer] = key

    def bound(self, key: str) -> set[str]:
        """Who is here with this key."""
        return {peer for peer, theirs in self._bound.items() if theirs == key}

    def refuses(self, peer: str, caller: Caller, message: Message, *, client: bool) -> bool:
        """Whether the caller may not say that; then it was told so, and the message changes nothing.

        Raises:
            RemoteProtocolError: it is not for this kind of caller to say.
        """
        own = self.registry.participant
        against = refusal(peer, caller, message, own, client=client, permits=self._permits)
        if against is None:
            return False
        if isinstance(message, Install) and (
            node := kept_for(self._remote, caller.participant, message.fragment)
        ):
            hint = f"{message.fragment!r} is kept here for node {node!r}: deploy the query by that node"
            against = replace(against, hint=hint)
        self._count(against.code)
        say_no(self._outbox, peer, message, against)
        return True

    def forget(self, peer: str) -> None:
        """It is gone."""
        self._bound.pop(peer, None)

    # --- what is declared ---------------------------------------------------------------------------

    def declare(self, now_us: int, peer: str, message: Declare) -> None:
        """A statement came; who brought it hears when it is on disk."""
        try:
            statement = self.registry.take(message.statement, self._at(now_us))
        except RemoteProtocolError as error:
            self._count(error.code)
            say_no(self._outbox, peer, message, Refusal(code=error.code, text=error.message, hint=error.hint))
            return
        if statement is not None:
            self._token = self._saver.save()
            self._pending.append((self._token, peer, message.statement, statement))
            self._outbox.report("info", "declared", by=statement.participant, about=statement.subject)
            self._trust()
        if message.request:
            self._saver.send(peer, Reply(request=message.request), after=self._token)

    def written(self, peers: Iterable[str]) -> None:
        """The catalog may have become durable: what was declared counts, and is passed on.

        Args:
            peers: nodes that are there.
        """
        ready = [each for each in self._pending if each[0] <= self._saver.durable]
        self._pending = [each for each in self._pending if each[0] > self._saver.durable]
        for _, bringer, data, statement in ready:
            if isinstance(statement, Certificate):
                self.registry.count(statement)
            for peer in peers:
                if peer != bringer and not statement.recipient:
                    self._outbox.send(peer, Declare(request=0, statement=data))
        if ready:
            self._trust()

    def came_up(self, peer: str) -> None:
        """A node is there: it hears what it may have missed, and who we are."""
        own = [self._certificate] if self._certificate else []
        for data in (*own, *self.registry.to_pass_on()):
            self._outbox.send(peer, Declare(request=0, statement=data))

    def tick(self, now_us: int) -> None:
        """Let certificates expire."""
        wall_us = self._wall.at(now_us)
        if wall_us is not None and self.registry.expire(wall_us):
            self._trust()

    # --- who is let in --------------------------------------------------------------------------------

    def configure(self, security: Security) -> list[str]:
        """The configuration says this now; callers that may do other things than before are returned."""
        before = {peer: self._known(peer, key) for peer, key in self._bound.items()}
        self.registry.configure(security, pending=[data for _, _, data, _ in self._pending])
        self._trust()
        after = {peer: self._known(peer, key) for peer, key in self._bound.items()}
        return [peer for peer, caller in after.items() if caller is not None and caller != before[peer]]

    def _known(self, peer: str, key: str) -> Caller | None:
        try:
            return self.registry.caller(peer, key)
        except RemoteProtocolError:
            return None

    def let_in(self, *, own_nodes_only: bool) -> None:
        """Whether only nodes of our own participant are let in: revocations may have been lost."""
        self.registry.let_in(own_nodes_only=own_nodes_only)
        self._trust()

    def start(self) -> None:
        """Say who is let in."""
        self._trust()

    def _trust(self) -> None:
        keys = self.registry.keys()
        if keys != self._trusted:
            self._trusted = keys
            called = {peer: self.registry.keys_of(peer) for peer in self._peers}
            self._outbox.append(Trust(keys=keys, server_keys=called))

    def to_cut(self) -> list[str]:
        """Callers whose key counts no more: they are told, and their links end."""
        trusted = dict.fromkeys(self._trusted or ())
        gone = {peer: self.registry.denies(key) for peer, key in self._bound.items() if key not in trusted}
        for peer, denied in gone.items():
            del self._bound[peer]
            code, hint = "E_REVOKED", "get a new key"
            text = "the key of this caller was revoked, or its certificate has expired"
            if denied:
                code, hint, text = (
                    "E_DENIED",
                    "ask the owner of this node",
                    f"participant {denied!r} is cut off here",
                )
                self._count(code)
            self._outbox.send(peer, Refuse(code=code, text=text, hint=hint))
            self._outbox.append(CutPeer(peer=peer, shun=True))
            why = {"participant": denied} if denied else {}
            self._outbox.report("warning", "cut off" if denied else "key counts no more", peer=peer, **why)
        return list(gone)
