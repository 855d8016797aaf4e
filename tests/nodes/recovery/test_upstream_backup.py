"""Upstream backup: whoever takes over begins empty at a mark, reads rows again, and nothing is missing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.upstream_backup.reach import Reach, has_both, refusal_of
from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Fed, Piece
from medusa.wire.messages.split import Split
from tests.nodes.recovery.upstream_run import KINDS, UpstreamRun, query, table, upstream
from tests.nodes.taken_over import ROWS, SCHEMA
from tests.nodes.test_handovers import moved
from tests.sim.planting import Mistake, edit, planted

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
WAIT_US = 2_000_000

FULL = [pytest.mark.full, pytest.mark.issue(18)]


def fed(run: UpstreamRun) -> int:
    """Rows that its owner was fed."""
    hosted = run.hosted(run.fragment)
    assert hosted is not None
    return sum(input.fed_seq for input in hosted.inputs.values())


def begun(kind: str, *, whole: bool = False, slack: str = "1s", rows: int = 60, seed: int = 1) -> UpstreamRun:
    """Some rows were fed, and the others come."""
    run = UpstreamRun(*query(kind, whole=whole, slack=slack), "s1", "s2", seed=seed)
    run.publish(0, rows)
    run.until(lambda: fed(run) >= 30, "rows are fed")
    run.publish(rows, ROWS)
    return run


CASES = [("rows", False, 45), ("tumbling", False, 100), ("sliding", True, 81)]
MORE = [(kind, whole, ms) for kind in KINDS for whole in (False, True) for ms in (3, 20, 60, 81, 100, 130)]


@pytest.mark.parametrize(
    ("kind", "whole", "after_ms"),
    [*CASES, *(pytest.param(*each, marks=FULL) for each in MORE if each not in CASES)],
)
def test_nothing_is_missing_and_rows_come_again_at_most(kind: str, whole: bool, after_ms: int) -> None:
    run = begun(kind, whole=whole, seed=after_ms)
    run.fed.run(for_us=after_ms * 1_000)
    run.take_over("m", "s1")
    assert run.doubled() > 0 or after_ms == 130


@pytest.mark.parametrize("slack", ["0s", pytest.param("200ms", marks=FULL)])
def test_what_was_late_stays_late(slack: str) -> None:
    run = begun("sliding", whole=True, slack=slack)
    run.fed.run(for_us=90_000)
    run.take_over("m", "s1")
    run.doubled()


@pytest.mark.parametrize("kind", ["tumbling", pytest.param("rows", marks=FULL)])
def test_a_successor_is_succeeded(kind: str) -> None:
    run = UpstreamRun(*query(kind, whole=True), "s1", "s2")
    run.publish(0, 90)
    run.until(lambda: fed(run) >= 60, "rows are fed")
    run.take_over("m", "s1")
    run.publish(90, 150)
    run.until_guarded(run.fragment, 1)
    run.until(lambda: run.warm() and fed(run) >= 120, "it stands behind the mark")
    run.take_over("s1", "s2")
    run.publish(150, ROWS)
    run.doubled()
    assert run.reader.versions["q.out"] == 3


def test_an_owner_that_comes_back_in_time_goes_on_as_if_nothing_had_been() -> None:
    run = begun("sliding", whole=True)
    run.fed.run(for_us=60_000)
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=WAIT_US - 500_000)
    run.fed.nodes["m"].start()
    run.until_owned(run.fragment, "m")
    run.check()
    assert run.reader.versions == {"q.out": 1}


def test_a_successor_that_dies_while_it_reads_again_goes_on_there() -> None:
    run = begun("sliding", whole=True, rows=180)
    run.fed.run(for_us=100_000)
    run.lose("m")
    run.until(lambda: run.hosted(run.fragment) is not None and not run.warm(), "it reads again")
    run.fed.nodes["s1"].crash()
    run.fed.run(for_us=300_000)
    run.fed.nodes["s1"].start()
    run.until_owned(run.fragment, "s1")
    run.doubled()


def united(windows: bool) -> tuple[Any, dict[str, list[str]], dict[str, pa.Table]]:
    """Two sources in the order in which rows arrive, with or without windows over both."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts", slack="1s").filter("v >= 0", name="r")
    both = left.union(right, name="both")
    if windows:
        both = both.window("2s", "1s").group_by("k").aggregate(n=md.count(), t=md.sum("v"), name="counts")
    q.sink("out", both.filter("true", name="last"))
    middle = ["both", "counts"] if windows else ["both"]
    at = {"e": ["left", "l"], "m": middle, "c": ["right", "r", "last", "out"]}
    return upstream(q), at, {"left": table(), "right": table()}


MOMENTS = [
    (True, 70),
    (False, 60),
    *((windows, ms) for windows in (True, False) for ms in (10, 40, 100, 140)),
]


@pytest.mark.parametrize(
    ("windows", "after_ms"),
    [pytest.param(*each, marks=FULL if place else ()) for place, each in enumerate(MOMENTS)],
)
def test_several_inputs_whose_rows_come_in_another_order(windows: bool, after_ms: int) -> None:
    q, at, tables = united(windows)
    run = UpstreamRun(q, at, "s1", "s2", tables=tables, seed=after_ms)
    run.publish()
    run.until(lambda: fed(run) >= 100, "rows are fed")
    run.fed.run(for_us=after_ms * 1_000)
    run.take_over("m", "s1")
    run.doubled()


@pytest.mark.parametrize("kind", ["sliding", pytest.param("rows", marks=FULL)])
def test_whoever_is_read_is_lost_at_the_same_time(kind: str) -> None:
    q, at = query(kind)
    run = UpstreamRun(q, at, "s1", "s2")
    run.publish(0, 60)
    run.until(lambda: fed(run) >= 30, "rows are fed")
    run.publish(60, ROWS)
    run.fed.run(for_us=90_000)
    run.lose("e")
    run.take_over("m", "s1")
    run.doubled()


def test_rows_that_come_again_below_a_promise_are_no_error_in_the_log() -> None:
    """Whoever reads them had them from the owner before: an operator would take the word for a loss."""
    run = begun("tumbling")
    run.fed.run(for_us=60_000)
    run.take_over("m", "s1")
    assert run.doubled() > 0
    reader = run.fed.nodes["c"]
    said = [each for each in reader.reports if "below an earlier promise" in each.what]
    [hosted] = reader.brain.fragments.values()
    overdue = sum(input.overdue_rows for input in hosted.inputs.values())
    assert overdue == sum(each.fields["rows"] for each in said) > 0
    assert {each.level for each in said} == {"info"}


def restarted_reader(kind: str) -> UpstreamRun:
    """Who reads what is succeeded has died too, and comes back just before that happens."""
    run = begun(kind)
    run.fed.run(for_us=60_000)
    run.fed.nodes["c"].crash()
    run.lose("m")
    run.fed.run(for_us=WAIT_US - 200_000)
    run.fed.nodes["c"].start()
    run.until_owned(run.fragment, "s1")
    return run


def test_what_a_restarted_reader_makes_of_rows_that_come_again_has_other_numbers() -> None:
    run = restarted_reader("rows")
    run.doubled()
    [hosted] = run.fed.nodes["c"].brain.fragments.values()
    assert hosted.outputs["out"].skips


def test_a_publisher_with_a_name_goes_on() -> None:
    q, at = query("tumbling", whole=True)
    run = UpstreamRun(q, at, "s1", "s2")
    publisher = run.publishers["rows"]
    publisher.names["q.rows"] = "gauge"
    publisher.publish("q.rows", run.tables["rows"].slice(0, 0), run.schemas["rows"])
    run.until(lambda: (of := publisher.publication("q.rows")) is not None and of.begun, "it has its name")
    run.publish(0, 60)
    run.until(lambda: fed(run) >= 30, "rows are fed")
    run.publish(60, ROWS)
    run.fed.run(for_us=90_000)
    run.take_over("m", "s1")
    run.doubled()


def test_senders_keep_what_windows_need_and_nothing_that_is_fed_goes_to_who_stands_by() -> None:
    run = begun("sliding")
    went: list[int] = []

    def saw(tag: str, frames: list) -> None:
        message, payload = decode_frame(frames, peer="m")
        assert not (isinstance(message, Fed) and message.fragment == run.fragment)
        if isinstance(message, Piece) and message.fragment == run.fragment:
            went.append(len(payload or b""))

    run.fed.network.observe(saw)
    kept = 0
    while "q.out" not in run.reader.ended:
        run.fed.run(for_us=5_000)
        hosted = run.hosted(run.fragment)
        assert hosted is not None
        assert hosted.marks is not None
        [input] = hosted.inputs.values()
        held = [run.held(node).record for node in ("s1", "s2")]
        assert all(
            record is None or input.receiver.durable_seq <= record.inputs[0].next_seq for record in held
        )
        kept = max(kept, input.fed_seq - input.receiver.durable_seq)
    assert kept >= 30, "three seconds of rows"
    assert went
    assert max(went) < 4_000
    run.check()


def test_it_stays_where_it_is_and_as_it_is() -> None:
    run = begun("sliding", whole=True)
    assert moved(run, run.fragment, "s1").code == "E_STORE"
    splitter = run.fed.client("splitter", "m")
    number = splitter.mind.request(
        lambda number: Split(request=number, fragment=run.fragment, box="kind", parts=2)
    )
    splitter.do(lambda mind: None)
    reply, _ = run.fed.answer(splitter, number)
    assert reply.code == "E_STORE"


# --- what is refused ---------------------------------------------------------------------------------------


def of(make: Any) -> Any:
    q = md.Query("q")
    q.sink("out", make(q.source("rows", SCHEMA, time="ts")))
    return q.graph


REFUSED = {
    "running": lambda s: s.group_by("k").running(n=md.count(), name="kind"),
    "rows": lambda s: s.group_by("k").window_rows(3).aggregate(n=md.count(), name="kind"),
    "join": lambda s: s.filter("v > 1", name="a").join(
        s.filter("v < 1", name="b"), on="k", within="2s", name="kind"
    ),
    "distinct": lambda s: s.distinct("k", within="2s", name="kind"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_state_that_reaches_back_without_bound_is_refused(kind: str) -> None:
    found = refusal_of(of(REFUSED[kind]))
    assert found is not None
    assert "kind" in found[0]


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_is_not_refused(kind: str) -> None:
    assert refusal_of(query(kind)[0].graph) is None


@pytest.mark.parametrize("given", [{"idle": "1s"}, {"ahead": "1s"}, {"partition": "k"}])
def test_a_source_whose_late_rows_nobody_finds_again_is_refused(given: dict[str, str]) -> None:
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts", **given).filter("v > 1", name="some"))
    found = refusal_of(q.graph)
    assert found is not None
    assert next(iter(given)) in found[1]


def test_whoever_deploys_hears_the_box_the_reason_and_what_to_do() -> None:
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    q.sink("out", s.group_by("k").running(n=md.count(), name="totals"))
    with pytest.raises(AssertionError) as refused:
        UpstreamRun(upstream(q), {"e": ["rows", "first"], "m": ["totals", "out"]}, "s1")
    text = str(refused.value)
    assert "totals" in text
    assert "reaches back to rows of any age" in text
    assert 'method="passive_standby"' in text


def test_outputs_with_and_without_windows_behind_rows_that_may_come_again_are_refused() -> None:
    q = md.Query("q")
    s = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    some = s.filter("v > 3", name="some")
    q.sink("rows_out", some)
    q.sink("counts", some.window("1s").aggregate(n=md.count(), name="per"))
    assert has_both(q.graph)
    with pytest.raises(AssertionError, match="come again"):
        UpstreamRun(upstream(q), {"e": ["rows", "first"], "m": ["some", "rows_out", "per", "counts"]}, "s1")


def test_a_row_is_needed_until_its_last_window_has_left() -> None:
    def chain(s: Any) -> Any:
        per = s.window("2s", "1s").aggregate(n=md.count(), name="per")
        return per.window("5s").aggregate(n=md.sum("n"), name="again")

    reach = Reach(of(chain))
    # Its last window ends at 5 s, whose result has the time 4,999,999 and so is in the window up to 5 s.
    assert not reach.over({"rows": 3_500_000}, {"out": 4_999_999})
    assert reach.over({"rows": 3_500_000}, {"out": 5_000_000})
    assert not reach.over({"rows": 4_000_000}, {"out": 9_999_999})
    assert reach.over({}, {"out": 0})


# --- mistakes ----------------------------------------------------------------------------------------------

MISTAKES = {
    "senders are told of all that was fed": (
        edit(
            "nodes.upstream_backup.marks:Marks._add",
            "if place == 0 or self._reach.over(each.newest, boundaries)",
            "if True",
        ),
        lambda: test_nothing_is_missing_and_rows_come_again_at_most("sliding", True, 81),
    ),
    "windows that were closed leave again, in part": (
        edit("nodes.upstream_backup.warm_up:WarmUp._reached", "input is None or", "True or"),
        lambda: test_nothing_is_missing_and_rows_come_again_at_most("sliding", True, 81),
    ),
    "rows go on under the numbers of before": (
        edit("nodes.upstream_backup.marks:Marks._mark", "seq + JUMP", "seq"),
        lambda: test_several_inputs_whose_rows_come_in_another_order(False, 60),
    ),
    "a restarted reader goes on under the numbers of before": (
        edit(
            "nodes.fragment.host:FragmentHost._renumber",
            "if self.marks is None",
            "if True or self.marks is None",
        ),
        test_what_a_restarted_reader_makes_of_rows_that_come_again_has_other_numbers,
    ),
}
RARER = [*MISTAKES][2:]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=FULL if name in RARER else ()) for name in MISTAKES]
)
def test_a_mistake_is_noticed(name: str) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="upstream backup", about=name, edits=edits)), pytest.raises(AssertionError):
        notices()
