"""Two parties of one contract beside each other, second by second; either may lie."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from medusa.errors import ContractError, RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, LedgerLine, SayInLedger, StopWork
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.messages import LedgerMessage
from medusa.market.ledger.receipts import canonical
from medusa.market.ledger.records import DisputeKept, ReceiptKept, SettlementKept, read_record
from medusa.market.ledger.statement import LoadStatement, load_statement
from tests.market.ledger.keys import ToyKey, verify

__all__ = ["BEGIN_US", "SECOND", "TERMS", "Pair", "terms"]

SECOND = 1_000_000
BEGIN_US = 1_700_000_000 * SECOND

TERMS = Contract(
    id="power",
    provider="host",
    consumer="owner",
    begins_us=BEGIN_US,
    ends_us=BEGIN_US + 2_000 * SECOND,
    price_micro=1_000_000,
    range_micro=200_000,
    units_per_s_max_milli=1_000,
    settlement_s=100,
)
"""At most one unit a second, for 1 EUR: an interval of 10 s is worth 10 EUR at most."""

Lie = Callable[[LedgerMessage], list[LedgerMessage]]


def terms(**changed: Any) -> Contract:
    return msgspec.structs.replace(TERMS, **changed)


class Pair:
    """Rows are put out in each second, as many as the contract allows, and come at once.

    Attributes:
        says: for each party what becomes of its messages; else they go as they are.
        delivered, understated: shares of rows that come; and that the owner counts.
        by_wakes: ledgers tick only when they want to.
        inflated: the host counts so many times the rows that it put out.
    """

    def __init__(self, contract: Contract = TERMS, **settings: Any) -> None:
        self.contract, self.now = contract, contract.begins_us
        self.keys = {name: ToyKey(name).key for name in ("host", "owner", "third")}
        self.effects = {name: LedgerEffects() for name in ("host", "owner")}
        self.ledgers = {
            name: PartyLedger(
                name,
                "fed",
                signer=ToyKey(name),
                verify=verify,
                keys=self.keys,
                effects=self.effects[name],
                **settings,
            )
            for name in ("host", "owner")
        }
        self.says: dict[str, Lie] = {}
        self.disks: dict[str, list[bytes]] = {"host": [], "owner": []}
        self.receipts: dict[str, list[bytes]] = {"host": [], "owner": []}
        self.settlements: dict[str, list[bytes]] = {"host": [], "owner": []}
        self.disputes: dict[str, list[Any]] = {"host": [], "owner": []}
        self.stops: dict[str, list[StopWork]] = {"host": [], "owner": []}
        self.lines: dict[str, list[LedgerLine]] = {"host": [], "owner": []}
        self.refused: Counter[str] = Counter()
        self.delivered = self.understated = self.inflated = 1.0
        self.rows: dict[tuple[int, str], int] = {}
        self.worth_micro = self.ticks = 0
        self.by_wakes = False
        self._wakes: dict[str, int | None] = {}
        for ledger in self.ledgers.values():
            ledger.sign(self.now, contract)
        self.settle()

    @property
    def host(self) -> Any:
        return self.ledgers["host"].book(self.contract.id, "owner")

    @property
    def owner(self) -> Any:
        return self.ledgers["owner"].book(self.contract.id, "host")

    @property
    def paid_micro(self) -> int:
        """What receipts say, at the host."""
        return self.host.chain.total_micro - self.host.chain.breaches_micro

    def begin(
        self, negotiation: int = 0, task: str = "render", *, nano: int = 10**6, price: int = 10**6
    ) -> None:
        for book in (self.owner, self.host):
            book.began(self.now, negotiation, task, 0, nano, price)
        self.rows[negotiation, task] = 0
        self.settle()

    def end(self, negotiation: int = 0, task: str = "render", end_row: int | None = None) -> None:
        rows = self.rows[negotiation, task] if end_row is None else end_row
        for book in (self.owner, self.host):
            book.ended(self.now, negotiation, task, rows)
        self.settle()

    def run(self, seconds: int, *, rows: int = 1_000) -> Pair:
        """Let time pass; each task that runs puts out so many rows a second, of a thousandth of a unit."""
        for _ in range(seconds):
            for (negotiation, name), made in list(self.rows.items()):
                task = self.host.tasks.get((negotiation, name))
                if task is None or task.home:
                    continue
                if self.host.may_work(self.now):
                    more = min(rows, self.host.room_nano(self.now) // max(task.nano_units_per_row, 1))
                    made += more
                    self.rows[negotiation, name] = made
                    self.worth_micro += more * task.nano_units_per_row * task.price_micro // 10**9
                self.host.counted(self.now, negotiation, name, int(made * self.inflated))
                known = self.owner.tasks.get((negotiation, name))
                if known is not None:
                    seen = int(made * self.delivered * self.understated)
                    self.owner.counted(self.now, negotiation, name, seen)
            ticked = []
            for name, ledger in self.ledgers.items():
                wakes = self._wakes.get(name)
                if not self.by_wakes or (wakes is not None and self.now >= wakes):
                    ledger.tick(self.now)
                    self.ticks += 1
                    ticked.append(name)
            self.settle()
            self._wakes = {name: ledger.wake_at_us(self.now) for name, ledger in self.ledgers.items()}
            at_once = [name for name in ticked if self._wakes[name] == self.now]
            assert not at_once, f"{at_once} wants to be woken at once, for ever"
            self.now += SECOND
        return self

    def settle(self) -> None:
        """Do what is to be done until nobody says anything more."""
        waiting: deque[tuple[str, LedgerMessage]] = deque()
        while True:
            for name in self.effects:
                waiting.extend((name, message) for message in self._perform(name))
            if not waiting:
                return
            sender, message = waiting.popleft()
            other = "owner" if sender == "host" else "host"
            self.hear(other, sender, message)

    def hear(self, name: str, sender: str, message: LedgerMessage) -> str:
        """A message comes; the code if it is refused."""
        try:
            self.ledgers[name].receive(self.now, sender, message)
        except RemoteProtocolError as error:
            self.refused[error.code] += 1
            return error.code
        return ""

    def _perform(self, name: str) -> list[LedgerMessage]:
        said: list[LedgerMessage] = []
        for effect in self.effects[name].take():
            if isinstance(effect, KeepRecord):
                self.disks[name].append(effect.data)
                record = read_record(effect.data)
                if isinstance(record, ReceiptKept):
                    self.receipts[name].append(canonical(record.receipt))
                elif isinstance(record, DisputeKept):
                    self.disputes[name].append(record.dispute)
                elif isinstance(record, SettlementKept) and record.settlement.consumer_signature:
                    self.settlements[name].append(canonical(record.settlement))
            elif isinstance(effect, SayInLedger):
                lie = self.says.get(name)
                said += [effect.message] if lie is None else lie(effect.message)
            elif isinstance(effect, StopWork):
                self.stops[name].append(effect)
            else:
                self.lines[name].append(effect)
        return said

    def restart(self, name: str) -> None:
        """It dies, and comes back with what it kept."""
        self.effects[name] = LedgerEffects()
        self.ledgers[name] = PartyLedger.restored(
            self.disks[name],
            name,
            "fed",
            signer=ToyKey(name),
            verify=verify,
            keys=self.keys,
            effects=self.effects[name],
        )

    def statement(self, name: str = "host", **changed: Any) -> LoadStatement:
        about: dict[str, Any] = {
            "federation": "fed",
            "keys": self.keys,
            "verify": verify,
            "settlements": self.settlements[name],
        }
        receipts = changed.pop("receipts", self.receipts[name])
        return load_statement(receipts, [self.contract], **{**about, **changed})

    def refusal(self, call: Callable[[], Any]) -> str:
        """The code with which a call is refused."""
        try:
            call()
        except ContractError as error:
            return error.code
        return ""
