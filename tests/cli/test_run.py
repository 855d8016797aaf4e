"""``medusa run`` gives what ``md.collect`` gives, whatever the format; errors say the line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.io import job, lines, readers

EPOCH = datetime(2024, 5, 1, tzinfo=UTC)
COUNT = (
    "SELECT window_start, k, count(*) AS n, sum(x) AS s FROM cars GROUP BY k, TUMBLE(ts, INTERVAL '5' SECOND)"
)
FORMATS = ("csv", "jsonl", "parquet", "arrow", "arrows")


def run(*arguments: object, input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *(str(argument) for argument in arguments)], input=input)


def cars(count: int = 200, *, every: int = 300, step: int = 7) -> pa.Table:
    """Rows up to two seconds out of order."""
    return pa.table(
        {
            "ts": pa.array(
                [EPOCH + timedelta(milliseconds=n * every - n * step % 11 * 200) for n in range(count)],
                pa.timestamp("us", "UTC"),
            ),
            "k": pa.array([None if n % 13 == 0 else n * step % 5 for n in range(count)], pa.int64()),
            "x": pa.array([None if n % 7 == 0 else n / 4 for n in range(count)], pa.float64()),
            "name": pa.array(
                [[None, "", "a,b", 'say "hi"\nthere', "ü"][n % 5] for n in range(count)], pa.utf8()
            ),
        }
    )


def save(table: pa.Table, path: Path, format: str) -> Path:
    match format:
        case "csv":
            pyarrow.csv.write_csv(table, path)
        case "jsonl":
            rows = [row | {"ts": str(row["ts"])} if "ts" in row else row for row in table.to_pylist()]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "parquet":
            pq.write_table(table, path, row_group_size=37)
        case "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, 41)
        case _:
            with pa.ipc.new_stream(path, table.schema) as writer:
                writer.write_table(table, 41)
    return path


def load(path: Path, format: str) -> pa.Table:
    match format:
        case "csv":
            return pyarrow.csv.read_csv(path)
        case "jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                row["window_start"] = datetime.fromisoformat(row["window_start"])
            return pa.Table.from_pylist(rows)
        case "parquet":
            return pq.read_table(path)
        case "arrow":
            return pa.ipc.open_file(path).read_all()
        case _:
            return pa.ipc.open_stream(path).read_all()


def small_blocks(monkeypatch: pytest.MonkeyPatch, size: int, sample: int = 500) -> None:
    """Read in small pieces, so that a small file has many."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", size)
    monkeypatch.setattr(readers, "BATCH_ROWS", max(1, size // 20))
    monkeypatch.setattr(readers, "SAMPLE_BYTES", sample)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("size", [50, 333, 1 << 20])
def test_every_format_gives_what_collect_gives(
    format: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, size)
    table = cars()
    expected = md.collect(md.sql(COUNT, cars=table.schema), cars=table).only
    source = save(table, tmp_path / f"cars.{format}", format)
    done = run(COUNT, "--input", source, "--output", tmp_path / f"out.{format}")
    assert done.exit_code == 0, done.output
    made = load(tmp_path / f"out.{format}", format)
    assert made.to_pylist() == expected.to_pylist()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"cars.{format}", f"out.{format}"])


@pytest.mark.parametrize("format", FORMATS)
def test_all_columns_and_types_pass_unchanged(format: str, tmp_path: Path) -> None:
    table = cars(40)
    if format != "csv":
        table = table.append_column("b", pa.array([True, None] * 20))
    if format not in ("csv", "jsonl"):
        table = table.append_column("d", pa.array([Decimal("1.50"), None] * 20, pa.decimal128(9, 2)))
        table = table.append_column("y", pa.array([b"\x00x", None] * 20, pa.binary()))
        table = table.append_column("day", pa.array([date(2024, 5, 1), None] * 20))
    source = save(table, tmp_path / f"cars.{format}", format)
    done = run("SELECT * FROM cars", "--input", source, "--output", tmp_path / "out.parquet")
    assert done.exit_code == 0, done.output
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == table.to_pylist()


def test_two_inputs_are_merged_by_time_and_two_sinks_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 200)
    one, two = cars(150), cars(90, every=500, step=3)
    query = tmp_path / "both.sql"
    query.write_text(
        "CREATE VIEW j AS SELECT a.k, a.ts AS t, b.ts AS u FROM a JOIN b ON a.k = b.k AND"
        " abs(a.ts - b.ts) <= INTERVAL '1' SECOND;\n"
        "INSERT INTO pairs SELECT * FROM j; INSERT INTO late SELECT k FROM a WHERE x > 10"
    )
    save(one, tmp_path / "a.csv", "csv")
    save(two, tmp_path / "two.parquet", "parquet")
    done = run(
        query,
        "-i",
        tmp_path / "a.csv",
        "-i",
        f"b={tmp_path / 'two.parquet'}",
        "-o",
        f"pairs={tmp_path / 'pairs.parquet'}",
        "-o",
        f"late={tmp_path / 'late.parquet'}",
        "--json",
    )
    assert done.exit_code == 0, done.output
    q = md.sql(query.read_text(), a=one.schema, b=two.schema)
    expected = md.collect(q, a=one, b=two)
    for sink in ("pairs", "late"):
        assert pq.read_table(tmp_path / f"{sink}.parquet").to_pylist() == expected[sink].to_pylist()
    told = json.loads(done.stdout)
    assert told["query"] == "both"
    assert {name: each["rows"] for name, each in told["inputs"].items()} == {"a": 150, "b": 90}
    assert told["outputs"]["pairs"]["rows"] == expected["pairs"].num_rows > 0


def test_a_query_in_json_says_the_types(tmp_path: Path) -> None:
    q = md.Query("q")
    s = q.source("t", {"at": "int64", "v": "utf8", "d": "duration"}, time="at", unit="s", slack="2s")
    q.sink("n", s.window("10 s").group_by("v").aggregate(n=md.count(), d=md.max("d")))
    (tmp_path / "q.json").write_text(q.to_json())
    (tmp_path / "t.csv").write_text("at,v,d,extra\n1,007,5,x\n2,7,6,y\n12,007,7,z\n")
    done = run(tmp_path / "q.json", "-i", tmp_path / "t.csv", "-o", "-:jsonl")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["v"], row["n"], row["d"]) for row in rows] == [("007", 1, 5), ("7", 1, 6), ("007", 1, 7)]
    refused = run(tmp_path / "q.json", "-i", tmp_path / "t.csv", "--slack", "5s")
    assert refused.exit_code == 1
    assert "says the time of its sources" in refused.stderr


def test_options_of_time(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("at,k\n1000,1\n2500,1\n500,2\n11000,1\n")
    text = "SELECT window_end, count(*) AS n FROM t GROUP BY TUMBLE(at, INTERVAL '2' SECOND)"
    done = run(text, "-i", tmp_path / "t.csv", "--unit", "ms", "-o", "-:jsonl")
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == [2, 1, 1]
    late = run(
        text, "-i", tmp_path / "t.csv", "--unit", "t=ms", "--slack", "1s", "--time", "at", "-o", "-:jsonl"
    )
    assert [json.loads(line)["n"] for line in late.stdout.splitlines()] == [1, 1, 1]
    assert "warning: source 't': a row came" in late.stderr


def test_standard_input_and_output() -> None:
    done = run(
        "SELECT k + 1 AS k FROM t WHERE k > 1", "-i", "t=-:jsonl", input=b'{"k": 1}\n{"k": 2}\n\n{"k": 3}'
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == '"k"\n3\n4\n'


def test_columns_said_by_the_user(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,n,"when"\n007,1,2024-05-01 10:00:00\n008,,2024-05-01\n')
    done = run(
        "SELECT * FROM t", "-i", tmp_path / "t.csv", "--schema", "id text, n decimal(9,2)", "-o", "-:jsonl"
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[0]) == {
        "id": "007",
        "n": "1.00",
        "when": "2024-05-01 10:00:00Z",
    }


HEAD = "ts,k,x\n2024-05-01 00:00:00,1,2.5\n"
BAD = [
    (
        "t.csv",
        HEAD + "2024-05-01 00:00:01,2\n",
        "t.csv, line 3: expected 3 columns, came 2: '2024-05-01 00:00:01,2'",
    ),
    ("t.csv", "", "t.csv: the file is empty or has no header"),
    ("t.csv", "a,b,a\n1,2,3\n", "t.csv, line 1: two columns are called 'a'"),
    ("t.jsonl", '{"ts": "2024-05-01", "k": 1}\n\n{"k": \n', "t.jsonl, line 3:"),
    ("t.jsonl", "", "t.jsonl: the file is empty"),
    ("t.parquet", "PAR1 no", "t.parquet: no whole parquet file"),
    ("t.arrow", "ARROW1", "t.arrow: no whole arrow file"),
]


@pytest.mark.parametrize(("name", "text", "why"), BAD)
def test_bad_files_are_refused_with_the_line(name: str, text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    done = run("SELECT k FROM t", "-i", tmp_path / name, "-o", tmp_path / "out.csv")
    assert done.exit_code == 1, done.output
    assert why in done.stderr.replace(f"{tmp_path}{os.sep}", "")
    assert not (tmp_path / "out.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("size", [40, 100, 1 << 20])
@pytest.mark.parametrize("bad", [5, 20, 77])
def test_the_line_of_a_bad_row_far_down(
    bad: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, size, sample=50)
    rows = [f'{n},"a\nb"' if n % 9 == 1 else f"{n},c" for n in range(80)]
    before = sum(row.count("\n") + 1 for row in rows[:bad])
    rows[bad] = "oops,c"
    (tmp_path / "t.csv").write_text("k,s\n" + "\n".join(rows) + "\n")
    done = run("SELECT k FROM t", "-i", tmp_path / "t.csv", "--schema", "k int64")
    assert f"line {before + 2}: column 'k'" in done.stderr
    documents = [json.dumps({"k": n}) for n in range(80)]
    documents[bad] = '{"k": "oops"}'
    (tmp_path / "u.jsonl").write_text("\n".join(documents))
    done = run("SELECT k FROM u", "-i", tmp_path / "u.jsonl", "--schema", "k int64")
    assert f"line {bad + 1}: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why", "hint"),
    [
        (["SELECT k FROM t", "-i", "none.csv"], "none.csv: no such file", ""),
        (["none.sql", "-i", "t.csv"], "none.sql: there is no such file", "text of a query"),
        (["SELECT k FROM t", "-i", "t.csv:xml"], "no format 'xml'", "csv"),
        (["SELECT k FROM t", "-i", "t.bin"], "t.bin: which format is it?", "--format csv"),
        (["SELECT k FROM u", "-i", "t.csv"], "no table 'u'", "there is: t"),
        (["SELECT k FROM t", "-i", "t.csv", "-i", "u=t.csv"], "--input u: the query doesn't read it", ""),
        (["SELECT k FROM t", "-i", "t.csv", "-i", "t=t.csv"], "'t' stands twice", ""),
        (["SELECT k FROM t", "-i", "-:csv"], "which source is it?", "name="),
        (["SELECT k FROM t", "-i", "t.csv", "-o", "sink=x.csv"], "no sink 'sink'", "there is: out"),
        (["SELECT k FROM t", "-i", "t.csv", "--slack", "u=2s"], "no input 'u'", "there is: t"),
        (["SELECT k FROM t", "-i", "t.csv", "--schema", "k"], "no column with its type", "ts timestamp"),
        (["SELECT k FROM t", "-i", "t.csv", "--schema", "q int64"], "there is no column 'q'", "k"),
        (["SELECT k FROM t", "-i", "t.csv", "--schema", "k frob"], "type 'frob'", ""),
        (["SELECT k FROM t", "-i", "t.csv", "-o", "no/where.csv"], "no/where.csv: no such file", ""),
        (["SELECT k FROM t", "-i", "t=-:parquet"], "Parquet needs a file", "arrows"),
        (["SELECT k FROM t", "-i", "t.parquet", "--follow"], "can't be followed", "jsonl"),
    ],
)
def test_slips_on_the_command_line(
    arguments: list[str], why: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("k\n1\n")
    Path("t.bin").write_text("k\n1\n")
    pq.write_table(pa.table({"k": [1]}), "t.parquet")
    done = run(*arguments)
    assert done.exit_code == 1, done.output
    assert why in done.stderr
    assert hint in done.stderr.partition("hint:")[2]


def test_an_error_in_the_text_shows_its_place(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\n1\n")
    done = run("SELECT kk FROM t", "-i", tmp_path / "t.csv")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[1:] == ["  SELECT kk FROM t", "         ^^", "hint: did you mean 'k'?"]


def test_explain_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "cars.csv").write_text("ts,k,x\n")
    done = run(COUNT, "-i", tmp_path / "cars.csv", "--explain", "--schema", "ts timestamp, x float64")
    assert done.exit_code == 0, done.output
    assert "tumbling windows of 5s by k" in done.stdout


def test_rows_that_fail_are_counted_or_stop(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\n1\nx\n3\n")
    text = "SELECT CAST(k AS int64) AS k FROM t"
    done = run(text, "-i", tmp_path / "t.csv", "-o", tmp_path / "out.csv", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["failed_rows"] == 1
    assert "warning: box" in done.stderr
    assert (tmp_path / "out.csv").read_text() == '"k"\n1\n3\n'
    stopped = run(text, "-i", tmp_path / "t.csv", "-o", tmp_path / "more.csv", "--on-error", "stop")
    assert stopped.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "t.csv"]


def test_a_large_file_is_never_held_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 400)
    table = cars(4_000)
    save(table, tmp_path / "cars.parquet", "parquet")
    save(table, tmp_path / "b.csv", "csv")
    most = 0
    plain = job.normalise

    def counted(batch: pa.RecordBatch, *args: Any, **more: Any) -> Any:
        nonlocal most
        most = max(most, batch.num_rows)
        return plain(batch, *args, **more)

    monkeypatch.setattr(job, "normalise", counted)
    done = run(
        "SELECT ts FROM cars UNION ALL SELECT ts FROM b",
        "-i",
        tmp_path / "cars.parquet",
        "-i",
        tmp_path / "b.csv",
        "-o",
        tmp_path / "out.parquet",
    )
    assert done.exit_code == 0, done.output
    assert 0 < most < 60
    times = pq.read_table(tmp_path / "out.parquet")["ts"].to_pylist()
    assert len(times) == 8_000
    # Both were read side by side.
    assert max(times[:4_000]) < min(times[4_000:]) + timedelta(seconds=60)


# -- following ------------------------------------------------------------------------------------


def process(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "medusa.cli.main", "run", *(str(argument) for argument in arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


TEN = "SELECT window_end AS e, count(*) AS n FROM t GROUP BY TUMBLE(at, INTERVAL '10' SECOND)"


def test_standard_input_is_followed_and_ends_with_it() -> None:
    with process(TEN, "-i", "t=-:csv", "--unit", "s", "--follow") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"at\n1\n2\n11\n")
        child.stdin.flush()
        assert child.stdout.readline() == b'"e","n"\n'
        assert child.stdout.readline().endswith(b"10.000000Z,2\n")
        child.stdin.write(b"12\n25\n")
        child.stdin.flush()
        assert child.stdout.readline().endswith(b"20.000000Z,2\n")
        child.stdin.close()
        assert child.stdout.readline().endswith(b"30.000000Z,1\n")
        assert child.wait(30) == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_being_written_is_written_whole(
    number: signal.Signals, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a pipe takes at once, so that the signal comes in the middle."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    path, rows = tmp_path / "t.jsonl", 20_000
    path.write_text("".join(f'{{"at": {at}}}\n' for at in range(rows)))
    with process("SELECT at FROM t", "-i", path, "--follow", "-o", "-:jsonl") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        first = child.stdout.readline()
        child.send_signal(number)
        lines = [first, *child.stdout.read().splitlines()]
        assert [json.loads(line)["at"] for line in lines] == list(range(rows))
        assert child.wait(30) == 0
        assert b"Traceback" not in child.stderr.read()


def test_bounded_inputs_that_are_interrupted_leave_nothing_half_done(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with process("SELECT at FROM t", "-i", "t=-:jsonl", "-o", out) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        # More than a pipe holds: it has been read from when this returns.
        child.stdin.write(b"".join(b'{"at": %d}\n' % at for at in range(20_000)))
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert child.stderr.read() == b"interrupted\n"
    assert not out.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_growing_file_is_followed_until_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"at": 1}\n{"at": 2}\n{"at": 11}\n{"a')
    with process(TEN, "-i", path, "--unit", "s", "--follow", "-o", "-:jsonl") as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["n"] == 2
        with path.open("a") as more:
            more.write('t": 13}\n{"at": 21}\n')
        assert json.loads(child.stdout.readline())["n"] == 2
        child.send_signal(number)
        assert child.stdout.read() == b""
        assert child.wait(30) == 0
