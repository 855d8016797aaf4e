"""Publishing into a source of a deployed query: rows are checked here, numbered, and kept until the
node holds them durably."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from medusa.elements import END_US, START_US, Train
from medusa.engine.input.ingest import normalise
from medusa.engine.operators.source import RowChecks
from medusa.errors import DataError, FullError, LinkError
from medusa.query.boxes import Field, Source
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.client_loop import ClientLoop, now_us
from medusa.runtime.client.followed_stream import Followed
from medusa.units import duration_text
from medusa.wire.client_mind import ClientPublication
from medusa.wire.codec import TrainCodec
from medusa.wire.messages.links import Refuse

__all__ = ["GONE", "Publisher", "described", "source_from"]

GONE = ("E_REMOVED", "E_STREAM")
"""Refusals after which the node knows nothing of us any more: to publish again is to begin anew."""


class Publisher(Followed):
    """One stream that this client publishes. Any thread may call.

    Args:
        source: what the node says of it (``source_from``).
        durable: of a named publisher: its name.
        begun: called before its node is waited for, which may go away; whoever has it then may move it.

    Raises:
        LinkError: the node has refused it, or didn't answer.
    """

    kind = "source"

    def __init__(
        self,
        loop: ClientLoop,
        source: Source,
        durable: str = "",
        begun: Callable[[Publisher], None] = lambda publisher: None,
    ) -> None:
        super().__init__(loop, source.id)
        self.boundary_us: int = START_US
        self._abandoned = False
        self._source = source
        self._checks = RowChecks(source)
        self._codec = TrainCodec(source.schema, timed=False, clean=loop.keyed)  # The node may be another's.
        self._order = threading.Lock()
        with loop.lock:
            self._mind = loop.mind().publish(now_us(), self.name, source.schema, timed=False, name=durable)
            self._sender = self._mind.sender
            # What it promises is its own word: rows below it are late, and are to stay so.
            self._sender.gathers_by(self._codec.gathered, over_boundaries=False)
        try:
            begun(self)
            self._wait(lambda: self._mind.attached, f"node {loop.node!r} to take {self.name!r}")
        except BaseException:
            with contextlib.suppress(LinkError):  # Where the connection is closed there is nothing to end.
                self.abandon()
            raise

    def mind_of_stream(self) -> ClientPublication:
        """What stands for it in the mind of the client."""
        return self._mind

    def last_refusal(self) -> Refuse | None:
        """What the node last said against it."""
        return self._mind.refusal

    @property
    def over(self) -> bool:
        """It was abandoned."""
        return self._abandoned

    @property
    def gone(self) -> LinkError | None:
        """Why the node has forgotten this stream; None while it hasn't."""
        refusal = self.final_refusal()
        return self._error(refusal) if refusal is not None and refusal.code in GONE else None

    @property
    def next_row(self) -> int:
        """The number of the next row that is published."""
        return self.under_lock(lambda: self._sender.log.next_seq)

    @property
    def durable_row(self) -> int:
        """The node holds the rows below this number durably."""
        return self.under_lock(lambda: self._mind.durable_seq)

    @property
    def left_out_rows(self) -> int:
        """So many of the published rows the node has left out under overload, as it said last."""
        return self.under_lock(lambda: self._mind.left_out_rows)

    def check(self) -> None:
        """Whether the node still takes it.

        Raises:
            LinkError: it has refused it for good.
        """
        if (refusal := self.final_refusal()) is not None:
            raise self._error(refusal)

    def abandon(self) -> int:
        """End it at our side.

        Returns:
            How many rows are given up: published, and not known to be durable at the node.
        """
        self._abandoned = True

        def end() -> int:
            mind = self._loop.mind()
            if mind.publications.get(self.name) is self._mind:
                del mind.publications[self.name]
            return self._mind.undurable_rows

        return self.under_lock(end)

    def check_taken(self) -> None:
        """Say once what the node could not take.

        Raises:
            DataError: rows arrived there that its source refused; those around them were taken.
        """
        if words := [each.text for each in self.under_lock(self._mind.told_not_taken)]:
            text = f"{self.name!r}: node {self._loop.node!r} says: {'; '.join(words)}"
            raise DataError(text, hint="status() counts them as refused_rows", code="E_ROWS")

    def _error(self, refusal: Refuse) -> LinkError:
        text = f"node {self._loop.node!r} refused {self.name!r}: {refusal.text}"
        return LinkError(text, hint=refusal.hint, code=refusal.code)

    def _wait(self, done: Callable[[], bool], what: str, timeout_us: int | None = None) -> None:
        """Until ``done``, or the node refuses."""

        def settled() -> bool:
            self.check()
            return done()

        self.wait(settled, what, self._loop.timeout_us if timeout_us is None else timeout_us)

    def publish(self, data: Any) -> None:
        """Take rows, all or none of them.

        Raises:
            DataError: they don't fit.
            FullError: too much is kept already, for the whole timeout.
            LinkError: the node has refused the stream.
        """
        with self._order:
            if self.boundary_us >= END_US:
                raise DataError(f"source {self.name!r} was finished by this client", code="data.finished")
            pieces: list[tuple[Any, int, bool]] = []
            for batch in normalise(data, self._source.schema, source=self.name):
                self._checks.check(batch)
                self._check_contents(batch)
                pieces += self._codec.encode(Train(batch=batch))
            self._await_room()

            def append() -> None:
                for payload, rows, late in pieces:
                    self._sender.train(now_us(), memoryview(payload), rows, late=late)

            self.under_lock(append)

    def _check_contents(self, batch: Any) -> None:
        """The node checks every value before use; what it would refuse is refused here, by name."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except ValueError as error:
                raise DataError(
                    f"source {self.name!r}: column {name!r} holds malformed values: {error}"[:500],
                    hint="text must be UTF-8; declare other bytes as binary",
                    code="data.values",
                ) from None

    def _await_room(self) -> None:
        try:
            self._wait(lambda: not self._sender.full, "room")
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            raise FullError(
                f"{self.name!r}: node {self._loop.node!r} has not taken {self._sender.log.nbytes:,} "
                f"bytes for {duration_text(self._loop.timeout_us)}",
                hint="it is slow or away: publish again later",
            ) from None

    def promise(self, time_us: int) -> None:
        """No later row of this client has a time below this.

        Raises:
            DataError: an earlier promise was higher.
        """
        with self._order:
            if time_us < self.boundary_us:
                last = "the end" if self.boundary_us >= END_US else f"{self.boundary_us} us"
                raise DataError(
                    f"source {self.name!r}: boundary {time_us} us is below the last one, {last}",
                    hint="boundaries of a source never decrease",
                    code="data.boundary",
                )
            self.boundary_us = time_us
            self.under_lock(lambda: self._sender.boundary(now_us(), time_us))

    def await_durable(self, timeout_us: int) -> None:
        """Until the node holds all rows durably. (Boundaries: see ``Federation.flush``.)"""
        what = f"node {self._loop.node!r} to hold what was published into {self.name!r} durably"
        self._wait(lambda: self._mind.durable, what, timeout_us)


def source_from(name: str, status: Mapping[str, Any]) -> Source:
    """A source as a node's status describes it.

    Raises:
        LinkError: it isn't there; with the node where it is, or the nearest name.
    """
    node, found = status["node"], status["sources"].get(name)
    if found is None:
        for end in status["remote"].get("ended", {}).values():
            if name in end["streams"]:
                hint = f"undeploy {end['query']}, and deploy it again so that it takes less"
                raise LinkError(f"source {name!r} is no more: {end['why']}", hint=hint, code=end["code"])
        there = status["elsewhere"].get(name)
        if there:
            text = f"source {name!r} is not at node {node!r} but at {' and '.join(map(repr, there))}"
            raise LinkError(text, hint="connect to that node", code="E_STREAM")
        hint = did_you_mean(name, status["sources"]) or "nothing that takes rows is deployed here"
        raise LinkError(f"node {node!r} has no source {name!r}", hint=hint, code="E_STREAM")
    return described(name, found)


def described(name: str, found: Mapping[str, Any]) -> Source:
    """A source as a node describes it: its columns and its time, and which rows it refuses.

    Raises:
        LinkError: it can't be that.
    """
    partitions = found.get("partitions")
    source = Source(
        id=name,
        schema=tuple(Field(column, type) for column, type in found["columns"]),
        time=found["time"],
        unit=found["unit"],
        slack_us=found["slack_us"],
        arrival=found.get("arrival"),
        partition=found.get("partition"),
        partitions=None if partitions is None else tuple(partitions),
        timed=found["time"] is not None,
    )
    try:
        RowChecks(source)
    except (ValueError, TypeError, OverflowError) as error:
        raise LinkError(f"source {name!r}: no such partitions: {error}"[:500], code="E_SCHEMA") from None
    return source
