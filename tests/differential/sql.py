"""Queries in DuckDB's SQL: one common table expression per box.

Besides its columns each has ``_t``, the time of the row, ``_late`` and ``_pos``, by which its rows are in
order; so whole sequences can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from medusa.query import boxes as b
from medusa.query.boxes import Graph, Input
from medusa.query.boxes.windows_per_group import RowWindow, Session
from medusa.query.expressions.expression import Column
from medusa.query.graph import check_graph
from tests.differential.sql_expression import Unsupported, aggregate, expression


def quoted(*names: str) -> list[str]:
    return [f'"{name}"' for name in names]


class Translation:
    """The parts of WITH, made as sinks ask for them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.boxes = {box.id: box for box in graph.boxes}
        self.schemas = check_graph(graph).schemas
        self.parts: dict[Input, tuple[str, str]] = {}

    def names(self, arc: Input) -> list[str]:
        return [field.name for field in self.schemas[arc]]

    def stream(self, arc: Input) -> str:
        """The name of a part."""
        if arc not in self.parts:
            box = self.boxes[arc.box]
            if type(box) not in RULES:
                raise Unsupported(type(box).__name__)
            text = RULES[type(box)](self, box, arc.port)
            self.parts[arc] = (f"p{len(self.parts)}", text)
        return self.parts[arc][0]

    def sink(self, box: b.Sink) -> str:
        name = self.stream(box.inputs[0])
        parts = ", ".join(f"{name} AS MATERIALIZED ({text})" for name, text in self.parts.values())
        return (
            f"WITH {parts} SELECT {', '.join(quoted(*self.names(box.inputs[0])))} FROM {name} ORDER BY _pos"
        )


RULES: dict[type, Callable[[Translation, Any, str], str]] = {}
Rule = Callable[[Translation, Any, str], str]


def rule(*kinds: type) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


def floored(x: str, step: int) -> str:
    return f"CAST(floor(({x}) / {step}) AS BIGINT)"


@rule(b.Source)
def source(t: Translation, box: b.Source, port: str) -> str:
    if box.partition is not None or box.ahead_us is not None or box.time is None:
        raise Unsupported("lateness of partitions, rows ahead, rows without time")
    before = "max(_t) OVER (ORDER BY _pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    late = f"coalesce(_t < greatest({before} - {box.slack_us or 0}, _promised), false)"
    if not port:
        return f'SELECT * EXCLUDE (_promised), {late} AS _late FROM "{box.id}"'
    if port != "late":
        raise Unsupported(port)
    main = t.stream(Input(box.id))
    return f"SELECT * REPLACE (CAST(NULL AS BIGINT) AS _t, false AS _late) FROM {main} WHERE _late"


@rule(b.Filter)
def filtered(t: Translation, box: b.Filter, port: str) -> str:
    none(port)
    return f"SELECT * FROM {t.stream(box.inputs[0])} WHERE {expression(box.predicate)}"


@rule(b.ConnectionPoint)
def passed(t: Translation, box: b.ConnectionPoint, port: str) -> str:
    none(port)
    return f"SELECT * FROM {t.stream(box.inputs[0])}"


@rule(b.SemanticDrop)
def dropped(t: Translation, box: b.SemanticDrop, port: str) -> str:
    known = "IS TRUE" if port == "dropped" else "IS NOT TRUE"
    return f"SELECT * FROM {t.stream(box.inputs[0])} WHERE {expression(box.predicate)} {known}"


def none(port: str) -> None:
    if port:
        raise Unsupported(port)


@rule(b.Select, b.WithColumns)
def selected(t: Translation, box: Any, port: str) -> str:
    none(port)
    at = t.stream(box.inputs[0])
    made = {named.name: expression(named.expression) for named in box.columns}
    if isinstance(box, b.WithColumns):
        made = {name: f'"{name}"' for name in t.names(box.inputs[0])} | made
    listed = ", ".join(f'{text} AS "{name}"' for name, text in made.items())
    return f"SELECT {listed}, _t, _late, _pos FROM {at}"


@rule(b.Route)
def routed(t: Translation, box: b.Route, port: str) -> str:
    texts = [expression(each) for each in box.predicates]
    if port == "otherwise":
        earlier, own = texts, []
    else:
        number = int(port or 0)
        earlier, own = texts[:number], [texts[number]]
    conditions = [f"{each} IS NOT TRUE" for each in earlier] + [f"{each} IS TRUE" for each in own]
    return f"SELECT * FROM {t.stream(box.inputs[0])} WHERE {' AND '.join(conditions)}"


@rule(b.Union, b.SUnion)
def united(t: Translation, box: Any, port: str) -> str:
    several = [
        f"SELECT {', '.join(quoted(*t.names(arc)))}, _t, _late, _pos AS _place, {number} AS _input"
        f" FROM {t.stream(arc)}"
        for number, arc in enumerate(box.inputs)
    ]
    order, where = "", ""
    if isinstance(box, b.SUnion):
        order, where = f"ORDER BY {floored('_t', box.bucket_us)}, _t, _input, _place", "WHERE NOT _late"
    rows = " UNION ALL ".join(several)
    return f"SELECT * EXCLUDE (_place, _input), row_number() OVER ({order}) AS _pos FROM ({rows}) {where}"


# -- windows


def keyed(box: Any) -> list[tuple[str, str]]:
    return [(expression(key.expression), key.name) for key in box.keys]


def in_windows(t: Translation, box: Any) -> str:
    """Rows in time with the start of each of their windows, ``_w``."""
    low = f"({floored(f'_t - {box.size_us}', box.advance_us)} + 1) * {box.advance_us}"
    high = f"{floored('_t', box.advance_us)} * {box.advance_us}"
    series = f"unnest(generate_series({low}, {high}, {box.advance_us}))"
    return f"(SELECT *, {series} AS _w FROM {t.stream(box.inputs[0])} WHERE NOT _late)"


def results(box: Any, rows: str, start: str, end: str, parts: dict[str, str], more: str = "") -> str:
    """A row per group. ``parts``: its time, what its place is by, what besides the keys groups, and by
    what first and last go."""
    keys = keyed(box)
    listed = [f"{start} AS window_start", f"{end} AS window_end"]
    listed += [f'{text} AS "{name}"' for text, name in keys]
    listed += [f'{aggregate(call, order=parts["order"])} AS "{call.name}"' for call in box.aggregates]
    listed += [f"{parts['time']} AS _t", "false AS _late"]
    listed += [f"row_number() OVER (ORDER BY {parts['place']}) AS _pos"]
    groups = ", ".join([*(text for text, _ in keys), parts["group"]])
    return f"SELECT {', '.join(listed)} FROM {rows} GROUP BY {groups} {more}"


@rule(b.Aggregate)
def windows(t: Translation, box: b.Aggregate, port: str) -> str:
    none(port)
    parts = {
        "time": f"_w + {box.size_us - 1}",
        "place": "_w, min(_pos)",
        "group": "_w",
        "order": "_t, _pos",
    }
    return results(box, in_windows(t, box), "_w", f"_w + {box.size_us}", parts)


def over(box: Any, order: str, frame: str = "") -> str:
    keys = ", ".join(text for text, _ in keyed(box))
    return f"OVER ({f'PARTITION BY {keys}' if keys else ''} ORDER BY {order} {frame})"


@rule(Session)
def sessions(t: Translation, box: Session, port: str) -> str:
    """Gaps and islands."""
    none(port)
    at = t.stream(box.inputs[0])
    begins = f"CASE WHEN _t - lag(_t) {over(box, '_t, _pos')} < {box.gap_us} THEN 0 ELSE 1 END"
    marked = f"(SELECT *, {begins} AS _begins FROM {at} WHERE NOT _late)"
    numbered = (
        f"(SELECT *, sum(_begins) {over(box, '_t, _pos', 'ROWS UNBOUNDED PRECEDING')} AS _w FROM {marked})"
    )
    parts = {
        "time": f"max(_t) + {box.gap_us - 1}",
        "place": "max(_t), min(_t), min(_pos)",
        "group": "_w",
        "order": "_t, _pos",
    }
    return results(box, numbered, "min(_t)", f"max(_t) + {box.gap_us}", parts)


@rule(RowWindow)
def row_windows(t: Translation, box: RowWindow, port: str) -> str:
    none(port)
    number = f"row_number() {over(box, '_pos')} - 1 AS _n"
    numbered = f"(SELECT *, {number} FROM {t.stream(box.inputs[0])} WHERE NOT _late)"
    low = f"greatest(0, ({floored(f'_n - {box.size}', box.advance)} + 1) * {box.advance})"
    high = f"{floored('_n', box.advance)} * {box.advance}"
    spread = f"(SELECT *, unnest(generate_series({low}, {high}, {box.advance})) AS _w FROM {numbered})"
    parts = {"time": "max(_t)", "place": "max(_pos), _w", "group": "_w", "order": "_pos"}
    return results(box, spread, "_w", f"_w + {box.size}", parts, f"HAVING count(*) = {box.size}")


@rule(b.Running)
def running(t: Translation, box: b.Running, port: str) -> str:
    none(port)
    if box.expire_us is not None:
        raise Unsupported("expire")
    frame = over(box, "_pos", "ROWS UNBOUNDED PRECEDING")
    made = ", ".join(f'{aggregate(call, over=frame)} AS "{call.name}"' for call in box.aggregates)
    return f"SELECT *, {made} FROM {t.stream(box.inputs[0])}"


@rule(b.Top)
def top(t: Translation, box: b.Top, port: str) -> str:
    none(port)
    keys = keyed(box)
    group = ", ".join(["_w", *(text for text, _ in keys)])
    order = f"{expression(box.by)} {'DESC' if box.descending else 'ASC'} NULLS LAST, _pos"
    gone = {key.expression.name for key in box.keys if isinstance(key.expression, Column)}
    others = quoted(*(name for name in t.names(box.inputs[0]) if name not in gone))
    listed = [f"_w AS window_start, _w + {box.size_us} AS window_end"]
    listed += [f'{text} AS "{name}"' for text, name in keys] + others
    listed += [f"row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS rank"]
    listed += [f"_w + {box.size_us - 1} AS _t, false AS _late, _w"]
    listed += [f"min(_pos) OVER (PARTITION BY {group}) AS _first"]
    inner = f"SELECT {', '.join(listed)} FROM {in_windows(t, box)}"
    place = "row_number() OVER (ORDER BY _w, _first, rank)"
    return f"SELECT * EXCLUDE (_w, _first), {place} AS _pos FROM ({inner}) WHERE rank <= {box.n}"


# -- joins


def pairing(t: Translation, box: Any, bounds: tuple[str, ...]) -> tuple[str, str, str]:
    """The left and the right rows, and what makes a pair of two."""
    left, right = (f"(SELECT * FROM {t.stream(arc)} WHERE NOT _late)" for arc in box.inputs)
    conditions = [f"l.{name} = r.{name}" for name in bounds]
    for one, other in zip(box.left_keys, box.right_keys, strict=True):
        conditions.append(f"{of_side(one, 'l')} = {of_side(other, 'r')}")
    if isinstance(box, b.Join):
        conditions.append(f"abs(l._t - r._t) <= {box.within_us}")
    if isinstance(box, b.AsofJoin):
        conditions.append("r._t <= l._t")
        if box.within_us is not None:
            conditions.append(f"l._t - r._t <= {box.within_us}")
    if box.where is not None:
        conditions.append(expression(box.where))
    return left, right, " AND ".join(conditions)


def of_side(key: Any, side: str) -> str:
    if not isinstance(key.expression, Column):
        raise Unsupported("an expression as a key of a join")
    return f'{side}."{key.expression.name}"'


def joined_columns(t: Translation, box: Any, bounds: tuple[str, ...]) -> list[str]:
    """Bounds, keys, others of the left, others of the right, under the names that the box gives them."""
    texts = [f"coalesce(l.{name}, r.{name})" for name in bounds]
    for one, other in zip(box.left_keys, box.right_keys, strict=True):
        texts.append(f"CASE WHEN l._pos IS NULL THEN {of_side(other, 'r')} ELSE {of_side(one, 'l')} END")
    for side, arc, keys in (("l", box.inputs[0], box.left_keys), ("r", box.inputs[1], box.right_keys)):
        gone = {key.expression.name for key in keys} | {*bounds}
        texts += [f'{side}."{name}"' for name in t.names(arc) if name not in gone]
    names = t.names(Input(box.id))
    return [f'{text} AS "{name}"' for text, name in zip(texts, names, strict=True)]


@rule(b.Join, b.WindowJoin)
def joined(t: Translation, box: Any, port: str) -> str:
    none(port)
    bounds = () if isinstance(box, b.Join) else ("window_start", "window_end")
    within = box.within_us if isinstance(box, b.Join) else 0
    left, right, condition = pairing(t, box, bounds)
    if box.how in ("semi", "anti"):
        names = ", ".join(f'l."{name}"' for name in [*t.names(box.inputs[0]), "_t"])
        if box.how == "semi":
            first = "row_number() OVER (PARTITION BY l._pos ORDER BY greatest(l._t, r._t)) AS _n"
            rows = (
                f"SELECT {names}, l._pos AS _l, greatest(l._t, r._t) AS _release, {first}"
                f" FROM {left} l JOIN {right} r ON {condition}"
            )
            rows = f"SELECT * EXCLUDE (_n) FROM ({rows}) WHERE _n = 1"
        else:
            rows = (
                f"SELECT {names}, l._pos AS _l, l._t + {within} AS _release FROM {left} l"
                f" LEFT JOIN {right} r ON {condition} WHERE r._pos IS NULL"
            )
        place = "row_number() OVER (ORDER BY _release, _l)"
        return f"SELECT * EXCLUDE (_l, _release), false AS _late, {place} AS _pos FROM ({rows})"
    listed = ", ".join(joined_columns(t, box, bounds))
    alone = "l._pos IS NULL OR r._pos IS NULL"
    own = "coalesce(l._t, r._t)"
    rows = (
        f"SELECT {listed}, CASE WHEN {alone} THEN {own} ELSE greatest(l._t, r._t) END AS _t,"
        f" CASE WHEN {alone} THEN {own} + {within} ELSE greatest(l._t, r._t) END AS _release,"
        f" l._pos AS _l, r._pos AS _r FROM {left} l {box.how} JOIN {right} r ON {condition}"
    )
    place = "row_number() OVER (ORDER BY _release, _l NULLS LAST, _r NULLS LAST)"
    return f"SELECT * EXCLUDE (_release, _l, _r), false AS _late, {place} AS _pos FROM ({rows})"


@rule(b.AsofJoin)
def asof_joined(t: Translation, box: b.AsofJoin, port: str) -> str:
    none(port)
    left, right, condition = pairing(t, box, ())
    listed = ", ".join(joined_columns(t, box, ()))
    latest = "row_number() OVER (PARTITION BY l._pos ORDER BY r._t DESC, r._pos DESC) AS _n"
    rows = (
        f"SELECT {listed}, l._t AS _t, l._pos AS _l, {latest}"
        f" FROM {left} l {box.how} JOIN {right} r ON {condition}"
    )
    place = "row_number() OVER (ORDER BY _t, _l)"
    return f"SELECT * EXCLUDE (_l, _n), false AS _late, {place} AS _pos FROM ({rows}) WHERE _n = 1"
