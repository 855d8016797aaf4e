"""The driver of a client's mind: a thread of its own, so that heartbeats, acknowledgements and
resending go on while the program does other things. It decides nothing."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator

from medusa.errors import LinkError, RemoteProtocolError
from medusa.runtime.zeromq import Arrival, LinkDown, Transport
from medusa.units import duration_text
from medusa.wire import limits
from medusa.wire.client import ClientMind
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Hello, Refuse
from medusa.wire.outbox import Send
from medusa.wire.session import SessionSettings

__all__ = ["ClientLoop", "now_us"]

NODE = "node"
"""The key of our one link."""

WAIT_MAX_MS = 200
SESSION = SessionSettings(heartbeat_us=200_000, timeout_us=1_000_000, hello_us=200_000)


def now_us() -> int:
    """Microseconds that never run back."""
    return time.monotonic_ns() // 1000


class ClientLoop:
    """One client's mind, its connection, and those who wait for either.

    Attributes:
        name: made up, unique; the node knows us by it.
        node: what the node calls itself; empty until it has answered.
        timeout_us: how long calls wait for an answer.
    """

    def __init__(self, address: str, timeout_us: int) -> None:
        self.name = f"client-{secrets.token_hex(8)}"
        self.node = ""
        self.timeout_us = timeout_us
        self._address = address
        self._transport = Transport(listen=None, peers={NODE: address})
        self._changed = threading.Condition()
        self._mind: ClientMind | None = None
        self._failure: LinkError | None = None
        self._closed = False
        self._wake_at_us = 0
        self._said_hello_us = 0
        self._thread = threading.Thread(target=self._drive, name="medusa-client", daemon=True)
        self._thread.start()
        try:
            self.wait(lambda: self._mind is not None and self._mind.up, f"node at {address}", timeout_us)
        except BaseException:
            self.close()
            raise

    # --- the thread -------------------------------------------------------------------------------

    def _drive(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception as error:
            self._fail(LinkError(f"the client stopped: {type(error).__name__}: {error}", code="link.client"))

    def _turn(self) -> None:
        left_us = self._wake_at_us - now_us()
        events = self._transport.wait(max(0, min(-(-left_us // 1000), WAIT_MAX_MS)))
        with self._changed:
            for event in events:
                try:
                    if isinstance(event, Arrival):
                        self._arrived(event)
                    elif isinstance(event, LinkDown) and self._mind is not None:
                        self._mind.lost(now_us())
                except RemoteProtocolError:
                    self._transport.cut(NODE)
                    if self._mind is not None:
                        self._mind.lost(now_us())
                except LinkError as error:
                    self._fail(error)
            self._tick()
            self._changed.notify_all()

    def _arrived(self, event: Arrival) -> None:
        message, payload = decode_frame(event.frames, peer=self.node or NODE)
        if self._mind is not None:
            self._mind.receive(now_us(), message, payload)
        elif isinstance(message, Hello):
            self.node = message.node
            self._mind = ClientMind(self.name, message.node, session=SESSION)
        elif isinstance(message, Refuse):
            raise LinkError(message.text, hint=message.hint, code=message.code)

    def _tick(self) -> None:
        now = now_us()
        if self._mind is None:
            # Who is there? The mind begins when we know.
            if now - self._said_hello_us >= SESSION.hello_us:
                self._said_hello_us = now
                version = limits.PROTOCOL_VERSION
                hello = Hello(version=version, node=self.name, incarnation=0, answer=True, client=True)
                self._transport.send(NODE, encode_frame(hello))
            self._wake_at_us = self._said_hello_us + SESSION.hello_us
            return
        self._mind.tick(now)
        wake_at_us = self._mind.wake_at_us(now)
        self._wake_at_us = now + WAIT_MAX_MS * 1000 if wake_at_us is None else wake_at_us
        for effect in self._mind.outbox.take():
            if isinstance(effect, Send):
                self._transport.send(NODE, encode_frame(effect.message, effect.payload))

    def _fail(self, error: LinkError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    # --- for callers ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def mind(self) -> Iterator[ClientMind]:
        """The mind, for one thread at a time; what it then wants done is done at once.

        Raises:
            LinkError: the connection was closed, or the node will have nothing to do with us.
        """
        with self._changed:
            self._check()
            if self._mind is None:
                raise LinkError("the connection was never made", hint="connect again", code="link.closed")
            yield self._mind
            self._transport.wake()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise LinkError("the connection was closed", hint="connect again", code="link.closed")

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._closed

    def wait(self, done: Callable[[], bool], what: str, timeout_us: int | None) -> None:
        """Until ``done``, which is asked after each event with the lock held.

        Args:
            what: what is waited for, as in ``waited 5s for ...``.
            timeout_us: None: for ever.

        Raises:
            LinkError: not in time (``link.timeout``), closed, or failed.
        """
        end_us = None if timeout_us is None else now_us() + timeout_us
        with self._changed:
            while not done():
                self._check()
                left_us = None if end_us is None else end_us - now_us()
                if left_us is not None and left_us <= 0:
                    raise self._timed_out(what, timeout_us or 0)
                self._changed.wait(None if left_us is None else left_us / 1e6)

    def _timed_out(self, what: str, timeout_us: int) -> LinkError:
        away = self._mind is None or not self._mind.up
        hint = f"is a node listening at {self._address}?" if away else "the node is there: wait longer"
        return LinkError(f"waited {duration_text(timeout_us)} for {what}", hint=hint, code="link.timeout")

    def close(self) -> None:
        """End the connection at once."""
        with self._changed:
            if self._closed:
                return
            if self._mind is not None:
                for stream in list(self._mind.subscriptions):
                    self._mind.unsubscribe(now_us(), stream)
                self._tick()
            self._closed = True
            self._changed.notify_all()
        self._transport.wake()
        self._thread.join()
        self._transport.close()
