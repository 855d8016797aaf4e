"""A chain under test: publisher, relays, subscriber, their network, and the checks after each event.

publisher --in--> r1 --s1--> r2 --s2--> ... --sn--> reader
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from medusa.ports import Buffer
from medusa.sim.actors import PublisherActor, SubscriberActor
from medusa.sim.checkers import Delivered, check_receiver, check_retention, check_sender
from medusa.sim.disk import Disk
from medusa.sim.host import Host, Mind
from medusa.sim.network import Faults, Network
from medusa.sim.relay import MERGED_ROWS_MAX, SCHEMA, Relay, RelaySettings, pack_rows, unpack_rows
from medusa.sim.world import SimulationError, World
from medusa.wire import limits
from medusa.wire.client import ClientMind
from medusa.wire.link import LinkSettings
from medusa.wire.receiver import Rows
from medusa.wire.sender import Sender

__all__ = ["Chain", "ChainOptions", "Parts"]


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
    faults: Faults = field(default_factory=Faults)
    link: LinkSettings = field(default_factory=LinkSettings)
    lost_ok: bool = False

    @property
    def active_us(self) -> int:
        """About how long rows are published, if nothing holds them up; at most 2 s."""
        trains = 2 * self.rows // (self.train_rows_max + 1) + 1
        return min(max(trains * self.gap_us // 2, 100_000), 2_000_000)


@dataclass(frozen=True, slots=True)
class Parts:
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

    def __init__(self, world: World, options: ChainOptions, parts: Parts | None = None) -> None:
        self.world = world
        self.options = options
        self.parts = parts or Parts()
        self.network = Network(world, options.faults, self._deliver)
        self.hosts: dict[str, Host] = {}
        self.relays = [f"r{number}" for number in range(1, options.relays + 1)]
        last = self.relays[-1]
        expected = list(range(options.rows))
        for number in range(1, options.relays + 1):
            expected = keep(number)(expected)
        self.delivered = Delivered(
            "reader",
            expected,
            lambda rows: unpack_rows(rows.payload)[rows.skip :],
            lost_ok=options.lost_ok,
        )
        self._taken = 0
        self._kept: dict[str, int] = {}
        self._add("pub", self._publisher)
        for number, name in enumerate(self.relays, start=1):
            self._add(name, self._maker(number, name))
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
        return PublisherActor("pub", self.relays[0], "in", SCHEMA, self._script(), self.options.link)

    def _script(self) -> Iterator[tuple[int, tuple[Buffer, int] | None, int | None]]:
        options, random = self.options, self.world.random
        start = 0
        while start < options.rows:
            count = min(random.randrange(1, options.train_rows_max + 1), options.rows - start)
            rows = (pack_rows(list(range(start, start + count))), count)
            start += count
            yield random.randrange(options.gap_us + 1), rows, start if random.random() < 0.7 else None

    def _maker(self, number: int, name: str) -> Callable[[Disk, int], Mind]:
        options = self.options
        settings = RelaySettings(
            source="in" if number == 1 else f"s{number - 1}",
            node=None if number == 1 else self.relays[number - 2],
            target=f"s{number}",
            readers=() if number == options.relays else (self.relays[number],),
            apply=keep(number),
            link=options.link,
            work_us=options.work_us,
            checkpoint_us=options.checkpoint_us,
        )
        return lambda disk, life: self.parts.relay(name, settings, disk, life)

    def start(self) -> None:
        """Everybody comes to life, in order."""
        for host in self.hosts.values():
            host.start()

    def ways(self) -> list[tuple[str, str]]:
        """Neighbours, both directions."""
        names = list(self.hosts)
        pairs = list(itertools.pairwise(names))
        return pairs + [(right, left) for left, right in pairs]

    @property
    def ended(self) -> bool:
        """Everything was published, delivered and is durable where there is a disk."""
        publisher = self.hosts["pub"].mind
        if not isinstance(publisher, PublisherActor) or not publisher.ended or not self.delivered.complete:
            return False
        return publisher.publication.durable and all(
            isinstance(mind := self.hosts[name].mind, Relay)
            and all(view.durable >= mind.sender.log.next_seq for view in mind.sender.receivers.values())
            for name in self.relays
        )

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        self.hosts[target].deliver(source, frames)

    # --- checks -------------------------------------------------------------------------------

    def _watch(self, host: Host) -> None:
        mind = host.mind
        if host.refused:
            raise SimulationError(f"rules: {host.name} refused a frame, and nobody lies here")
        if isinstance(mind, Relay):
            self._check_sender(host.name, mind.sender)
            if mind.receiver is not None:
                check_receiver(host.name, mind.receiver)
            self._check_retention(host.name, mind)
        elif isinstance(mind, SubscriberActor):
            check_receiver(host.name, mind.subscription.receiver)
            for delivery in mind.taken[self._taken :]:
                self.delivered.take(delivery)
                if isinstance(delivery, Rows):
                    self.world.trace("reader", f"rows {delivery.seq} to {self.delivered.next_seq}")
            self._taken = len(mind.taken)
        elif isinstance(mind, PublisherActor):
            self._check_sender(host.name, mind.publication.sender)
            check_retention(host.name, mind.publication.sender, self._synced(self.relays[0]))

    def _check_sender(self, name: str, sender: Sender) -> None:
        slack = MERGED_ROWS_MAX * 8 + 3 * limits.ENTRY_BYTES
        grew = sender.log.nbytes > self._kept.get(name, 0)
        self._kept[name] = sender.log.nbytes
        check_sender(name, sender, grew=grew, slack_bytes=slack)

    def _check_retention(self, name: str, mind: Relay) -> None:
        number = self.relays.index(name)
        if number + 1 < len(self.relays):
            check_retention(name, mind.sender, self._synced(self.relays[number + 1]))

    def _synced(self, name: str) -> dict[str, int]:
        """What the disk of a relay covers, read from the disk itself."""
        disk = self.hosts[name].disk
        groups = disk.names()
        if not groups:
            return {name: 0}
        return {name: msgspec.msgpack.decode(disk.read(groups[-1])["state"])["next_seq"]}

    def client(self, name: str) -> ClientMind:
        """The mind of an end, for scenarios that look inside."""
        mind = self.hosts[name].mind
        assert isinstance(mind, PublisherActor | SubscriberActor)
        return mind.client
