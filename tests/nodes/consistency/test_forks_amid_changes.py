"""A fragment that forks is moved, split, removed, stopped, killed or taken over: only its forks go.

pub-a ── e ──┐
             ├── m: sunion, window ── n: out ── reader        s, w: others
pub-b ── f ──┘
"""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.nodes.reports import StopRequested
from medusa.runtime.engine_host.host import EngineHost
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Split
from tests.nodes.consistency.delayed_run import CHAIN, SCHEMA, DelayedRun, chain, second

NODES = ("e", "f", "m", "n", "s", "w")
AT = {"e": ["a", "fa"], "f": ["b", "fb"], "m": ["both", "counts"], "n": ["last", "out"]}


def query(**wishes: Any) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts").filter("v >= 0", name=f"f{name}") for name in "ab")
    both = md.sunion(a, b, bucket="100ms", name="both").window("500ms").group_by("k")
    counts = both.aggregate(n=md.count(), t=md.sum("v"), name="counts")
    q.sink("out", counts.filter("n > 0", name="last"), delay="2s", **wishes)
    return q


def begun(span_s: float = 16, **more: Any) -> DelayedRun:
    run = DelayedRun(query(**more), AT, names=NODES, read_at="n", span_us=second(span_s))
    run.begin()
    return run


def asked(run: DelayedRun, message: Any) -> Any:
    client = run.fed.client("asks", "m")
    number = client.ask(lambda mind: mind.request(lambda n: message(n)))
    reply, _ = run.fed.answer(client, number)
    return reply


def guessed_after(run: DelayedRun, count: float) -> bool:
    return any(at > run.begin_us + second(count) for at, _, _ in run.reader.guesses)


def test_who_has_nothing_to_fork_says_that_it_fails_and_the_next_one_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 9)
    run.ends()
    assert (run.forks("f"), run.forks("m"), run.forks("n")) == (0, 1, 1)
    assert run.late() == []


def test_a_node_is_cut_off() -> None:
    run = begun()
    run.cut("f", "m", 3, 9)
    run.ends()
    assert (run.forks("m"), run.forks("n")) == (1, 1)
    assert run.late() == []


def test_a_node_is_killed_and_comes_back_with_what_came_up_meanwhile() -> None:
    """Whoever reads it goes on without until it has caught up."""
    run = begun()
    run.at_second(3, run.fed.nodes["f"].crash)
    run.at_second(9, run.fed.nodes["f"].restart)
    run.ends()
    assert run.late() == []
    assert (run.forks("m"), run.forks("n")) == (1, 1)


@pytest.mark.parametrize(
    "way", [("m", "f"), pytest.param(("f", "m"), marks=[pytest.mark.full, pytest.mark.issue(19)])]
)
def test_only_one_way_is_cut(way: tuple[str, str]) -> None:
    """Who isn't heard sends nothing: that is as if it weren't there."""
    run = begun()
    run.at_second(3, lambda: run.fed.network.cut(*way))
    run.at_second(9, lambda: run.fed.network.heal(*way))
    run.ends()
    assert run.forks("m") == 1
    assert run.late() == []


def test_it_is_moved_while_it_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 11)
    run.run_to(6)
    assert run.forks("m") == 1
    reply = asked(run, lambda n: Move(request=n, fragment="q/both", to="s", timeout_ms=10_000))
    assert reply.code == "", reply
    run.run_to(10)
    assert run.forks("s") == 1, "the reason still stands"
    assert guessed_after(run, 8)
    run.ends()


@pytest.mark.full
@pytest.mark.issue(19)
def test_it_is_split_while_it_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 11)
    run.run_to(6)
    reply = asked(run, lambda n: Split(request=n, fragment="q/both", box="counts", parts=2))
    assert reply.code == "", reply
    run.run_to(10)
    assert guessed_after(run, 8)
    run.ends()


def test_its_query_is_removed_while_it_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 11)
    run.run_to(6)
    assert run.forks("m") == 1
    reply, _ = run.fed.answer(run.deployer, run.deployer.undeploy("q"))
    assert reply.code == "", reply
    run.fed.run(for_us=second(1))
    for node in run.fed.nodes.values():
        left = [name for name in node.loop._host._running if name]  # type: ignore[union-attr]
        assert left == [], node.name


def test_its_node_is_killed_while_it_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 11)
    run.at_second(6, run.fed.nodes["m"].crash)
    run.at_second(6.2, run.fed.nodes["m"].restart)
    run.run_to(10)
    assert guessed_after(run, 8), "it forks again"
    run.ends()


@pytest.mark.full
@pytest.mark.issue(19)
def test_its_node_stops_in_order_while_it_forks() -> None:
    run = begun()
    run.cut("pub-b", "f", 3, 11)
    run.run_to(6)
    node = run.fed.nodes["m"]
    node.order(lambda now_us: node.brain.report(now_us, StopRequested()))
    run.fed.run(lambda: node.brain.stopped, for_us=second(2))
    assert node.brain.stopped
    assert run.forks_of("m") == []
    node.crash()
    run.fed.nodes["m"].restart()
    run.ends()


def test_its_owner_is_lost_while_it_forks_and_a_secondary_goes_on() -> None:
    run = DelayedRun(query(), AT, names=NODES, read_at="n", span_us=second(18))
    request = run.deployer.deploy_guarded(run.q, AT, {"m": ("s",)}, ("w", "n"))
    reply, _ = run.fed.answer(run.deployer, request)
    assert reply.code == "", reply
    run.reader.read("q.out")
    run.fed.run(for_us=second(1))
    run.publish()
    run.cut("pub-b", "f", 3, 13)
    run.run_to(6)
    assert run.forks("m") == 1
    assert run.forks_of("m") == ["q/both#1"]
    assert run.forks_of("s") == [], "who follows shows nothing, and forks nothing"
    run.fed.nodes["m"].crash()
    run.run_to(12)
    assert run.forks("s") == 1
    assert guessed_after(run, 10)
    run.ends()


def test_a_reader_downstream_forks_anew_with_each_fork_of_its_sender() -> None:
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(20)).begin()
    run.cut("pub-b", "m", 3, 8)
    run.cut("pub-b", "m", 8.3, 13)
    run.ends()
    assert run.forks("m") == run.forks("n")
    assert run.late() == []


def test_there_is_no_room_for_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once, tried again and again, and shows once there is."""
    given = EngineHost._room_for_fork
    full = [True]

    def room(host: EngineHost, *about: Any) -> str:
        return "no room" if full[0] else given(host, *about)

    monkeypatch.setattr(EngineHost, "_room_for_fork", room)
    run = DelayedRun(chain(), CHAIN, read_at="n", span_us=second(16)).begin()
    run.cut("pub-b", "m", 3, 11)
    run.run_to(7)
    assert run.forks("m") >= 2
    assert run.reader.guesses == []
    assert ({*run.states}, run.reader.states[-1][1:]) == ({"up_failure", "failure"}, ("failure", 0))
    said = [line for line in run.fed.last().split("\n") if "no fork" in line]
    assert len(said) == 2, "once of each fragment"
    full[0] = False
    run.run_to(9)
    assert guessed_after(run, 7)
    run.ends()


def test_the_node_above_is_lost_for_long() -> None:
    """Its publisher is back at once when it is: nothing is missing from then on."""
    run = begun(18)
    run.at_second(3, run.fed.nodes["f"].crash)
    run.at_second(11, run.fed.nodes["f"].restart)
    run.ends()
    assert run.states == ["up_failure", "stabilization", "stable"]
    assert run.late() == []
