"""Which order comes next, so that a box runs in as many parts as it should. Pure.

    more:   split the part that has most to do ──> move parts to nodes with room, one after the other
    fewer:  move the parts of one split to the node of its router ──> merge

Each step is found anew from what nodes tell by then, so whoever takes over goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

from medusa.nodes.scaling.measured_boxes import BoxPart, BoxWork
from medusa.nodes.scaling.policy import ScaleRules
from medusa.nodes.scaling.split_sets import SplitSet

__all__ = ["NoStep", "ScaleGoal", "ScaleOrder", "crowded", "next_step", "together"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOrder:
    """What is ordered of the node that has a fragment.

    Attributes:
        node, fragment: that are told.
        box: that is split, merged or moved with its fragment.
        parts: that a split makes.
        to: where a move goes.
    """

    what: Literal["split", "merge", "move"]
    node: str
    fragment: str
    box: str
    parts: int = 0
    ranges: Literal["weight", "even"] = "weight"
    to: str = ""

    @property
    def text(self) -> str:
        """For people: ``split w in 2 at a``."""
        if self.what == "move":
            return f"move {self.box} from {self.node} to {self.to}"
        return f"{self.what} {self.box}{f' in {self.parts}' if self.parts else ''} at {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleGoal:
    """A box should run in so many parts.

    Attributes:
        grows: in more than now, or in as many at more nodes.
        split: it was split for this goal; what is left is to move its parts.
        ranges: of the keys, for the next split.
        refused: nodes that haven't taken a part.
    """

    box: str
    parts: int
    grows: bool
    why: str
    split: bool = False
    ranges: Literal["weight", "even"] = "weight"
    refused: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class NoStep:
    """There is nothing to order.

    Attributes:
        why: empty: the goal is reached.
        passes: it may be otherwise at the next look.
        measured: figures say so, which tell nothing before they have followed the last change.
        fails: what is wanted couldn't be done; else the box is as near to it as it gets by this load.
    """

    why: str = ""
    passes: bool = False
    measured: bool = False
    fails: bool = True


def next_step(
    goal: ScaleGoal,
    box: BoxWork,
    sets: Sequence[SplitSet],
    rooms: Mapping[str, float],
    rules: ScaleRules,
) -> ScaleOrder | NoStep:
    """What to order now.

    Args:
        box: that the goal is about, as it is now.
        sets: what of the query can be merged.
        rooms: node that takes parts -> the share of it that is used; also those that have some.
    """
    if goal.grows:
        return _grows(goal, box, rooms, rules)
    return _shrinks(goal, box, sets, rooms, rules)


def crowded(box: BoxWork, rooms: Mapping[str, float], rules: ScaleRules) -> bool:
    """Whether parts stand together at a node where they have too much to do, and another node has room: who
    split the box was stopped before it had moved them."""
    for each in together(box):
        known = [part.work for part in each if part.work is not None]
        if sum(known) > rules.high and any(_free(box, part, rooms, rules) for part in each if part.is_alone):
            return True
    return False


def together(box: BoxWork) -> list[list[BoxPart]]:
    """Parts that share a node with others, by node."""
    by_node: dict[str, list[BoxPart]] = {}
    for part in box.parts:
        by_node.setdefault(part.node, []).append(part)
    return [each for each in by_node.values() if len(each) > 1]


def _free(
    box: BoxWork, part: BoxPart, rooms: Mapping[str, float], rules: ScaleRules, but: Collection[str] = ()
) -> list[str]:
    """Nodes that have no part of the box and room for this one, the emptiest first.

    A part with more to do than parts are planned for is too much for any node, and counts as one that isn't:
    alone it gets on, and is split again.
    """
    taken = [each.node for each in box.parts]
    work = min(part.work or 0.0, rules.target)
    free = [
        node
        for node, used in rooms.items()
        if node not in taken and node not in but and used + work <= rules.high
    ]
    return sorted(free, key=lambda node: (rooms[node], node))


# --- more parts -------------------------------------------------------------------------------------


def _grows(
    goal: ScaleGoal, box: BoxWork, rooms: Mapping[str, float], rules: ScaleRules
) -> ScaleOrder | NoStep:
    if (move := _spread(goal, box, rooms, rules)) is not None:
        return move
    if goal.split and together(box):
        return NoStep(why=f"no node has room for a part of {box.id}, so they stay together")
    if goal.split or len(box.parts) >= goal.parts:
        return NoStep()
    if any(part.work is None for part in box.parts):
        return NoStep(why=f"what a part of {box.id} has to do isn't known yet", passes=True)
    part = max(box.parts, key=lambda each: (each.work or 0.0, each.box))
    work = part.work or 0.0
    for parts in range(min(ceil(work / rules.target), goal.parts - len(box.parts) + 1), 1, -1):
        each = replace(part, work=work / parts)
        if len(_free(box, each, rooms, rules, goal.refused)) >= parts - 1:
            return ScaleOrder(
                what="split",
                node=part.node,
                fragment=part.fragment,
                box=part.box,
                parts=parts,
                ranges=goal.ranges,
            )
    used = rules.high - min(work / 2, rules.target)
    return NoStep(why=f"no node has room for half of {part.box}: none that is up uses {used:.2f} at most")


def _spread(
    goal: ScaleGoal, box: BoxWork, rooms: Mapping[str, float], rules: ScaleRules
) -> ScaleOrder | None:
    """A part that goes to a node of its own."""
    for each in together(box):
        known = [part.work for part in each if part.work is not None]
        if not goal.split and sum(known) <= rules.high:
            continue
        # The first stays: mostly that is the node that had the box, and has the router.
        for part in reversed([part for part in each if part.is_alone][-(len(each) - 1) :]):
            if free := _free(box, part, rooms, rules, goal.refused):
                return ScaleOrder(
                    what="move", node=part.node, fragment=part.fragment, box=part.box, to=free[0]
                )
    return None


# --- fewer ------------------------------------------------------------------------------------------


def _shrinks(
    goal: ScaleGoal,
    box: BoxWork,
    sets: Sequence[SplitSet],
    rooms: Mapping[str, float],
    rules: ScaleRules,
) -> ScaleOrder | NoStep:
    if len(box.parts) <= goal.parts:
        return NoStep()
    of = [each for each in sets if all(part in box.parts for part in each.parts)]
    if not of:
        return NoStep(why=f"not all parts of {box.id} are known", passes=True)
    few = [each for each in of if len(box.parts) - len(each.parts) + 1 >= goal.parts]
    if not few:
        least = min(len(each.parts) for each in of)
        why = f"{least} parts of {box.id} become one again, and {goal.parts} are wanted"
        return NoStep(why=why, fails=False)
    known = [each for each in few if all(part.work is not None for part in each.parts)]
    if not known:
        return NoStep(why=f"what the parts of {box.id} have to do isn't known yet", passes=True)
    light = [each for each in known if _work(each.parts) <= _work_max(each, rules)]
    if not light:
        work = min(_work(each.parts) for each in known)
        why = f"parts of {box.id} have {work:.2f} of a thread to do together, too much for one"
        return NoStep(why=why, measured=True)
    lightest = min(light, key=lambda each: (len(_away(each)), _work(each.parts), each.box))
    return _gathered(lightest, rooms, rules)


def _work(parts: Sequence[BoxPart]) -> float:
    return sum(part.work or 0.0 for part in parts)


def _away(of: SplitSet) -> list[BoxPart]:
    return [part for part in of.parts if part.node != of.home]


def _work_max(of: SplitSet, rules: ScaleRules) -> float:
    """The most that its parts may have to do together to become one: what one is planned for; once all are at
    one node, what they may have there without being parted again."""
    return rules.target if _away(of) else rules.high


def _gathered(of: SplitSet, rooms: Mapping[str, float], rules: ScaleRules) -> ScaleOrder | NoStep:
    """Its parts come to the node of its router, one after the other, and are merged there."""
    away = _away(of)
    if rooms.get(of.home, 0.0) + _work(away) > rules.high:
        return NoStep(why=f"node {of.home} has no room for {of.box} as one", measured=True)
    for part in away:
        if not part.is_alone:  # Before any is moved: without this one that would be for nothing.
            return NoStep(why=f"{part.box} stands with other boxes at {part.node}: fed.merge moves them all")
    for part in away:
        return ScaleOrder(what="move", node=part.node, fragment=part.fragment, box=part.box, to=of.home)
    for node, fragment in of.merges:
        if node != of.home:
            return ScaleOrder(what="move", node=node, fragment=fragment, box=of.box, to=of.home)
    return ScaleOrder(what="merge", node=of.home, fragment=of.router, box=of.box)
