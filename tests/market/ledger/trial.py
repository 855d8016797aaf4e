"""Parties, contracts and tasks in virtual time, under deaths, partitions, loss, replays and reordering.

What each party keeps is a list of records. A party dies before or after any effect, and comes back with that
list alone and with what its streams know: how many rows it has put out up to its last checkpoint, how many it
has. Everything the checks compare with is counted here, by the trial itself.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from medusa.errors import ContractError, RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.chain import exposure_most_micro, interval_most_nano
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, SayInLedger, StopWork
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.receipts import (
    canonical,
    read_reading,
    read_receipt,
    read_settlement,
    read_signed_settlement,
)
from medusa.market.ledger.records import ReceiptKept, SettlementKept, read_record
from medusa.market.ledger.statement import load_statement
from medusa.market.work import NANO
from tests.market.ledger.keys import ToyKey, verify

__all__ = ["Broken", "Trial", "run_trial"]

SECOND = 1_000_000
INTERVAL_S = 10
HEAL_S = 300


class Broken(AssertionError):
    """A promise of the ledger isn't kept."""


def claim(true: bool, text: str) -> None:
    if not true:
        raise Broken(text)


class Task:
    """One task, as it really is.

    Attributes:
        made: (row, time): rows before it were put out by then.
        checkpoint: rows that the provider wouldn't lose.
        has: rows that the consumer has.
        final: rows before it are the provider's; None: it runs.
    """

    def __init__(self, contract: Contract, number: int, begin_row: int, nano: int, price: int) -> None:
        self.contract, self.number, self.name = contract, number, f"task-{number % 3}"
        self.begin_row = self.produced = self.checkpoint = self.has = begin_row
        self.nano, self.price = nano, price
        self.made: list[tuple[int, int]] = []
        self.consumer_knows = self.provider_knows = self.stopping = self.provider_done = False
        self.final: int | None = None


class Party:
    """One that dies and comes back."""

    def __init__(self, trial: Trial, name: str) -> None:
        self.trial, self.name = trial, name
        self.signer = ToyKey(name)
        self.disk: list[bytes] = []
        self.receipts: list[bytes] = []
        self.settlements: list[bytes] = []
        self.alive = True
        self.skew_us = trial.chance.choice((0, 0, 0, -25, -1, 2, 28)) * SECOND
        self.effects = LedgerEffects()
        self.ledger: PartyLedger

    @property
    def now(self) -> int:
        """By its own clock."""
        return self.trial.now + self.skew_us

    def start(self) -> None:
        self.effects = LedgerEffects()
        self.ledger = PartyLedger.restored(
            self.disk,
            self.name,
            "fed",
            signer=self.signer,
            verify=verify,
            keys=self.trial.keys,
            effects=self.effects,
        )
        self.alive = True
        for task in self.trial.tasks:
            contract = task.contract
            if self.name == contract.consumer and task.consumer_knows:
                self.count(task, task.has)
            elif self.name == contract.provider and task.provider_knows:
                self.count(task, task.produced)

    def book(self, contract: Contract) -> Any:
        partner = contract.consumer if self.name == contract.provider else contract.provider
        return self.ledger.book(contract.id, partner)

    def count(self, task: Task, end_row: int) -> None:
        book = self.book(task.contract)
        if (task.number, task.name) in book.tasks:
            book.counted(self.now, task.number, task.name, end_row)

    def die(self) -> None:
        trial = self.trial
        trial.seen["deaths"] += 1
        self.alive = False
        for task in trial.tasks:
            if self.name == task.contract.provider:
                task.produced = task.checkpoint
                task.made = [each for each in task.made if each[0] <= task.produced]
        trial.after(trial.chance.choice((1, 3, 8, 25)) * SECOND, self.start)

    def perform(self) -> bool:
        """Do what is to be done; False: it died on the way."""
        for effect in self.effects.take():
            if self.trial.faulty and self.trial.chance.random() < self.trial.death:
                self.die()
                return False
            if isinstance(effect, KeepRecord):
                self.disk.append(effect.data)
                record = read_record(effect.data)
                if isinstance(record, ReceiptKept):
                    self.receipts.append(canonical(record.receipt))
                elif isinstance(record, SettlementKept) and record.settlement.consumer_signature:
                    self.settlements.append(canonical(record.settlement))
            elif isinstance(effect, SayInLedger):
                self.trial.send(self, effect.partner, effect.message)
            elif isinstance(effect, StopWork):
                self.trial.seen[effect.code] += 1
                self.trial.stop(effect)
        if self.trial.faulty and self.trial.chance.random() < 0.003:
            self.disk = self.ledger.snapshot()
        return True


class Trial:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now, self.faulty = 1_700_000_000 * SECOND, True
        self.seen: Counter[str] = Counter()
        self._events: list[tuple[int, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        self.loss = chance.choice((0.0, 0.02, 0.2))
        self.twice = chance.choice((0.0, 0.05, 0.3))
        self.late = chance.choice((0.0, 0.05))
        self.death = chance.choice((0.0, 0.01, 0.05))
        names = ["ann", "bob", "cid", "dot"][: chance.randint(2, 4)]
        self.parties = {name: Party(self, name) for name in names}
        self.keys = {name: party.signer.key for name, party in self.parties.items()}
        self.cut: set[frozenset[str]] = set()
        self.versions: dict[str, list[Contract]] = {}
        self.ends: dict[str, int] = {}
        self.tasks: list[Task] = []
        self.over_us = self.now
        for party in self.parties.values():
            party.start()
        for number in range(chance.randint(1, 3)):
            self._draw_contract(number, *chance.sample(names, 2))
        self._draw_faults()

    # --- what is drawn -----------------------------------------------------------------------------

    def _draw_contract(self, number: int, provider: str, consumer: str) -> None:
        chance, promises = self.chance, self.chance.random() < 0.4
        begins_us = self.now + chance.randrange(20 * SECOND)
        settlement_s = chance.choice((40, 95, 200))
        price = chance.choice((7, 20_000, 3_000_000))
        terms = Contract(
            id=f"c-{number}",
            provider=provider,
            consumer=consumer,
            begins_us=begins_us,
            ends_us=begins_us + chance.randint(120, 400) * SECOND + chance.randrange(SECOND),
            price_micro=price,
            range_micro=price // 2,
            units_per_s_max_milli=2_000,
            cap_micro=chance.choice((0, 0, 0, price * 8, 1)),
            interval_s=INTERVAL_S,
            settlement_s=settlement_s,
            tolerance_ppm=chance.choice((0, 0, 0, 20_000)),
            availability_ppm=900_000 if promises else 0,
            breach_micro=price // 3 if promises else 0,
        )
        versions = self.versions[terms.id] = [terms]
        while chance.random() < 0.4 and len(versions) < 3:
            last = versions[-1]
            if last.ends_us - last.begins_us < 100 * SECOND:
                break
            begins_us = last.begins_us + chance.randint(50, 90) * SECOND + chance.randrange(SECOND)
            versions.append(
                msgspec.structs.replace(
                    last,
                    version=last.version + 1,
                    begins_us=begins_us,
                    interval_s=chance.choice((INTERVAL_S, INTERVAL_S, 7)),
                    settlement_s=chance.choice((40, 95, 200)),
                )
            )
        for contract in versions:
            for party in (provider, consumer):
                early = 0 if contract.version == 1 else chance.choice((0, 20, -15)) * SECOND
                at_us = self.now if contract.version == 1 else max(contract.begins_us - early, self.now)
                self.at(at_us, lambda party=party, contract=contract: self._sign(party, contract))
        self.over_us = max(self.over_us, *(each.ends_us for each in versions))
        if chance.random() < 0.3:
            ends_us = versions[-1].begins_us + chance.randint(30, 100) * SECOND
            self.ends[terms.id] = ends_us
            for party in (provider, consumer):
                at_us = ends_us - chance.choice((20, 2, -12)) * SECOND
                self.at(at_us, lambda party=party: self._end(party, terms, ends_us))
        for _ in range(chance.randint(2, 9)):
            at_us = terms.begins_us + chance.randrange(250 * SECOND)
            self.at(at_us, lambda: self._hand_over(terms))

    def _draw_faults(self) -> None:
        chance, names = self.chance, list(self.parties)
        for _ in range(chance.choice((0, 2, 6))):
            party = self.parties[chance.choice(names)]
            self.at(
                self.now + chance.randrange(self.over_us - self.now),
                lambda party=party: party.die() if party.alive and self.faulty else None,
            )
        for _ in range(chance.choice((0, 1, 4))):
            pair = frozenset(chance.sample(names, 2))
            at_us = self.now + chance.randrange(self.over_us - self.now)
            self.at(at_us, lambda pair=pair: self.cut.add(pair))
            length_us = chance.choice((3, 12, 26, 60)) * SECOND
            self.at(at_us + length_us, lambda pair=pair: self.cut.discard(pair))
        for party in self.parties.values():
            self.after(chance.randrange(SECOND), lambda party=party: self._each_second(party))
        self.at(self.over_us + 30 * SECOND, self._heal)

    # --- time --------------------------------------------------------------------------------------

    def at(self, time_us: int, what: Callable[[], Any]) -> None:
        heapq.heappush(self._events, (max(time_us, self.now), next(self._order), what))

    def after(self, delay_us: int, what: Callable[[], Any]) -> None:
        self.at(self.now + delay_us, what)

    def run(self) -> Trial:
        until = self.over_us + (30 + HEAL_S) * SECOND
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.check_end()
        return self

    def _heal(self) -> None:
        self.faulty = False
        self.cut.clear()

    def reachable(self, one: str, other: str) -> bool:
        return (
            self.parties[one].alive and self.parties[other].alive and frozenset((one, other)) not in self.cut
        )

    def send(self, sender: Party, to: str, message: Any) -> None:
        chance = self.chance
        copies = 1 + (self.faulty and chance.random() < self.twice)
        for _ in range(copies):
            if self.faulty and chance.random() < self.loss:
                continue
            delay_us = chance.randrange(1, 400_000)
            if self.faulty and chance.random() < self.late:
                delay_us = chance.randrange(1, 60 * SECOND)
            self.after(delay_us, lambda: self._deliver(sender.name, to, message))

    def _deliver(self, sender: str, to: str, message: Any) -> None:
        party = self.parties[to]
        if frozenset((sender, to)) in self.cut or not party.alive:
            return
        self.seen[type(message).__name__] += 1
        try:
            party.ledger.receive(party.now, sender, message)
        except RemoteProtocolError as error:
            self.seen[f"refused {error.code}"] += 1
        party.perform()
        self.check(party)

    # --- contracts and tasks -----------------------------------------------------------------------

    def _sign(self, name: str, contract: Contract) -> None:
        party = self.parties[name]
        signed = False
        follows = contract.version == 1 or (
            party.alive and party.book(contract).versions.get(contract.version - 1) is not None
        )
        if party.alive and follows:
            party.ledger.sign(party.now, contract)
            signed = party.perform()
        if not signed:
            self.after(SECOND, lambda: self._sign(name, contract))

    def _end(self, name: str, terms: Contract, ends_us: int) -> None:
        party = self.parties[name]
        ended = False
        if party.alive and party.book(terms).versions.get(self.versions[terms.id][-1].version):
            party.book(terms).end(ends_us)
            ended = party.perform()
        if not ended:
            self.after(SECOND, lambda: self._end(name, terms, ends_us))

    def _hand_over(self, terms: Contract) -> None:
        chance = self.chance
        price = terms.price_micro - chance.choice((0, 0, terms.range_micro))
        task = Task(terms, len(self.tasks), chance.choice((0, 1_000)), chance.choice((1, 999, 10**7)), price)
        self.tasks.append(task)

    def stop(self, effect: StopWork) -> None:
        """Tasks go home."""
        for task in self.tasks:
            if task.contract.id == effect.contract and (task.number, task.name) in effect.tasks:
                task.stopping = True

    def _each_second(self, party: Party) -> None:
        self.after(SECOND, lambda: self._each_second(party))
        if not party.alive:
            return
        for task in self.tasks:
            if party.alive and party.name == task.contract.consumer:
                self._consumer_of(party, task)
            elif party.alive and party.name == task.contract.provider:
                self._provider_of(party, task)
        if party.alive:
            for contracts in self.versions.values():
                if party.name == contracts[0].provider:
                    party.book(contracts[0]).measured(party.now, 0, 0)
            party.ledger.tick(party.now)
            party.perform()
        self.check(party)

    def _consumer_of(self, party: Party, task: Task) -> None:
        """It hands the task over, and takes it home."""
        book, key = party.book(task.contract), (task.number, task.name)
        if not task.consumer_knows:
            if task.stopping or key in book.tasks:
                task.consumer_knows = True  # kept, and it died before it could say so
                return
            try:
                book.began(party.now, task.number, task.name, task.begin_row, task.nano, task.price)
            except ContractError as error:
                self.seen[error.code] += 1
                task.consumer_knows = task.stopping = task.provider_done = True
                task.final = task.begin_row
            else:
                task.consumer_knows = party.perform()
        elif task.stopping and task.final is None:
            final = task.has
            book.ended(party.now, task.number, task.name, final)
            if party.perform():
                task.final = final
        elif not task.stopping and self.chance.random() < 0.004:
            task.stopping = True

    def _provider_of(self, party: Party, task: Task) -> None:
        """It takes the task over, runs it, and gives it back."""
        consumer, key = task.contract.consumer, (task.number, task.name)
        if task.provider_done or not task.consumer_knows:
            return
        book = party.book(task.contract)
        if not self.reachable(party.name, consumer):
            pass
        elif task.final is not None:
            book.ended(party.now, task.number, task.name, task.final)
            task.provider_done = party.perform() and (task.provider_knows or key not in book.tasks)
            return
        elif key not in book.tasks and not task.stopping:
            try:
                book.began(party.now, task.number, task.name, task.begin_row, task.nano, task.price)
            except ContractError as error:
                self.seen[error.code] += 1
                task.stopping = True
                return
            if not party.perform():
                return
            task.provider_knows = True
        if key in book.tasks and task.final is None:
            self._work(party, task)

    def _work(self, party: Party, task: Task) -> None:
        """A second of it; rows come out, and all so far are sent again."""
        book = party.book(task.contract)
        if not task.stopping and book.may_work(party.now):
            newest = book.versions.get(book.versions.at(party.now).version)
            most = newest.units_per_s_max_milli * NANO // 1_000 // 4 // task.nano
            most = min(most, book.room_nano(party.now) // task.nano, self.chance.choice((0, 1, 50, 10**6)))
            rows = self.chance.randint(0, most) if most > 0 else 0
            task.produced += rows
            if rows and task.produced > (task.made[-1][0] if task.made else task.begin_row):
                task.made.append((task.produced, self.now))
            if self.chance.random() < 0.2:
                task.checkpoint = task.produced
        self.count_at(party, task)
        if self.chance.random() >= self.loss or not self.faulty:
            end_row, consumer = task.produced, self.parties[task.contract.consumer]
            self.after(
                self.chance.randrange(1, 300_000),
                lambda: self._rows_come(party.name, consumer, task, end_row),
            )

    def count_at(self, party: Party, task: Task) -> None:
        party.count(task, task.produced)

    def _rows_come(self, provider: str, consumer: Party, task: Task, end_row: int) -> None:
        ended = task.final is not None
        if consumer.alive and frozenset((provider, consumer.name)) not in self.cut and not ended:
            book = consumer.book(task.contract)
            known = book.tasks.get((task.number, task.name))
            if known is not None and not known.home:
                task.has = max(task.has, end_row)
                consumer.count(task, task.has)

    # --- checks ------------------------------------------------------------------------------------

    def check(self, party: Party) -> None:
        """What holds at every step."""
        if not party.alive:
            return
        sums = party.ledger.accounts.sums()
        claim(not any(sums.values()), f"the balances of {party.name} are {sums} together")
        for standing in party.ledger.status():
            terms = self.versions[standing.contract][0]
            if party.name == terms.provider:
                self._check_exposure(party, terms)

    def _check_exposure(self, party: Party, terms: Contract) -> None:
        book = party.book(terms)
        oldest, newest, worth = None, None, 0
        for task in self.tasks:
            known = book.tasks.get((task.number, task.name))
            if task.contract.id != terms.id or known is None:
                continue
            paid = book.chain.end_row((task.number, task.name), task.begin_row)
            paid += self._tolerated(task)
            top = min(max(known.counted, task.produced), task.final or 1 << 62)
            times = [time for row, time in task.made if paid < row <= top]
            worth += max(top - paid, 0) * task.nano * task.price
            for time in times:
                oldest = time if oldest is None else min(oldest, time)
                newest = time if newest is None else max(newest, time)
        if oldest is not None and newest is not None:
            span = (newest - oldest) / SECOND
            claim(span < 2 * INTERVAL_S, f"exposure: {terms.id} has {span:.1f} s of work without a receipt")
        most = exposure_most_micro(terms)
        claim(worth // NANO <= most, f"exposure: {terms.id} has {worth // NANO:,} of {most:,} micro-units")

    def _tolerated(self, task: Task) -> int:
        """Rows that may be receipted and not be there, or the other way round."""
        terms = task.contract
        return 2 * interval_most_nano(terms) // task.nano * terms.tolerance_ppm // 1_000_000

    def check_end(self) -> None:
        """What holds once all is healed and over."""
        for name, versions in self.versions.items():
            terms = versions[0]
            sides = [self.parties[terms.provider], self.parties[terms.consumer]]
            statements = [
                load_statement(
                    [
                        each
                        for each in side.receipts
                        if read_reading(read_receipt(each).reading).contract == name
                    ],
                    versions,
                    federation="fed",
                    keys=self.keys,
                    verify=verify,
                    settlements=self._settlements_of(side, name),
                )
                for side in sides
            ]
            claim(statements[0] == statements[1], f"statements of {name} differ: {statements}")
            claim(not statements[0].faults, f"statement of {name}: {statements[0].faults}")
            self._check_paid(name, statements[0])
            for side in sides:
                book = side.book(terms)
                claim(not book.tasks, f"{side.name} still has tasks of {name}: {sorted(book.tasks)}")
                claim(book.owed_micro == 0, f"{name}: {book.owed_micro:,} are not settled at {side.name}")
                sign = 1 if side.name == terms.provider else -1
                for account, micro in side.ledger.accounts.balances().items():
                    if account.about.startswith(f"{name}/") and account.party == side.name:
                        due = sign * statements[0].amount_micro if account.kind == "settled" else 0
                        claim(micro == due, f"{account} has {micro:,} instead of {due:,}")

    def _settlements_of(self, side: Party, name: str) -> list[bytes]:
        return [
            each
            for each in side.settlements
            if read_settlement(read_signed_settlement(each).settlement).contract == name
        ]

    def _check_caps(self, name: str, statement: Any) -> None:
        billed: Counter[tuple[int, int]] = Counter()
        versions = {each.version: each for each in self.versions[name]}
        for line in statement.lines:
            terms = versions[line.version]
            if line.task:
                billed[line.version, line.interval * terms.interval_s // terms.settlement_s] += (
                    line.amount_micro
                )
        cap = self.versions[name][0].cap_micro
        most = max(billed.values(), default=0)
        claim(not cap or most <= cap, f"cap: {name} bills {most:,} in a period, {cap:,} is the cap")

    def _check_paid(self, name: str, statement: Any) -> None:
        """Each row that the consumer has is paid once, and no other."""
        work, capped = 0, self.versions[name][0].cap_micro
        for task in self.tasks:
            if task.contract.id != name:
                continue
            rows: list[tuple[int, int]] = sorted(
                (line.begin_row, line.end_row)
                for line in statement.lines
                if (line.negotiation, line.task) == (task.number, task.name)
            )
            at = task.begin_row
            for begin, end in rows:
                claim(begin == at, f"{task.name} of {name}: rows {begin} to {end} are paid after {at}")
                at = end
            final = task.begin_row if task.final is None else task.final
            claim(task.final is not None, f"{task.name} of {name} never came home")
            tolerated = self._tolerated(task)
            claim(final <= at <= final + tolerated, f"{task.name} of {name} is paid up to {at}, {final} came")
            work += (at - task.begin_row) * task.nano * task.price
        amount = statement.amount_micro + statement.breaches_micro
        self._check_caps(name, statement)
        if capped:
            claim(amount <= work // NANO, f"{name}: {amount:,} were billed, {work // NANO:,} done")
        else:
            claim(amount == work // NANO, f"{name}: {amount:,} were billed, {work // NANO:,} done")
        intervals = [(line.version, line.interval) for line in statement.lines]
        claim(intervals == sorted(intervals), f"{name}: intervals are out of order")
        self.seen["receipts"] += statement.receipts
        self.seen["paid"] += amount


def run_trial(seed: int) -> Trial:
    return Trial(seed).run()
