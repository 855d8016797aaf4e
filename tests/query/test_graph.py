"""Whole graphs: what a foreign one must fulfil, and what follows from one that holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import (
    Aggregate,
    AggregateCall,
    AsofJoin,
    Box,
    Field,
    Filter,
    Graph,
    Input,
    Join,
    Select,
    Sink,
    Source,
    Union,
    WindowJoin,
    WithColumns,
)
from medusa.query.builder import Query
from medusa.query.expressions.aggregate_types import state_fields
from medusa.query.expressions.expression import Call, Cast, Column, Expression, Literal, Named
from medusa.query.graph import check_graph, label_of, order_dependent, ports_of, schemas, time_dependent
from medusa.query.shape import WindowKind
from tests.query.queries import queries

TS = "timestamp[us, UTC]"
CARS = (Field("ts", TS), Field("k", "int64"), Field("v", "float64"))
SOURCE = Source(id="cars", schema=CARS, time="ts")
TRUE = Literal("bool", True)
K = Named("k", Column("k"))


def graph(*boxes: Box, name: str = "q") -> Graph:
    return Graph(name=name, boxes=boxes)


def window(id: str = "w", origin: str = "cars", size_us: int = 1_000, **more: object) -> Aggregate:
    given = {"keys": (K,), "aggregates": (AggregateCall("n", "count"),), "advance_us": size_us, **more}
    return Aggregate(id=id, inputs=(Input(origin),), size_us=size_us, **given)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(queries())
def test_what_the_builder_makes_holds(q: Query) -> None:
    checked = check_graph(q.graph, require_sinks=True)
    assert checked.boxes.keys() == {box.id for box in q.graph.boxes}
    for arc, shape in checked.shapes.items():
        if not isinstance(checked.boxes[arc.box], Sink) and not arc.port:
            stream = q.stream(arc.box)
            assert {column.name: column.type for column in shape.schema} == stream.schema
            assert shape.timed == stream.timed
    # Every arc of every box is in consumers, and nothing else.
    arcs = [(arc, (box.id, place)) for box in q.graph.boxes for place, arc in enumerate(box.inputs)]
    listed = [(arc, reader) for arc, readers in checked.consumers.items() for reader in readers]
    assert sorted(arcs, key=repr) == sorted(listed, key=repr)
    assert schemas(q.graph) == checked.schemas


def deep(depth: int) -> Expression:
    tree: Expression = Column("v")
    for _ in range(depth - 1):
        tree = Call("neg", (tree,))
    return tree


SINK = Sink(id="out", inputs=(Input("cars"),))
REFUSED: list[tuple[Graph, str]] = [
    (graph(SOURCE, name="no way"), "query: 'no way' can't be a name"),
    (
        msgspec.structs.replace(graph(SOURCE), version=2),
        "version 2, this program reads 1 (a newer Medusa wrote",
    ),
    (msgspec.structs.replace(graph(SOURCE), version=0), "version 0, this program reads 1"),
    (graph(SOURCE, SOURCE), "the name 'cars' stands for a source and for a source"),
    (graph(msgspec.structs.replace(SOURCE, id="a b")), "query 'q': source: 'a b' can't be a name"),
    (
        graph(SOURCE, Sink(id="out", inputs=(Input("crs"),))),
        "sink 'out': there is no box 'crs' to read (did you",
    ),
    (graph(SINK, SOURCE), "sink 'out': stands before 'cars', which it reads"),
    (
        graph(SOURCE, SINK, Filter(id="f", inputs=(Input("out"),), predicate=TRUE)),
        "filter 'f': reads sink 'out'",
    ),
    (
        graph(
            SOURCE,
            Union(id="u", inputs=(Input("cars"), Input("g"))),
            Filter(id="f", inputs=(Input("u"),), predicate=TRUE),
            Filter(id="g", inputs=(Input("f"),), predicate=TRUE),
        ),
        "its boxes feed themselves: u -> f -> g -> u",
    ),
    (graph(Filter(id="f", inputs=(Input("f"),), predicate=TRUE)), "its boxes feed themselves: f -> f"),
    (graph(SOURCE, Sink(id="out", inputs=(Input("cars", "dead"),))), "box 'cars' has no port 'dead'"),
    (graph(SOURCE, window(), Sink(id="out", inputs=(Input("w", "late"),))), "box 'w' has no port 'late'"),
    (graph(SOURCE, Sink(id="out", inputs=())), "sink 'out': expected 1 inputs, got 0"),
    (graph(SOURCE, Union(id="u", inputs=(Input("cars"),))), "union 'u': expected at least 2 inputs, got 1"),
    (
        graph(SOURCE, msgspec.structs.replace(SOURCE, id="b", inputs=(Input("cars"),))),
        "expected 0 inputs, got 1",
    ),
    (graph(msgspec.structs.replace(SOURCE, schema=())), "source 'cars': the schema has no columns"),
    (graph(msgspec.structs.replace(SOURCE, schema=(*CARS, Field("k", "int8")))), "column 'k' stands twice"),
    (
        graph(msgspec.structs.replace(SOURCE, schema=(Field("ts", "string"),))),
        "type 'string' is not supported",
    ),
    (graph(msgspec.structs.replace(SOURCE, schema=(Field("\n", "int8"),))), "can't be a column name"),
    (graph(msgspec.structs.replace(SOURCE, time="v")), "expected a timestamp or an integer"),
    (graph(msgspec.structs.replace(SOURCE, time="at")), "the time column 'at' is not in the schema"),
    (graph(msgspec.structs.replace(SOURCE, timed=False)), "timed is for sources with a time column"),
    (graph(msgspec.structs.replace(SOURCE, time=None)), "timed is for sources with a time column"),
    (graph(msgspec.structs.replace(SOURCE, judged=True)), "a judged source has no time of its own"),
    (graph(msgspec.structs.replace(SOURCE, slack_us=-1)), "slack is out of range"),
    (graph(msgspec.structs.replace(SOURCE, slack_us=1 << 60)), "slack is out of range"),
    (graph(SOURCE, Filter(id="f", inputs=(Input("cars"),), predicate=Column("v"))), "predicate must be bool"),
    (graph(SOURCE, Filter(id="f", inputs=(Input("cars"),), predicate=Call("nosuch"))), "nosuch"),
    (
        graph(SOURCE, Filter(id="f", inputs=(Input("cars"),), predicate=Literal("bool", 1))),
        "is no bool literal",
    ),
    (graph(SOURCE, Filter(id="f", inputs=(Input("cars"),), predicate=Cast(Column("v"), "text"))), "text"),
    (
        graph(SOURCE, Select(id="s", inputs=(Input("cars"),), columns=())),
        "select 's': needs at least one column",
    ),
    (graph(SOURCE, Select(id="s", inputs=(Input("cars"),), columns=(K, K))), "column 'k' stands twice"),
    (graph(SOURCE, Select(id="s", inputs=(Input("cars"),), columns=(Named("x", deep(65)),))), "deep"),
    (graph(SOURCE, WithColumns(id="s", inputs=(Input("cars"),), columns=())), "needs at least one column"),
    (graph(SOURCE, window(stage="half")), "aggregate 'w': there is no stage 'half'"),
    (graph(SOURCE, window(size_us=0)), "the size of a window must be longer than 0"),
    (graph(SOURCE, window(size_us=1 << 60)), "the size of a window"),
    (graph(SOURCE, window(advance_us=0)), "advance is 0s, expected more than 0"),
    (
        graph(SOURCE, window(advance_us=2_000)),
        "advance is 2ms, expected more than 0 and at most the size, 1ms",
    ),
    (graph(SOURCE, window(aggregates=())), "needs at least one aggregate"),
    (graph(SOURCE, window(aggregates=(AggregateCall("n", "odd"),))), "there is no aggregate 'odd'"),
    (graph(SOURCE, window(keys=(K, K))), "column 'k' stands twice"),
    (
        graph(SOURCE, Join(id="j", inputs=(Input("cars"),) * 2, left_keys=(), right_keys=(), within_us=1)),
        "join 'j': needs at least one key",
    ),
    (
        graph(SOURCE, Join(id="j", inputs=(Input("cars"),) * 2, left_keys=(K,), right_keys=(), within_us=1)),
        "left and right have different numbers of keys",
    ),
    (
        graph(
            SOURCE, Join(id="j", inputs=(Input("cars"),) * 2, left_keys=(K,), right_keys=(K,), within_us=-1)
        ),
        "within is out of range",
    ),
    (
        graph(
            SOURCE,
            Join(
                id="j", inputs=(Input("cars"),) * 2, left_keys=(K,), right_keys=(K,), within_us=1, how="odd"
            ),
        ),
        "how='odd' is none of inner, left",
    ),
    (
        graph(
            SOURCE,
            AsofJoin(id="j", inputs=(Input("cars"),) * 2, left_keys=(K,), right_keys=(K,), how="full"),
        ),
        "how='full' is none of left, inner",
    ),
    (
        graph(
            SOURCE,
            AsofJoin(id="j", inputs=(Input("cars"),) * 2, left_keys=(K,), right_keys=(K,), within_us=-1),
        ),
        "within is out of range",
    ),
    (
        graph(SOURCE, AsofJoin(id="j", inputs=(Input("cars"),) * 2, left_keys=(), right_keys=())),
        "needs at least one key",
    ),
    (
        graph(SOURCE, WindowJoin(id="j", inputs=(Input("cars"),) * 2)),
        'on="window" needs results of equal windows',
    ),
]


@pytest.mark.parametrize(("wrong", "says"), REFUSED, ids=[says[:50] for _, says in REFUSED])
def test_what_does_not_hold(wrong: Graph, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        check_graph(wrong)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_graph_that_is_to_run_has_both_ends() -> None:
    check_graph(graph(SOURCE))
    with pytest.raises(QueryError, match="has no sink, so nothing would come out"):
        check_graph(graph(SOURCE), require_sinks=True)
    with pytest.raises(QueryError, match="has no source"):
        check_graph(graph(), require_sinks=True)


def test_sizes_are_bounded() -> None:
    many = [Filter(id=f"f{index}", inputs=(Input("cars"),), predicate=TRUE) for index in range(1_000)]
    with pytest.raises(QueryError, match="has 1,001 boxes, at most 1,000"):
        check_graph(graph(SOURCE, *many))
    wide = Source(id="cars", schema=tuple(Field(f"c{i}", "int8") for i in range(9_000)), timed=False)
    with pytest.raises(QueryError, match="more than 1,000,000 columns"):
        check_graph(graph(wide, *many[:200]))


def test_a_long_cycle_is_found_without_recursion() -> None:
    ring = [
        Filter(id=f"f{index}", inputs=(Input(f"f{(index + 1) % 900}"),), predicate=TRUE)
        for index in range(900)
    ]
    with pytest.raises(QueryError, match="its boxes feed themselves: f0 -> f899 -> f898"):
        check_graph(graph(*ring))


# -- partial windows ------------------------------------------------------------------------------

CALLS = (
    AggregateCall("n", "count"),
    AggregateCall("s", "sum", Column("k")),
    AggregateCall("f", "avg", Column("v")),
    AggregateCall("m", "max", Column("v")),
    AggregateCall("q", "variance", Column("v")),
    AggregateCall("d", "count_distinct", Column("k")),
)


def split(stage: str = "combine", **more: object) -> Graph:
    edge = Source(id="edge", schema=CARS, judged=True)
    return graph(
        SOURCE,
        edge,
        window("p1", aggregates=CALLS, stage="partial"),
        window("p2", "edge", aggregates=CALLS, stage="partial"),
        Aggregate(
            id="all",
            inputs=(Input("p1"), Input("p2")),
            size_us=1_000,
            advance_us=1_000,
            stage=stage,
            **{"aggregates": CALLS, "keys": (K,), **more},  # type: ignore[arg-type]
        ),
    )


def test_partial_and_combine_give_what_whole_gives() -> None:
    checked = check_graph(split())
    whole = check_graph(graph(SOURCE, window("all", aggregates=CALLS)))
    assert checked.schemas[Input("all")] == whole.schemas[Input("all")]
    assert checked.shapes[Input("all")].window == WindowKind(1_000, 1_000)
    states = [
        state for call in CALLS for state in state_fields(call, "int64" if call.name in "sd" else "float64")
    ]
    head = [Field("window_start", TS), Field("window_end", TS), Field("k", "int64")]
    assert list(checked.schemas[Input("p1")]) == [*head, *states]


def test_combine_refuses_what_is_no_partial_result() -> None:
    for wrong, says in (
        (split(stage="whole"), "expected 1 inputs, got 2"),
        (split(aggregates=(AggregateCall("x", "count"),)), "doesn't have its state columns x.n"),
        (split(aggregates=(AggregateCall("n", "sum", Column("k")),)), "state columns n.n, n.lo, n.hi"),
        (split(keys=()), "expected the columns window_start, window_end, n.n, s.n, s.lo, s.hi"),
        (split(keys=(Named("other", Column("k")),)), "expected the columns window_start, window_end, other"),
        (split(aggregates=CALLS[:2]), "expected the columns"),
        (split(aggregates=CALLS[::-1]), "expected the columns"),
    ):
        with pytest.raises(QueryError, match=r"^aggregate 'all': ") as caught:
            check_graph(wrong)
        assert says in str(caught.value)


# -- what follows ---------------------------------------------------------------------------------


@dataclass
class Made:
    """A query with one of everything."""

    q: Query = field(default_factory=lambda: md.Query("q"))

    def __post_init__(self) -> None:
        a = self.q.source("a", {"ts": "timestamp", "k": "int64", "v": "float64"})
        b = self.q.source("b", {"ts": "timestamp", "k": "int64", "v": "float64"})
        both = a.union(b, name="both")
        w = both.filter("v > 0", name="f").window("1s").group_by("k").aggregate(n=md.count(), name="w")
        a.window("1s").group_by("k").aggregate(n=md.count(), name="own")
        j = a.join(both, on="k", within="1s", name="j")
        z = w.join(w, on="window", name="z")
        self.q.sink("plain", both)
        self.q.sink("joined", j)
        self.q.sink("late", a.late)
        self.q.sink("windows", z)


def test_time_dependent_boxes() -> None:
    assert time_dependent(Made().q.graph) == ("w", "own", "j", "z")


def test_boxes_that_show_the_order_of_a_union() -> None:
    made = Made().q.graph
    assert order_dependent(made, sinks=False) == (("both", "w"), ("both", "j"), ("both", "z"))
    assert set(order_dependent(made)) == {
        *(("both", "w"), ("both", "j"), ("both", "z")),
        *(("both", "plain"), ("both", "joined"), ("both", "windows")),
    }


def test_combine_hides_the_order_of_a_union() -> None:
    boxes = split().boxes
    last = boxes[-1]
    u = Union(id="u", inputs=last.inputs)
    combined = msgspec.structs.replace(last, inputs=(Input("u"),))
    made = graph(*boxes[:-1], u, combined, Sink(id="out", inputs=(Input("all"),)))
    assert order_dependent(made) == ()


def test_ports_and_labels() -> None:
    assert ports_of(SOURCE) == ("", "late")
    assert ports_of(Source(id="x", schema=CARS, judged=True)) == ("",)
    assert ports_of(Source(id="x", schema=CARS, timed=False)) == ("",)
    assert ports_of(window()) == ("",)
    assert label_of(window()) == "aggregate 'w'"


def test_judged_sources_carry_windows_on() -> None:
    results = (Field("window_start", TS), Field("window_end", TS), Field("n", "int64"))
    one = Source(id="one", schema=results, judged=True, window_us=(1_000, 1_000))
    two = Source(id="two", schema=results, judged=True, window_us=(1_000, 1_000))
    joined = WindowJoin(id="j", inputs=(Input("one"), Input("two")))
    checked = check_graph(graph(one, two, joined))
    assert [column.name for column in checked.schemas[Input("j")]] == [
        "window_start",
        "window_end",
        "n",
        "n_right",
    ]
    slow = msgspec.structs.replace(two, window_us=(2_000, 1_000))
    with pytest.raises(QueryError, match="windows of 2ms every 1ms"):
        check_graph(graph(one, slow, joined))


def test_an_overlap_that_is_a_slip_of_units_is_refused():
    q = md.Query("q")
    rows = q.source("s", {"t": "int64"}, time="t", unit="s")
    with pytest.raises(QueryError, match="3,600,000,000 windows") as caught:
        rows.window("1h", advance=1).aggregate(n=md.count())
    assert "microseconds" in caught.value.hint
    q.sink("o", rows.window("100 s", advance="1 ms").aggregate(n=md.count()))
