"""All replicas of an input are cut off, and results come all the same: what is checked, shown and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import medusa as md
from medusa.apps.workloads.demos.federation_outcome import TableComparison
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.partition import tentative_query as of
from medusa.apps.workloads.partition.partition_check import PartitionEvent
from medusa.apps.workloads.partition.tentative_outcome import TentativeOutcome, WindowArrival
from medusa.apps.workloads.partition.tentative_screen import (
    TentativeProgress,
    draw_windows,
    show_windows,
)
from medusa.apps.workloads.plots import new_figure, save

Arrival = WindowArrival

ARRIVALS = [
    Arrival(1.1, False, [0]),
    Arrival(2.1, False, [1]),
    Arrival(5.0, True, [2, 3]),
    Arrival(5.1, True, [4]),
    Arrival(6.1, True, [5]),
    Arrival(6.6, False, [2, 3, 4]),
    Arrival(7.1, False, [5]),
    Arrival(8.1, False, [6]),
]
"""Windows of a second; cut at 2.2 s, whole at 6.5 s, corrected at 7.2 s."""

FINE = TentativeOutcome(
    delay_s=2.0,
    window_s=1.0,
    events=[PartitionEvent(2.2, "the links of a and b are cut")],
    arrivals=ARRIVALS,
    states=[(4.9, "up_failure"), (6.55, "stabilization"), (7.2, "stable")],
    cut_s=2.2,
    healed_s=6.5,
    comparison=TableComparison(rows=7, expected=7),
    table=TableComparison(rows=7, expected=7),
    tentative_left=0,
    missed_rows=0,
    seconds=8.5,
)


def test_a_run_in_which_all_is_so_is_fine() -> None:
    assert [each.fault for each in FINE.checks()] == [""] * 6
    assert FINE.fine
    assert FINE.corrected_s == 7.2
    assert FINE.added_s == pytest.approx((0.1, 2.0))
    told = FINE.to_json()
    assert (told["stable_windows"], told["tentative_windows"]) == (7, 4)
    assert (told["latest_before_s"], told["latest_after_s"]) == (0.1, 2.0)


def without(number: int) -> list[Arrival]:
    """No tentative window of this number."""
    left = [
        replace(each, numbers=[n for n in each.numbers if not each.tentative or n != number])
        for each in ARRIVALS
    ]
    return [each for each in left if each.numbers]


STABLE_ONLY = [each for each in ARRIVALS if not each.tentative]
OTHER = TableComparison(rows=6, expected=7, example="row 6: ...")


WRONG: list[tuple[str, Mapping[str, Any], int, str]] = [
    ("none tentative", {"arrivals": STABLE_ONLY}, 0, "window 3, which ended at 4.00 s, didn't"),
    ("one missing", {"arrivals": without(3)}, 0, "window 3, which ended at 4.00 s, didn't"),
    ("too late", {"delay_s": 1.5}, 1, "one came 2.00 s after its end; before the cut 0.10 s"),
    ("before the cut", {"arrivals": [Arrival(2.0, True, [1]), *ARRIVALS]}, 2, "window 1 was, at 2.00 s"),
    ("afterwards", {"arrivals": [*ARRIVALS, Arrival(8.2, True, [7])]}, 2, "window 7 was, at 8.20 s"),
    ("never corrected", {"states": FINE.states[:2]}, 2, "never said to be stable again"),
    ("repeated", {"arrivals": [*ARRIVALS, Arrival(8.2, False, [6])]}, 3, "window 6 came after window 6"),
    ("withdrawn", {"arrivals": [*ARRIVALS, Arrival(8.2, False, [5])]}, 3, "window 5 came after window 6"),
    ("other rows", {"comparison": OTHER}, 4, "row 6: ..."),
    ("tentative left", {"tentative_left": 2}, 5, "2 of its rows are tentative"),
    ("another table", {"table": OTHER}, 5, "row 6: ..."),
]


@pytest.mark.parametrize(
    ("changes", "check", "says"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG]
)
def test_what_is_wrong_is_said(changes: Mapping[str, Any], check: int, says: str) -> None:
    wrong = replace(FINE, **changes)
    assert says in wrong.checks()[check].fault
    assert not wrong.fine
    assert wrong.to_json()["fine"] is False


def test_what_is_shown() -> None:
    console = Console(width=160, highlight=False)
    with console.capture() as capture:
        show_windows(DemoScreen(console), FINE)
    shown = capture.get()
    assert "7 stable windows at r, 4 tentative ones\n" in shown
    assert "at most 0.10 s before the cut, 2.00 s from then on" in shown
    assert "all was corrected 0.70 s after the links were whole" in shown
    assert sum(line.endswith("yes │") for line in shown.splitlines()) == 6
    with console.capture() as capture:
        show_windows(DemoScreen(console), replace(FINE, missed_rows=3))
    assert "4 tentative ones; 3 had no room" in capture.get()


def test_how_far_it_is() -> None:
    progress = TentativeProgress()
    progress.sent(20)
    progress.came(2, tentative=False)
    progress.came(1, tentative=True)
    progress.link_is("cut")
    progress.stream_is("up_failure")
    assert progress.line() == (
        "20 rows published, 2 stable windows at r, 1 tentative | a and b cut | stream up_failure"
    )


def test_both_lanes_are_drawn_and_the_corrections_over_the_tentative_windows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "windows.svg"
    figure = new_figure(path, (8, 3.6))
    axis = figure.subplots()
    draw_windows(axis, FINE)
    tentative, stable = axis.get_lines()[:2]
    assert list(tentative.get_ydata()) == [2, 3, 4, 5]
    assert list(stable.get_ydata()) == [0, 1, 2, 3, 4, 5, 6]
    assert tentative.get_color() != stable.get_color()
    save(figure, path)
    assert "<svg" in path.read_text()


def test_the_query_in_one_process() -> None:
    left, right = (of.traffic(0, 5, 150_000, left=is_left) for is_left in (True, False))
    rows = of.expected("2s", left, right)
    assert rows.select(["rows", "left", "total"]).to_pylist() == [{"rows": 10, "left": 5, "total": 20}]
    assert md.Query.from_json(of.query("2s").to_json()).graph == of.query("2s").graph
