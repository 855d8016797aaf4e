"""Faults that wait for a moment of a fragment that others stand by for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.fault_dice import UNSYNCED
from medusa.sim.world.fault_kinds import Fault, FaultStage, begin
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.status_and_metrics import SEEDING

__all__ = ["TakeoverAims"]

"""As ``Replication.status`` says."""


class TakeoverAims:
    """The faults of one trial that wait for such a moment; each happens once.

    Args:
        stage: where they happen.
    """

    def __init__(self, stage: FaultStage) -> None:
        self._stage = stage
        self._waiting: list[Fault] = []
        self._seen: dict[str, frozenset[tuple[str, str]]] = {}
        """Node -> fragments and the moments at which it saw them last."""

    def add(self, fault: Fault) -> None:
        """From now on the next fragment that comes to the moment."""
        self._waiting.append(fault)

    def clear(self) -> None:
        """What hasn't happened never will."""
        self._waiting.clear()

    def look(self, node: NodeMachine) -> None:
        """The node has had a turn: has anything come to a moment that is waited for?"""
        if not self._waiting or node.loop is None:
            return
        moments = {(fragment, moment): roles for fragment, moment, roles in _moments(node)}
        new = moments.keys() - self._seen.get(node.name, frozenset())
        self._seen[node.name] = frozenset(moments)
        for about in sorted(new):
            self._at(about[1], moments[about])

    def _at(self, moment: str, roles: dict[str, str]) -> None:
        for aim in self._waiting:
            cut = aim.kind == "cut in a takeover"
            who = aim.who[:2] if cut else aim.who[:1]
            if aim.who[2 if cut else 1] != moment or not all(role in roles for role in who):
                continue
            nodes = tuple(roles[role] for role in who)
            if len(set(nodes)) < len(nodes):
                continue
            self._waiting.remove(aim)
            if cut:
                fault = replace(aim, kind="cut one way", who=nodes, amount=0)
            elif aim.kind == "pause in a takeover":
                fault = replace(aim, kind="pause", who=nodes, amount=0)
            else:
                fault = replace(aim, kind="crash", who=nodes, amount=UNSYNCED.index(aim.who[2]))
            world = self._stage.world
            world.after(aim.amount, partial(begin, self._stage, fault))
            return


def _moments(node: NodeMachine) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Fragment, the moment at which it is as this node sees it, and who is who."""
    brain, me = node.brain, node.name
    recovery = brain.recovery
    for kept in brain.catalog.configurations.values():
        current = kept.current
        for replicas in current.fragments:
            hosted = brain.fragments.get(replicas.fragment)
            shadow = recovery.followings.shadow(replicas.fragment)
            part = hosted if hosted is not None else shadow
            if part is None:
                continue
            roles = _roles(part.spec, current, replicas)
            if hosted is not None and replicas.owner == me:
                for moment in _of_owner(node, replicas):
                    yield replicas.fragment, moment, roles
            elif recovery.agreement.proposing(current.query) and me in replicas.secondaries:
                yield replicas.fragment, "proposes", roles | {"secondary": me}


def _of_owner(node: NodeMachine, replicas: Replicas) -> Iterator[str]:
    hosted = node.brain.fragments[replicas.fragment]
    if replicas.epoch > FIRST_EPOCH:
        yield "takes over" if hosted.frozen else "has taken over"
    if replicas.secondaries:
        yield "guarded"
    if set(hosted.durability.secondaries) - set(replicas.secondaries):
        yield "joins"
    states = (
        node.brain.recovery.replication.status(0, replicas.fragment, other).state
        for other in replicas.followers
        if other != node.name
    )
    if any(state == SEEDING for state in states):
        yield "seeds"


def _roles(spec: FragmentSpec, current: Configuration, replicas: Replicas) -> dict[str, str]:
    others = [each for each in replicas.followers if each != replicas.owner]
    others = [*replicas.secondaries, *(each for each in others if each not in replicas.secondaries)]
    roles = {"owner": replicas.owner, **dict(zip(("secondary", "other"), others, strict=False))}
    voters = [each for each in current.voters if each not in roles.values()]
    if voters:
        roles["voter"] = voters[0]
    for feed in spec.feeds[:1]:
        roles["upstream"] = feed.node
    for reader in [each for readers in spec.readers.values() for each in readers][:1]:
        roles["reader"] = reader
    return roles
