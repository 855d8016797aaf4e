"""Faults that wait for a moment of a move or a split: whoever takes part dies just then, or is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.fault_dice import UNSYNCED
from medusa.sim.world.fault_kinds import AIMED_SPLITS, Fault, FaultStage, begin
from medusa.sim.world.virtual_time import World

__all__ = ["TargetedFaults"]


class TargetedFaults:
    """The faults of one trial that wait for a step of a move, a split or a merge; each happens once.

    Args:
        stage: where they happen.
    """

    def __init__(self, stage: FaultStage) -> None:
        self._stage = stage
        self._waiting: list[Fault] = []
        self._seen: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
        """Node, and fragment or box -> the step at which it was last, and who was who."""

    def add(self, fault: Fault) -> None:
        """From now on the next move or split that comes to the step."""
        self._waiting.append(fault)

    def clear(self) -> None:
        """What hasn't happened never will."""
        self._waiting.clear()

    def look(self, node: NodeMachine) -> None:
        """The node has had a turn: has anything come to a step that is waited for?"""
        if not self._waiting or node.loop is None:
            return
        steps = {**dict(_steps(node)), **dict(_splits(node))}
        for about, (step, roles) in steps.items():
            before = self._seen.get((node.name, about))
            self._seen[node.name, about] = step, roles
            if before is None or before[0] != step:
                self._at(node.world, step, roles)
        for key in [key for key in self._seen if key[0] == node.name and key[1] not in steps]:
            step, roles = self._seen.pop(key)
            if " " in step:
                self._at(node.world, f"{step.partition(' ')[0]} over", roles)

    def _at(self, world: World, step: str, roles: dict[str, str]) -> None:
        aim = next((each for each in self._waiting if _meant(each, step, roles)), None)
        if aim is None:
            return
        self._waiting.remove(aim)
        if aim.kind.startswith("cut in"):
            other = roles["target" if aim.kind == "cut in a move" else aim.who[0]]
            fault = replace(aim, kind="cut", who=(roles["owner"], other), amount=0)
        else:
            unsynced = UNSYNCED.index(aim.who[2])
            fault = replace(aim, kind="crash", who=(roles[aim.who[0]],), amount=unsynced)
        world.after(aim.amount, lambda: begin(self._stage, fault))


def _meant(aim: Fault, step: str, roles: dict[str, str]) -> bool:
    """Whether it waits for this; who is to be cut off from itself isn't."""
    of_a_split = aim.kind in AIMED_SPLITS
    names = (step, step.partition(" ")[2]) if of_a_split else (step,)
    if of_a_split != (" " in step) or aim.who[1] not in names or aim.who[0] not in roles:
        return False
    return aim.kind != "cut in a split" or roles[aim.who[0]] != roles["owner"]


def _splits(node: NodeMachine) -> Iterator[tuple[str, tuple[str, dict[str, str]]]]:
    """Box -> the step of its split or merge here, and who is who in it."""
    for job in node.brain.orders.splits.status():
        hosted = node.brain.fragments.get(job.fragments[0])
        if hosted is None:
            continue  # Another node has it, and the order hasn't ended yet.
        roles = _roles(hosted.spec, node.name, node.name)
        roles["coordinator"] = node.brain.catalog.coordinator_of(hosted.spec.query, node.name)
        yield f"{job.box} {job.what}", (f"{job.what} {job.state}", roles)


def _steps(node: NodeMachine) -> Iterator[tuple[str, tuple[str, dict[str, str]]]]:
    """Fragment -> the step of its move here, and who is who in it."""
    sliding, catalog = node.brain.orders, node.brain.catalog
    for fragment, going in sliding.moves.status().items():
        step, hosted = going.state, node.brain.fragments[fragment]
        if step == "handing" and hosted.frozen:
            step = "handed"
        yield fragment, (step, _roles(hosted.spec, node.name, going.to))
    for fragment, coming in sliding.arrivals.status().items():
        shadow = sliding.arrivals.shadow(fragment)
        spec = None if shadow is None else shadow.spec
        yield fragment, (coming.state, _roles(spec, coming.origin, node.name))
    for fragment in catalog.ownership.unplaced:
        if fragment in node.brain.fragments and fragment not in sliding.arrivals.status():
            yield fragment, ("owning", {"target": node.name})


def _roles(spec: Any, owner: str, target: str) -> dict[str, str]:
    roles = {"owner": owner, "target": target}
    if spec is not None:
        for feed in spec.feeds[:1]:
            roles["upstream"] = feed.node
        for reader in [each for readers in spec.readers.values() for each in readers][:1]:
            roles["reader"] = reader
    return roles
