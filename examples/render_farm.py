"""Frames that a farm renders for a studio: metered, receipted, disputed and settled. No stream is in it.

Both sign a reading of each interval; who owes whom follows from receipts alone. The wire loses a third of all
messages, the farm dies once, and in the end it says that it delivered frames which nobody has.
Usage: python examples/render_farm.py (with the extra federation)
"""

from __future__ import annotations

import random

from medusa.market.contract.terms import Contract
from medusa.market.ledger.client_accounts import ClientAccounts, ClientPrices, QueryUse
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, SayInLedger, StopWork
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.receipts import canonical
from medusa.market.ledger.records import ReceiptKept, read_record
from medusa.market.ledger.statement import load_statement
from medusa.market.ledger.statement_table import statement_table
from medusa.market.money import micro_of, money_text
from medusa.runtime.keys.key_files import ParticipantKey, verifier

SECOND, NANO, BEGIN = 1_000_000, 10**9, 1_735_689_600_000_000
CONTRACT = Contract(
    id="frames",
    provider="farm",
    consumer="studio",
    begins_us=BEGIN,
    ends_us=BEGIN + 600 * SECOND,
    price_micro=micro_of("0.0005"),  # for a core-second
    units_per_s_max_milli=100_000,
    interval_s=30,
)
SIGNERS = {name: ParticipantKey.new() for name in ("farm", "studio")}
KEYS = {name: signer.key for name, signer in SIGNERS.items()}
CHANCE = random.Random(1)


class Firm:
    def __init__(self, name: str, partner: str) -> None:
        self.name, self.partner, self.kept, self.runs = name, partner, [], True
        self.start()

    def start(self) -> None:
        self.effects = LedgerEffects()
        about = {"signer": SIGNERS[self.name], "verify": verifier(), "keys": KEYS, "effects": self.effects}
        self.ledger = PartyLedger.restored(self.kept, self.name, "film", **about)

    def perform(self, other: Firm, at_us: int) -> None:
        for effect in self.effects.take():
            if isinstance(effect, KeepRecord):
                self.kept.append(effect.data)
            elif isinstance(effect, SayInLedger) and CHANCE.random() < 2 / 3:
                other.ledger.receive(at_us, self.name, effect.message)
            elif isinstance(effect, StopWork):
                print(f"{(at_us - BEGIN) // SECOND} s: {self.name} stops work: {effect.text}")
                for negotiation, scene in effect.tasks:
                    self.ledger.ended(at_us, "frames", self.partner, negotiation, scene, frames)
                    other.ledger.ended(at_us, "frames", other.partner, negotiation, scene, frames)
                self.runs = other.runs = False

    def statement(self):
        records = [read_record(data) for data in self.kept]
        receipts = [canonical(each.receipt) for each in records if isinstance(each, ReceiptKept)]
        return load_statement(receipts, [CONTRACT], federation="film", keys=KEYS, verify=verifier())


farm, studio = Firm("farm", "studio"), Firm("studio", "farm")
for firm in (farm, studio):
    firm.ledger.sign(BEGIN, CONTRACT)
    for number, (scene, core_s) in enumerate((("chase", 40), ("titles", 5))):
        task = {"negotiation": number, "task": scene, "begin_row": 1, "price_micro": CONTRACT.price_micro}
        firm.ledger.began(BEGIN, "frames", firm.partner, nano_units_per_row=core_s * NANO, **task)

frames = 1
for at_us in range(BEGIN, BEGIN + 700 * SECOND, SECOND):
    frames += (at_us // SECOND) % 2 and farm.ledger.may_work(at_us, "frames", "studio")
    if at_us == BEGIN + 200 * SECOND:
        farm.start()  # dies, and has what it kept
    for number, scene in enumerate(("chase", "titles") if farm.runs else ()):
        said = frames + 50 * (at_us >= BEGIN + 540 * SECOND)
        farm.ledger.counted(at_us, "frames", "studio", number, scene, said)
        studio.ledger.counted(at_us, "frames", "farm", number, scene, frames)
    for firm, other in ((farm, studio), (studio, farm)):
        firm.ledger.tick(at_us)
        firm.perform(other, at_us)

one, other = farm.statement(), studio.statement()
print(f"both compute the same: {one == other}, wrong with receipts: {len(one.faults)}\n{one.summary()}")
for row in statement_table([one]).group_by("task").aggregate([("amount_micro", "sum")]).to_pylist():
    print(f"{row['task']}: {money_text(row['amount_micro_sum'], 'EUR')}")

# Who walks in from the street pays beforehand, and is told before anything of his stops.
walk_ins = ClientAccounts("farm", ClientPrices(message_micro=micro_of("0.02"), grace_s=60))
walk_ins.pay_in("anna", 0, micro_of("1"))
walk_ins.start("anna", "poster")
for minute in range(4):
    walk_ins.used(minute * 60 * SECOND, "anna", QueryUse(query="poster", messages=20 * (minute + 1)))
    for effect in walk_ins.take():
        print(f"minute {minute}: {effect.text}")
