"""What a node would order next so that a box runs in as many parts as it should, of views made by hand."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from medusa.nodes.scaling.measured_boxes import BoxPart, BoxWork, measured_boxes
from medusa.nodes.scaling.next_step import NoStep, ScaleGoal, ScaleOrder, crowded, next_step
from medusa.nodes.scaling.policy import Resize, ScaleRules
from medusa.nodes.scaling.query_scaler import QueryScaler, rules_of
from medusa.nodes.scaling.split_sets import SplitSet, split_sets
from medusa.nodes.scaling.under_way import under_way
from medusa.wire.messages.commands import Reply
from medusa.wire.outbox import Outbox, ReportLine
from medusa.wire.status_and_metrics import (
    SEEDING,
    BoxStatus,
    ComingStatus,
    DoubtfulStatus,
    DoubtStatus,
    FragmentStatus,
    GoingStatus,
    MovesStatus,
    NodeStatus,
    ReplicasStatus,
    SecondaryStatus,
    SmoothedLoad,
    SplitStatus,
    StatelessStatus,
)
from tests.nodes.scaled import LOAD, SCALE, SECOND_US

RULES = ScaleRules()
MORE = ScaleGoal(box="w", parts=4, grows=True, why="")
ONE = ScaleGoal(box="w", parts=1, grows=False, why="")
IDLE = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}


def part(box: str, node: str, work: float | None, *, is_alone: bool = True) -> BoxPart:
    return BoxPart(node=node, fragment=f"q/{box}", box=box, is_alone=is_alone, work=work)


def whole(*parts: BoxPart) -> BoxWork:
    return BoxWork(id="w", parts=parts)


def a_set(*parts: BoxPart, box: str = "w", home: str = "a", merge: str = "a") -> SplitSet:
    router, out = f"q/{box}-router", f"q/{box}-out"
    return SplitSet(box=box, home=home, router=router, parts=parts, merges=((merge, out),))


# --- more -------------------------------------------------------------------------------------------


def test_one_box_is_split_at_once_in_as_many_parts_as_are_wanted_and_as_nodes_have_room() -> None:
    box = whole(part("w", "a", 1.9, is_alone=False))
    step = next_step(MORE, box, [], IDLE, RULES)
    assert step == ScaleOrder(what="split", node="a", fragment="q/w", box="w", parts=4)
    assert step.text == "split w in 4 at a"
    few = next_step(MORE, box, [], {"a": 0.9, "b": 0.1, "c": 0.65, "d": 0.7}, RULES)
    assert isinstance(few, ScaleOrder)
    assert few.parts == 2, "in three each would need two thirds of a thread, and only b has that"
    none = next_step(MORE, box, [], {"a": 0.9, "c": 0.65}, RULES)
    assert isinstance(none, NoStep)
    assert "no node has room for half of w" in none.why
    assert not none.passes


def test_of_parts_the_one_with_most_to_do_is_split_again_and_nothing_is_merged_before() -> None:
    box = whole(part("w-1", "a", 0.8), part("w-2", "b", 0.9))
    step = next_step(MORE, box, [a_set(*box.parts)], IDLE, RULES)
    assert step == ScaleOrder(what="split", node="b", fragment="q/w-2", box="w-2", parts=2)
    done = next_step(dataclasses.replace(MORE, split=True), box, [], IDLE, RULES)
    assert done == NoStep(), "one split for each decision"


def test_after_a_split_each_part_goes_to_the_emptiest_node_that_has_none() -> None:
    split = dataclasses.replace(MORE, split=True)
    box = whole(part("w-1", "a", None), part("w-2", "a", None), part("w-3", "a", None))
    rooms = {"a": 0.9, "b": 0.2, "c": 0.1, "d": 0.8}
    step = next_step(split, box, [], rooms, RULES)
    assert step == ScaleOrder(what="move", node="a", fragment="q/w-3", box="w-3", to="c")
    box = whole(part("w-1", "a", None), part("w-2", "a", None), part("w-3", "c", 0.5))
    assert next_step(split, box, [], rooms, RULES).to == "b"
    refused = next_step(dataclasses.replace(split, refused=("b",)), box, [], rooms, RULES)
    assert isinstance(refused, NoStep)
    assert "stay together" in refused.why


def test_a_part_that_stands_with_other_boxes_stays_and_others_leave_it() -> None:
    split = dataclasses.replace(MORE, split=True)
    box = whole(part("w-1", "a", 0.4, is_alone=False), part("w-2", "a", 0.4))
    assert next_step(split, box, [], IDLE, RULES).box == "w-2"
    box = whole(part("w-1", "a", 0.4), part("w-2", "a", 0.4, is_alone=False))
    assert next_step(split, box, [], IDLE, RULES).box == "w-1"


@pytest.mark.parametrize(("busy", "room", "are"), [(0.4, 0.2, True), (0.4, 0.4, False), (0.3, 0.0, False)])
def test_parts_that_were_left_together_are_crowded_if_it_is_too_much_and_there_is_room(
    busy: float, room: float, are: bool
) -> None:
    box = whole(part("w-1", "a", busy), part("w-2", "a", busy))
    assert crowded(box, {"a": 0.9, "b": room}, RULES) is are


# --- fewer ------------------------------------------------------------------------------------------


def test_parts_come_to_the_node_of_the_router_one_by_one_and_are_merged_there() -> None:
    parts = [part("w-1", "a", 0.1), part("w-2", "b", 0.1), part("w-3", "c", 0.1)]
    orders = []
    for _ in range(3):
        step = next_step(ONE, whole(*parts), [a_set(*parts)], IDLE, RULES)
        assert isinstance(step, ScaleOrder)
        orders.append(step)
        parts = [dataclasses.replace(each, node="a") if each.box == step.box else each for each in parts]
    assert [each.text for each in orders] == ["move w-2 from b to a", "move w-3 from c to a", "merge w at a"]
    assert orders[-1].fragment == "q/w-router"


def test_the_merge_comes_to_the_router_too() -> None:
    parts = [part("w-1", "a", 0.1), part("w-2", "a", 0.1)]
    step = next_step(ONE, whole(*parts), [a_set(*parts, merge="b")], IDLE, RULES)
    assert step == ScaleOrder(what="move", node="b", fragment="q/w-out", box="w", to="a")


def test_nothing_is_merged_that_would_be_too_much_for_one_node() -> None:
    parts = [part("w-1", "a", 0.3), part("w-2", "b", 0.3)]
    loaded = next_step(ONE, whole(*parts), [a_set(*parts)], IDLE, RULES)
    assert isinstance(loaded, NoStep)
    assert "0.60 of a thread" in loaded.why
    assert loaded.measured
    light = [dataclasses.replace(each, work=0.2) for each in parts]
    full = next_step(ONE, whole(*light), [a_set(*light)], IDLE | {"a": 0.6}, RULES)
    assert full == NoStep(why="node a has no room for w as one", measured=True)
    unknown = [parts[0], dataclasses.replace(parts[1], work=None)]
    step = next_step(ONE, whole(*unknown), [a_set(*unknown)], IDLE, RULES)
    assert isinstance(step, NoStep)
    assert step.passes, "what a part does that has just moved nobody knows yet"


def test_of_parts_of_parts_the_inner_ones_are_merged_first_and_no_more_than_should_be() -> None:
    inner, outer = [part("w-1-1", "b", 0.1), part("w-1-2", "c", 0.1)], part("w-2", "d", 0.2)
    sets = [a_set(*inner, box="w-1", home="b")]
    box = whole(outer, *inner)
    two = dataclasses.replace(ONE, parts=2)
    assert next_step(two, box, sets, IDLE, RULES).text == "move w-1-2 from c to b"
    four = whole(*(part(f"w-{n}", node, 0.2) for n, node in enumerate("abcd", start=1)))
    step = next_step(two, four, [a_set(*four.parts)], IDLE, RULES)
    assert step == NoStep(why="4 parts of w become one again, and 2 are wanted", fails=False)


def test_parts_that_stand_together_become_one_unless_they_would_be_parted_again() -> None:
    """Those that don't are no longer gathered by then: see above."""
    for work, merges in ((0.3, True), (0.36, False)):
        parts = [part("w-1", "a", work), part("w-2", "a", work)]
        step = next_step(ONE, whole(*parts), [a_set(*parts)], IDLE, RULES)
        assert (isinstance(step, ScaleOrder) and step.what == "merge") is merges
        assert crowded(whole(*parts), IDLE, RULES) is not merges


def test_nothing_is_moved_to_be_merged_where_a_part_can_not_come() -> None:
    parts = [part("w-1", "a", 0.1), part("w-2", "b", 0.1), part("w-3", "c", 0.1, is_alone=False)]
    step = next_step(ONE, whole(*parts), [a_set(*parts)], IDLE, RULES)
    assert isinstance(step, NoStep)
    assert "w-3 stands with other boxes at c" in step.why


# --- what nodes tell --------------------------------------------------------------------------------


def figures(kind: str, came: float = 100, busy: float = 0.1) -> BoxStatus:
    return BoxStatus(
        kind=kind, smoothed=SmoothedLoad(rows_in_per_s=came, rows_out_per_s=came, busy_share=busy)
    )


def fragment(name: str, arcs: Any = (), **boxes: str) -> FragmentStatus:
    of = {id.replace("_", "-"): figures(kind) for id, kind in boxes.items()}
    return FragmentStatus(fragment=f"q/{name}", query="q", boxes=of, arcs=tuple(arcs))


def split_twice() -> list[NodeStatus]:
    """``w`` in two parts, the first of them in two again."""
    routers = [("w-router", "", "w-router-out"), ("w-router", "1", "w-router-1-out")]
    inner = [("w-1-router", "", "w-1-router-out"), ("w-1-router", "1", "w-1-router-1-out")]
    return [
        NodeStatus(
            node="a",
            fragments=(
                fragment("w-router", routers, w_router="key_router", w_router_out="sink"),
                fragment("w-1-router", inner, w_1_router="key_router"),
                fragment("w-1-1", w_1_router="source", w_1_1="aggregate", w_1_1_out="sink"),
                fragment("w-1-out", w_1="ordered_merge", w_1_1="source", w_1_2="source"),
                fragment("w-out", w="ordered_merge", w_1="source", w_2="source", last="filter"),
            ),
        ),
        NodeStatus(node="b", fragments=(fragment("w-1-2", w_1_2="aggregate"),)),
        NodeStatus(node="c", fragments=(fragment("w-2", w_2="aggregate"),)),
    ]


def test_a_box_whose_part_is_split_again_is_one_box() -> None:
    """It was two: of ``w-1`` and of what was left of ``w``."""
    measured = measured_boxes(split_twice(), "q")
    assert {id: sorted(p.box for p in of.parts) for id, of in measured.items()} == {
        "last": ["last"],
        "w": ["w-1-1", "w-1-2", "w-2"],
    }
    assert all(each.is_alone for each in measured["w"].parts)
    assert not measured["last"].parts[0].is_alone


def test_parts_to_which_nothing_comes_have_nothing_to_do_and_of_new_ones_nobody_knows() -> None:
    idle = BoxStatus(kind="aggregate", smoothed=SmoothedLoad())
    new = BoxStatus(kind="aggregate")
    boxes = {"w-1": idle, "w-2": new, "w-router": figures("key_router")}
    at_rest = FragmentStatus(fragment="q/w", query="q", boxes=boxes)
    waits = FragmentStatus(fragment="q/w", query="q", boxes=boxes, queue_bytes=1)

    def work(fragment: FragmentStatus, **more: Any) -> dict[str, float | None]:
        of = measured_boxes([NodeStatus(node="a", fragments=(fragment,))], "q", **more)
        return {part.box: part.work for part in of["w"].parts}

    assert work(at_rest, rests=0.0) == {"w-1": 0.0, "w-2": None}
    assert work(waits, rests=0.0) == {"w-1": None, "w-2": None}
    assert work(at_rest) == {"w-1": None, "w-2": None}, "advice says that nothing came"


def test_only_what_is_whole_and_not_split_again_can_be_merged() -> None:
    statuses = split_twice()
    [only] = split_sets(statuses, "q", measured_boxes(statuses, "q"))
    assert (only.box, only.home, only.router) == ("w-1", "a", "q/w-1-router")
    assert [each.node for each in only.parts] == ["a", "b"]
    assert only.merges == (("a", "q/w-1-out"),)
    without = [statuses[0], statuses[2]]
    assert split_sets(without, "q", measured_boxes(without, "q")) == []


SEEDED = ReplicasStatus(owner="a", secondaries={"b": SecondaryStatus(state=SEEDING)})
BUSY = {
    "split": NodeStatus(node="a", splits=(SplitStatus(box="q/w", fragments=("q/w",)),)),
    "going": NodeStatus(node="a", moves=MovesStatus(going={"q/w": GoingStatus(to="b")})),
    "coming": NodeStatus(node="b", moves=MovesStatus(coming={"q/w": ComingStatus(origin="a")})),
    "seeding": NodeStatus(node="a", fragments=(FragmentStatus(fragment="q/w", query="q", replicas=SEEDED),)),
    "failed": NodeStatus(node="a", fragments=(FragmentStatus(fragment="q/w", query="q", failed="why"),)),
    "stateless": NodeStatus(node="a", without_state={"q/w": StatelessStatus(query="q", epoch=2, owner="a")}),
    "doubt": NodeStatus(node="a", in_doubt=DoubtStatus(fragments={"q/w": DoubtfulStatus(query="q")})),
}


@pytest.mark.parametrize("what", BUSY)
def test_whatever_is_done_with_a_fragment_of_the_query_is_waited_for(what: str) -> None:
    assert under_way([NodeStatus(node="x"), BUSY[what]], "q")
    assert under_way([BUSY[what]], "other") == ""


# --- one query --------------------------------------------------------------------------------------


class Looks:
    """A scaler that looks once a second."""

    def __init__(self, policy: Any = None) -> None:
        self.outbox = Outbox()
        self.policy = _Always() if policy is None else policy
        self.scaler = QueryScaler(0, "q", SCALE, self.policy, self.outbox, half_life_us=LOAD.half_life_us)
        self.second = 0
        self._lines: list[str] = []

    def look(
        self, *statuses: NodeStatus, silent: tuple[str, ...] = (), rooms: Any = None
    ) -> ScaleOrder | None:
        self.second += 1
        return self.scaler.look(self.second * SECOND_US, statuses, silent, IDLE if rooms is None else rooms)

    def answer(self, code: str = "", text: str = "") -> None:
        self.scaler.answered(self.second * SECOND_US, Reply(request=1, code=code, text=text))

    def told(self, what: str) -> int:
        """How often that was reported."""
        lines = [each.what for each in self.outbox.take() if isinstance(each, ReportLine)]
        self._lines.extend(lines)
        return self._lines.count(what)

    def said(self) -> str:
        return self.scaler.status(self.second * SECOND_US).text


class _Always:
    """A policy that wants one part more, each time."""

    def look(self, now_us: int, work: Any, parts: Any) -> Any:
        return tuple(Resize(box=box, parts=parts[box] + 1, why="it is so") for box in parts)


def one_node(busy: float = 0.9) -> NodeStatus:
    boxes = {"s": figures("source", busy=0), "w": figures("aggregate", busy=busy)}
    return NodeStatus(
        node="a",
        fragments=(FragmentStatus(fragment="q/w", query="q", boxes=boxes, arcs=(("s", "", "w"),)),),
    )


def test_one_order_at_a_time_and_none_while_something_else_is_done() -> None:
    looks = Looks()
    busy = NodeStatus(node="b", moves=MovesStatus(coming={"q/x": ComingStatus(origin="a")}))
    assert looks.look(one_node(), busy) is None
    assert "is being moved" in looks.said()
    assert looks.look(one_node(), silent=("b",)) is None
    assert "no answer from b" in looks.said()
    order = looks.look(one_node())
    assert order is not None
    assert looks.look(one_node()) is None, "one is under way"
    assert f"under way: {order.text}" in looks.said()


def test_what_is_refused_rests_twice_as_long_each_time_and_is_told() -> None:
    looks = Looks()
    rests = []
    for _ in range(3):
        while looks.look(one_node()) is None:
            pass
        begun = looks.second
        looks.answer("E_MEMORY", "no room")
        assert "w stays as it is" in looks.said()
        assert "no room (E_MEMORY)" in looks.said()
        rests.append(begun)
    assert [then - before for before, then in pairwise(rests)] == [3, 6]


def test_what_is_refused_just_now_is_ordered_again_and_not_for_ever() -> None:
    looks = Looks()
    for _ in range(6):
        assert looks.look(one_node()) is not None
        looks.answer("E_BUSY", "in a moment")
    assert looks.look(one_node()) is None


def test_a_box_that_holds_no_keys_yet_is_split_by_even_ranges() -> None:
    looks = Looks()
    order = looks.look(one_node())
    assert order is not None
    assert order.ranges == "weight"
    looks.answer("query.split", "it holds no keys yet by which ranges could be weighed")
    again = looks.look(one_node())
    assert again == dataclasses.replace(order, ranges="even")
    looks.answer("query.split", "apply can't be split: its columns are its own")
    assert looks.look(one_node()) is None
    assert "its columns are its own" in looks.said()


class _Wants:
    """A policy that wants ``w`` in so many parts, each time; None: as it is."""

    def __init__(self, parts: int | None) -> None:
        self.parts = parts

    def look(self, now_us: int, work: Any, parts: Any) -> Any:
        if "w" not in parts or self.parts is None:
            return ()
        return (Resize(box="w", parts=self.parts, why="it is so"),)


def in_parts(*nodes: str, busy: float) -> list[NodeStatus]:
    """``w`` in parts at these nodes, its router and its merge at ``a``."""
    count = len(nodes)
    arcs = [("w-router", str(n), f"w-router-{n}-out") for n in range(count)]
    boxes = [(node, f"w-{n}", figures("aggregate", busy=busy)) for n, node in enumerate(nodes, start=1)]
    ends = (
        fragment("w-router", arcs, w_router="key_router"),
        fragment("w-out", w="ordered_merge"),
    )
    return [
        NodeStatus(
            node=name,
            fragments=(
                *(ends if name == "a" else ()),
                *(
                    FragmentStatus(
                        fragment=f"q/{id}",
                        query="q",
                        boxes={"s": figures("source", busy=0), id: box},
                        arcs=(("s", "", id),),
                    )
                    for node, id, box in boxes
                    if node == name
                ),
            ),
        )
        for name in sorted({"a", *nodes})
    ]


def gathered() -> Looks:
    """Two parts have come together, to be merged."""
    looks = Looks(_Wants(1))
    order = looks.look(*in_parts("a", "b", busy=0.1))
    assert order is not None
    assert order.text == "move w-2 from b to a"
    looks.answer()
    looks.policy.parts = None
    return looks


def test_what_is_measured_soon_after_a_move_is_no_reason_to_stop_gathering() -> None:
    """It was: parts that had come together were parted again, moved together again, and so on."""
    looks = gathered()
    assert looks.look(*in_parts("a", "a", busy=0.5)) is None, "what waited meanwhile is made up for"
    assert "has to follow the last change: parts of w have 1.00 of a thread" in looks.said()
    assert looks.look(*in_parts("a", "a", busy=0.4)) is None
    order = looks.look(*in_parts("a", "a", busy=0.3))
    assert order is not None
    assert order.text == "merge w at a"
    assert looks.told("not scaled") == 0


def test_a_load_that_has_risen_meanwhile_parts_them_again_once_it_is_measured() -> None:
    looks = gathered()
    done, heavy = looks.second, in_parts("a", "a", busy=0.5)
    while not looks.told("not scaled"):
        assert looks.look(*heavy) is None
    assert looks.second - done == 3, "half-lives of what is measured"
    while (order := looks.look(*heavy)) is None:
        pass
    assert order.text == "move w-2 from a to b"
    assert looks.second - done == 3 + SCALE.cooldown_us // SECOND_US + SCALE.looks - 1


def test_parts_are_parted_by_what_is_measured_after_the_last_change_alone() -> None:
    """Also after one of somebody else: who looks for the first time doesn't know what was done before."""
    heavy = in_parts("a", "a", busy=0.5)
    moves = NodeStatus(node="b", moves=MovesStatus(coming={"q/x": ComingStatus(origin="a")}))
    looks = Looks(_Wants(None))
    assert [looks.look(*heavy) for _ in range(3)] == [None] * 3
    assert looks.look(*heavy, moves) is None
    assert [looks.look(*heavy) for _ in range(3)] == [None] * 3
    order = looks.look(*heavy)
    assert order is not None
    assert order.text == "move w-2 from a to b"


def test_a_box_that_is_as_near_to_what_is_wanted_as_it_gets_has_not_failed() -> None:
    """It had, and wasn't merged for longer and longer once one part was enough."""
    looks, light = Looks(_Wants(2)), in_parts("a", "b", "c", busy=0.1)
    for _ in range(12):
        assert looks.look(*light) is None
        assert "3 parts of w become one again, and 2 are wanted" in looks.said()
    looks.policy.parts = 1
    order = looks.look(*light)
    assert order is not None, "at 1 s, 4 s, 7 s, 10 s, 13 s: each time after the cooldown alone"
    assert order.text == "move w-2 from b to a"
    assert looks.told("not scaled") == 0


def test_the_target_is_in_the_middle_of_the_marks_that_are_configured() -> None:
    rules = rules_of(dataclasses.replace(SCALE, high=0.9, low=0.5, parts_max=3))
    assert (rules.target, rules.parts_max, rules.rest_us) == (0.7, 3, SCALE.cooldown_us)
