"""The benchmarks of recovery: runs that are stopped and go on, accounts that notice, small ones of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.recovery import chaos, kills, knob, losses, table, workload
from bench.recovery.methods import ALONE, Method, asked_for, known_methods
from bench.recovery.sheet import Sheet, show, spread, troubles
from medusa.apps.workloads.demos.ha_outcome import HaAccount, HaWindow
from medusa.runtime.embedded.embedded_run import collect

METHODS = known_methods()
ACTIVE, PASSIVE, UPSTREAM, AMNESIA = (
    METHODS[key] for key in ("active_standby", "passive_standby", "upstream_backup", "amnesia")
)


# --- runs on disk -------------------------------------------------------------------------------------

ASKED = {"wait": "2s"}
SETTINGS = [{"method": "x", "rate": 1}, {"method": "y", "rate": 1}]


def made(setting: Any) -> dict[str, Any]:
    return {"figure": 1.0, "of": setting["method"]}


def words(made: dict[str, Any]) -> str:
    return made["of"]


def runs(found: dict[str, Any]) -> dict[str, int]:
    return {row["method"]: len(row["runs"]) for row in found["rows"]}


def test_settings_are_run_in_turns_and_on_disk_after_each(tmp_path: Path) -> None:
    sheet, seen = Sheet("s", tmp_path, ASKED), []

    def do(setting: Any) -> dict[str, Any]:
        if seen:
            there = json.loads((tmp_path / "s.json").read_text())
            assert sum(runs(there).values()) == len(seen)
        seen.append(setting["method"])
        return made(setting)

    found = sheet.run(SETTINGS, 2, do, words)
    assert seen == ["x", "y", "x", "y"]
    assert found["stopped"] == ""
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


def test_no_run_begins_that_would_end_behind_the_budget(tmp_path: Path) -> None:
    sheet = Sheet("s", tmp_path, ASKED, budget_s=0.0)

    found = sheet.run(SETTINGS, 2, made, words)
    assert found["stopped"] == "the budget of 0 s: 4 of 4 runs weren't made"
    assert runs(found) == {"x": 0, "y": 0}


def test_what_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    def interrupted(setting: Any) -> dict[str, Any]:
        if setting["method"] == "y":
            raise KeyboardInterrupt
        return made(setting)

    assert runs(Sheet("s", tmp_path, ASKED).run(SETTINGS, 2, interrupted, words)) == {"x": 1, "y": 0}
    again: list[str] = []

    def do(setting: Any) -> dict[str, Any]:
        again.append(setting["method"])
        return made(setting)

    found = Sheet("s", tmp_path, ASKED, resume=True).run(SETTINGS, 2, do, words)
    assert again == ["y", "x", "y"]
    assert runs(found) == {"x": 2, "y": 2}
    assert found["stopped"] == ""


def test_runs_of_another_question_arent_gone_on_with(tmp_path: Path) -> None:
    Sheet("s", tmp_path, ASKED).run(SETTINGS, 1, made, words)
    with pytest.raises(ValueError, match=r"is of asked .*2s.*, and this would be of .*1s.*without --resume"):
        Sheet("s", tmp_path, {"wait": "1s"}, resume=True)
    found = json.loads((tmp_path / "s.json").read_text())
    (tmp_path / "s.json").write_text(json.dumps({**found, "commit": "0000000"}))
    with pytest.raises(ValueError, match="is of commit 0000000"):
        Sheet("s", tmp_path, ASKED, resume=True)
    assert runs(Sheet("s", tmp_path, ASKED).run(SETTINGS, 1, made, words)) == {"x": 1, "y": 1}


def test_a_broken_promise_is_no_figure_and_the_others_go_on(tmp_path: Path) -> None:
    def do(setting: Any) -> dict[str, Any]:
        assert setting["method"] != "x", "3 missing"
        return made(setting)

    found = Sheet("s", tmp_path, ASKED).run(SETTINGS, 1, do, words)
    assert [each["runs"] for each in found["rows"]] == [
        [{"trouble": found["rows"][0]["runs"][0]["trouble"]}],
        [{"figure": 1.0, "of": "y"}],
    ]
    assert troubles(found)[1].startswith("- not held (method x, rate 1): 3 missing")


def test_spread_is_median_and_both_ends() -> None:
    assert spread([]) == "-"
    assert spread([0.1, 0.3, 0.2], 1e3) == "200 (100 to 300)"
    assert spread([0.2, 0.2], 1e3) == "200"


# --- what a run has to hold -----------------------------------------------------------------------------


def account(*, missing: int = 0, doubled: int = 0, wrong: int = 0) -> HaAccount:
    return HaAccount(100, missing, doubled, wrong, "an example")


@pytest.mark.parametrize("method", [ACTIVE, PASSIVE, UPSTREAM, AMNESIA, ALONE], ids=lambda each: each.key)
@pytest.mark.parametrize(
    ("found", "lost", "held"),
    [
        (account(), 0, "active_standby passive_standby upstream_backup amnesia alone"),
        (account(doubled=2), 0, "upstream_backup"),
        (account(missing=2), 2, "amnesia"),
        (account(missing=2), 1, ""),
        (account(wrong=1), 0, ""),
        (account(missing=2, doubled=1), 2, ""),
    ],
    ids=["whole", "again", "gap", "miscounted", "wrong", "both"],
)
def test_each_method_is_held_to_its_promise(method: Method, found: HaAccount, lost: int, held: str) -> None:
    assert (method.broken(found, lost) == "") == (method.key in held.split())


def test_a_gap_that_nobody_could_count_isnt_exact() -> None:
    assert "and more" in AMNESIA.broken(account(missing=2), 2, told_unknown=True)


def test_unknown_methods_are_refused_with_those_that_there_are() -> None:
    assert asked_for("amnesia,active_standby") == [AMNESIA, ACTIVE]
    with pytest.raises(ValueError, match="--methods: magic is none of active_standby"):
        asked_for("magic,amnesia")
    with pytest.raises(ValueError, match="none is named"):
        asked_for("")


SHAPE = workload.Shape(rate=1_000, window_ms=10, groups=2, keys=7, held_ms=40)
PUBLISHED = 95


def tables() -> dict[str, pa.Table]:
    rows = workload.rows_of(0, PUBLISHED, 5, rate=SHAPE.rate, groups=SHAPE.groups, keys=SHAPE.keys)
    return collect(workload.query(ACTIVE, SHAPE), rows=rows)


def batches(of: pa.Table) -> list[tuple[int, pa.RecordBatch]]:
    return [(1, each) for each in of.to_batches()]


def test_what_the_query_gives_of_its_rows_is_whole() -> None:
    found = tables()
    windows = workload.windows_of(batches(found["out"]), 0)
    assert len(windows) == 20
    assert workload.counts_of(windows, PUBLISHED, SHAPE.groups).example == ""
    assert workload.newest(batches(found["out"])) == PUBLISHED - 1
    assert workload.newest([]) == -1
    assert workload.held_of(batches(found["held"]), PUBLISHED, SHAPE, again=False) == ""


def changed(of: pa.Table, name: str) -> pa.Table:
    values = of[name].to_pylist()
    return of.set_column(of.column_names.index(name), name, pa.array([*values[:-1], values[-1] + 7]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.slice(1), "20 rows came, 20 of them unlike, of 21"),
        (lambda held: pa.concat_tables([held, held.slice(0, 1)]), "22 rows came, 21 of them unlike"),
        (lambda held: changed(held, "total"), "1 keys differ"),
        (lambda held: changed(held, "rows"), "1 keys differ"),
        (lambda held: changed(held, "first"), "1 keys differ"),
    ],
    ids=["missing", "again", "total", "rows", "first"],
)
def test_rows_of_the_held_window_that_arent_right_are_noticed(
    change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    held = change(tables()["held"])
    found = workload.held_of(batches(held), PUBLISHED, SHAPE, again=False)
    assert said in found


def test_rows_that_come_again_are_right_where_they_may() -> None:
    held = tables()["held"]
    twice = batches(pa.concat_tables([held, held.slice(0, 3)]))
    assert workload.held_of(twice, PUBLISHED, SHAPE, again=True) == ""
    assert workload.held_of([], PUBLISHED, SHAPE, again=True) != ""


# --- a loss ---------------------------------------------------------------------------------------------


def test_lines_of_a_log_count_from_then_on_and_by_whole_words(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("2026-01-01 a info peer down peer=m\n")
    logs = losses.Logs({"a": path})
    assert not logs.has("peer down peer=m")
    with path.open("a") as log:
        log.write("2026-01-01 a info peer down peer=m2\n2026-01-01 a warning fragment taken over ")
        log.flush()
        assert not logs.has("peer down peer=m")
        assert logs.has("peer down peer=m2")
        assert not logs.has("fragment taken over fragment=q/passed")
        log.write("fragment=q/passed epoch=2\n")
        log.flush()
        assert logs.has("fragment taken over fragment=q/passed")


def test_the_first_row_that_the_lost_process_cant_have_had() -> None:
    def train(at_ns: int, *sent: int) -> tuple[int, pa.RecordBatch]:
        return at_ns, pa.record_batch({"sent": pa.array(sent, pa.int64())})

    came = [train(10, 5), train(30, 12, 19), train(40, 19, 21), train(50, 33)]
    assert losses.first_after(came, 20) == pytest.approx(20e-9)
    assert not losses.is_newer(came[:2], 20)


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
    text = table.write(table_of(monkeypatch, tmp_path), tmp_path)
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
    assert show(table.NAME, table.table, table.plot, tmp_path) == 2
    assert "run it without --docs first" in capsys.readouterr().err
    text = table.write(table_of(monkeypatch, tmp_path), tmp_path)
    capsys.readouterr()
    assert show(table.NAME, table.table, table.plot, tmp_path) == 1  # A promise was broken.
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
    text = kills.write(kills.measure(sizes, [PASSIVE, UPSTREAM, AMNESIA], sheet), tmp_path)
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
    q = knob.query(UPSTREAM, boxes)
    at = knob.placed(q, boxes, cuts)
    assert list(at) == ["a", *knob.nodes_of(cuts)]
    placed = [box for of in at.values() for box in of]
    assert sorted(placed) == sorted(box.id for box in q.graph.boxes)
    assert [box for box in placed if box.startswith("box")] == [f"box{number}" for number in range(boxes)]
    pieces = [sum(box.startswith("box") for box in of) for name, of in at.items() if name != "a"]
    assert max(pieces) - min(pieces) <= 1
    victim = knob.nodes_of(cuts)[cuts // 2]
    assert knob.fragment_of(boxes, cuts) == f"q/{at[victim][0]}"


def test_every_number_passes_the_chain_once() -> None:
    rows = workload.rows_of(0, 300, 5, rate=100, groups=1)
    found = batches(collect(knob.query(UPSTREAM, 4), rows=rows)["out"])
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
    text = knob.write(knob.measure(knob.FULL, Sheet(knob.NAME, tmp_path, knob.asked_of(knob.FULL))), tmp_path)
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
    lines = lines_of(chaos.write(found, tmp_path))
    assert [line[:2] for line in lines[:2]] == [["kill-1", "active standby"], ["kill-1", "amnesia"]]
    assert lines[1][-2:] == ["7, not all counted", "0"]
    assert "<svg" in (tmp_path / "recovery-chaos.svg").read_text()


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
def test_small_kills(tmp_path: Path) -> None:
    sheet = Sheet(kills.NAME, tmp_path, kills.asked_of(kills.QUICK))
    found = fine(kills.measure(kills.QUICK, [*METHODS.values()], sheet))
    assert {each["method"] for each in found} == set(METHODS)
    for each in found:
        assert each["total_s"] > 0
        assert (each["again_rows"] is None) == (each["method"] == "active_standby")


@pytest.mark.system
def test_a_small_knob(tmp_path: Path) -> None:
    sheet = Sheet(knob.NAME, tmp_path, knob.asked_of(knob.QUICK))
    found = fine(knob.measure(knob.QUICK, sheet))
    assert [each["cuts"] for each in found] == [1, 1, 2, 1]
    upstream = [each for each in found if each["method"] == "upstream_backup"]
    assert all(each["held_up_s"] > 0 for each in upstream)
    assert all(each["again_rows"] > 0 for each in upstream)


@pytest.mark.system
@pytest.mark.parametrize("scenario", chaos.SCENARIOS)
def test_small_failures(tmp_path: Path, scenario: str) -> None:
    sheet = Sheet(chaos.NAME, tmp_path, chaos.asked_of(chaos.QUICK))
    scenarios = [chaos.SCENARIOS[scenario]]
    found = fine(chaos.measure(chaos.QUICK, scenarios, [*METHODS.values()], sheet))
    assert {each["method"] for each in found} == set(METHODS)
    assert all(len(each["caught_up_s"]) == chaos.QUICK.times for each in found)
    assert np.isfinite([each["throughput"] for each in found]).all()
