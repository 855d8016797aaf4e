"""The data pipeline: archives that are made, validated and summed up, as functions and as commands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.apps.pipeline.compare import compared
from medusa.apps.pipeline.frames import frame
from medusa.apps.pipeline.keys import key_of
from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.linear_road_traffic import Traffic, traffic
from medusa.apps.workloads.scaled import shifted
from medusa.cli.main import main
from medusa.query.boxes import Field
from tests.spark.cases import SCHEMA, rows
from tests.spark.same import as_archive, in_spark, plain


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, arguments)])


def ordered(folder: Path) -> pa.Table:
    return pq.read_table(folder).sort_by("_seq")


# prepare


def test_each_copy_of_netmon_has_the_answers_of_the_trace(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "flows"
    done = command("prepare", "netmon", "--copies", 2, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    trace = netmon.load_trace()
    assert (told["rows"], told["files"], told["made"]["copies"]) == (2 * len(trace), 17, 2)
    assert (told["from_us"], told["to_us"]) == (trace["ts_us"][0].as_py(), trace["ts_us"][-1].as_py())

    stored = md.spark.open_archive(out)
    table = ordered(out)
    assert table["_seq"].to_pylist() == list(range(2 * len(trace)))
    assert frame(stored, spark).count() == 2 * len(trace)
    assert all(
        part.from_us // netmon.WINDOW_US == part.to_us // netmon.WINDOW_US for part in stored.manifest.files
    )

    query = md.Query.from_json((out / "_query.json").read_text())
    assert query.graph == netmon.query().graph
    got = md.collect(query, flows=table.drop_columns(["_seq"]))
    one = netmon_check.by_python(trace)
    every = trace["src"].unique().to_pylist()
    moved = dict(zip(every, shifted(every, 1), strict=True))
    for name, answers in one.items():
        if name == "clusters":
            second = [(at, shifted([f"{net}.0"], 1)[0].rpartition(".")[0], n) for at, net, n in answers]
        else:
            second = [(at, moved[src], *numbers) for at, src, *numbers in answers]
        assert netmon_check.rows_of(name, got[name]) == sorted([*answers, *second]), name


def test_made_traffic_is_sorted_over_all_expressways(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "cars"
    done = command("prepare", "linear-road", "--xways", 2, "--cars", 60, "--seconds", 200, "--out", out, "-q")
    assert done.exit_code == 0, done.output
    parts = [traffic(Traffic(seconds=200, cars=60), seed=seed).to_pandas() for seed in (0, 1)]
    parts[1].vid += 60
    parts[1].loc[parts[1].type == 0, "xway"] += 1
    parts[1].loc[parts[1].qid >= 0, "qid"] += 60 * 7
    expected = pd.concat(parts).sort_values("time", kind="stable")
    got = ordered(out).to_pandas()
    assert got.pop("_seq").tolist() == list(range(len(expected)))
    assert (got.to_numpy() == expected.to_numpy()).all()


TRACE = pa.table(
    {
        "junk": ["x"] * 500,
        "ts": [(7 * n) % 60 for n in range(500)],
        "k": [n % 3 for n in range(500)],
        "v": [None if n % 50 == 0 else n / 8 for n in range(500)],
    }
)
COLUMNS = {"ts": "int64", "k": "int32", "v": "float64"}


def halves(folder: Path) -> Path:
    """The trace as two files."""
    folder.mkdir()
    csv.write_csv(TRACE.slice(0, 250), folder / "a.csv")
    csv.write_csv(TRACE.slice(250), folder / "b.csv")
    return folder


def test_a_trace_gets_its_positions_by_time_or_by_place_in_its_files(spark: Any, tmp_path: Path) -> None:
    files = halves(tmp_path / "trace")
    by_time = md.spark.prepare(files, spark, tmp_path / "t", schema=COLUMNS, unit="s", period="10s")
    expected = TRACE.select(["ts", "k", "v"]).to_pylist()
    assert ordered(tmp_path / "t").drop_columns("_seq").to_pylist() == sorted(
        expected, key=lambda row: row["ts"]
    )
    assert [part.rows for part in by_time.manifest.files] == [
        sum(row["ts"] // 10 == slot for row in expected) for slot in range(6)
    ]
    by_file = md.spark.prepare(
        files, spark, tmp_path / "f", schema=COLUMNS, unit="s", order="file", period="10s"
    )
    table = ordered(tmp_path / "f")
    assert table["_seq"].to_pylist() == list(range(500))
    assert table.drop_columns("_seq").to_pylist() == expected
    assert (by_file.manifest.stream, by_file.manifest.unit) == ("trace", "s")
    taken: list[Any] = []
    md.spark.replay(by_file, lambda batch: taken.extend(batch.to_pylist()))
    assert taken == expected


def test_a_value_that_does_not_fit_stops_it_and_leaves_a_folder_that_is_known_as_half_written(
    spark: Any, tmp_path: Path
) -> None:
    files, out = halves(tmp_path / "trace"), tmp_path / "out"
    schema = "ts int64, junk int32"
    done = command("prepare", "trace", files, "--schema", schema, "--unit", "s", "--out", out)
    assert done.exit_code == 1
    assert "column 'junk': expected int32, came 'x'" in done.stderr
    with pytest.raises(md.DataError, match="is half-written"):
        md.spark.open_archive(out)
    schema = "ts int64, junk text"
    again = ("prepare", "trace", files, "--schema", schema, "--unit", "s", "--out", out, "--stream", "cars")
    assert "there is an archive already, half-written" in command(*again).stderr
    assert command(*again, "--replace", "--json").exit_code == 0
    assert md.spark.open_archive(out).manifest.rows == 500


def test_casts_never_change_a_value(spark: Any, tmp_path: Path) -> None:
    """From Parquet: what fits is cast, what would be another value is refused."""
    file = tmp_path / "t.parquet"
    given = {"ts": [1, 2], "a": [2**31 - 1, 5], "b": [2.0, 2.5], "c": ["7", "255"], "d": ["1.23", "1.239"]}
    pq.write_table(pa.table(given), file)
    good = {"ts": "int64", "a": "int32", "c": "uint8"}
    md.spark.prepare(file, spark, tmp_path / "good", schema=good, unit="s")
    assert ordered(tmp_path / "good")["c"].to_pylist() == [7, 255]
    assert ordered(tmp_path / "good").schema.field("c").type == pa.uint8()
    for place, bad in enumerate(({"b": "int64"}, {"a": "int8"}, {"d": "decimal128(5, 2)"})):
        with pytest.raises(md.DataError, match=r"column '[abd]': expected (int(64|8)|decimal.*), came '"):
            md.spark.prepare(file, spark, tmp_path / f"bad{place}", schema={"ts": "int64", **bad}, unit="s")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schema": {"ts": "int64", "w": "int64"}, "unit": "s"}, "column 'w' is missing"),
        ({"schema": {"ts": "int64"}}, "unit"),
        ({}, "which types have its columns"),
        ({"schema": {"ts": "int64", "k": "int65"}, "unit": "s"}, "int65"),
        ({"schema": COLUMNS, "unit": "s", "order": "size"}, "order is"),
        ({"schema": {"k": "int32"}, "time": None}, "has no time to be ordered by"),
        ({"schema": {"ts": "int64", "k": "int32", "K": "int32"}, "unit": "s"}, "case alone|missing"),
    ],
)
def test_what_a_trace_can_not_be_made_of_is_refused_and_nothing_is_written(
    spark: Any, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    csv.write_csv(TRACE.slice(0, 3), tmp_path / "t.csv")
    with pytest.raises(md.MedusaError, match=said):
        md.spark.prepare(tmp_path / "t.csv", spark, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# validate


def cars(slack: str = "5s") -> md.Query:
    q = md.Query("cars")
    given = q.source("cars", SCHEMA, time="ts", slack=slack)
    per_k = given.window("20s").group_by("k").aggregate(c=md.count(), s=md.sum("v"), name="counts")
    q.sink("per_k", per_k.filter("c > 1").select("window_start", "window_end", "s", "c", key="k"))
    q.sink("late", given.late)
    return q


def live(query: md.Query, table: pa.Table) -> dict[str, pa.Table]:
    with md.start(query) as run:
        run.push("cars", table)
        run.finish()
        return {sink: run.take(sink) for sink in query.sinks}


@pytest.mark.full
@pytest.mark.issue(7)
def test_batch_without_late_and_shed_rows_is_what_the_stream_answered(spark: Any, tmp_path: Path) -> None:
    """The stream shed every seventh row and had partitions: only what was logged tells what it took."""
    query, table = cars(), rows(21)
    shed = [n % 7 == 0 for n in range(len(table))]
    kept = table.filter(pa.array([not each for each in shed]))
    answers = live(cars(), kept)
    late = {tuple(map(repr, row.values())) for row in answers["late"].to_pylist()}
    marks = [
        not gone and tuple(map(repr, row.values())) in late
        for row, gone in zip(table.to_pylist(), shed, strict=True)
    ]
    archive = in_spark(spark, as_archive(table, _late=pa.array(marks), _shed=pa.array(shed)))
    given = {sink: spark.createDataFrame(answer) for sink, answer in answers.items()}
    report = md.spark.validate(query, spark, archive=archive, answers=given)
    assert report.equal, str(report)
    assert {sink.sink: sink.expected for sink in report.sinks} == {k: v.num_rows for k, v in answers.items()}
    assert (report.late, report.shed) == ({"cars": sum(marks)}, {"cars": sum(shed)})
    assert report.sinks[0].key == ("window_start", "window_end", "key")
    assert report.sinks[0].exactly["s"] == "float64"
    assert not md.spark.validate(
        query, spark, archive=archive.drop("_shed"), answers={"per_k": given["per_k"]}
    ).equal


def changed(answer: pa.Table, *changes: str) -> pa.Table:
    """The answer with something wrong in it, each in another row."""
    found = answer.to_pylist()
    places = [n for n, row in enumerate(found) if row["s"] is not None and math.isfinite(row["s"])]
    for change, place in zip(changes, places, strict=False):
        row = found[place]
        match change:
            case "value":
                row["c"] += 1
            case "bit":
                row["s"] = math.nextafter(row["s"], math.inf)
            case "twice":
                found.append(dict(row))
            case "extra":
                found.append(row | {"key": 99})
    if "missing" in changes:
        del found[places[changes.index("missing")]]
    return pa.Table.from_pylist(found, answer.schema)


@pytest.fixture(scope="module")
def prepared(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """An archive in order of arrival, and what a run answered."""
    folder, table = tmp_path_factory.mktemp("pipeline"), rows(22)
    md.spark.prepare(in_spark(spark, table, 1), spark, folder / "cars", query=cars(), order="file")
    assert plain(ordered(folder / "cars").drop_columns("_seq")) == plain(table)
    return folder / "cars", live(cars(), table)["per_k"]


@pytest.mark.parametrize(
    ("changes", "floats", "found"),
    [
        (("value", "twice", "extra", "bit", "missing"), 0.0, (2, 1, 2, 0)),
        (("bit", "value", "bit"), 1e-9, (1, 0, 0, 2)),
    ],
)
def test_planted_differences_are_found(
    spark: Any,
    prepared: tuple[Path, pa.Table],
    changes: tuple[str, ...],
    floats: float,
    found: tuple[int, ...],
) -> None:
    archive, answer = prepared
    wrong = changed(answer, *changes)
    given = {"per_k": spark.createDataFrame(wrong)}
    report = md.spark.validate(cars(), spark, archive=archive, answers=given, floats=floats)
    (sink,) = report.sinks
    assert (sink.different, sink.missing, sink.extra, sink.near) == found, str(report)
    assert (sink.expected, sink.answered) == (answer.num_rows, wrong.num_rows)
    assert not report.equal
    assert report.left_out == ("late",)
    words = sorted(each["what"] for each in sink.examples)
    pairs = [*["answered"] * found[0], *["expected"] * found[0]]
    assert words == [*pairs, *["extra"] * found[2], *["missing"] * found[1]]
    assert list(sink.within) == (["s"] if floats else [])
    assert ("key 99" in str(report)) == ("extra" in changes)


def test_floats_are_paired_with_what_is_near_whatever_is_missing_or_not_finite(spark: Any) -> None:
    """Two columns of floats and no key: rows at other places by their floats are still the same."""
    nan, inf = float("nan"), float("inf")
    rows = [*((n / 7, 9e9 - n) for n in range(60)), (nan, 1.0), (inf, 2.0), (-0.0, 3.0), (None, 4.0)]
    came = [(x and x * (1 + 1e-12), y * (1 - 1e-12)) for x, y in rows]
    schema = (Field("x", "float64"), Field("y", "float64"))

    def report(left: list[Any], right: list[Any]) -> Any:
        sides = [
            in_spark(spark, pa.table(dict(zip("xy", map(list, zip(*side, strict=True)), strict=True))))
            for side in (left, right)
        ]
        return compared("out", schema, *sides, key=(), floats=1e-9, examples=5)

    made = report(rows, [*came[:7], *came[8:30], (1.0, 5.0), *came[31:]])
    assert (made.missing, made.extra, made.near, made.unsure) == (2, 1, len(rows) - 2, 0), made
    wrong = report([(nan, 1.0), (inf, 1.0), (None, 1.0)], [(7.0, 1.0), (-inf, 1.0), (0.0, 1.0)])
    assert (wrong.missing, wrong.extra, wrong.near) == (3, 3, 0)


def test_numbered_answers_have_to_be_in_the_order_of_the_batch(
    spark: Any, prepared: tuple[Path, pa.Table]
) -> None:
    archive, answer = prepared
    numbers = np.arange(answer.num_rows) * 3 + 7
    told = answer.append_column("_seq", pa.array(numbers)).take(
        np.random.default_rng(1).permutation(len(numbers))
    )

    def report(table: pa.Table, **options: Any) -> Any:
        given = {"per_k": in_spark(spark, table)}
        return md.spark.validate(cars(), spark, archive=archive, answers=given, **options)

    same = report(told)
    assert (same.equal, same.sinks[0].order) == (True, "same")
    assert "all equal, in the same order" in str(same)
    swapped = numbers.copy()
    swapped[[4, 5]] = swapped[[5, 4]]
    other = answer.append_column("_seq", pa.array(swapped))
    wrong = report(other)
    (sink,) = wrong.sinks
    assert (wrong.equal, sink.order, sink.moved, sink.missing, sink.extra) == (False, "differs", 2, 0, 0)
    assert [each["what"] for each in sink.examples] == ["expected as row 4", "answered as row 4"]
    rows = answer.to_pylist()
    assert [(each["key"], each["c"]) for each in sink.examples] == [
        (rows[at]["key"], rows[at]["c"]) for at in (4, 5)
    ]
    assert "2 stand elsewhere" in str(wrong)
    assert report(other, any_order=True).equal
    assert report(other, floats=1e-9).equal
    assert report(other, until=rows[3]["window_end"]).sinks[0].expected >= 4


def test_of_a_stream_that_still_runs_the_windows_that_have_ended_are_compared(
    spark: Any, prepared: tuple[Path, pa.Table]
) -> None:
    archive, answer = prepared
    ends = sorted({*answer["window_end"].to_pylist()})
    so_far = answer.filter(pc.field("window_end") <= ends[3])
    assert 0 < so_far.num_rows < answer.num_rows
    report = md.spark.validate(
        cars(), spark, archive=archive, answers={"per_k": so_far}, until=ends[3].isoformat(sep=" ")
    )
    assert report.equal, str(report)
    assert report.sinks[0].expected == so_far.num_rows
    with pytest.raises(md.DataError, match="sink 'late' has no column window_end"):
        md.spark.validate(cars(), spark, archive=archive, answers={"late": so_far}, until=0)


def test_the_command_says_what_differs_by_its_exit_code(
    spark: Any, prepared: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    archive, answer = prepared
    (tmp_path / "cars.json").write_text(cars().to_json())
    pq.write_table(answer, tmp_path / "same.parquet")
    pq.write_table(changed(answer, "value"), tmp_path / "other.parquet")
    asked = ("validate", tmp_path / "cars.json", "--archive", archive, "--answers")
    done = command(*asked, f"per_k={tmp_path / 'same.parquet'}", "--json")
    assert (done.exit_code, json.loads(done.stdout)["equal"]) == (0, True)
    done = command(*asked, f"per_k={tmp_path / 'other.parquet'}")
    assert done.exit_code == 1
    assert "0 missing, 0 extra, 1 different" in done.stdout
    assert "not compared, as there were no answers of them: late" in done.stdout
    for place, said in (
        (f"per_k={tmp_path / 'none.parquet'}", "there is no such folder or file"),
        (f"per_g={tmp_path / 'same.parquet'}", "has no sink 'per_g'"),
        (tmp_path / "same.parquet", "which sink is"),
        (f"late={tmp_path / 'same.parquet'}", "have no column 'ts'"),
    ):
        done = command(*asked, place)
        assert done.exit_code == 1
        assert said in done.stderr


def test_keys_of_sinks_are_known_where_boxes_on_rows_keep_them() -> None:
    q = md.Query("keys")
    given = q.source("cars", SCHEMA, time="ts", slack="5s")
    per = given.window("20s").group_by("k", "g").aggregate(c=md.count(), name="per")
    only = given.window("20s").group_by("k").aggregate(d=md.count(), name="only")
    q.sink("renamed", per.select("window_start", "window_end", kk="k", g="g", k="c"))
    q.sink("lost", per.select("window_start", "window_end", "g", "c"))
    q.sink("hidden", per.with_columns(k="c"))
    q.sink("joined", only.join(only.select("window_start", "window_end", "k", e="d"), on=["window", "k"]))
    q.sink("wide", per.join(only, on=["window", "k"]))
    q.sink("two", per.union(per))
    q.sink("plain", given.filter("v > 0"))
    made = {sink: key_of(q.graph, sink) for sink in q.sinks}
    window = ("window_start", "window_end")
    assert made == dict.fromkeys(q.sinks, ()) | {
        "renamed": (*window, "kk", "g"),
        "joined": (*window, "k"),
    }


# history


def test_history_is_what_pandas_finds(spark: Any, prepared: tuple[Path, pa.Table], tmp_path: Path) -> None:
    archive, _ = prepared
    out = tmp_path / "history"
    (tmp_path / "cars.json").write_text(cars().to_json())
    asked = ("history", tmp_path / "cars.json", "--archive", archive, "--out", out, "--by", "k")
    asked += ("--by", "up=g || '!'", "--period", "1min", "--column", "n", "--exact", "--json")
    asked += ("--quantile", 0.5, "--quantile", 0.999)
    done = command(*asked)
    assert done.exit_code == 0, done.output
    table = ordered(archive).to_pandas()
    table["window_start"] = table.ts.dt.floor("60s")
    table["up"] = table.g.map(lambda text: text + "!", na_action="ignore")
    groups = table.groupby(["window_start", "k", "up"], dropna=False)["n"]
    expected = groups.agg(["size", "sum", "min", "max", "mean"]).reset_index()
    for name, q in (("n_p50", 0.5), ("n_p99_9", 0.999)):
        expected[name] = groups.quantile(q).to_numpy()
    got = pq.read_table(out).to_pandas().sort_values(["window_start", "k", "up"], kind="stable")
    assert (got.window_end - got.window_start == pd.Timedelta("60s")).all()
    got = got.drop(columns="window_end")
    assert got.columns.tolist() == [
        *("window_start", "k", "up", "n", "n_sum", "n_min", "n_max", "n_avg", "n_p50", "n_p99_9")
    ]
    expected.columns = got.columns
    expected = expected.sort_values(["window_start", "k", "up"], kind="stable")
    got["up"], expected["up"] = got.up.fillna("-"), expected.up.fillna("-")
    pd.testing.assert_frame_equal(
        got.reset_index(drop=True), expected.reset_index(drop=True), check_dtype=False, rtol=1e-12
    )
    assert json.loads(done.stdout)["kind"] == "table"
    with pytest.raises(md.DataError, match="holds a table, expected an archive"):
        md.spark.open_archive(out)


def test_a_query_reads_history_of_a_sink_as_a_table(
    spark: Any, prepared: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    archive, answer = prepared
    md.spark.history(
        cars(), spark, archive=archive, out=tmp_path / "h", of="per_k", by="key", period=None, columns=["c"]
    )
    usual = pq.read_table(tmp_path / "h")
    assert usual.column_names == ["key", "n", "c_sum", "c_min", "c_max", "c_avg"]
    counts = answer.to_pandas().fillna({"key": -1}).groupby("key")["c"].agg(["size", "sum"])
    got = {-1 if row["key"] is None else row["key"]: [row["n"], row["c_sum"]] for row in usual.to_pylist()}
    assert got == dict(zip(counts.index, counts.to_numpy().tolist(), strict=True))
    q = md.Query("today")
    seen = q.source("seen", {"ts": "timestamp", "key": "int32"}, time="ts")
    table = q.table("usual", key="key", schema=usual.schema, from_=usual)
    q.sink("out", seen.lookup(table))
    moments = pa.array([0, 1], pa.timestamp("us", "UTC"))
    out = md.collect(q, seen={"ts": moments, "key": [1, 77]})["out"].to_pylist()
    assert out[0]["c_sum"] == answer.to_pandas().query("key == 1")["c"].sum()
    assert out[1]["c_sum"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"of": "nobody"}, "has no source or sink 'nobody'"),
        ({"columns": ["w"]}, "no column 'w'"),
        ({"columns": ["g"]}, "column 'g': expected numbers, came utf8"),
        ({"columns": ["n"], "quantiles": [1.5]}, "a quantile is from 0 to 1, got 1.5"),
        ({"quantiles": [0.5]}, "quantiles of which columns"),
        ({"by": "w"}, "no column 'w'"),
        ({"period": "0s"}, "period"),
    ],
)
def test_what_can_not_be_summed_up_is_refused(
    spark: Any, prepared: tuple[Path, pa.Table], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    archive, _ = prepared
    with pytest.raises(md.MedusaError, match=said):
        md.spark.history(cars(), spark, archive=archive, out=tmp_path / "h", **options)
    assert not (tmp_path / "h").exists()
