"""``medusa run`` refuses what would lose data, and speaks of its own options."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from medusa.cli.main import main

ROWS = 'ts,path\n1,a\n\n100,"b\nx"\n90,c\n'
COUNT = "SELECT path, count(*) AS n FROM web GROUP BY path, TUMBLE(ts, INTERVAL '1' MINUTE)"
TWO = "INSERT INTO a SELECT path FROM web; INSERT INTO b SELECT path FROM web"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("web.csv").write_text(ROWS)
    return tmp_path


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(main, ["run", *arguments], input=input)


@pytest.mark.parametrize("follow", [[], ["--follow"]])
@pytest.mark.parametrize("output", ["web.csv", "./web.csv", "soft.csv", "hard.csv"])
def test_an_output_never_replaces_an_input(output: str, follow: list[str]) -> None:
    Path("soft.csv").symlink_to("web.csv")
    os.link("web.csv", "hard.csv")
    before = sorted(os.listdir())
    done = run("SELECT path FROM web", "-i", "web.csv", "-o", output, *follow)
    assert done.exit_code == 1
    assert f"--output out={output} is the same file as --input web=web.csv" in done.stderr
    assert Path("web.csv").read_text() == ROWS
    assert sorted(os.listdir()) == before
    assert Path("soft.csv").is_symlink()


@pytest.mark.parametrize("second", ["same.csv", "./same.csv", "later.csv"])
def test_two_outputs_are_two_files(second: str, folder: Path) -> None:
    Path("later.csv").symlink_to(folder / "same.csv")
    done = run(TWO, "-i", "web.csv", "-o", "a=same.csv", "-o", f"b={second}")
    assert done.exit_code == 1
    assert f"--output b={second} is the same file as --output a=same.csv" in done.stderr
    assert sorted(os.listdir()) == ["later.csv", "web.csv"]


def test_a_device_may_take_both_outputs() -> None:
    done = run(TWO, "-i", "web.csv", "-o", f"a={os.devnull}:csv", "-o", f"b={os.devnull}:csv")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("text", "options", "hint"),
    [
        (ROWS, [], "--time web=ts --unit web=s"),
        (ROWS, ["--time", "web=ts"], "--unit [NAME=]s"),
        ("ts,path\nyesterday,a\n", [], '--schema "web=ts timestamp"'),
        ("path\na\n", [], "--time web=COLUMN"),
    ],
)
def test_how_the_time_is_said(text: str, options: list[str], hint: str) -> None:
    Path("web.csv").write_text(text)
    done = run(COUNT, "-i", "web.csv", *options)
    assert done.exit_code == 1
    if text.startswith("ts"):
        assert hint in done.stderr.partition("hint:")[2]
    assert "md.source" not in done.stderr.partition("hint:")[2]


def test_warnings_speak_of_options() -> None:
    timed = ["--time", "web=ts", "--unit", "web=s", "--slack", "web=0s"]
    done = run(COUNT, "-i", "web.csv", *timed)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines() == [
        "warning: source 'web': a row came 10s too late for its windows and joins; --slack web=10s keeps it"
    ]
    done = run("SELECT 5 % (ts - 90) AS x FROM web", "-i", "web.csv")
    assert done.exit_code == 0, done.output
    assert "(--json counts them, --on-error stop ends the run)" in done.stderr
    assert "stats()" not in done.stderr


@pytest.mark.parametrize("follow", [[], ["--follow"]])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("n.csv", ROWS + ",d\n", 7),
        ("n.csv", "ts,path\n,d\n1,a\n", 2),
        ("n.jsonl", '{"ts":1,"path":"a"}\n\n{"path":"b"}\n', 3),
    ],
)
def test_a_null_time_is_refused_with_its_line(name: str, text: str, line: int, follow: list[str]) -> None:
    Path(name).write_text(text)
    done = run(COUNT, "-i", f"web={name}", "--time", "web=ts", "--unit", "web=s", *follow)
    assert done.exit_code == 1
    assert f"{name}, line {line}: column 'ts' is the time, and holds null" in done.stderr


@pytest.mark.parametrize("format", ["parquet", "arrow", "arrows"])
def test_a_null_time_is_refused_with_its_row(format: str) -> None:
    Path("n.csv").write_text(ROWS + ",d\n")
    done = run("SELECT * FROM web", "-i", "web=n.csv", "-o", f"n.{format}")
    assert done.exit_code == 0, done.output
    done = run(COUNT, "-i", f"web=n.{format}", "--time", "web=ts", "--unit", "web=s")
    assert done.exit_code == 1
    assert f"n.{format}, row 4: column 'ts' is the time, and holds null" in done.stderr


def test_explain_needs_no_output() -> None:
    done = run(TWO, "-i", "web.csv", "--explain")
    assert done.exit_code == 0, done.output
    assert "sink a" in done.stdout
    assert "sink b" in done.stdout
