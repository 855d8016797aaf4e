"""A named publisher: its rows are numbered on under a name, whatever dies on either side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from medusa.elements import END_US
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.errors import LinkError
from medusa.runtime.client.asking import ask
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.contacts import GivenNode
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.publisher import Publisher
from medusa.runtime.client.subscription import check_name
from medusa.units import Duration
from medusa.wire.messages.links_and_commands import Forget

__all__ = ["NamedMethods", "NamedPublisher"]

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

    def __init__(self, fed: NamedMethods, publisher: Publisher, durable: str) -> None:
        self.name = publisher.name
        self.durable = durable
        self._fed = fed
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
        """Wait until everything published, and every boundary, is durable at the node.

        Raises:
            LinkError: not in time; or as ``publish``: what is durable then, whoever opens the name hears.
            DataError: the node could not take rows that it received; said once.
        """
        self.publisher.check()
        self._fed.flush(timeout)
        self.publisher.check()

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._fed.closed

    def close(self) -> None:
        """Close at once; what isn't durable by then comes no more unless it is published again."""
        self._fed.close()

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


class NamedMethods:
    """The methods of a ``Federation`` about what has a name of its own there."""

    _loop: ClientLoop
    _following: FollowedNames
    _named: set[NamedPublisher]
    _publishers: dict[str, Publisher]

    if TYPE_CHECKING:

        def __init__(self, given: Sequence[GivenNode], timeout_us: int) -> None: ...
        def flush(self, timeout: Duration = "30s") -> None: ...
        def close(self) -> None: ...
        def _begun(self, name: str, durable: str = "") -> Publisher: ...

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._loop.closed

    def publisher(self, name: str, *, durable: str) -> NamedPublisher:
        """Publish under a name, so that whoever opens it again goes on where it was.

        The node remembers how many rows of the name it has, with the state that came of them, whatever
        dies: a program that keeps a record of its rows, and publishes from ``next_row`` on, has each in
        the answer once. Rows have to be the same under the same number.

        Args:
            name: as for ``publish``.
            durable: 1 to 64 characters of a-z, 0-9, _, - and slashes between. With keys it belongs to
                the key. Who opens a name last has it: an earlier program is refused (``E_TAKEN``).

        Returns:
            it has a connection of its own, which ends with this one.

        Raises:
            LinkError: there is no such source, or its node keeps nothing (``E_STORE``); the name was
                finished (``E_FINISHED``); there are too many (``E_LIMIT``); or all that came before
                wasn't durable in time.
        """
        _check_publisher(durable)
        self._open_names()  # Forgets those that were closed.
        own = type(self)(self._following.ways, self._loop.timeout_us)
        try:
            made = NamedPublisher(own, own._begun(name, durable), durable)
            own._publishers[made.name] = made.publisher
            self._named.add(made)
            if self.closed:
                raise LinkError("the connection was closed", hint="connect again", code="link.closed")
        except BaseException:
            own.close()
            raise
        return made

    def unpublish(self, name: str, *, durable: str, owner: str | None = None) -> None:
        """End a named publisher for good: its rows stay, their number is forgotten.

        Whoever publishes under it hears so (``E_REMOVED``). Opened again it counts from 0.

        Args:
            name: of the source.
            durable: the name of the publisher, of this client or of an earlier one with its key.
            owner: whose it is, as status shows it, where it is of another key: takes the role ``deploy``
                for the query.

        Raises:
            LinkError: there is none of this name (``E_NAME``), or it is another's and not this client's to
                end (``E_ROLE``).
        """
        _check_publisher(durable)
        self._forget(name, "source", durable, owner)

    def unsubscribe(self, name: str, *, durable: str, owner: str | None = None) -> None:
        """End a named subscription for good: the node keeps nothing for it any more.

        Args:
            name: of the stream.
            durable: the name of the subscription, of this client or of an earlier one with its key.
            owner: whose it is, as status shows it, where it is of another key: takes the role ``deploy``
                for the query, and ends it also while it is read.

        Raises:
            LinkError: there is none of this name (``E_NAME``), or another program reads it (``E_TAKEN``),
                or it is another's and not this client's to end (``E_ROLE``).
        """
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

    def _open_names(self) -> list[NamedPublisher]:
        for each in list(self._named):
            if each.closed:
                self._named.discard(each)
        return list(self._named)
