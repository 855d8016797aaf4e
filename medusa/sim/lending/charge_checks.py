"""What is owed, row by row: each receipt that goes over the network is reckoned anew, and looked for on disk.

It reads what is said, what nodes run and their disks, and shares no code with the ledger but how a document
is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from medusa.market.ledger.messages import ReadingSaid, ReceiptSaid, SettlementSaid
from medusa.market.ledger.receipts import LoadReading, TaskReading, read_reading, read_settlement
from medusa.market.ledger.records import BookState, ReadingKept, TaskBegan, TaskWent, read_record
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.market.market_words import read_booked
from medusa.ports import Buffer
from medusa.sim.checkers.catalog import newest_catalog
from medusa.sim.lending.trade_checks import LATE_US, ROUNDING, UNIT, TradedContract
from medusa.sim.world.clock import EPOCH_US
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.codec import decode_frame
from medusa.wire.messages.market import Booked

if TYPE_CHECKING:
    from medusa.sim.actors.node import NodeMachine

__all__ = ["ChargeChecks"]

BOOKED = b"\xa6booked"
"""How the header of a ``Booked`` goes on after its first byte."""


@dataclass(slots=True)
class _Rows:
    """Of a fragment in one epoch: rows that had come in.

    Attributes:
        first, last, least, most: when it was seen first, last, and at any time: a restart takes some back.
        until: contract -> the most by its end, and the moment more that what was agreed just before may take.
    """

    node: str
    first: int
    last: int
    least: int
    most: int
    until: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    """What a node's disk has of the ledger: its receipts by contract, and readings that it has signed.

    Attributes:
        changes: of the disk when it was read.
    """

    changes: int
    receipts: dict[str, int] = field(default_factory=dict)
    readings: set[bytes] = field(default_factory=set)


class ChargeChecks:
    """For each word about money that arrives, and after each turn of a node.

    A receipt charges rows of fragments that its contract is about, for a price of its range, that came in at
    the host before the contract ended, and while it had the fragment; each row once, whatever the contract;
    no more than two intervals allow. Its total is what all rows so far come to, and a settlement's is that of
    its last receipt. What is said of readings and receipts is on the disk of who says it.

    Args:
        traders: participant -> the node that trades for it.
        home: the participant whose fragments they are.
        nano_per_row: what a row of any of them takes.
    """

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, NodeMachine],
        contracts: Sequence[TradedContract],
        traders: Mapping[str, str],
        home: str,
        nano_per_row: int,
    ) -> None:
        self._world, self._nodes, self._traders = world, nodes, traders
        self._home, self._nano = home, nano_per_row
        self._contracts = {each.terms.id: each for each in contracts}
        self._rows: dict[tuple[str, int], _Rows] = {}
        self._receipts: dict[tuple[str, int], bytes] = {}
        self._worth: dict[str, int] = {}
        """Contract -> nano-units times micro-units of all that was receipted."""
        self._totals: dict[tuple[str, int], int] = {}
        self._charged: dict[str, list[tuple[int, int, str]]] = {}
        """Fragment -> rows that are paid for, from and to, and by what."""
        self._early: set[tuple[str, int]] = set()
        """Contract and interval of readings that came before its end: nobody had revoked it then."""
        self._disks: dict[str, _Kept] = {}

    # --- turns ----------------------------------------------------------------------------------------

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn."""
        wall_us = EPOCH_US + self._world.now_us
        for name, hosted in node.brain.fragments.items():
            if hosted.frozen or not any(name in each.fragments for each in self._contracts.values()):
                continue
            row = sum(each.fed_seq for each in hosted.inputs.values())
            about = name, node.brain.catalog.ownership.epoch(name)
            rows = self._rows.setdefault(about, _Rows(node.name, row, row, row, row))
            rows.last, rows.least, rows.most = row, min(rows.least, row), max(rows.most, row)
            for contract, known in self._contracts.items():
                if wall_us < known.ends_us + LATE_US:
                    rows.until[contract] = rows.most

    # --- words ----------------------------------------------------------------------------------------

    def delivered(self, source: str, target: str, frames: list[Buffer]) -> None:
        """A frame arrives.

        Raises:
            SimulationError: it charges what it may not, or isn't on the disk of who says it.
        """
        traders = self._traders.values()
        if source not in traders or target not in traders or bytes(frames[0][1:8]) != BOOKED:
            return
        message, payload = decode_frame(frames)
        if not isinstance(message, Booked):
            return
        word = read_booked(source, payload)
        if isinstance(word, ReadingSaid):
            self._note_reading(read_reading(word.reading))
            self._check_reading_kept(source, word)
        elif isinstance(word, ReceiptSaid):
            reading = read_reading(word.receipt.reading)
            if self._kept(source).receipts.get(word.contract, 0) <= reading.number:
                raise SimulationError(
                    f"kept: {source} says receipt {reading.number} of {word.contract}, and its disk hasn't it"
                )
            self._check_receipt(reading, word.receipt.reading)
        elif isinstance(word, SettlementSaid):
            settlement = read_settlement(word.settlement.settlement)
            total = self._totals.get((word.contract, settlement.through))
            if total != settlement.total_micro:
                raise SimulationError(f"charge: {settlement} of {word.contract}, receipts come to {total}")

    def _note_reading(self, reading: LoadReading) -> None:
        if EPOCH_US + self._world.now_us < self._contracts[reading.contract].ends_us:
            self._early.add((reading.contract, reading.interval))

    def _check_reading_kept(self, source: str, word: ReadingSaid) -> None:
        kept, number = self._kept(source), read_reading(word.reading).number
        if word.reading not in kept.readings and kept.receipts.get(word.contract, 0) <= number:
            raise SimulationError(
                f"kept: {source} says reading {number} of {word.contract}, and its disk hasn't it"
            )

    def _check_receipt(self, reading: LoadReading, data: bytes) -> None:
        name = reading.contract
        if (before := self._receipts.setdefault((name, reading.number), data)) != data:
            raise SimulationError(f"charge: {name} has two receipts {reading.number}: {before!r}, {data!r}")
        if (name, reading.number) in self._totals:
            return
        known = self._contracts[name]
        terms = known.terms
        begins_us = terms.begins_us + reading.interval * terms.interval_s * 1_000_000
        # By a clock that is ahead it was over before anybody revoked its contract.
        ends_us = terms.ends_us if (name, reading.interval) in self._early else known.ends_us
        if begins_us >= ends_us:
            raise SimulationError(f"charge: {name} has no interval {reading.interval}: it had ended")
        for task in reading.tasks:
            self._check_rows(known, task)
        units = sum((each.end_row - each.begin_row) * each.nano_units_per_row for each in reading.tasks)
        most = 2 * terms.units_per_s_max_milli * terms.interval_s * UNIT // 1_000
        if units > most:
            raise SimulationError(f"charge: {units} nano-units in two intervals of {name}, of {most}")
        worth = sum(
            (each.end_row - each.begin_row) * each.nano_units_per_row * each.price_micro
            for each in reading.tasks
        )
        self._worth[name] = self._worth.get(name, 0) + worth
        self._totals[name, reading.number] = total = self._worth[name] // UNIT
        if reading.total_micro != total:
            raise SimulationError(
                f"charge: receipt {reading.number} of {name} says {reading.total_micro}, rows come to {total}"
            )

    def _check_rows(self, known: TradedContract, task: TaskReading) -> None:
        terms = known.terms
        about = f"rows {task.begin_row} to {task.end_row} of {task.task} by {terms.id}"
        owner, _, fragment = task.task.partition("/")
        if owner != self._home or fragment not in known.fragments:
            raise SimulationError(f"charge: {about}, which isn't about it")
        if not terms.price_micro - terms.range_micro <= task.price_micro <= terms.price_micro:
            raise SimulationError(f"charge: {about} for {task.price_micro}: that is none of its prices")
        if task.nano_units_per_row > self._nano * ROUNDING:
            raise SimulationError(
                f"charge: {about} at {task.nano_units_per_row} a row: it takes {self._nano}"
            )
        if why := self._why_not_there(known, fragment, task):
            raise SimulationError(f"charge: {about}: {why}")
        charged = self._charged.setdefault(fragment, [])
        for begin, end, by in charged:
            if begin < task.end_row and task.begin_row < end:
                raise SimulationError(f"charge: {about}: rows {begin} to {end} are paid by {by}")
        charged.append((task.begin_row, task.end_row, terms.id))

    def _why_not_there(self, known: TradedContract, fragment: str, task: TaskReading) -> str:
        """Why these rows didn't all come in at the host, in one stay and in time; empty: they did."""
        host, why = self._traders[known.terms.provider], "it was never there"
        epochs = [self._rows[each] for each in sorted(self._rows) if each[0] == fragment]
        for number, rows in enumerate(epochs):
            if rows.node != host:
                continue
            by_its_end = rows.until.get(known.terms.id, 0)
            if task.end_row > rows.most:
                why = f"{rows.most} had come in there"
            elif task.end_row > by_its_end:
                why = f"{by_its_end} had come in there when the contract ended"
            elif number and task.begin_row < min(epochs[number - 1].last, rows.least):
                # An owner that was cut off may have gone on in vain, and a host that is seen has begun.
                why = f"{epochs[number - 1].last} had come in at home, and {rows.least} when it was there"
            elif number + 1 < len(epochs) and task.end_row > epochs[number + 1].first:
                why = f"it went on elsewhere at {epochs[number + 1].first}"
            else:
                return ""
        return why

    # --- the end --------------------------------------------------------------------------------------

    def check_over(self, lost: Set[str]) -> None:
        """All is home, and both parties of each contract know of each task at which row.

        Raises:
            SimulationError: a party that isn't lost has a task in its ledger that hasn't ended.
        """
        for known in self._contracts.values():
            parties = [self._traders[each] for each in (known.terms.consumer, known.terms.provider)]
            if lost & {*parties}:
                continue
            for name in parties:
                if runs := self._running(name, known.terms.id):
                    raise SimulationError(f"ended: {name} has not heard that {sorted(runs)} are home")

    def _running(self, name: str, contract: str) -> set[tuple[int, str]]:
        found: set[tuple[int, str]] = set()
        for record in map(read_record, self._nodes[name].brain.catalog.market.ledger):
            if isinstance(record, TaskBegan) and record.contract == contract:
                found.add((record.negotiation, record.task))
            elif isinstance(record, TaskWent) and record.contract == contract:
                found.discard((record.negotiation, record.task))
        return found

    # --- disks ----------------------------------------------------------------------------------------

    def _kept(self, name: str) -> _Kept:
        node = self._nodes[name]
        found = self._disks.get(name)
        if found is None or found.changes != node.disk.changes:
            found = self._disks[name] = _Kept(changes=node.disk.changes)
            data = newest_catalog(node)
            if data is None:
                return found
            kept = Catalog.from_bytes(data, node=name, where=f"the disk of {name}").market
            for record in map(read_record, kept.ledger):
                if isinstance(record, BookState):
                    found.receipts[record.contract] = record.chain.number
                elif isinstance(record, ReadingKept):
                    found.readings.add(record.reading)
        return found
