"""What ``medusa run`` reads besides plain files: gzip, other delimiters, objects and lists inside."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.io import lines
from medusa.io.lines import Lines
from medusa.io.places import place_of
from medusa.io.readers import open_reader
from tests.cli.test_run import COUNT, cars, save, small_blocks


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, input: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *arguments], input=input)


def pack(data: bytes, *, members: int = 1) -> bytes:
    step = len(data) // members + 1
    return b"".join(gzip.compress(data[at : at + step]) for at in range(0, len(data), step))


# -- gzip -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("size", [333, 1 << 20])
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_gzip_gives_what_the_plain_file_gives(
    format: str, size: int, members: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, size)
    table = cars()
    plain = save(table, folder / f"plain.{format}", format).read_bytes()
    Path(f"cars.{format}.gz").write_bytes(pack(plain, members=members))
    done = run(COUNT, "-i", f"cars.{format}.gz", "-o", "out.parquet")
    assert done.exit_code == 0, done.output
    expected = md.collect(md.sql(COUNT, cars=table.schema), cars=table).only
    assert pq.read_table("out.parquet").to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("place", ["t=data.gz:jsonl", "t.ndjson.GZ", "t.json.gz", "t.csv.gz:jsonl"])
def test_the_name_says_that_a_file_is_packed_and_what_is_in_it(place: str) -> None:
    path = place.partition("=")[2] or place
    path = path.removesuffix(":jsonl")
    Path(path).write_bytes(pack(b'{"k": 1}\n{"k": 2}'))
    done = run("SELECT k FROM t", "-i", place)
    assert (done.exit_code, done.stdout) == (0, '"k"\n1\n2\n'), done.output


def test_what_is_packed_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1 << 16)
    text = b"".join(b'{"k": %d}\n' % n for n in range(400_000))
    Path("t.jsonl.gz").write_bytes(pack(text))
    source = Lines(place_of("t.jsonl.gz"), follow=False, quoted=False)
    read, most, fractions = 0, 0, [0.0]
    while block := source.next():
        read, most = read + len(block), max(most, len(block))
        assert source.fraction is not None
        fractions.append(source.fraction)
    source.close()
    assert read == len(text)
    assert most < 1 << 17
    assert fractions == sorted(fractions)
    assert len(set(fractions)) > 3
    assert fractions[-1] == 1.0
    assert fractions[len(fractions) // 2] < 0.9  # of the file, not of what is in it


def damages() -> dict[str, bytes]:
    rng = random.Random(7)
    rows = b"k,s\n" + b"".join(b"%d,%d\n" % (n, rng.getrandbits(60)) for n in range(600))
    good = pack(rows)
    cuts = {
        f"cut at {at}": good[:at]
        for at in (1, 9, 10, 30, len(good) // 2, len(good) - 9, len(good) - 8, len(good) - 1)
    }
    flipped = bytearray(good)
    flipped[-6] ^= 1
    return {
        **cuts,
        "wrong sum": bytes(flipped),
        "no gzip": rows,
        "more behind it": good + b"k,s\n1,2\n",
        "second half cut": pack(rows, members=2)[:-30],
    }


@pytest.mark.parametrize("name", damages())
def test_a_damaged_gzip_file_leaves_the_output_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 1_000)
    Path("t.csv.gz").write_bytes(damages()[name])
    Path("out.csv").write_text("as before")
    done = run("SELECT k FROM t", "-i", "t.csv.gz", "-o", "out.csv")
    assert done.exit_code == 1, done.output
    assert "error: t.csv.gz: no whole gzip file: " in done.stderr
    assert "hint: it is damaged, cut off, or not compressed by gzip" in done.stderr
    assert Path("out.csv").read_text() == "as before"
    assert sorted(os.listdir()) == ["out.csv", "t.csv.gz"]


@pytest.mark.parametrize(
    ("arguments", "why", "hint"),
    [
        (["-i", "t.csv.gz", "--follow"], "t.csv.gz: a file in gzip can't be followed", "without --follow"),
        (["-i", "t.parquet.gz"], "t.parquet.gz: parquet isn't read through gzip", "csv and jsonl are"),
        (["-i", "t.gz:arrows"], "t.gz: arrows isn't read through gzip", "compression of their own"),
        (["-i", "t.gz"], "t.gz: which format is it?", "t.gz:csv"),
        (["-i", "t.csv.gz", "-o", "out.csv.gz"], "--output out.csv.gz: output isn't compressed", "gzip"),
        (["-i", "empty.csv.gz"], "empty.csv.gz: the file is empty or has no header", ""),
        (["-i", "none.csv.gz"], "none.csv.gz: no such file", ""),
    ],
)
def test_slips_with_gzip(arguments: list[str], why: str, hint: str) -> None:
    for name in ("t.csv.gz", "t.gz", "t.parquet.gz"):
        Path(name).write_bytes(pack(b"k\n1\n"))
    Path("empty.csv.gz").write_bytes(gzip.compress(b""))
    before = sorted(os.listdir())
    done = run("SELECT k FROM t", *arguments)
    assert done.exit_code == 1, done.output
    assert why in done.stderr
    assert hint in done.stderr.partition("hint:")[2]
    assert sorted(os.listdir()) == before


def test_the_line_of_a_bad_row_in_gzip(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 50, sample=50)
    Path("t.csv.gz").write_bytes(pack(b"k\n" + b"1\n" * 70 + b"oops\n"))
    done = run("SELECT k FROM t", "-i", "t.csv.gz")
    assert "t.csv.gz, line 72: column 'k'" in done.stderr


# -- delimiters -----------------------------------------------------------------------------------

FIELDS = pa.table(
    {"k": [1, 2, 3, 4], "s": ["a;b|c\td,e", 'say "hi"', "two\nlines", None], "x": [1.5, None, -2.0, 0.0]}
)


@pytest.mark.parametrize(
    ("said", "character"), [(";", ";"), ("|", "|"), ("\\t", "\t"), ("\t", "\t"), (",", ",")]
)
def test_fields_between_other_delimiters(said: str, character: str) -> None:
    options = pyarrow.csv.WriteOptions(delimiter=character)
    pyarrow.csv.write_csv(FIELDS, "t.csv", options)
    done = run("SELECT * FROM t", "-i", "t.csv", "-o", "out.csv", "--delimiter", said)
    assert done.exit_code == 0, done.output
    assert Path("out.csv").read_bytes() == Path("t.csv").read_bytes()
    done = run("SELECT * FROM t", "-i", "t.csv", "-o", "out.csv", "--delimiter", f"t={said}")
    assert done.exit_code == 0, done.output
    pyarrow.csv.write_csv(FIELDS, "commas.csv")
    assert Path("out.csv").read_bytes() == Path("commas.csv").read_bytes()
    done = run("SELECT * FROM commas", "-i", "commas.csv", "--delimiter", f"out={said}")
    assert done.exit_code == 0, done.output
    assert done.stdout_bytes == Path("t.csv").read_bytes()


def test_one_delimiter_for_all_and_another_for_one_of_them() -> None:
    Path("a.csv").write_text("k;s\n1;x\n")
    Path("b.csv").write_text("k|s\n2|y\n")
    Path("c.jsonl").write_text('{"k": 3, "s": "z"}\n')
    text = "SELECT k, s FROM a UNION ALL SELECT k, s FROM b UNION ALL SELECT k, s FROM c"
    files = ["-i", "a.csv", "-i", "b.csv", "-i", "c.jsonl"]
    done = run(text, *files, "--delimiter", ";", "--delimiter", "b=|")
    assert done.exit_code == 0, done.output
    assert sorted(done.stdout.splitlines()) == ['"k";"s"', '1;"x"', '2;"y"', '3;"z"']


def test_a_row_that_has_too_few_fields_between_other_delimiters() -> None:
    Path("t.csv").write_text("k;s\n1;x\n2\n")
    done = run("SELECT k FROM t", "-i", "t.csv", "--delimiter", ";")
    assert "t.csv, line 3: expected 2 columns, came 1: '2'" in done.stderr


def test_the_slack_is_measured_with_the_delimiter_too() -> None:
    Path("t.csv").write_text("ts;k\n2024-05-01 00:00:09;1\n2024-05-01 00:00:01;2\n")
    done = run(
        "SELECT count(*) AS n FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "-i",
        "t.csv",
        "--delimiter",
        ";",
    )
    assert (done.exit_code, done.stdout) == (0, '"n"\n2\n'), done.output


@pytest.mark.parametrize(
    "said", [";;", "", "a", "7", '"', "'", "\n", "é", ".", "-", "+", ":", " ", "\\n", "\0"]
)
def test_what_is_no_delimiter(said: str) -> None:
    Path("t.csv").write_text("k\n1\n")
    done = run("SELECT k FROM t", "-i", "t.csv", "--delimiter", f"t={said}", "-o", "out.csv")
    assert done.exit_code == 1, done.output
    assert f"--delimiter: {said!r} is no single character" in done.stderr
    assert "hint: such as ';'" in done.stderr
    assert os.listdir() == ["t.csv"]


@pytest.mark.parametrize(
    ("options", "why", "hint"),
    [
        (["--delimiter", "u=;"], "--delimiter: there is no source or sink 'u'", "there is: out, t"),
        (["--delimiter", "t=;"], "--delimiter: 't' is no CSV", "the other formats have none"),
        (["--delimiter", ";", "-o", "x.parquet"], "--delimiter: nothing here is CSV", ""),
    ],
)
def test_delimiters_of_what_has_none(options: list[str], why: str, hint: str) -> None:
    Path("t.jsonl").write_text('{"k": 1}\n')
    done = run("SELECT k FROM t", "-i", "t.jsonl", *options)
    assert done.exit_code == 1, done.output
    assert why in done.stderr
    assert hint in done.stderr.partition("hint:")[2]
    assert os.listdir() == ["t.jsonl"]


# -- objects and lists inside ---------------------------------------------------------------------


def nested(rng: random.Random) -> Any:
    return rng.choice(
        [[], {}, [1, "x", None], {"k": 5, "s": [{"k": None}]}, [[["]"]]], {"a": {"b": "{"}}, {"x": 1.5}]
    )


@pytest.mark.parametrize("seed", range(12))
def test_columns_of_objects_and_lists_are_passed_by(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"nested {seed}")
    small_blocks(monkeypatch, rng.choice([60, 400, 1 << 20]), sample=300)
    flat, rows = [], []
    for n in range(80):
        row: dict[str, Any] = {
            "k": n,
            "s": rng.choice([None, "", "{", "]", 'a"b', "ü"]),
            "x": rng.choice([None, 1.5, 2.0]),
        }
        flat.append(row)
        more: dict[str, Any] = {"o": nested(rng), "l": rng.choice([None, "text", 3, nested(rng)])}
        if n > 60:
            more["late"] = nested(rng)  # the first lines haven't got it
        items = [
            *row.items(),
            *((name, value) for name, value in more.items() if n == 0 or rng.random() < 0.8),
        ]
        rng.shuffle(items)
        rows.append(dict(items))
    rows[0]["l"] = nested(rng)
    for name, documents in (("a", flat), ("b", rows)):
        Path(f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" * rng.choice([1, 1, 2]) for row in documents)
        )
    made = []
    for name in ("a", "b"):
        done = run(f"SELECT k, s, x FROM {name} WHERE k > 2", "-i", f"{name}.jsonl")
        assert done.exit_code == 0, done.output
        made.append(done.stdout)
    assert made[0] == made[1]
    assert made[0].count("\n") > 70
    every = run("SELECT * FROM b", "-i", "b.jsonl", "-o", "-:jsonl")
    assert {frozenset(json.loads(line)) for line in every.stdout.splitlines()} == {frozenset("ksx")}


def test_objects_that_only_come_further_down_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 40, sample=40)
    rows = [json.dumps({"k": n}) for n in range(30)]
    rows[20] = '{"k": 20, "late": {"k": [1]}}'
    Path("t.jsonl").write_text("\n".join(rows))
    done = run("SELECT k FROM t", "-i", "t.jsonl")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1:] == [str(n) for n in range(30)]
    rows[25] = '{"k": 25, "flat": 1}'
    Path("t.jsonl").write_text("\n".join(rows))
    done = run("SELECT k FROM t", "-i", "t.jsonl")
    assert done.exit_code == 1
    assert "t.jsonl, line 26: column 'flat' is new here" in done.stderr
    rows[25] = '{"k": {"v": 1}}'  # one that the query reads
    Path("t.jsonl").write_text("\n".join(rows))
    done = run("SELECT k FROM t", "-i", "t.jsonl")
    assert done.exit_code == 1
    assert "t.jsonl, line 26: " in done.stderr


def test_a_query_that_names_such_a_column_is_refused() -> None:
    Path("t.jsonl").write_text('{"k": 1, "tags": ["a"]}\n')
    done = run("SELECT tags FROM t", "-i", "t.jsonl")
    assert done.exit_code == 1
    assert "there is no column 'tags' in t" in done.stderr
    assert "hint: 'tags' holds objects or lists, which are passed by" in done.stderr
    done = run("SELECT tag FROM t", "-i", "t.jsonl")
    assert "passed by" not in done.stderr
    Path("t.jsonl").write_text('{"tags": ["a"]}\n')
    done = run("SELECT tags FROM t", "-i", "t.jsonl")
    assert "t.jsonl: all columns hold objects or lists" in done.stderr


def test_broken_lines_among_objects_are_refused_with_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t.jsonl").write_text('{"k": 1, "o": {}}\n\n{"k": 2, "o": {}\n{"k": 3}\n')
    done = run("SELECT k FROM t", "-i", "t.jsonl")
    assert done.exit_code == 1
    assert "t.jsonl, line 3: " in done.stderr
    Path("t.jsonl").write_text('{"o": ' + "[" * 5_000 + "]" * 5_000 + "}\n")
    assert (
        "t.jsonl: from line 1 on objects or lists are too deep"
        in run("SELECT k FROM t", "-i", "t.jsonl").stderr
    )
    small_blocks(monkeypatch, 20, sample=20)
    Path("t.jsonl").write_text('{"k": 1}\n' * 5 + '{"o": ' + "[" * 5_000 + "]" * 5_000 + "}\n")
    assert "on objects or lists are too deep" in run("SELECT k FROM t", "-i", "t.jsonl").stderr
    Path("t.jsonl").write_text('{"k": 1, "o": {"a": 1}, "x": Inf}\n{"k": 2, "o": {"a": 2}, "x": 0.5}\n')
    done = run("SELECT * FROM t", "-i", "t.jsonl")  # Inf is no JSON to Python
    assert (done.exit_code, done.stdout) == (0, '"k","x"\n1,inf\n2,0.5\n'), done.output


@pytest.mark.parametrize("format", ["parquet", "arrow", "arrows"])
def test_lists_and_structs_of_other_formats_are_passed_by(format: str, folder: Path) -> None:
    table = pa.table({"l": [[1], None], "k": [1, 2], "o": [{"k": 5}, None], "s": ["a", "b"]})
    save(table, folder / f"t.{format}", format)
    done = run("SELECT * FROM t", "-i", f"t.{format}")
    assert (done.exit_code, done.stdout) == (0, '"k","s"\n1,"a"\n2,"b"\n'), done.output
    refused = run("SELECT l FROM t", "-i", f"t.{format}")
    assert "hint: 'l' holds objects or lists, which are passed by" in refused.stderr
    reader = open_reader(place_of(f"t.{format}"), types={}, known=None)
    assert reader.passed_by == {"l", "o"}
    reader.close()
