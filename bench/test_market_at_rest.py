"""Question: what does a contract cost while nothing moves? See ``bench.market_at_rest``."""

from __future__ import annotations

import pytest

from bench import market_at_rest


def test_market_at_rest(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    found = market_at_rest.measure(*((1, 200) if option("--quick") else (5, 600)))
    print(market_at_rest.write(found, option("--results")))
    for row in found["shapes"]:
        assert row["trader_bytes"] + row["ledger_bytes"] < market_at_rest.AIM_BYTES
        assert row["dearest_cpu"] < market_at_rest.AIM_CPU
