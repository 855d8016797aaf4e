"""What others stand by for is moved to them at random moments, while machines are lost: the same answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.trials.federations import OFTEN
from medusa.sim.trials.moves import numbered
from medusa.sim.trials.standby import StandbyPlan, StandbyTrial, planned
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.faults import BELIEVED, LATE, LATE_VOTES, LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.move import Move

__all__ = ["HANDOVERS", "HandoverTrial"]

NOT_DONE = {
    *("E_TIMEOUT", "E_BUSY", "E_BROKEN", "E_FRAGMENT"),
    *("E_STANDBY", "E_MOVE"),
}
"""What an order may be answered beside that it is done: not in time or not now, and not there."""

TIMEOUTS_MS = (400, 3_000)

OVER_US = 7_000_000
"""An order that has no answer after this is lost, or its answer: who passes it on does so for as long as its
timeout at most, and its owner tries for as long."""

LAST_MS = 8_000
"""When all is well each fragment goes to one that stands by for it within this."""


@dataclass(slots=True)
class _Asked:
    """An order: when, by whom, the number of its request, what for, and which configuration was newest
    then."""

    at_us: int
    client: Client
    request: int
    fragment: str
    to: str
    since: int
    answered: bool = False


class HandoverTrial(StandbyTrial):
    """Fragments with standbys are ordered to move to one of these, mostly.

    An order that is said to be done was done: a configuration since then, or the one of that moment, names
    the target. In the end, when all is well, each fragment goes to one that stands by for it.

    Args:
        orders: how many.
    """

    def __init__(self, world: World, plan: StandbyPlan, orders: int) -> None:
        super().__init__(world, plan.q, plan.tables, plan.options, want=plan.want, nodes=plan.nodes)
        self._orders = orders
        self._asked: list[_Asked] = []
        self._owned: dict[str, dict[int, str]] = {}
        """Fragment -> number of a configuration -> its owner by that."""
        self._last: list[_Asked] = []

    def _begin(self) -> None:
        super()._begin()
        dice = self.world.dice("handovers")
        for _ in range(self._orders):
            self.world.after(dice.randrange(100_000, self.scene.span_us + 800_000), self._order_one)

    def _order_one(self) -> None:
        newest, dice = self._checks.newest, self.world.dice("handovers")
        by = [node.name for node in self.living if node.alive]
        if newest is None or not by:
            return
        replicas = dice.choice(newest.fragments)
        to = dice.choice(replicas.members if dice.random() < 0.9 else list(self.nodes))
        self._asked.append(self._order(dice.choice(by), replicas.fragment, to, dice.choice(TIMEOUTS_MS)))

    def _order(self, by: str, fragment: str, to: str, timeout_ms: int) -> _Asked:
        name, order = f"mover-{by}", Move(request=0, fragment=fragment, to=to, timeout_ms=timeout_ms)
        client = self.clients.get(name)
        if client is None:
            client = self.clients[name] = Client(self.world, self.network, name, by)
        self.world.trace(name, f"orders {fragment} to {to}")
        newest = self._checks.newest
        asked = _Asked(
            self.world.now_us,
            client,
            client.mind.request(partial(numbered, order)),
            fragment,
            to,
            0 if newest is None else newest.number,
        )
        client.do(lambda mind: None)
        return asked

    # --- what must hold -----------------------------------------------------------------------------

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        newest = self._checks.newest
        if newest is not None:
            for each in newest.fragments:
                self._owned.setdefault(each.fragment, {})[newest.number] = each.owner
        for asked in self._asked:
            if not asked.answered and asked.request in asked.client.mind.replies:
                asked.answered = True
                self._check_answer(asked)

    def _check_restarted(self, node: NodeMachine) -> None:
        """What another node owns by now is nobody's here: upstream keeps rows for that one."""
        newest = self._checks.newest
        owners = {} if newest is None else {each.fragment: each.owner for each in newest.fragments}
        here = node.brain.fragments if node.loop is not None else {}
        if all(owners.get(fragment, node.name) == node.name for fragment in here):
            super()._check_restarted(node)

    def _check_answer(self, asked: _Asked) -> None:
        reply, _ = asked.client.mind.replies[asked.request]
        if not reply.code:
            owners = self._owned.get(asked.fragment, {})
            if asked.to not in [owner for number, owner in owners.items() if number >= asked.since]:
                raise SimulationError(f"moves: {asked.fragment} is said to be at {asked.to}: {owners}")
        elif reply.code not in NOT_DONE:
            raise SimulationError(f"moves: {asked.fragment} to {asked.to}: {reply.code} {reply.text}")

    @property
    def ended(self) -> bool:
        if not super().ended:
            return False
        if self._beyond:
            return True
        if not self._last and not self._under_way():
            self._order_last()
        return bool(self._last) and self._last_done() and super().ended

    def _under_way(self) -> bool:
        """An earlier order isn't over."""
        recent = [each for each in self._asked if self.world.now_us - each.at_us < OVER_US]
        if not all(each.answered for each in recent):
            return True
        return any(node.brain.orders.status().under_way for node in self.living)

    def _order_last(self) -> None:
        newest, dice = self._checks.newest, self.world.dice("last handovers")
        assert newest is not None
        self._look_at_us, self._resting = 0, False
        for replicas in newest.fragments:
            by = dice.choice([node.name for node in self.living])
            to = dice.choice([replicas.owner, *replicas.secondaries, *replicas.secondaries])
            self._last.append(self._order(by, replicas.fragment, to, LAST_MS))

    def _last_done(self) -> bool:
        """Whether all are.

        Raises:
            SimulationError: one isn't.
        """
        done = [asked.client.mind.replies.get(asked.request) for asked in self._last]
        for asked, (reply, _) in [(a, found) for a, found in zip(self._last, done, strict=True) if found]:
            if reply.code not in ("", "E_MOVE"):
                raise SimulationError(
                    f"moves: all is well, and {asked.fragment} isn't moved: {reply.code} {reply.text}"
                )
        return None not in done


def handovers(world: World, rows: int | None, parts: Any) -> HandoverTrial:
    plan = planned(world, rows, lambda standby, witnesses: "")
    dice = world.dice("handover options")
    if dice.random() < 0.6:
        plan = replace(plan, options=replace(plan.options, lost=()))
    return HandoverTrial(world, plan, dice.randrange(2, 9))


HANDOVERS: dict[str, Scenario] = {
    "handover": Scenario(
        about="what others stand by for is moved to them, and machines are lost: one owner, the same answer",
        build=handovers,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=900_000,
    ),
}
