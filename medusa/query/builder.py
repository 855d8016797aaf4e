"""Writing a query in Python: every name and type is checked at once, and nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import Box, ConnectionPoint, Graph, Input, Sink, Source
from medusa.query.boxes.base import shape_of
from medusa.query.delay_policies import PROCESS, Delay
from medusa.query.graph import BOXES_MAX, check_graph, label_of, ports_of
from medusa.query.ids import check_name, kind_of, stable_id
from medusa.query.published_stream import PublishedStream
from medusa.query.shape import StreamShape, types_of
from medusa.query.stream.output import label_after
from medusa.query.stream.stream import Stream
from medusa.query.types import schema_from
from medusa.units import Duration, byte_count, duration_us

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from medusa.query.qos import QoS
    from medusa.query.render.diagram import Diagram
    from medusa.query.stream.keyed_table import KeyedTable

__all__ = ["Query", "Stream"]


class Query:
    """A continuous query being written: sources, boxes, sinks.

    ``graph`` is what it is: plain data, equal in memory, in files and on links.
    """

    def __init__(self, name: str) -> None:
        """``name``: a letter or ``_``, then letters, digits, ``_`` and ``-``; up to 64."""
        self._name = check_name(name, what="md.Query")
        self._boxes: dict[str, Box] = {}
        self._shapes: dict[Input, StreamShape] = {}
        self._functions: dict[str, object] = {}

    # -- writing --

    def source(
        self,
        name: str,
        schema: Any = None,
        time: str | None = "ts",
        unit: str | None = None,
        slack: Duration | None = None,
        idle: Duration | None = None,
        ahead: Duration | None = None,
        arrival: str | None = None,
        partition: str | None = None,
        partitions: Sequence[bool | int | str] | None = None,
        of: PublishedStream | None = None,
        contract: str | PathLike[str] | None = None,
    ) -> Stream:
        """Where rows enter.

        Args:
            schema: a ``pyarrow.Schema``, or a mapping of column names to types; not with ``of`` or
                ``contract``.
            time: the column that holds the time: a timestamp (without zone: UTC), or an integer
                with ``unit``. None: a stream without time, which feeds boxes that
                look at one row, windows of rows, running, unions of its kind and sinks only.
            unit: ``s``, ``ms``, ``us`` or ``ns`` of an integer time column.
            slack: how late a row may be; None: measured for bounded input, 0 live.
            idle: after so long without rows (by the clock of the run) the source no longer holds up
                boxes whose other inputs go on; with ``partition`` each partition by itself.
            ahead: a row whose time is further than this ahead of its arrival goes to ``.ahead`` and
                moves nothing, so that one wrong clock can't close everybody's windows.
            arrival: the column that says when a row arrived, of the same kind as ``time``; without
                it ``push(..., arrival=)`` says so.
            partition: the column by whose values lateness is judged apart: rows of one partition
                come nearly in order, though those of different ones don't. The boundary of the
                source is the least of its partitions.
            partitions: their values, where they are known: one not yet seen holds the boundary, and
                a row of another is refused. None: those that have been seen hold it.
            of: a stream of the catalog, as ``fed.stream`` gives it: rows come from there, with its columns,
                their times and its boundaries. Lateness was judged where they entered, and isn't again. Such
                a query runs at nodes only (``fed.deploy``), and no other argument goes with it.
            contract: a file of the Open Data Contract Standard (YAML or JSON): its columns, and the time
                where it says which (docs/contracts.md). Where it describes several, that of this name.

        Raises:
            QueryError: names the source, what was expected and what came.
            ContractError: the file can't be read, or has a column that no stream can have.
        """
        label = f"source {check_name(name, what='source')!r}"
        if of is not None:
            given = {"schema": schema, "unit": unit, "slack": slack, "idle": idle, "ahead": ahead}
            given |= {"arrival": arrival, "partition": partition, "partitions": partitions}
            given["time"] = None if time == "ts" else repr(time)
            given["contract"] = contract
            return self._add(_reader(name, of, given, label), name)
        if contract is not None:
            if schema is not None:
                text = f"{label}: schema= beside contract=, which has one"
                raise QueryError(text, hint="leave one of the two out", code="query.source")
            from medusa.query.odcs.document import columns_for

            found = columns_for(contract, name)
            schema = found.schema
            if time == "ts" and found.time is not None:
                time, unit = found.time, unit or found.unit
        if schema is None:
            hint = 'q.source("cars", {"ts": "timestamp[us, UTC]"}), or of=fed.stream("bob/cars")'
            raise QueryError(f"{label}: the schema is missing", hint=hint, code="query.schema")
        fields = schema_from(schema, what=label)
        if time is not None and not isinstance(time, str):
            raise QueryError(
                f"{label}: time is the name of a column, got {type(time).__name__}", code="query.source"
            )
        if time == "ts" and "ts" not in types_of(fields):
            raise QueryError(
                f"{label}: the time column 'ts' is not in the schema",
                hint="say which column is the time with time=..., or time=None for a stream without time",
                code="query.column",
            )

        def length(what: str, given: Duration | None) -> int | None:
            return None if given is None else duration_us(given, what=f"{label}: {what}")

        box = Source(
            id=name,
            schema=fields,
            time=time,
            unit=unit,
            slack_us=length("slack", slack),
            timed=time is not None,
            idle_us=length("idle", idle),
            ahead_us=length("ahead", ahead),
            arrival=_column_name(arrival, f"{label}: arrival"),
            partition=_column_name(partition, f"{label}: partition"),
            partitions=_values(partitions, f"{label}: partitions"),
        )
        return self._add(box, name)

    def table(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        schema: Any,
        from_: Any = None,
        expire: Duration | None = None,
    ) -> KeyedTable:
        """A table of one row for each key, which streams update and look up.

        Args:
            key: the column of ``schema``, or several, that names a row.
            schema: all columns.
            from_: the rows that it holds before all time, at most 4 MiB of them.
            expire: a row that comes more than this after the last change of its key finds nothing.
                None: rows are kept for ever.
        """
        from medusa.query.stream.keyed_table import make_table

        label = f"table {check_name(name, what='table')!r}"
        return make_table(self, name, key, schema, from_, expire, label=label)

    def sink(
        self,
        name: str,
        stream: Stream,
        qos: QoS | None = None,
        *,
        recovery: str | None = None,
        method: str | None = None,
        delay: Duration | Delay | None = None,
    ) -> None:
        """Give a stream a name under which its rows leave.

        Args:
            qos: what they are worth, by delay, share delivered and value; see docs/qos.md.
            recovery: what becomes of them at nodes when a machine on their way is lost for good:
                ``"precise"``: others stand by, none is lost or repeated; ``"rollback"``: none is lost, and
                some may come again; ``"gap"``: none is repeated, and some may be lost (docs/recovery.md).
                None: they wait until it is back. Inside a program it changes nothing.
            method: how that is brought about: ``"active_standby"``, ``"passive_standby"``,
                ``"upstream_backup"``, ``"state_backup"`` or ``"amnesia"``; None: the first that promises it.
            delay: by how much a failure may hold up a result, at most an hour: what the inputs that are
                reached bring shows within this, marked tentative, and is corrected once the others are back
                (docs/dpc.md). ``md.Delay`` says besides what becomes of new rows during a failure and while
                corrections come. None: results wait until then. Inside a program nothing fails, and it
                changes nothing.
        """
        label = f"sink {check_name(name, what='sink')!r}"
        box = Sink(
            id=name,
            inputs=(self._owned(stream, label),),
            qos=qos,
            recovery=recovery,
            method=method,
            **_delay_fields(delay, label),
        )
        self._add(box, name)

    def connection_point(
        self,
        name: str,
        stream: Stream,
        *,
        keep: Duration | None = None,
        keep_bytes: str | int | None = None,
    ) -> Stream:
        """Keep the last rows of a stream, to be looked at and read again while the query runs.

        What comes out is what goes in. Rows are numbered from 0 in the order in which they come; what
        is trimmed is whole segments (docs/history.md).

        Args:
            keep: how far behind the boundary rows are kept at least, where ``keep_bytes`` allows it.
            keep_bytes: what the history may take, at least 64 KiB. None: as much as ``keep`` says, but
                in memory (``md.start`` without ``history=``) 64 MiB. One of the two must be given.

        Raises:
            QueryError: names the connection point, what was expected and what came.
        """
        label = f"connection_point {check_name(name, what='connection_point')!r}"
        box = ConnectionPoint(
            id=name,
            inputs=(self._owned(stream, label),),
            keep_us=None if keep is None else duration_us(keep, what=f"{label}: keep", minimum_us=1),
            keep_bytes=None if keep_bytes is None else byte_count(keep_bytes, what=f"{label}: keep_bytes"),
        )
        return self._add(box, name)

    def _owned(self, stream: object, label: str) -> Input:
        """The arc of a stream of this query."""
        if not isinstance(stream, Stream):
            raise QueryError(
                f"{label}: expected a stream, got {type(stream).__name__}",
                hint="a window needs .aggregate(...) first"
                if hasattr(stream, "aggregate")
                else "what q.source(...) and the methods of streams give",
                code="query.stream",
            )
        if stream.query is not self:
            raise QueryError(
                f"{label}: {stream.label} belongs to query {stream.query.name!r}, not to {self._name!r}",
                hint="streams of one query only; two queries meet through published streams",
                code="query.stream",
            )
        return stream.arc

    def _add(self, box: Box, name: str | None) -> Stream:
        """Check a box and take it in; on an error the query is unchanged."""
        kind = kind_of(box)
        label = label_after(kind, name, box.inputs)
        if len(self._boxes) >= BOXES_MAX:
            raise QueryError(f"query {self._name!r}: more than {BOXES_MAX:,} boxes", code="query.limit")
        if name is not None:
            check_name(name, what=kind)
            if name in self._boxes:
                raise QueryError(
                    f"{label}: the name is taken by {label_of(self._boxes[name])} of query {self._name!r}",
                    hint="sources, boxes and sinks of a query have different names",
                    code="query.name",
                )
        above = [self._shapes[arc] for arc in box.inputs]
        shape_of(box, above, label=label)
        id = name if name is not None else stable_id(box, self._boxes, self._boxes)
        box = msgspec.structs.replace(box, id=id)
        made = {
            Input(id, port): shape_of(box, above, label=label_of(box), port=port) for port in ports_of(box)
        }
        self._boxes[id] = box
        self._shapes.update(made)
        return Stream(self, Input(id))

    def _stream(self, arc: Input) -> Stream:
        """Another port of a box, as a stream."""
        if arc not in self._shapes:  # a tap, which is there when it is read
            box = self._boxes[arc.box]
            above = [self._shapes[each] for each in box.inputs]
            self._shapes[arc] = shape_of(box, above, label=label_of(box), port=arc.port)
        return Stream(self, arc)

    # -- reading --

    @property
    def name(self) -> str:
        """The name that the query was given."""
        return self._name

    @property
    def graph(self) -> Graph:
        """The query as plain data: what every executor reads."""
        return Graph(name=self._name, boxes=tuple(self._boxes.values()))

    @property
    def functions(self) -> dict[str, object]:
        """Functions that aren't registered, by the box that calls them: the graph can't hold these."""
        return dict(self._functions)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources, in order of definition."""
        return tuple(id for id, box in self._boxes.items() if isinstance(box, Source))

    @property
    def sinks(self) -> tuple[str, ...]:
        """Names of the sinks, in order of definition."""
        return tuple(id for id, box in self._boxes.items() if isinstance(box, Sink))

    def explain(self) -> str:
        """The query as text: what each box does, its columns, and what it waits for."""
        from medusa.query.render.explain import explain

        return explain(self.graph)

    def diagram(self) -> Diagram:
        """A drawing: SVG, which notebooks show, and Mermaid text."""
        from medusa.query.render.diagram import Diagram

        return Diagram(self.graph)

    def _repr_svg_(self) -> str:
        return self.diagram().svg

    def __repr__(self) -> str:
        sources, sinks = ", ".join(self.sources) or "none", ", ".join(self.sinks) or "none"
        return f"<Query {self._name!r}: {len(self._boxes)} boxes, sources {sources}, sinks {sinks}>"

    # -- as text and bytes --

    def to_json(self) -> str:
        """The query as JSON text, laid out for reading."""
        from medusa.query.codec import graph_to_json

        return graph_to_json(self.graph)

    def to_msgpack(self) -> bytes:
        """The query as bytes, as links carry it."""
        from medusa.query.codec import graph_to_msgpack

        return graph_to_msgpack(self.graph)

    @classmethod
    def from_json(cls, text: str | bytes) -> Query:
        """What ``to_json`` wrote, checked in full.

        Raises:
            QueryError: not JSON of a query, of a later version, or a query that doesn't hold.
        """
        from medusa.query.codec import graph_from_json

        return cls.from_graph(graph_from_json(text))

    @classmethod
    def from_msgpack(cls, data: bytes) -> Query:
        """What ``to_msgpack`` wrote, checked in full.

        Raises:
            QueryError: as ``from_json``.
        """
        from medusa.query.codec import graph_from_msgpack

        return cls.from_graph(graph_from_msgpack(data))

    @classmethod
    def from_graph(cls, graph: Graph) -> Query:
        """A query of these boxes, checked in full; ``stream`` takes up where it left off.

        Raises:
            QueryError: the graph doesn't hold.
        """
        checked = check_graph(graph)
        query = cls(graph.name)
        query._boxes = checked.boxes
        query._shapes = checked.shapes
        return query

    def split(
        self, box: str, n: int | None = None, *, ranges: Sequence[int] | None = None, block: int | None = None
    ) -> Query:
        """The query with a box split into parts over ranges of its keys; docs/splitting.md.

        A router numbers rows and sends them to the part whose range ``hash_partition`` of the key falls
        into; a merge of the name of the box gives the rows of all parts as the whole box would have.

        Args:
            box: its id.
            n: how many parts, from 2; may be left out where ``ranges`` are given.
            ranges: where ranges of the hash end, ascending, n - 1 of them; None: even ones.
            block: of a box without keys: so many rows go the same way (1,024 unless told).

        Raises:
            QueryError: it can't be split so that the answer stays the same, with the reason.
        """
        from medusa.query.rewrite.split import BLOCK_ROWS, functions_of_parts, split

        made = split(self.graph, box, n, cuts=ranges, block=BLOCK_ROWS if block is None else block)
        return Query.from_graph(made)._calling(functions_of_parts(made, box, self._functions))

    def merge(self, box: str) -> Query:
        """The query with a box that was split as one again.

        Raises:
            QueryError: it isn't split.
        """
        from medusa.query.rewrite.split import merge

        return self._like(merge(self.graph, box))

    def _like(self, graph: Graph) -> Query:
        return Query.from_graph(graph)._calling(self._functions)

    def _calling(self, functions: Mapping[str, Any]) -> Query:
        """With these functions, by box."""
        self._functions = dict(functions)
        return self

    def _rearrange(self, boxes: Mapping[str, Box], shapes: Mapping[Input, StreamShape]) -> None:
        """Have these boxes in this order, and these streams besides."""
        self._boxes = dict(boxes)
        self._shapes.update(shapes)

    def stream(self, name: str) -> Stream:
        """The output of a box, by its id.

        Raises:
            QueryError: there is no such box.
        """
        if isinstance(name, str) and name in self._boxes and not isinstance(self._boxes[name], Sink):
            return Stream(self, Input(name))
        from medusa.query.suggest import did_you_mean

        others = [id for id, box in self._boxes.items() if not isinstance(box, Sink)]
        raise QueryError(
            f"query {self._name!r}: there is no stream {str(name)[:80]!r}",
            hint=did_you_mean(str(name), others),
            code="query.input",
        )


def _reader(name: str, of: object, given: Mapping[str, Any], label: str) -> Source:
    """A source that reads a stream of the catalog; what is said beside that is refused."""
    if not isinstance(of, PublishedStream):
        raise QueryError(
            f"{label}: of is {of!r:.80}, expected what fed.stream gives",
            hint='fed = md.connect(...); of=fed.stream("bob/cars")',
            code="query.source",
        )
    own = ", ".join(f"{what}=" for what, value in given.items() if value is not None)
    if own:
        raise QueryError(
            f"{label}: {own} beside of=: columns and times are those of stream {of.name!r}, whose rows were"
            " judged where they entered",
            hint="leave it out",
            code="query.source",
        )
    return of.source(name)


def _column_name(given: object, label: str) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise QueryError(f"{label} is the name of a column, got {type(given).__name__}", code="query.source")


def _values(given: object, label: str) -> tuple[bool | int | str, ...] | None:
    if given is None:
        return None
    if isinstance(given, list | tuple | range) and all(isinstance(each, bool | int | str) for each in given):
        return tuple(given)
    raise QueryError(
        f"{label} lists integers, texts or bools, got {given!r:.80}",
        hint='partitions=["north", "south"]',
        code="query.source",
    )


def _delay_fields(delay: Duration | Delay | None, label: str) -> dict[str, Any]:
    """Of a sink, what says by how much a failure may hold it up. What is usual is left out."""
    if delay is None:
        return {}
    if not isinstance(delay, Delay):
        return {"delay_us": duration_us(delay, what=f"{label}: delay", minimum_us=1)}
    policies = {"delay_failure": delay.failure, "delay_stabilization": delay.stabilization}
    return {"delay_us": delay.delay_us} | {
        name: policy for name, policy in policies.items() if policy != PROCESS
    }
