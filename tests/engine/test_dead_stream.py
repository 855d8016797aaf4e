"""``box.dead``: every row on which an expression of a box failed, as a stream."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.core.dead_letters import row_json
from medusa.engine.fragment import Fragment
from medusa.query.boxes import Graph, Input, Sink

SCHEMA = {"ts": "timestamp", "k": "int64", "n": "int64"}


def rows_of(values: list[int], keys: list[int] | None = None) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "ts": pa.array(range(count), pa.timestamp("us", "UTC")),
            "k": keys or [0] * count,
            "n": pa.array(values, pa.int64()),
        }
    )


def collected(q: md.Query, **tables: pa.Table) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.DeadRowWarning)
        return md.collect(q, **tables)


def start() -> tuple[md.Query, md.Stream]:
    q = md.Query("q")
    return q, q.source("a", SCHEMA, slack=0)


def test_every_failed_row_not_only_the_first_hundred() -> None:
    q, a = start()
    kept = a.filter("1 // n > 0", name="kept")
    q.sink("good", kept)
    q.sink("failed", kept.dead)
    out = collected(q, a=rows_of([0, 1] * 500))
    assert out["good"].num_rows == 500
    assert out["failed"].schema == pa.schema([("box", "string"), ("error", "string"), ("row", "string")])
    failed = out["failed"].to_pylist()
    assert len(failed) == 500
    assert failed[3]["box"] == "kept"
    assert "0" in failed[3]["error"]
    assert json.loads(failed[3]["row"]) == {"ts": "1970-01-01T00:00:00.000006+00:00", "k": 0, "n": 0}
    assert {row["box"]: row["dead"] for row in out.stats.to_pylist()}["kept"] == 500


@pytest.mark.parametrize(
    "add",
    [
        lambda a: a.filter("1 // n > 0"),
        lambda a: a.select(x="1 // n"),
        lambda a: a.with_columns(x="1 // n"),
        lambda a: a.route("1 // n > 0", "n > 5")[1],
        lambda a: a.drop(where="1 // n > 0"),
        lambda a: a.drop(0.5, window="1s", by={"x": "1 // n"}),
        lambda a: a.distinct({"x": "1 // n"}, within="1s"),
        lambda a: a.bsort("ts", by={"x": "1 // n"}),
        lambda a: a.wsort("ts", timeout="1s", by={"x": "1 // n"}),
        lambda a: a.resample("1s", by={"x": "1 // n"}, gap="1s"),
        lambda a: a.window("1s").group_by(x="1 // n").aggregate(c=md.count()),
        lambda a: a.window("1s").aggregate(c=md.sum("1 // n")),
        lambda a: a.join(a.filter("true"), on="k", within=0, where="1 // left.n > 0"),
    ],
)
def test_of_every_box_that_computes(add: Any) -> None:
    q, a = start()
    made = add(a)
    q.sink("failed", made.dead)
    q.sink("others", made)
    out = collected(q, a=rows_of([1, 0, 2, 0]))
    errors = out["failed"].column("error").to_pylist()
    assert len(errors) == 2
    assert all("0" in error for error in errors)
    assert set(out["failed"].column("box").to_pylist()) == {made.arc.box}


def test_a_group_whose_sum_is_too_large() -> None:
    q, a = start()
    sums = a.window("1s").group_by("k").aggregate(total=md.sum("n"))
    q.sink("failed", sums.dead)
    out = collected(q, a=rows_of([2**62, 2**62, 2**62, 5], [1, 1, 2, 2]))
    (row,) = out["failed"].to_pylist()
    assert json.loads(row["row"])["k"] == 1
    assert "total" in row["error"]


def test_it_is_a_stream_like_others_but_without_time() -> None:
    q, a = start()
    dead = a.filter("1 // n > 0").dead
    assert not dead.timed
    assert list(dead.schema) == ["box", "error", "row"]
    q.sink("o", dead.union(a.select(x="1 // n").dead).filter("row like '%\"k\": 7%'"))
    out = collected(q, a=rows_of([0, 0, 1], [7, 8, 7]))
    assert out["o"].num_rows == 2
    with pytest.raises(md.QueryError, match="needs a time"):
        dead.window("1s")


def test_it_exists_where_it_is_read_only() -> None:
    q, a = start()
    kept = a.filter("n > 0")
    q.sink("o", kept)
    arc = Input(kept.arc.box, "dead")
    from medusa.query.graph import check_graph

    assert arc not in check_graph(q.graph).shapes
    q.sink("d", kept.dead)
    assert arc in check_graph(q.graph).shapes
    assert md.Query.from_json(q.to_json()).graph == q.graph
    assert f"filter {kept.arc.box}.dead (see above)" in q.explain()
    assert "|dead|" in q.diagram().mermaid


def test_boxes_that_compute_nothing_have_none() -> None:
    q, a = start()
    for stream in (a, a.union(a), md.sunion(a, a, bucket="1s"), a.drop(0.1), a.late):
        with pytest.raises(md.QueryError) as caught:
            stream.dead  # noqa: B018
        assert caught.value.code == "query.port"
    both = a.union(a, name="both")
    bad = Graph(name="q", boxes=(*q.graph.boxes, Sink(id="o", inputs=(Input(both.arc.box, "dead"),))))
    with pytest.raises(md.QueryError, match="no port 'dead'"):
        Fragment(bad)


def test_a_row_can_only_fail_on_a_predicate_that_it_is_asked() -> None:
    """And failed rows keep their order, on whichever predicate they failed, wherever trains are cut."""
    q, a = start()
    first, second, rest = a.route("1 // k > 0", "1 // n > 0", otherwise=True)
    for name, stream in {"first": first, "second": second, "rest": rest, "dead": first.dead}.items():
        q.sink(name, stream.select("n") if name != "dead" else stream)
    table = rows_of([0, 1, 0, 5, 1, 0], [1, 5, 7, 0, 8, 0])
    out = collected(q, a=table)
    assert out["first"].column("n").to_pylist() == [0]
    assert out["second"].column("n").to_pylist() == [1, 1]
    assert out["rest"].column("n").to_pylist() == []
    assert [json.loads(row)["ts"][-9:-6] for row in out["dead"].column("row").to_pylist()] == [
        "002",
        "003",
        "005",
    ]
    with warnings.catch_warnings(), md.start(q) as run:
        warnings.simplefilter("ignore", md.DeadRowWarning)
        for start_row in range(table.num_rows):
            run.push("a", table.slice(start_row, 1))
        run.finish()
        assert {name: run.take(name) for name in q.sinks} == dict(out)


def test_failed_rows_survive_a_restore() -> None:
    q, a = start()
    kept = a.filter("1 // n > 0")
    q.sink("failed", kept.dead)
    fragment = Fragment(q.graph)
    batch = rows_of([0, 1, 0]).to_batches()[0]
    fragment.push_rows("a", [batch], fragment.check_rows("a", [batch]))
    files = {name: bytes(data) for name, data in fragment.snapshot().items()}
    again = Fragment.restore(q.graph, files)
    again.push_rows("a", [batch], again.check_rows("a", [batch]))
    again.finish()
    trains = [each for each in again.drain("failed") if isinstance(each, md.Train)]
    assert sum(map(len, trains)) == 4
    assert trains[-1].first_seq + len(trains[-1]) == 4


def test_values_that_json_has_no_words_for() -> None:
    row = pa.table(
        {
            "at": pa.array([1 << 59], pa.timestamp("us", "UTC")),
            "f": [float("nan")],
            "g": [float("-inf")],
            "b": [b"\x00\xff"],
            "none": pa.array([None], pa.int32()),
            "text": ['say "ü"'],
        }
    )
    q = md.Query("q")
    a = q.source("a", row.schema, time="at")
    q.sink("o", a.select(x="1 // length('') + length(text)").dead)
    (found,) = collected(q, a=row)["o"].column("row").to_pylist()
    assert json.loads(found) == {
        "at": 1 << 59,
        "f": "NaN",
        "g": "-Infinity",
        "b": "00ff",
        "none": None,
        "text": 'say "ü"',
    }
    assert row_json({"x": float("inf")}) == '{"x": "Infinity"}'
