"""A chain under test: publisher, relays, subscriber, their network, and the checks after each event.

publisher --in--> r1 --s1--> r2 --s2--> ... --sn--> reader

In some seeds a second node, ``twin``, reads ``s1`` too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from medusa.ports import Buffer
from medusa.sim.actors.chain_ends import PublisherActor, SubscriberActor
from medusa.sim.actors.host import Host, Mind
from medusa.sim.actors.relay import (
    MERGED_ROWS_MAX,
    SCHEMA,
    Relay,
    RelaySettings,
    covered_seq,
    pack_rows,
    unpack_rows,
)
from medusa.sim.checkers.delivery import Delivered, check_receiver, check_retention, check_sender
from medusa.sim.world.disk import Disk
from medusa.sim.world.fault_kinds import Scene
from medusa.sim.world.machine import Machine
from medusa.sim.world.network import Faults, Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire import limits
from medusa.wire.client_mind import ClientMind
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.link.receiver import ReceivedRows
from medusa.wire.link.sender import Sender

__all__ = ["Chain", "ChainClasses", "ChainOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """Everything a seed decided about a chain; printed when it fails."""

    relays: int = 2
    rows: int = 500
    train_rows_max: int = 20
    gap_us: int = 5000
    """Between two trains."""

    work_us: int = 0
    reader_work_us: int = 0
    sync_us: int = 1000
    checkpoint_us: int = 200_000
    bursts: bool = False
    """Trains come in bursts, with silence between."""

    twin: bool = False
    faults: Faults = field(default_factory=Faults)
    link: LinkSettings = field(default_factory=LinkSettings)
    lost_ok: bool = False
    damage: bool = False
    """Disks give back what they never should: rows may be missing if somebody says so."""

    @property
    def active_us(self) -> int:
        """About how long rows are published, if nothing holds them up; at most 2 s."""
        trains = 2 * self.rows // (self.train_rows_max + 1) + 1
        return min(max(trains * self.gap_us // 2, 100_000), 2_000_000)


@dataclass(frozen=True, slots=True)
class ChainClasses:
    """The classes under test; a test plants a mistake by replacing one."""

    relay: type[Relay] = Relay
    reader: type[SubscriberActor] = SubscriberActor


def keep(number: int) -> Callable[[list[int]], list[int]]:
    """The function of relay ``number``: drops some rows, so that positions differ per stream."""
    drop = number + 3

    def apply(values: list[int]) -> list[int]:
        return [value for value in values if value % drop]

    return apply


class Chain:
    """Hosts by name (``pub``, ``r1`` ..., ``reader``), wired up and not yet started."""

    def __init__(self, world: World, options: ChainOptions, parts: ChainClasses | None = None) -> None:
        self.world = world
        self.options = options
        self.parts = parts or ChainClasses()
        self.network = Network(world, options.faults, self._deliver)
        self.hosts: dict[str, Host] = {}
        self.relays = [f"r{number}" for number in range(1, options.relays + 1)]
        self.nodes = [*self.relays, *(["twin"] if options.twin else [])]
        last = self.relays[-1]
        expected = list(range(options.rows))
        for number in range(1, options.relays + 1):
            expected = keep(number)(expected)
        self.delivered = Delivered(
            "reader",
            expected,
            lambda rows: unpack_rows(rows.payload)[rows.skip :],
            lost_ok=options.lost_ok,
            damage=options.damage,
        )
        self.told = False
        """Somebody reported lost rows, or a receiver that is ahead."""
        self._taken = 0
        self._kept: dict[str, int] = {}
        self._covered: dict[str, tuple[int, int]] = {}
        self._add("pub", self._publisher)
        for number, name in enumerate(self.relays, start=1):
            self._add(name, self._maker(number, name))
        if options.twin:
            self._add("twin", self._maker(2, "twin"))
        self._add(
            "reader",
            lambda disk, life: self.parts.reader(
                "reader", last, f"s{options.relays}", options.link, work_us=options.reader_work_us
            ),
        )

    def _add(self, name: str, make: Callable[[Disk, int], Mind]) -> None:
        self.hosts[name] = Host(
            self.world, self.network, name, make, sync_us=self.options.sync_us, watch=self._watch
        )

    def _publisher(self, disk: Disk, life: int) -> Mind:
        link = replace(self.options.link, at_limit="slow")  # Input is whole: what is shed is output.
        return PublisherActor("pub", self.relays[0], "in", SCHEMA, self._script(), link)

    def _script(self) -> Iterator[tuple[int, tuple[Buffer, int] | None, int | None]]:
        options, dice = self.options, self.world.dice("input")
        start = trains = 0
        while start < options.rows:
            count = min(dice.randrange(1, options.train_rows_max + 1), options.rows - start)
            rows = (pack_rows(list(range(start, start + count))), count)
            start += count
            trains += 1
            wait_us = dice.randrange(options.gap_us + 1)
            if options.bursts:
                wait_us = 20 * options.gap_us if trains % 20 == 0 else 0
            yield wait_us, rows, start if dice.random() < 0.7 else None

    def _maker(self, number: int, name: str) -> Callable[[Disk, int], Mind]:
        options = self.options
        readers = self.relays[number : number + 1]
        if number == 1 and options.twin:
            readers.append("twin")
        settings = RelaySettings(
            source="in" if number == 1 else f"s{number - 1}",
            node=None if number == 1 else self.relays[number - 2],
            target="t" if name == "twin" else f"s{number}",
            readers=() if name == "twin" else tuple(readers),
            apply=keep(number),
            link=options.link,
            work_us=lambda: options.work_us * self.hosts[name].slowness,
            checkpoint_us=options.checkpoint_us,
        )
        return lambda disk, life: self.parts.relay(name, settings, disk, life)

    def start(self) -> None:
        """Everybody comes to life, in order."""
        for host in self.hosts.values():
            host.start()

    # --- the stage of faults --------------------------------------------------------------------

    @property
    def machines(self) -> Mapping[str, Machine]:
        return {name: self.hosts[name] for name in self.nodes}

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        names = ["pub", *self.relays, "reader"]
        return [*itertools.pairwise(names), *([("r1", "twin")] if self.options.twin else [])]

    def restart(self, name: str) -> None:
        if not self.hosts[name].alive:
            self.hosts[name].start()

    def heal(self) -> None:
        """End of the faults: links whole, disks whole, everybody alive."""
        self.world.trace("world", "all faults end")
        self.network.heal_all()
        for name, host in self.hosts.items():
            host.disk.mend()
            host.slow_down(1)
            self.restart(name)

    @property
    def scene(self) -> Scene:
        """For the dice."""
        return Scene(machines=self.nodes, links=self.links, span_us=self.options.active_us)

    @property
    def lost(self) -> int:
        """Rows that were reported lost."""
        return self.delivered.lost

    @property
    def rows_in(self) -> int:
        return self.options.rows

    @property
    def rows(self) -> int:
        """Rows that arrived."""
        return self.delivered.rows

    @property
    def input_us(self) -> int:
        """When the last row comes: the waits between trains, of one row each."""
        return self.options.rows * self.options.gap_us

    @property
    def may_lose(self) -> bool:
        """Disks were damaged."""
        return self.options.damage

    def crash_all(self) -> bool:
        return False

    def check_end(self) -> None:
        """What is missing was told: by the stream, or by a node that misses rows itself."""
        if self.options.damage and not self.delivered.complete and not self.told:
            raise SimulationError(f"hidden: {self.delivered.rows} rows arrived, nobody reports a loss")

    @property
    def ended(self) -> bool:
        """Everything was published, delivered and is durable where there is a disk."""
        publisher = self.hosts["pub"].mind
        if not isinstance(publisher, PublisherActor) or not publisher.ended or not self.delivered.complete:
            return False
        return publisher.publication.durable and all(
            isinstance(mind := self.hosts[name].mind, Relay)
            and all(view.durable >= mind.sender.log.next_seq for view in mind.sender.receivers.values())
            for name in self.nodes
        )

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        self.hosts[target].deliver(source, frames)

    # --- checks -------------------------------------------------------------------------------

    def _watch(self, host: Host) -> None:
        mind = host.mind
        if host.refused:
            raise SimulationError(f"rules: {host.name} refused a frame, and nobody lies here")
        if isinstance(mind, Relay):
            self.told = self.told or (mind.receiver is not None and mind.receiver.lost_rows > 0)
            self._check_sender(host.name, mind.sender)
            if mind.receiver is not None:
                check_receiver(host.name, mind.receiver)
            self._check_retention(host.name, mind)
        elif isinstance(mind, SubscriberActor):
            check_receiver(host.name, mind.subscription.receiver)
            for delivery in mind.taken[self._taken :]:
                self.delivered.take(delivery)
                if isinstance(delivery, ReceivedRows):
                    self.world.trace("reader", f"rows {delivery.seq} to {self.delivered.next_seq}")
            self._taken = len(mind.taken)
        elif isinstance(mind, PublisherActor):
            self._check_sender(host.name, mind.publication.sender)
            if not self.options.damage:
                check_retention(host.name, mind.publication.sender, {"r1": self._synced("r1")})

    def _check_sender(self, name: str, sender: Sender) -> None:
        slack = MERGED_ROWS_MAX * 8 + 3 * limits.ENTRY_BYTES
        before = self._kept.get(name, 0)
        self._kept[name] = sender.log.nbytes
        check_sender(name, sender, before_bytes=before, slack_bytes=slack)

    def _check_retention(self, name: str, mind: Relay) -> None:
        if not self.options.damage and self.options.link.at_limit != "shed":
            readers = {reader: self._synced(reader) for reader in mind.settings.readers}
            check_retention(name, mind.sender, readers)

    def _synced(self, name: str) -> int:
        """What the disk of a relay covers, read from the disk itself."""
        disk = self.hosts[name].disk
        changes, covered = self._covered.get(name, (-1, 0))
        if changes != disk.changes:
            covered = covered_seq(disk)
            self._covered[name] = (disk.changes, covered)
        return covered

    def client(self, name: str) -> ClientMind:
        """The mind of an end, for scenarios that look inside."""
        mind = self.hosts[name].mind
        assert isinstance(mind, PublisherActor | SubscriberActor)
        return mind.client
