"""``medusa top``: what it reads, how it sorts, what it says when nobody is there."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.cli.screens.terminal_text import number
from medusa.cli.screens.top_read import Box, StreamRow
from medusa.cli.screens.top_screen import SORTS, ordered, screen
from medusa.wire.status_and_metrics import MissingStatus

SCHEMA = {"ts": "int64", "k": "int64"}


def top(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["top", *arguments])


@pytest.fixture
def run() -> Iterator[md.Run]:
    q = md.Query("tolls")
    cars = q.source("cars", SCHEMA, time="ts", unit="s", slack="2s")
    q.sink(
        "counts", cars.filter("k > 0", name="some").window("10s").aggregate(n=md.count(), name="per_window")
    )
    clock = md.testing.ManualClock()
    with md.start(q, metrics="127.0.0.1:0", clock=clock) as run:
        run.push("cars", {"ts": [1, 2, 30, 31], "k": [0, 1, 2, 3]})
        clock.advance("2s")
        yield run


def test_one_table_of_a_run(run: md.Run) -> None:
    for address in (f"http://{run.metrics_address}", f"http://{run.metrics_address}/metrics"):
        shown = top(address, "--once")
        assert shown.exit_code == 0, shown.stderr
        lines = shown.stdout.splitlines()
        assert lines[0].startswith("tolls at http://127.0.0.1:")
        assert ": 4 boxes, 2 rows/s in, " in lines[0]
        assert lines[2].split() == [
            "box",
            "kind",
            "load",
            "in/s",
            "out/s",
            "out/in",
            "us/row",
            "queue",
            "lag",
            "late",
            "dead",
        ]
        cells = {line.split()[0]: line.split() for line in lines[3:] if line.strip()}
        assert list(cells) == ["cars", "some", "per_window", "counts"]
        assert cells["some"][:7] == ["some", "filter", "0%", "........", "2", "1.5", "0.75"]
        assert cells["cars"][-3:] == ["2s", "0", "0"]
        assert "shed" not in shown.stdout


def test_json_has_what_stats_have(run: md.Run) -> None:
    shown = top(f"http://{run.metrics_address}", "--json", "--sort", "in")
    assert shown.exit_code == 0, shown.stderr
    boxes = json.loads(shown.stdout)["boxes"]
    assert [box["box"] for box in boxes] == ["cars", "some", "per_window", "counts"]
    stats = {row["box"]: row for row in run.stats().to_pylist()}
    for box in boxes:
        assert box["query"] == "tolls"
        wanted = stats[box["box"]]
        for name in wanted.keys() - {"boundary", "tentative"}:
            assert box[name] == wanted[name], name


def test_attached_queries_stand_apart() -> None:
    boxes = [box("a", rows_in_per_s=5.0), box("a", attached="recent-1", rows_in_per_s=5.0)]
    boxes = [msgspec.structs.replace(each, kind="source") for each in boxes]
    text = text_of(boxes)
    assert "q.a " in text
    assert "q@recent-1.a " in text
    assert " 5 rows/s in," in text  # counted once: the attached one reads what has come already


def box(id: str, **figures: object) -> Box:
    return Box(query="q", box=id, kind="filter", rows_in=0, rows_out=0, **figures)  # type: ignore[arg-type]


def text_of(boxes: list[Box], streams: Sequence[StreamRow] = (), width: int = 200) -> str:
    from rich.console import Console

    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(screen(boxes, streams, address="http://x", by="load"))
    return captured.get()


def test_largest_first_and_unknown_last() -> None:
    boxes = [
        box("a"),
        box("b", load=0.1),
        box("c", load=0.9),
        box("d"),
        box("e", load=0.0),
        box("f", load=0.1),
    ]
    assert "".join(each.box for each in ordered(boxes, "load")) == "cbfead"
    for by in SORTS:
        assert len(ordered(boxes, by)) == 6


def test_shed_is_shown_where_it_exists() -> None:
    assert "shed" in text_of([box("a", shed=5), box("b")])
    assert "shed" not in text_of([box("a", shed=0), box("b")])


def test_a_stream_that_is_not_stable_stands_above_the_boxes_with_what_is_missing() -> None:
    missing = MissingStatus(source="b", stream="q.b", kind="node", origin="m\x1b[2J", why="isn't heard")
    streams = [
        StreamRow(query="q", node="n", stream="q.well"),
        StreamRow(
            query="q", node="n", stream="q.out", state="up_failure", for_us=5_000_000, missing=(missing,)
        ),
    ]
    lines = text_of([box("a")], streams).splitlines()
    assert lines[1].startswith(
        "q.out UP_FAILURE for 5s: missing: stream q.b of node m?[2J, which isn't heard; "
    )
    assert lines[2] == ""
    assert "q.well" not in "\n".join(lines)


def test_text_of_others_commands_no_terminal() -> None:
    shown = text_of([box("a\x1b[2Jb [bold]c", load=0.5, lag_us=61_000_000, cost_us=1.5)])
    assert "\x1b" not in shown
    assert "a?[2Jb [bold]c" in shown
    assert "1 min 1s" in shown


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1_499, "1ms"),
        (1_250_000, "1s 200ms"),
        (61_900_000, "1 min 1s"),
        (90_061_000_000, "1d 1h 1 min"),
    ],
)
def test_lags_are_short(us: int, text: str) -> None:
    assert f" {text} " in text_of([box("a", lag_us=us)])
    assert "ended" in text_of([box("a", lag_us=us, finished=True)])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (7.25, "7.25"),
        (999, "999"),
        (999.6, "1k"),
        (12345, "12.3k"),
        (4.56e6, "4.56M"),
        (2e9, "2G"),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9100",
        "https://127.0.0.1:9100",
        "http://127.0.0.1",
        "http://127.0.0.1:x",
        "http://:1/a b",
        "x",
    ],
)
def test_no_address(address: str) -> None:
    shown = top(address)
    assert shown.exit_code == 1
    assert "is no address" in shown.stderr
    assert "hint: tcp://" in shown.stderr


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    shown = top(f"http://127.0.0.1:{port}")
    assert shown.exit_code == 1
    assert f"nobody answers at http://127.0.0.1:{port}" in shown.stderr
    assert "hint: md.start" in shown.stderr


BOX = {"query": "q", "box": "b", "kind": "sink", "rows_in": 1, "rows_out": 1}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"no", "HTTP 404"),
        (200, b"<html>", "can't be read"),
        (200, b"[]", "can't be read"),
        (200, b"{}", "can't be read"),
        (200, json.dumps({"boxes": [{}]}).encode(), "missing required field"),
        (200, json.dumps({"boxes": [BOX | {"rows_in": "many"}]}).encode(), "rows_in"),
        (503, b"the run of 'q' is\x1b[31m closed", "the run of 'q' is [31m closed"),
    ],
)
def test_something_else_answers(status: int, body: bytes, words: str) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        shown = top(f"http://127.0.0.1:{server.server_address[1]}", "--once")
        serving.join()
    assert shown.exit_code == 1
    assert words in shown.stderr
    assert "\x1b" not in shown.stderr


@pytest.mark.parametrize("slip", [("--every", "soon"), ("--every", "1ms"), ("--sort", "name")])
def test_slips(slip: tuple[str, str]) -> None:
    shown = top("http://127.0.0.1:9", *slip)
    assert shown.exit_code in (1, 2)
    assert "error" in shown.stderr.lower()


@contextmanager
def in_a_terminal(run: md.Run) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """``medusa top`` in a terminal of its own, which it leaves as it was."""
    command = [
        sys.executable,
        "-m",
        "medusa.cli.main",
        "top",
        f"http://{run.metrics_address}",
        "--every",
        "100ms",
    ]
    terminal, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    env = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        try:
            yield process, terminal
            seen = _until(terminal, "", "\x1b[?1049l")
            assert process.wait(60) == 0
            _until(terminal, seen, "ended: ")
            assert termios.tcgetattr(theirs) == before
        finally:
            process.kill()
            os.close(terminal)
            os.close(theirs)


@pytest.mark.system
@pytest.mark.parametrize("end", ["q", "ctrl-c"])
def test_in_a_terminal_it_goes_on_until_told(run: md.Run, end: str) -> None:
    with in_a_terminal(run) as (process, terminal):
        seen = _until(terminal, "", "sorted by load")
        assert "per_window" in seen
        os.write(terminal, b"s")
        _until(terminal, seen, "sorted by in")
        if end == "q":
            os.write(terminal, b"q")
        else:
            process.send_signal(signal.SIGINT)


@pytest.mark.system
def test_when_the_run_is_gone_the_last_figures_stay(run: md.Run) -> None:
    with in_a_terminal(run) as (_, terminal):
        seen = _until(terminal, "", "sorted by load")
        run.close()
        late = _until(terminal, "", "these numbers are old: nobody answers at http://")
        assert "per_window" in seen
        assert "per_window" in late
        os.write(terminal, b"q")


def _until(terminal: int, seen: str, words: str) -> str:
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


def test_without_a_terminal_it_prints_once(run: md.Run) -> None:
    command = [sys.executable, "-m", "medusa.cli.main", "top", f"http://{run.metrics_address}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tolls at")
    assert done.stderr == ""
