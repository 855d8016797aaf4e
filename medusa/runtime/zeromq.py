"""Frames between processes over ZeroMQ: one ROUTER that listens, one DEALER per node we call.

A *link* here is one connection and has a name: that of the peer for those we called, ``in-7`` for
those that called us. Who is there is the key that CURVE authenticated, which comes with each message;
without keys, what the peer says in its first one. Neither the name of the link nor ZeroMQ's routing id
says anything about it.

ZeroMQ queues little (low marks, small buffers), so that what waits, waits where credits and
weights can still order it. It loses what was in its queues when a connection breaks; a broken
connection is therefore replaced by a fresh one, its leftovers die with it, and the links above
resend. Measured, with the reasons for each option: docs/nodes.md.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from medusa.errors import ConfigError, LinkError
from medusa.mind.settings import check_address
from medusa.runtime.keyring import FAILURES, Keyring, refusal_of
from medusa.runtime.keys import CurveKey
from medusa.runtime.link_events import Arrival, Event, LinkDown, LinkUp
from medusa.runtime.sockets import bind, open_socket

__all__ = ["Arrival", "LinkDown", "LinkUp", "Transport"]

LIBZMQ_MIN = (4, 3, 3)
"""Older ones can be stopped by a stranger before any handshake (CVE-2020-15166)."""

PARTS_MAX = 3

ROUND_MAX = 64
"""Messages taken from one socket before the others have their turn."""

BACKLOG_MAX = 4096
"""Messages that wait for a full connection. Credits keep it far below; beyond it the link is cut."""

CALLERS_MAX = 1024
SHUNNED_MAX = 4096
RETRY_MS = 2
CALL_AGAIN_S = 0.1
"""Between the end of a connection and the next call, so that a refusal is no busy loop."""

CALL_AGAIN_MAX_S = 2.0
"""The same after several handshakes in a row that failed."""


@dataclass(slots=True)
class _Called:
    """A node we call: its DEALER, its monitor, what waits."""

    address: str
    dealer: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    key: str = ""
    up: bool = False
    backlog: deque[Sequence[Any]] = field(default_factory=deque)


class Transport:
    """All sockets of a process. One thread uses it; ``wake`` may be called from any.

    Args:
        key: ours. With it all sockets speak CURVE: nobody is let in until ``trust``, and a peer is
            called only under a key of its own. Without it the node listens on this machine alone.
        server_keys: peer -> keys under which it is called.

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
    ) -> None:
        if zmq.zmq_version_info() < LIBZMQ_MIN:
            raise LinkError(
                f"libzmq {zmq.zmq_version()} is too old",
                hint="install libzmq 4.3.3 or later",
                code="link.libzmq",
            )
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._called: dict[str, _Called] = {}
        self._callers: OrderedDict[bytes, str] = OrderedDict()
        self._routes: dict[str, bytes] = {}
        self._waiting: dict[str, deque[Sequence[Any]]] = {}
        self._again: dict[str, tuple[float, str]] = {}
        self._failures: dict[str, int] = {}
        self._keyring = None if key is None else Keyring(key, server_keys or {})
        self._shunned: OrderedDict[bytes, None] = OrderedDict()
        self._calls = 0
        self._pending: list[Event] = []
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
            self._keyring.listen(self._context, router)
        self.endpoint = bind(router, address)
        self._poller.register(router, zmq.POLLIN)

    def call(self, peer: str, address: str) -> None:
        """Connect to ``address``, and again whenever the connection breaks, until closed."""
        dealer = open_socket(self._context, zmq.DEALER)
        dealer.setsockopt(zmq.IMMEDIATE, 1)
        key = "" if self._keyring is None else self._keyring.call(peer, dealer)
        if self._keyring is not None and not key:
            dealer.close(linger=0)
            self._call_later(peer, address)
            return
        monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | FAILURES)
        try:
            dealer.connect(address)
        except zmq.ZMQError as error:
            self._discard(dealer, monitor)
            raise LinkError(f"can't call {address}: {error}", code="link.address") from None
        self._called[peer] = _Called(address, dealer, monitor, key)
        self._poller.register(dealer, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _discard(self, dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
        # In this order: an event that finds its reader gone blocks libzmq's thread with the lock held
        # that disabling wants, and with it everybody who wants the GIL.
        dealer.disable_monitor()
        monitor.close(linger=0)
        dealer.close(linger=0)

    def cut(self, link: str, *, shun: bool = True) -> None:
        """End a link: a called peer is called anew, soon; a caller is forgotten.

        Args:
            shun: hear nothing more from this connection of a caller; else what it says next begins
                a new link.
        """
        if link in self._called:
            called = self._called.pop(link)
            self._poller.unregister(called.dealer)
            self._poller.unregister(called.monitor)
            self._discard(called.dealer, called.monitor)
            self._call_later(link, called.address)
            return
        route = self._routes.get(link)
        if route is None:
            return
        self._forget(route, cut=shun)
        if shun:
            self._shunned[route] = None
            if len(self._shunned) > SHUNNED_MAX:
                self._shunned.popitem(last=False)

    def _call_later(self, peer: str, address: str) -> None:
        wait_s = min(CALL_AGAIN_S * 2 ** min(self._failures.get(peer, 0), 10), CALL_AGAIN_MAX_S)
        self._again[peer] = (time.monotonic() + wait_s, address)

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None:
        """From now on these keys are let in, and these peers called under these; others are cut off.

        Raises:
            LinkError: this transport has no key of its own.
        """
        if self._keyring is None:
            raise LinkError("a transport without keys can trust nobody", code="link.keys")
        for peer in self._keyring.trust(keys, server_keys):
            if peer in self._called and self._called[peer].key not in server_keys.get(peer, ()):
                if self._called[peer].up:
                    self._pending.append(LinkDown(peer))
                self.cut(peer)

    def door(self) -> dict[str, int]:
        """Connections that were accepted and let in, and strangers refused, by reason; empty without keys."""
        return {} if self._keyring is None else self._keyring.counts()

    def calls(self, link: str) -> bool:
        """Whether we call this peer (else it may have called us)."""
        return link in self._called or link in self._again

    def _forget(self, route: bytes, *, cut: bool = False) -> None:
        link = self._callers.pop(route)
        if self._keyring is not None:
            self._keyring.ends(link, cut=cut)
        del self._routes[link]
        self._waiting.pop(link, None)

    def close(self) -> None:
        """Close all sockets; what was not sent is lost."""
        for called in self._called.values():
            self._discard(called.dealer, called.monitor)
        self._called.clear()
        if self._keyring is not None:
            self._keyring.close()
        if self._router is not None:
            self._router.close(linger=0)
            self._router = None
        self._wake_in.close()
        self._wake_out.close()
        self._context.destroy(linger=0)

    # --- sending --------------------------------------------------------------------------

    def send(self, link: str, frames: Sequence[Any]) -> None:
        """Send, or queue while the connection is full; to a link that is gone it is lost."""
        if link in self._called:
            called = self._called[link]
            if called.backlog or not self._try(called.dealer, frames):
                self._queue(link, called.backlog, frames)
        elif link in self._routes:
            waiting = self._waiting.get(link)
            if waiting or self._to_caller(link, frames) is False:
                self._queue(link, self._waiting.setdefault(link, deque()), frames)

    def _queue(self, link: str, backlog: deque[Sequence[Any]], frames: Sequence[Any]) -> None:
        if link in self._called and not self._called[link].up:
            return  # Nothing is kept for a connection that doesn't stand.
        backlog.append(frames)
        if len(backlog) > BACKLOG_MAX:
            self._pending.append(LinkDown(link))
            self.cut(link)

    def _try(self, target: zmq.Socket[bytes], frames: Sequence[Any]) -> bool:
        try:
            target.send_multipart(frames, zmq.DONTWAIT, copy=_small(frames))
        except zmq.Again:
            return False
        return True

    def _to_caller(self, link: str, frames: Sequence[Any]) -> bool | None:
        """True: sent; False: full; None: gone."""
        assert self._router is not None
        route = self._routes[link]
        try:
            return self._try(self._router, [route, *frames])
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
        self._forget(route)
        self._pending.append(LinkDown(link))
        return None

    def _flush(self) -> bool:
        """Try again what waits; whether something still does."""
        for called in self._called.values():
            while called.backlog and self._try(called.dealer, called.backlog[0]):
                called.backlog.popleft()
        for link in list(self._waiting):
            backlog = self._waiting[link]
            while backlog:
                sent = self._to_caller(link, backlog[0])
                if not sent:
                    break
                backlog.popleft()
            if not backlog:
                self._waiting.pop(link, None)
        return bool(self._waiting) or any(called.backlog for called in self._called.values())

    # --- receiving ------------------------------------------------------------------------

    def wake(self) -> None:
        """Make ``wait`` return; from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"\0")

    def wait(self, timeout_ms: int) -> list[Event]:
        """What happened, in order per link; empty after ``timeout_ms`` or ``wake``."""
        if self._flush():
            timeout_ms = min(timeout_ms, RETRY_MS)
        if self._pending:
            timeout_ms = 0
        timeout_ms = min(timeout_ms, self._call_again())
        if self._keyring is not None:
            timeout_ms = min(timeout_ms, 1 + int(self._keyring.part() * 1000))
            self._pending += self._keyring.told()
        ready = dict(self._poller.poll(timeout_ms))
        out = list(self._pending)
        self._pending.clear()
        if ready.pop(self._wake_in.fileno(), 0):
            with contextlib.suppress(BlockingIOError):
                while self._wake_in.recv(4096):
                    pass
        for peer in list(self._called):
            called = self._called[peer]
            if called.dealer in ready:
                self._read(called.dealer, out, peer)
            if called.monitor in ready:
                self._monitor(peer, called, out)
        if self._router is not None and self._router in ready:
            self._read(self._router, out, None)
        return out

    def _call_again(self) -> int:
        """Make the calls that are due; milliseconds until the next one."""
        now = time.monotonic()
        for peer, (at, address) in list(self._again.items()):
            if now >= at:
                del self._again[peer]
                self.call(peer, address)
        nearest = min((at for at, _ in self._again.values()), default=now + 3600)
        return max(1, round((nearest - now) * 1000))

    def _monitor(self, peer: str, called: _Called, out: list[Event]) -> None:
        while called.monitor.poll(0):
            found = parse_monitor_message(called.monitor.recv_multipart())
            event = found["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                called.up = True
                self._failures.pop(peer, None)
                out.append(LinkUp(peer))
            elif event & FAILURES:
                self._failures[peer] = self._failures.get(peer, 0) + 1
                refused = refusal_of(peer, event, found["value"], keyed=bool(called.key))
                if self._keyring is not None and not refused.said:
                    self._keyring.failed(peer)
                out.append(refused)
            elif event == zmq.EVENT_DISCONNECTED:
                self.cut(peer)
                if called.up:
                    out.append(LinkDown(peer))
                return

    def _read(self, source: zmq.Socket[bytes], out: list[Event], peer: str | None) -> None:
        for _ in range(ROUND_MAX):
            try:
                parts = source.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            if peer is None:
                route, parts = parts[0].bytes, parts[1:]
                key = "" if self._keyring is None else self._keyring.key_of(parts[-1])
                link = self._caller(route, key, parts[-1])
            else:
                link, key = peer, self._called[peer].key
                if not self._called[peer].up:
                    # The peer's first words may overtake the event that says the link is up.
                    self._called[peer].up = True
            if not link or not 1 <= len(parts) <= PARTS_MAX:
                self.refused += 1
                continue
            out.append(Arrival(link, tuple(memoryview(part.buffer).toreadonly() for part in parts), key))

    def _caller(self, route: bytes, key: str, frame: zmq.Frame) -> str:
        """The name of the link with this route and key; empty for one that was cut."""
        if route in self._shunned:
            return ""
        link = self._callers.get(route)
        if link is not None and self._keyring is not None and self._keyring.key_at(link) != key:
            self._forget(route)  # It is gone, and somebody else took its routing id.
            self._pending.append(LinkDown(link))
            link = None
        if link is None:
            if len(self._callers) >= CALLERS_MAX:
                return ""
            self._calls += 1
            link = f"in-{self._calls}"
            self._callers[route] = link
            self._routes[link] = route
            if self._keyring is not None:
                self._keyring.begins(link, key, frame)
        return link


def _small(frames: Sequence[Any]) -> bool:
    """Copying is cheaper than telling ZeroMQ when a buffer is free again, below some 64 KiB."""
    return sum(memoryview(frame).nbytes for frame in frames) < 65536
