"""Commands of the benchmarks of recovery: what they go through, their tables and plots, small real runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.recovery import chaos, kills, knob, table, workload
from bench.recovery.methods import ALONE, Method, known_methods
from bench.recovery.sheet import Sheet, troubles
from medusa.apps.workloads.demos.ha_outcome import HaWindow
from medusa.runtime.embedded.embedded_run import collect

METHODS = known_methods()
ACTIVE, PASSIVE, UPSTREAM, AMNESIA = (
    METHODS[key] for key in ("active_standby", "passive_standby", "upstream_backup", "amnesia")
)


# --- tables and plots -----------------------------------------------------------------------------------


def run_of_the_table(setting: dict[str, Any], seconds: float, wait: str) -> dict[str, Any]:
    alone = setting["method"] == ALONE.key
    found: dict[str, Any] = {
        "published": 100,
        "missing": 2 if setting["method"] == "amnesia" else 0,
        "doubled": 0,
        "delay_p50_s": 0.01 if alone else 0.03,
        "delay_p99_s": 0.02 if alone else 0.05,
        "cpu_us": 10.0 if alone else 19.0,
        "primary_memory_bytes": 3 << 20,
        "secondary_memory_bytes": None if alone else 2 << 20,
        "input_bytes": 40.0,
        "kept_bytes": 2048,
    }
    if not alone:
        assert setting["method"] != "upstream_backup", "5 missing"
        found |= {"sent_bytes": 30.0, "noticed_s": 0.01, "taken_s": 0.03, "total_s": 0.09}
        found["again_rows"] = None if setting["method"] == "active_standby" else 12
    return found


def table_of(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    monkeypatch.setattr(table, "run", run_of_the_table)
    sizes = replace(table.QUICK, intervals=("100ms", "1s"), rounds=2)
    sheet = Sheet(table.NAME, folder, table.asked_of(sizes))
    return table.measure(sizes, [ACTIVE, PASSIVE, UPSTREAM, AMNESIA], sheet)


def lines_of(text: str) -> list[list[str]]:
    """Cells of the one table, without its head."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len({len(line) for line in lines}) == 1
    return lines[1:]


def test_the_table_holds_each_method_against_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = table.COMMAND.write(table_of(monkeypatch, tmp_path), tmp_path)
    lines = lines_of(text)
    names = [line[0] for line in lines]
    assert names == [
        "alone",
        "active standby",
        "passive standby",
        "amnesia",
        "active standby",
        "passive standby",
    ]
    cells = dict(zip(table.HEADS, lines[2], strict=True))
    assert cells["of the input"] == "0.75"
    assert cells["times alone"] == "1.90"
    assert (cells["added p50"], cells["added p99"]) == ("+20", "+30")
    assert (cells["kept, KiB"], cells["memory, MiB"]) == ("2", "3 + 2")
    assert (cells["noticed, ms"], cells["taken, ms"], cells["total, ms"]) == ("10", "30", "90")
    assert (cells["read again"], lines[1][-1]) == ("12", "-")
    assert lines[3][-3:-1] == ["2", "0"]
    assert text.count("- not held (method upstream_backup") == 4
    assert "<svg" in (tmp_path / "recovery.svg").read_text()


def test_what_was_measured_is_shown_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert table.COMMAND.show(tmp_path) == 2
    assert "run it without --docs first" in capsys.readouterr().err
    text = table.COMMAND.write(table_of(monkeypatch, tmp_path), tmp_path)
    capsys.readouterr()
    assert table.COMMAND.show(tmp_path) == 1  # A promise was broken.
    assert capsys.readouterr().out == text


def test_the_usual_setting_comes_before_those_that_differ_from_it() -> None:
    found = table.settings(table.FULL, [PASSIVE, AMNESIA])
    assert found[:3] == [
        {"method": key, "rate": 2_000, "window_ms": 100, "groups": 10, "interval": interval}
        for key, interval in (("alone", None), ("passive_standby", "200ms"), ("amnesia", None))
    ]
    assert len(found) == len({json.dumps(each) for each in found}) == 2 * 3 * (1 + 2 + 1)
    usual = table.settings(replace(table.FULL, apart=0), [PASSIVE, AMNESIA])
    assert usual == found[:3]
    once = table.settings(replace(table.FULL, apart=1), [PASSIVE, AMNESIA])
    assert once == found[: len(once)]
    assert len(once) == 3 + 3 + 2 * 3 + 1  # The usual one; another rate; two other states; another interval.
    later = [each["rate"] == 20_000 and each["groups"] == 1_000 for each in found]
    assert not any(later[: len(later) // 2])


def test_kills_are_held_against_their_aims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sizes = replace(kills.FULL, kills=2, exact=3, spans_ms=(100,))

    def run(setting: dict[str, Any], sizes: kills.Sizes) -> dict[str, Any]:
        waits = setting["keys"] is None
        return {
            "missing": 0,
            "doubled": 0,
            "delay_p50_s": 0.012,
            "noticed_s": 0.01,
            "taken_s": 0.02,
            "total_s": 2.4 if waits else 0.4,
            "again_rows": 7_000 if waits else None,
        }

    monkeypatch.setattr(kills, "run", run)
    sheet = Sheet(kills.NAME, tmp_path, kills.asked_of(sizes))
    text = kills.COMMAND.write(kills.measure(sizes, [PASSIVE, UPSTREAM, AMNESIA], sheet), tmp_path)
    found = {(line[0], line[1]): dict(zip(kills.HEADS, line, strict=True)) for line in lines_of(text)}
    assert found["passive standby", "100,000 keys"]["aim, ms"] == "300, missed"
    assert found["passive standby", "1,000,000 keys"]["aim, ms"] == "1,000, reached"
    assert [each["kills"] for each in found.values()] == ["2", "2", "3", "3"]
    assert found["upstream backup", "100 ms"]["less the wait"] == "400"
    assert found["upstream backup", "100 ms"]["read again, rows"] == "7,000"
    assert "<svg" in (tmp_path / "recovery-kills.svg").read_text()


# --- the knob -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("boxes", "cuts"), [(8, 1), (8, 2), (8, 8), (5, 2), (3, 3)])
def test_the_chain_is_cut_in_order_and_whole(boxes: int, cuts: int) -> None:
    q = knob.query(UPSTREAM, replace(knob.QUICK, boxes=boxes))
    at = knob.placed(q, boxes, cuts)
    assert list(at) == ["a", *knob.nodes_of(cuts)]
    placed = [box for of in at.values() for box in of]
    assert sorted(placed) == sorted(box.id for box in q.graph.boxes)
    assert [box for box in placed if box.startswith("in")] == [f"in{number}" for number in range(boxes)]
    pieces = [sum(box.startswith("in") for box in of) for name, of in at.items() if name != "a"]
    assert max(pieces) - min(pieces) <= 1
    victim = knob.nodes_of(cuts)[cuts // 2]
    assert knob.fragment_of(boxes, cuts) == f"q/{at[victim][0]}"


def test_every_number_passes_the_chain_once() -> None:
    rows = workload.rows_of(0, 300, 5, rate=100, groups=1)
    found = [
        (1, each)
        for each in collect(knob.query(UPSTREAM, replace(knob.QUICK, boxes=4)), rows=rows)["out"].to_batches()
    ]
    assert knob.account_of(found, 300).example == ""
    # Of the last window each row has its end; by this clock they come at once.
    assert min(late_s for _, late_s in knob.lateness(found, 1)) < 0


@pytest.mark.parametrize(
    ("numbers", "missing", "doubled", "wrong"),
    [
        ([0, 1, 2], 0, 0, 0),
        ([0, 2], 1, 0, 0),
        ([0, 1, 1, 1, 2], 0, 2, 0),
        ([0, 1, 2, 3], 0, 0, 1),
        ([], 3, 0, 0),
    ],
)
def test_numbers_are_accounted_for(numbers: Sequence[int], missing: int, doubled: int, wrong: int) -> None:
    found = knob.account_of([(1, pa.record_batch({"n": pa.array(numbers, pa.int64())}))], 3)
    assert (found.missing, found.doubled, found.wrong) == (missing, doubled, wrong)
    assert bool(found.example) == bool(missing or doubled or wrong)


def test_lateness_is_that_of_the_latest_row() -> None:
    ends = pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC"))
    [(at_ns, late_s)] = knob.lateness([(2_500_000_000, pa.record_batch({"window_end": ends}))], 0)
    assert (at_ns, late_s) == (2_500_000_000, pytest.approx(1.5))


def test_the_knob_gives_its_table_and_curve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    def run(setting: Any, sizes: knob.Sizes) -> dict[str, Any]:
        found: dict[str, Any] = {"cpu_us": 10.0 * setting["cuts"], "between_bytes": 5.0, "kept_bytes": 1024}
        found |= {"doubled": 0, "published": 10}
        if setting["method"] != ALONE.key:
            again = None if setting["method"] == "active_standby" else 80
            found |= {"noticed_s": 0.01, "taken_s": 0.02, "held_up_s": 0.3 / setting["cuts"]}
            found |= {"again_rows": again, "again_boxes": again and again * 8 // setting["cuts"]}
        return found

    monkeypatch.setattr(knob, "run", run)
    found = knob.measure(knob.FULL, Sheet(knob.NAME, tmp_path, knob.asked_of(knob.FULL)))
    text = knob.COMMAND.write(found, tmp_path)
    lines = lines_of(text)
    assert [(line[0], line[1]) for line in lines] == [
        ("alone", "1"),
        *(("upstream backup", cuts) for cuts in "1248"),
        ("active standby", "1"),
    ]
    assert lines[2][-4:] == ["150", "80", "320", "0"]
    assert "<svg" in (tmp_path / "recovery-knob.svg").read_text()


# --- failures of others ---------------------------------------------------------------------------------


def test_the_published_failures_come_in_their_proportions() -> None:
    sizes = replace(chaos.FULL, every_s=10.0, times=3)
    kill, fail = (chaos.SCENARIOS[key].faults(sizes, 0) for key in ("kill-4", "fail-2"))
    begins = [each.at_s - chaos.WARM_S for each in kill if each.what == "kill"]
    assert begins == [0, 10, 20]
    assert all(len(each.workers) == len(set(each.workers)) == 4 for each in kill)
    away = [
        (first.at_s - chaos.WARM_S, later.at_s - first.at_s)
        for first, later in zip(fail[::2], fail[1::2], strict=True)
    ]
    assert away == [(0, 10), (20, 10), (40, 10)]
    assert [each.what for each in fail[:2]] == ["kill", "start"]


def test_workers_are_struck_by_chance_and_the_same_for_all_methods() -> None:
    scenario = chaos.SCENARIOS["kill-2"]
    assert scenario.faults(chaos.FULL, 1) == scenario.faults(chaos.FULL, 1)
    assert len({each.workers for number in range(5) for each in scenario.faults(chaos.FULL, number)}) > 5


def test_delay_throughput_and_catching_up() -> None:
    def window(second: float, late_s: float) -> HaWindow:
        return HaWindow(second + late_s, 10, 0, 0, 0, second)

    usual = [window(tenth / 10, 0.01) for tenth in range(100) if not 40 <= tenth < 60]
    stalled = [window(tenth / 10, 6.25 - tenth / 10) for tenth in range(40, 60)]
    found = chaos.figures([*usual, *stalled], [4.0, 8.0], 10.0, 600, 100)
    assert (found["before_p50_s"], found["before_p99_s"]) == pytest.approx((0.01, 0.01))
    assert found["caught_up_s"] == [pytest.approx(2.25), 0.0]
    assert found["unfinished"] == 0
    struck_again = chaos.figures([*usual, *stalled], [4.0, 5.0], 10.0, 600, 100)
    assert struck_again["caught_up_s"] == [pytest.approx(2.25), pytest.approx(1.25)]
    assert struck_again["unfinished"] == 1
    assert found["worst_s"] == pytest.approx(2.25)
    assert found["throughput"] == pytest.approx(1.0, abs=0.02)
    assert found["worst_throughput"] == 0.0
    assert len(found["curve"]) == 100
    assert found["curve"][45][1:] == (None, 0)
    assert found["curve"][62][2] == 200 + 10


def test_failures_give_their_table_and_curves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    windows = [HaWindow(tenth / 10 + 0.01, 10, 0, 0, 0, tenth / 10) for tenth in range(100)]

    def run(setting: Any, sizes: chaos.Sizes, round: int) -> dict[str, Any]:
        gap = setting["method"] == "amnesia"
        found = chaos.figures(windows, [4.0], 10.0, 600, 100)
        return {"missing": 7 * gap, "doubled": 0, "lost_unknown": gap, **found}

    monkeypatch.setattr(chaos, "run", run)
    sizes = replace(chaos.FULL, rounds=2)
    sheet = Sheet(chaos.NAME, tmp_path, chaos.asked_of(sizes))
    scenarios = [chaos.SCENARIOS[key] for key in ("kill-1", "pause-1")]
    found = chaos.measure(sizes, scenarios, [ACTIVE, AMNESIA], sheet)
    assert [len(row["runs"]) for row in found["rows"]] == [2] * 4
    lines = lines_of(chaos.COMMAND.write(found, tmp_path))
    assert [line[:2] for line in lines[:2]] == [["kill-1", "active standby"], ["kill-1", "amnesia"]]
    assert lines[1][-3:] == ["0 of 2", "7, not all counted", "0"]
    assert "<svg" in (tmp_path / "recovery-chaos.svg").read_text()


@pytest.mark.parametrize("of", [table, kills, knob, chaos], ids=lambda of: of.NAME)
def test_what_is_stopped_before_its_first_run_says_so(of: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    methods = () if of is knob else ([AMNESIA],)
    asked = ([chaos.SCENARIOS["kill-1"]], *methods) if of is chaos else methods
    sheet = Sheet(of.NAME, tmp_path, of.asked_of(of.QUICK), budget_s=0.0)
    text = of.COMMAND.write(of.measure(of.QUICK, *asked, sheet), tmp_path)
    assert "Stopped by the budget of 0 s" in text
    assert lines_of(text) == []


@pytest.mark.parametrize("of", [table, kills, knob, chaos], ids=lambda of: of.NAME)
def test_a_command_does_what_its_options_ask_for(
    of: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", [of.NAME, "--quick", "--budget", "0s", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        of.main()
    assert ended.value.code == 0
    made = capsys.readouterr().out
    assert "Stopped by the budget of 0 s" in made
    assert (tmp_path / f"{of.NAME}.md").read_text() == made
    monkeypatch.setattr(sys, "argv", [of.NAME, "--docs", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        of.main()
    assert (ended.value.code, capsys.readouterr().out) == (0, made)


@pytest.mark.parametrize(
    ("of", "option", "given"),
    [
        (table, "--methods", "luck"),
        (table, "--budget", "soon"),
        (kills, "--keys", "many"),
        (knob, "--cuts", "9"),
        (chaos, "--scenarios", "flood"),
    ],
    ids=lambda each: getattr(each, "NAME", each),
)
def test_a_command_says_what_it_cannot_do(
    of: Any,
    option: str,
    given: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [of.NAME, option, given, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        of.main()
    assert ended.value.code == 2
    assert given in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- real processes -------------------------------------------------------------------------------------


def fine(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The only run of each setting."""
    assert troubles(found) == []
    assert found["stopped"] == ""
    return [{**row, **row["runs"][0]} for row in found["rows"]]


@pytest.mark.system
def test_a_small_table(tmp_path: Path) -> None:
    sizes = replace(table.QUICK, seconds=0.5, wait="100ms")
    sheet = Sheet(table.NAME, tmp_path, table.asked_of(sizes))
    alone, passive = fine(table.measure(sizes, [PASSIVE], sheet))
    assert "total_s" not in alone
    assert 0 < passive["noticed_s"] <= passive["taken_s"] < passive["total_s"]
    assert 0 <= passive["again_rows"] <= passive["published"]
    assert passive["cpu_us"] > 0
    if passive["sent_bytes"] is not None:  # This kernel tells of sockets.
        assert passive["sent_bytes"] > 0
        assert passive["input_bytes"] > 0


@pytest.mark.system
def test_one_kill_amid_state(tmp_path: Path) -> None:
    sheet = Sheet(kills.NAME, tmp_path, kills.asked_of(kills.QUICK))
    [found] = fine(kills.measure(kills.QUICK, [PASSIVE], sheet))
    assert found["total_s"] > 0
    assert (found["missing"], found["doubled"]) == (0, 0)


@pytest.mark.system
def test_small_kills(tmp_path: Path) -> None:
    sheet = Sheet(kills.NAME, tmp_path, kills.asked_of(kills.QUICK))
    found = fine(kills.measure(kills.QUICK, [ACTIVE, UPSTREAM, AMNESIA], sheet))
    assert [each["method"] for each in found] == ["active_standby", "upstream_backup", "amnesia"]
    for each in found:
        assert each["total_s"] > 0
        assert (each["again_rows"] is None) == (each["method"] == "active_standby")


@pytest.mark.system
def test_a_small_knob(tmp_path: Path) -> None:
    sheet = Sheet(knob.NAME, tmp_path, knob.asked_of(knob.QUICK))
    found = fine(knob.measure(knob.QUICK, sheet))
    assert [each["cuts"] for each in found] == [1, 1, 2, 1]
    assert ["held_up_s" in each for each in found] == [False, True, True, True]
    upstream = [each for each in found if each["method"] == "upstream_backup"]
    assert [each["again_boxes"] * each["cuts"] for each in upstream] == [
        2 * each["again_rows"] for each in upstream
    ]


@pytest.mark.system
@pytest.mark.parametrize(
    ("scenario", "method"),
    [
        ("kill-1", PASSIVE),
        ("fail-2", ACTIVE),
        ("kill-2", UPSTREAM),
        ("kill-4", AMNESIA),
        ("pause-1", ACTIVE),
    ],
    ids=lambda each: each if isinstance(each, str) else each.key,
)
def test_small_failures(tmp_path: Path, scenario: str, method: Method) -> None:
    sheet = Sheet(chaos.NAME, tmp_path, chaos.asked_of(chaos.QUICK))
    [found] = fine(chaos.measure(chaos.QUICK, [chaos.SCENARIOS[scenario]], [method], sheet))
    assert len(found["caught_up_s"]) == len(found["struck_s"]) == chaos.QUICK.times
    assert found["before_p50_s"] > 0
