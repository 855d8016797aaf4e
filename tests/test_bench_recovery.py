"""What the benchmarks of recovery stand on: runs that are stopped and go on, accounts that notice, losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.recovery import losses, workload
from bench.recovery.methods import ALONE, Method, asked_for, known_methods
from bench.recovery.sheet import Sheet, spread, troubles
from medusa.apps.workloads.demos.ha_outcome import HaAccount
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
