"""The door of a node: a thread that says who may connect (ZAP, RFC 27), and how many from where.

libzmq asks it during each CURVE handshake, before a byte of the caller reaches the node. It answers
from a set of keys that the loop replaces and never changes, so no lock is shared and a busy loop keeps
nobody waiting. The same thread hears of every connection as it is accepted and shuts those of an
address that has too many, before they cost a handshake. Of those that have not been heard of yet, over all
addresses, it keeps so many: the oldest makes room. It also measures what is held of each (``receive_meter``).

The socket asks for the domain ``DOMAIN`` and insists on an answer: without this thread nobody gets in. A
node without keys has the thread for the measuring alone.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

import zmq
from zmq.utils import z85

from medusa.nodes.config.settings import Limits
from medusa.runtime.transport.caller_ends import CallerEnds
from medusa.runtime.transport.connection import Connection, told_by
from medusa.runtime.transport.receive_meter import ReceiveMeter
from medusa.runtime.transport.refusals import Refusals

__all__ = ["DOMAIN", "ZapHandler"]

DOMAIN = b"medusa"
"""libzmq refuses everybody where the domain of the socket is not the one that is answered for."""

ENDPOINT = "inproc://zeromq.zap.01"
MONITOR = "inproc://medusa.door"

ADDRESSES_MAX = 4096
"""Addresses whose calls are counted; beyond it the one that has been silent longest is forgotten."""

_EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
)


class ZapHandler:
    """Who may connect to one listening socket of a context. Nobody, until ``trust``.

    Args:
        router: not bound yet.
        limits: of connections from one address.
        meter: told of every connection, and asked to check.
        refusals: told of every refusal.
        ends: told of every connection, and of its end.
        keyed: with keys; else everybody may connect, and all that is done is to measure.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        router: zmq.Socket[bytes],
        limits: Limits | None = None,
        *,
        meter: ReceiveMeter,
        refusals: Refusals,
        ends: CallerEnds,
        keyed: bool = True,
    ) -> None:
        self._allowed: frozenset[str] = frozenset()
        self._router = router
        self._limits = limits or Limits()
        self._meter = meter
        self._refusals = refusals
        self._ends = ends
        self._keyed = keyed
        self._open: dict[int, str] = {}
        """Descriptor -> address of the peer."""
        self._unheard: dict[int, Connection] = {}
        """Those of which no message has come, the oldest first; some of them have spoken meanwhile."""
        self._per_address: Counter[str] = Counter()
        self._calls: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Address -> (calls it has left, at this time)."""
        self._accepted = self._let_in = 0
        self._answers: zmq.Socket[Any] | None = None
        if keyed:
            self._answers = context.socket(zmq.REP)
            self._answers.bind(ENDPOINT)
            router.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
            router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        # Before the socket is bound: what is missed now is never heard of again.
        router.monitor(MONITOR, _EVENTS)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.RCVHWM, 0)  # A full queue would hold up libzmq's own thread.
        self._events.connect(MONITOR)
        self._stop_in, self._stop_out = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="medusa-door", daemon=True)
        self._thread.start()

    def trust(self, keys: Iterable[str]) -> None:
        """From now on these keys are let in, and no others. Any thread may call."""
        self._allowed = frozenset(keys)

    def counts(self) -> dict[str, int]:
        """Connections that were ``accepted``, and ``let in``; and those that were refused, by reason.

        What was accepted and neither let in nor refused said nothing that libzmq tells of (it spoke
        another protocol), or is still in its handshake, for at most 2 s.
        """
        return {"accepted": self._accepted, "let in": self._let_in, **self._refusals.counts()}

    def close(self) -> None:
        """End the thread; nobody is let in any more. The socket is closed afterwards."""
        if not self._router.closed:
            self._router.disable_monitor()  # While its events still have a reader.
        with contextlib.suppress(OSError):
            self._stop_out.send(b"\0")
        self._thread.join()
        # Not by the thread: had it ended early, libzmq would wait for a reader of events, and with it
        # all its connections. As it is, they pile up unread, and callers get no answer.
        if self._answers is not None:
            self._answers.close(linger=0)
        self._events.close(linger=0)
        self._stop_in.close()
        self._stop_out.close()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._events, zmq.POLLIN)
        poller.register(self._stop_in.fileno(), zmq.POLLIN)
        if self._answers is not None:
            poller.register(self._answers, zmq.POLLIN)
        while True:
            wait_s = self._meter.wait_s(time.monotonic())
            ready = dict(poller.poll(None if wait_s is None else 1 + int(wait_s * 1000)))
            if self._stop_in.fileno() in ready:
                return
            if self._events in ready:
                self._event(self._events.recv_multipart())
            if self._answers is not None and self._answers in ready:
                self._answers.send_multipart(self._answer(self._answers.recv_multipart()))
            self._meter.check(time.monotonic())

    def _answer(self, asked: list[bytes]) -> list[bytes]:
        """What libzmq hears about one caller: 200 and its key, or 400."""
        version, number = (*asked, b"", b"")[:2]
        why, address, key = "malformed request", "", ""
        if len(asked) == 7 and version == b"1.0":
            _, _, domain, at, _, mechanism, credentials = asked
            # Of ipc libzmq says the process, user and group: that is no address.
            address = "" if at.startswith(b"localhost:") else at.decode("ascii", "replace")[:64]
            if domain != DOMAIN:
                why = "another domain"
            elif mechanism != b"CURVE" or len(credentials) != 32:
                why = "no key"
            else:
                key = z85.encode(credentials).decode()
                if key in self._allowed:
                    return [b"1.0", number, b"200", b"OK", key.encode(), b""]
                why = "unknown key"
        self._refusals.note(why, address, key)
        return [b"1.0", number, b"400", b"not admitted", b"", b""]

    def _event(self, frames: list[bytes]) -> None:
        event, value = told_by(frames)
        if event == zmq.EVENT_ACCEPTED:
            self._came(value)
        elif event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
            self._went(value)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._let_in += 1
        elif event != zmq.EVENT_HANDSHAKE_FAILED_AUTH:  # Else it was refused, and counted, above.
            self._refusals.note("no handshake")

    def _came(self, number: int) -> None:
        self._accepted += 1
        self._left(number)  # Should its end have escaped us.
        connection = Connection.of(number)
        if connection is None:
            self._ends.gone(number)
            return
        self._ends.accepted(connection)
        if not connection.address:
            return  # It comes over ipc: then it is of this machine and user.
        self._meter.opened(time.monotonic(), connection)
        if self._keyed:
            self._check(connection)

    def _check(self, connection: Connection) -> None:
        """Whether one more may come from its address, and of those that nobody has heard of yet."""
        number, address = connection.number, connection.address
        self._open[number] = address
        self._per_address[address] += 1
        if self._per_address[address] > self._limits.connections_per_address:
            connection.cut()
            self._refusals.note("too many connections", address)
        elif not self._may_call(address):
            connection.cut()
            self._refusals.note("too many calls", address)
        else:
            self._unheard[number] = connection
            self._make_room()

    def _make_room(self) -> None:
        """Of those that have said nothing yet, the oldest is ended where there are too many."""
        while len(self._unheard) > self._limits.connections_unheard:
            oldest = self._unheard.pop(next(iter(self._unheard)))
            if not self._meter.has_spoken(oldest.number):
                oldest.cut()
                self._refusals.note("too many unheard connections", oldest.address)

    def _went(self, number: int) -> None:
        self._ends.disconnected(number)
        self._meter.closed(number)
        self._left(number)

    def _left(self, number: int) -> None:
        self._unheard.pop(number, None)
        address = self._open.pop(number, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def _may_call(self, address: str) -> bool:
        """A bucket of calls for each address, that fills with time."""
        now, limits = time.monotonic(), self._limits
        left, at = self._calls.pop(address, (float(limits.calls_at_once), now))
        left = min(left + (now - at) * limits.calls_per_s, limits.calls_at_once)
        may = left >= 1
        self._calls[address] = (left - may, now)
        if len(self._calls) > ADDRESSES_MAX:
            self._calls.popitem(last=False)
        return may
