"""What the runs of the simulator have met: transitions of automata, refusals, faults in each state of a node.

Recording stands beside the code under test: it counts look-ups in the tables of the automata, reads messages
on the network and looks at nodes after their turns. It draws no dice and traces nothing, so a run that is
recorded is the run that isn't.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from medusa.errors import RemoteProtocolError
from medusa.nodes.catalog.catalog import DEPLOYING, REMOVING, RUNNING
from medusa.nodes.migration.automaton import OWNER, TARGET
from medusa.nodes.repartition.automaton import SPLIT, SplitState
from medusa.ports import Buffer
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.fault_kinds import KINDS, OF_MACHINES, Fault, FaultStage
from medusa.sim.world.machine import Machine
from medusa.wire.codec import decode_frame
from medusa.wire.link.automaton import RECEIVER, SENDER
from medusa.wire.link.session import PeerState
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Refuse

__all__ = ["Coverage", "events", "refusal_codes"]

TABLES: Mapping[str, dict[Any, dict[Any, Any]]] = {
    "receiver": RECEIVER,
    "sender": SENDER,
    "move owner": OWNER,
    "move target": TARGET,
}
"""The automata that are tables: state -> event -> state."""

CONDITIONS = ("starts", "runs", "writes", "repeats", "moves away", "arrives", "splits", "deploys", "is down")
"""Of a node when a fault begins; several can hold."""

FRAGMENT = ("runs", "frozen", "settling", "repeats its log", "copied", "failed")
"""What a fragment does at its node."""

PACKAGES = ("wire", "nodes", "runtime")
"""Where nodes refuse."""

LIAR = "liar"

STARTS_US = 200_000
"""A node that hasn't lived for so long yet is starting."""


@lru_cache(maxsize=1)
def refusal_codes() -> tuple[str, ...]:
    """Every code in the source by which a node or a client's half of a link refuses, in order."""
    found: set[str] = set()
    for package in PACKAGES:
        for text in _sources(files(f"medusa.{package}")):
            found |= set(re.findall(r"[\"'](E_[A-Z_]+)[\"']", text))
    return tuple(sorted(found))


def _sources(folder: Traversable) -> Iterator[str]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _sources(each)
        elif each.name.endswith(".py"):
            yield each.read_text()


@lru_cache(maxsize=1)
def events() -> tuple[str, ...]:
    """Everything that can be met, by name."""
    moves = [
        _transition(name, state, event)
        for name, table in TABLES.items()
        for state, row in table.items()
        for event in row
    ]
    return (
        *moves,
        *(f"session: {state.value}" for state in PeerState),
        *(f"deployment: {state}" for state in (DEPLOYING, RUNNING, REMOVING)),
        *(f"{what}: {each.value}" for what in ("split", "merge") for each in SplitState if SPLIT[each]),
        *(f"fragment: {each}" for each in FRAGMENT),
        *(f"refusal: {code}" for code in refusal_codes()),
        *(f"fault: {kind}" for kind in KINDS),
        *(f"fault: {kind}, {condition}" for kind in OF_MACHINES for condition in CONDITIONS),
    )


def _transition(name: str, state: Enum, event: Enum) -> str:
    return f"{name}: {state.value}, {event.value}"


class Coverage:
    """How often each event was met.

    Attributes:
        runs: how many runs were recorded.
        times: event -> how often.
        in_runs: event -> in how many runs.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.times: Counter[str] = Counter()
        self.in_runs: Counter[str] = Counter()
        self._refused: dict[tuple[str, int], dict[str, int]] = {}
        self._began_us: dict[tuple[str, int], int] = {}

    @property
    def unmet(self) -> tuple[str, ...]:
        """Events that no run met, in order."""
        return tuple(event for event in events() if not self.times[event])

    def met(self, event: str) -> None:
        """It happened once more in the run that is recorded."""
        self.times[event] += 1

    @contextmanager
    def run(self, stage: FaultStage) -> Iterator[None]:
        """Record a run of this stage, from before it starts."""
        before = Counter(self.times)
        self._refused.clear()
        self._began_us.clear()
        stage.world.observe(self.fault)
        stage.network.observe(self.message)
        for machine in stage.machines.values():
            if isinstance(machine, NodeMachine):
                machine.observe(self.node)
        with _counted(self):
            yield
        self.runs += 1
        self.in_runs.update({event: 1 for event, times in self.times.items() if times > before[event]})

    def looked_up(self, table: str, state: Enum, event: Enum) -> None:
        """A transition was."""
        self.met(_transition(table, state, event))

    # --- what is looked at ------------------------------------------------------------------------

    def fault(self, machines: Mapping[str, Machine], fault: Fault) -> None:
        """A fault begins."""
        self.met(f"fault: {fault.kind}")
        node = machines.get(fault.who[0]) if fault.kind in OF_MACHINES else None
        for condition in self._conditions(node) if isinstance(node, NodeMachine) else ():
            self.met(f"fault: {fault.kind}, {condition}")

    def _conditions(self, node: NodeMachine) -> Iterator[str]:
        if node.loop is None:
            yield "is down"
            return
        brain = node.brain
        began_us = self._began_us.get((node.name, node.lives), node.world.now_us)
        if node.world.now_us - began_us < STARTS_US:
            yield "starts"
        sliding = brain.orders.status()
        hosted = brain.fragments.values()
        found = {
            "writes": node.writes,
            "repeats": any(each.repeating for each in hosted),
            "moves away": bool(sliding.going),
            "arrives": bool(sliding.coming),
            "splits": bool(brain.orders.splits.status()),
            "deploys": any(each.state != RUNNING for each in brain.catalog.deployments.values()),
        }
        yield from (name for name, holds in found.items() if holds)
        if not any(found.values()):
            yield "runs"

    def node(self, node: NodeMachine) -> None:
        """A node has had a turn."""
        if node.loop is None:
            return
        life = node.name, node.lives
        self._began_us.setdefault(life, node.world.now_us)
        brain = node.brain
        counted = self._refused.setdefault(life, {})
        for code, count in brain.refusals.items():
            if count != counted.get(code, 0):
                self.times[f"refusal: {code}"] += count - counted.get(code, 0)
                counted[code] = count
        for session in brain.sessions.values():
            self.met(f"session: {session.state.value}")
        for deployment in brain.catalog.deployments.values():
            self.met(f"deployment: {deployment.state}")
        for job in brain.orders.splits.status():
            self.met(f"{job.what}: {job.state}")
        for hosted in brain.fragments.values():
            self.met(f"fragment: {fragment_state(hosted)}")

    def message(self, source: str, frames: list[Buffer]) -> None:
        """A message was sent; what a liar says counts for nothing."""
        if source == LIAR or not bytes(frames[0][2:8]).startswith((b"refuse", b"reply")):
            return
        try:
            message, _ = decode_frame(frames)
        except RemoteProtocolError:
            return
        if isinstance(message, Refuse | Reply) and message.code:
            self.met(f"refusal: {message.code}")


def fragment_state(hosted: Any) -> str:
    """What a fragment does, of ``FRAGMENT``."""
    if hosted.failed:
        return "failed"
    if hosted.settling:
        return "settling"
    if hosted.frozen:
        return "frozen"
    if hosted.tap is not None:
        return "copied"
    return "repeats its log" if hosted.repeating else "runs"


class _Counted(dict[Any, Any]):
    """A row of a table that tells which of its transitions are looked up."""

    def __init__(self, row: Mapping[Any, Any], met: Callable[[Any], None]) -> None:
        super().__init__(row)
        self._met = met

    def __getitem__(self, event: Any) -> Any:
        found = super().__getitem__(event)
        self._met(event)
        return found

    def get(self, event: Any, default: Any = None) -> Any:
        if event in self.keys():
            self._met(event)
        return super().get(event, default)


@contextmanager
def _counted(coverage: Coverage) -> Iterator[None]:
    """Count the look-ups in all tables while this lasts."""
    plain = [(table, dict(table)) for table in TABLES.values()]
    try:
        for name, table in TABLES.items():
            for state, row in list(table.items()):
                table[state] = _Counted(row, partial(coverage.looked_up, name, state))
        yield
    finally:
        for table, rows in plain:
            table.update(rows)
