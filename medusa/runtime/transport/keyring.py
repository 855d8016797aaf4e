"""The keys of a transport's sockets: whom we let in, whom we call with which, whose connection is whose.

Who is at the other end is the key that CURVE authenticated, asked anew for each message. A routing id
says nothing: who has a valid key may claim any. A key that counts no more is refused at the door from
then on, and its open connections are cut: libzmq asks only when one begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import zmq

from medusa.nodes.config.settings import Limits
from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport.caller_ends import CallerEnds
from medusa.runtime.transport.connection import Connection
from medusa.runtime.transport.link_events import LinkRefused
from medusa.runtime.transport.receive_meter import ReceiveMeter
from medusa.runtime.transport.refusals import Refusals
from medusa.runtime.transport.zap import ZapHandler

__all__ = ["FAILURES", "TransportKeyring", "refusal_of"]

PARTING_S = 0.1
"""Between the end of a link and that of its connection: what we still had to say goes out."""

MECHANISM_DIFFERS = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH, which pyzmq has no name for."""

FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
"""Events of a caller: somebody answers, and no link comes of it. libzmq would try again for ever."""


class TransportKeyring:
    """Keys of one transport; its thread uses it.

    Args:
        own: of this node or client.
        server_keys: peer -> keys under which we call it, the likeliest first.
        limits: of who calls.
        trusted: keys that are let in from the beginning, until ``trust`` says otherwise.
    """

    def __init__(
        self,
        own: CurveKey,
        server_keys: Mapping[str, Sequence[str]],
        limits: Limits | None = None,
        trusted: Iterable[str] = (),
    ) -> None:
        self.own = own
        self._limits = limits
        self._server_keys = {peer: tuple(keys) for peer, keys in server_keys.items()}
        self._tried: dict[str, int] = {}
        self._allowed = frozenset(trusted)
        self._door: ZapHandler | None = None
        self._links: dict[str, tuple[str, Connection | None]] = {}
        """Link of a caller -> its key, and the connection that brought its first message."""
        self._parting: list[tuple[float, Connection]] = []

    # --- sockets ----------------------------------------------------------------------------------

    def listen(
        self,
        context: zmq.Context[Any],
        router: zmq.Socket[bytes],
        meter: ReceiveMeter,
        refusals: Refusals,
        ends: CallerEnds,
    ) -> None:
        """Lock a socket that isn't bound yet: only who is trusted gets in."""
        self.own.lock(router, server_key=None)
        self._door = ZapHandler(context, router, self._limits, meter=meter, refusals=refusals, ends=ends)
        self._door.trust(self._allowed)

    def call(self, peer: str, dealer: zmq.Socket[bytes]) -> str:
        """Lock a socket that isn't connected yet; the key that it calls, empty where there is none."""
        keys = self._server_keys.get(peer, ())
        if not keys:
            return ""
        key = keys[self._tried.get(peer, 0) % len(keys)]
        self.own.lock(dealer, server_key=key)
        return key

    def failed(self, peer: str) -> None:
        """The peer doesn't have the key that was called: the next call is for another of its keys."""
        self._tried[peer] = self._tried.get(peer, 0) + 1

    def close(self) -> None:
        """Before the sockets are closed."""
        if self._door is not None:
            self._door.close()

    # --- who it is --------------------------------------------------------------------------------

    def key_of(self, frame: zmq.Frame) -> str:
        """Whose key was authenticated for the message that this frame is of; empty, nobody's, without one."""
        try:
            return str(frame.get("User-Id"))
        except zmq.ZMQError:
            return ""

    def begins(self, link: str, key: str, connection: Connection | None) -> None:
        """A link of a caller begins with a message of this connection; None: it is closed already."""
        self._links[link] = (key, connection)

    def key_at(self, link: str) -> str:
        """The key that began this link."""
        return self._links[link][0]

    def ends(self, link: str, *, cut: bool) -> None:
        """A link of a caller is over.

        Args:
            cut: so is its connection, once what we had to say had time to go out.
        """
        _, connection = self._links.pop(link, ("", None))
        if cut and connection is not None:
            self._parting.append((time.monotonic() + PARTING_S, connection))

    # --- who counts -------------------------------------------------------------------------------

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> list[str]:
        """These keys are let in, no others; open connections of others end within ``PARTING_S``.

        Returns:
            peers whose keys under which they are called have changed.
        """
        self._allowed = frozenset(keys)
        if self._door is not None:
            self._door.trust(self._allowed)
        at = time.monotonic() + PARTING_S
        for key, connection in self._links.values():
            if key not in self._allowed and connection is not None:
                self._parting.append((at, connection))
        before, self._server_keys = self._server_keys, {p: tuple(k) for p, k in server_keys.items()}
        return [peer for peer in {**before, **self._server_keys} if before.get(peer) != self.keys_of(peer)]

    def keys_of(self, peer: str) -> tuple[str, ...] | None:
        """Those under which a peer is called."""
        return self._server_keys.get(peer)

    def part(self) -> float:
        """End the connections that are due; seconds until the next one."""
        now = time.monotonic()
        for _, connection in (due := [each for each in self._parting if each[0] <= now]):
            connection.cut()
        if due:
            self._parting = [each for each in self._parting if each[0] > now]
        return min((at - now for at, _ in self._parting), default=3600.0)

    def counts(self) -> dict[str, int] | None:
        """Connections that were accepted and let in, and refusals by reason; None: nobody can come in."""
        return None if self._door is None else self._door.counts()


def refusal_of(peer: str, event: int, value: int, *, keyed: bool) -> LinkRefused:
    """What one of ``FAILURES`` means.

    Args:
        keyed: we called with a key.
    """
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        hint = "its configuration must name our public key; or that key was revoked"
        return LinkRefused(peer, "link.not_admitted", "it doesn't admit this key", hint)
    if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == MECHANISM_DIFFERS:
        if keyed:
            return LinkRefused(
                peer, "link.keys", "it has no keys, and was called with one", "call without keys"
            )
        why = "it speaks only with those who have a key"
        return LinkRefused(peer, "link.keys", why, "give key= and server_key=")
    why = "it ends the connection during the handshake"
    if not keyed:
        return LinkRefused(
            peer, "link.handshake", why, "if it has keys: give key= and server_key=", said=False
        )
    hint = "its key is another than the server key given; or it has too many connections from here"
    return LinkRefused(peer, "link.server_key", why, hint, said=False)
