"""Reading a stream of a node: trains, in order, each row once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import overload

import pyarrow as pa

from medusa.elements import END_US, START_US, Kind, Train
from medusa.errors import LinkError, LocalProtocolError, RemoteProtocolError
from medusa.nodes.config.config_file import NAME, NAME_RULE
from medusa.runtime.client.client_loop import ClientLoop, now_us
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.followed_stream import Followed
from medusa.runtime.client.followed_table import CorrectedRows, FollowedTable
from medusa.units import Duration, duration_us
from medusa.wire.client_mind import ClientSubscription as Mind
from medusa.wire.codec import TrainCodec
from medusa.wire.link.receiver import LostRows, ReceivedPromise, ReceivedRows
from medusa.wire.link.tentative_receiver import StateChanged, TentativePromise, TentativeRowsCame
from medusa.wire.messages.links import NOW, OLDEST, Refuse
from medusa.wire.messages.tentative import STABLE

__all__ = ["Reading", "Subscription", "check_name"]


def check_name(durable: str) -> None:
    """Whether a named subscription may be called so.

    Raises:
        LinkError: no.
    """
    if not isinstance(durable, str) or not NAME.fullmatch(durable):
        raise LinkError(f"{durable!r:.80} is no name of a subscription", hint=NAME_RULE, code="link.argument")


class Subscription(Followed):
    """A stream being read; ``Federation.subscribe`` makes it; one thread reads it.

    Iterating gives trains until the stream ends. A node that is killed and comes back loses and
    repeats nothing; what it could no longer deliver is counted in ``lost_rows``.

    Of a named subscription the rows that were not acknowledged (``ack``) come again to whoever reads
    under the name next, with the same numbers.

    One that is ``tentative`` also gives, while an input of the stream is missing, what comes of those that
    are there: trains of kind ``TENTATIVE``, numbered by themselves, in between the stable ones. They are void
    once ``boundary_us`` has passed their times, or ``fork`` is another one. Corrections are stable rows.

    Args:
        begun: called before its node is waited for, which may go away; whoever has it then may move it.

    Attributes:
        durable: the name of a named subscription; None: a plain one.
        schema: of the rows, as Arrow.
        timed: they have times, and the stream boundaries.
        boundary_us: no later row has a time below it; of stable rows, where some are tentative.
        lost_rows: rows that the node did not keep until we took them.
        tentative: it gives tentative rows too.
        fork: from which the tentative rows come that were taken last; 0: those that were taken are void.
    """

    kind = "stream"

    def __init__(
        self,
        loop: ClientLoop,
        name: str,
        start: int,
        timeout_us: int | None,
        durable: str | None = None,
        known: bool = False,
        participant: str = "",
        begun: Callable[[Subscription], None] = lambda subscription: None,
        tentative: bool = False,
    ) -> None:
        super().__init__(loop, name, participant)
        self.durable = durable
        self.tentative = tentative
        self.fork = 0
        self._state: str = STABLE
        self._told: list[Callable[[str], None]] = []
        self._corrected: CorrectedRows | None = None
        self.boundary_us: int = START_US
        self.lost_rows = 0
        self._timeout_us = timeout_us
        self._closed = False
        with loop.lock:
            self._mind: Mind = loop.mind().subscribe(
                now_us(), name, start, name=durable or "", known=known, tentative=tentative
            )
        try:
            begun(self)
            self.wait(self._attached, f"node {loop.node!r} to send {name!r}", loop.timeout_us)
        except BaseException:
            self.close()
            raise
        receiver = self._mind.receiver
        assert receiver.schema is not None
        assert receiver.timed is not None
        if durable is not None:
            receiver.knows_name()
        self._codec = TrainCodec(receiver.schema, timed=receiver.timed)
        self.schema: pa.Schema = self._codec.schema
        self.timed: bool = receiver.timed

    def mind_of_stream(self) -> Mind:
        """What stands for it in the mind of the client."""
        return self._mind

    def last_refusal(self) -> Refuse | None:
        """What the node last said against it."""
        return self._mind.receiver.refusal

    @property
    def over(self) -> bool:
        """It was closed."""
        return self._closed

    def _attached(self) -> bool:
        self._check()
        return self._mind.receiver.schema is not None

    def _check(self) -> None:
        refusal = self.final_refusal()
        if refusal is not None:
            raise LinkError(
                f"node {self._loop.node!r} refused {self.name!r}: {refusal.text}",
                hint=refusal.hint or f"rows up to {self._mind.receiver.next_seq} were received",
                code=refusal.code,
            )

    @property
    def stream_version(self) -> int:
        """Of the stream, as its node said last. Another one than before: this is another replica, or what its
        rows are made of comes from another one since then. Rows go on without gap."""
        return self._mind.receiver.stream_version

    @property
    def next_row(self) -> int:
        """The number of the next row that will be taken."""
        first = next((each for each in self._mind.waiting if isinstance(each, ReceivedRows)), None)
        return first.seq if first is not None else self._mind.receiver.next_seq

    @property
    def acked_row(self) -> int:
        """Rows of a named subscription below this number come no more."""
        return self._mind.receiver.durable_seq

    def ack(self, seq: int) -> None:
        """Of a named subscription: the rows below ``seq`` are done; a lower number than before adds nothing.

        Returns at once. The node forgets the rows with its next checkpoint; if it dies before, or the
        connection is closed before it heard, they come again, with the same numbers.

        Args:
            seq: the number of the first row that is not done: ``train.first_seq + len(train)``.

        Raises:
            LinkError: rows that were not taken yet (``E_SEQ``), a plain subscription (``E_READER``), or
                one that was closed. Nothing is acknowledged.
        """
        if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
            raise LinkError(
                f"ack: {seq!r} is no row number", hint="train.first_seq + len(train)", code="link.argument"
            )
        if self._closed:
            raise LinkError(f"reading {self.name!r} was closed", code="link.closed")
        try:
            self.under_lock(lambda: self._mind.ack(now_us(), seq))
        except LocalProtocolError as error:
            raise LinkError(f"ack: {error.message}", hint=error.hint, code=error.code) from None

    @property
    def ended(self) -> bool:
        """The end of the stream was reached."""
        return self.boundary_us >= END_US

    @property
    def state(self) -> str:
        """How the stream is, as far as it was read: ``stable``; ``up_failure``, an input that leads to it is
        missing; ``stabilization``, all are back, and corrections come; ``failure``, all that lead to it are
        missing, or its node isn't heard.

        Raises:
            LinkError: it isn't ``tentative``.
        """
        self._check_tentative("state")
        return self._state

    @property
    def missed_rows(self) -> int:
        """Tentative rows that were put out and didn't come, since nothing waits for who is slow or away. They
        come as stable ones after the failure.

        Raises:
            LinkError: it isn't ``tentative``.
        """
        self._check_tentative("missed_rows")
        return self._mind.receiver.tentative.missed_rows

    @property
    def left_out_above(self) -> dict[str, int]:
        """Input rows that are missing above this stream, since a node had too much to do and left them out:
        by place, ``query/box.source``. Rows counted there are those of that source; they only grow, in no
        order with the rows of this stream. Empty: nothing was left out."""
        return self.under_lock(lambda: dict(self._mind.receiver.thinned))

    @property
    def left_out_rows(self) -> int:
        """The sum of ``left_out_above``."""
        return sum(self.left_out_above.values())

    def on_state(self, callback: Callable[[str], None]) -> None:
        """Have this called with each new ``state``, by the thread that reads, where it has come to it.

        Raises:
            LinkError: it isn't ``tentative``.
        """
        self._check_tentative("on_state")
        self._told.append(callback)

    def _check_tentative(self, what: str) -> None:
        if not self.tentative:
            text = f"{what}: {self.name!r} is read without its tentative rows"
            raise LinkError(text, hint="subscribe(..., tentative=True)", code="link.argument")

    def _check_rows(self) -> None:
        if self._corrected is not None:
            text = f"{self.name!r} is read by its table(key=...), which takes all that comes"
            raise LinkError(text, hint="read it over another connection", code="link.argument")

    def next(self, timeout: Duration | None = None) -> Train | None:
        """The next train; None at the end of the stream.

        Raises:
            LinkError: nothing came in time (``link.timeout``; try again), or the node refused; it is read by
                a ``table(key=...)``.
        """
        self._check_rows()
        end_us = self._end_us(timeout)
        while not self.ended:
            self.wait(self._ready, f"rows of {self.name!r}", self._left_us(end_us))
            if (train := self._take()) is not None:
                return train
        return None

    async def next_async(self, timeout: Duration | None = None) -> Train | None:
        """``next`` for a task of asyncio: others have their turn while it waits. ``async for`` does this.

        Raises:
            LinkError: as ``next``.
        """
        self._check_rows()
        end_us = self._end_us(timeout)
        while not self.ended:
            await self.wait_async(self._ready, f"rows of {self.name!r}", self._left_us(end_us))
            if (train := self._take()) is not None:
                return train
        return None

    def _end_us(self, timeout: Duration | None) -> int | None:
        wait_us = self._timeout_us
        if timeout is not None:
            wait_us = duration_us(timeout, what="next: timeout", error=LinkError)
        return None if wait_us is None else now_us() + wait_us

    def _left_us(self, end_us: int | None) -> int | None:
        if self._closed:
            raise LinkError(f"reading {self.name!r} was closed", code="link.closed")
        return None if end_us is None else max(end_us - now_us(), 0)

    def _take(self) -> Train | None:
        """What came first, where that is rows."""
        delivery = self.under_lock(lambda: self._mind.take(now_us()))
        match delivery:
            case ReceivedRows() | TentativeRowsCame():
                return self._decode(delivery)
            case LostRows():
                self.lost_rows += delivery.to_seq - delivery.from_seq
            case ReceivedPromise():
                self.boundary_us = delivery.time_us
                if self.ended:  # All has come, and is right: nobody waits for the word.
                    self._turn(STABLE, 0)
            case StateChanged():
                if not self.ended:
                    self._turn(delivery.state, delivery.fork)
            case TentativePromise():
                pass  # Void rows show by what is stable.
        return None

    def _turn(self, state: str, fork: int) -> None:
        before, self._state, self.fork = self._state, state, fork
        if state != before:
            for callback in self._told:
                callback(state)

    def _ready(self) -> bool:
        if self._mind.waiting:
            return True
        self._check()
        return self._closed

    def _decode(self, rows: ReceivedRows | TentativeRowsCame) -> Train:
        skip = rows.skip if isinstance(rows, ReceivedRows) else 0
        try:
            train = self._codec.decode(rows.message, rows.payload, peer=self._loop.node, skip=skip)
        except RemoteProtocolError as error:
            raise LinkError(f"{self.name!r}: {error.message}", code=error.code) from None
        return train

    @overload
    def table(self, timeout: Duration | None = None) -> pa.Table: ...

    @overload
    def table(self, timeout: Duration | None = None, *, key: str | Sequence[str]) -> FollowedTable: ...

    def table(
        self, timeout: Duration | None = None, *, key: str | Sequence[str] | None = None
    ) -> pa.Table | FollowedTable:
        """All rows to the end of the stream, as one table.

        With ``key`` a table at once that is kept as the stream goes on: of each key the last row, and while
        an input is missing the ``tentative`` ones over them. Nothing else reads the subscription then.

        Args:
            timeout: for how long at most the end is waited for; not with ``key``.
            key: a column, or several.

        Raises:
            LinkError: it didn't end in time; no such column, or one that can't be a key.
        """
        if key is not None:
            return self._follow(key, timeout)
        wait_us = None if timeout is None else duration_us(timeout, what="table: timeout", error=LinkError)
        end_us = None if wait_us is None else now_us() + wait_us
        batches: list[pa.RecordBatch] = []
        while True:
            train = self.next(None if end_us is None else max(end_us - now_us(), 0))
            if train is None:
                return pa.Table.from_batches(batches, self.schema)
            batches.append(train.batch)

    def _follow(self, key: str | Sequence[str], timeout: Duration | None) -> FollowedTable:
        if timeout is not None:
            text = "table: a table with a key isn't waited for"
            raise LinkError(text, hint="its wait(timeout) waits for what changes it", code="link.argument")
        self._check_rows()
        self._corrected = rows = CorrectedRows(self.schema, key)
        rows.promised(self.boundary_us)
        rows.turned(self.fork)
        return FollowedTable(rows, self._take_in, self._wait_and_take_in)

    def _take_in(self) -> None:
        """Put into the table what has come."""
        rows = self._corrected
        assert rows is not None, "nobody follows it as a table"
        for _ in range(len(self._mind.waiting)):
            train = self._take()
            rows.turned(self.fork)
            rows.promised(self.boundary_us)
            if train is None:
                continue
            if train.kind is Kind.TENTATIVE:
                rows.tentative(train, self.fork)
            else:
                rows.stable(train)
        if not (self._closed or self.ended):
            self._check()

    def _wait_and_take_in(self, timeout_us: int | None) -> bool:
        """Whether the stream goes on."""
        if self.ended:
            return False
        left_us = self._left_us(self._end_us(None) if timeout_us is None else now_us() + timeout_us)
        self.wait(self._ready, f"rows of {self.name!r}", left_us)
        self._take_in()
        return not self.ended

    def close(self) -> None:
        """Stop reading. A named subscription keeps its rows; ``Federation.unsubscribe`` ends it."""
        if self._closed:
            return
        self._closed = True
        # Where the connection is closed there is nothing to end.
        with contextlib.suppress(LinkError):
            self.under_lock(self._end)

    def _end(self) -> None:
        mind = self._loop.mind()
        if mind.subscriptions.get(self.name) is self._mind:
            mind.unsubscribe(now_us(), self.name)

    def __iter__(self) -> Iterator[Train]:
        while (train := self.next()) is not None:
            yield train

    async def __aiter__(self) -> AsyncIterator[Train]:
        while (train := await self.next_async()) is not None:
            yield train

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Reading:
    """Begins to read streams, each where it is, and has them followed when they move."""

    def __init__(self, following: FollowedNames) -> None:
        self._following = following

    def subscribe(
        self,
        name: str,
        from_: str | int,
        *,
        durable: str | None,
        known: bool,
        timeout: Duration | None,
        tentative: bool = False,
    ) -> Subscription:
        """As ``Federation.subscribe``."""
        if durable is not None:
            check_name(durable)
            if tentative:
                text = f"subscribe: {durable!r} is to be acknowledged, and tentative rows can't be"
                raise LinkError(text, hint="durable=None with tentative=True", code="link.argument")
        starts = {"now": NOW, "oldest": OLDEST}
        start = starts.get(from_) if isinstance(from_, str) else from_
        if isinstance(start, bool) or not isinstance(start, int) or (start < 0 and from_ not in starts):
            raise LinkError(
                f"subscribe: from_ is {from_!r}",
                hint='"now", "oldest" or the number of a row',
                code="link.argument",
            )
        wait_us = None
        if timeout is not None:
            wait_us = duration_us(timeout, what="subscribe: timeout", minimum_us=1, error=LinkError)
        place = self._following.place(name, "stream")
        if place is None:
            try:
                home = self._following.home
                return Subscription(home, name, start, wait_us, durable, known, tentative=tentative)
            except LinkError as error:
                raise self._following.hinted(error, name, "stream") from None
        loop, there = self._following.reach(place, "stream")
        return Subscription(
            loop,
            there["name"],
            start,
            wait_us,
            durable,
            known,
            there.get("participant", ""),
            lambda made: self._following.add(made, there["epoch"]),
            tentative,
        )
