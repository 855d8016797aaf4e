"""Two honest parties who are cut off from each other: what it costs, and that they trade again."""

from __future__ import annotations

import pytest

from medusa.errors import ContractError
from medusa.market.ledger.book import LedgerSettings
from medusa.market.ledger.chain import exposure_most_micro
from tests.market.ledger.pair import SECOND, Pair


def cut_off(pair: Pair, seconds: int) -> int:
    """Neither messages nor rows come for so long; how many rows the owner has."""
    pair.says = {"host": lambda message: [], "owner": lambda message: []}
    have = pair.rows[0, "render"]
    pair.delivered = 0.0
    pair.run(seconds)
    pair.says.clear()
    pair.delivered = 1.0
    return have


def test_rows_that_come_after_the_cut_are_paid_and_nothing_is_held_against_anybody():
    pair = Pair()
    pair.begin()
    pair.run(100)
    cut_off(pair, 60)
    assert [stop.code for stop in pair.stops["host"]] == ["contract.unreceipted"]
    pair.run(1)  # what was sent meanwhile comes
    pair.end()
    pair.run(30)
    assert pair.host.written_off_micro == 0
    pair.begin(1)
    pair.run(40)
    assert pair.host.may_work(pair.now)
    assert pair.worth_micro - pair.paid_micro <= exposure_most_micro(pair.contract)


def test_rows_that_never_come_end_trade_until_the_settlement_period_does():
    """Cut off at 103 s the host works until 120 s, two intervals after what is receipted. The owner took its
    task home as of the row that it had, so that 17 s of work are lost; the error says for how long nothing is
    taken, here up to 100 s."""
    pair = Pair()
    pair.begin()
    pair.run(103)
    pair.end(end_row=cut_off(pair, 60))
    pair.run(5)
    assert pair.host.written_off_micro == 17 * 10**6
    with pytest.raises(ContractError) as caught:
        pair.host.began(pair.now, 1, "render", 0, 10**6, 10**6)
    assert caught.value.code == "contract.trust"
    left = 200 - (pair.now - pair.contract.begins_us) // SECOND
    assert f"forgotten in {left}s, when this settlement period ends" in (caught.value.hint or "")
    pair.run(left)
    paid_micro = pair.paid_micro
    pair.begin(2)
    pair.run(40)
    assert pair.host.may_work(pair.now)
    assert pair.paid_micro >= paid_micro + exposure_most_micro(pair.contract)


def test_a_provider_that_forgives_nothing_says_that_only_a_new_version_helps():
    pair = Pair(settings=LedgerSettings(forgives=False))
    pair.begin()
    pair.run(103)
    pair.end(end_row=cut_off(pair, 60))
    pair.run(5)
    with pytest.raises(ContractError) as caught:
        pair.host.began(pair.now, 1, "render", 0, 10**6, 10**6)
    assert caught.value.hint == "sign a new version, if you trust each other again"
