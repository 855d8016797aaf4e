"""A client of a node: deploy queries, publish rows, read streams, ask for status.

A thread of its own drives the client's mind (``medusa.wire.client``), so that heartbeats,
acknowledgements and resending go on while the program does other things. Any thread may call.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from medusa.elements import END_US, Train
from medusa.engine.ingest import normalise, times_of
from medusa.engine.run import boundary_time_us
from medusa.errors import DataError, FullError, LinkError, QueryError, RemoteProtocolError
from medusa.node.settings import check_address
from medusa.query.boxes import Field, Source
from medusa.query.codec import graph_to_msgpack
from medusa.query.suggest import did_you_mean
from medusa.runtime.zeromq import Arrival, LinkDown, Transport
from medusa.units import Duration, duration_text, duration_us
from medusa.wire import limits
from medusa.wire.client import ClientMind, Publication
from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
from medusa.wire.messages import NOW, OLDEST, Deploy, Hello, Message, Remove, Reply, StatusRequest
from medusa.wire.outbox import Send, WakeAt
from medusa.wire.session import SessionSettings

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.runtime.reading import Subscription

__all__ = ["Federation", "connect"]

NODE = "node"
"""The key of our one link."""

WAIT_MAX_MS = 200
SESSION = SessionSettings(heartbeat_us=200_000, timeout_us=1_000_000, hello_us=200_000)

T = TypeVar("T")


def connect(address: str, timeout: Duration = "5s") -> Federation:
    """Connect to a node.

    Args:
        address: where it listens: ``tcp://127.0.0.1:5555`` or ``ipc:///path``.
        timeout: how long to wait for it now, and for each answer later.

    Raises:
        LinkError: no such address, or nobody answers there.
    """
    timeout_us = duration_us(timeout, what="connect: timeout", minimum_us=1, error=LinkError)
    try:
        used = check_address(address, bind=False)
    except Exception as error:
        raise LinkError(f"connect: {error}", code="link.address") from None
    return Federation(used, timeout_us)


class _Published:
    """A stream that we publish: what fits into it, and where it stands."""

    def __init__(self, source: Source, publication: Publication) -> None:
        self.source = source
        self.publication = publication
        self.codec = TrainCodec(source.schema, timed=False)
        self.boundary_us: int | None = None


class Federation:
    """The nodes of a federation, as seen from one of them. ``medusa.connect`` makes it.

    Leaving a ``with`` block waits until all that was published is durable, then closes.

    Attributes:
        node: name of the node that we are connected to.
    """

    def __init__(self, address: str, timeout_us: int) -> None:
        self.node = ""
        self._address = address
        self._timeout_us = timeout_us
        self._name = f"client-{secrets.token_hex(8)}"
        self._transport = Transport(listen=None, peers={NODE: address})
        self._changed = threading.Condition()
        self._mind: ClientMind | None = None
        self._published: dict[str, _Published] = {}
        self._failure: LinkError | None = None
        self._closed = False
        self._wake_at_us = 0
        self._said_hello_us = 0
        self._thread = threading.Thread(target=self._drive, name="medusa-client", daemon=True)
        self._thread.start()
        try:
            self._wait(lambda: self._mind is not None and self._mind.up, f"node at {address}", timeout_us)
        except BaseException:
            self.close()
            raise

    # --- queries ----------------------------------------------------------------------------------

    def deploy(self, q: Query, at: Mapping[str, Sequence[str]] | None = None) -> None:
        """Run a query on nodes: all of them take their part, or none does.

        Args:
            q: the query.
            at: node -> ids of the boxes and sources that stand there; boxes left out stand where
                their input is. None: everything at this node.

        Raises:
            LinkError: a node refused or didn't answer; nothing is deployed.
            QueryError: the query or ``at`` doesn't hold.
        """
        from medusa.node.placement import cut

        graph = q.graph
        where = at if at is not None else {self.node: [box.id for box in graph.boxes]}
        cut(graph, where)  # What can be refused without asking is refused here, with the same words.
        places = tuple((node, tuple(boxes)) for node, boxes in where.items())
        self._ask(lambda number: Deploy(request=number, at=places), graph_to_msgpack(graph))

    def undeploy(self, name: str) -> None:
        """Stop a query on all its nodes and forget its state; ask the node that deployed it.

        Raises:
            LinkError: no such query, or a node didn't answer.
        """
        self._ask(lambda number: Remove(request=number, query=name))

    def status(self) -> dict[str, Any]:
        """What the node runs and how it goes: docs/nodes.md describes each field.

        Raises:
            LinkError: no answer in time.
        """
        found: dict[str, Any] = self._ask(lambda number: StatusRequest(request=number))
        return found

    def _ask(self, make: Callable[[int], Message], payload: bytes | None = None) -> Any:
        """Send a command and wait for its answer; reconnects on the way don't matter."""
        with self._changed:
            mind = self._alive()
            number = mind.request(make, payload)
            self._transport.wake()
            try:
                self._wait_locked(lambda: number in mind.replies, "an answer", self._timeout_us)
                reply, document = mind.replies.pop(number)
            finally:
                mind.give_up(number)
        if reply.code:
            kind = QueryError if reply.code.startswith("query") else LinkError
            raise kind(reply.text, hint=reply.hint, code=reply.code)
        return None if document is None else msgspec.json.decode(document)

    # --- publishing ---------------------------------------------------------------------------------

    def publish(self, name: str, data: Any) -> None:
        """Give rows to a source of a deployed query, ``query.source``, hosted by this node.

        Returns when the rows are numbered and kept here; they are sent, kept until the node holds
        them durably, and resent when it comes back. ``flush`` waits for that.

        Args:
            data: as for ``Run.push``: anything with the Arrow PyCapsule interface, or a dict of
                columns.

        Raises:
            LinkError: the node has no such source, or has refused it.
            DataError: the rows don't fit; nothing of them was taken.
            FullError: the node has not taken earlier rows for the whole timeout; nothing was taken.
        """
        published = self._publisher(name)
        if published.boundary_us == END_US:
            raise DataError(f"source {name!r} was finished by this client", code="data.finished")
        pieces: list[tuple[Any, int, bool]] = []
        for batch in normalise(data, published.source.schema, source=name):
            times_of(batch, published.source)
            pieces += published.codec.encode(Train(batch=batch))
        with self._changed:
            for payload, rows, late in pieces:
                self._room(name, published)
                published.publication.sender.train(_now_us(), memoryview(payload), rows, late=late)
                self._transport.wake()

    def boundary(self, name: str, time: Any) -> None:
        """Promise that no later row of this client has a time below ``time``.

        Raises:
            LinkError: as ``publish``.
            DataError: no time, or below an earlier promise.
        """
        self._promise(name, boundary_time_us(time, name))

    def finish(self, name: str) -> None:
        """End what this client publishes into a source: windows close when all have ended it."""
        self._promise(name, END_US)

    def _promise(self, name: str, time_us: int) -> None:
        published = self._publisher(name)
        if published.boundary_us is not None and time_us < published.boundary_us:
            raise DataError(
                f"source {name!r}: boundary {time_us} is below the last one, {published.boundary_us}",
                hint="boundaries of a source never decrease",
                code="data.boundary",
            )
        with self._changed:
            published.boundary_us = time_us
            published.publication.sender.boundary(_now_us(), time_us)
            self._transport.wake()

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until everything published is durable at the node.

        Raises:
            LinkError: not in time, or the node has refused it.
        """
        timeout_us = duration_us(timeout, what="flush: timeout", minimum_us=1, error=LinkError)
        end_us = _now_us() + timeout_us
        for name, published in list(self._published.items()):

            def durable(name: str = name, published: _Published = published) -> bool:
                self._refusal(name, published)
                return published.publication.durable

            what = f"node {self.node!r} to hold what was published into {name!r} durably"
            self._wait(durable, what, max(end_us - _now_us(), 1))
        promises = {n: p.boundary_us for n, p in self._published.items() if p.boundary_us is not None}
        while promises:
            durable_us = self._durable_boundaries()
            promises = {name: at for name, at in promises.items() if durable_us.get(name, -(1 << 63)) < at}
            if promises:
                if _now_us() > end_us:
                    raise LinkError(
                        f"boundaries of {', '.join(promises)} are not durable after "
                        f"{duration_text(timeout_us)}",
                        code="link.timeout",
                    )
                with self._changed:
                    self._changed.wait(0.05)

    def _durable_boundaries(self) -> dict[str, int]:
        return {
            each["stream"]: each["durable_boundary_us"]
            for fragment in self.status()["fragments"]
            for each in fragment["inputs"]
            if each["from"] == self._name
        }

    def _publisher(self, name: str) -> _Published:
        """Begin to publish a stream, the first time."""
        known = self._published.get(name)
        if known is not None:
            return known
        status = self.status()
        found = status["sources"].get(name)
        if found is None:
            raise _no_source(name, status)
        source = Source(
            id=name,
            schema=tuple(Field(column, type) for column, type in found["columns"]),
            time=found["time"],
            unit=found["unit"],
            slack_us=found["slack_us"],
            timed=found["time"] is not None,
        )
        with self._changed:
            mind = self._alive()
            publication = mind.publish(_now_us(), name, source.schema, timed=False)
            published = _Published(source, publication)
            self._transport.wake()

            def answered() -> bool:
                self._refusal(name, published)
                return publication.attached

            try:
                self._wait_locked(answered, f"node {self.node!r} to take {name!r}", self._timeout_us)
            except LinkError:
                del mind.publications[name]
                raise
            self._published[name] = published
        return published

    def _refusal(self, name: str, published: _Published) -> None:
        refusal = published.publication.refusal
        if refusal is not None:
            raise LinkError(
                f"node {self.node!r} refused {name!r}: {refusal.text}", hint=refusal.hint, code=refusal.code
            )

    def _room(self, name: str, published: _Published) -> None:
        """Wait while too much is kept."""

        def room() -> bool:
            self._refusal(name, published)
            return not published.publication.sender.full

        try:
            self._wait_locked(room, "room", self._timeout_us)
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            kept = published.publication.sender.log.nbytes
            raise FullError(
                f"{name!r}: node {self.node!r} has not taken {kept:,} bytes for "
                f"{duration_text(self._timeout_us)}",
                hint="it is slow or away: publish again later",
            ) from None

    # --- reading --------------------------------------------------------------------------------------

    def subscribe(
        self, name: str, from_: str | int = "now", *, timeout: Duration | None = None
    ) -> Subscription:
        """Read a stream of this node: ``query.sink``, or any stream between fragments.

        Args:
            from_: ``now``, ``oldest`` (as far as it is kept), or the number of a row.
            timeout: how long iterating waits for the next train; None: for ever while the node is
                there.

        Raises:
            LinkError: the node has no such stream.
        """
        from medusa.runtime.reading import Subscription

        starts = {"now": NOW, "oldest": OLDEST}
        start = starts.get(from_, from_) if isinstance(from_, str) else from_
        if isinstance(start, bool) or not isinstance(start, int) or (start < 0 and from_ not in starts):
            raise LinkError(
                f"subscribe: from_ is {from_!r}",
                hint='"now", "oldest" or the number of a row',
                code="link.argument",
            )
        wait_us = None
        if timeout is not None:
            wait_us = duration_us(timeout, what="subscribe: timeout", minimum_us=1, error=LinkError)
        return Subscription(self, name, start, wait_us)

    # --- the thread beside ------------------------------------------------------------------------------

    def _drive(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except Exception as error:
            self._fail(LinkError(f"the client stopped: {type(error).__name__}: {error}", code="link.client"))

    def _turn(self) -> None:
        left_us = self._wake_at_us - _now_us()
        events = self._transport.wait(max(0, min(-(-left_us // 1000), WAIT_MAX_MS)))
        with self._changed:
            for event in events:
                try:
                    if isinstance(event, Arrival):
                        self._arrived(event)
                    elif isinstance(event, LinkDown) and self._mind is not None:
                        self._mind.lost(_now_us())
                except RemoteProtocolError:
                    self._transport.cut(NODE)
                    if self._mind is not None:
                        self._mind.lost(_now_us())
                except LinkError as error:
                    self._fail(error)
            self._say_what_is_due()
            self._changed.notify_all()

    def _arrived(self, event: Arrival) -> None:
        message, payload = decode_frame(event.frames, peer=self.node or NODE)
        if self._mind is None:
            if isinstance(message, Hello):
                self.node = message.node
                self._mind = ClientMind(self._name, message.node, session=SESSION)
            elif isinstance(message, Reply):
                return
        if self._mind is not None:
            self._mind.receive(_now_us(), message, payload)
        elif (text := getattr(message, "text", "")) and not getattr(message, "stream", ""):
            raise LinkError(text, hint=getattr(message, "hint", ""), code=getattr(message, "code", ""))

    def _say_what_is_due(self) -> None:
        now_us = _now_us()
        if self._mind is None:
            # Who is there? The mind begins when we know.
            if now_us - self._said_hello_us >= SESSION.hello_us:
                self._said_hello_us = now_us
                hello = Hello(
                    version=limits.PROTOCOL_VERSION, node=self._name, incarnation=0, answer=True, client=True
                )
                self._transport.send(NODE, encode_frame(hello))
            self._wake_at_us = self._said_hello_us + SESSION.hello_us
            return
        self._mind.tick(now_us)
        wake_at_us = self._mind.wake_at_us(now_us)
        self._wake_at_us = now_us + WAIT_MAX_MS * 1000 if wake_at_us is None else wake_at_us
        for effect in self._mind.outbox.take():
            if isinstance(effect, Send):
                self._transport.send(NODE, encode_frame(effect.message, effect.payload))
            elif isinstance(effect, WakeAt):
                self._wake_at_us = min(self._wake_at_us, effect.at_us)

    def _fail(self, error: LinkError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    # --- waiting ------------------------------------------------------------------------------------------

    def _alive(self) -> ClientMind:
        if self._failure is not None:
            raise self._failure
        if self._closed or self._mind is None:
            raise LinkError("the connection was closed", hint="connect again", code="link.closed")
        return self._mind

    def _wait(self, done: Callable[[], bool], what: str, timeout_us: int) -> None:
        with self._changed:
            self._wait_locked(done, what, timeout_us)

    def _wait_locked(self, done: Callable[[], bool], what: str, timeout_us: int | None) -> None:
        """Until ``done``; the lock is held except while waiting."""
        end = None if timeout_us is None else time.monotonic() + timeout_us / 1e6
        while not done():
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise LinkError("the connection was closed", hint="connect again", code="link.closed")
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise self._timed_out(what, timeout_us or 0)
            self._changed.wait(left)

    def _timed_out(self, what: str, timeout_us: int) -> LinkError:
        away = self._mind is None or not self._mind.up
        hint = f"is a node listening at {self._address}?" if away else "it is there, but busy: wait longer"
        return LinkError(f"waited {duration_text(timeout_us)} for {what}", hint=hint, code="link.timeout")

    # --- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close at once; what is not yet durable may be lost."""
        with self._changed:
            if self._closed:
                return
            if self._mind is not None:
                for stream in list(self._mind.subscriptions):
                    self._mind.unsubscribe(_now_us(), stream)
                self._say_what_is_due()
            self._closed = True
            self._changed.notify_all()
        self._transport.wake()
        self._thread.join()
        self._transport.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<medusa.Federation at {self.node or '?'} {self._address}>"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[ClientMind]:
        """The mind, for a subscription."""
        with self._changed:
            yield self._alive()
            self._transport.wake()


def _no_source(name: str, status: Mapping[str, Any]) -> LinkError:
    node = status["node"]
    there = status["elsewhere"].get(name)
    if there is not None:
        return LinkError(
            f"source {name!r} is not at node {node!r} but at {there!r}",
            hint="connect to that node",
            code="E_STREAM",
        )
    return LinkError(
        f"node {node!r} has no source {name!r}",
        hint=did_you_mean(name, status["sources"]) or "nothing that takes rows is deployed here",
        code="E_STREAM",
    )


def _now_us() -> int:
    return time.monotonic_ns() // 1000
