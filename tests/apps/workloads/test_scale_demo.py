"""A box that scales by itself: what is shown follows from what was seen; real nodes do it and stay exact."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from medusa.apps.workloads.scaling import scale_demo, scale_query
from medusa.apps.workloads.scaling.scale_acts import PartsSample, ScaleAct, ScaleActs, parts_of
from medusa.apps.workloads.scaling.scale_load import TICK_S, TICKS_PER_S, ScaleLoad
from medusa.apps.workloads.scaling.scale_outcome import ScaleOutcome
from medusa.apps.workloads.scaling.scale_query import GATE, SPARES, TOLL, RowCost, expected, query
from medusa.apps.workloads.scaling.scale_screen import NodeNow, ScaleProgress
from medusa.cli.main import main
from medusa.runtime.embedded.embedded_run import collect
from medusa.runtime.node.configuration import load_settings

DEADLINE_S = 300
LOAD = ScaleLoad(seconds=10.0, peak=400)
"""It rises from 1.5 to 4.5 s, and falls from 6.5 to 7 s."""

ALL = 11 * TICKS_PER_S


@cache
def cars() -> pa.Table:
    return LOAD.traffic(0, ALL)


@cache
def result() -> pa.Table:
    return expected(cars())


def done(kind: str, at_s: float, what: str = "", *, took_s: float = 0.4, outcome: str = "done") -> ScaleAct:
    what = f"{kind} {what or 'tolls'}"
    return ScaleAct(began_s=at_s, ended_s=at_s + took_s, what=what, why="work", outcome=outcome)


SPLIT, THERE, BACK, MERGE = (
    done("split", 3.0),
    done("move", 4.5, "tolls-2 from toll to spare1"),
    done("move", 8.0, "tolls-2 from spare1 to toll"),
    done("merge", 9.1),
)
PARTS = [
    PartsSample(0.5, {TOLL: 1}),
    PartsSample(3.5, {TOLL: 2}),
    PartsSample(5.0, {TOLL: 1, "spare1": 1}),
    PartsSample(8.5, {TOLL: 2}),
    PartsSample(9.5, {TOLL: 1}),
]


def outcome(rows: pa.Table | None = None, *, late_s: float = 0.05, **changes: Any) -> ScaleOutcome:
    """Of a run in which all went well, but for ``changes``."""
    rows = result() if rows is None else rows
    ends_us = rows["window_end"].cast("int64").to_pylist()
    known: dict[str, Any] = {
        "load": LOAD,
        "cost": RowCost(cpu_us=1000),
        "rows": rows,
        "at_s": [end_us / 1e6 + late_s for end_us in ends_us],
        "expected": result(),
        "acts": [SPLIT, THERE, BACK, MERGE],
        "said": 4,
        "parts": PARTS,
        "published": cars().num_rows,
        "seconds": 11.2,
    }
    return ScaleOutcome(**(known | changes))


def failed(of: ScaleOutcome) -> list[str]:
    return [each.what for each in of.checks() if not each.held]


# --- the load and the query ---------------------------------------------------------------------------


def test_the_load_rises_tenfold_and_falls_and_stays_low() -> None:
    assert LOAD.rises_s == pytest.approx((1.5, 4.5))
    assert LOAD.falls_s == pytest.approx((6.5, 7.0))
    rates = [LOAD.rate(at_s) for at_s in (0.0, 1.5, 3.0, 4.5, 6.5, 6.75, 7.0, 10.0, 100.0)]
    assert rates == pytest.approx([40, 40, 220, 400, 400, 220, 40, 40, 40])
    # 1.5 s at 40, 3 s at 220 on average, 2 s at 400, half a second at 220, and 40 from then on.
    assert LOAD.rows(1.5) == 60
    assert LOAD.rows(4.5) == 60 + 660
    assert LOAD.rows(7.0) == 60 + 660 + 800 + 110
    assert LOAD.rows(107.0) == LOAD.rows(7.0) + 4000


def test_the_same_cars_come_in_whatever_pieces() -> None:
    whole = cars()
    for step in (1, 7, 100):
        pieces = [LOAD.traffic(at, min(at + step, ALL)) for at in range(0, ALL, step)]
        assert pa.concat_tables(pieces).equals(whole)
    assert whole["n"].to_pylist() == list(range(LOAD.rows(ALL * TICK_S)))
    times = whole["ts"].cast("int64").to_pylist()
    assert times == sorted(times)
    per_second = [sum(int(at_us // 1e6) == second for at_us in times) for second in range(11)]
    assert per_second == [LOAD.rows(second + 1.0) - LOAD.rows(float(second)) for second in range(11)]


def test_what_a_car_costs_doesnt_change_the_answer_and_is_spent() -> None:
    some = cars().slice(0, 40)
    before_ns = time.process_time_ns()
    assert collect(query(RowCost(cpu_us=500)), cars=some)["out"].equals(expected(some))
    assert time.process_time_ns() - before_ns >= 40 * 500_000
    before_ns = time.monotonic_ns()
    assert collect(query(RowCost(wait_us=500)), cars=some)["out"].equals(expected(some))
    assert time.monotonic_ns() - before_ns >= 40 * 500_000


def test_tolls_are_those_that_another_engine_finds() -> None:
    some = replace(LOAD, peak=1200).traffic(3 * TICKS_PER_S, 6 * TICKS_PER_S)
    database = duckdb.connect()
    database.register("cars_there", some)
    wanted = database.sql("""
        select epoch_us(ts) // 200000 * 200000 as start_us, segment,
            count(*) as cars, min(n) as first, max(n) as last, sum(n)::bigint as total,
            case when sum(speed) < 40 * count(*) and count(*) > 3 then 2 * (count(*) - 3) ** 2 else 0 end
        from cars_there group by all order by all
        """).fetchall()
    rows = expected(some).to_pylist()
    names = ("segment", "cars", "first", "last", "total", "toll")
    found = [
        (round(each["window_start"].timestamp() * 1e6), *(each[name] for name in names)) for each in rows
    ]
    assert sorted(found) == wanted
    assert any(each["toll"] for each in rows)
    assert not all(each["toll"] for each in rows)


def test_spare_nodes_stand_in_peers_and_only_who_coordinates_scales(tmp_path: Path) -> None:
    addresses = {name: f"tcp://127.0.0.1:{port}" for port, name in enumerate((GATE, TOLL, *SPARES), 5001)}
    read = {}
    for name in addresses:
        file = tmp_path / f"{name}.toml"
        file.write_text(scale_demo.node_config(name, addresses))
        read[name] = load_settings(file)
    for name, config in read.items():
        assert set(config.peers) == set(addresses) - {name}
        assert (config.scale is not None) is (name == GATE)
    scale = read[GATE].scale
    assert scale is not None
    assert scale.nodes == (TOLL, *SPARES)


# --- what nodes order ---------------------------------------------------------------------------------


def said(what: str = "", ago_s: float = 0.0, outcome: str = "", acts: int = 0) -> Mapping[str, Any]:
    last_us = round(ago_s * 1e6) if what else None
    return {"acts": acts, "last": what, "last_us": last_us, "why": "work", "outcome": outcome}


BEGAN_S = pytest.approx(1.7)


def test_orders_are_told_when_they_begin_and_when_they_end() -> None:
    acts = ScaleActs()
    assert not acts.take(1.0, said())
    [began] = acts.take(2.0, said("split tolls in 2 at toll", 0.3))
    assert (began.kind, began.began_s, began.ended_s, began.done) == (
        "split",
        pytest.approx(1.7),
        None,
        False,
    )
    assert not acts.take(2.1, said("split tolls in 2 at toll", 0.4))
    [ended] = acts.take(3.0, said("split tolls in 2 at toll", 1.32, "done", 1))
    assert (ended.began_s, ended.ended_s, ended.done) == (BEGAN_S, 3.0, True)
    assert not acts.take(3.1, said("split tolls in 2 at toll", 1.4, "done", 1))
    # Two of the same words, seen at once when the second has ended already.
    [again] = acts.take(9.0, said("split tolls in 2 at toll", 2.0, "refused: busy", 1))
    assert (again.began_s, again.ended_s, again.done) == (pytest.approx(7.0), 9.0, False)
    assert (len(acts.seen), acts.said) == (2, 1)
    assert again.seconds == {7, 8, 9}
    assert began.seconds == {1}


def test_parts_are_the_boxes_that_do_the_work_of_this_query() -> None:
    def fragment(query: str, **kinds: str) -> dict[str, Any]:
        return {"query": query, "boxes": {name: {"kind": kind} for name, kind in kinds.items()}}

    split = [
        fragment("segments", a="source", b="key_router", c="sink"),
        fragment("segments", a="source", b="aggregate", c="sink"),
        fragment("other", b="aggregate"),
    ]
    statuses = [
        {"node": "toll", "fragments": split},
        {"node": "spare1", "fragments": [split[1], split[1]]},
        {"node": "gate", "fragments": [fragment("segments", a="source", b="sink")]},
    ]
    assert parts_of("segments", statuses) == {"toll": 1, "spare1": 2}
    assert PartsSample(0.0, parts_of("segments", statuses)).text == "toll, spare1 (2 parts)"
    assert PartsSample(0.0, {}).text == "nowhere"


# --- checks -------------------------------------------------------------------------------------------


def test_a_good_run_is_held() -> None:
    good = outcome()
    assert good.fine
    assert failed(good) == []
    assert good.scaling_seconds == {3, 4, 8, 9}
    assert good.nodes_most == 2
    told = json.loads(json.dumps(good.to_json()))
    assert sum(each["offered"] for each in told["by_second"]) == cars().num_rows
    assert sum(each["counted"] for each in told["by_second"]) == cars().num_rows
    assert [each["nodes"] for each in told["by_second"]] == [1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1]
    assert {each["second"] for each in told["by_second"] if each["scales"]} == good.scaling_seconds


def without(rows: pa.Table, place: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, place), rows.slice(place + 1)])


def changed(rows: pa.Table, place: int, **values: int) -> pa.Table:
    found = rows.to_pylist()
    found[place] |= values
    return pa.Table.from_pylist(found, rows.schema)


def swapped(rows: pa.Table, place: int) -> pa.Table:
    order = list(range(rows.num_rows))
    order[place], order[place + 1] = order[place + 1], order[place]
    return rows.take(order)


EQUAL, ONCE = "the result is that of the query in one program", "no car is lost, and none is counted twice"


def test_rows_that_are_lost_doubled_or_wrong_fail_it() -> None:
    good, at = result(), 200
    lost = outcome(without(good, at))
    assert not lost.fine
    assert failed(lost)[0].startswith(EQUAL)
    assert failed(lost)[1] == ONCE
    number = good["first"][at].as_py()
    shown = next(each.shown for each in lost.checks() if each.what == ONCE)
    assert re.search(f"[1-9] missing, 0 doubled, 0 wrong .*row {number:,} is missing", shown)
    doubled = outcome(pa.concat_tables([good.slice(0, at + 1), good.slice(at)]))
    assert ONCE in failed(doubled)
    assert doubled.account.doubled == good["cars"][at].as_py()
    miscounted = outcome(changed(good, at, cars=good["cars"][at].as_py() + 1))
    assert ONCE in failed(miscounted)
    assert miscounted.account.wrong == 1
    # Of these every car is there once: only the comparison sees them.
    for wrong in (swapped(good, at), changed(good, at, toll=good["toll"][at].as_py() + 1)):
        assert not outcome(wrong).fine
        [what] = failed(outcome(wrong))
        assert what.startswith(EQUAL)


@pytest.mark.parametrize(
    ("changes", "what", "exact"),
    [
        ({"acts": []}, "split before the load falls", True),
        ({"acts": [replace(SPLIT, outcome="refused"), BACK, MERGE]}, "split before the load falls", True),
        ({"acts": [done("split", 6.6), MERGE]}, "split before the load falls", True),
        ({"parts": [PARTS[0], PARTS[1], PARTS[4]]}, "at spare nodes", True),
        ({"parts": []}, "at spare nodes", True),
        ({"acts": [SPLIT, THERE]}, "merged after the load has begun to fall", True),
        ({"acts": [SPLIT, replace(MERGE, outcome="")]}, "merged after the load has begun to fall", True),
        ({"acts": [SPLIT, done("merge", 6.4)]}, "merged after the load has begun to fall", True),
        ({"acts": [done("split", 0.7), MERGE]}, "begins while the load rises", False),
        ({"acts": [done("split", 5.0), MERGE]}, "begins while the load rises", False),
        ({"acts": [SPLIT, done("merge", 5.5), MERGE]}, "nothing is merged before", False),
        ({"parts": PARTS[:-1]}, "one again at the end", False),
        ({"late_s": 0.26}, "at most 250 ms late", False),
        ({"acts": [], "late_s": 0.0}, "at most 250 ms late", False),
    ],
)
def test_each_check_notices_what_it_is_about(changes: Mapping[str, Any], what: str, exact: bool) -> None:
    bad = outcome(**changes)
    [found] = [each for each in bad.checks() if what in each.what]
    assert not found.held
    assert found.exact is exact
    if exact:
        assert not bad.fine


def test_only_results_that_came_in_seconds_of_scaling_count_for_them() -> None:
    good = outcome()
    # Nothing is under way in second 6.
    calm = [at_s + 1.0 * (5.2 < at_s < 5.9) for at_s in good.at_s]
    assert failed(replace(good, at_s=calm)) == []
    late = [at_s + 1.0 * (3.2 < at_s < 3.9) for at_s in good.at_s]
    assert [what for what in failed(replace(good, at_s=late)) if "250 ms" in what]
    shown = next(each.shown for each in replace(good, at_s=late).checks() if "250 ms" in each.what)
    assert "in 4 seconds" in shown


# --- what is shown ------------------------------------------------------------------------------------


def shown(path: Path, *options: str) -> Any:
    return CliRunner().invoke(main, ["demo", "scale", "--out", str(path / "scale.svg"), *options])


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scale_demo, "ran", lambda options, screen: outcome(late_s=0.4, said=5))
    monkeypatch.setattr(scale_demo, "draw", lambda outcome, path: "not drawn")
    found = shown(tmp_path)
    assert found.exit_code == 0, found.output
    assert found.output.count("held      ") == 8
    assert "not held  in the seconds of scaling" in found.output
    assert "(may differ on a busy machine)" in found.output
    assert "carried out 5 orders: not all of them were seen" in found.output
    told = json.loads(shown(tmp_path, "--json").stdout)
    assert (told["fine"], told["plot"], len(told["acts"])) == (True, "not drawn", 4)


def test_progress_is_a_line_or_a_table() -> None:
    progress = ScaleProgress(60.0)
    progress.offers(12.5, 480.0, 3_000)
    progress.came(100, 0.05)
    progress.came(20, 0.25)
    progress.acted("at 12.0 s: split tolls in 2 at toll")
    progress.waits_for("no answer from spare1")
    progress.look({"toll": NodeNow(2, 0.8), "spare1": NodeNow(1, None), "spare2": NodeNow(0, 0.01)})
    assert progress.line() == (
        " 12.5 of 60 s | 480 cars/s | 120 results, the newest 250 ms late | 2 nodes | "
        "at 12.0 s: split tolls in 2 at toll; waits: no answer from spare1"
    )
    progress.waits_for("")
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(progress.drawn())
    table = console.export_text()
    assert "waits" not in table
    rows = [line.split() for line in table.splitlines() if re.search(r"│ (toll|spare\d) ", line)]
    assert [row[1:6:2] for row in rows] == [
        ["toll", "2", "0.80"],
        ["spare1", "1", "-"],
        ["spare2", "-", "0.01"],
    ]


def test_the_exit_code_is_1_where_a_row_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scale_demo, "ran", lambda options, screen: outcome(without(result(), 5)))
    monkeypatch.setattr(scale_demo, "draw", lambda outcome, path: "not drawn")
    found = shown(tmp_path)
    assert found.exit_code == 1
    assert f"not held  {ONCE}\n" in found.output


@pytest.mark.parametrize("acts", [[SPLIT, THERE, BACK, MERGE], [replace(SPLIT, outcome="refused")], []])
def test_the_picture_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, acts: Sequence[ScaleAct]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(scale_demo, "ran", lambda options, screen: outcome(acts=acts))
    shown(tmp_path)
    assert "<svg" in (tmp_path / "scale.svg").read_text()


def test_without_matplotlib_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scale_demo, "ran", lambda options, screen: outcome())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = shown(tmp_path)
    assert found.exit_code == 0, found.output
    assert "medusa-streams[plot]" in found.output


def test_a_plot_of_another_kind_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_demo, "ran", lambda options, screen: pytest.fail("it ran"))
    found = CliRunner().invoke(main, ["demo", "scale", "--out", "scale.pdf"])
    assert found.exit_code == 1
    assert "scale.pdf: a plot is a .png or a .svg" in found.output


# --- real processes -----------------------------------------------------------------------------------


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "medusa.cli.main", "demo", "scale", *options]


@pytest.mark.system
def test_real_nodes_split_and_merge_by_themselves_and_the_result_is_that_of_one(tmp_path: Path) -> None:
    asked = ("--seconds", "25", "--json", "--out", str(tmp_path / "scale.svg"))
    ran = subprocess.run(
        command(*asked),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    must = {each["what"]: each["held"] for each in told["checks"] if each["exact"]}
    assert len(must) == 5
    assert all(must.values())
    assert told["nodes_most"] > 1
    assert {"split", "move", "merge"} <= {each["what"].split()[0] for each in told["acts"]}
    assert sum(each["counted"] for each in told["by_second"]) == told["published"] > 7_000
    assert "<svg" in (tmp_path / "scale.svg").read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["scale.svg"]


@pytest.mark.system
def test_an_interruption_leaves_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    running = subprocess.Popen(
        command("--seconds", "600"),
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
            if re.search(r" [1-9]\d* results", line):
                break
        assert len(pids) == 2 + len(scale_query.SPARES)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(DEADLINE_S) == 130
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert list(folder.iterdir()) == []
    finally:
        for pid in [running.pid, *pids]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.communicate()
