"""What a client asks and says of names: where things are, which queries run, which streams are defined."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import LinkError, QueryError
from medusa.query.boxes import Field, Graph
from medusa.query.codec import graph_to_msgpack
from medusa.query.published_stream import PublishedStream, reads_of, same_columns
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.asking import ask
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.followed_names import AWAY_US, FollowedNames
from medusa.units import Duration
from medusa.wire.messages.links_and_commands import Define, Remove, StatusRequest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NameMethods"]

SOURCE, SINK = "in", "out"
"""Boxes of a definition, as nodes expect them."""

SPREAD_TIMEOUT_US = 15_000_000
"""Commands that a node passes on wait at least so long: longer than it waits for the others."""


class NameMethods(ABC):
    """The methods of a ``Federation`` that are about names."""

    _following: FollowedNames
    _loop: ClientLoop

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """Of the node that we are connected to."""

    def find(self, name: str, kind: str = "") -> dict[str, Any]:
        """Where something is, whatever node this client is connected to.

        Args:
            name: of a stream, source, query, fragment, node, definition or box (``query/box``); it may begin
                with the own participant and a slash.
            kind: which of these is meant; left out, the first of definition, stream, source, query,
                fragment, node, box that bears the name.

        Returns:
            ``kind``, ``name``, ``node``, its ``address`` and ``server_key``, ``epoch``, what is known of such
            a thing (columns of a stream, state of a query); in ``holders`` all nodes that have it, our own
            before others as ``node``; in ``versions`` one such description for each version of a stream
            that has replicas. Of a box the ``fragment`` that has it, or its router; in ``parts`` of one that
            is split the fragment of each part -> its node, also where a fragment bears the name. A box at a
            node of another ``participant`` is where it was put when its query was deployed.

        Raises:
            LinkError: nothing is called so (``E_STREAM``), with the nearest name.
        """
        return dict(self._following.lookup(name, kind))

    def stream(self, name: str) -> PublishedStream:
        """A stream that a query is to read: ``q.source("cars", of=fed.stream("bob/cars"))``.

        Args:
            name: of a stream defined by name, or of a query's sink (``query.sink``); it may begin with a
                participant and a slash: the own one, or another one whose streams the node finds in the
                catalog between participants.

        Returns:
            What the catalog says of it now: plain data, which holds no connection. ``deploy`` looks where
            it is then, and refuses it if its columns are others by then.

        Raises:
            LinkError: no stream is called so, with the nearest name (``E_STREAM``).
        """
        place = self._stream_place(name)
        participant = place.get("participant") or self._own_participant(place["node"])
        columns = tuple(Field(column, type) for column, type in place["columns"])
        window = place.get("window_us")
        return PublishedStream(
            name=f"{participant}/{self._entity(name, place)}",
            columns=columns,
            timed=place["timed"],
            time=place.get("time"),
            unit=place.get("unit"),
            window_us=None if window is None else (window[0], window[1]),
            version=place.get("version", 0),
            epoch=place["epoch"],
        )

    def _stream_place(self, name: str) -> dict[str, Any]:
        """Where a stream is, with the definition behind it.

        Raises:
            LinkError: nowhere.
        """
        if not isinstance(name, str) or not name:
            raise LinkError(f"stream: {name!r:.80} is no name of a stream", code="link.argument")
        place = self._following.place(name, "stream")
        if place is None and name.count("/") == 1:  # Of another participant what is defined is a stream only.
            place = self._following.place(f"{name}.{SINK}", "stream")
        if place is None:
            known = [each["name"] for each in self._following.listed("definition")]
            known += [each["name"] for each in self._following.listed("stream") if not each["reader"]]
            short = name.rpartition("/")[2]
            raise LinkError(
                f"no stream is called {name[:100]!r}",
                hint=did_you_mean(short, known) or "nothing is defined or deployed here",
                code="E_STREAM",
            )
        if "version" in place:
            query = place["name"].rpartition(".")[0]
            return {**self._following.lookup(query, "definition"), **place}
        return dict(place)

    def _entity(self, name: str, place: Mapping[str, Any]) -> str:
        """What it is called behind the participant: as it was defined, or its sink."""
        stream = str(place["name"])
        return name.rpartition("/")[2] if "version" in place else stream

    def _own_participant(self, node: str) -> str:
        return str(self._following.lookup(node, "node")["participant"])

    def _reads(self, graph: Graph) -> tuple[tuple[str, str, str, int], ...]:
        """Where the streams of other queries are that a query reads.

        Raises:
            LinkError: one is nowhere.
            QueryError: its columns aren't those of the query any more.
        """
        found = []
        for id, source in reads_of(graph).items():
            place = self._stream_place(source.of or "")
            columns = tuple(Field(column, type) for column, type in place["columns"])
            differs = same_columns(source, columns, place["timed"]) if columns else ""
            if differs:
                raise QueryError(
                    f"source {id!r}, stream {source.of!r}: {differs}",
                    hint="ask for it anew with fed.stream, and build the query on that",
                    code="E_SCHEMA",
                )
            found.append((id, place["node"], place["name"], place["epoch"]))
        return tuple(found)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the participant, by name: ``node``, ``address`` (empty: nobody knows) and
        ``server_key`` (empty: it has no keys).

        Raises:
            LinkError: no answer in time.
        """
        shown = ("node", "address", "server_key")
        return [{key: each[key] for key in shown} for each in self._following.listed("node")]

    def queries(self) -> list[dict[str, Any]]:
        """The queries of the participant, by name: ``name``, ``state``, ``node`` that coordinates it,
        ``nodes``, ``fragments`` with the nodes of each; ``reads``: the streams of other queries that it
        reads, by their full names; ``stopped``: parts that the owners of other nodes have ended there
        (``revoke(..., stop=True)``) -> those nodes; ``abroad``: of each fragment that was put at a node of
        another participant its name, that node, the participant and the boxes. Where others stand by for
        fragments of it also ``configuration``: its ``number``, the ``voters``, and of each of those
        ``fragments`` the ``fragment``, ``owner``, ``epoch`` and ``secondaries``.

        Raises:
            LinkError: no answer in time.
        """
        shown = ("name", "state", "node", "nodes", "fragments", "reads", "stopped", "abroad")
        return [
            {key: each[key] for key in (*shown, "configuration") if key in shown or key in each}
            for each in self._following.listed("query")
        ]

    def guests(self) -> list[dict[str, Any]]:
        """Parts of other participants' queries that run at nodes of our own, as far as this client may deploy
        queries of those names: ``name`` (participant/query), ``participant``, ``fragment`` and ``node``.

        Raises:
            LinkError: no answer in time.
        """
        return [
            {
                "name": f"{each['guest_of']}/{each['query']}",
                "participant": each["guest_of"],
                "fragment": each["name"],
                "node": each["node"],
            }
            for each in self._following.listed("fragment")
            if each["guest_of"]
        ]

    def definitions(self) -> list[dict[str, Any]]:
        """The streams defined by name: ``name``, ``version``, ``columns`` (name and type of each), ``time``,
        ``unit``, ``slack_us``, and the ``node`` where the stream of each is now.

        Raises:
            LinkError: no answer in time.
        """
        shown = ("name", "version", "columns", "time", "unit", "slack_us", "node")
        return [{key: each[key] for key in shown} for each in self._following.listed("definition")]

    def define(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        *,
        time: str | None = "ts",
        unit: str | None = None,
        slack: Duration | None = None,
    ) -> int:
        """Define a stream: what is published under its name can be read under it.

        It stands at the node that this client is connected to. Defined again as it is, nothing happens;
        changed, it is a new version, which begins with no rows.

        Args:
            name: a word, as queries have; it may begin with the own participant and a slash.
            schema, time, unit, slack: as for ``Query.source``.

        Returns:
            The version of the definition, from 1 on.

        Raises:
            LinkError: the name is that of a query, or is defined elsewhere (``E_DEFINED``); it changes
                while somebody reads the stream (``E_READ``), or while it is at another node than where it was
                defined (``E_DEFINED``).
            QueryError: no such schema, time or slack.
        """
        from medusa.query.builder import Query
        from medusa.query.ids import check_name

        name = check_name(self._following.own(name), what="define")
        q = Query(name)
        q.sink(SINK, q.source(SOURCE, schema, time=time, unit=unit, slack=slack))
        loop = self._home_of(name, "definition")
        content = graph_to_msgpack(q.graph)
        ask(loop, lambda number: Define(request=number), content, timeout_us=self._spread_us())
        return int(self._following.lookup(name, "definition", loop)["version"])

    def statuses(self, *, all: bool = False) -> list[dict[str, Any]]:
        """Of this node; with ``all`` of every node of its participant that answers, this one first.

        Raises:
            LinkError: this node doesn't answer in time.
        """
        found = [self.status()]
        for place in self._following.listed("node") if all else ():
            if place["node"] != found[0]["node"]:
                with contextlib.suppress(LinkError):
                    loop = self._following.loop_at(place, AWAY_US)
                    found.append(ask(loop, lambda n: StatusRequest(request=n), timeout_us=AWAY_US))
        return found

    def placed(self) -> list[dict[str, Any]]:
        """Fragments of the participant as its catalog has them: ``name``, ``query``, ``node``, ``boxes``.

        Raises:
            LinkError: no answer in time.
        """
        shown = ("name", "query", "node", "boxes")
        return [{key: each[key] for key in shown} for each in self._following.listed("fragment")]

    def undefine(self, name: str) -> None:
        """Forget a definition and the rows that are kept of the stream.

        Raises:
            LinkError: no stream is defined so (``E_STREAM``), or a node didn't answer.
        """
        name = self._following.own(name)
        loop = self._following.loop_at(self._keeper(self._following.lookup(name, "definition")))
        ask(loop, lambda number: Remove(request=number, query=name), timeout_us=self._spread_us())

    def undeploy(self, name: str) -> None:
        """Stop a query on all its nodes and forget its state; any node will do.

        Raises:
            LinkError: no such query, or a node didn't answer; the one that coordinates it is away
                (``E_TIMEOUT``), and nothing has changed.
        """
        name = self._following.own(name)
        try:
            loop = self._home_of(name, "query")
            if loop is not self._loop and loop.down_us() > AWAY_US:
                loop = self._loop
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            loop = self._loop  # It says which node is away, and since when.
        ask(loop, lambda number: Remove(request=number, query=name), timeout_us=self._spread_us())

    def _home_of(self, name: str, kind: str) -> ClientLoop:
        """The connection to the node that has it; where nobody does, our own node, which says so."""
        try:
            return self._following.loop_at(self._keeper(self._following.lookup(name, kind)))
        except LinkError as error:
            if error.code not in ("E_STREAM", "E_ROLE"):
                raise
            return self._loop

    def _keeper(self, place: Mapping[str, Any]) -> Mapping[str, Any]:
        """The place of the node that keeps a query or a definition; the stream of that may have moved."""
        keeper = place.get("coordinator", place["node"])
        return place if keeper == place["node"] else self._following.lookup(keeper, "node")

    def _spread_us(self) -> int:
        return max(self._loop.timeout_us, SPREAD_TIMEOUT_US)
