"""A whole node in virtual time: brain, loop, engine and recovery are those of a process.

Simulated are the clock, the network, the disk and the threads, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from medusa.errors import StateError
from medusa.mind.brain import Brain
from medusa.mind.loads import Usage
from medusa.mind.settings import Settings
from medusa.mind.spec import Fragment
from medusa.ports import Buffer
from medusa.runtime.host import FragmentHost
from medusa.runtime.link_events import Arrival, Event
from medusa.runtime.loop import NodeLoop
from medusa.runtime.recovery import recover
from medusa.sim.machine import Machine
from medusa.sim.network import Network
from medusa.sim.world import World
from medusa.wire.outbox import Report

__all__ = ["Node"]

REPORTS_MAX = 1000
AGAIN_US = 100_000
"""A node that can't start is started again after this."""


class Node(Machine):
    """One machine with a node on it.

    Args:
        sync_us: what a synced write takes.
        job_us: what one step of the engine takes, about.
        watch: called after every turn of the node.

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
        watch: Callable[[Node], None] = lambda node: None,
    ) -> None:
        super().__init__(world, network, settings.name)
        self.settings = settings
        self.loop: NodeLoop | None = None
        self.reports: deque[Report] = deque(maxlen=REPORTS_MAX)
        self._sync_us = sync_us
        self._job_us = job_us
        self._watch = watch
        self._dice = world.dice(f"engine of {settings.name}")
        self.unable = ""
        """Why it couldn't start, the last time that it couldn't."""
        self._asked_again = False
        self._wake_at_us = -1
        self._soon = False
        self._workers: dict[str, _Worker] = {}
        self.make_host: Callable[..., FragmentHost] = FragmentHost
        """What runs fragments; read when it starts."""
        self.accept: Callable[[Fragment], None] = lambda fragment: None
        """Whether it takes a fragment; read when it starts."""

    @property
    def alive(self) -> bool:
        return self.loop is not None

    @property
    def forgets(self) -> bool:
        """It has no disk."""
        return self.settings.store == "memory"

    def start(self) -> None:
        """Recover what the disk holds and run.

        Raises:
            StateError: the disk fails, or nothing there is whole.
        """
        assert self.loop is None, f"{self.name} is alive"
        self.lives += 1
        if self.forgets:
            self.disk.lose()
        found = recover(self.disk, self.clock, node=self.name, warn=self._warn, journal=self.disk.journal)
        host = self.make_host(
            self.disk,
            self.clock,
            wake=self.soon,
            worker=self._worker,
            counts=self.forgets,
            journal=self.disk.journal,
        )
        found.resume(host)
        self.brain = Brain(
            self.settings,
            incarnation=self.lives if self.forgets else found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
        )
        self.brain.commands.accepting.accept = self.accept
        self.loop = NodeLoop(
            self.brain, _Links(self), host, self.clock, say=self._say, usage=lambda: self._used(host)
        )
        self.world.trace(self.name, f"starts, life {self.lives}")
        self._wake_at_us = -1
        self._soon = False
        self.loop.begin()
        self.soon()

    def _used(self, host: FragmentHost) -> Usage:
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

    def crash(self, unsynced: str = "lost") -> None:
        if self.loop is None:
            return
        self.world.trace(self.name, "crashes")
        if unsynced != "lost":
            # What the disk was given reaches it, or half of the first; nobody hears of it.
            self.disk.tearing = unsynced == "torn"
            self._workers["medusa-disk"].hurry(1 if self.disk.tearing else None)
            self.disk.tearing = False
        self.loop = None
        self._paused = None
        self.disk.crash()
        self.network.forget(self.name)

    def order(self, what: Callable[[int], None]) -> None:
        """Make the brain do something that no message asks for; ``what`` is given its time."""
        assert self.loop is not None
        what(self.clock.monotonic_us())
        self._turn(())

    def deliver(self, source: str, frames: list[Buffer]) -> None:
        """A message arrived."""
        arrival = Arrival(f"in-{source}", tuple(memoryview(frame) for frame in frames))
        self.in_this_life(lambda: self._turn((arrival,)))()

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
        wake_us = max(self.clock.world_us(self.loop.turn(events)), self.world.now_us + 1)
        if not self.world.now_us < self._wake_at_us <= wake_us:
            self._wake_at_us = wake_us
            self.world.at(wake_us, self.in_this_life(lambda: self._turn(())))
        self._watch(self)

    @property
    def behind_us(self) -> int:
        """How long its engine and its disk need for what they were given."""
        return max((each.free_us for each in self._workers.values()), default=0) - self.world.now_us

    def _worker(self, name: str) -> _Worker:
        took_us = self._sync_us if name == "medusa-disk" else self._job_us
        made = self._workers[name] = _Worker(self, took_us, self._dice)
        return made

    def _say(self, report: Report) -> None:
        self.reports.append(report)
        fields = " ".join(f"{key}={value}" for key, value in report.fields.items())
        self.world.trace(self.name, f"{report.level}: {report.what} {fields}")

    def _warn(self, text: str) -> None:
        self.reports.append(Report(level="warning", what=text))
        self.world.trace(self.name, f"warning: {text}")


class _Worker:
    """A thread in virtual time: each job takes a little, and dies with its life."""

    idle = True

    def __init__(self, node: Node, job_us: int, dice: Random) -> None:
        self._node = node
        self._job_us = job_us
        self._dice = dice
        self.free_us = self._took_us = 0
        """When it has done all."""
        self._jobs: deque[Callable[[], None]] = deque()

    def give(self, job: Callable[[], None]) -> None:
        world = self._node.world
        took_us = self._dice.randrange(1, 2 * self._job_us) * self._node.slowness
        self.free_us = max(self.free_us, world.now_us) + took_us
        self._took_us += took_us
        self._jobs.append(job)
        world.at(self.free_us, self._node.in_this_life(self._do))

    def _do(self) -> None:
        self._jobs.popleft()()

    def cpu_us(self) -> int:
        return self._took_us

    def hurry(self, most: int | None) -> None:
        """Do at once what was given."""
        for _ in range(len(self._jobs) if most is None else min(most, len(self._jobs))):
            self._do()

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        """Nothing runs beside us."""
        return True


class _Links:
    """The transport of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def wait(self, timeout_ms: int) -> list[Event]:
        raise AssertionError("virtual nodes are never waited for")

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
        node = self._node
        copies: list[Buffer] = [bytes(frame) for frame in frames]
        node.network.send(node.name, link.removeprefix("in-"), copies)

    def cut(self, link: str, *, shun: bool = True) -> None:
        """Connections come back by themselves."""

    def introduce(self, link: str, lane: int, frames: Sequence[Buffer]) -> None:
        raise AssertionError("virtual nodes have one connection each")

    def calls(self, link: str) -> bool:
        return link in self._node.settings.peers

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None:
        """Nodes in a simulation have no keys: a name is believed."""

    def call_at(self, peer: str, address: str) -> None:
        """A machine in a simulation is where its name is."""

    def door(self) -> dict[str, int]:
        return {}

    def wake(self) -> None:
        self._node.soon()
