"""Question: what do standbys cost while nothing fails? See ``bench.standby_cost``."""

from __future__ import annotations

import pytest

from bench import standby_cost


def test_standby_cost(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    rounds, seconds, kills = (1, 2.0, 1) if option("--quick") else (5, 6.0, 5)
    print(standby_cost.write(standby_cost.measure(rounds, seconds, kills), option("--results")))
