"""A named publisher: its rows are numbered on under a name, whatever dies on either side."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from medusa.elements import END_US
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.errors import LinkError
from medusa.runtime.client.client_loop import ask, now_us
from medusa.runtime.client.connecting import followed
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.home_node import HomeNode
from medusa.runtime.client.publisher import Publisher
from medusa.runtime.client.publishing import Publishing
from medusa.runtime.client.subscription import check_name
from medusa.units import Duration
from medusa.wire.messages.commands import Forget

__all__ = ["DurableNames", "NamedPublisher"]

NAME = re.compile(r"[a-z0-9_-]+(?:/[a-z0-9_-]+)*")
NAME_RULE = "1 to 64 of a-z, 0-9, _ and -, in parts with a slash between: archive/7"


def _check_publisher(durable: str) -> None:
    """Whether a named publisher may be called so.

    Raises:
        LinkError: no.
    """
    if not isinstance(durable, str) or len(durable) > 64 or not NAME.fullmatch(durable):
        raise LinkError(f"{durable!r:.80} is no name of a publisher", hint=NAME_RULE, code="link.argument")


class NamedPublisher:
    """Rows of one name into one source; ``Federation.publisher`` makes it. Any thread may call.

    It has a connection of its own, so one program may have several for one source. Leaving a ``with`` block
    waits until all is durable, then closes. The name stays: ``Federation.unpublish`` ends it.

    Attributes:
        name: of the source.
        durable: the name that it goes by.
        publisher: what stands behind it.
    """

    def __init__(
        self, following: FollowedNames, publishing: Publishing, publisher: Publisher, durable: str
    ) -> None:
        self.name = publisher.name
        self.durable = durable
        self._following = following
        self._publishing = publishing
        self.publisher = publisher

    @property
    def next_row(self) -> int:
        """The number of the next row that is published. At first, and after ``flush``, it is the first that
        the node doesn't hold durably: the program goes on with that row of its own record.

        Raises:
            LinkError: it was closed.
        """
        return self.publisher.next_row

    @property
    def durable_row(self) -> int:
        """The node holds the rows below this number durably.

        Raises:
            LinkError: it was closed.
        """
        return self.publisher.durable_row

    @property
    def left_out_rows(self) -> int:
        """Rows of this name that the node has left out under overload, since the first, as it said last:
        only where all outputs that miss them have ``qos=`` (docs/shedding.md).

        Raises:
            LinkError: it was closed.
        """
        return self.publisher.left_out_rows

    def publish(self, data: Any) -> None:
        """Give rows to the source, as ``Federation.publish`` does; the first one has the number ``next_row``.

        Raises:
            LinkError: another program has opened the name meanwhile (``E_TAKEN``), or it was ended or the
                query removed; it was closed.
            DataError: the rows don't fit; none was taken.
            FullError: the node has not taken earlier rows for the whole timeout; none was taken.
        """
        self.publisher.check()
        self.publisher.publish(data)

    def boundary(self, time: Any) -> None:
        """Promise that no later row of this name has a time below ``time``.

        Raises:
            LinkError: as ``publish``.
            DataError: no time, or below an earlier promise.
        """
        self.publisher.check()
        self.publisher.promise(boundary_time_us(time, self.name))

    def finish(self) -> None:
        """No row comes under this name any more: windows close when all publishers have ended."""
        self.publisher.check()
        self.publisher.promise(END_US)

    def check(self) -> None:
        """What the node has said against it so far; waits for nothing.

        Raises:
            LinkError: as ``publish``.
            DataError: the node could not take rows that it received; said once.
        """
        self.publisher.check()
        self.publisher.check_taken()

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until everything published, and every boundary, is durable at the node; what that takes
        ``Federation.flush`` tells.

        Raises:
            LinkError: not in time; or as ``publish``: what is durable then, whoever opens the name hears.
            DataError: the node could not take rows that it received; said once.
        """
        self.publisher.check()
        self._publishing.flush(timeout)
        self.publisher.check()

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._following.closed

    def close(self) -> None:
        """Close at once; what isn't durable by then comes no more unless it is published again."""
        self._following.end()

    def __enter__(self) -> NamedPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self.closed:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<medusa.NamedPublisher {self.durable!r} of {self.name!r}>"


class DurableNames:
    """What has a name of its own at the nodes, which outlasts a client: publishers, of which it has those
    that this client opened, and subscriptions."""

    def __init__(self, following: FollowedNames) -> None:
        self._following = following
        self._publishers: set[NamedPublisher] = set()

    def publisher(self, name: str, *, durable: str) -> NamedPublisher:
        """As ``Federation.publisher``."""
        _check_publisher(durable)
        self._open()  # Forgets those that were closed.
        own = followed(self._following.ways, self._following.orders.timeout_us)
        try:
            publishing = Publishing(own, HomeNode(own))
            made = NamedPublisher(own, publishing, publishing.begin_named(name, durable), durable)
            self._publishers.add(made)
            if self._following.closed:
                raise LinkError("the connection was closed", hint="connect again", code="link.closed")
        except BaseException:
            own.end()
            raise
        return made

    def unpublish(self, name: str, *, durable: str, owner: str | None) -> None:
        """As ``Federation.unpublish``."""
        _check_publisher(durable)
        self._forget(name, "source", durable, owner)

    def unsubscribe(self, name: str, *, durable: str, owner: str | None) -> None:
        """As ``Federation.unsubscribe``."""
        check_name(durable)
        self._forget(name, "stream", durable, owner)

    def _forget(self, name: str, kind: str, durable: str, owner: str | None) -> None:
        if owner is not None:
            check_name(owner)
        place = self._following.place(name, kind)
        loop = self._following.home if place is None else self._following.loop_at(place)
        stream, whose, of = name if place is None else place["name"], owner or "", kind == "source"
        ask(
            loop,
            lambda number: Forget(request=number, stream=stream, name=durable, owner=whose, publisher=of),
        )

    @property
    def queries(self) -> frozenset[str]:
        """Those into whose sources its publishers publish."""
        return frozenset(each.name.rpartition("/")[2].partition(".")[0] for each in self._open())

    def flush(self, end_us: int) -> None:
        """Wait until all that was published under names is durable.

        Args:
            end_us: until when, as ``now_us`` counts.

        Raises:
            LinkError, DataError: as ``NamedPublisher.flush``.
        """
        for each in self._open():
            each.flush(max(end_us - now_us(), 1))

    def close(self) -> None:
        """Close the publishers at once; their names stay."""
        for each in self._open():
            each.close()

    def _open(self) -> list[NamedPublisher]:
        for each in list(self._publishers):
            if each.closed:
                self._publishers.discard(each)
        return list(self._publishers)
