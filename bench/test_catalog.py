"""Question: do look-ups in the catalog between participants stay right, and cheap, under churn?

Up to 1,000 members here; 10,000 by ``python -m bench.catalog``, which takes minutes."""

from __future__ import annotations

import math

import pytest

from bench import catalog


def test_catalog(request: pytest.FixtureRequest) -> None:
    found = catalog.measure(catalog.COUNTS[:3])
    print(catalog.write(found, request.config.getoption("--results")))
    for count, one in found["members"].items():
        after = one["rows"]["after"]
        assert after["older"] == after["nothing"] == 0
        assert all(row["hops_p99"] <= max(2, math.log2(int(count))) for row in one["rows"].values())
