"""A whole node in virtual time: brain, loop, engine and recovery are those of a process.

Simulated are the clock, the network, the disk and the threads, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from medusa.errors import StateError
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Admission, ClusterNow
from medusa.nodes.deploy.background_parsing import LOOP_BYTES_MAX
from medusa.nodes.load.loads import Usage
from medusa.nodes.node import NodeMind
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.runtime.engine_host.budgets import bounds_of
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.repair.startup import recover
from medusa.runtime.transport.link_events import Arrival, Event
from medusa.sim.actors.start_check import StartCheck
from medusa.sim.actors.worker import Worker
from medusa.sim.world.disk import Disk
from medusa.sim.world.keyring import Keyring, signed_by
from medusa.sim.world.machine import Machine
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.outbox import ReportLine

__all__ = ["IGNORED", "NodeMachine"]

REPORTS_MAX = 1000
COMPLAINTS = (
    *("link dropped", "refused by peer", "own message refused", "stream refused"),
    *("rows lost", "input refused", "fragment failed"),
)
"""Reports of broken rules, and of rows that are gone."""

IGNORED = "peer of an earlier life ignored"
"""What a node says of one that lost the number of its life, and has a smaller one now."""

TELLS = (
    *("rows lost", "receiver ahead", "sender refused", "subscriber cut off", "output lost on disk"),
    *("fragment in doubt", "the newest catalog was lost: names that are unknown here wait"),
    *("decisions not repeated", "rows missing", IGNORED),
)
"""Reports by which a node says that rows are missing, or that it can't know what it had."""

COPY_USED = " is whole and used"
"""So ends what it says of a damaged file of which another copy costs nothing."""

STUCK = "stuck-"
"""Links of callers that were stuck and came through begin so: see ``Network.divert``."""

SPINS_MAX = 1_000
"""A node that wants to be woken at once so often, one time after the other, would take a whole core."""

AGAIN_US = 100_000
"""A node that can't start is started again after this."""


class NodeMachine(Machine):
    """One machine with a node on it.

    Args:
        sync_us: what a synced write takes.
        job_us: what one step of the engine takes, about.
        watch: called after every turn of the node.
        keyring: who comes with which key; None: names are believed.

    Attributes:
        reports: what the node said, the last ones.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        settings: Settings,
        *,
        sync_us: int,
        job_us: int,
        watch: Callable[[NodeMachine], None] = lambda node: None,
        keyring: Keyring | None = None,
    ) -> None:
        super().__init__(world, network, settings.name)
        self.settings = settings
        self.keyring = keyring
        self.loop: NodeLoop | None = None
        self.reports: deque[ReportLine] = deque(maxlen=REPORTS_MAX)
        self._seen: Callable[[NodeMachine], None] | None = None
        self._sync_us = sync_us
        self._job_us = job_us
        self._watch = watch
        self._dice = world.dice(f"engine of {settings.name}")
        self._parser_dice = world.dice(f"parser of {settings.name}")
        self.unable = ""
        """Why it couldn't start, the last time that it couldn't."""
        self.goes_back = False
        """It goes by an older catalog than it had, and can't know it."""
        self.rebuilds = False
        """Whoever looks after it starts it with ``--rebuild`` next: its disk was lost."""
        self._told: dict[tuple[str, str], ReportLine] = {}
        self.complaint = ""
        """What it said last that no node says where nobody lies and no disk is damaged."""
        self._peers: dict[tuple[int, str], int] = {}
        """Life and peer -> the newest life of that."""
        self._asked_again = False
        self._wake_at_us = -1
        self._spins = 0
        self._soon = False
        self._workers: dict[str, Worker] = {}
        self.make_host: Callable[..., EngineHost] = EngineHost
        """What runs fragments; read when it starts."""
        self.accept: Callable[[FragmentSpec], None] = lambda fragment: None
        """Whether it takes a fragment; read when it starts."""
        self.cluster: Callable[[], ClusterNow | None] = lambda: None
        """What runs its fragments in its place; read when it starts."""

    def engine_is(self, make: Callable[..., EngineHost]) -> None:
        """From its next start on this makes what runs its fragments."""
        self.make_host = make

    def observe(self, seen: Callable[[NodeMachine], None]) -> None:
        """Call after every turn too, for one who measures."""
        self._seen = seen

    @property
    def alive(self) -> bool:
        return self.loop is not None

    @property
    def forgets(self) -> bool:
        """It has no disk."""
        return self.settings.forgets

    @property
    def told(self) -> Collection[ReportLine]:
        """What it said of rows that are missing, and of what it can't know, in all its lives; each once."""
        return self._told.values()

    def start(self) -> None:
        """Recover what the disk holds and run.

        Raises:
            StateError: the disk fails, or nothing there is whole.
        """
        assert self.loop is None, f"{self.name} is alive"
        self.lives += 1
        if self.forgets:
            self.disk.lose()
        check = StartCheck(self.name, self.disk) if isinstance(self.disk, Disk) else None
        found = recover(
            self.disk,
            self.clock,
            node=self.name,
            warn=self._warn,
            journal=self.disk.journal,
            rebuild=self.rebuilds,
        )
        self.rebuilds = False
        if check is not None:
            self.goes_back = check.end(found)
        host = self.make_host(
            self.disk,
            self.clock,
            wake=self.soon,
            worker=self._worker,
            counts=self.forgets,
            journal=self.disk.journal,
            bounds=bounds_of(self.settings.limits),
        )
        found.resume(host)
        # Graphs are small here, and would all be read on the loop.
        loop_bytes_max = 0 if self._parser_dice.random() < 0.5 else LOOP_BYTES_MAX
        self.brain = NodeMind(
            self.settings,
            incarnation=self.lives if self.forgets else found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
            accepting=Admission(self.accept, cluster=self.cluster),
            loop_bytes_max=loop_bytes_max,
            **self._keys(),
        )
        self._links = _Links(self)
        self.loop = NodeLoop(
            self.brain,
            self._links,
            host,
            self.clock,
            parser=GraphParser(wake=self.soon, worker=self._worker),
            say=self._say,
            usage=lambda: self._used(host),
        )
        self.world.trace(self.name, f"starts, life {self.lives}")
        self._wake_at_us = -1
        self._spins = 0
        self._soon = False
        self.loop.begin()
        self.soon()

    def _keys(self) -> dict[str, Any]:
        """What a brain is given that has keys."""
        if self.keyring is None:
            return {}
        certificate, signer = self.keyring.own_certificate(self.name), self.keyring.signer(self.name)
        papers = self.keyring.papers(self.name)
        return {"verify": signed_by, "certificate": certificate, "signer": signer, "papers": papers}

    @property
    def trusted(self) -> frozenset[str]:
        """Keys of those who may connect."""
        return self._links.trusted

    def _used(self, host: EngineHost) -> Usage:
        """What a process on this machine would have used: its threads, one core each, and no memory."""
        cpu_us = sum(worker.cpu_us() for worker in self._workers.values())
        return Usage(cpu_us=cpu_us, engine_us=host.engine_us(), memory_bytes=0, cores=1)

    def restart(self) -> None:
        """Start unless alive; as whoever looks after the process does, again and again."""
        if self.alive or self._asked_again:
            return
        try:
            self.start()
        except StateError as error:
            self.unable = str(error)
            self.world.trace(self.name, f"can't start: {error}")
            self._asked_again = True
            self.world.after(AGAIN_US, self._again)

    def _again(self) -> None:
        self._asked_again = False
        self.restart()

    def crash(self, unsynced: str = "lost", *, flushed: bool = False) -> None:
        if self.loop is None:
            return
        self.world.trace(self.name, "crashes")
        if unsynced != "lost":
            # What the disk was given reaches it, or half of the first; nobody hears of it.
            torn = unsynced == "torn"
            with self.disk.power_going(torn=torn):
                self._workers["medusa-disk"].hurry(1 if torn else None)
        self.loop = None
        self._paused = None
        self.disk.crash()
        self.network.forget(self.name, flushed=flushed)

    def lose_disk(self) -> None:
        """It gets another one, and is started with ``--rebuild`` next."""
        self.disk.lose()
        self.rebuilds = True

    def order(self, what: Callable[[int], None]) -> None:
        """Make the brain do something that no message asks for; ``what`` is given its time."""
        assert self.loop is not None
        what(self.clock.monotonic_us())
        self._turn(())

    def deliver(self, source: str, frames: list[Buffer], *, connection: int = 0) -> None:
        """A message arrived.

        Args:
            connection: the number of the one that brought it, where that isn't the current one.
        """
        link = f"in-{source}" if not connection else f"{STUCK}{source}-{connection}"
        key = "" if self.keyring is None else self.keyring.key_of(source)
        arrival = Arrival(link, tuple(memoryview(frame) for frame in frames), key)

        def arrive() -> None:
            if link not in self._links.shunned and (not key or key in self._links.trusted):
                self._turn((arrival,))

        self.in_this_life(arrive)()

    def soon(self) -> None:
        """Something has finished: look at it in a moment."""
        if not self._soon:
            self._soon = True
            self.world.after(10, self.in_this_life(self._look))

    def _look(self) -> None:
        self._soon = False
        self._turn(())

    def _turn(self, events: Iterable[Event]) -> None:
        assert self.loop is not None
        wake_us = self.clock.world_us(self.loop.turn(events))
        self._check_spins(wake_us)
        wake_us = max(wake_us, self.world.now_us + 1)
        if not self.world.now_us < self._wake_at_us <= wake_us:
            self._wake_at_us = wake_us
            self.world.at(wake_us, self.in_this_life(lambda: self._turn(())))
        self._watch(self)
        if self._seen is not None:
            self._seen(self)

    def _check_spins(self, wake_us: int) -> None:
        self._spins = self._spins + 1 if wake_us <= self.world.now_us else 0
        if self._spins > SPINS_MAX:
            raise SimulationError(f"spins: {self.name} wants to be woken at once, again and again")

    @property
    def writes(self) -> bool:
        """Its disk has something to do."""
        return self._workers["medusa-disk"].free_us > self.world.now_us

    @property
    def behind_us(self) -> int:
        """How long its engine and its disk need for what they were given."""
        return max((each.free_us for each in self._workers.values()), default=0) - self.world.now_us

    def slow_down(self, times: int) -> None:
        before = self.slowness
        super().slow_down(times)
        for worker in self._workers.values():
            worker.slows_down(before, times)

    def _worker(self, name: str) -> Worker:
        took_us = self._sync_us if name == "medusa-disk" else self._job_us
        dice = self._parser_dice if name == "medusa-parser" else self._dice
        made = self._workers[name] = Worker(self, took_us, dice)
        return made

    def _say(self, report: ReportLine) -> None:
        self.reports.append(report)
        if report.what in TELLS:
            self._told[report.what, str(report.fields)] = report
        if report.what in COMPLAINTS and report.level != "info":
            self.complaint = f"{report.what} {dict(report.fields)}"
        elif report.what == LinkEvent.PEER_RESTARTED.value:
            self._peer_restarted(str(report.fields["peer"]))
        fields = " ".join(f"{key}={value}" for key, value in report.fields.items())
        self.world.trace(self.name, f"{report.level}: {report.what} {fields}")

    def _peer_restarted(self, peer: str) -> None:
        """In a later life, or it hasn't."""
        about, incarnation = (self.lives, peer), self.brain.sessions[peer].incarnation or 0
        if incarnation < self._peers.get(about, 0):
            self.complaint = f"peer {peer} goes back to its life {incarnation}"
        self._peers[about] = incarnation

    def _warn(self, text: str) -> None:
        report = ReportLine(level="warning", what=text)
        self.reports.append(report)
        if not text.endswith(COPY_USED):
            self._told[text, ""] = report
        self.world.trace(self.name, f"warning: {text}")


class _Links:
    """The transport of one node."""

    def __init__(self, node: NodeMachine) -> None:
        self.shunned: set[str] = set()
        """Links of which nothing more is heard."""
        self.trusted: frozenset[str] = frozenset()
        """Keys of those who are let in; without keys all are."""
        self._node = node

    def wait(self, timeout_ms: int) -> list[Event]:
        raise AssertionError("virtual nodes are never waited for")

    def handled(self) -> None:
        """Messages come one by one."""

    def send(
        self,
        link: str,
        frames: Sequence[Buffer],
        *,
        stream: str = "",
        weight: int = 1,
        frame: int | None = None,
    ) -> None:
        """One connection carries all, in order: nothing waits long enough for weights to tell."""
        if link.startswith(STUCK):
            return  # Its caller has hung up.
        node = self._node
        copies: list[Buffer] = [bytes(frame) for frame in frames]
        node.network.send(node.name, link.removeprefix("in-"), copies)

    def cut(self, link: str, *, shun: bool = True) -> None:
        """Connections come back by themselves, but those that were stuck."""
        if shun and link.startswith(STUCK):
            self.shunned.add(link)

    def introduce(self, link: str, lane: int, frames: Sequence[Buffer]) -> None:
        raise AssertionError("virtual nodes have one connection each")

    def calls(self, link: str) -> bool:
        return link in self._node.settings.peers

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None:
        self.trusted = frozenset(keys)

    def call_at(self, peer: str, address: str) -> None:
        """A machine in a simulation is where its name is."""

    def door(self) -> dict[str, int]:
        return {}

    def wake(self) -> None:
        self._node.soon()
