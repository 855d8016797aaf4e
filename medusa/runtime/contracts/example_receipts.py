"""A small contract that both have signed, with receipts of work done under it: to see what a statement is.

Two ledgers make them in virtual time, hour by hour, as those of two participants do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from medusa.errors import ConfigError
from medusa.market.contract.signed import ContractDocument, countersign, sign_document
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, SayInLedger
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.receipts import LoadReceipt, SignedSettlement
from medusa.market.ledger.records import ReceiptKept, SettlementKept, read_record
from medusa.runtime.contracts.contract_files import write_signed
from medusa.runtime.contracts.receipt_files import receipt_lines
from medusa.runtime.keys.key_files import (
    PUBLIC_MODE,
    ParticipantKey,
    public_path,
    verifier,
    write_key,
    write_new,
)

__all__ = ["ExampleFiles", "write_example"]

FEDERATION, PROVIDER, CONSUMER = "netmon", "acme", "bigco"
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
HOURS = 52
"""Two days, which are settled, and some hours, which are open."""
BROKEN_HOUR, MISSED_US = 30, 60_000_000
"""In it tasks rested for so long, which is more than was promised."""


class _Task(NamedTuple):
    name: str
    rows_per_s: int
    nano_units_per_row: int
    price_micro: int


TASKS = (_Task("clicks/filter", 1_000, 400_000, 20_000), _Task("clicks/count", 250, 600_000, 18_000))


class ExampleFiles(NamedTuple):
    """What was written; ``documents``: how many receipts and settlements."""

    contract: Path
    receipts: Path
    provider_key: Path
    consumer_key: Path
    documents: int


def write_example(folder: Path, now_us: int) -> ExampleFiles:
    """Write a contract of three days ago, both keys, and receipts, into a folder, which is made if need be.

    Raises:
        ConfigError: one of the files is there already, or can't be written.
    """
    names = {party: folder / f"{party}.key" for party in (PROVIDER, CONSUMER)}
    contract_file, receipts_file = folder / "clicks.contract", folder / "clicks.receipts"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} can't be made: {error.strerror}", code="config.file") from None
    for path in (*names.values(), *map(public_path, names.values()), contract_file, receipts_file):
        if path.exists():
            raise ConfigError(
                f"{path} is there already, and nothing is written over it",
                hint="give a folder that isn't there yet",
                code="config.file",
            )
    keys = {party: ParticipantKey.new() for party in names}
    contract = _contract(now_us // DAY_US * DAY_US - 3 * DAY_US)
    document = ContractDocument(federation=FEDERATION, until_us=now_us, contract=contract)
    offer = sign_document(document, keys[CONSUMER], CONSUMER)
    receipts = list(_receipts(contract, keys))
    for party, path in names.items():
        write_key(path, "participant", keys[party])
    write_signed(contract_file, countersign(offer, keys[PROVIDER], PROVIDER))
    head = "# Receipts of three days, and the settlements of two: a line for each.\n"
    write_new(receipts_file, head + receipt_lines(receipts), PUBLIC_MODE)
    provider, consumer = (public_path(names[party]) for party in (PROVIDER, CONSUMER))
    return ExampleFiles(contract_file, receipts_file, provider, consumer, len(receipts))


def _contract(begins_us: int) -> Contract:
    return Contract(
        id="clicks",
        provider=PROVIDER,
        consumer=CONSUMER,
        begins_us=begins_us,
        ends_us=begins_us + 365 * DAY_US,
        price_micro=20_000,
        range_micro=4_000,
        units_per_s_max_milli=4_000,
        interval_s=3_600,
        availability_ppm=999_000,
        breach_micro=500_000,
        notice_s=7 * 86_400,
    )


def _receipts(
    contract: Contract, keys: Mapping[str, ParticipantKey]
) -> Iterator[LoadReceipt | SignedSettlement]:
    """What the consumer keeps, in order, while tasks run hour by hour."""
    public = {party: key.key for party, key in keys.items()}
    effects = {party: LedgerEffects() for party in keys}
    ledgers = {
        party: PartyLedger(
            party, FEDERATION, signer=keys[party], verify=verifier(), keys=public, effects=effects[party]
        )
        for party in keys
    }
    partners = {PROVIDER: CONSUMER, CONSUMER: PROVIDER}
    for party, ledger in ledgers.items():
        ledger.sign(contract.begins_us, contract)
        for number, task in enumerate(TASKS):
            ledger.began(
                contract.begins_us,
                contract.id,
                partners[party],
                negotiation=number,
                task=task.name,
                begin_row=0,
                nano_units_per_row=task.nano_units_per_row,
                price_micro=task.price_micro,
            )
    for hour in range(HOURS):
        begin_us = contract.begins_us + hour * HOUR_US
        missed_us = MISSED_US if hour == BROKEN_HOUR else 0
        for party, ledger in ledgers.items():
            ledger.measured(begin_us, contract.id, partners[party], missed_us=missed_us, latency_us=0)
            for number, task in enumerate(TASKS):
                rows = (hour + 1) * 3_600 * task.rows_per_s
                ledger.counted(begin_us, contract.id, partners[party], number, task.name, rows)
        for ledger in ledgers.values():
            ledger.tick(begin_us + HOUR_US)
        yield from _exchange(begin_us + HOUR_US, ledgers, effects)


def _exchange(
    now_us: int, ledgers: Mapping[str, PartyLedger], effects: Mapping[str, LedgerEffects]
) -> Iterator[LoadReceipt | SignedSettlement]:
    """Do what is to be done until nobody says anything more."""
    while waiting := [(party, effect) for party in effects for effect in effects[party].take()]:
        for party, effect in waiting:
            if isinstance(effect, SayInLedger):
                ledgers[effect.partner].receive(now_us, party, effect.message)
            elif isinstance(effect, KeepRecord) and party == CONSUMER:
                record = read_record(effect.data)
                if isinstance(record, ReceiptKept):
                    yield record.receipt
                elif isinstance(record, SettlementKept):
                    yield record.settlement
