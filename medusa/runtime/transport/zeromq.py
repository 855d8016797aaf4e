"""Frames between processes over ZeroMQ: one ROUTER that listens, DEALERs to the nodes we call.

A *link* has a name: that of the peer for those we called, ``in-7`` for a connection of one that called
us. Who is there is the key that CURVE authenticated, which comes with each message; without keys, what
the peer says in its first one. Neither the name of the link nor ZeroMQ's routing id says anything about it.

We call a node by one connection for control, *lane* 0, and by others for streams, lanes 1 and up, so
that streams hold up no heartbeat, acknowledgement or command. Lanes stand as long as the control
connection does. One that breaks takes along only the streams on it.

ZeroMQ gets little at a time (``sending``), so that what waits, waits where credits and weights can
still order it. It loses what was in its queues when a connection breaks; a broken connection is
therefore replaced by a fresh one, its leftovers die with it, and the links above resend. Measured, with
the reasons for each option: docs/nodes.md.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import zmq

from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import Limits, check_address
from medusa.runtime.keys.key_files import CurveKey
from medusa.runtime.transport.caller_ends import CallerEnds
from medusa.runtime.transport.callers import Callers
from medusa.runtime.transport.connection import Connection, number_of, told_by
from medusa.runtime.transport.keyring import FAILURES, TransportKeyring, refusal_of
from medusa.runtime.transport.link_events import Arrival, Event, LinkDown, LinkUp
from medusa.runtime.transport.multipart_receive import DroppedParts
from medusa.runtime.transport.outgoing import OutgoingConnection
from medusa.runtime.transport.receive_meter import Overrun, ReceiveMeter
from medusa.runtime.transport.refusals import ENDED, Refusals
from medusa.runtime.transport.round_size import RoundSize
from medusa.runtime.transport.send_queue import Frames, SendQueue, hand
from medusa.runtime.transport.sockets import bind, open_context, open_socket
from medusa.runtime.transport.zap import ZapHandler

__all__ = ["Arrival", "LinkDown", "LinkUp", "Transport"]

PARTS_MAX = 3

BACKLOG_MAX = 4096
"""Streams, and messages of no stream, that wait for a full connection; beyond it the link is cut. What
waits of a stream its credit bounds."""

_EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | FAILURES

RETRY_MS = 1


class Transport:
    """All sockets of a process. One thread uses it; ``wake`` may be called from any.

    Args:
        key: ours. With it all sockets speak CURVE: nobody but ``trusted`` is let in until ``trust``, and
            a peer is called only under a key of its own. Without it the node listens on this machine alone.
        server_keys: peer -> keys under which it is called.
        lanes: connections for streams to each peer, beside the one for control; 0: one carries all.
        striped: the frames of a stream go round over all lanes; else a stream keeps to one.
        limits: of who calls, where there are keys.
        trusted: keys that are let in before ``trust`` is called.

    Raises:
        LinkError: the address is taken or not allowed, or libzmq is too old.
    """

    def __init__(
        self,
        *,
        listen: str | None,
        peers: Mapping[str, str] | None = None,
        key: CurveKey | None = None,
        server_keys: Mapping[str, Sequence[str]] | None = None,
        lanes: int = 0,
        striped: bool = False,
        limits: Limits | None = None,
        trusted: Iterable[str] = (),
    ) -> None:
        self._context = open_context()
        self._poller = zmq.Poller()
        self._called: dict[str, OutgoingConnection] = {}
        self._sockets: dict[Any, OutgoingConnection] = {}
        self._silent: dict[OutgoingConnection, None] = {}
        """Those to call again."""
        self._ends = CallerEnds(self.wake)
        self._callers = Callers(self._ends)
        self._waiting: dict[str, SendQueue] = {}
        """Of callers."""
        self._full: dict[SendQueue, str] = {}
        """What waits, and for which link."""
        self._lanes, self._striped = lanes, striped
        self._keyring = None if key is None else TransportKeyring(key, server_keys or {}, limits, trusted)
        self._pending: list[Event] = []
        self._refusals = Refusals()
        self._meter = ReceiveMeter(self.wake, keyed=key is not None)
        self._parts = DroppedParts()
        self._round = RoundSize()
        self._door: ZapHandler | None = None
        self.refused = 0
        """Messages dropped unread: too many frames, or from a link that was cut."""
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._poller.register(self._wake_in.fileno(), zmq.POLLIN)
        self._router: zmq.Socket[bytes] | None = None
        self.endpoint = ""
        try:
            if listen is not None:
                self._listen(listen)
            for peer, address in (peers or {}).items():
                self.call(peer, address)
        except BaseException:
            self.close()
            raise

    # --- sockets --------------------------------------------------------------------------

    def _listen(self, address: str) -> None:
        try:
            check_address(address, bind=True, keyed=self._keyring is not None)
        except ConfigError as error:
            raise LinkError(error.message, hint=error.hint, code="link.listen") from None
        self._router = router = open_socket(self._context, zmq.ROUTER)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if self._keyring is not None:
            self._keyring.listen(self._context, router, self._meter, self._refusals, self._ends)
        else:
            met, refused, ends = self._meter, self._refusals, self._ends
            self._door = ZapHandler(
                self._context, router, meter=met, refusals=refused, ends=ends, keyed=False
            )
        self.endpoint = bind(router, address)
        self._poller.register(router, zmq.POLLIN)

    def call(self, peer: str, address: str) -> None:
        """Connect to ``address``, and again whenever the connection breaks, until closed."""
        called = self._called[peer] = OutgoingConnection(peer, address)
        called.lanes = [OutgoingConnection(peer, address, lane) for lane in range(1, self._lanes + 1)]
        self._connect(called)

    def call_at(self, peer: str, address: str) -> None:
        """The peer is at another address: call it there."""
        called = self._called[peer]
        self._hang_up(called)
        called.call_at(address)
        self._call_later(called)

    def _connect(self, called: OutgoingConnection) -> None:
        dealer = open_socket(self._context, zmq.DEALER)
        dealer.setsockopt(zmq.IMMEDIATE, 1)
        key = "" if self._keyring is None else self._keyring.call(called.peer, dealer)
        if self._keyring is not None and not key:
            dealer.close(linger=0)
            self._call_later(called)
            return
        called.connect(dealer, key, _EVENTS)
        for each in called.sockets():
            self._sockets[each] = called
            self._poller.register(each, zmq.POLLIN)

    def _hang_up(self, called: OutgoingConnection) -> None:
        """End a connection that we called; those for streams end with the one for control."""
        for each in called.sockets():
            del self._sockets[each]
            self._poller.unregister(each)
        self._parts.forget(called.dealer)
        called.hang_up()
        self._full.pop(called.waiting, None)
        self._silent.pop(called, None)
        for lane in called.lanes:
            self._hang_up(lane)

    def cut(self, link: str, *, shun: bool = True) -> None:
        """End a link: a called peer is called anew, soon; a caller is forgotten.

        Args:
            shun: hear nothing more from this connection of a caller; else what it says next begins
                a new link.
        """
        if link in self._called:
            self._hang_up(self._called[link])
            self._call_later(self._called[link])
            return
        route = self._callers.route(link)
        if route is None:
            return
        self._forget(link, cut=shun)
        if shun:
            self._callers.shun(route)

    def _call_later(self, called: OutgoingConnection) -> None:
        called.call_again_after(time.monotonic())
        self._silent[called] = None

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None:
        """From now on these keys are let in, and these peers called under these; others are cut off.

        Raises:
            LinkError: this transport has no key of its own.
        """
        if self._keyring is None:
            raise LinkError("a transport without keys can trust nobody", code="link.keys")
        for peer in self._keyring.trust(keys, server_keys):
            called = self._called.get(peer)
            if called is None or called.dealer is None or called.key in server_keys.get(peer, ()):
                continue
            if called.up:
                self._pending.append(LinkDown(peer))
            self.cut(peer)

    def door(self) -> dict[str, int]:
        """Connections that were accepted and let in (with keys); refused or ended ones, by reason."""
        counts = self._keyring.counts() if self._keyring is not None else None
        return self._refusals.counts() if counts is None else counts

    def calls(self, link: str) -> bool:
        """Whether we call this peer (else it may have called us)."""
        return link in self._called

    def _forget(self, link: str, *, cut: bool = False) -> None:
        self._callers.forget(link)
        if self._keyring is not None:
            self._keyring.ends(link, cut=cut)
        waiting = self._waiting.pop(link, None)
        if waiting is not None:
            self._full.pop(waiting, None)

    def close(self) -> None:
        """Close all sockets; what was not sent is lost."""
        for called in self._called.values():
            self._hang_up(called)
        self._called.clear()
        self._silent.clear()
        if self._keyring is not None:
            self._keyring.close()
        if self._door is not None:
            self._door.close()
        if self._router is not None:
            self._router.close(linger=0)
            self._router = None
        self._wake_in.close()
        self._wake_out.close()
        self._context.destroy(linger=0)

    # --- sending --------------------------------------------------------------------------

    def send(
        self, link: str, frames: Frames, *, stream: str = "", weight: int = 1, frame: int | None = None
    ) -> None:
        """Send, or queue while the connection is full; to a link that is gone it is lost.

        Args:
            stream: frames of one keep their order, and share the connection by ``weight``; empty: goes
                before all streams, and in order with other such frames.
            frame: number of the frame in its attachment: with 0 one begins, and what waits of the
                stream is wanted no more; None: it concerns all frames before it.
        """
        if link in self._called:
            called = self._called[link]
            if frame == 0:
                for each in called.lanes_of(stream, None, striped=self._striped):
                    each.waiting.drop(stream)
            for each in called.lanes_of(stream, frame, striped=self._striped):
                each.send(frames, stream, weight)
                self._note(link, each.waiting, ready=each.ready)
        elif link in self._callers:
            waiting = self._waiting.get(link)
            if waiting is None:
                waiting = self._waiting[link] = SendQueue(partial(self._to_caller, link))
            if frame == 0:
                waiting.drop(stream)
            if waiting.send(frames, stream, weight):
                self._note(link, waiting)
            else:
                self._gone(link)

    def introduce(self, link: str, lane: int, frames: Frames) -> None:
        """Say these first words on a data lane that has come up; what waits for it follows."""
        called = self._called[link].lanes[lane - 1]
        if called.up:
            called.introduce(frames)
            self._note(link, called.waiting)

    def _note(self, link: str, waiting: SendQueue, *, ready: bool = True) -> None:
        """Look again at what waits, where there is a connection; where it is too much, the link is cut."""
        if waiting and ready:
            self._full[waiting] = link
        else:
            self._full.pop(waiting, None)
        if waiting.heads > BACKLOG_MAX:
            self._pending.append(LinkDown(link))
            self.cut(link)

    def _to_caller(self, link: str, frames: Frames) -> bool:
        """False: the connection is gone."""
        route = self._callers.route(link)
        assert self._router is not None
        assert route is not None
        try:
            hand(self._router, [route, *frames])
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def _gone(self, link: str) -> None:
        self._forget(link)
        self._pending.append(LinkDown(link))

    def _flush(self) -> bool:
        """Try again what waits; whether something still does."""
        for waiting, link in list(self._full.items()):
            if waiting in self._full:
                if not waiting.flush():
                    self._gone(link)
                elif not waiting:
                    del self._full[waiting]
        return bool(self._full)

    # --- receiving ------------------------------------------------------------------------

    def wake(self) -> None:
        """Make ``wait`` return; from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"\0")

    def handled(self) -> None:
        """What ``wait`` gave last has been handled; who does other work between that and the next call says
        so, or rounds are shorter for it."""
        self._round.handled(time.monotonic())

    def wait(self, timeout_ms: int) -> list[Event]:
        """What happened, in order per link; empty after ``timeout_ms``. Handle it before the next call."""
        self.handled()
        if self._flush():
            timeout_ms = min(timeout_ms, RETRY_MS)
        timeout_ms = min(timeout_ms, self._call_again())
        if self._keyring is not None:
            timeout_ms = min(timeout_ms, 1 + int(self._keyring.part() * 1000))
        self._measure()
        self._pending += self._refusals.told()
        since_s = time.monotonic()
        if self._callers.some_end(since_s):
            timeout_ms = min(timeout_ms, RETRY_MS)
        ready = dict(self._poller.poll(0 if self._pending else timeout_ms))
        out = list(self._pending)
        self._pending.clear()
        if ready.pop(self._wake_in.fileno(), 0):
            with contextlib.suppress(BlockingIOError):
                while self._wake_in.recv(4096):
                    pass
        for called in {self._sockets[each]: None for each in ready if each in self._sockets}:
            if called.dealer is not None and called.dealer in ready:
                self._read(called.dealer, out, called)
            if called.monitor is not None and called.monitor in ready:
                self._monitor(called, out)
        drained = self._router is None or self._router not in ready or self._read(self._router, out, None)
        for link in self._callers.over(since_s, drained=drained):
            self._forget(link)
            out.append(LinkDown(link))
        self._meter.turned(since_s, drained=drained)
        self._round.gave(time.monotonic(), len(out))
        return out

    def _measure(self) -> None:
        """Tell what the meter ended; who has no door measures here."""
        if self._router is None:
            self._meter.check(time.monotonic())
        for overrun in self._meter.ended():
            self._overran(overrun)

    def _overran(self, overrun: Overrun) -> None:
        over = overrun.connection  # Its descriptor alone may have been another's.
        if overrun.called:
            link = next((each.peer for each in self._sockets.values() if each.number == over.number), "")
        else:
            link = next(iter(self._callers.by([over])), "")
        self._ended("unfinished message", over.address, link)
        if link in self._callers or (link in self._called and self._called[link].up):
            self._pending.append(LinkDown(link))
        self.cut(link)

    def _ended(self, why: str, address: str, link: str) -> None:
        """Count and tell that a connection was ended."""
        key = "" if self._keyring is None or link not in self._callers else self._keyring.key_at(link)
        self._refusals.note(why, address, key, what=ENDED)

    def _call_again(self) -> int:
        """Make the calls that are due; milliseconds until the next one."""
        now = time.monotonic()
        for called in list(self._silent):
            if now >= called.again_s:
                del self._silent[called]
                self._connect(called)
        nearest = min((called.again_s for called in self._silent), default=now + 3600)
        return max(1, round((nearest - now) * 1000))

    def _is_up(self, called: OutgoingConnection) -> None:
        if not called.up:
            called.stand()
            for lane in called.lanes:
                self._connect(lane)

    def _monitor(self, called: OutgoingConnection, out: list[Event]) -> None:
        peer, monitor = called.peer, called.monitor
        while monitor is not None and monitor.poll(0):
            event, value = told_by(monitor.recv_multipart())
            if event == zmq.EVENT_CONNECTED:
                called.reached(value)
                if (connection := Connection.of(value)) is not None:
                    self._meter.opened(time.monotonic(), connection, called=True)
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_up(called)
                out.append(LinkUp(peer, called.lane))
            elif event & FAILURES:
                called.fail()
                refused = refusal_of(peer, event, value, keyed=bool(called.key))
                if self._keyring is not None and not refused.said and called.lane == 0:
                    self._keyring.failed(peer)
                out.append(refused)
            elif event == zmq.EVENT_DISCONNECTED:
                if called.up:
                    out.append(LinkDown(peer, called.lane))
                self._hang_up(called)
                self._call_later(called)
                return

    def _read(self, source: zmq.Socket[bytes], out: list[Event], called: OutgoingConnection | None) -> bool:
        """Take messages of one socket; whether nothing is left there."""
        most = PARTS_MAX + (called is None)  # A caller's routing id comes before.
        if not self._parts.dropped(source):
            return False
        for _ in range(self._round.most):
            parts = self._parts.take(source, most)
            if parts is None:
                return True
            number = number_of(parts[-1])
            self._meter.took(number, called=called is not None)
            if called is None:
                route, parts = parts[0].bytes, parts[1:]
                key = "" if self._keyring is None else self._keyring.key_of(parts[-1])
                link = self._caller(route, key, parts[-1])
            else:
                link, key = called.peer, called.key
                # The peer's first words may overtake the event that says the link is up.
                self._is_up(called)
            if len(parts) > PARTS_MAX:
                self.refused += 1
                self._too_many(link, number, out)
                if called is not None:
                    return True
                if not self._parts.dropped(source):
                    return False
            elif link:
                out.append(Arrival(link, tuple(memoryview(part.buffer).toreadonly() for part in parts), key))
            else:
                self.refused += 1
        return False

    def _too_many(self, link: str, number: int, out: list[Event]) -> None:
        """A message of more parts than any of ours: its connection ends at once."""
        if (connection := Connection.of(number)) is not None:
            connection.cut(reset=True)
        self._ended("too many parts", connection.address if connection is not None else "", link)
        if link:
            self.cut(link)
            out.append(LinkDown(link))

    def _caller(self, route: bytes, key: str, frame: zmq.Frame) -> str:
        """The name of the link with this route and key; empty for one that was cut."""
        if self._callers.shuns(route):
            return ""
        link = self._callers.at(route)
        if link is not None and self._keyring is not None and self._keyring.key_at(link) != key:
            self._forget(link)  # It is gone, and somebody else took its routing id.
            self._pending.append(LinkDown(link))
            link = None
        if link is None:
            if self._callers.full:
                return ""
            connection = Connection.that_brought(frame)
            link = self._callers.begin(route, connection)
            if self._keyring is not None:
                self._keyring.begins(link, key, connection)
        return link
