"""What a node decides to leave out, by loads that the test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.shedding_plan import with_shedding
from medusa.nodes.shedding.node_shedder import NodeShedder
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Source
from medusa.wire.outbox import Outbox, ReportLine
from medusa.wire.status_and_metrics import SmoothedLoad

S = 1_000_000
LOOK_US = 250_000
SCHEMA = {"ts": "timestamp", "road": "int64", "speed": "float64"}
RULES = LoadRules(high=0.9, low=0.7, high_for_us=S, low_for_us=3 * S)
CHEAP = md.QoS(loss=[(100, 1), (20, 0.95), (0, 0)])
DEAR = md.QoS(loss=[(100, 1), (80, 0.1), (0, 0)])


@dataclass
class Hosted:
    """A fragment, as its node's shedder sees it: so many rows come and wait."""

    spec: FragmentSpec
    shares: dict[str, int] = field(default_factory=dict)
    came: int = 0
    waits: int = 0
    pressed: bool = False
    told: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def rules(self) -> dict[str, Any]:
        return {box.id: box.shed for box in self.spec.graph.boxes if isinstance(box, Source) and box.shed}

    @property
    def may_shed(self) -> bool:
        return bool(self.rules)

    @property
    def inputs(self) -> dict[Any, Any]:
        receiver = SimpleNamespace(next_seq=self.came)
        return {(source, "p"): SimpleNamespace(source=source, receiver=receiver) for source in self.rules}

    @property
    def thinning(self) -> Any:
        return SimpleNamespace(shed_rows={})

    def sheds(self, source: str) -> bool:
        return source in self.rules

    def waiting_rows(self, source: str) -> int:
        return self.waits

    def press(self, pressed: bool) -> None:
        self.pressed = pressed

    def shed(self, now_us: int, source: str, share_ppm: int) -> bool:
        self.shares[source] = share_ppm
        self.told.append((now_us, source, share_ppm))
        return True


class Node:
    """Fragments of which each row takes so long, by name."""

    def __init__(self, costs_us: Mapping[str, float], **worth: md.QoS) -> None:
        self.costs_us = costs_us
        self.hosted: dict[str, Any] = {}
        for name in costs_us:
            q = md.Query(name)
            q.sink("out", q.source("cars", SCHEMA, time="ts").filter("speed > 0", name="f"), qos=worth[name])
            (spec,) = with_shedding(cut(q.graph, {"n": ["cars"]}), q.graph).fragments
            self.hosted[spec.name] = Hosted(spec, {"cars": 0})
        self.own: set[str] = set(self.hosted)
        self.may_take = False
        self.outbox = Outbox()
        self.busy_share, self.engine_share = 0.5, 0.5
        self.now_us = 0
        self.shedder = NodeShedder(
            "n",
            RULES,
            self.hosted,
            self,  # type: ignore[arg-type]
            own=lambda: self.own,
            others_may_take=lambda since_us: self.may_take,
            outbox=self.outbox,
        )

    def forbid(self) -> None:
        """``[load] shed = false``."""
        shedder = self.shedder
        self.shedder = NodeShedder(
            "n",
            LoadRules(shed=False),
            self.hosted,
            self,  # type: ignore[arg-type]
            own=lambda: self.own,
            others_may_take=lambda since_us: False,
            outbox=self.outbox,
        )
        assert shedder.wake_at_us() is not None
        assert self.shedder.wake_at_us() is None

    def boxes(self, fragment: str) -> dict[str, SmoothedLoad]:
        cost_us = self.costs_us[fragment.partition("/")[0]]
        figures = {"rows_in_per_s": 1.0, "rows_out_per_s": 1.0, "busy_share": 0.0, "selectivity": 1.0}
        return {
            id: SmoothedLoad(**figures, cost_us=cost_us if id == "f" else 0.0) for id in ("cars", "f", "out")
        }

    def looks(self, rate: float, seconds: float, *, waits: int = 0) -> None:
        """So many rows a second come to each for so long, and so many wait."""
        for _ in range(round(seconds * S / LOOK_US)):
            self.now_us += LOOK_US
            for each in self.hosted.values():
                each.came += round(rate * LOOK_US / S)
                each.waits = waits
            self.shedder.tick(self.now_us)

    def shares(self) -> dict[str, float]:
        return {name.partition("/")[0]: each.shares["cars"] / 1e6 for name, each in self.hosted.items()}

    def said(self) -> list[str]:
        return [each.what for each in self.outbox.take() if isinstance(each, ReportLine)]


@given(st.floats(1.0, 20.0), st.floats(100, 2000), st.integers(0, 500))
@settings(max_examples=60, deadline=None)
def test_what_is_left_is_what_can_be_done(times: float, cost_us: float, waits: int) -> None:
    """Of what comes and waits as much is left out as is too much, within the step in which shares are
    told."""
    node = Node({"q": cost_us}, q=CHEAP)
    rate = times * 1e6 / cost_us
    node.looks(rate, 12, waits=waits)
    kept = 1 - node.shares()["q"]
    work = rate * cost_us / 1e6 + waits * cost_us / 1e6
    assert kept * work == pytest.approx(min(work, 0.9 + 0.25), abs=0.03 * work + 0.02)


def test_the_output_that_loses_least_goes_first() -> None:
    node = Node({"cheap": 500, "dear": 500}, cheap=CHEAP, dear=DEAR)
    node.looks(1200, 12)  # 1.2 of what can be done
    shares = node.shares()
    assert shares["dear"] == 0
    assert shares["cheap"] > 0
    node.looks(4000, 12)  # 4 times as much: what one output is worth doesn't suffice
    shares = node.shares()
    assert shares["cheap"] > shares["dear"] > 0


def test_nothing_is_left_out_while_somebody_may_take_it_and_nothing_of_others() -> None:
    node = Node({"mine": 1000, "guest": 1000}, mine=CHEAP, guest=CHEAP)
    guest = node.hosted["guest/cars"]
    node.own, node.may_take = {"mine/cars"}, True
    guest.shares = {}
    node.looks(3000, 6)
    assert node.said() == []
    assert node.shares() == {"mine": 0, "guest": 0}
    assert [share for _, _, share in guest.told] == [0], "what its owner left out isn't left out here"
    status = node.shedder.status(node.now_us)
    assert (status.waits_for_others, status.shedding_us, status.kept) == (True, None, 1.0)
    assert [each.fragment for each in status.sources] == ["mine/cars"]
    node.may_take = False
    node.looks(3000, 1)
    assert node.said() == ["rows are left out: too much comes"]
    node.may_take = True  # Somebody takes some: meanwhile it goes on.
    node.looks(3000, 6)
    assert node.shares()["mine"] > 0.5
    assert node.shares()["guest"] == 0


def test_what_was_too_much_is_forgotten_with_the_last_fragment_of_which_rows_may_be_left_out() -> None:
    """It moves away while rows are left out, and another one comes later."""
    node = Node({"q": 1000, "r": 100}, q=CHEAP, r=CHEAP)
    gone, later = node.hosted.pop("q/cars"), node.hosted.pop("r/cars")
    node.hosted["q/cars"] = gone
    node.looks(3000, 6)
    assert gone.shares["cars"] > 0
    del node.hosted["q/cars"]
    node.looks(0, 1)
    assert node.said() == ["rows are left out: too much comes", "nothing is left out any more"]
    node.hosted["r/cars"], node.may_take = later, True
    node.looks(10_000, 0.75)  # too much, and not for long enough
    assert node.shedder.status(node.now_us).shedding_us is None
    node.looks(10_000, 5)
    assert node.said() == [], "partners come first, once more"
    assert later.shares["cars"] == 0
    node.may_take = False
    node.looks(20_000, 1)
    assert node.said() == ["rows are left out: too much comes"]


@given(
    st.lists(
        st.tuples(st.integers(1, 24), st.sampled_from([100, 600, 800, 950, 3000])), min_size=1, max_size=30
    )
)
@settings(max_examples=60, deadline=None)
def test_nobody_thrashes(days: list[tuple[int, int]]) -> None:
    """Two changes of the verdict are at least the time of the second one's mark apart, whatever comes; and
    between the marks nothing is told anew."""
    node = Node({"q": 1000}, q=CHEAP)
    changes: list[tuple[int, bool]] = []
    for looks, rate in days:
        for _ in range(looks):
            node.looks(rate, 0.25)
            changes += [(node.now_us, "more" not in each) for each in node.said()]
    for (before, _), (at, over) in pairwise(changes):
        assert at - before >= (RULES.high_for_us if over else RULES.low_for_us)
    assert [over for _, over in changes] == [place % 2 == 0 for place in range(len(changes))]


def test_a_node_that_is_told_not_to_leaves_nothing_out() -> None:
    node = Node({"q": 1000}, q=CHEAP)
    node.forbid()
    node.looks(5000, 20)
    assert node.said() == []
    assert node.shares() == {"q": 0}


def test_constant_load_ends_in_no_more_decisions() -> None:
    node = Node({"q": 1000}, q=CHEAP)
    node.looks(3000, 30)
    told = len(node.hosted["q/cars"].told)
    node.looks(3000, 60)
    assert len(node.hosted["q/cars"].told) == told
    assert node.hosted["q/cars"].pressed
    node.looks(100, 30)
    assert node.shares() == {"q": 0}
    assert not node.hosted["q/cars"].pressed


def test_a_fragment_that_reads_another_one_here_is_one_with_it() -> None:
    """What is left out before the first isn't done by the second either: one share suffices."""
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts")
    q.sink("out", cars.filter("speed > 0", name="f").filter("speed > 1", name="g"), qos=CHEAP)
    plan = with_shedding(cut(q.graph, {"m": ["cars"], "n": ["f"], "o": ["g"]}), q.graph)
    first, second = (each for each in plan.fragments if each.node in "no")
    feeds = tuple(msgspec.structs.replace(each, node="n") for each in second.feeds)
    node = Node({"q": 500}, q=CHEAP)
    node.hosted.clear()
    node.hosted |= {
        first.name: Hosted(first, {"cars": 0}),
        second.name: Hosted(msgspec.structs.replace(second, node="n", feeds=feeds), {"f": 0}),
    }
    node.own = set(node.hosted)
    node.boxes = lambda fragment: {  # type: ignore[method-assign]
        id: SmoothedLoad(
            rows_in_per_s=1.0, rows_out_per_s=1.0, busy_share=0.0, selectivity=1.0, cost_us=500.0
        )
        for id in ("f", "g")
        if (id == "f") == (fragment == first.name)
    }
    for _ in range(40):
        node.looks(2000, 0.25)
    kept = [1 - share / 1e6 for each in node.hosted.values() for share in each.shares.values()]
    assert 1.0 * kept[0] + 1.0 * kept[0] * kept[1] == pytest.approx(1.15, abs=0.06)
    assert node.shedder.work == pytest.approx(2.0, abs=0.05)
