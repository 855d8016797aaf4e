"""A fragment that leaves rows out goes to a cluster: what was decided is left out there as here, and counted;
and once it is there nothing more is left out."""

from __future__ import annotations

import dataclasses
from functools import partial

import msgspec
import pytest

import medusa as md
from medusa.elements import Element, Shed
from medusa.engine.fragment import Fragment
from medusa.nodes.config.settings_spark import SparkRules
from medusa.query.boxes import Graph, Source
from medusa.query.boxes.shedding_rule import SheddingRule, ThinnedOutput
from medusa.runtime.machine.clock import SystemClock
from medusa.spark.overflow.remote_fragment import RemoteFragment
from medusa.spark.overflow.sharding import cutting
from medusa.wire.messages.move import Move
from tests.nodes.costly import CostlyRun
from tests.nodes.test_node_shedding import (
    PLACE,
    WORK,
    exact_alarms,
    exact_but_for_whole_windows,
    missing,
    over,
    roads,
    status,
)
from tests.overflow.in_process import InProcess
from tests.overflow.slow_triggers import SlowTriggers
from tests.overflow.test_away import Reached, drained, elements, shown, windows
from tests.overflow.test_participant import participant

OUT = (ThinnedOutput("out", md.QoS(loss=[(100, 1), (0, 0)])),)
RULES = {
    "random": SheddingRule(OUT),
    "value": SheddingRule(OUT, value=("v", ((-100.0, 0.0), (100.0, 1.0)))),
    "windows": SheddingRule(OUT, window_us=10_000_000),
}


def ruled(rule: SheddingRule) -> Graph:
    graph = windows().graph
    boxes = [
        msgspec.structs.replace(box, shed=rule) if isinstance(box, Source) else box for box in graph.boxes
    ]
    return msgspec.structs.replace(graph, boxes=tuple(boxes))


@pytest.mark.parametrize("lost", [set(), {1, 3}], ids=["whole", "lost"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("how", RULES)
def test_what_is_decided_is_left_out_there_too_and_counted(how: str, shards: int, lost: set[int]) -> None:
    """As a fragment that stays here: whoever drives it decides."""
    graph = ruled(RULES[how])
    assert (cutting(graph, shards) is None) == (shards == 1)
    feed: list[tuple[str, Element | Shed]] = [*elements(windows(), 3, trains=300)]
    for at, share_ppm in ((0, 600_000), (150, 300_000), (195, 0), (230, 500_000)):
        feed.insert(at, ("rows", Shed(share_ppm)))
    here, gone = Fragment(graph), Fragment(graph)
    for source, element in feed[:101]:
        for fragment in (here, gone):
            fragment.feed(source, element)
    assert here.ruled.take() == gone.ruled.take() > 0
    ours: Reached = {}
    theirs: Reached = {}
    assert shown(drained(here), ours) == shown(drained(gone), theirs)
    executor = InProcess()
    executor.fails = lost
    away = RemoteFragment(gone, executor, key="f", shards=shards, clock=SystemClock())
    shed: list[int] = []
    for begin in range(101, 221, 20):
        some = feed[begin : begin + 20]
        for source, element in some:
            away.give(source, element)
        for (source, element), answer in zip(some, away.trigger(), strict=True):
            here.feed(source, element)
            assert (answer.shed, answer.refused) == (here.ruled.take(), "")
            assert shown(answer.outputs, theirs) == shown(drained(here), ours)
            shed.append(answer.shed)
    assert sum(shed[:49]) > 0 < sum(shed[49:94])
    assert sum(shed[110:]) == 0, "a share of 0 ends it"
    home = Fragment.restore(graph, away.copying().files())
    for source, element in feed[221:]:
        for fragment in (here, home):
            fragment.feed(source, element)
        assert shown(drained(home), theirs) == shown(drained(here), ours)
    assert home.ruled.take() == here.ruled.take() > 0


def test_a_share_of_a_source_without_a_rule_is_refused_there_as_here() -> None:
    for shards in (1, 3):
        away = RemoteFragment(
            Fragment(windows().graph), InProcess(), key="f", shards=shards, clock=SystemClock()
        )
        away.give("rows", Shed(1))
        [answer] = away.trigger()
        assert "nothing ever is" in answer.refused


def test_a_fragment_that_leaves_rows_out_moves_to_a_cluster() -> None:
    run = CostlyRun(roads(), {"a": ["cars"], "b": ["work"]}, costly=["b"], names=["a", "b", "c"])
    node = run.fed.nodes["c"]
    node.make_host = partial(SlowTriggers, run.fed.world, participant("c"))
    node.settings = dataclasses.replace(node.settings, spark=SparkRules())
    node.crash("kept")
    node.restart()
    for sink in ("alarms", "report"):
        run.follows(sink, "a")
    run.publishes(2000, 8)
    assert run.hosted(WORK).thinning.shed_rows["cars"] > 0
    orderer = run.fed.client("orderer", "b")
    order = Move(request=0, fragment=WORK, to="c", timeout_ms=20_000)
    asked = orderer.ask(lambda mind: mind.request(lambda n: msgspec.structs.replace(order, request=n)))
    run.publishes(2000, 10)
    assert not orderer.take_reply(asked).code
    assert WORK in node.brain.fragments
    run.publishes(300, 2)
    soon = run.hosted(WORK).thinning.shed_rows["cars"]
    run.publishes(2000, 8)
    assert run.hosted(WORK).thinning.shed_rows["cars"] == soon, "nothing is left out there"
    assert "shedding" not in status(run, "c"), "nor could anything be"
    over(run, "alarms", "report")
    exact_but_for_whole_windows(run, soon)
    exact_alarms(run)
    assert missing(run, "report") == {PLACE: soon}
