"""Precise by upstream backup: whoever takes over reads rows again, and numbers what comes out as before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.nodes.upstream_backup.reach import Reach, refusal_of
from medusa.query.recovery import ACTIVE, PASSIVE, PRECISE_UPSTREAM, UPSTREAM
from tests.nodes.named_clients import Named
from tests.nodes.recovery.upstream_run import KINDS, UpstreamRun, count_by_key, query, table, upstream
from tests.nodes.taken_over import ROWS, SCHEMA
from tests.nodes.test_handovers import moved
from tests.sim.planting import Mistake, edit, planted

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
FULL = [pytest.mark.full, pytest.mark.issue(18)]
PRECISE: Any = {"recovery": "precise", "method": UPSTREAM}
WAIT_US = 2_000_000

Made = tuple[Any, dict[str, list[str]]]


def fed(run: UpstreamRun) -> int:
    """Rows that its owner was fed."""
    hosted = run.hosted(run.fragment)
    assert hosted is not None
    return sum(input.fed_seq for input in hosted.inputs.values())


def begun(q: Any, at: Any, *, rows: int = 60, **more: Any) -> UpstreamRun:
    """Some rows were fed, and the others come."""
    run = UpstreamRun(q, at, "s1", "s2", **more)
    run.publish(0, rows)
    run.until(lambda: fed(run) >= 30, "rows are fed")
    run.publish(rows, ROWS)
    return run


def taken_over(run: UpstreamRun, owner: str) -> str:
    """The owner is lost, and whoever is first to propose itself goes on; who that is."""
    run.lose(owner)
    goes_on(run, owner)
    return run.owner(run.fragment)


def goes_on(run: UpstreamRun, without: str) -> None:
    """Another node has it."""
    run.until(
        lambda: run.hosted(run.fragment) is not None and run.owner(run.fragment) != without, "it goes on"
    )


def method_of(run: UpstreamRun, fragment: str) -> str:
    hosted = run.hosted(fragment)
    assert hosted is not None
    return hosted.spec.method


def precise(run: UpstreamRun) -> None:
    """As if nothing had happened: rows, order and numbers; nobody has heard of a loss or another version."""
    run.check()
    assert {*run.reader.versions.values()} == {1}
    for node in run.living:
        for hosted in node.brain.fragments.values():
            assert hosted.spec.stream_version == 1
            assert not any(output.skips for output in hosted.outputs.values())
            assert not any(input.receiver.lost_rows or input.overdue_rows for input in hosted.inputs.values())


# --- kills ------------------------------------------------------------------------------------------------

CASES = [("rows", 45), ("tumbling", 100), ("sliding", 81), ("chained", 60)]
MORE = [(kind, ms) for kind in KINDS for ms in (3, 10, 20, 33, 45, 60, 70, 81, 90, 100, 115, 130)]


@pytest.mark.parametrize(
    ("kind", "after_ms"), [*CASES, *(pytest.param(*each, marks=FULL) for each in MORE if each not in CASES)]
)
def test_as_if_nothing_had_happened(kind: str, after_ms: int) -> None:
    run = begun(*query(kind, recovery="precise"), seed=after_ms)
    assert method_of(run, run.fragment) == PRECISE_UPSTREAM
    run.fed.run(for_us=after_ms * 1_000)
    taken_over(run, "m")
    precise(run)


@pytest.mark.parametrize("kind", ["sliding", pytest.param("rows", marks=FULL)])
def test_a_successor_is_succeeded(kind: str) -> None:
    q, at = query(kind, recovery="precise")
    run = UpstreamRun(q, at, "s1", "s2")
    run.publish(0, 90)
    run.until(lambda: fed(run) >= 60, "rows are fed")
    first = taken_over(run, "m")
    run.publish(90, 150)
    run.until_guarded(run.fragment, 1)
    run.until(lambda: run.warm() and fed(run) >= 120, "it stands behind the mark")
    assert taken_over(run, first) != first
    run.publish(150, ROWS)
    precise(run)


@pytest.mark.parametrize("kind", ["sliding", pytest.param("tumbling", marks=FULL)])
def test_a_successor_is_lost_while_it_reads_again_and_another_goes_on(kind: str) -> None:
    run = begun(*query(kind, recovery="precise"), rows=180)
    run.fed.run(for_us=100_000)
    run.lose("m")
    run.until(lambda: run.hosted(run.fragment) is not None and not run.warm(), "it reads again")
    run.until_guarded(run.fragment, 1)
    taken_over(run, run.owner(run.fragment))
    precise(run)


def test_a_successor_that_dies_while_it_reads_again_goes_on_there() -> None:
    run = begun(*query("sliding", recovery="precise"), rows=180)
    run.fed.run(for_us=100_000)
    run.lose("m")
    run.until(lambda: run.hosted(run.fragment) is not None and not run.warm(), "it reads again")
    owner = run.owner(run.fragment)
    run.fed.nodes[owner].crash()
    run.fed.run(for_us=300_000)
    run.fed.nodes[owner].start()
    run.until(lambda: run.hosted(run.fragment) is not None, "it goes on")
    precise(run)


def test_an_owner_that_comes_back_in_time_goes_on_as_if_nothing_had_been() -> None:
    run = begun(*query("sliding", recovery="precise"))
    run.fed.run(for_us=60_000)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=WAIT_US - 500_000)
    run.fed.nodes["m"].start()
    run.until_owned(run.fragment, "m")
    precise(run)


@pytest.mark.parametrize("after_ms", [90, *(pytest.param(ms, marks=FULL) for ms in (10, 40, 70, 120))])
@pytest.mark.parametrize("first", ["e", pytest.param("m", marks=FULL)])
def test_whoever_is_read_is_lost_at_the_same_time(first: str, after_ms: int) -> None:
    """By passive standby: the rows from the mark on are in what its successor holds."""
    run = begun(*query("sliding", recovery="precise"), seed=after_ms)
    assert method_of(run, "q/rows") == PASSIVE
    run.fed.run(for_us=after_ms * 1_000)
    for node in ("e", "m") if first == "e" else ("m", "e"):
        run.lose(node)
    run.until_owned("q/rows", "s3")
    goes_on(run, "m")
    precise(run)


def test_whoever_is_read_moves_and_then_the_owner_is_lost() -> None:
    """Where it moved to it has the rows from the mark on."""
    run = begun(*query("sliding", recovery="precise"), rows=120)
    reply = moved(run, "q/rows", "s3")
    assert reply.code == "", reply
    run.fed.run(for_us=40_000)
    taken_over(run, "m")
    precise(run)


def test_what_reads_again_stays_where_it_is() -> None:
    run = begun(*query("sliding", recovery="precise"))
    assert moved(run, run.fragment, "s1").code == "E_STORE"
    precise(run)


def test_a_reader_that_was_started_again_drops_what_it_has() -> None:
    run = begun(*query("rows", recovery="precise"))
    run.fed.run(for_us=60_000)
    run.fed.nodes["c"].crash()
    run.lose("m")
    run.fed.run(for_us=WAIT_US - 200_000)
    run.fed.nodes["c"].start()
    goes_on(run, "m")
    precise(run)


def test_a_reader_that_was_cut_off_gets_what_came_out_meanwhile() -> None:
    """There is no mark before it has that."""
    run = begun(*query("rows", recovery="precise"))
    run.fed.network.cut("m", "c")
    run.fed.run(for_us=200_000)
    taken_over(run, "m")
    precise(run)


@pytest.mark.parametrize("restarts", [False, True], ids=["stays", "dies too"])
def test_a_reader_with_a_name_finds_each_row_once(restarts: bool) -> None:
    """What it hadn't acknowledged comes again where it has forgotten it, under the same numbers."""
    q, at = query("sliding", recovery="precise")
    run = UpstreamRun(q, {"e": at["e"], "m": [*at["m"], "last", "out"]}, "s1", "s2", reads=False)
    run.publish(0, 120)
    stored: list[Any] = []
    reader = Named(run, "named-1", stored)
    run.until(lambda: len(stored) >= 20, "rows come")
    reader.ack()
    run.fed.run(for_us=70_000)
    run.lose("m")
    reader.dead = restarts
    goes_on(run, "m")
    run.publish(120, ROWS)
    if restarts:
        run.fed.run(for_us=1_000_000)
        reader = Named(run, "named-2", stored)
    run.until(lambda: "q.out" in reader.ended, "all rows come")
    assert stored == run.want["out"].to_pylist()
    assert restarts or not reader.sent_again


def test_whoever_reads_first_after_a_takeover_finds_all_that_had_come_out() -> None:
    q, at = query("sliding", recovery="precise")
    run = UpstreamRun(q, {"e": at["e"], "m": [*at["m"], "last", "out"]}, "s1", "s2", reads=False)
    run.publish()
    run.until(lambda: fed(run) >= 180, "rows are fed")
    taken_over(run, "m")
    run.read()
    precise(run)


def test_all_that_stand_by_for_a_chain_go_on_at_once() -> None:
    """Who is read regenerates what its reader still needs, from rows that its own sender keeps for it."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    per_k = count_by_key(rows.window("2s", "1s"))
    again = per_k.window("4s").group_by("k").aggregate(n=md.sum("n"), t=md.sum("t"), name="again")
    q.sink("out", again.filter("true", name="last"), **PRECISE)
    run = begun(q, {"e": ["rows", "first"], "m": ["kind"], "c": ["again", "last", "out"]})
    assert method_of(run, "q/again") == PRECISE_UPSTREAM
    run.fed.run(for_us=100_000)
    run.lose("c")
    run.lose("m")
    goes_on(run, "m")
    run.until_owned("q/again", "s3")
    precise(run)


# --- other queries ----------------------------------------------------------------------------------------


def floats() -> Made:
    """Sums of floats, and which row came first, show the order of rows."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    sums = (
        rows.window("3s", "1s")
        .group_by("k")
        .aggregate(f=md.sum("v * 0.1"), a=md.first("v"), z=md.last("v"), name="sums")
    )
    q.sink("out", sums.filter("true", name="last"), **PRECISE)
    return q, {"e": ["rows", "first"], "m": ["sums"], "c": ["last", "out"]}


def both() -> Made:
    """Rows and results of windows leave one fragment."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    some = rows.filter("v % 3 > 0", name="some")
    q.sink("each", some.filter("true", name="one"), **PRECISE)
    q.sink("out", count_by_key(some.window("2s")).filter("true", name="last"), **PRECISE)
    return q, {"e": ["rows", "first"], "m": ["some", "kind"], "c": ["one", "each", "last", "out"]}


def long() -> Made:
    """Windows over the rows of several checkpoints."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    q.sink("out", count_by_key(rows.window("12s", "4s")).filter("true", name="last"), **PRECISE)
    return q, {"e": ["rows", "first"], "m": ["kind"], "c": ["last", "out"]}


def behind() -> Made:
    """Windows of windows, in one fragment."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    again = count_by_key(rows.window("8s", "2s")).window("10s").group_by("k")
    totals = again.aggregate(n=md.sum("n"), t=md.sum("t"), name="again")
    q.sink("out", totals.filter("true", name="last"), **PRECISE)
    return q, {"e": ["rows", "first"], "m": ["kind", "again"], "c": ["last", "out"]}


def serial() -> Made:
    """Rows of two sources in the order of their times."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="r")
    united = left.sunion(right, bucket="500ms", name="united")
    q.sink("each", united.filter("true", name="one"), **PRECISE)
    q.sink("out", count_by_key(united.window("2s", "1s")).filter("true", name="last"), **PRECISE)
    ends = ["right", "r", "one", "each", "last", "out"]
    return q, {"e": ["left", "l"], "m": ["united", "kind"], "c": ends}


def apart() -> Made:
    """Rows of one of the two leave by themselves too."""
    q, at = serial()
    mine = q.stream("l").filter("v % 2 = 0", name="mine")
    q.sink("odd", mine.filter("true", name="some"), **PRECISE)
    return q, {**at, "m": [*at["m"], "mine"], "c": [*at["c"], "some", "odd"]}


OTHERS: Mapping[str, Callable[[], Made]] = {
    "serial": serial,
    "floats": floats,
    "both": both,
    "long": long,
    "behind": behind,
}


@pytest.mark.parametrize("after_ms", [70, *(pytest.param(ms, marks=FULL) for ms in (10, 40, 100, 140))])
@pytest.mark.parametrize("kind", OTHERS)
def test_others_as_if_nothing_had_happened(kind: str, after_ms: int) -> None:
    run = begun(*OTHERS[kind](), seed=after_ms, tables=None)
    assert method_of(run, run.fragment) == PRECISE_UPSTREAM
    run.fed.run(for_us=after_ms * 1_000)
    taken_over(run, "m")
    precise(run)


def test_of_an_input_that_is_there_no_row_behind_the_mark_is_fed_before_the_other_is_there() -> None:
    run = begun(*apart())
    run.fed.run(for_us=70_000)
    run.lose("m")
    run.until(lambda: run.hosted(run.fragment) is not None and not run.warm(), "it reads again")
    run.fed.nodes["c"].pause(600_000)
    run.fed.run(for_us=700_000)
    precise(run)


@pytest.mark.parametrize("after_ms", [40, *(pytest.param(ms, marks=FULL) for ms in (10, 70, 100, 140))])
def test_what_a_sunion_holds_is_read_again_where_rows_may_come_twice_too(after_ms: int) -> None:
    q, at = serial()
    run = begun(upstream(q), at, seed=after_ms)
    run.fed.run(for_us=after_ms * 1_000)
    taken_over(run, "m")
    run.doubled()


@pytest.mark.parametrize("method", [ACTIVE, pytest.param(PASSIVE, marks=FULL)])
def test_what_another_output_has_computed_twice_holds_the_rows_from_the_mark(method: str) -> None:
    """Whoever is read goes on by the stronger method; both are lost."""
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="first")
    q.sink("each", rows.filter("v % 2 = 0", name="some"), recovery="precise", method=method)
    q.sink("out", count_by_key(rows.window("3s", "1s")).filter("true", name="last"), **PRECISE)
    run = begun(q, {"e": ["rows", "first"], "m": ["kind"], "c": ["some", "each", "last", "out"]})
    assert method_of(run, "q/rows") == ("" if method == ACTIVE else PASSIVE)
    run.fed.run(for_us=90_000)
    run.lose("e")
    run.lose("m")
    run.until_owned("q/rows", "s3")
    goes_on(run, "m")
    precise(run)


# --- what a mark costs --------------------------------------------------------------------------------------


def test_senders_keep_what_each_mark_needs_and_no_more_than_windows_span() -> None:
    run = begun(*query("sliding", recovery="precise"))
    most = 0
    while "q.out" not in run.reader.ended:
        run.fed.run(for_us=5_000)
        hosted, entry = run.hosted(run.fragment), run.hosted("q/rows")
        assert hosted is not None
        assert entry is not None
        [input] = hosted.inputs.values()
        [output] = entry.outputs.values()
        for record in (run.held(node).record for node in ("s1", "s2")):
            assert record is None or output.sender.log.start_seq <= record.inputs[0].next_seq
        most = max(most, input.fed_seq - output.sender.log.start_seq)
    assert 30 <= most <= 150, "three seconds of rows, and those of a checkpoint"
    precise(run)


def test_a_sunion_needs_a_row_until_its_time_is_promised() -> None:
    reach = Reach(serial()[0].graph)
    assert refusal_of(serial()[0].graph) is None
    assert reach.windows
    assert not reach.over({"left": 700_000}, {"each": 700_000, "out": 9_000_000})
    assert reach.over({"left": 700_000}, {"each": 700_001, "out": 9_000_000})
    assert not reach.over({"left": 700_000}, {"each": 700_001, "out": 1_000_000})


# --- what is said, and refused ------------------------------------------------------------------------------


def test_the_status_says_of_each_fragment_by_which_method_and_why() -> None:
    run = begun(*query("tumbling", recovery="precise"))
    [entry] = [f for f in run.fed.nodes["e"].brain.status(0)["fragments"] if f["fragment"] == "q/rows"]
    [middle] = run.fed.nodes["m"].brain.status(0)["fragments"]
    assert entry["method"] == PASSIVE
    assert entry["method_reason"].startswith("source 'rows' is published into")
    assert (middle["method"], middle["method_reason"]) == (PRECISE_UPSTREAM, "")
    [output] = run.fed.nodes["e"].brain.status(0)["queries"]["q"]["outputs"].values()
    assert output["method"] == PRECISE_UPSTREAM
    assert output["guarantee"].startswith("exactly once")
    precise(run)


def test_a_spec_that_promises_the_same_rows_of_what_clients_publish_is_refused() -> None:
    run = UpstreamRun(*query("tumbling", recovery="precise"), "s1")
    hosted = run.hosted("q/rows")
    assert hosted is not None
    spec = msgspec.structs.replace(hosted.spec, method=PRECISE_UPSTREAM)
    with pytest.raises(
        QueryError, match="can't make its output again, since source 'rows' is published into"
    ):
        fragment_from(fragment_to(spec))


# --- mistakes ----------------------------------------------------------------------------------------------

MARK = "nodes.upstream_backup.marks:Marks._mark"
ROWS_OF = "rows = {output.sink: output.rows for output in outputs}"
MISTAKES = {
    "numbering begins one too low": (
        edit(MARK, ROWS_OF, "rows = {output.sink: max(output.rows - 1, 0) for output in outputs}"),
        lambda: test_as_if_nothing_had_happened("sliding", 90),
    ),
    "numbering begins one too high": (
        edit(MARK, ROWS_OF, "rows = {output.sink: output.rows + 1 for output in outputs}"),
        lambda: test_as_if_nothing_had_happened("sliding", 81),
    ),
    "an input is trimmed that a late window still needs": (
        edit(
            "nodes.upstream_backup.reach:Reach.over",
            "_last(newest[source], steps) <",
            "newest[source] <",
        ),
        lambda: test_others_as_if_nothing_had_happened("long", 100),
    ),
    "a mark is sent before readers hold what came before it": (
        edit("nodes.upstream_backup.marks:Marks.settle", "and at < seq", "and False"),
        lambda: test_a_reader_that_was_cut_off_gets_what_came_out_meanwhile(),
    ),
    "rows behind the mark count as read again": (
        edit(
            "nodes.upstream_backup.warm_up:WarmUp._before",
            "if key in self._renumbered and self._windows and key not in self._promised:",
            "if True:",
        ),
        test_of_an_input_that_is_there_no_row_behind_the_mark_is_fed_before_the_other_is_there,
    ),
    "whoever takes over says that rows may be others": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver.open",
            "and not self.spec.repeats",
            "",
        ),
        lambda: test_as_if_nothing_had_happened("rows", 45),
    ),
}
RARER = [*MISTAKES][3:]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=FULL if name in RARER else ()) for name in MISTAKES]
)
def test_a_mistake_is_noticed(name: str) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="upstream backup", about=name, edits=edits)), pytest.raises(AssertionError):
        notices()


def test_the_table_has_rows_that_are_late() -> None:
    """Which stay so whoever reads them again."""
    with pytest.warns(md.LateWarning):
        md.collect(query("all", recovery="precise")[0], rows=table(120))
