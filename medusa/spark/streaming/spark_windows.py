"""``md.spark.stream(..., semantics="spark")``: windows by Spark's own operators, with its rule for late rows.

Boxes on single rows run as elsewhere; between them stands at most one window, as a plan of Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from medusa.errors import QueryError
from medusa.query.boxes import Aggregate, AggregateCall, Box, Graph, Input, Select, Sink, Source
from medusa.query.expressions.aggregates import AGGREGATES
from medusa.query.expressions.expression import Call, Named
from medusa.query.graph import CheckedGraph, check_graph, label_of
from medusa.query.ids import kind_of
from medusa.spark import column_types, support
from medusa.spark.column_types import BOUND, LATE, TIME
from medusa.spark.dataframes.compile import Compiler
from medusa.spark.dataframes.flow import judged
from medusa.spark.dataframes.source import Archive

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["check_native", "native"]

FUNCTIONS = {name: kind.spark for name, kind in AGGREGATES.items() if kind.spark}


def check_native(graph: Graph) -> None:
    """Refuse what has no native plan.

    Raises:
        QueryError: names the box and the reason.
    """
    windows: dict[str, int] = {}
    for box in graph.boxes:
        windows[box.id] = max((windows[arc.box] for arc in box.inputs), default=0)
        why = _why_not(box)
        if isinstance(box, Aggregate):
            if windows[box.id] and not why:
                why = "it comes behind another window, and Spark would judge its rows late a second time"
            why = why or _judged_otherwise(box, graph)
            windows[box.id] = 1
        if any(arc.port in ("late", "dead") for arc in box.inputs):
            why = f"it reads .{box.inputs[0].port}, and Spark doesn't tell which rows it left out"
        if why:
            raise QueryError(
                f"{label_of(box)} has no native plan in Spark: {why}",
                hint='semantics="medusa" runs it',
                code="query.spark",
            )


def _why_not(box: Box) -> str:
    if isinstance(box, Aggregate):
        for call in box.aggregates:
            if call.function not in FUNCTIONS:
                return f"its aggregate {call.name!r} is {call.function}, not one of {', '.join(FUNCTIONS)}"
        return ""
    if support.WAYS[kind_of(box)] in (
        support.Way.SOURCE,
        support.Way.ROWS,
        support.Way.PASS,
        support.Way.SINK,
    ):
        return ""
    return "only boxes on single rows, and tumbling and sliding windows, have one"


def _judged_otherwise(window: Aggregate, graph: Graph) -> str:
    """Spark has one watermark for all rows, which only rows move."""
    over = support.above(graph, {window.id})
    for box in graph.boxes:
        if isinstance(box, Source) and box.id in over:
            option = "partition=" if box.partition is not None else "idle=" if box.idle_us is not None else ""
            if option:
                return f"source {box.id!r} has {option}, and Spark's watermark knows none"
    return ""


def native(graph: Graph, archives: Mapping[str, Archive], sink: str, *, options: Any) -> DataFrame:
    """The DataFrame of the only sink of a graph that ``check_native`` has passed.

    Args:
        options: ``on_error`` and ``modules`` for a ``Compiler``.
    """
    checked = check_graph(graph)
    window = next((box for box in graph.boxes if isinstance(box, Aggregate)), None)
    if window is None:
        return _through(checked, archives, {}, sink, options)
    df = _grouped(window, checked, _arguments(window, checked, archives, options), archives)
    above = support.above(graph, {window.id})
    below = (box for box in graph.boxes if box.id not in above)
    boxes = (judged(window.id, checked.shapes[Input(window.id)]), *below)
    tail = check_graph(Graph(name=graph.name, boxes=boxes))
    return _through(tail, archives, {Input(window.id): df}, sink, options)


def _through(
    checked: CheckedGraph,
    archives: Mapping[str, Archive],
    made: Mapping[Input, DataFrame],
    sink: str,
    options: Any,
) -> DataFrame:
    """Boxes on single rows, up to the sink."""
    compiler = Compiler(checked, shards=1, **options)
    for box in checked.graph.boxes:
        if Input(box.id) in made:
            compiler.given(Input(box.id), made[Input(box.id)])
        elif isinstance(box, Source):
            rows = archives[box.id]
            rows = Archive(rows.spec, rows.df, rows.has - {"_seq"})
            compiler.enter(box.id, rows, ordered=False, assume_on_time=False)
    compiler.run(support.read_ports(checked.graph))
    return compiler.sinks(ordered=False, numbered=False)[sink]


def _arguments(
    window: Aggregate, checked: CheckedGraph, archives: Mapping[str, Archive], options: Any
) -> DataFrame:
    """What the window reads of each row: its keys, the arguments, and its time last."""
    shown = [*(named.expression for named in window.keys)]
    shown += [call.arg for call in window.aggregates if call.arg is not None]
    named = tuple(Named(f"x{place}", each) for place, each in enumerate([*shown, Call("tuple_time")]))
    above = support.above(checked.graph, {window.id})
    boxes = [box for box in checked.graph.boxes if box.id in above and box.id != window.id]
    select = Select(id="native-arguments", inputs=window.inputs, columns=named)
    sink = Sink(id="native-sink", inputs=(Input(select.id),))
    graph = Graph(name=checked.graph.name, boxes=(*boxes, select, sink))
    return _through(check_graph(graph), archives, {}, sink.id, options)


def _grouped(
    window: Aggregate, checked: CheckedGraph, df: DataFrame, archives: Mapping[str, Archive]
) -> DataFrame:
    from pyspark.sql import functions as F

    source = next(iter(support.above(checked.graph, {window.id}) & set(archives)))
    time = df.columns[-1]
    df = df.withWatermark(time, f"{archives[source].spec.slack_us or 0} microseconds")
    size, advance = (f"{us} microseconds" for us in (window.size_us, window.advance_us))
    keys = [F.col(f"x{place}").alias(f"k{place}") for place in range(len(window.keys))]
    place, made = len(keys), []
    for number, call in enumerate(window.aggregates):
        argument, type = F.lit(1), "int"
        if call.arg is not None:
            argument, type = F.col(f"x{place}"), df.schema[f"x{place}"].dataType.simpleString()
            place += 1
        made.append(_function(call, type)(argument).alias(f"a{number}"))
    df = df.groupBy(F.window(time, size, advance).alias("w"), *keys).agg(*made)
    schema = checked.shapes[Input(window.id)].schema
    plain = [F.col("w.start"), F.col("w.end"), *(F.col(f"k{place}") for place in range(len(keys)))]
    plain += [F.col(f"a{number}") for number in range(len(made))]
    shown = [
        column.cast(column_types.spark_type(field.type)).alias(name)
        for column, field, name in zip(plain, schema, column_types.values(schema), strict=True)
    ]
    hidden = [(F.unix_micros("w.end") - 1).alias(TIME), F.lit(False).alias(LATE)]
    return df.select(*shown, *hidden, F.lit(0).cast("long").alias(BOUND))


def _function(call: AggregateCall, type: str) -> Callable[[Column], Column]:
    """An aggregate of Spark's for an argument of a type of Spark's."""
    from pyspark.sql import functions as F

    if call.function == "avg" and type not in ("float", "double"):
        return partial(_mean, type)
    function: Callable[[Column], Column] = getattr(F, FUNCTIONS[call.function])
    if type == "boolean" and AGGREGATES[call.function].takes == "summable":
        return lambda column: function(column.cast("int"))
    return function


def _mean(type: str, column: Column) -> Column:
    """From the exact sum: Spark's own mean of decimals is rounded to four digits more, and that of integers
    adds floats."""
    from pyspark.sql import functions as F

    exact = "int" if type == "boolean" else type if type.startswith("decimal") else "decimal(20, 0)"
    return F.sum(column.cast(exact)).cast("double") / F.nullif(F.count(column), F.lit(0))
