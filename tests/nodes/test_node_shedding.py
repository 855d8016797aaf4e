"""Overload of nodes in virtual time, whose engines can do a thousand rows a second: what is left out, that
each row of it is counted at both ends, and that nothing else is. The answers are counted anew by DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import duckdb
import pytest
from msgspec.structs import replace

import medusa as md
from medusa.sim.actors.client import Client
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Split
from tests.nodes.costly import ROW_US, SCHEMA, SECOND_US, CostlyRun, costs

DAYS = range(1, 5)
PATIENCE_US = 120 * SECOND_US
WORK = "roads/work"
PLACE = f"{WORK}.cars"
LOSS = md.QoS(loss=[(100, 1), (0, 0)])


def roads(
    alarms: md.QoS | None = LOSS, report: md.QoS | None = LOSS, windows: bool = True, **wishes: Any
) -> md.Query:
    """Each row costs ``ROW_US`` in ``work``; fast cars leave, and cars are counted by second and road."""
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    done = cars.apply(costs, SCHEMA, name="work")
    q.sink("alarms", done.filter("speed > 90", name="fast"), qos=alarms, **wishes)
    if windows:
        counts = done.window("1s").group_by("road").aggregate(n=md.count(), name="counts")
        q.sink("report", counts, qos=report, **wishes)
    return q


def counted(run: CostlyRun) -> dict[tuple[Any, int], int]:
    """Of each second and road how many cars were published: by another engine."""
    published = run.published()
    found = duckdb.sql(
        "SELECT time_bucket(INTERVAL '1 second', ts) AS begin, road, count(*) FROM published GROUP BY ALL"
    ).fetchall()
    assert published.num_rows == run.count
    return {(begin.timestamp(), road): n for begin, road, n in found}


def reported(run: CostlyRun) -> dict[tuple[Any, int], int]:
    found = run.got("report").to_pylist()
    made = {(each["window_start"].timestamp(), each["road"]): each["n"] for each in found}
    assert len(made) == len(found), "a window came twice"
    return made


def over(run: CostlyRun, *sinks: str) -> None:
    """The publisher ends, and all that is left is done."""
    run.ends()
    readers = [run.fed.clients[f"reader-{sink}"] for sink in sinks]
    assert run.fed.run(lambda: all(each.ended for each in readers), for_us=PATIENCE_US), run.fed.last()


def missing(run: CostlyRun, sink: str) -> dict[str, int]:
    """What the reader of a sink was told."""
    reader: Client = run.fed.clients[f"reader-{sink}"]
    name = f"{run.q.graph.name}.{sink}"
    return next(
        each.subscriptions[name].receiver.thinned for each in reader.minds if name in each.subscriptions
    )


def status(run: CostlyRun, node: str) -> Any:
    machine = run.fed.nodes[node]
    return machine.brain.status(machine.clock.monotonic_us())


def exact_but_for_whole_windows(run: CostlyRun, shed: int) -> None:
    """Windows are those of all rows, or aren't there; and the rows of those are the ones that were
    counted."""
    want, got = counted(run), reported(run)
    assert got.items() <= want.items()
    assert sum(got.values()) + shed == run.count
    whole = {begin for begin, _ in got}
    assert not any(begin in whole for begin, road in want.keys() - got.keys()), "of a window a key is gone"


def exact_alarms(run: CostlyRun) -> None:
    """Alarms are those of the rows that came by: of the same seconds as the windows."""
    begins = {begin for begin, _ in reported(run)}
    rows = duckdb.from_arrow(run.published()).filter("speed > 90").to_arrow_table().to_pylist()
    want = [each for each in rows if each["ts"].timestamp() // 1 in begins]
    assert sorted(map(_key, run.got("alarms").to_pylist())) == sorted(map(_key, want))


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["ts"], row["road"], row["speed"]


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_are_left_out_while_there_is_too_much_and_counted_at_both_ends(seed: int) -> None:
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b"], seed=seed)
    for sink in ("alarms", "report"):
        run.reads(sink, "b")
    run.publishes(500, 3)
    assert run.hosted(WORK).thinning.shed_rows == {}
    run.publishes(2000, 12)
    said = status(run, "b")["shedding"]
    assert 0 < said["kept"] < 0.8 < 1.5 < said["work"]
    assert (said["sources"][0]["how"], said["sources"][0]["outputs"]) == (
        "windows",
        ["roads.alarms", "roads.report"],
    )
    assert run.hosted(WORK).waiting_rows("cars") < 3500, "what waits is bounded by the delay allowed"
    run.publishes(500, 12)
    over(run, "alarms", "report")
    shed = run.hosted(WORK).thinning.shed_rows["cars"]
    assert shed > 6000
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)
    assert missing(run, "alarms") == missing(run, "report") == {PLACE: shed}
    (sender,) = status(run, "a")["fragments"]
    assert sender["outputs"][0]["receivers"][0]["left_out_rows"] == shed
    (fragment,) = status(run, "b")["fragments"]
    assert fragment["left_out_rows"] == fragment["inputs"][0]["left_out_rows"] == shed
    assert fragment["boxes"]["cars"]["shed"] == shed
    assert [node for _, node, _ in run.told] == ["b", "b"], "it begins once, and ends once"


def test_the_publisher_hears_what_the_node_left_out_that_it_publishes_into() -> None:
    run = CostlyRun(roads(), {"a": ["cars"]})
    run.reads("alarms", "a"), run.reads("report", "a")
    run.publishes(2500, 8)
    run.publishes(200, 4)
    over(run, "alarms", "report")
    shed = run.hosted("roads/cars").thinning.shed_rows["cars"]
    assert shed > 4000
    exact_but_for_whole_windows(run, shed)
    assert run.fed.run(lambda: run.client.publication("roads.cars").left_out_rows == shed)
    assert missing(run, "report") == {"roads/cars.cars": shed}


def test_between_the_marks_nothing_changes_and_nobody_thrashes() -> None:
    """A load of 0.8 of what it can do, with bursts of 0.85: more than the low mark, less than the high
    one."""
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b"])
    run.reads("report", "b")
    for _ in range(8):
        run.publishes(850, 1)
        run.publishes(750, 1)
    assert run.told == []
    assert run.hosted(WORK).thinning.shed_rows == {}
    run.publishes(2500, 4)
    for _ in range(10):
        run.publishes(850, 1)
        run.publishes(750, 1)
    assert [what for _, _, what in run.told] == ["rows are left out: too much comes"]
    shed = dict(run.hosted(WORK).thinning.shed_rows)
    run.publishes(800, 10)
    assert run.hosted(WORK).thinning.shed_rows == shed, "between the marks nothing is left out"
    run.publishes(300, 12)
    assert [what for _, _, what in run.told][1:] == ["nothing is left out any more"]


@pytest.mark.parametrize(
    ("q", "why"),
    [
        (lambda: roads(alarms=None), "the only reader of some rows has no quality of service"),
        (lambda: roads(alarms=None, report=None), "nobody said what outputs are worth"),
        (lambda: roads(recovery="precise"), ""),
    ],
)
def test_only_what_its_author_allowed_is_left_out(q: Callable[[], md.Query], why: str) -> None:
    """Quality of service of all outputs that miss a row allows it; how they are recovered doesn't forbid
    it."""
    standby = {} if why else {"standby": {"a": ["s"], "b": ["c"]}, "witnesses": ["w"]}
    names = ["a", "b", "c", "s", "w"]
    run = CostlyRun(q(), {"a": ["cars"], "b": ["work"]}, costly=["b"], names=names, **standby)
    run.reads("report", "b")
    run.publishes(1500, 6)
    over(run, "report")
    shed = run.hosted(WORK).thinning.shed_rows.get("cars", 0)
    assert bool(shed) is not bool(why)
    exact_but_for_whole_windows(run, shed)


def test_a_crash_in_the_middle_leaves_out_the_same_rows_again() -> None:
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b"])
    for sink in ("alarms", "report"):
        run.follows(sink, "a")
    run.publishes(2000, 8)
    for _ in range(3):
        run.fed.nodes["b"].crash("kept")
        run.publishes(1500, 0.6)
        run.fed.nodes["b"].restart()
        run.publishes(2000, 4)
    run.publishes(300, 12)
    over(run, "alarms", "report")
    shed = run.hosted(WORK).thinning.shed_rows["cars"]
    assert shed > 6000
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)
    assert missing(run, "report") == {PLACE: shed}


@pytest.mark.parametrize("method", ["active_standby", "passive_standby"])
def test_who_takes_over_leaves_out_the_same_rows(method: str) -> None:
    q = roads(recovery="precise", method=method)
    at, names = {"a": ["cars"], "b": ["work"]}, ["a", "b", "c", "s", "w"]
    standby = {"a": ["s"], "b": ["c"]}
    run = CostlyRun(q, at, costly=["b", "c"], names=names, standby=standby, witnesses=["w"])
    for sink in ("alarms", "report"):
        run.follows(sink, "a")
    run.publishes(500, 4)
    run.publishes(2000, 8)
    assert run.hosted(WORK).thinning.shed_rows["cars"] > 0
    run.fed.nodes["b"].crash()
    run.publishes(1500, 12)
    assert run.hosted(WORK) is run.fed.nodes["c"].brain.fragments[WORK]
    run.publishes(300, 12)
    over(run, "alarms", "report")
    shed = run.hosted(WORK).thinning.shed_rows["cars"]
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)


def test_a_fragment_that_moves_goes_on_with_what_it_leaves_out() -> None:
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b", "c"], names=["a", "b", "c"])
    for sink in ("alarms", "report"):
        run.follows(sink, "a")
    run.publishes(2000, 8)
    before = run.hosted(WORK).thinning.shed_rows["cars"]
    assert before > 0
    orderer = run.fed.client("orderer", "b")
    asked = orderer.ask(
        lambda mind: mind.request(lambda n: Move(request=n, fragment=WORK, to="c", timeout_ms=20_000))
    )
    run.publishes(1500, 10)
    assert not orderer.take_reply(asked).code
    assert WORK in run.fed.nodes["c"].brain.fragments
    assert run.hosted(WORK).thinning.shed_rows["cars"] > before
    run.publishes(300, 12)
    over(run, "alarms", "report")
    shed = run.hosted(WORK).thinning.shed_rows["cars"]
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)
    assert missing(run, "report") == {PLACE: shed}


def test_a_fragment_that_is_split_goes_on_with_what_it_leaves_out() -> None:
    """The windows stand in other fragments then, and the rows are left out where they come."""
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b"])
    for sink in ("alarms", "report"):
        run.reads(sink, "b")
    run.publishes(2000, 8)
    before = run.hosted(WORK).thinning.shed_rows["cars"]
    orderer = run.fed.client("orderer", "b")
    asked = orderer.ask(
        lambda mind: mind.request(
            lambda n: Split(request=n, fragment=WORK, box="counts", parts=2, ranges="even")
        )
    )
    run.publishes(2000, 10)
    reply = orderer.take_reply(asked)
    assert not reply.code, reply
    now = next(name for name, each in run.fed.nodes["b"].brain.fragments.items() if each.may_shed)
    assert now != WORK
    run.publishes(300, 12)
    over(run, "alarms", "report")
    shed = run.hosted(now).thinning.shed_rows["cars"]
    assert shed > before > 0
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)
    told = missing(run, "report")
    assert told.keys() == {PLACE, f"{now}.cars"}
    assert sum(told.values()) == shed


def any_day(seed: int) -> int:
    """Rates, crashes, pauses, moves and take-overs by chance: all is exact, but for what is counted. How much
    that is."""
    dice = Random(seed)
    guarded = dice.random() < 0.5
    method = dice.choice(["active_standby", "passive_standby"])
    q = roads(recovery="precise", method=method) if guarded else roads()
    wishes = {"standby": {"a": ["s"], "b": ["c"]}, "witnesses": ["w"]} if guarded else {}
    names = ["a", "b", "c", "s", "w"]
    run = CostlyRun(q, {"a": ["cars"], "b": ["work"]}, costly=["b", "c"], names=names, seed=seed, **wishes)
    for sink in ("alarms", "report"):
        run.follows(sink, "a")
    for _ in range(dice.randint(2, 4)):
        run.publishes(dice.choice([300, 800, 1300, 2000, 2500]), dice.randint(2, 5))
        victim = run.fed.nodes[dice.choice(["b", "c"])]
        match dice.choice(["crash", "pause", "move", "nothing"]):
            case "crash":
                victim.crash(dice.choice(["lost", "kept", "torn"]))
                run.publishes(800, 0.6)
                victim.restart()
            case "pause":
                victim.pause(dice.randint(100, 1500) * 1000)
            case "move" if not guarded:
                order = Move(request=0, fragment=WORK, to=dice.choice(["b", "c"]), timeout_ms=20_000)
                orderer = run.fed.client(f"orderer-{run.count}", dice.choice(["b", "c"]))
                orderer.ask(lambda mind, order=order: mind.request(lambda n: replace(order, request=n)))
    run.publishes(300, 8)
    over(run, "alarms", "report")
    shed = run.hosted(WORK).thinning.shed_rows.get("cars", 0)
    exact_but_for_whole_windows(run, shed)
    exact_alarms(run)
    assert sum(missing(run, "report").values()) == shed
    return shed


def test_on_any_day_what_comes_is_exact_but_for_what_is_counted() -> None:
    shed = [any_day(seed) for seed in DAYS]
    assert sum(rows > 0 for rows in shed) >= len(DAYS) / 2, shed


def test_sliding_windows_and_sorts_are_never_thinned() -> None:
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    done = cars.apply(costs, SCHEMA, name="work")
    sliding = done.window("2s", "1s").group_by("road").aggregate(n=md.count(), name="counts")
    q.sink("report", sliding, qos=LOSS)
    run = CostlyRun(q, {"a": ["cars"]})
    run.reads("report", "a")
    run.publishes(1500, 5)
    assert run.hosted("roads/cars").rules == {}
    assert "shedding" not in status(run, "a")
    assert ROW_US * 1500 > SECOND_US
