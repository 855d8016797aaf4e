"""What a client publishes: which sources it publishes into, and whether all of it is durable."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from medusa.elements import END_US, START_US
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.errors import LinkError
from medusa.query.boxes import Source
from medusa.runtime.client.client_loop import ClientLoop, ask, now_us
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.home_node import HomeNode
from medusa.runtime.client.publisher import GONE, Publisher, described, source_from
from medusa.units import Duration, duration_text, duration_us
from medusa.wire.messages.commands import StatusRequest

__all__ = ["Publishing"]

ASK_EVERY_S = 0.05
"""So often whether boundaries are durable."""


class Publishing:
    """The publishers of one client, each begun where its source is, with the first rows for it."""

    def __init__(self, following: FollowedNames, home: HomeNode) -> None:
        self._following = following
        self._home = home
        self._publishers: dict[str, Publisher] = {}
        self._undelivered: list[str] = []
        self._beginning = threading.Lock()

    def publish(self, name: str, data: Any) -> None:
        """As ``Federation.publish``."""
        self._publisher(name).publish(data)

    def source(self, name: str) -> dict[str, Any]:
        """As ``Federation.source``."""
        source = self._source_at(name)[0]
        columns = {field.name: field.type for field in source.schema}
        return {"columns": columns, "time": source.time, "unit": source.unit, "slack_us": source.slack_us}

    def left_out_rows(self, name: str) -> int:
        """As ``Federation.left_out_rows``."""
        publisher = self._publishers.get(name)  # To ask begins no publisher, for whom others would wait.
        return 0 if publisher is None else publisher.left_out_rows

    def boundary(self, name: str, time: Any) -> None:
        """As ``Federation.boundary``."""
        self._publisher(name).promise(boundary_time_us(time, name))

    def finish(self, name: str) -> None:
        """As ``Federation.finish``."""
        self._publisher(name).promise(END_US)

    def begin_named(self, name: str, durable: str) -> Publisher:
        """Publish into a source under a name from now on; ``flush`` waits for that too.

        Raises:
            LinkError: as ``Federation.publisher``.
        """
        made = self._begun(name, durable)
        self._publishers[made.name] = made
        return made

    @property
    def queries(self) -> frozenset[str]:
        """Those into whose sources it publishes."""
        return frozenset(name.rpartition("/")[2].partition(".")[0] for name in self._publishers)

    def flush(self, timeout: Duration) -> None:
        """As ``Federation.flush``."""
        timeout_us = duration_us(timeout, what="flush: timeout", minimum_us=1, error=LinkError)
        end_us = now_us() + timeout_us
        publishers = self._publishers_left()
        for publisher in publishers.values():
            try:
                publisher.await_durable(max(end_us - now_us(), 1))
            except LinkError as error:
                if error.code not in GONE:
                    raise
        _await_boundaries(publishers, end_us, timeout_us)
        self._publishers_left()
        told, self._undelivered = self._undelivered, []
        if told:
            raise LinkError(
                "; ".join(told), hint="publish them again where they are wanted", code="E_REMOVED"
            )
        for publisher in publishers.values():
            publisher.check_taken()

    def _publisher(self, name: str) -> Publisher:
        with self._beginning:
            why = self._drop_if_gone(name)
            if name not in self._publishers:
                try:
                    self._publishers[name] = self._begun(name)
                except LinkError as error:
                    # Nothing came in its place: then why it went says more.
                    raise (why if why is not None and error.code in GONE else error) from None
            return self._publishers[name]

    def _source_at(self, name: str) -> tuple[Source, Mapping[str, Any] | None]:
        """A source, and where it is; None: at our node, as that says."""
        place = self._following.place(name, "source")
        if place is not None:
            return described(place["name"], place), place
        try:
            return source_from(name, self._home.status()), None
        except LinkError as error:
            raise self._following.hinted(error, name, "source") from None

    def _begun(self, name: str, durable: str = "") -> Publisher:
        """Publishing, wherever its source is."""
        source, place = self._source_at(name)
        if place is None:
            try:
                return Publisher(self._following.home, source, durable)
            except LinkError as error:
                raise self._following.hinted(error, name, "source") from None
        for each in self._publishers.values():
            if each.name == place["name"]:
                return each  # Known by another of its names.
        loop, there = self._following.reach(place, "source")
        return Publisher(loop, source, durable, lambda made: self._following.add(made, there["epoch"]))

    def _drop_if_gone(self, name: str) -> LinkError | None:
        """Forget a publisher that the node has forgotten, for why; ``flush`` tells of its rows."""
        publisher = self._publishers.get(name)
        why = publisher.gone if publisher is not None else None
        if publisher is not None and why is not None:
            del self._publishers[name]
            if rows := publisher.abandon():
                self._undelivered.append(f"{rows:,} rows for {name!r} were not durable when {why.message}")
        return why

    def _publishers_left(self) -> dict[str, Publisher]:
        with self._beginning:
            for name in list(self._publishers):
                self._drop_if_gone(name)
            return dict(self._publishers)


def _await_boundaries(publishers: Mapping[str, Publisher], end_us: int, timeout_us: int) -> None:
    """Wait until all that was promised is durable. An acknowledgement says nothing of boundaries; a node's
    status does.

    Raises:
        LinkError: not in time, which is until ``end_us``.
    """
    open_ = {name: of.boundary_us for name, of in publishers.items() if of.boundary_us > START_US}
    while True:
        durable_us = _durable({name: publishers[name] for name in open_})
        left = {name: at for name, at in open_.items() if durable_us.get(name, START_US) < at}
        open_ = {name: at for name, at in left.items() if publishers[name].gone is None}
        if not open_:
            return
        if now_us() > end_us:
            raise LinkError(
                f"boundaries of {', '.join(open_)} are not durable after {duration_text(timeout_us)}",
                hint="wait longer, or look at status()",
                code="link.timeout",
            )
        time.sleep(ASK_EVERY_S)


def _durable(publishers: Mapping[str, Publisher]) -> dict[str, int]:
    found: dict[str, int] = {}
    by_loop: dict[ClientLoop, dict[str, Publisher]] = {}
    for name, each in publishers.items():
        by_loop.setdefault(each.loop, {})[name] = each
    for loop, group in by_loop.items():
        found |= _durable_at(loop, group)
    return found


def _durable_at(loop: ClientLoop, group: Mapping[str, Publisher]) -> dict[str, int]:
    """Of those that go by one connection; of those that go by another meanwhile nothing."""

    def lost() -> bool:
        return all(each.loop is not loop for each in group.values())

    try:
        status = ask(loop, lambda number: StatusRequest(request=number), lost=lost)
    except LinkError as error:
        if error.code != "link.lost":
            raise
        return {}
    known = {
        each["stream"]: each["durable_boundary_us"]
        for fragment in status["fragments"]
        for each in fragment["inputs"]
        if each["from"] == loop.name
    }
    return {name: known[each.name] for name, each in group.items() if each.name in known}
