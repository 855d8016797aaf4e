"""The bench of the market at rest: what it counts, with few contracts, and that it notices mistakes."""

from __future__ import annotations

import pytest

from bench import market_at_rest
from bench.market_at_rest import AIM_BYTES, HUB, INTERVAL_S, Rest, S


def test_a_small_measurement_has_a_row_for_each_shape(tmp_path):
    text = market_at_rest.write(market_at_rest.measure(1, 60, (1, 3)), tmp_path)
    assert (tmp_path / "market_at_rest.json").exists()
    rows = [line for line in text.splitlines() if line.startswith(("| 1 |", "| 3 |"))]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 1", "provides", "yes"],
        ["| 3", "provides", "yes"],
        ["| 3", "consumes", "yes"],
        ["| 1", "provides", "no"],
        ["| 3", "provides", "no"],
        ["| 3", "consumes", "no"],
    ]
    assert "(aim: under 0.1%)" in text


@pytest.mark.parametrize("provides", [True, False])
def test_each_contract_with_a_task_stays_below_the_bytes_that_are_aimed_at(provides):
    """Bytes are the same each time, other than CPU time."""
    found = market_at_rest.figures(3, provides=provides, tasks=True, seconds=100)
    assert found["ledger_bytes"] > 0
    assert found["trader_bytes"] + found["ledger_bytes"] < AIM_BYTES
    assert found["kept_bytes"] < AIM_BYTES
    idle = market_at_rest.figures(3, provides=provides, tasks=False, seconds=100)
    assert idle["ledger_bytes"] == idle["kept_bytes"] == 0
    assert 0 < idle["trader_bytes"] < 10


def test_rows_that_a_partner_has_not_are_noticed():
    rest = Rest(1, provides=True, tasks=True)
    rest.begin()
    (contract,) = rest.contracts
    rest.run(rest.now_us + 5 * INTERVAL_S * S)
    number, _, name = rest.running[contract.id]
    provider, more = rest.sides[HUB].ledger, rest.rows(contract.id) + 10_000
    provider.counted(rest.now_us, contract.id, contract.consumer, number, name, more)
    with pytest.raises(AssertionError):
        rest.check(10)
