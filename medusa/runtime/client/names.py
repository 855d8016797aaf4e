"""What a client asks and says of names: where things are, which queries run, which streams are defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from medusa.errors import LinkError, QueryError
from medusa.query.boxes import Field, Graph
from medusa.query.codec import graph_to_msgpack
from medusa.query.published_stream import PublishedStream, reads_of, same_columns
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.client_loop import ClientLoop, ask
from medusa.runtime.client.followed_names import AWAY_US, FollowedNames
from medusa.runtime.client.home_node import HomeNode
from medusa.units import Duration
from medusa.wire.messages.commands import Remove
from medusa.wire.messages.directory import Define

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Names"]

SOURCE, SINK = "in", "out"
"""Boxes of a definition, as nodes expect them."""


class Names:
    """Asks where names lead, and orders what goes by a name: definitions, and the end of queries."""

    def __init__(self, following: FollowedNames, home: HomeNode) -> None:
        self._following = following
        self._home = home

    def find(self, name: str, kind: str) -> dict[str, Any]:
        """As ``Federation.find``."""
        return dict(self._following.lookup(name, kind))

    def stream(self, name: str) -> PublishedStream:
        """As ``Federation.stream``."""
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

    def reads(self, graph: Graph) -> tuple[tuple[str, str, str, int], ...]:
        """Where the streams of other queries are that a query reads.

        Raises:
            LinkError: one is nowhere.
            QueryError: its columns aren't those of the query any more.
        """
        found = []
        for id, source in reads_of(graph).items():
            place = self._stream_place(source.of or "")
            columns = tuple(Field(column, type) for column, type in place["columns"])
            if place.get("participant"):  # Another one may sell some of them: its node knows which.
                read = {field.name for field in source.schema}
                columns = tuple(field for field in columns if field.name in read)
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
        """As ``Federation.nodes``."""
        shown = ("node", "address", "server_key")
        return [{key: each[key] for key in shown} for each in self._following.listed("node")]

    def queries(self) -> list[dict[str, Any]]:
        """As ``Federation.queries``."""
        shown = ("name", "state", "node", "nodes", "fragments", "reads", "stopped", "abroad")
        return [{key: each[key] for key in shown} for each in self._following.listed("query")]

    def guests(self) -> list[dict[str, Any]]:
        """As ``Federation.guests``."""
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
        """As ``Federation.definitions``."""
        shown = ("name", "version", "columns", "time", "unit", "slack_us", "node")
        return [{key: each[key] for key in shown} for each in self._following.listed("definition")]

    def define(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        *,
        time: str | None,
        unit: str | None,
        slack: Duration | None,
    ) -> int:
        """As ``Federation.define``."""
        from medusa.query.builder import Query
        from medusa.query.ids import check_name

        name = check_name(self._following.own(name), what="define")
        q = Query(name)
        q.sink(SINK, q.source(SOURCE, schema, time=time, unit=unit, slack=slack))
        loop = self._home_of(name, "definition")
        content = graph_to_msgpack(q.graph)
        ask(loop, lambda number: Define(request=number), content, timeout_us=self._home.spread_us)
        return int(self._following.lookup(name, "definition", loop)["version"])

    def placed(self) -> list[dict[str, Any]]:
        """As ``Federation.placed``."""
        shown = ("name", "query", "node", "boxes")
        return [{key: each[key] for key in shown} for each in self._following.listed("fragment")]

    def undefine(self, name: str) -> None:
        """As ``Federation.undefine``."""
        name = self._following.own(name)
        loop = self._following.loop_at(self._keeper(self._following.lookup(name, "definition")))
        ask(loop, lambda number: Remove(request=number, query=name), timeout_us=self._home.spread_us)

    def undeploy(self, name: str) -> None:
        """As ``Federation.undeploy``."""
        name = self._following.own(name)
        try:
            loop = self._home_of(name, "query")
            if loop is not self._following.orders and loop.down_us() > AWAY_US:
                loop = self._following.orders
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            loop = self._following.orders  # It says which node is away, and since when.
        ask(loop, lambda number: Remove(request=number, query=name), timeout_us=self._home.spread_us)

    def _home_of(self, name: str, kind: str) -> ClientLoop:
        """The connection to the node that has it; where nobody does, our own node, which says so."""
        try:
            return self._following.loop_at(self._keeper(self._following.lookup(name, kind)))
        except LinkError as error:
            if error.code not in ("E_STREAM", "E_ROLE"):
                raise
            return self._following.orders

    def _keeper(self, place: Mapping[str, Any]) -> Mapping[str, Any]:
        """The place of the node that keeps a query or a definition; the stream of that may have moved."""
        keeper = place.get("coordinator", place["node"])
        return place if keeper == place["node"] else self._following.lookup(keeper, "node")
