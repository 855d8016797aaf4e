"""How many nodes with room a query lacks, of views made by hand."""

from __future__ import annotations

import pytest

from medusa.nodes.scaling.measured_boxes import BoxPart, BoxWork
from medusa.nodes.scaling.missing_nodes import MissingNodes
from medusa.nodes.scaling.next_step import ScaleGoal
from medusa.nodes.scaling.policy import ScaleRules

GOAL = ScaleGoal(box="w", parts=4, grows=True, why="it has too much to do")
FULL = {"a": 0.9}


def box(*parts: tuple[str, float | None]) -> BoxWork:
    """Node and work of each part."""
    return BoxWork(
        id="w",
        parts=tuple(
            BoxPart(node=node, fragment=f"q/w-{n}", box=f"w-{n}", is_alone=True, work=work)
            for n, (node, work) in enumerate(parts, 1)
        ),
    )


ONE = box(("a", 1.9))


@pytest.mark.parametrize(
    ("rooms", "count"),
    [
        ({"a": 0.9}, 3),
        ({"a": 0.9, "b": 0.1}, 2),
        ({"a": 0.9, "b": 0.1, "c": 0.3}, 2),
        ({"a": 0.9, "b": 0.1, "c": 0.2, "d": 0.0}, 0),
    ],
)
def test_each_part_wants_a_node_of_its_own_with_room_for_it(rooms: dict[str, float], count: int) -> None:
    """A quarter of 1.9 is 0.475, and a node is used for 0.7 at most."""
    missing = MissingNodes(ScaleRules())
    missing.note(5, GOAL, ONE, rooms)
    said = missing.status(9, ["x"])
    assert (0 if said is None else said.count) == count
    if said is not None:
        assert (said.for_us, said.why, said.nodes) == (4, "w: it has too much to do", ("x",))
        assert "not up: x" in said.text


def test_as_a_node_with_room_comes_the_goal_is_taken_up_again_once() -> None:
    missing = MissingNodes(ScaleRules())
    missing.note(0, GOAL, ONE, FULL)
    assert missing.follow({"w": ONE}, FULL, begins=True) is None
    rooms = {**FULL, "b": 0.0}
    assert missing.follow({"w": ONE}, rooms, begins=False) is None, "something else is under way"
    assert missing.follow({"w": ONE}, rooms, begins=True) == GOAL
    assert missing.follow({"w": ONE}, rooms, begins=True) is None
    said = missing.status(1, [])
    assert said is not None
    assert said.count == 2
    assert "all that may have any are up" in said.text


def test_a_box_with_less_to_do_lacks_nothing() -> None:
    missing = MissingNodes(ScaleRules())
    missing.note(0, GOAL, ONE, FULL)
    assert missing.follow({"w": box(("a", 0.6))}, FULL, begins=True) is None
    assert missing.status(1, []) is None
    missing.note(2, GOAL, ONE, FULL)
    assert missing.follow({}, FULL, begins=True) is None, "the box is gone"
    assert missing.status(3, []) is None


def test_parts_that_stand_together_with_too_much_to_do_lack_a_node() -> None:
    missing = MissingNodes(ScaleRules())
    two = box(("a", 0.5), ("a", 0.5))
    goal = ScaleGoal(box="w", parts=2, grows=True, why="they stand together")
    missing.note(0, goal, two, FULL)
    assert missing.follow({"w": two}, FULL, begins=True) is None
    said = missing.status(1, [])
    assert said is not None
    assert said.count == 1
    apart = box(("a", 0.5), ("b", 0.5))
    assert missing.follow({"w": apart}, {**FULL, "b": 0.5}, begins=True) is None
    assert missing.status(2, []) is None
