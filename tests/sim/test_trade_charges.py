"""``ChargeChecks.delivered``: of which intervals a receipt may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medusa.market.ledger.messages import ReadingSaid, ReceiptSaid
from medusa.market.ledger.receipts import LoadReading, LoadReceipt, canonical
from medusa.nodes.market.market_words import encode_word
from medusa.sim.lending.charge_checks import ChargeChecks
from medusa.sim.lending.trade_checks import TradedContract
from medusa.sim.world.clock import EPOCH_US
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.codec import encode_frame
from medusa.wire.messages.market import Booked
from tests.sim.trade_terms import with_bob

SECOND_US = 1_000_000
REVOKED_US = 8 * SECOND_US
INTERVAL = 9
"""It begins a second after the contract is revoked."""

TERMS = with_bob(lasts_s=20)


def receipted(
    monkeypatch: pytest.MonkeyPatch, *, said_us: int, signed_us: int, interval: int = INTERVAL
) -> None:
    """``b1`` says a reading, and ``a2`` a receipt for it."""
    reading = LoadReading(
        federation="sim",
        contract=TERMS.id,
        version=TERMS.version,
        provider="bob",
        consumer="alice",
        number=0,
        interval=interval,
        broken=0,
        tasks=(),
        amount_micro=0,
        rest=0,
        breach_micro=0,
        total_micro=0,
        breaches_micro=0,
    )
    data = canonical(reading)
    kept = SimpleNamespace(receipts={TERMS.id: 1}, readings={data})
    monkeypatch.setattr(ChargeChecks, "_kept", lambda checks, name: kept)
    world: Any = SimpleNamespace(now_us=said_us)
    about = TradedContract(terms=TERMS, fragments=frozenset({"q/per0"}), ends_us=EPOCH_US + REVOKED_US)
    checks = ChargeChecks(world, {}, [about], {"alice": "a2", "bob": "b1"}, "alice", 1_000)
    said = ReadingSaid(contract=TERMS.id, reading=data, signature=bytes(64))
    checks.delivered("b1", "a2", encode_frame(Booked(request=1), encode_word(said)))
    world.now_us = signed_us
    receipt = LoadReceipt(reading=data, provider_signature=bytes(64), consumer_signature=bytes(64))
    answer = ReceiptSaid(contract=TERMS.id, receipt=receipt)
    checks.delivered("a2", "b1", encode_frame(Booked(request=2), encode_word(answer)))


@pytest.mark.parametrize("signed_us", [REVOKED_US - 700_000, REVOKED_US + 30_000])
def test_a_host_whose_clock_is_ahead_reads_an_interval_before_its_contract_is_revoked(
    monkeypatch: pytest.MonkeyPatch, signed_us: int
) -> None:
    """What both have signed counts, whatever is signed later (seed 325)."""
    receipted(monkeypatch, said_us=REVOKED_US - 720_000, signed_us=signed_us)


def test_nobody_reads_an_interval_once_its_contract_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulationError, match="charge: with-bob has no interval 9: it had ended"):
        receipted(monkeypatch, said_us=REVOKED_US + 20_000, signed_us=REVOKED_US + 40_000)


def test_nobody_reads_an_interval_that_is_in_no_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulationError, match="charge: with-bob has no interval 20: it had ended"):
        receipted(monkeypatch, said_us=REVOKED_US - 720_000, signed_us=REVOKED_US, interval=20)
