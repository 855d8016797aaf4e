"""The experiments on delay, process and correct: figures, tables, a small real run of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.delay import account, baseline, command, costs, cuts, experiments, shown
from bench.delay.account import Came, Figures
from bench.delay.experiments import EXPERIMENTS, Case
from bench.delay.policies import POLICIES, PROCESS, Policy
from bench.delay.redo_node import Left, RedoNode, Row
from bench.delay.rig import Arrival, Failure, Outage
from bench.delay.streams import Shape, rows_of, setup_of
from bench.recovery.sheet import Sheet

SECOND = 1_000_000
BUCKET_S = 1.0
STATES = [(14.0, "up_failure"), (20.25, "stabilization"), (21.0, "stable")]


def trains(*parts: tuple[float, bool, int, Sequence[int]]) -> list[Arrival]:
    """(when, tentative, stream, numbers): row n is published at n seconds."""
    return [
        Arrival(at_s, tentative, table_of(stream, numbers).combine_chunks().to_batches()[0])
        for at_s, tentative, stream, numbers in parts
    ]


def table_of(stream: int, numbers: Sequence[int]) -> pa.Table:
    return pa.concat_tables([rows_of(stream, n, n + 1, n * SECOND) for n in numbers])


def came_of(arrivals: Sequence[Arrival]) -> Came:
    shape = Shape(within="2s", bucket_ms=1_000)
    return account.came_of(
        arrivals, experiments._rows, lambda sent_s: experiments._bucket_end_s(sent_s, shape)
    )


def a_failure() -> list[Arrival]:
    """Stream 1 is away from 12 to 20 s. Without it a row comes a tenth of a second after its bucket."""
    calm = [(n + 1.1, False, stream, [n]) for n in range(11) for stream in (0, 1)]
    tentative = [(14.0, True, 0, [11, 12]), *((n + 1.2, True, 0, [n]) for n in range(13, 20))]
    fixed = [(20.25 if n < 14 else 20.75, False, stream, [n]) for n in range(11, 20) for stream in (0, 1)]
    after = [(n + 1.1, False, stream, [n]) for n in range(20, 30) for stream in (0, 1)]
    return trains(*calm, *tentative, *fixed, *after)


def found_of(arrivals: Sequence[Arrival]) -> Figures:
    return account.figures(came_of(arrivals), [Outage("f", 11.5, 20.0)], STATES, [1])


# --- what came ------------------------------------------------------------------------------------------


def test_a_failure_is_told_in_figures() -> None:
    found = found_of(a_failure())
    assert found.calm_s == pytest.approx(1.1)
    assert found.first_tentative_s == pytest.approx(3.0)
    assert found.latest_s == pytest.approx(3.0)
    assert found.added_s == pytest.approx(1.9)  # Row 11 came 2.0 s after its bucket, usually it is 0.1 s.
    assert found.tentative_rows == 9
    assert found.begun_s == pytest.approx(0.25)
    assert found.corrected_s == pytest.approx(0.75)
    assert found.undo_s == pytest.approx(9.25)
    assert found.speed == pytest.approx(16.0)
    assert found.after_s == pytest.approx(1.1)


def test_rows_of_the_stream_that_failed_are_no_new_rows() -> None:
    found = account.figures(came_of(a_failure()), [Outage("f", 11.5, 20.0)], STATES, [])
    assert found.latest_s == pytest.approx(9.25)


def test_a_row_that_never_was_tentative_counts_by_its_correction() -> None:
    arrivals = [each for each in a_failure() if each.at_s != 17.2]
    assert found_of(arrivals).added_s == pytest.approx(20.75 - 17 - 0.1)


def test_a_stream_that_is_never_stable_again_is_an_error() -> None:
    with pytest.raises(AssertionError, match="never said to be stable"):
        account.figures(came_of(a_failure()), [Outage("f", 11.5, 20.0)], STATES[:2], [1])


def test_a_failure_that_nobody_noticed_has_its_end_where_all_had_come() -> None:
    calm = [(n + 1.1, False, stream, [n]) for n in range(20) for stream in (0, 1)]
    found = account.figures(came_of(trains(*calm)), [Outage("f", 10.0, 10.5)], [], [1])
    assert (found.tentative_rows, found.first_tentative_s) == (0, None)
    assert found.added_s == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda arrivals: arrivals, ""),
        (lambda arrivals: arrivals[1:], "stream 0: 29 stable rows of 30"),
        (
            lambda arrivals: [arrivals[0], *arrivals],
            "stream 0: 31 stable rows of 30 that were published, 1 of them",
        ),
        (lambda arrivals: [arrivals[1], arrivals[2], arrivals[0], *arrivals[3:]], "stream 0: 30 stable rows"),
        (
            lambda arrivals: [arrivals[0], *arrivals[2:4], arrivals[1], *arrivals[4:]],
            "stream 1: 30 stable rows",
        ),
        (lambda arrivals: [arrivals[0], arrivals[2], arrivals[1], *arrivals[3:]], "0.000 s came after"),
    ],
)
def test_stable_rows_are_held_against_what_was_published(change: Any, told: str) -> None:
    fault = account.wrong(came_of(change(a_failure())), {0: 30, 1: 30})
    assert (told in fault) if told else not fault


def test_the_curve_has_both_lanes() -> None:
    points = account.curve(came_of(a_failure()), 0)
    assert [number for _, number, tentative in points if tentative] == [*range(11, 20)]
    assert {number for _, number, tentative in points if not tentative} == {*range(30)}


# --- what has to be so ----------------------------------------------------------------------------------


def case(policy: Policy = PROCESS, **changed: Any) -> Case:
    made = Case("8.5 s", Shape(within="2s"), policy, [Failure("f", 0.0, 8.5)], (1,))
    return replace(made, **changed)


def faults(case: Case, found: Figures) -> list[str]:
    return [each.fault for each in experiments.checks_of(case, found) if each.fault]


def test_checks_are_held_where_all_is_as_promised() -> None:
    found = found_of(a_failure())
    assert faults(case(), found) == []
    assert len(experiments.checks_of(case(), found)) == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"added_s": 2.01}, "one was 2.01 s later"),
        ({"begun_s": 0.51}, "they began 0.51 s after it"),
        ({"corrected_s": 2.1}, "they took 2.10 s, 2.04 s would be in time"),
        ({"begun_s": None}, "none did"),
    ],
)
def test_a_promise_that_is_broken_is_told(change: Mapping[str, Any], told: str) -> None:
    assert faults(case(), replace(found_of(a_failure()), **change)) == [told]


def test_who_suspends_promises_no_x() -> None:
    late = replace(found_of(a_failure()), added_s=9.0)
    for key, policy in POLICIES.items():
        assert bool(faults(case(policy), late)) == ("suspend" not in key)


def test_a_short_failure_may_show_nothing() -> None:
    found = found_of(a_failure())
    assert faults(case(none=True), found) == ["9 were"]
    assert faults(case(none=True), replace(found, tentative_rows=0)) == []


def test_the_sweeps_mask_what_is_shorter_than_the_wait() -> None:
    masked = {each.name: each.none for each in EXPERIMENTS["sweep"].cases}
    assert (masked["2 s"], masked["3 s"]) == (True, False)
    four = {each.name: each.none for each in EXPERIMENTS["chain_of_four"].cases}
    assert [name for name, none in four.items() if none] == ["5 s", "6.5 s"]
    assert len(EXPERIMENTS["sweep"].cases) == 12 * 6


def test_pairs_stand_one_behind_the_other_and_nodes_that_fail_have_streams_alone() -> None:
    setup = setup_of(Shape(within="2s", pairs=3, at=("e", "g", "f"), last=(2,)), PROCESS, "stop")
    assert setup.at == {
        "e": ["s0", "kept0"],
        "g": ["s1", "kept1"],
        "f": ["s2", "kept2"],
        "c1": ["met"],
        "c2": ["passed2"],
        "c3": ["met3", "out"],
    }
    assert setup.standby == {"c1": ["r1"], "c2": ["r2"], "c3": ["r3"]}
    assert sorted(setup.nodes) == ["c1", "c2", "c3", "e", "f", "g", "r1", "r2", "r3"]
    placed = [box for boxes in setup.at.values() for box in boxes]
    assert {box.id for box in setup.query.graph.boxes} <= {*placed}


# --- the join -------------------------------------------------------------------------------------------

KEYS = 10
RIGHT = [(20, 0), (30, 5 * SECOND)]
"""Of the right rows 0 to 19 have the time 0, 20 to 29 that of 5 s."""


def joined(at_s: float, numbers: Sequence[int], *, tentative: bool = False, wrong: bool = False) -> Arrival:
    """Row n of the left has n seconds as its time."""
    key = np.array(numbers) * 7_919 % KEYS
    newest = np.where(np.array(numbers) < 5, 10, 20) + key - 10 * wrong
    batch = pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            "key": key,
            "ts": pa.array([n * SECOND for n in numbers], pa.timestamp("us", "UTC")),
            "m": newest,
        }
    )
    return Arrival(at_s, tentative, batch)


def seen_of(*arrivals: Arrival) -> cuts.Seen:
    seen = cuts.Seen(KEYS)
    for each in arrivals:
        seen.take(each)
    return seen


def ages(seen: cuts.Seen) -> list[float | None]:
    return [part[3] for part in seen.parts]


def test_a_row_is_new_once_on_either_lane() -> None:
    seen = seen_of(
        joined(1.5, [0, 1]),
        joined(4.0, [2, 3], tentative=True),
        joined(6.0, [2, 3, 4]),
        joined(6.0, [4], tentative=True),
    )
    assert ages(seen) == [1.5, 2.0, 2.0, None]
    assert [part[6] for part in seen.parts] == [0, 0, 0, 1]
    assert (seen.fault, seen.next, seen.mismatched(RIGHT)) == ("", 5, "")


def test_a_row_that_a_fork_left_out_is_as_old_as_its_correction() -> None:
    seen = seen_of(
        joined(0.5, [0]),
        joined(4.0, [3, 4], tentative=True),
        joined(7.0, [2], tentative=True),
        joined(8.0, [1, 2, 3, 4]),
    )
    assert ages(seen) == [0.5, 1.0, 5.0, 7.0]


def test_a_stable_row_that_is_wrong_is_told() -> None:
    assert "stable row 1 should have come, and 2 did" in seen_of(joined(1, [0]), joined(2, [2])).fault
    assert "joined with row 13" in seen_of(joined(6, [*range(5)]), joined(7, [7], wrong=True)).mismatched(
        RIGHT
    )
    assert seen_of().mismatched(RIGHT) == "no stable row came"


def test_cuts_are_of_all_lengths() -> None:
    assert len(cuts.FULL.cuts_s) == 20
    assert (min(cuts.FULL.cuts_s), max(cuts.FULL.cuts_s)) == (0.5, 30.0)
    assert len(set(cuts.FULL.cuts_s)) == 20


# --- tables, plots, the command -------------------------------------------------------------------------


def run_of(fault: str = "") -> dict[str, Any]:
    found = found_of(a_failure())
    return {
        **{name: getattr(found, name) for name in Figures.__dataclass_fields__},
        "cut": "stop",
        "outages": [["f", 11.5, 20.0]],
        "checks": [{"what": "all is well", "fault": fault}],
        "curves": {"0": account.curve(came_of(a_failure()), 0)},
    }


@pytest.mark.parametrize("name", ["pair", "chain", "sweep"])
@pytest.mark.parametrize("fault", ["", "one was late"])
def test_a_table_stands_beside_theirs_and_says_what_held(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, fault: str
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(experiments, "run", lambda case, cut: run_of(fault))
    asked = [name, "--out", str(tmp_path), "--policies", PROCESS.key]
    assert command.main(asked) == bool(fault)
    text = capsys.readouterr().out
    verdict = "**not held** (" if fault else "held, "
    assert f"- all is well: {verdict}" in text
    line = next(each for each in text.splitlines() if each.startswith("| ") and PROCESS.key in each)
    theirs = {"pair": "7.07", "chain": "2.22", "sweep": "below 3"}[name]
    cells = dict(zip(shown.HEADS, [each.strip() for each in line.strip("|").split("|")], strict=True))
    assert cells["added, of X"].startswith("1.90 of ")
    assert theirs in line or name == "pair"
    assert "<svg" in (tmp_path / f"delay-{name}.svg").read_text()
    assert json.loads((tmp_path / f"delay-{name}.json").read_text())["rows"]
    assert command.main([*asked, "--docs"]) == bool(fault)
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["pear"], "there is no experiment 'pear': they are pair, chain"),
        (["sweep", "--policies", "hope"], "--policies: hope is none of process&process"),
        (["pair", "--policies", "delay&delay"], "--policies: pair has none of delay&delay"),
        (["--budget", "soon"], "--budget"),
    ],
)
def test_what_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], asked: list[str], told: str) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(asked)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_what_was_never_measured_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["pair", "--docs", "--out", str(tmp_path)]) == 2
    assert "run it without --docs first" in capsys.readouterr().err


def test_the_costs_are_ratios_of_the_same_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    p50_s = {
        costs.PLAIN: iter([0.010, 0.020]),
        costs.DELAY: iter([0.011, 0.0202]),
        costs.SUNION: iter([0.1, 0.2]),
    }

    def run(setting: Mapping[str, Any], sizes: costs.Sizes) -> dict[str, Any]:
        return {
            "rows_per_s": 100.0,
            "p50_s": next(p50_s[setting["variant"]]),
            "p99_s": 0.3,
            "tentative_rows": 0,
        }

    monkeypatch.setattr(costs, "run", run)
    sizes = replace(costs.QUICK, rounds=2)
    found = costs.measure(sizes, Sheet("delay-costs", tmp_path, costs.asked_of(sizes)))
    text = costs.table(found)
    assert "**not held** (5.5 % by the median of the rounds)" in text
    assert "| 10.000 |" in text.replace("10.000 (10.000 to 10.000)", "10.000")
    costs.plot(found, tmp_path / "costs.svg")
    assert "<svg" in (tmp_path / "costs.svg").read_text()


# --- checkpoint/redo ------------------------------------------------------------------------------------


def redone(*failures_ms: tuple[int, int], row_us: int = 0) -> tuple[list[Left], RedoNode]:
    """A row each 10 ms of two inputs, of which the second is missing meanwhile; bucket 100 ms, X = 1 s."""
    node = RedoNode(2, bucket_us=100_000, delay_us=1_000_000, checkpoint_us=200_000, row_us=row_us)
    left: list[Left] = []
    waiting: list[int] = []
    for now_us in range(0, 8_000_000, 10_000):
        node.rows(0, [now_us], now_us)
        node.boundary(0, now_us, now_us)
        waiting.append(now_us)
        if not any(begin <= now_us // 1_000 < end for begin, end in failures_ms):
            node.rows(1, waiting, now_us)
            node.boundary(1, now_us, now_us)
            waiting = []
        left += node.run(now_us)
    return left, node


def stable_rows(left: Sequence[Left]) -> list[Row]:
    return [row for each in left if not each.tentative for row in each.rows]


@pytest.mark.parametrize(
    "failures", [(), ((2_000, 2_800),), ((2_000, 5_000),), ((2_000, 4_000), (4_050, 6_000))]
)
@pytest.mark.parametrize("row_us", [0, 1_500])
def test_redo_gives_each_row_once_in_order(failures: tuple[tuple[int, int], ...], row_us: int) -> None:
    left, node = redone(*failures, row_us=row_us)
    rows = stable_rows(left)
    assert rows == sorted({*rows}, key=lambda row: (row[1], row[0]))
    assert len(rows) >= 2 * 650
    assert rows[-1][1] > 6_500_000
    assert node.state == "stable"
    assert any(each.tentative for each in left) == any(end - begin > 900 for begin, end in failures)


def test_redo_does_again_what_was_tentative_and_all_since_the_checkpoint() -> None:
    left, node = redone((2_000, 5_000))
    tentative = [row for each in left if each.tentative for row in each.rows]
    assert min(time_us for _, time_us in tentative) == 1_900_000  # This bucket lacked its boundary.
    assert node.again_rows == len(tentative) + node.below_rows
    # At most two buckets of 20 rows had left since the last checkpoint.
    assert 0 < node.below_rows <= 40
    [undo] = [each for each in left if each.undo]
    fixed = [each for each in left if not each.tentative and each.rows and each.rows[0][1] >= 1_900_000]
    assert undo.at_us <= fixed[0].at_us
    assert max(each.at_us for each in left if each.tentative) <= undo.at_us


def test_the_fork_does_nothing_of_before_again_and_redo_does() -> None:
    found = {
        design: baseline.run({"design": design, "failure_s": 3.0}, baseline.QUICK)
        for design in baseline.DESIGNS
    }
    assert not [check for made in found.values() for check in made["checks"] if check["fault"]]
    assert found[baseline.FORK]["below_rows"] == 0 < found[baseline.REDO]["below_rows"]
    assert found[baseline.PAIR]["again_rows"] > found[baseline.REDO]["again_rows"]
    assert all(made["tentative_rows"] > 0 for made in found.values())
    # A node alone answers nothing new while it corrects.
    assert found[baseline.FORK]["tentative_rows"] > found[baseline.REDO]["tentative_rows"]


# --- small real runs ------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("name", command.NAMES)
def test_a_small_run(tmp_path: Path, name: str) -> None:
    """What may be late where the machine is busy isn't looked at."""
    pytest.importorskip("matplotlib")
    command.main([name, "--quick", "--out", str(tmp_path)])
    found = json.loads((tmp_path / f"delay-{name}.json").read_text())
    made = [each for row in found["rows"] for each in row["runs"]]
    assert made
    assert not [each["trouble"] for each in made if "trouble" in each]
    exact = ("stable row", "joined with", "stable instance", "processed again", "in the end")
    wrong = [
        check
        for each in made
        for check in each.get("checks", ())
        if check["fault"] and any(words in check["what"] for words in exact)
    ]
    assert not wrong
    if name not in (costs.NAME, "chain_of_four"):
        assert sum(each["tentative_rows"] for each in made) > 0


def test_a_plot_of_cuts_too_short_for_a_speed_is_drawn(tmp_path: Path) -> None:
    """A logarithmic axis that has nothing to scale by raised."""
    run = {"checks": [], "cuts": [{"cut_s": 2.0, "latest_s": 0.5, "speed": None}]}
    cuts.plot({"rows": [{"case": {}, "runs": [run]}]}, tmp_path / "cuts.svg")
    assert (tmp_path / "cuts.svg").stat().st_size > 0
