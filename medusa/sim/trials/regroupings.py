"""Guarded fragments are split and merged at random moments, while machines are lost: the same answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from medusa.nodes.migration.outgoing import FINAL
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.sim.actors.client import Client
from medusa.sim.trials.federations import OFTEN
from medusa.sim.trials.handovers import NOT_DONE, OVER_US, HandoverOrders
from medusa.sim.trials.moves import numbered
from medusa.sim.trials.splits import BOXES
from medusa.sim.trials.standby import StandbyTrial, planned
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import (
    AIMED_SPLITS,
    BELIEVED,
    LATE,
    LATE_VOTES,
    LINKS,
    MACHINES,
    TAKEOVERS,
    WEATHER,
)
from medusa.sim.world.keys_at_cuts import keys_of_rows
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages import Message
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge, Ranges, Split

__all__ = ["REGROUPINGS", "RegroupOrders"]

NOT_REGROUPED = {*NOT_DONE, *FINAL, "E_SPLIT", "E_MERGE", "E_ELSEWHERE", "E_LIMIT", "E_FAILED", "E_DISK"}
"""What such an order may be answered beside that it is done: not now, or not as things stand by then."""

LAST_MS = 60_000
"""When all is well each fragment goes to another node within this: of a dozen that are ordered at once each
changes the one configuration of the query several times, and they take turns."""

GATHER_US = 900_000
"""Parts that are to be merged are ordered to one node so long before."""


@dataclass(slots=True)
class _Ordered:
    at_us: int
    client: Client
    request: int
    what: str
    answered: bool = False


class RegroupOrders(HandoverOrders):
    """Boxes of fragments with standbys are ordered to be split and merged, and fragments to move.

    Args:
        number: so many.
        boxes: that are split; each as often as it is named.
    """

    def __init__(self, world: World, number: int, boxes: Sequence[str]) -> None:
        super().__init__(world, number, last_ms=LAST_MS)
        self._boxes = boxes
        self._picks = world.dice("regroupings")
        """Thrown on and on: made anew for each order they would give the same one each time."""
        self._ordered: list[_Ordered] = []
        self._later = 0
        """So many merges wait for their parts to come together."""

    def _order_one(self, trial: StandbyTrial) -> None:
        dice = self._picks
        by = [node.name for node in trial.living if node.alive]
        if trial.newest is None or not by:
            return
        what = dice.choice([self._split, self._split, self._split, self._merge, self._merge, self._move_any])
        what(trial, dice.choice(self._boxes), dice.choice(by), dice.randrange(1 << 20))

    def _move_any(self, trial: StandbyTrial, box: str, by: str, pick: int) -> None:
        names, nodes = sorted(_specs(trial)), list(trial.nodes)
        if names:
            self._move(trial, by, names[pick % len(names)], nodes[pick // len(names) % len(nodes)])

    def _move(self, trial: StandbyTrial, by: str, name: str, to: str) -> None:
        """Where it is afterwards is looked at if the configuration says who has it."""
        replicas = None if trial.newest is None else trial.newest.replicas(name)
        if replicas is not None and replicas.members:
            self._asked.append(self._order(trial, by, name, to, 2_000))
        else:
            order = Move(request=0, fragment=name, to=to, timeout_ms=2_000)
            self._ask(trial, by, partial(numbered, order), f"{name} to {to}")

    def _split(self, trial: StandbyTrial, box: str, by: str, pick: int) -> None:
        spec = _with_box(trial, box)
        if spec is None or _with_box(trial, f"{box}-router") is not None:
            return
        parts, name = 2 + pick % 2, spec.name
        ranges: Ranges = "weight" if pick // 2 % 2 else "even"
        self._ask(
            trial,
            by,
            lambda n: Split(request=n, fragment=name, box=box, parts=parts, ranges=ranges),
            f"{box} of {name} in {parts} parts, {ranges}",
        )

    def _merge(self, trial: StandbyTrial, box: str, by: str, pick: int) -> None:
        """Its parts come together first."""
        router = _with_box(trial, f"{box}-router")
        if router is None:
            return
        for spec in _specs(trial).values():
            of = {each.id for each in spec.graph.boxes} & {box, *(f"{box}-{part}" for part in range(1, 4))}
            if of and spec.node != router.node:
                self._move(trial, by, spec.name, router.node)
        self._later += 1

        def merge() -> None:
            self._later -= 1
            self._ask(
                trial,
                by,
                lambda n: Merge(request=n, fragment=router.name, box=box),
                f"{box} of {router.name} whole again",
            )

        self._world.after(GATHER_US, merge)

    def _ask(self, trial: StandbyTrial, by: str, make: Callable[[int], Message], what: str) -> None:
        client = self._client(trial, by)
        self._world.trace(client.name, f"orders {what}")
        request = client.mind.request(make)
        client.do(lambda mind: None)
        self._ordered.append(_Ordered(self._world.now_us, client, request, what))

    # --- what must hold -----------------------------------------------------------------------------

    def look(self, newest: Any) -> None:
        super().look(newest)
        for each in self._ordered:
            if not each.answered and each.request in each.client.mind.replies:
                each.answered = True
                reply, _ = each.client.mind.replies[each.request]
                if reply.code and reply.code not in NOT_REGROUPED and not reply.code.startswith("query."):
                    raise SimulationError(f"regrouped: {each.what}: {reply.code} {reply.text}")

    def _under_way(self, trial: StandbyTrial) -> bool:
        recent = [each for each in self._ordered if self._world.now_us - each.at_us < OVER_US]
        if self._later or not all(each.answered for each in recent):
            return True
        return super()._under_way(trial) or any(node.brain.orders.splits.status() for node in trial.living)


def _specs(trial: StandbyTrial) -> dict[str, FragmentSpec]:
    """What runs, by name."""
    living = (node for node in trial.living if node.alive)
    return {h.spec.name: h.spec for node in living for h in node.brain.fragments.values() if not h.frozen}


def _with_box(trial: StandbyTrial, box: str) -> FragmentSpec | None:
    specs = _specs(trial).values()
    return next((spec for spec in specs if any(each.id == box for each in spec.graph.boxes)), None)


def regroupings(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    kind = "meets" if world.seed % 3 == 0 else "keeps"
    plan = planned(world, rows, lambda standby, witnesses: "", kinds=[kind], keys=keys_of_rows)
    dice = world.dice("regroup options")
    options = plan.options if dice.random() >= 0.4 else replace(plan.options, lost=())
    guarded = {box for node in options.standby for box in options.at[node]}
    orders = RegroupOrders(world, dice.randrange(2, 9), _chosen(BOXES[kind], guarded))
    return StandbyTrial(world, plan.q, plan.tables, options, want=plan.want, nodes=plan.nodes, orders=orders)


def _chosen(boxes: Sequence[str], guarded: Collection[str]) -> list[str]:
    """More often those that others stand by for."""
    return [*boxes, *(box for box in boxes if box in guarded for _ in range(3))]


REGROUPINGS: dict[str, Scenario] = {
    "regroup": Scenario(
        about="guarded fragments are split and merged, and machines are lost: one owner, the same answer",
        build=regroupings,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *AIMED_SPLITS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=1_200_000,
    ),
}
