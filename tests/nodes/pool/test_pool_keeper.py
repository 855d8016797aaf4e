"""Which nodes a pool starts and lets go, over a cloud and queries whose truth is known."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.nodes.pool.pool_keeper import PoolAct, PoolKeeper, PoolRules, PoolView
from medusa.nodes.pool.provider import FixedList, ProvidedNode
from medusa.nodes.pool.warm_nodes import AdaptiveWarm, SteadyWarm, WarmPolicy
from medusa.wire.status_and_metrics import (
    FragmentStatus,
    NodesLackedStatus,
    NodeStatus,
    QueryStatus,
    ScalingStatus,
)
from tests.nodes.pool.simulated_cloud import SimulatedCloud

SECOND_US = 1_000_000
EVERY_US = 2 * SECOND_US
SPARES = ("s1", "s2", "s3", "s4")
RULES = PoolRules(idle_us=30 * SECOND_US, start_us=120 * SECOND_US)


def node(name: str, *, holds: bool = False) -> NodeStatus:
    fragments = (FragmentStatus(fragment=f"q/{name}", query="q"),) if holds else ()
    return NodeStatus(node=name, fragments=fragments)


def gate(lacks: int, *, nodes: tuple[str, ...] = SPARES) -> NodeStatus:
    """The node that coordinates the query."""
    lack = (
        NodesLackedStatus(count=lacks, for_us=5, why="w has too much to do", nodes=nodes) if lacks else None
    )
    return NodeStatus(node="gate", queries={"q": QueryStatus(scaling=ScalingStatus(lacks=lack))})


class Market:
    """A query that wants so many spares, a node that gives them out, a cloud, and a pool between.

    Attributes:
        held: spares that have a fragment.
        wanted: how many should.
    """

    def __init__(self, random: Random, *, warm: WarmPolicy | None = None, fails: float = 0.0) -> None:
        self.random = random
        self.cloud = SimulatedCloud(
            SPARES,
            random,
            start_us=(5 * SECOND_US, 40 * SECOND_US),
            stop_us=5 * SECOND_US,
            fails=fails,
        )
        self.keeper = PoolKeeper(SPARES, RULES, warm or SteadyWarm(0))
        self.now_us = 0
        self.held: set[str] = set()
        self.silent: set[str] = set()
        self.wanted = 0
        self.acts: list[PoolAct] = []

    def states(self) -> dict[str, str]:
        return {name: each.state for name, each in self.cloud.nodes(self.now_us).items()}

    def answering(self) -> list[str]:
        return [name for name, state in self.states().items() if state == "up" and name not in self.silent]

    def view(self) -> PoolView:
        up = self.answering()
        free = [name for name in up if name not in self.held]
        lacks = max(self.wanted - len(self.held) - len(free), 0)
        absent = tuple(name for name in SPARES if name not in up)
        return PoolView(
            statuses=[gate(lacks, nodes=absent), *(node(name, holds=name in self.held) for name in up)],
            placed={f"q/{name}": [name] for name in self.held},
            provided=self.cloud.nodes(self.now_us),
        )

    def given_out(self) -> None:
        """As the node with ``[scale]`` does."""
        free = [name for name in self.answering() if name not in self.held]
        while len(self.held) > self.wanted:
            self.held.remove(self.random.choice(sorted(self.held)))
        for name in free[: max(self.wanted - len(self.held), 0)]:
            self.held.add(name)

    def turn(self, *, silent: Collection[str] = (), late: bool = False) -> None:
        """One look. ``late``: what is given out now comes between the look and what is done after it."""
        self.silent = set(silent)
        self.now_us += EVERY_US
        if not late:
            self.given_out()
        acts = self.keeper.look(self.now_us, self.view())
        if late:
            self.given_out()
        assert len({act.node for act in acts}) == len(acts)
        for act in acts:
            self.acts.append(act)
            if act.what == "acquire":
                self.cloud.acquire(self.now_us, act.node)  # It refuses what is there, or on its way.
            elif not self.keeper.still_held(act.node, self.view()):
                assert act.node not in self.held, act
                self.cloud.release(self.now_us, act.node)

    def turns(self, seconds: int, **how: Any) -> None:
        for _ in range(seconds * SECOND_US // EVERY_US):
            self.turn(**how)


ways = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 40), st.sampled_from(["calm", "late", "silent", "breaks"])),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=30)
@given(ways, st.randoms(use_true_random=False), st.integers(0, 2), st.sampled_from([0.0, 0.4]))
def test_no_node_is_started_twice_or_ended_with_something_and_in_the_end_all_have_what_they_want(
    steps: list[tuple[int, int, str]], random: Random, warm: int, fails: float
) -> None:
    """Nodes are silent, machines are lost, and fragments come just as a node should go."""
    market = Market(random, warm=SteadyWarm(warm), fails=fails)
    for wanted, turns, what in steps:
        market.wanted = wanted
        for _ in range(turns):
            silent = {name for name in SPARES if what == "silent" and random.random() < 0.3}
            if what == "breaks" and random.random() < 0.1:
                market.cloud.breaks(market.now_us, random.choice(SPARES))
            market.turn(silent=silent, late=what == "late")
    market.cloud.heals()
    market.turns(2_400)
    up = {name for name, state in market.states().items() if state == "up"}
    assert len(market.held) == market.wanted
    assert market.held <= up, "what was lost with something in it is there again"
    market.wanted = 0
    market.turns(600)
    up = {name for name, state in market.states().items() if state == "up"}
    assert len(up) == warm
    before = len(market.acts)
    market.turns(120)
    assert market.acts[before:] == [], "nothing changes, so nothing is done"


def test_as_many_as_are_lacked_are_started_once_and_the_reason_is_told() -> None:
    market = Market(Random(1))
    market.wanted = 2
    market.turn()
    assert [(act.what, act.node) for act in market.acts] == [("acquire", "s1"), ("acquire", "s2")]
    assert market.acts[0].why == "query q lacks 2 nodes with room since 0.0 s: w has too much to do"
    market.turns(100)
    assert len(market.acts) == 2
    assert market.held == {"s1", "s2"}
    market.wanted = 1
    market.turns(100)
    [act] = market.acts[2:]
    assert act.what == "release"
    assert act.why == "it has had nothing for 30 s"
    assert "up: fragment" in market.keeper.explain()[next(iter(market.held))]


def test_who_is_kept_warm_is_there_at_once() -> None:
    """Without, the query waits for as long as a machine takes to come: with, not at all."""
    waits = {}
    for count in (0, 2):
        market = Market(Random(1), warm=SteadyWarm(count))
        market.turns(120)
        market.wanted = 2
        turns = 0
        while len(market.held) < 2:
            market.turn()
            turns += 1
        waits[count] = turns * EVERY_US
    assert waits[0] >= 5 * SECOND_US
    assert waits[2] == EVERY_US


def test_an_adaptive_pool_keeps_what_peaks_wanted_and_forgets_them() -> None:
    """Peaks of two every five minutes: the first one waits, those after it don't; then none for an hour."""
    warm = AdaptiveWarm(0, 3, start_us=40 * SECOND_US, within_us=1_200 * SECOND_US)
    market = Market(Random(3), warm=warm)
    market.turns(60)
    waited = []
    for _ in range(4):
        market.wanted, began_us = 2, market.now_us
        while len(market.held) < 2:
            market.turn()
        waited.append(market.now_us - began_us)
        market.turns(60)
        market.wanted = 0
        market.turns(240)
    assert waited[0] > 5 * SECOND_US
    assert waited[1:] == [EVERY_US] * 3
    market.turns(3_600)
    assert set(market.states().values()) == {"absent"}


def test_one_that_never_answers_is_given_up_and_another_is_taken() -> None:
    market = Market(Random(1))
    market.wanted = 1
    market.turns(140, silent={"s1"})
    assert [(act.what, act.node) for act in market.acts] == [
        ("acquire", "s1"),
        ("release", "s1"),
        ("acquire", "s2"),
    ]
    assert market.acts[1].why == "it didn't answer within 120 s"


def test_what_its_provider_refuses_rests_twice_as_long_each_time() -> None:
    keeper = PoolKeeper(["s1"], RULES, SteadyWarm(0))
    tried = []
    for second in range(100):
        now_us = second * SECOND_US
        for act in keeper.look(now_us, PoolView(statuses=[gate(1)])):
            tried.append(second)
            keeper.refused(now_us, act, "no machine is left")
    assert tried == [0, 10, 30, 70]
    assert keeper.explain()["s1"] == "not tried for 51 s: no machine is left"


def test_nobody_is_started_whom_the_query_may_not_use() -> None:
    keeper = PoolKeeper(SPARES, RULES, SteadyWarm(0))
    acts = keeper.look(0, PoolView(statuses=[gate(3, nodes=("s3", "x"))]))
    assert [act.node for act in acts] == ["s3"]
    assert keeper.short == "query q lacks 2 more (w has too much to do)"


def test_where_nobody_answers_nothing_is_done() -> None:
    keeper = PoolKeeper(SPARES, RULES, SteadyWarm(2))
    assert keeper.look(0, PoolView(statuses=[])) == []


def test_a_node_that_somebody_else_started_is_used_and_never_ended() -> None:
    keeper = PoolKeeper(SPARES, RULES, SteadyWarm(0))
    provided = FixedList(SPARES).nodes(0)
    for second in range(0, 600, 2):
        statuses = [gate(0), *(node(name) for name in SPARES)]
        view = PoolView(statuses=statuses, provided=provided if second % 4 else {})
        assert keeper.look(second * SECOND_US, view) == []
    assert "somebody else" in keeper.explain()["s1"]


def test_a_provider_that_notices_late_is_not_asked_twice() -> None:
    """For some seconds it says of what was acquired that it is absent, as an eventually consistent cloud."""
    keeper = PoolKeeper(["s1"], RULES, SteadyWarm(0))
    acts = []
    for second in range(30):
        state = "absent" if second < 6 else "starting"
        view = PoolView(statuses=[gate(1)], provided={"s1": ProvidedNode(state=state)})
        acts += keeper.look(second * SECOND_US, view)
    assert [act.what for act in acts] == ["acquire"]


def test_a_node_that_ended_with_something_is_started_again() -> None:
    keeper = PoolKeeper(SPARES, RULES, SteadyWarm(0))
    [act] = keeper.look(0, PoolView(statuses=[gate(0)], placed={"q/w-2": ["s2"]}))
    assert (act.what, act.node) == ("acquire", "s2")
    assert act.why == "fragment q/w-2 is there, and it isn't up"


def test_what_comes_just_as_a_node_should_go_keeps_it() -> None:
    """Between the look by which it should go and its end it is asked once more, and has something by then."""
    market = Market(Random(1))
    market.wanted = 1
    market.turns(100)
    market.wanted = 0
    market.turns(30)
    assert [act.what for act in market.acts] == ["acquire"]
    market.wanted = 1
    market.turn(late=True)
    assert [act.what for act in market.acts] == ["acquire", "release"]
    assert market.held == {"s1"}
    assert market.states()["s1"] == "up"
    market.wanted = 0
    market.turns(60)
    assert market.states()["s1"] == "absent", "later it goes all the same"
