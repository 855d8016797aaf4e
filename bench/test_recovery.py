"""Question: what does each method of recovery cost, and how fast does it go on? See ``bench.recovery``."""

from __future__ import annotations

import pytest

from bench import recovery
from medusa.apps.workloads.demos.ha_query import known_methods


def test_recovery(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = recovery.QUICK if option("--quick") else recovery.FULL
    print(recovery.write(recovery.measure(sizes, known_methods()), option("--results")))
