"""Methods of recovery side by side: every row is accounted for, shown and drawn, and nothing is left."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from medusa.apps.workloads.demos import ha_demo
from medusa.apps.workloads.demos.ha_outcome import HaOutcome, HaResult, HaWindow, account
from medusa.apps.workloads.demos.ha_query import (
    POSTER,
    HaMethod,
    HaShape,
    known_methods,
    query,
    traffic,
)
from medusa.apps.workloads.network.tcp_bytes import sent_bytes
from medusa.cli.main import main
from medusa.runtime.embedded.embedded_run import collect

DEADLINE_S = 120
PASSIVE, ACTIVE, UPSTREAM, EXACT, AMNESIA = POSTER
SHAPE = HaShape(rate=100, groups=2, window_ms=100)
"""Ten rows a window, five of each group."""

PUBLISHED = 40


def window(number: int, group: int, *, late_s: float = 0.01, first: int = 0) -> HaWindow:
    """What comes of one window and group; ``first``: how many of its rows are lost."""
    numbers = range(10 * number + group + 2 * first, 10 * number + 10, 2)
    sent_s = 0.1 * (number + 1)
    return HaWindow(sent_s + late_s, len(numbers), numbers[0], numbers[-1], sum(numbers), sent_s)


WHOLE = [window(number, group) for number in range(4) for group in (0, 1)]
GAP = [*WHOLE[:4], window(2, 0, first=2), *WHOLE[5:]]
AGAIN = [*WHOLE[:4], WHOLE[3], *WHOLE[4:]]
MISCOUNTED = [*WHOLE[:4], replace(WHOLE[4], rows=4), *WHOLE[5:]]


def result(of: HaMethod, windows: Sequence[HaWindow] = WHOLE, **changes: Any) -> HaResult:
    known: dict[str, Any] = {
        "killed_s": 0.22,
        "primary_cpu_us": 10.0,
        "secondary_cpu_us": 5.0,
        "sent_bytes": 8.0,
        "told_lost": 0,
        "told_unknown": False,
        "owner": of.secondary,
        "killed_rows": 22,
        "fed_rows": 18,
    }
    known |= changes
    known.setdefault("told_lost_by", {"rows": known["told_lost"]})
    return HaResult(of=of, shape=SHAPE, published=PUBLISHED, windows=windows, **known)


def later(by_s: float) -> list[HaWindow]:
    return [replace(each, at_s=each.at_s + by_s) for each in WHOLE]


RESULTS = {
    "B": result(PASSIVE, later(0.05), fed_rows=22),
    "C": result(ACTIVE, secondary_cpu_us=9.0, sent_bytes=30.0, fed_rows=PUBLISHED),
    "D": result(
        UPSTREAM,
        [replace(each, at_s=each.at_s + 0.04 * (each.sent_s > 0.22)) for each in AGAIN],
        secondary_cpu_us=4.0,
        sent_bytes=1.0,
        fed_rows=30,
    ),
    "E": result(EXACT, [replace(each, at_s=each.at_s + 0.04 * (each.sent_s > 0.22)) for each in WHOLE]),
    "F": result(
        AMNESIA, [replace(each, at_s=each.at_s + 0.04 * (each.sent_s > 0.22)) for each in GAP], told_lost=2
    ),
}


def outcome(**changes: HaResult) -> HaOutcome:
    return HaOutcome(results=list({**RESULTS, **changes}.values()), events=[], seconds=2.0)


def held(of: HaOutcome, what: str) -> bool | None:
    [found] = [each.held for each in of.checks() if what in each.what]
    return found


# --- the account --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "missing", "doubled", "wrong", "example"),
    [
        (WHOLE, 0, 0, 0, ""),
        (GAP, 2, 0, 0, "row 20 is missing"),
        (WHOLE[:-1], 5, 0, 0, "row 31 is missing"),
        ([], 40, 0, 0, "row 0 is missing"),
        (AGAIN, 0, 5, 0, "row 11 came again"),
        ([*WHOLE, WHOLE[0], WHOLE[0]], 0, 10, 0, "row 0 came again"),
        (MISCOUNTED, 5, 0, 1, "a window says 4 rows from 20 to 28, sum 120: that would be 5 rows"),
        ([*WHOLE[:-1], replace(WHOLE[-1], total=7)], 5, 0, 1, "that isn't their sum"),
        ([*WHOLE[:-1], replace(WHOLE[-1], last=38)], 5, 0, 1, "not rows of one group"),
        ([*WHOLE, window(4, 0)], 0, 0, 1, "not rows of one group"),
    ],
    ids=["whole", "gap", "end", "nothing", "again", "thrice", "miscounted", "sum", "group", "unpublished"],
)
def test_each_row_is_accounted_for(
    windows: Sequence[HaWindow], missing: int, doubled: int, wrong: int, example: str
) -> None:
    found = account(windows, PUBLISHED, SHAPE.groups)
    assert (found.missing, found.doubled, found.wrong) == (missing, doubled, wrong)
    assert example in found.example
    assert bool(found.example) == bool(example)
    assert sum(again for _, again in found.repeats) == doubled


def test_what_the_query_gives_of_its_traffic_is_whole() -> None:
    rows = collect(query(ACTIVE, SHAPE), rows=traffic(0, PUBLISHED, SHAPE, 5))["out"].to_pylist()
    found = [
        HaWindow(0.0, each["rows"], each["first"], each["last"], each["total"], each["sent"]) for each in rows
    ]
    assert len(found) == 8
    assert account(found, PUBLISHED, SHAPE.groups).example == ""


def test_figures_of_a_result() -> None:
    found = RESULTS["C"]
    assert found.delays_s == pytest.approx([0.01] * 4)  # Those of two windows came before the kill.
    assert found.takeover_s == pytest.approx(0.09)
    assert found.cpu_us == 19.0
    assert replace(found, killed_s=0.5).takeover_s is None
    assert result(ACTIVE, []).delay_s(0.5) is None


# --- the checks ---------------------------------------------------------------------------------------


def test_all_that_the_poster_says_is_held() -> None:
    found = outcome()
    assert found.fine
    by_letter = {each.what: each.held for each in found.checks()}
    assert {*by_letter.values()} == {True}


@pytest.mark.parametrize(
    ("letter", "changes", "what"),
    [
        ("B", {"windows": GAP}, "B: nothing lost"),
        ("C", {"windows": GAP, "told_lost": 2}, "C: nothing lost"),
        ("C", {"windows": AGAIN}, "C: nothing lost"),
        ("C", {"windows": MISCOUNTED}, "C: nothing lost"),
        ("C", {"owner": "c"}, "C: c2 has taken over"),
        ("D", {"windows": GAP}, "D: nothing lost"),
        ("D", {"windows": MISCOUNTED}, "D: nothing lost"),
        ("E", {"windows": AGAIN}, "E: nothing lost, nothing doubled"),
        ("E", {"windows": GAP}, "E: nothing lost, nothing doubled"),
        ("F", {"windows": [*GAP, GAP[0]]}, "F: nothing doubled"),
        ("F", {"told_lost": 3}, "F: the gap is counted"),
        ("F", {"told_lost": 0}, "F: the gap is counted"),
        ("F", {"told_lost_by": {"rows": 1}}, "F: the gap is counted"),
        ("F", {"told_unknown": True}, "F: the gap is counted"),
        ("F", {"windows": WHOLE}, "F: the gap is counted"),
    ],
)
def test_what_is_wrong_ends_with_1(
    letter: str,
    changes: Mapping[str, Any],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    wrong = outcome(**{letter: replace(RESULTS[letter], **changes)})
    assert held(wrong, what) is False
    monkeypatch.setattr(ha_demo, "ran", lambda options, screen: wrong)
    monkeypatch.setattr(ha_demo, "draw", lambda outcome, path: "not drawn")
    asked = ["demo", "ha", "--plot", str(tmp_path / "ha.svg")]
    assert CliRunner().invoke(main, asked).exit_code == 1
    assert json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)["fine"] is False


@pytest.mark.parametrize(
    ("letter", "changes", "what"),
    [
        ("C", {"sent_bytes": 7.0}, "sends most"),
        ("C", {"secondary_cpu_us": 4.0}, "takes most CPU"),
        ("C", {"windows": later(0.2)}, "recovers fastest"),
        ("B", {"windows": WHOLE}, "adds most delay"),
        ("D", {"sent_bytes": 9.0}, "sends least"),
        ("D", {"secondary_cpu_us": 6.0}, "takes least CPU"),
        ("D", {"fed_rows": 20}, "reads most again"),
        ("B", {"fed_rows": 36}, "reads most again"),
        ("D", {"windows": later(0.04)}, "rows come again"),
        ("D", {"windows": later(0.04)}, "duplicates in D, and none in E"),
        ("F", {"windows": WHOLE, "told_lost": 0, "told_lost_by": {"rows": 0}}, "there is a gap"),
    ],
)
def test_a_comparison_that_is_not_held_is_said_and_fails_nothing(
    letter: str, changes: Mapping[str, Any], what: str
) -> None:
    found = outcome(**{letter: replace(RESULTS[letter], **changes)})
    assert held(found, what) is False
    assert found.fine


def test_what_is_not_there_is_not_compared() -> None:
    alone = HaOutcome(results=[RESULTS["C"]], events=[], seconds=1.0)
    assert alone.fine
    assert held(alone, "recovers fastest") is None
    assert held(alone, "B: passive standby") is None
    assert held(alone, "adds most delay") is None
    assert held(alone, "duplicates in D, and none in E") is None
    two = HaOutcome(results=[RESULTS["B"], RESULTS["E"]], events=[], seconds=1.0)
    assert held(two, "adds most delay") is None
    unknown = outcome(F=replace(RESULTS["F"], sent_bytes=None))
    assert held(unknown, "sends most") is None
    assert held(outcome(B=replace(RESULTS["B"], fed_rows=None)), "reads most again") is None
    assert unknown.fine


# --- what is shown ------------------------------------------------------------------------------------


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ha_demo, "ran", lambda options, screen: outcome())
    monkeypatch.setattr(ha_demo, "draw", lambda outcome, path: "not drawn")
    shown = CliRunner().invoke(main, ["demo", "ha", "--plot", str(tmp_path / "ha.svg")])
    assert shown.exit_code == 0, shown.output
    assert "10.0 + 9.0" in shown.output
    assert "2 missing, status says 2" in shown.output
    assert shown.output.count("│ yes") == 21
    told = CliRunner().invoke(main, ["demo", "ha", "--json", "--plot", str(tmp_path / "ha.svg")])
    found = {each["letter"]: each for each in json.loads(told.stdout)["results"]}
    assert (found["F"]["missing"], found["F"]["told_lost"], found["C"]["doubled"]) == (2, 2, 0)
    assert [found[letter]["read_again"] for letter in "BCDF"] == [4, 0, 12, 0]


def test_the_four_plots_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    doubled = outcome(C=replace(RESULTS["C"], windows=AGAIN))
    monkeypatch.setattr(ha_demo, "ran", lambda options, screen: doubled)
    CliRunner().invoke(main, ["demo", "ha", "--plot", str(tmp_path / "ha.svg")])
    names = ["ha-delay.svg", "ha-duplicates.svg", "ha-numbers.svg", "ha-overhead.svg"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert all("<svg" in each.read_text() for each in tmp_path.iterdir())


def test_without_matplotlib_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ha_demo, "ran", lambda options, screen: outcome())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = CliRunner().invoke(main, ["demo", "ha", "--plot", str(tmp_path / "ha.svg")])
    assert shown.exit_code == 0, shown.output
    assert "medusa-streams[plot]" in shown.output
    assert list(tmp_path.iterdir()) == []


def test_a_plot_of_another_kind_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_demo, "ran", lambda options, screen: pytest.fail("it ran"))
    shown = CliRunner().invoke(main, ["demo", "ha", "--plot", "ha.pdf"])
    assert shown.exit_code == 1
    assert "a plot is a .png or a .svg" in shown.output


# --- the bench ----------------------------------------------------------------------------------------


# --- bytes --------------------------------------------------------------------------------------------

SENDS = """
import socket, sys
sent = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sent.sendall(bytes(5000))
print("sent", flush=True)
sys.stdin.read()
"""


def test_bytes_from_one_process_to_another_are_those_that_it_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        child = subprocess.Popen(
            [sys.executable, "-c", SENDS, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            taken, _ = server.accept()
            with taken:
                left = 5000
                while left:
                    left -= len(taken.recv(left))
                there = sent_bytes(child.pid, os.getpid())
                if there is None:
                    pytest.skip("this kernel tells nothing of sockets")
                assert there in (5000, 5001)  # Of the connection itself Linux counts one.
                assert sent_bytes(os.getpid(), child.pid) in (0, 1)
        finally:
            child.communicate()
    assert sent_bytes(child.pid, os.getpid()) is None


# --- real processes -----------------------------------------------------------------------------------


@pytest.mark.system
def test_all_primaries_are_killed_and_every_row_is_accounted_for(tmp_path: Path) -> None:
    asked = ["--rest", "0.5", "--rate", "500", "--plot", str(tmp_path / "ha.svg")]
    shown = CliRunner().invoke(main, ["demo", "ha", "--json", *asked])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert [each["letter"] for each in told["results"]] == [each.letter for each in known_methods()]
    assert all(each["held"] for each in told["checks"] if each["exact"])
    for each in told["results"]:
        assert each["published"] > 0
        assert each["takeover_s"] > 0
        assert each["primary_cpu_us"] > 0
    again = {each["letter"]: each["read_again"] for each in told["results"]}
    assert again["C"] == 0
    assert all(0 <= rows <= told["results"][0]["published"] for rows in again.values())
    assert again["D"] > 0  # At least what the windows held that were open.


@pytest.mark.system
def test_an_interruption_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("h")
    command = [sys.executable, "-m", "medusa.cli.main", "demo", "ha", "--rest", "600", "--rate", "500"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    pids: list[int] = []
    try:
        assert running.stdout is not None
        for line in running.stdout:
            if found := re.search(r"is process (\d+) at", line):
                pids.append(int(found[1]))
            if "rows flow" in line:
                break
        assert len(pids) == 2 + 2 * len(known_methods())
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(DEADLINE_S) == 130
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert list(folder.iterdir()) == []
    finally:
        for pid in [running.pid, *pids]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.communicate()
