"""When validation says that it can't judge, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import medusa as md
from medusa.apps.pipeline.doubts import gaps, shed_by, unmarked, why_unordered
from medusa.apps.pipeline.folder import VERSION, ArchiveFile, Manifest, Stored
from medusa.apps.pipeline.report import Report, SinkReport
from medusa.query.boxes import Field

SCHEMA = (Field("v", "int64"),)


def stored(*ranges: tuple[int, int, int], by: str = "archive", **more: Any) -> Stored:
    files = tuple(
        ArchiveFile(path=f"rows/{n}", rows=rows, bytes=1, first=a, last=b, from_us=a, to_us=b)
        for n, (a, b, rows) in enumerate(ranges)
    )
    manifest = Manifest(
        medusa_archive=VERSION,
        kind="archive",
        stream="q.out",
        schema=SCHEMA,
        rows=sum(each.rows for each in files),
        files=files,
        made={"by": by},
        **more,
    )
    return Stored(Path("somewhere"), manifest)


def query(*, union: bool = False) -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    if union:
        rows = rows.union(rows)
    q.sink("out", rows.filter("v > 0", name="positive"))
    return q


def test_an_archive_of_a_stream_tells_what_it_lacks() -> None:
    assert not list(gaps("source", {"rows": stored((0, 9, 10), (10, 19, 10))}))
    assert list(gaps("source", {"rows": stored((0, 9, 10), (13, 19, 7))})) == [
        "source rows: its archive lacks 3 rows of the stream, which the node had let go before they were read"
    ]
    assert list(gaps("sink", {"out": stored((5, 9, 5))})) == [
        "sink out: its archive begins with row 5 of the stream"
    ]
    assert not list(gaps("source", {"rows": stored((5, 99, 3), by="prepare"), "none": stored()}))


def test_an_archive_that_still_grows_may_lack_rows_unless_it_reaches_the_time_that_is_asked_for() -> None:
    """The windows that were open were told as rows that the stream should have given."""
    growing = {"rows": stored((0, 9, 10), complete=False, time="v")}
    doubt = "{}: its archive isn't complete: more rows of the stream may come"
    for what, until_us, told in (
        ("source", None, True),
        ("source", 10, True),
        ("source", 9, False),
        ("sink", None, True),
        ("sink", 10, False),
    ):
        assert list(gaps(what, growing, until_us)) == ([doubt.format(f"{what} rows")] if told else [])
    assert list(gaps("source", {"rows": stored(complete=False, time="v")}, 9)) == [
        doubt.format("source rows")
    ]
    assert not list(gaps("source", {"rows": stored((0, 9, 10), time="v")}, 10))


def test_rows_that_a_run_shed_and_no_archive_marks_are_told(tmp_path: Path) -> None:
    q = query()
    with md.start(q) as run:
        run.push("rows", {"ts": [1], "v": [1]})
        stats = run.stats()
    assert shed_by(stats) == {}
    rows = stats.to_pylist()
    for row in rows:
        row["shed"] = {"rows": 5, "positive": 2, "out": 7}[row["box"]]
    wrong = stats.from_pylist(rows, stats.schema)
    pq.write_table(wrong, tmp_path / "stats.parquet")
    assert shed_by(wrong) == shed_by(tmp_path / "stats.parquet") == {"rows": 5, "positive": 2, "out": 7}
    said = list(unmarked(q.graph, shed_by(wrong), {"rows": 5}))
    assert said == ["filter 'positive': 2 rows were shed before it, which no archive of a source marks"]
    assert "5 rows were shed behind it, and the archive marks 0" in next(
        unmarked(q.graph, shed_by(wrong), {"rows": None})
    )
    for given in (7, {"shed": 1}, tmp_path / "none.parquet"):
        with pytest.raises(md.DataError, match="stats: "):
            shed_by(given)


def test_the_order_is_compared_where_it_is_promised_and_known() -> None:
    known: dict[str, Any] = {"has": {"rows": True}, "numbered": True, "floats": 0.0}
    assert why_unordered(query().graph, "out", SCHEMA, **known) == ""
    for more, why in (
        ({"numbered": False}, "the answers have no column _seq"),
        ({"has": {"rows": False}}, "a source has no column _seq"),
        ({"floats": 1e-9}, "combined partials"),
    ):
        assert why in why_unordered(query().graph, "out", SCHEMA, **{**known, **more})
    assert "a union takes rows as they arrive" in why_unordered(
        query(union=True).graph, "out", SCHEMA, **known
    )


def test_a_report_says_whether_it_judges() -> None:
    def sink(missing: int) -> SinkReport:
        return SinkReport("out", 3, 3 - missing, 0, missing, 0, 0, (), {"v": "int64"}, {})

    def report(missing: int, **more: Any) -> Report:
        return Report("q", 0.0, {"rows": 0}, {"rows": None}, (sink(missing),), **more)

    doubt = ("source rows: its archive lacks 3 rows of the stream",)
    for missing, doubts, judged, says in (
        (0, doubt, True, "the stream's answers equal the batch's"),
        (1, doubt, False, "whether the stream's answers are right can't be told"),
        (1, (), True, "the stream's answers differ from the batch's"),
    ):
        made = report(missing, doubts=doubts)
        assert (made.judged, made.to_json()["judged"]) == (judged, judged)
        assert says in str(made)
        assert (doubt[0] in str(made)) == bool(doubts)
    assert "stats=run.stats()" in str(report(1, may_shed=True))
    assert "stats=run.stats()" not in str(report(0, may_shed=True))
