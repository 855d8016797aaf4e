"""Machines are lost for good, and others take over: the answer is that of one program, each row once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.ports import Buffer
from medusa.query.boxes import Sink
from medusa.query.builder import Query
from medusa.query.recovery import PASSIVE
from medusa.sim.actors.client import Client
from medusa.sim.actors.follower import Follower
from medusa.sim.actors.node import NodeMachine
from medusa.sim.actors.start_check import lacks_newest
from medusa.sim.actors.takeover_faults import TakeoverAims
from medusa.sim.actors.targeted_faults import TargetedFaults
from medusa.sim.checkers.coordinators import CoordinatorChecks, QueryRemoval
from medusa.sim.checkers.delivery import check_restarted
from medusa.sim.checkers.replicas import ReplicaChecks
from medusa.sim.trials.federations import MANY_KEYS, OFTEN, ROWS, Keys, few_keys, many_keys, options
from medusa.sim.trials.moves import KINDS, answered
from medusa.sim.trials.queries import QueryOptions, QueryTrial
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
    Fault,
)
from medusa.sim.world.virtual_time import World
from medusa.wire.messages.configuration import Configuration

__all__ = ["STANDBY", "Orders", "StandbyPlan", "StandbyTrial", "planned", "wishing"]

LOOK_AGAIN_US = 50_000

LOST_AFTER_US = (50_000, 1_200_000)
"""When machines are lost, from the deployment on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyOptions(QueryOptions):
    """What a seed decided beside.

    Attributes:
        standby: node -> those that stand by for its fragments.
        witnesses: vote, and run nothing.
        lost: machines that are lost for good, and when.
        deployer: is asked to deploy, and is one of them; in the end somebody removes the query, and they come
            back. Empty: one that stays is asked.
        wakes: it is back as soon as another one coordinates.
        rebuilt: of those that are lost: so long after that one is back with an empty disk, and rebuilt.
    """

    standby: Mapping[str, Sequence[str]]
    witnesses: Sequence[str] = ()
    lost: Sequence[tuple[str, int]] = ()
    deployer: str = ""
    wakes: bool = False
    rebuilt: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StandbyPlan:
    """The query, its rows, and what one program makes of them, over these nodes."""

    q: Any
    tables: Mapping[str, pa.Table]
    options: StandbyOptions
    want: Mapping[str, pa.Table]
    nodes: Sequence[str]


class Orders(Protocol):
    """What clients order while the query runs."""

    def begin(self, trial: StandbyTrial) -> None:
        """It runs."""

    def look(self, newest: Configuration | None) -> None:
        """A node has had a turn."""

    def over(self, trial: StandbyTrial) -> bool:
        """All is well and at rest: whether nothing more is ordered."""


class StandbyTrial(QueryTrial):
    """A query whose fragments have standbys. Some machines never come back.

    Those who publish and read find the streams from nodes that stay.

    Args:
        orders: given meanwhile; None: there are none.
        gap: looks at the end whether no row came twice and the missing are counted; None: none may miss.
        looks: is shown each node after each of its turns.
        again: who has what, where rows may come again; None: none may.
    """

    def __init__(
        self,
        world: World,
        q: Any,
        tables: Mapping[str, pa.Table],
        options: StandbyOptions,
        *,
        want: Mapping[str, pa.Table],
        nodes: Sequence[str],
        orders: Orders | None = None,
        gap: Callable[[StandbyTrial], None] | None = None,
        looks: Callable[[NodeMachine], None] = lambda node: None,
        again: Callable[..., ReplicaChecks] | None = None,
    ) -> None:
        self._orders = orders
        self._again = again is not None
        self._gap, self._looks = gap, looks
        self._ordered = False
        self._owners: dict[str, list[str]] = {}
        """Fragment -> who has owned it, by the newest configuration, one after the other."""
        self._ran: set[tuple[str, str, int]] = set()
        """Node, fragment and epoch in which it showed rows there."""
        self._burnt: set[str] = set()
        self._emptied: dict[tuple[str, str], int] = {}
        """Node and fragment of which its disk had the state in this epoch, and was lost."""
        self._burns = 0
        self._stays = [node for node in nodes if node not in {name for name, _ in options.lost}]
        self._standby = options
        super().__init__(world, q, tables, options, want=want, nodes=nodes)
        self._checks = (again or ReplicaChecks)(self.nodes, self.clients)
        self._aims = TakeoverAims(self)
        self._split_aims = TargetedFaults(self)
        self._roles = CoordinatorChecks(q.graph.name)
        self._removal: QueryRemoval | None = None
        self._beyond: set[str] = set()
        """Fragments of which more is lost than there were secondaries."""

    def aim(self, fault: Fault) -> None:
        """As ``MovingStage`` says."""
        (self._split_aims if fault.kind in AIMED_SPLITS else self._aims).add(fault)

    def client(self, name: str, node: str) -> Client:
        """All find the streams from any node; who deploys does so at one that stays."""
        home = self.world.dice(f"home of {name}").choice(self._stays)
        if name == "reader" and self._standby.deployer:
            home = self._standby.deployer
        made = self.clients[name] = Follower(
            self.world, self.network, name, home, self.nodes, may_give_up=lambda: bool(self._beyond)
        )
        return made

    def _ask_for_it(self) -> int:
        standby = self._standby
        others = [node for node in standby.witnesses if node != self.reader.mind.node]
        return self.reader.deploy_guarded(self.q, standby.at, standby.standby, others)

    def _read(self, name: str, sink: str, tries: int = 0) -> None:
        self.reader.read(f"{name}.{sink}")

    def _begin(self) -> None:
        super()._begin()
        for name, after_us in self._standby.lost:
            self.world.after(after_us, lambda name=name: self._lose(name))  # type: ignore[misc]
        if self._orders is not None:
            self._orders.begin(self)

    @property
    def newest(self) -> Configuration | None:
        """With the highest number that any node has known."""
        return self._checks.newest

    def look_anew(self) -> None:
        """What was at rest is so no more."""
        self._look_at_us, self._resting = 0, False

    def _lose(self, name: str) -> None:
        """Once others can take over what it has; before that its loss is that of the query."""
        if not self._guarded(name) or self._rebuilding():
            self.world.after(LOOK_AGAIN_US, lambda: self._lose(name))
            return
        self.world.trace(name, "burns")
        self._burnt.add(name)
        self._burns += 1
        self._look_at_us, self._resting = 0, False  # What was at rest before is looked at anew.
        self.nodes[name].crash()
        self._count_lost(name)
        if name == self._standby.deployer and self._standby.wakes:
            self._wake(name)
        if name in self._standby.rebuilt:
            self._empty(name)
            self.world.after(self._standby.rebuilt[name], lambda: self._return(name))

    def _empty(self, name: str) -> None:
        """Its disk is lost; whoever looks after it gets another one."""
        self.nodes[name].lose_disk()
        for each in () if self.newest is None else self.newest.fragments:
            if each.owner == name:
                self._emptied[name, each.fragment] = each.epoch

    def _without_state(self, name: str, fragment: str) -> bool:
        """Whether a node can't go on with what it owned, whatever its catalog says."""
        if name in self._burnt:
            return True
        own = self.nodes[name]
        if (
            own.alive
            and fragment in own.brain.catalog.in_doubt.fragments
            and lacks_newest(own.disk, fragment)
        ):
            return True  # Its power went amid a write, and it can't know that nobody was told of that one.
        epoch = self._emptied.get((name, fragment))
        if epoch is None:
            return False
        return not any((name, fragment) == (by, of) and later > epoch for by, of, later in self._ran)

    def _rebuilding(self) -> bool:
        """Whether a node whose disk was lost isn't back, or not as what its peers know of it."""
        query, newest = self.q.graph.name, self.newest
        for name in dict.fromkeys(name for name, _ in self._standby.lost if name in self._standby.rebuilt):
            node = self.nodes[name]
            if not node.rebuilds and not node.disk.history.lost:
                continue
            if not node.alive or node.rebuilds or node.brain.catalog.in_doubt:
                return True
            kept = node.brain.catalog.configurations.get(query)
            votes = newest is not None and name in newest.voters
            if (kept is None and votes) or (kept is not None and kept.forgot):
                return True
        return False

    def _wake(self, name: str) -> None:
        newest = self._checks.newest
        if newest is not None and newest.coordinator != name:
            self._return(name)
        else:
            self.world.after(LOOK_AGAIN_US, lambda: self._wake(name))

    def _guarded(self, name: str) -> bool:
        newest = self._checks.newest
        if newest is None:
            return False
        of = [each for each in newest.fragments if each.owner == name and each.members]
        own = self.nodes[name]
        if unlisted(own, newest):
            return False
        if own.alive and own.brain.recovery.agreement.proposing(newest.query):
            return False  # It is about to go on without one of them, say.
        others = [node for node in self.living if node.alive and node.name != name]
        return all(
            any(node.name in each.secondaries and follows(node, each.fragment) for node in others)
            for each in of
        )

    def restart(self, name: str) -> None:
        if name not in self._burnt:
            super().restart(name)

    def heal(self) -> None:
        self._aims.clear()
        self._split_aims.clear()
        super().heal()

    def crash_all(self) -> bool:
        return False

    # --- what must hold -----------------------------------------------------------------------------

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        self._checks.delivered(source, frames)
        super()._deliver(source, target, frames)

    def _watch(self, node: NodeMachine) -> None:
        self._roles.look(node)
        self._looks(node)
        if self._removal is not None:
            return  # All rows have come; those that were lost come back as what they were then.
        if self._lives.get(node.name) != node.lives and self._checks.newest is not None:
            self._count_lost(node.name)
        super()._watch(node)
        before = self._checks.newest
        self._checks.look(node)
        self._note_owners()
        self._note_stateless(node)
        if node.alive:
            self._ran |= {
                (node.name, name, node.brain.catalog.epoch(name))
                for name, hosted in node.brain.fragments.items()
                if not hosted.frozen
            }
        if (newest := self._checks.newest) is not before and newest is not None:
            # Its owner had just counted them out, since they had restarted.
            self._beyond |= {
                each.fragment
                for each in newest.fragments
                if each.owner in self._burnt and each.members and not each.secondaries
            }
        self._aims.look(node)
        self._split_aims.look(node)
        if self._orders is not None:
            self._orders.look(newest)

    def _check_restarted(self, node: NodeMachine) -> None:
        """Of what others have had since it died, upstream keeps rows for those."""
        if self._again:
            return  # Their numbers are others.
        owners = {} if self.newest is None else {each.fragment: each.owner for each in self.newest.fragments}
        check_restarted(node, self.nodes, self.clients, owners=owners)

    def _note_owners(self) -> None:
        for each in () if self._checks.newest is None else self._checks.newest.fragments:
            owners = self._owners.setdefault(each.fragment, [each.owner])
            if owners[-1] != each.owner:
                owners.append(each.owner)

    def _note_stateless(self, node: NodeMachine) -> None:
        """Of a fragment that this node alone followed, and was chosen for just before it died: its owner was
        silent, has heard so since, and dropped it."""
        newest = self._checks.newest
        for replicas in () if newest is None or not node.alive else newest.fragments:
            name = replicas.fragment
            if replicas.owner != node.name or replicas.secondaries or not replicas.members:
                continue
            if replicas.epoch == FIRST_EPOCH or follows(node, name) or name in self._beyond:
                continue
            if (node.name, name, replicas.epoch) in self._ran:
                continue  # It was split or merged since.
            if not any(name in each.brain.catalog.fragments for each in self.living):
                self.world.trace("world", f"nobody has {name} any more")
                self._beyond.add(name)

    def _count_lost(self, name: str) -> None:
        """This node is lost, or lives again and follows nothing any more: nobody may be left that could take
        over."""
        for replicas in () if self._checks.newest is None else self._checks.newest.fragments:
            others = [self.nodes[each] for each in replicas.secondaries if each not in self._burnt]
            owner = replicas.owner
            chosen = owner == name and (name, replicas.fragment, replicas.epoch) not in self._ran
            if chosen and replicas.fragment not in self.nodes[name].brain.catalog.fragments:
                # It was chosen and died before its disk knew: what it followed is lost with it.
                owner = self._owners[replicas.fragment][-2:][0]
            if not replicas.members:
                continue  # It is no more.
            if name not in (replicas.owner, *replicas.secondaries):
                continue
            if not self._without_state(owner, replicas.fragment):
                continue
            if not any(
                each.name != name and each.alive and follows(each, replicas.fragment) for each in others
            ):
                self.world.trace("world", f"more of {replicas.fragment} is lost than stood by")
                self._beyond.add(replicas.fragment)

    def _wrong_names(self, nodes: Sequence[NodeMachine]) -> str:
        """What was at a node that is lost is found where it is now; of what that one said nothing is
        forgotten."""
        truth = [
            (kind, name, node.name)
            for node in nodes
            for spec in node.brain.catalog.fragments.values()
            for kind, names in (("stream", spec.streams.values()), ("source", spec.entries.values()))
            for name in names
        ]
        for node in nodes:
            for kind, name, owner in truth:
                entry = node.brain.naming.directory.find(kind, name)
                if entry is None or entry.writer != owner:
                    return f"{node.name} finds {name} at {entry and entry.writer}, not at {owner}"
        return ""

    @property
    def living(self) -> list[NodeMachine]:
        """Nodes that aren't lost."""
        return [node for name, node in self.nodes.items() if name not in self._burnt]

    @property
    def owned(self) -> Sequence[Sequence[NodeMachine]]:
        return [self.living]

    def _together(self) -> bool:
        return all(node.alive for node in self.living) and not self._missing()

    @property
    def may_lose(self) -> bool:
        return bool(self._beyond)

    def _check_complaints(self, node: NodeMachine) -> None:
        if self._again:
            return  # Readers say which rows of those that come again are late.
        if self._gap is None or not node.complaint.startswith("rows lost "):  # They are counted.
            super()._check_complaints(node)

    def check_end(self) -> None:
        if self._gap is not None and not self._beyond:
            self._gap(self)
        elif not self._beyond:
            super().check_end()

    @property
    def ended(self) -> bool:
        if self._beyond:
            return True
        if self._removal is not None:
            return self._removal.done
        if self._burns < len(self._standby.lost) or not super().ended:
            return False
        if not self._standby.deployer:
            if self._ordered or self._orders is None:
                return True
            if self._orders.over(self):  # What nodes agreed on before the last of them counts no more.
                self._ordered = True
                self.look_anew()
            return False
        self._remove()
        return False

    def _remove(self) -> None:
        query = self.q.graph.name
        knowing = [node.name for node in self.living if query in node.brain.catalog.configurations]
        home = self.world.dice("who removes").choice(knowing)  # Others say where: clients go there.
        client = self.clients["remover"] = Client(self.world, self.network, "remover", home)
        self._removal = QueryRemoval(self.world, query, self.nodes, client, sorted(self._burnt), self._return)
        self._removal.begin()

    def _return(self, name: str) -> None:
        """It was away for long."""
        self._burnt.discard(name)
        self.restart(name)

    def _missing(self) -> str:
        if self._standby.deployer and not self._coordinated():
            return "nobody coordinates it"
        return self._checks.guarded_again(frozenset(self._burnt))

    def _coordinated(self) -> bool:
        query = self.q.graph.name
        having = [node.name for node in self.living if query in node.brain.catalog.deployments]
        newest = self._checks.newest
        return newest is not None and having == [newest.coordinator]


def unlisted(node: NodeMachine, newest: Configuration) -> bool:
    """Whether something was made there of which the configuration doesn't say yet who may have it."""
    catalog = node.brain.catalog
    epochs = {each.fragment: each.epoch for each in newest.fragments if each.members}
    return any(
        spec.standby and epochs.get(name, 0) < catalog.ownership.epoch(name)
        for name, spec in catalog.fragments.items()
    )


def follows(node: NodeMachine, fragment: str) -> bool:
    """Whether a node could take a fragment over."""
    recovery = node.brain.recovery
    followed = any(name == fragment for name, _, _ in recovery.followings.followed())
    return followed or recovery.succession.stands_by(fragment)


SMALL = {"a": ["left", "l", "right", "r", "both"], "b": ["some", "last", "out"]}
"""``unites`` over two nodes."""


def guarded(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    return _trial(world, rows, lambda standby, witnesses: "")


def forked(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    return _trial(world, rows, lambda standby, witnesses: "", kinds=["forks"])


def passive(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """Secondaries hold checkpoints of their owner, and run nothing until they take over. Some states are so
    large that they are sent deltas."""
    if world.dice("deltas").random() < 0.5:
        return _trial(world, rows, lambda standby, witnesses: "", wish=PASSIVE_WISH)
    number = 5 * MANY_KEYS if rows is None else rows
    large: dict[str, Any] = {"kinds": ["many"], "keys": many_keys, "large": True}
    return _trial(world, number, lambda standby, witnesses: "", wish=PASSIVE_WISH, **large)


def coordinated(world: World, rows: int | None, parts: Any) -> StandbyTrial:
    """Who deploys has a part that others stand by for, or only votes, or neither."""
    dice = world.dice("coordinator")

    def deployer_of(standby: Sequence[str], witnesses: Sequence[str]) -> str:
        chosen = dice.choice([*standby, *witnesses, "d"])
        return "d" if len(standby) == 1 and not witnesses else chosen  # Of two voters none may be lost.

    return _trial(world, rows, deployer_of)


KINDS_DRAWN = ("slides", "unites", "unites")

LARGE_PIECE_ROWS = 30
LARGE_US = 2_500_000
"""Where a state is large so many rows are published at once, over so long a time, and machines are lost until
then."""

PASSIVE_WISH = {"recovery": "precise", "method": PASSIVE}


def _trial(
    world: World,
    rows: int | None,
    deployer_of: Callable[[Sequence[str], Sequence[str]], str],
    *,
    kinds: Sequence[str] = KINDS_DRAWN,
    **more: Any,
) -> StandbyTrial:
    plan = planned(world, rows, deployer_of, kinds=kinds, **more)
    return StandbyTrial(world, plan.q, plan.tables, plan.options, want=plan.want, nodes=plan.nodes)


def planned(
    world: World,
    rows: int | None,
    deployer_of: Callable[[Sequence[str], Sequence[str]], str],
    *,
    kinds: Sequence[str] = KINDS_DRAWN,
    keys: Keys = few_keys,
    wish: Mapping[str, str] | None = None,
    large: bool = False,
) -> StandbyPlan:
    """What the seed decides about the query, and who stands by.

    Args:
        large: there are many rows.
        wish: what each output wants; then others stand by for all fragments.
    """
    dice = world.dice("options")
    kind = dice.choice(kinds)
    make, _, _ = KINDS[kind]
    q, at = make()
    few = kind == "unites" and dice.random() < 0.3
    at = SMALL if few else at
    q = q if wish is None else wishing(q, lambda sink: wish)
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows, keys)
    busy = list(at)
    spares = ["s1"] if few else ["s1", "s2"]
    guarded_nodes = ["a"] if few else [node for node in busy if dice.random() < 0.7] or busy[:1]
    guarded_nodes = guarded_nodes if wish is None else busy
    standby = {node: spares if dice.random() < 0.6 else [spares[0]] for node in guarded_nodes}
    first: Sequence[str] = ()
    if kind == "forks":
        first = ("a", "b")
        standby = dict.fromkeys(first, spares[:1]) | standby
        if dice.random() < 0.3:  # Who reads the stream stands by for who reads it too.
            standby |= {"a": ["b", "s1"], "b": ["a", "s1"]}
    witnesses = ["w1", "w2"][: dice.randrange(2) if few else dice.choice([0, 2, 2])]
    deployer = deployer_of([*standby], witnesses)
    lost = _lost(dice, standby, witnesses, deployer, first)
    decided = options(dice, at)
    latest_us = LARGE_US if large else LOST_AFTER_US[1]
    made = StandbyOptions(
        at=at,
        publish_us=LARGE_US if large else decided.publish_us,
        piece_rows=LARGE_PIECE_ROWS if large else decided.piece_rows,
        sync_us=min(decided.sync_us, 20_000),
        job_us=decided.job_us,
        delay_us=decided.delay_us,
        deaths=dice.choice([0, 0, 0, 1, 2]),
        limits=decided.limits,
        standby=standby,
        witnesses=witnesses,
        lost=tuple((node, dice.randrange(LOST_AFTER_US[0], latest_us)) for node in lost),
        deployer=deployer,
        wakes=deployer not in busy and world.dice("wakes").random() < 0.5,
    )
    nodes = [*busy, *spares, *witnesses, *([deployer] if deployer == "d" else [])]
    return StandbyPlan(q, tables, made, want, nodes)


def wishing(q: Any, wish_of: Callable[[str], Mapping[str, str]]) -> Query:
    """The same query, of which each output says how it wants to be recovered.

    Args:
        wish_of: given the name of an output.
    """
    boxes = (
        msgspec.structs.replace(box, **wish_of(box.id)) if isinstance(box, Sink) else box
        for box in q.graph.boxes
    )
    return Query.from_graph(msgspec.structs.replace(q.graph, boxes=tuple(boxes)))


def _lost(
    dice: Random,
    standby: Mapping[str, Sequence[str]],
    witnesses: Sequence[str],
    deployer: str,
    first: Sequence[str],
) -> list[str]:
    """As many as leave somebody to have each fragment, and more than half of the voters; who deploys is one
    of them, and ``first`` come before others."""
    candidates = [*standby, *standby, "s1", *witnesses]
    others = {deployer} - {""}
    voters = len({*standby, *(node for nodes in standby.values() for node in nodes), *witnesses, *others})
    lost: list[str] = list(others)
    for node in [*first, *dice.sample(candidates, len(candidates))]:
        after = {*lost, node}
        kept = all(len(after & {of, *nodes}) <= len(nodes) for of, nodes in standby.items())
        if kept and node not in lost and 2 * len(after) < voters and len(after) <= 2:
            lost.append(node)
    return lost[: dice.choice([1, 2, 2] if first else [1, 1, 2])]


STANDBY: dict[str, Scenario] = {
    "standby": Scenario(
        about="machines are lost for good: secondaries take over, the same answer",
        build=guarded,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=900_000,
    ),
    "forks": Scenario(
        about="machines are lost for good, and one node takes over what reads one stream: the same answer",
        build=forked,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=900_000,
    ),
    "passive": Scenario(
        about="machines are lost for good, and others hold checkpoints of what they had: the same answer",
        build=passive,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        events_max=900_000,
    ),
    "coordinators": Scenario(
        about="who deployed is lost for good: another coordinates, and removes all of it",
        build=coordinated,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *TAKEOVERS, *TAKEOVERS],
        more=[*LATE, *BELIEVED, *LATE_VOTES],
        count=6,
        liveness_us=60_000_000,
        events_max=1_800_000,
    ),
}
