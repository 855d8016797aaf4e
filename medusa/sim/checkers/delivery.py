"""What must hold whatever happens. Apart from the code they check, and simpler than it.

``Delivered`` watches an end; the others look at one machine after each of its events.
``check_retention`` and ``check_restarted`` compare what a sender keeps with its receiver's *disk*,
not with what the sender was told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from medusa.elements import START_US
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.link.automaton import ReceiverState
from medusa.wire.link.receiver import Delivery, LostRows, ReceivedPromise, ReceivedRows, Receiver
from medusa.wire.link.sender import Sender

if TYPE_CHECKING:
    from medusa.sim.actors.client import Client
    from medusa.sim.actors.node import NodeMachine

__all__ = [
    "Delivered",
    "check_node",
    "check_receiver",
    "check_restarted",
    "check_retention",
    "check_sender",
]


class Delivered:
    """Each row once, in order, equal to the expected one; promises only grow and are kept.

    Args:
        expected: what a run without any fault gives.
        values: the rows of a payload, of whatever kind ``expected`` holds.
        time_us: the time of a value.
        lost_ok: rows may be missing where the stream itself reports exactly them.
        damage: rows may be missing anywhere, since a node upstream lost what was durable; those that
            come are expected ones, in order, each once.
    """

    def __init__(
        self,
        who: str,
        expected: Sequence[int],
        values: Callable[[ReceivedRows], list[int]],
        *,
        lost_ok: bool = False,
        damage: bool = False,
    ) -> None:
        self.next_seq = 0
        self.lost = 0
        self.rows = 0
        self._who = who
        self._expected = expected
        self._values = values
        self._lost_ok = lost_ok or damage
        self._damage = damage
        self._place = 0
        self._boundary_us: int = START_US

    @property
    def complete(self) -> bool:
        """Every expected row came or was reported lost."""
        return self.next_seq == len(self._expected)

    def take(self, delivery: Delivery) -> None:
        """Check the next delivery."""
        match delivery:
            case ReceivedRows():
                self._rows(delivery)
            case ReceivedPromise():
                if delivery.time_us <= self._boundary_us:
                    self._fail(f"promise {delivery.time_us} after {self._boundary_us}")
                self._boundary_us = delivery.time_us
            case LostRows():
                if not self._lost_ok or delivery.from_seq != self.next_seq:
                    self._fail(f"rows {delivery.from_seq} to {delivery.to_seq} reported lost")
                self.next_seq = delivery.to_seq
                self.lost += delivery.to_seq - delivery.from_seq

    def _rows(self, delivery: ReceivedRows) -> None:
        values = self._values(delivery)
        if self._lost_ok and not self.rows and not self.lost:
            self.lost = self.next_seq = delivery.seq  # It asked for the oldest that is kept: this one.
        if delivery.seq != self.next_seq:
            self._fail(f"row {delivery.seq} came, row {self.next_seq} is next")
        self.rows += len(values)
        end = self.next_seq + len(values)
        if self._damage:
            self._subset(values)
        elif values != list(self._expected[self.next_seq : end]):
            self._fail(f"rows {self.next_seq} to {end} are not the expected ones")
        if values and min(values) < self._boundary_us:
            self._fail(f"a row of time {min(values)} below the promise {self._boundary_us}")
        self.next_seq = end

    def _subset(self, values: list[int]) -> None:
        for value in values:
            self._place = bisect_left(self._expected, value, self._place)
            if self._place == len(self._expected) or self._expected[self._place] != value:
                self._fail(f"the row {value} is not one that is expected now")
            self._place += 1

    def _fail(self, what: str) -> None:
        raise SimulationError(f"delivered: {self._who}: {what}")


def check_receiver(who: str, receiver: Receiver) -> None:
    """Held bytes within the window; durable never beyond received; no rule was broken."""
    if receiver.state is ReceiverState.REFUSED:
        raise SimulationError(f"rules: {who} refused its stream, and nobody lies here")
    if not 0 <= receiver.held_bytes <= receiver.settings.window_bytes:
        raise SimulationError(
            f"window: {who} holds {receiver.held_bytes} of {receiver.settings.window_bytes} bytes"
        )
    if receiver.next_seq >= 0 and receiver.durable_seq > receiver.next_seq:
        raise SimulationError(f"durable: {who} says {receiver.durable_seq}, received {receiver.next_seq}")


def check_sender(who: str, sender: Sender, *, before_bytes: int, slack_bytes: int) -> None:
    """Credit is never overdrawn, retention is bounded, the log's count of bytes is true.

    Args:
        before_bytes: what the log held after the last event.
        slack_bytes: what one consumed train may give at most.
    """
    log = sender.log
    bound = sender.settings.retained_bytes_max if sender.receivers else sender.settings.keep_bytes
    if log.nbytes > before_bytes and log.nbytes > bound + slack_bytes:
        raise SimulationError(f"retained: {who} keeps {log.nbytes} bytes and took more")
    if log.nbytes != before_bytes and log.nbytes != sum(entry.cost for entry in log.entries()):
        raise SimulationError(f"retained: {who} counts {log.nbytes} bytes wrongly")
    for view in sender.receivers.values():
        if view.sent_bytes > view.granted:
            raise SimulationError(f"credit: {who} sent {view.sent_bytes} of {view.granted} to {view.peer}")
        if not view.durable <= max(view.acked, view.durable) or view.acked > view.sent_seq:
            raise SimulationError(f"acks: {who} believes {view}")


def check_retention(who: str, sender: Sender, synced: dict[str, int]) -> None:
    """No row is trimmed that a receiver's disk doesn't cover.

    Args:
        synced: per receiver with a disk, the position in its newest whole checkpoint.
    """
    for peer, position in synced.items():
        if sender.log.start_seq > position:
            raise SimulationError(
                f"trimmed: {who} keeps rows from {sender.log.start_seq}, the disk of {peer} has {position}"
            )


def check_node(node: NodeMachine) -> None:
    """Of each link of a node: credit is never overdrawn, windows hold, positions are in order."""
    if node.loop is None:
        return
    for hosted in node.brain.fragments.values():
        for input in hosted.inputs.values():
            receiver = input.receiver
            if not 0 <= receiver.held_bytes <= receiver.settings.window_bytes:
                raise SimulationError(
                    f"window: {node.name} holds {receiver.held_bytes} bytes of {receiver.stream}"
                )
            if receiver.durable_seq > receiver.next_seq >= 0:
                raise SimulationError(
                    f"durable: {node.name} says {receiver.durable_seq} of {receiver.stream}, "
                    f"received {receiver.next_seq}"
                )
        for output in hosted.outputs.values():
            for view in output.sender.receivers.values():
                if view.sent_bytes > view.granted or view.acked > view.sent_seq:
                    raise SimulationError(f"credit: {node.name} believes {view} of {output.stream}")


def check_restarted(
    node: NodeMachine,
    nodes: Mapping[str, NodeMachine],
    clients: Mapping[str, Client],
    *,
    owners: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A node that has just started finds upstream every row that its disk doesn't cover.

    Not at a node without a disk that died since: then both count what is lost. Nor for a fragment of which
    nothing is kept.

    Args:
        owners: of guarded fragments. What is another's by now is left out: rows are kept for that one, and
            this node has not heard so yet.
    """
    if node.loop is None:
        return
    for name, hosted in node.brain.fragments.items():
        if owners.get(name, node.name) != node.name or hosted.spec.keeps_nothing:
            continue
        for input in hosted.inputs.values():
            want, stream = input.receiver.next_seq, input.stream
            if input.by in clients:
                publication = clients[input.by].publication(stream)
                senders = [publication.sender] if publication is not None else []
            else:
                up = nodes.get(input.by)
                if up is None or up.loop is None or (up.forgets and up.lives > 1):
                    continue
                outputs = [each for other in up.brain.fragments.values() for each in other.outputs.values()]
                senders = [output.sender for output in outputs if output.stream == stream]
            for sender in senders:
                if sender.log.start_seq > want:
                    raise SimulationError(
                        f"trimmed: {input.by} keeps rows of {stream} from {sender.log.start_seq}, "
                        f"the disk of {node.name} has {want}"
                    )
