"""What others stand by for is moved to them, or to any node, at random moments, while machines are lost: the
same answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from medusa.sim.actors.client import Client
from medusa.sim.trials.federations import OFTEN
from medusa.sim.trials.moves import numbered
from medusa.sim.trials.standby import StandbyTrial, planned
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import BELIEVED, LATE, LATE_VOTES, LINKS, MACHINES, TAKEOVERS, WEATHER
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.configuration import Configuration
from medusa.wire.messages.move import Move

__all__ = ["HANDOVERS", "HandoverOrders"]

NOT_DONE = {
    *("E_TIMEOUT", "E_BUSY", "E_BROKEN", "E_FRAGMENT"),
    *("E_STANDBY", "E_MOVE"),
}
"""What an order may be answered beside that it is done: not in time or not now, and not there."""

MEMBERS = 0.6
"""The share of orders that name a node which stands by for the fragment; others may name any."""

TIMEOUTS_MS = (400, 3_000)

OVER_US = 7_000_000
"""An order that has no answer after this is lost, or its answer: who passes it on does so for as long as its
timeout at most, and its owner tries for as long."""

LAST_MS = 8_000
"""When all is well each fragment goes to another node within this."""


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


class HandoverOrders:
    """Fragments with standbys are ordered to move to one of these, or to any node.

    An order that is said to be done was done: a configuration since then, or the one of that moment, names
    the target. In the end, when all is well, each fragment goes where it is ordered to.

    Args:
        number: so many.
        last_ms: when all is well each fragment goes to another node within this.
    """

    def __init__(self, world: World, number: int, *, last_ms: int = LAST_MS) -> None:
        self._world = world
        self._number = number
        self._last_ms = last_ms
        self._choices = world.dice("handover orders")
        """Thrown on and on: made anew for each order they would give the same one each time."""
        self._asked: list[_Asked] = []
        self._owned: dict[str, dict[int, str]] = {}
        """Fragment -> number of a configuration -> its owner by that."""
        self._last: list[_Asked] = []

    def begin(self, trial: StandbyTrial) -> None:
        """The query runs."""
        dice = self._world.dice("handovers")
        for _ in range(self._number):
            at_us = dice.randrange(100_000, trial.scene.span_us + 800_000)
            self._world.after(at_us, partial(self._order_one, trial))

    def _order_one(self, trial: StandbyTrial) -> None:
        newest, dice = trial.newest, self._choices
        by = [node.name for node in trial.living if node.alive]
        if newest is None or not by:
            return
        replicas = dice.choice(newest.fragments)
        to = dice.choice(replicas.members if dice.random() < MEMBERS else list(trial.nodes))
        asked = self._order(trial, dice.choice(by), replicas.fragment, to, dice.choice(TIMEOUTS_MS))
        self._asked.append(asked)

    def _order(self, trial: StandbyTrial, by: str, fragment: str, to: str, timeout_ms: int) -> _Asked:
        order = Move(request=0, fragment=fragment, to=to, timeout_ms=timeout_ms)
        client = self._client(trial, by)
        self._world.trace(client.name, f"orders {fragment} to {to}")
        request = client.mind.request(partial(numbered, order))
        since = 0 if trial.newest is None else trial.newest.number
        client.do(lambda mind: None)
        return _Asked(self._world.now_us, client, request, fragment, to, since)

    def _client(self, trial: StandbyTrial, by: str) -> Client:
        """Who orders at this node."""
        name = f"mover-{by}"
        client = trial.clients.get(name)
        if client is None:
            client = trial.clients[name] = Client(self._world, trial.network, name, by)
        return client

    # --- what must hold -----------------------------------------------------------------------------

    def look(self, newest: Configuration | None) -> None:
        """A node has had a turn.

        Raises:
            SimulationError: an order was said to be done and wasn't, or is refused as it never should.
        """
        for each in () if newest is None else newest.fragments:
            self._owned.setdefault(each.fragment, {})[newest.number if newest else 0] = each.owner
        for asked in self._asked:
            if not asked.answered and asked.request in asked.client.mind.replies:
                asked.answered = True
                self._check_answer(asked)

    def _check_answer(self, asked: _Asked) -> None:
        reply, _ = asked.client.mind.replies[asked.request]
        if not reply.code:
            owners = self._owned.get(asked.fragment, {})
            if asked.to not in [owner for number, owner in owners.items() if number >= asked.since]:
                raise SimulationError(f"moves: {asked.fragment} is said to be at {asked.to}: {owners}")
        elif reply.code not in NOT_DONE:
            raise SimulationError(f"moves: {asked.fragment} to {asked.to}: {reply.code} {reply.text}")

    def over(self, trial: StandbyTrial) -> bool:
        """Whether the last ones are done too, which are given once the others are over."""
        if not self._last and not self._under_way(trial):
            self._order_last(trial)
        return bool(self._last) and self._last_done(trial)

    def _under_way(self, trial: StandbyTrial) -> bool:
        """An earlier order isn't over."""
        recent = [each for each in self._asked if self._world.now_us - each.at_us < OVER_US]
        if not all(each.answered for each in recent):
            return True
        return any(node.brain.orders.status().under_way for node in trial.living)

    def _order_last(self, trial: StandbyTrial) -> None:
        newest, dice = trial.newest, self._world.dice("last handovers")
        assert newest is not None
        trial.look_anew()
        for replicas in newest.fragments:
            if not replicas.members:
                continue  # It was split or merged.
            by = dice.choice([node.name for node in trial.living])
            follow = [replicas.owner, *replicas.secondaries, *replicas.secondaries]
            anywhere = [node.name for node in trial.living]
            to = dice.choice(follow if dice.random() < MEMBERS else anywhere)
            self._last.append(self._order(trial, by, replicas.fragment, to, self._last_ms))

    def _last_done(self, trial: StandbyTrial) -> bool:
        """Whether all are.

        Raises:
            SimulationError: one isn't.
        """
        done = [asked.client.mind.replies.get(asked.request) for asked in self._last]
        for place, (asked, found) in enumerate(zip(self._last, done, strict=True)):
            code, text = (found[0].code, found[0].text) if found is not None else ("", "")
            if code == "E_BROKEN":  # What was proposed while its owner was silent is decided now.
                self._last[place] = self._order(
                    trial, asked.client.mind.node, asked.fragment, asked.to, self._last_ms
                )
                return False
            replicas = None if trial.newest is None else trial.newest.replicas(asked.fragment)
            comes = replicas is not None and asked.to not in replicas.members
            # Half of those that would vote with it are lost, say.
            if code not in ("", "E_MOVE", "E_STANDBY" if comes else ""):
                raise SimulationError(f"moves: all is well, and {asked.fragment} isn't moved: {code} {text}")
        return None not in done


def handovers(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    plan = planned(world, rows, lambda standby, witnesses: "")
    dice = world.dice("handover options")
    options = plan.options if dice.random() >= 0.6 else replace(plan.options, lost=())
    orders = HandoverOrders(world, dice.randrange(2, 9))
    return StandbyTrial(world, plan.q, plan.tables, options, want=plan.want, nodes=plan.nodes, orders=orders)


HANDOVERS: dict[str, Scenario] = {
    "handover": Scenario(
        about="what others stand by for is moved, and machines are lost: one owner, the same answer",
        build=handovers,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=900_000,
    ),
}
