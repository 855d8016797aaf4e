"""``[delay] memory``: by how much a state may grow while an input is missing, and what rests beyond it."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import medusa as md
from medusa.errors import StateError
from medusa.nodes.config.settings_delay import DelayRules
from medusa.nodes.consistency.held_state import HeldState
from medusa.runtime.engine_host import host_disk
from tests.nodes.consistency.delayed_run import PAIR, SCHEMA, DelayedRun, pair, second

ABOVE = {"both": {"a", "b"}, "alone": {"b"}}
TOGETHER = {"a": {"a", "b"}, "b": {"a", "b"}}


def state(above: dict[str, set[str]] = {"both": {"a", "b"}}) -> HeldState:  # noqa: B006
    made = HeldState(100, above, TOGETHER)
    made.told(1000)
    return made


def test_what_meets_a_missing_source_rests_once_so_much_is_held() -> None:
    held = state()
    assert not held.look({"a"}, {"both"})
    held.fed(99)
    assert not held.look({"a"}, {"both"})
    held.fed(1)
    assert held.look({"a"}, {"both"})
    assert held.resting == {"b"}
    assert held.look((), ()), "it is back"
    assert held.resting == frozenset()


def test_what_the_engine_says_counts_and_what_was_fed_since() -> None:
    held = state()
    held.fed(1_000_000)
    held.told(1040)
    assert held.nbytes == 40
    held.fed(60)
    assert held.nbytes == 100
    held.told(900)
    assert held.nbytes == 0, "what was there before the failure isn't held for it"


def test_what_came_before_the_failure_does_not_count() -> None:
    held = state()
    held.told(5000)
    held.calm()
    held.told(5099)
    assert not held.look({"a"}, {"both"})


def test_a_source_that_leads_to_a_stream_which_goes_on_never_rests() -> None:
    held = state(ABOVE)
    held.fed(1000)
    assert not held.look({"a"}, {"both"})
    assert held.resting == frozenset()


def test_once_a_source_is_back_those_rest_that_are_ahead_of_it() -> None:
    """What isn't ahead, the box waits for: it would wait for ever."""
    held = HeldState(100, {"all": {"a", "b", "c"}}, {name: {"a", "b", "c"} for name in "abc"})
    held.told(0)
    held.fed(100)
    assert held.look((), {"all"}, {"a"}, {"a": 5, "b": 6, "c": 5})
    assert held.resting == {"b"}
    assert held.look((), {"all"}, {"a"}, {"a": 6, "b": 6, "c": 5})
    assert held.resting == frozenset()
    assert held.look({"c"}, {"all"}, {"a"}, {"a": 6, "b": 7, "c": 8})
    assert held.resting == {"a", "b"}, "one is missing"
    assert held.look((), {"all"}, {"a"}, {"b": 6, "c": 5})
    assert held.resting == frozenset(), "nobody knows where it stands"


# --- in a node ------------------------------------------------------------------------------------------


def cut_off(memory_bytes: int, q: md.Query, disk_bytes: int = 0) -> DelayedRun:
    """Rows are long, as the state grows by blocks."""
    rules = DelayRules(memory_bytes=memory_bytes, disk_bytes=disk_bytes)
    run = DelayedRun(q, PAIR, span_us=second(16), delay=rules)
    for source, rows in run.tables.items():
        long = pc.binary_repeat(rows.column("k"), 2000)
        run.tables[source] = rows.set_column(1, rows.schema.field("k"), long)
    run.want = md.collect(q, **run.tables)["out"]
    run.begin()
    run.cut("pub-b", "m", 3, 11)
    return run


def consistency(run: DelayedRun) -> dict[str, object]:
    node = run.fed.nodes["m"]
    [fragment] = node.brain.status(node.clock.monotonic_us())["fragments"]  # type: ignore[union-attr]
    return fragment["outputs"][0]["consistency"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("policies", [("process", "process"), ("delay", "suspend")])
def test_beyond_it_inputs_rest_and_status_says_so_until_all_is_corrected(policies: tuple[str, str]) -> None:
    run = cut_off(200_000, pair(md.Delay("2s", *policies)))
    run.run_to(10.5)
    said = consistency(run)
    assert said["suspended"] == ["q.a of pub-a"]
    assert int(said["held_bytes"]) >= 200_000  # type: ignore[call-overload]
    held = run.hosted("m").waiting()
    assert len(held) > 10, "it keeps its credit"
    run.ends()
    assert consistency(run)["suspended"] == []
    assert consistency(run)["held_bytes"] == 0
    assert run.hosted("m").waiting() == []


@pytest.mark.parametrize("policies", [("process", "process"), ("delay", "process")])
def test_with_room_on_disk_what_waits_goes_there_and_new_rows_go_on(policies: tuple[str, str]) -> None:
    run = cut_off(200_000, pair(md.Delay("2s", *policies)), disk_bytes=1 << 30)
    run.run_to(10.5)
    said = consistency(run)
    assert said["suspended"] == []
    hosted = run.hosted("m")
    assert hosted.rested.resting == {"a"}
    assert said["disk_bytes"] == hosted.rested.disk_bytes > 200_000
    assert len(hosted.waiting()) < 20, "their credit was given back, and their rows are on disk"
    assert int(said["behind_rows"]) >= 40 * 7  # type: ignore[call-overload]
    run.ends()
    assert run.late() == []
    assert hosted.rested.disk_bytes == 0
    assert consistency(run)["held_bytes"] == 0


def test_once_the_disk_has_as_much_as_it_may_the_rest_is_held_back_at_its_sender() -> None:
    run = cut_off(200_000, pair(), disk_bytes=100_000)
    run.run_to(10.5)
    assert consistency(run)["suspended"] == ["q.a of pub-a"]
    assert 100_000 <= run.hosted("m").rested.disk_bytes < 150_000
    assert len(run.hosted("m").waiting()) > 10, "it keeps its credit"
    run.ends()
    assert consistency(run)["suspended"] == []


@pytest.mark.parametrize("at_s", [8.0, 10.5, 11.2])
def test_what_waits_on_disk_is_asked_for_again_after_a_restart(at_s: float) -> None:
    run = cut_off(200_000, pair(), disk_bytes=1 << 30)
    run.run_to(at_s)
    run.fed.nodes["m"].crash()
    run.run_to(at_s + 0.2)
    run.fed.nodes["m"].start()
    run.ends()


def test_what_cannot_be_read_back_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = cut_off(200_000, pair(), disk_bytes=1 << 30)
    run.run_to(10.5)
    assert run.hosted("m").rested.disk_bytes > 0
    monkeypatch.setattr(host_disk, "read_segment", unreadable)
    run.run_to(11.5)
    monkeypatch.undo()
    run.ends()
    assert any("asked for again" in line for line in run.fed.world.lines)


def unreadable(*_: object) -> tuple[bytes, ...]:
    raise StateError("a bad sector")


def test_with_room_enough_nothing_rests() -> None:
    run = cut_off(4 << 20, pair())
    run.run_to(10.5)
    said = consistency(run)
    assert said["suspended"] == []
    assert 0 < int(said["held_bytes"]) < 4 << 20  # type: ignore[call-overload]
    assert run.hosted("m").waiting() == []
    run.ends()
    assert run.late() == []


def test_who_reads_another_output_of_the_fragment_is_not_held_up() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    counts = md.sunion(a, b, bucket="100ms", name="both").window("500ms").group_by("k")
    q.sink("out", counts.aggregate(n=md.count(), t=md.sum("v"), name="counts"), delay="2s")
    q.sink("alone", a.filter("v >= 0", name="some"))
    run = cut_off(200_000, q)
    run.run_to(10.5)
    assert consistency(run)["suspended"] == []
    assert run.hosted("m").waiting() == []
    run.ends()
