"""The experiments of SEEP: accounts that notice, what is gone through, claims, tables, small real runs."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.recovery import workload
from bench.recovery.methods import ALONE
from bench.recovery.sheet import Sheet
from bench.seep import allocation, chain, keyed, overhead, parallel, recovery, threshold, words
from bench.seep.chain import SCHEMES
from bench.seep.command import EXPERIMENTS, main
from bench.seep.published import Claim
from bench.seep.scaled import Marks, vms
from medusa.apps.workloads.scaling import scale_demo, scale_query
from medusa.query.recovery import METHODS
from medusa.runtime.embedded.embedded_run import collect
from medusa.runtime.node.configuration import load_settings

# --- queries, rows and accounts ---------------------------------------------------------------------------

SHAPE = workload.Shape(rate=100, window_ms=10, groups=1, keys=30, held_ms=400)
SENTENCES = 95
Came = list[tuple[int, pa.RecordBatch]]


def came_of(table: pa.Table) -> Came:
    return [(1, each) for each in table.to_batches()]


def counted_words() -> tuple[pa.Table, dict[str, pa.Table]]:
    work = chain.words_work(SHAPE)
    rows = work.rows(0, SENTENCES, 5)
    return rows, collect(work.query(ALONE), rows=rows)


def test_a_sentence_is_140_bytes_of_20_words() -> None:
    rows, _ = counted_words()
    text = rows["sentence"].to_pylist()
    assert {len(each.encode()) for each in text} == {words.SENTENCE_BYTES} == {140}
    assert text[1].split() == [f"w{number % 30:05d}" for number in range(20, 40)]
    later = words.rows_of(40, 43, 5, rate=100, dictionary=30)
    assert later.equals(rows.slice(40, 3))
    with pytest.raises(ValueError, match="1 to 100,000 words"):
        words.rows_of(0, 1, 5, rate=100, dictionary=100_001)


def test_words_are_counted_as_by_hand() -> None:
    """By Python's own counter over each sentence's text."""
    rows, found = counted_words()
    wanted: dict[tuple[int, str], int] = collections.Counter()
    for number, sentence in enumerate(rows["sentence"].to_pylist()):
        for word in sentence.split():
            wanted[number * 10 // 400 * 400, word] += 1
    got = {
        (round(each["window_start"].timestamp() * 1e3), each["word"]): each["rows"]
        for each in found["held"].to_pylist()
    }
    assert got == wanted
    came = {name: came_of(table) for name, table in found.items()}
    assert chain.words_work(SHAPE).wrong(came, SENTENCES) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda came: {**came, "held": came_of(changed(came["held"], "rows"))}, "keys differ"),
        (lambda came: {**came, "held": [*came["held"], *came["held"]]}, "rows came"),
        (lambda came: {**came, "out": came["out"][:0]}, "1,900 missing"),
        (lambda came: {**came, "out": [*came["out"], *came["out"]]}, "1,900 doubled"),
    ],
    ids=["count", "again", "missing", "doubled"],
)
def test_words_that_arent_counted_once_are_noticed(
    change: Callable[[dict[str, Came]], dict[str, Came]], said: str
) -> None:
    _, found = counted_words()
    came = {name: came_of(table) for name, table in found.items()}
    assert said in chain.words_work(SHAPE).wrong(change(came), SENTENCES)


def changed(came: Came, name: str) -> pa.Table:
    of = pa.Table.from_batches([batch for _, batch in came])
    values = of[name].to_pylist()
    return of.set_column(of.column_names.index(name), name, pa.array([*values[:-1], values[-1] + 7]))


KEYED = workload.Shape(rate=100, window_ms=0, keys=7, filled=True)


def keyed_rows() -> pa.Table:
    work = chain.keyed_work(KEYED, 3)
    return collect(work.query(ALONE), rows=work.rows(0, 100, 5))["out"]


def test_running_counts_are_those_of_a_loop() -> None:
    rows: dict[int, list[int]] = collections.defaultdict(list)
    wanted = []
    for number in range(100):
        rows[number % 7].append(number)
        if number % 3 == 0:
            wanted.append((number, len(rows[number % 7]), sum(rows[number % 7])))
    got = [(each["n"], each["rows"], each["total"]) for each in keyed_rows().to_pylist()]
    assert got == wanted
    assert keyed.wrong_of(came_of(keyed_rows()), 100, 7, 3) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.slice(1), "33 rows came, 33 of them unlike, of 34"),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), "35 rows came, 34 of them unlike"),
        (lambda rows: changed(came_of(rows), "rows"), "1 rows are wrong"),
        (lambda rows: changed(came_of(rows), "total"), "1 rows are wrong"),
        (lambda rows: rows.slice(0, 0), "came"),
    ],
    ids=["missing", "again", "rows", "total", "none"],
)
def test_keys_that_arent_right_are_noticed(change: Callable[[pa.Table], pa.Table], said: str) -> None:
    assert said in keyed.wrong_of(came_of(change(keyed_rows())), 100, 7, 3)


# --- what runs where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "work", [chain.rows_work(SHAPE), chain.words_work(SHAPE), chain.keyed_work(SHAPE, 3)]
)
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda each: each.key)
def test_each_box_is_at_one_node_and_guarded(work: chain.Work, scheme: chain.Scheme) -> None:
    setup = chain.setup_of(scheme, work, SHAPE, parts=2)
    placed = [box for boxes in setup.at.values() for box in boxes]
    assert sorted(placed) == sorted(box.id for box in setup.query.graph.boxes)
    assert setup.at["m"][0] == chain.FRAGMENT.partition("/")[2]
    nodes = {"a", "w", *setup.nodes}
    assert set(setup.at) <= nodes
    assert set(scheme.lost) <= nodes
    if not scheme.lost:
        assert not setup.standby
        return
    assert set(setup.standby) == set(setup.at)
    for node, spares in setup.standby.items():
        assert node not in spares
        assert set(spares) <= nodes - set(scheme.lost)
    assert scheme.method.method in METHODS["precise"]
    voters = len(nodes)
    assert voters - len(scheme.lost) > voters / 2


def test_parts_are_to_be_at_the_nodes_that_stand_by() -> None:
    assert chain.parts_at(1) == {"q/passed": ("m2", "m3")}
    assert chain.parts_at(2) == {"q/counted-1": ("m2", "m3"), "q/counted-2": ("m2", "m3")}


def test_the_marks_are_those_of_a_configuration(tmp_path: Path) -> None:
    names = [scale_query.GATE, *vms(5)]
    addresses = {name: f"tcp://127.0.0.1:{port}" for port, name in enumerate(names, 5001)}
    for name in names:
        text = scale_demo.node_config(name, addresses, scale=Marks(high=0.3, every="1s", looks=3).table)
        (tmp_path / f"{name}.toml").write_text(text)
    scale = load_settings(tmp_path / "gate.toml").scale
    assert scale is not None
    assert (scale.high, scale.every_us, scale.looks) == (0.3, 1_000_000, 3)
    assert scale.low < scale.high
    assert scale.nodes == ("toll", "spare1", "spare2", "spare3", "spare4")
    assert load_settings(tmp_path / "toll.toml").scale is None
    (tmp_path / "gate.toml").write_text(scale_demo.node_config("gate", addresses, scale=""))
    assert load_settings(tmp_path / "gate.toml").scale is None


# --- what is gone through, and in which order -------------------------------------------------------------


def test_all_schemes_come_first_at_the_usual_interval() -> None:
    found = recovery.settings(recovery.FULL)
    assert len(found) == len({json.dumps(each) for each in found}) == 4 * 7 * 3
    assert {each["interval"] for each in found} == {f"{each}s" for each in (1, 5, 10, 15, 20, 25, 30)}
    assert {(each["scheme"], each["interval"]) for each in found[:12]} == {
        (scheme, "5s") for scheme in recovery.FULL.schemes
    }
    assert {100, 500, 1_000} <= {each["rate"] for each in found}
    assert {each["scheme"] for each in found[12:36]} == {"state_backup"}


def test_the_others_go_through_what_was_asked() -> None:
    found = parallel.settings(parallel.FULL)
    assert found[:4] == [
        {"keys": keys, "interval": "1s", "nodes": nodes} for keys in (100_000, 1_000_000) for nodes in (1, 2)
    ]
    assert parallel.FULL.rounds == 20
    states = overhead.settings(overhead.FULL)
    assert {each["keys"] for each in states} == {100, 10_000, 100_000}
    assert {each["interval"] for each in states} == {None, "1s", "5s", "10s", "15s", "20s", "25s", "30s"}
    swept = threshold.settings(threshold.FULL)
    assert sorted(each["percent"] for each in swept if each["every"] == "500ms" and each["looks"] == 2) == [
        *range(10, 100, 10)
    ]
    assert [each["by_hand"] for each in allocation.settings(allocation.QUICK)] == [None, 2]


# --- claims, tables, plots --------------------------------------------------------------------------------


def of_recovery(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    slow = {"state_backup": 1, "upstream_backup": 4, "source_replay": 6}[setting["scheme"]]
    total_s = 0.1 + slow * setting["rate"] * int(setting["interval"][:-1]) / 1e5
    return _made(total_s=total_s, again_rows=None if slow == 1 else 30 * setting["rate"])


def _made(**figures: Any) -> dict[str, Any]:
    return {
        "published": 10,
        "delay_p50_s": 0.01,
        "delay_p95_s": 0.02,
        "delay_p99_s": 0.03,
        "cpu_share": 0.4,
        "back_bytes_per_s": 1e3,
        "held_bytes": 1 << 20,
        "kept_bytes": 2048,
        "primary_memory_bytes": 3 << 20,
        "hop_memory_bytes": 1 << 20,
        "killed_rows": 5,
        "noticed_s": 0.01,
        "taken_s": 0.05,
        "total_s": 0.2,
        "settled_s": 0.3,
        "caught_up_s": 0.4,
        "whole_s": 0.4,
        "age_s": 4.5,
        **figures,
    }


def of_parallel(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    seconds = int(setting["interval"][:-1])
    return _made(total_s=0.5, whole_s=1.0 + seconds / setting["nodes"])


def of_overhead(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    if setting["interval"] is None:
        alone = _made(delay_p95_s=0.01)
        return {key: each for key, each in alone.items() if key not in ("total_s", "taken_s", "settled_s")}
    seconds = int(setting["interval"][:-1])
    return _made(delay_p95_s=0.02 + setting["keys"] / 1e6 / seconds, total_s=0.1 + seconds / 100)


def _scaled(**figures: Any) -> dict[str, Any]:
    curve = [[second, 100, 0.1, 1 + second % 3] for second in range(5)]
    made = {"late_p50_s": 0.02, "late_p95_s": 0.1, "late_p99_s": 0.2, "peak_p95_s": 0.1, "nodes_most": 3}
    return {**made, "nodes_mean": 2.0, "behind_s": 1, "acts": 4, "published": 10, "curve": curve, **figures}


def of_threshold(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    return _scaled(nodes_mean=100 / setting["percent"], late_p95_s=0.05 * 1.0168 ** setting["percent"])


def of_allocation(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    count = setting["by_hand"]
    if count is None:
        return _scaled(nodes_most=5, nodes_mean=2.5)
    return _scaled(nodes_most=count, nodes_mean=count, peak_p95_s=2.0 if count < 4 else 0.1)


MADE: dict[str, tuple[Any, Callable[..., dict[str, Any]]]] = {
    "recovery": (recovery, of_recovery),
    "wordcount": (recovery, of_recovery),
    "parallel": (parallel, of_parallel),
    "overhead": (overhead, of_overhead),
    "threshold": (threshold, of_threshold),
    "allocation": (allocation, of_allocation),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_name_gives_its_figures_its_table_and_its_plot(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    module, run = MADE[name]
    monkeypatch.setattr(module, "run", run)
    assert main([name, "--out", str(tmp_path), "--rounds", "2"]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / f"seep-{name}.md").read_text() == text
    assert "published: the shape alone" in (tmp_path / f"seep-{name}.svg").read_text()
    found = json.loads((tmp_path / f"seep-{name}.json").read_text())
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + len(found["rows"])
    assert "What the authors say" in text
    assert "**not so**" not in text  # The runs were made up as they say it.
    assert text.count(": so (") >= 1
    assert main([name, "--docs", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == text


def found_of(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, run: Any, sizes: Any
) -> dict[str, Any]:
    module, _ = MADE[name]
    monkeypatch.setattr(module, "run", run)
    sheet = Sheet(f"seep-{name}", folder, module.asked_of(sizes))
    works = (chain.rows_work,) if module is recovery else ()
    made: dict[str, Any] = module.measure(sizes, *works, sheet)
    return made


def held_of(claims: list[Claim]) -> list[bool | None]:
    return [each.held for each in claims]


def test_what_they_say_can_be_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
        return _made(total_s=2.0 if setting["scheme"] == "state_backup" else 1.0)

    sizes = replace(recovery.FULL, rates=(100, 1_000), intervals=("5s", "30s"), rounds=1)
    found = found_of("recovery", tmp_path, monkeypatch, run, sizes)
    assert held_of(recovery.claims_of(found)) == [False, False, False, False]
    one = replace(recovery.FULL, rates=(100,), intervals=("5s",), schemes=("state_backup",), rounds=1)
    found = found_of("recovery", tmp_path, monkeypatch, run, one)
    assert held_of(recovery.claims_of(found)) == [None, None, None, None]


def test_aims_are_missed_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
        return _made(total_s=1.2, whole_s=1.0 + setting["nodes"])

    sizes = replace(parallel.FULL, rounds=1)
    found = found_of("parallel", tmp_path, monkeypatch, run, sizes)
    text = parallel.table(found)
    assert "the first new row within 1 s: **not so** (1,200 ms)" in text
    assert "sooner on two nodes than on one: **not so** (2,000 ms on one, 3,000 ms on two)" in text


def test_the_policy_is_held_against_the_fewest_by_hand_that_are_enough(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = replace(allocation.FULL, rounds=1)
    [claim] = allocation.claims_of(found_of("allocation", tmp_path, monkeypatch, of_allocation, sizes))
    assert claim.held
    assert claim.shown == "5 at most, 2.5 on the mean, 4 by hand: +25%"

    def late(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
        return _scaled(peak_p95_s=2.0)

    [claim] = allocation.claims_of(found_of("allocation", tmp_path, monkeypatch, late, sizes))
    assert claim.held is None


def test_what_broke_its_promise_is_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")

    def run(setting: Mapping[str, Any], *_: Any) -> dict[str, Any]:
        assert setting["scheme"] == "state_backup", "3 missing"
        return of_recovery(setting)

    monkeypatch.setattr(recovery, "run", run)
    assert main(["recovery", "--out", str(tmp_path), "--rounds", "1", "--intervals", "5s"]) == 1
    assert capsys.readouterr().out.count("- not held (scheme ") == 8


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_stopped_before_its_first_run_says_so(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert main([name, "--quick", "--budget", "0s", "--out", str(tmp_path)]) == 0
    assert "Stopped by the budget of 0 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["luck"], "invalid choice: 'luck'"),
        (["recovery", "--schemes", "magic"], "'magic' is none of state_backup"),
        (["recovery", "--keys", "7"], "recovery takes no --keys"),
        (["parallel", "--rates", "1,2"], "parallel has one rate"),
        (["overhead", "--intervals", "soon"], "--intervals"),
        (["threshold", "--thresholds", "3"], "3 is none of 5 to 100 percent"),
        (["allocation", "--thresholds", "30,40"], "allocation has one"),
        (["wordcount", "--budget", "soon"], "--budget"),
    ],
    ids=lambda each: each if isinstance(each, str) else "-".join(each[:2]),
)
def test_what_cant_be_asked_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_has_an_example_of_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "python -m bench.seep recovery --quick" in text
    assert all(each.text in text for each in EXPERIMENTS.values())


def test_delays_are_from_the_newest_row() -> None:
    batch = pa.record_batch({"sent": pa.array(np.array([1_000_000_000, 1_500_000_000]))})
    assert chain.delays_of([(2_000_000_000, batch)]) == [(2_000_000_000, 1.0), (2_000_000_000, 0.5)]


# --- small real runs --------------------------------------------------------------------------------------


@pytest.mark.system
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_small_run(tmp_path: Path, name: str) -> None:
    """Exact, and every setting has figures; what may be late where the machine is busy isn't looked at."""
    pytest.importorskip("matplotlib")
    assert main([name, "--quick", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / f"seep-{name}.json").read_text())
    made = [each for row in found["rows"] for each in row["runs"]]
    assert len(made) == len(found["rows"])
    assert all(each["published"] > 0 for each in made)
    if name in ("recovery", "wordcount", "parallel"):
        assert all(each["total_s"] > 0 for each in made)
    if name in ("threshold", "allocation"):
        assert max(each["nodes_most"] for each in made) > 1
