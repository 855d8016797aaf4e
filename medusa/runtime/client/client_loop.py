"""The driver of a client's mind: a thread of its own, so that heartbeats, acknowledgements and
resending go on while the program does other things. It decides nothing.

Ctrl-C raises KeyboardInterrupt in the main thread between any two steps of Python code, also inside
``__enter__`` of a generator, a ``Condition`` or an ``Event``: what they took is then never given
back. So callers share only plain locks with the thread, and take them by ``with`` alone, which has no
such gap; whatever must be done whole, closing too, the thread does, where nothing interrupts.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from medusa.errors import LinkError, QueryError, RemoteProtocolError
from medusa.ports import Buffer
from medusa.runtime.keys.client_keys import ClientKeys
from medusa.runtime.machine.notify import RING_MAX_S, Notifiers
from medusa.runtime.transport.link_events import Arrival, Event, LinkDown, LinkRefused, LinkUp
from medusa.runtime.transport.zeromq import Transport
from medusa.units import duration_text
from medusa.wire.client_mind import ClientMind
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.lanes import way_of
from medusa.wire.link.session import PROMPT
from medusa.wire.messages import Message
from medusa.wire.messages.links import Hello, Refuse
from medusa.wire.outbox import Send
from medusa.wire.statement import client_name

__all__ = ["ClientLoop", "ask", "now_us"]

NODE = "node"
"""The key of our one link."""

WAIT_MAX_MS = 200

_T = TypeVar("_T")

REFUSALS_MAX = 3
"""In a row, and the node means it. One or two may come from a node that is just starting."""


def now_us() -> int:
    """Microseconds that never run back."""
    return time.monotonic_ns() // 1000


class ClientLoop:
    """One client's mind, its connection, and those who wait for either.

    Args:
        begun: called with it before the node is waited for; whoever has it then can close it.
        what: who should be there, as errors say it: ``node 'b'``.

    Attributes:
        name: made up, unique; the node knows us by it.
        node: what the node calls itself; empty until it has answered.
        timeout_us: how long calls wait for an answer.
        lock: held by whoever uses the mind.
        moved: called in our thread when the node says that a stream has moved, and when the node comes or
            goes; never waits.
    """

    def __init__(
        self,
        address: str,
        timeout_us: int,
        keys: ClientKeys | None = None,
        name: str | None = None,
        begun: Callable[[ClientLoop], None] = lambda loop: None,
        what: str = "node",
    ) -> None:
        self.name = name or f"client-{secrets.token_hex(8)}"
        if keys is not None and name is None:
            self.name = client_name(keys.own.public, secrets.token_hex(8))
        self._keys = keys
        self.keyed = keys is not None
        self._refused: LinkRefused | None = None
        self._refusals = 0
        self.node = ""
        self._moved: Callable[[], None] = lambda: None
        self.timeout_us = timeout_us
        self.lock = threading.RLock()
        self._address = address
        self._transport: Transport | None = None
        self._bells = Notifiers()
        self._mind: ClientMind | None = None
        self._failure: LinkError | None = None
        self._closed = False
        self._elsewhere = False
        self._down_since_us: int | None = None
        self._driving = threading.Lock()
        self._wake_at_us = 0
        self._said_hello_us = 0
        self._aside: dict[int, Callable[[Buffer], None]] = {}
        """Questions that nobody waits for -> what reads the answer, and tells who asked."""
        try:
            threading.Thread(target=self._drive, name="medusa-client", daemon=True).start()
            begun(self)
            self.wait(lambda: self._mind is not None and self._mind.up, f"{what} at {address}", timeout_us)
        except BaseException:
            self.close()
            raise

    # --- the thread -------------------------------------------------------------------------------

    def _drive(self) -> None:
        with self._driving:
            try:
                while not self._closed:
                    self._drive_at_one_address()
            except LinkError as error:
                self._fail(error)
            except Exception as error:
                self._fail(
                    LinkError(f"the client stopped: {type(error).__name__}: {error}", code="link.client")
                )

    def _drive_at_one_address(self) -> None:
        with self.lock:
            self._elsewhere = False
            transport = self._transport = self._open()
        try:
            while not self._closed and not self._elsewhere:
                self._turn(transport)
            if self._closed:
                self._part(transport)
        finally:
            with self.lock:  # Nobody wakes it meanwhile.
                self._transport = None
                transport.close()
                if self._mind is not None:
                    self._mind.lost(now_us())

    def _open(self) -> Transport:
        if self._keys is None:
            return Transport(listen=None, peers={NODE: self._address})
        server_keys = {NODE: (self._keys.server,)}
        peers = {NODE: self._address}
        return Transport(listen=None, peers=peers, key=self._keys.own, server_keys=server_keys)

    def tell_moves(self, moved: Callable[[], None]) -> None:
        """Call, in the thread of this connection, when it was made or lost, or a stream has moved."""
        self._moved = moved

    def _turn(self, transport: Transport) -> None:
        left_us = self._wake_at_us - now_us()
        events = transport.wait(max(0, min(-(-left_us // 1000), WAIT_MAX_MS)))
        with self.lock:
            for event in events:
                try:
                    self._happened(event)
                except RemoteProtocolError:
                    transport.cut(NODE)
                    if self._mind is not None:
                        self._mind.lost(now_us())
                except LinkError as error:
                    self._fail(error)
            self._answer_aside()
            self._tick(transport)
            up, was_up = self._mind is not None and self._mind.up, self._down_since_us is None
            self._down_since_us = None if up else self._down_since_us or now_us()
            if up is not was_up:
                self._moved()
            self._ring()

    def _answer_aside(self) -> None:
        """Tell those who don't wait; a refusal is no news, nor is what is no answer to the question: a node
        that says such a thing ends nobody's connection."""
        if self._mind is None:
            return
        for number in [number for number in self._aside if number in self._mind.replies]:
            reply, document = self._mind.replies[number]
            self._mind.give_up(number)
            tell = self._aside.pop(number)
            if not reply.code and document is not None:
                with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    tell(document)

    def _happened(self, event: Event) -> None:
        match event:
            case Arrival():
                self._arrived(event)
            case LinkDown() if self._mind is not None:
                self._mind.lost(now_us())
            case LinkUp():
                self._refused, self._refusals = None, 0
                self._said_hello_us = 0  # Said before it was up it was lost.
            case LinkRefused():
                # libzmq would try for ever. A wrong server key looks like a connection that breaks, so that
                # ends with the deadline of whoever waits; what the node says itself ends it at once.
                self._refused, self._refusals = event, self._refusals + 1
                if event.said and self._refusals >= REFUSALS_MAX:
                    raise LinkError(f"node at {self._address}: {event.why}", hint=event.hint, code=event.code)

    def _part(self, transport: Transport) -> None:
        """Tell the node what we read no more, and those who wait that it is over."""
        with self.lock:
            try:
                if self._mind is not None:
                    for stream in list(self._mind.subscriptions):
                        self._mind.unsubscribe(now_us(), stream)
                    self._tick(transport)
            finally:
                self._ring()

    def _arrived(self, event: Arrival) -> None:
        message, payload = decode_frame(event.frames, peer=self.node or NODE)
        if self._mind is not None:
            self._mind.receive(now_us(), message, payload)
            if isinstance(message, Refuse) and message.code == "E_MOVED":
                self._moved()
        elif isinstance(message, Hello):
            self.node = message.node
            self._mind = ClientMind(self.name, message.node, session=PROMPT)
        elif isinstance(message, Refuse):
            raise LinkError(message.text, hint=message.hint, code=message.code)

    def _tick(self, transport: Transport) -> None:
        now = now_us()
        if self._mind is None:
            # Who is there? The mind begins when we know.
            if now - self._said_hello_us >= PROMPT.hello_us:
                self._said_hello_us = now
                hello = Hello.ours(self.name, 0, answer=True, client=True)
                transport.send(NODE, encode_frame(hello))
            self._wake_at_us = self._said_hello_us + PROMPT.hello_us
            return
        self._mind.tick(now)
        wake_at_us = self._mind.wake_at_us(now)
        self._wake_at_us = now + WAIT_MAX_MS * 1000 if wake_at_us is None else wake_at_us
        for effect in self._mind.outbox.take():
            if isinstance(effect, Send):
                # Credit bounds what waits of a stream; of the rest there is never much.
                stream, frame = way_of(effect.message)
                frames = encode_frame(effect.message, effect.payload)
                transport.send(NODE, frames, stream=stream, frame=frame)

    def _fail(self, error: LinkError) -> None:
        with self.lock:
            self._failure = error
            self._ring()

    def _ring(self) -> None:
        """Let those who wait look again. The lock is held."""
        self._bells.ring()

    # --- for callers ------------------------------------------------------------------------------

    def mind(self) -> ClientMind:
        """The mind, for one who holds ``lock``; what it then wants done is done once the lock is free.

        Raises:
            LinkError: the connection was closed, or the node will have nothing to do with us.
        """
        self._check()
        if self._mind is None:
            raise LinkError("the connection was never made", hint="connect again", code="link.closed")
        self._wake()
        return self._mind

    def _wake(self) -> None:
        if self._transport is not None:
            self._transport.wake()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise LinkError("the connection was closed", hint="connect again", code="link.closed")

    def call_at(self, address: str, keys: ClientKeys | None) -> None:
        """The node is at another address now, maybe with another key: go on there."""
        with self.lock:
            self._address, self._keys = address, keys
            self._refused, self._refusals = None, 0
            self._elsewhere = True
            self._wake()

    def ask_aside(
        self, make: Callable[[int], Message], read: Callable[[Buffer], _T], then: Callable[[_T], None]
    ) -> int:
        """Send a command and go on; its number. One that is refused is forgotten.

        Args:
            read: makes an answer of what the node says; raises what decoders raise where it is none.
            then: told what the answer holds, in the thread of this connection; never waits.

        Raises:
            LinkError: the connection was closed or has failed.
        """
        with self.lock:
            number = self.mind().request(make)
            self._aside[number] = lambda document: then(read(document))
            return number

    def is_answering(self, number: int) -> bool:
        """Whether the node is there, and hasn't answered yet what it was asked so."""
        return number in self._aside and not self.down_us()

    @property
    def address(self) -> str:
        """Where the node is called."""
        return self._address

    @property
    def keys(self) -> ClientKeys | None:
        """With which the node is called."""
        return self._keys

    def down_us(self) -> int:
        """For how long the node has been away; 0: it is there."""
        since_us = self._down_since_us
        return 0 if since_us is None else max(now_us() - since_us, 1)

    def down_since(self, at_us: int) -> bool:
        """Whether the node has been away ever since: what was said then was never sent."""
        since_us = self._down_since_us
        return since_us is not None and since_us <= at_us

    def ring(self) -> None:
        """Let those who wait look again."""
        with self.lock:
            self._ring()

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
        while True:
            with self.lock:
                if done():
                    return
                left_s = self._left_s(what, timeout_us, end_us)
                bell = self._bells.of_thread()
            bell.acquire(timeout=left_s)

    async def wait_async(self, done: Callable[[], bool], what: str, timeout_us: int | None) -> None:
        """``wait`` for a task of asyncio, whose loop goes on meanwhile."""
        end_us = None if timeout_us is None else now_us() + timeout_us
        while True:
            with self.lock:
                if done():
                    return
                left_s = self._left_s(what, timeout_us, end_us)
                bell = self._bells.of_task()
            # Not wait_for: in Python 3.11 it forgets that it was cancelled where the bell rings meanwhile.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await bell.wait()

    def _left_s(self, what: str, timeout_us: int | None, end_us: int | None) -> float:
        """How long to wait for the next bell; LinkError: no more."""
        self._check()
        if end_us is None:
            return RING_MAX_S
        left_us = end_us - now_us()
        if left_us <= 0:
            raise self._timed_out(what, timeout_us or 0)
        return min(left_us / 1e6, RING_MAX_S)

    def _timed_out(self, what: str, timeout_us: int) -> LinkError:
        away = self._mind is None or not self._mind.up
        timeout_us = -(-timeout_us // 1000) * 1000  # What a caller gave, less what it took to come here.
        if away and self._refused is not None:
            text = f"waited {duration_text(timeout_us)} for {what}: {self._refused.why}"
            return LinkError(text, hint=self._hint(self._refused), code=self._refused.code)
        hint = f"is a node listening at {self._address}?" if away else "the node is there: wait longer"
        return LinkError(f"waited {duration_text(timeout_us)} for {what}", hint=hint, code="link.timeout")

    def _hint(self, refused: LinkRefused) -> str:
        keys = self._keys
        if keys is None or keys.pins is None or keys.is_new or refused.code != "link.server_key":
            return refused.hint
        return (
            f"its key is another than the one pinned in {keys.pins}: somebody may sit between; "
            f"if the node has a new key, remove the line of {self._address}"
        )

    def close(self) -> None:
        """End the connection at once. Where this is interrupted, the thread ends all the same."""
        with self.lock:
            self._closed = True
            self._wake()
        with self._driving:  # It has ended; or never began, then it ends when it does.
            pass


def ask(
    loop: ClientLoop,
    make: Callable[[int], Message],
    payload: bytes | None = None,
    *,
    timeout_us: int | None = None,
    lost: Callable[[], bool] = lambda: False,
) -> Any:
    """Send a command and wait for its answer; it is sent again after a reconnect.

    Args:
        lost: says that nobody should wait for this node any longer.

    Raises:
        LinkError, QueryError: refused, or no answer in time; ``link.lost``: it is ``lost``.
    """
    with loop.lock:
        mind = loop.mind()
        number = mind.request(make, payload)
    try:
        wait_us = loop.timeout_us if timeout_us is None else timeout_us
        loop.wait(lambda: number in mind.replies or lost(), "an answer", wait_us)
        if number not in mind.replies:
            raise LinkError(f"node {loop.node!r} is away", code="link.lost")
        reply, document = mind.replies[number]
    finally:
        with loop.lock:
            mind.give_up(number)
    if reply.code:
        kind = QueryError if reply.code.startswith(("query", "E_SPEC")) else LinkError
        raise kind(reply.text, hint=reply.hint, code=reply.code)
    return None if document is None else msgspec.json.decode(document)
