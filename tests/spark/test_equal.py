"""Network monitoring and the tolls of figure 1: embedded, over nodes, as a batch and as a stream of Spark,
and with a fragment on Spark for a while: the same rows, in the same order, bit for bit; late ones too.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.workloads import netmon, netmon_check
from tests.spark.live import Feed, Written, ended
from tests.spark.placed import over_nodes
from tests.spark.same import check, delayed, plain

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Case:
    """A query, and rows that come out of order.

    Attributes:
        times: source -> its time's column and its slack, in the units of that.
        at: where it runs over nodes.
    """

    query: Callable[[], md.Query]
    inputs: Mapping[str, pa.Table]
    times: Mapping[str, tuple[str, int]]
    at: Mapping[str, Sequence[str]]


def with_late_rows(query: md.Query) -> md.Query:
    for source in query.sources:
        query.sink(f"late_{source}", query.stream(source).late)
    return query


def monitoring(rows: int) -> Case:
    trace = netmon.load_trace().drop_columns(["file_row"]).slice(0, rows)
    return Case(
        lambda: with_late_rows(netmon.query()),
        {"flows": delayed(trace, "ts_us", 2_500_000)},
        {"flows": ("ts_us", netmon.SLACK_US)},
        {"a": ["flows"], "b": ["per_src"]},
    )


def tolls(cars: int, seconds: int) -> Case:
    example = runpy.run_path(str(EXAMPLES / "figure1.py"))
    sightings = pa.table(example["sightings"](cars=cars, seconds=seconds))
    trucks = pa.table(example["tow_trucks"](seconds=seconds))
    return Case(
        lambda: with_late_rows(example["query"]()),
        {"sightings": delayed(sightings, "ts", 8), "trucks": delayed(trucks, "ts", 150)},
        {"sightings": ("ts", 5), "trucks": ("ts", 5)},
        {"a": ["sightings", "trucks"], "b": ["average_speed", "volume", "is_it_moving", "on_location"]},
    )


def late(case: Case, source: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rows below the largest time before them less the slack."""
    time, slack = case.times[source]
    times = case.inputs[source][time].to_numpy()
    return np.append(False, times[1:] < np.maximum.accumulate(times)[:-1] - slack)


def embedded(case: Case) -> dict[str, pa.Table]:
    """What each sink gives in this program, after a look at it without our operators."""
    got = md.collect(case.query(), **case.inputs)
    for source, rows in case.inputs.items():
        marks = pa.array(late(case, source))
        assert marks.true_count > 0
        assert plain(got[f"late_{source}"]) == plain(rows.filter(marks))
    if "flows" in case.inputs:
        _, wanted = netmon_check.expected(case.inputs["flows"].filter(pa.array(~late(case, "flows"))))
        answers = {sink: netmon_check.rows_of(sink, got[sink]) for sink in netmon.SINKS}
        assert all(each.equal for each in netmon_check.compare(answers, wanted))
    return {sink: got[sink] for sink in case.query().sinks}


def in_pieces(case: Case) -> dict[str, pa.Table]:
    """Embedded, pushed by one source after the other, some rows at a time."""
    with md.start(case.query()) as run:
        for piece in range(7):
            for source, rows in case.inputs.items():
                low, high = (rows.num_rows * each // 7 for each in (piece, piece + 1))
                run.push(source, rows.slice(low, high - low))
        run.finish()
        return {sink: run.take(sink) for sink in case.query().sinks}


def as_stream(case: Case, spark: Any, folder: Path, shards: int) -> dict[str, pa.Table]:
    """Three micro-batches; before the last the query ends, and goes on from its checkpoint."""
    made = {source: Feed(spark, folder / source) for source in case.inputs}
    written = Written(spark, folder / "checkpoint")
    parts = {}
    for source, rows in case.inputs.items():
        first, second, *last = ended(rows, [rows.num_rows // 3, rows.num_rows // 2])
        parts[source] = [[first, second], [pa.concat_tables(last)]]
    answers: Any = None
    for life in range(2):
        for source, pieces in parts.items():
            made[source].put(*pieces[life])
        frames = {source: feed.frame() for source, feed in made.items()}
        answers = md.spark.stream(case.query(), spark, frames, shards=shards)
        written.run(answers)
    assert len(written.batches) == 3
    return written.parts(answers)


def same(got: Mapping[str, pa.Table], want: Mapping[str, pa.Table]) -> None:
    assert set(got) == set(want)
    for sink, table in want.items():
        assert table.num_rows, sink
        assert plain(got[sink]) == plain(table.cast(got[sink].schema)), sink


SOME = {"monitoring": lambda: monitoring(20_000), "tolls": lambda: tolls(60, 600)}
SHARDS = {"monitoring": 2, "tolls": 1}
"""Of the stream: each box with keys costs every micro-batch two steps more."""
ALL = {"monitoring": lambda: monitoring(200_000), "tolls": lambda: tolls(600, 3_600)}


def four_ways(case: Case, spark: Any, folder: Path, shards: int) -> None:
    want = embedded(case)
    same(in_pieces(case), want)
    same(over_nodes(case.query(), case.at, case.inputs, folder / "nodes", None), want)
    same(check(spark, case.query(), dict(case.inputs)), want)
    same(as_stream(case, spark, folder, shards), want)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=(pytest.mark.full, pytest.mark.issue(7)) if name == "tolls" else ())
        for name in SOME
    ],
)
def test_embedded_over_nodes_as_batch_and_as_stream(spark: Any, tmp_path: Path, name: str) -> None:
    four_ways(SOME[name](), spark, tmp_path, shards=SHARDS[name])


@pytest.mark.parametrize("name", SOME)
def test_with_a_fragment_on_spark_and_back_while_rows_flow(spark: Any, tmp_path: Path, name: str) -> None:
    case = SOME[name]()
    same(over_nodes(case.query(), case.at, case.inputs, tmp_path / "nodes", spark), embedded(case))


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("name", ALL)
def test_all_rows_in_every_way(spark: Any, tmp_path: Path, name: str) -> None:
    case = ALL[name]()
    four_ways(case, spark, tmp_path, shards=3)
    same(over_nodes(case.query(), case.at, case.inputs, tmp_path / "moved", spark), embedded(case))
