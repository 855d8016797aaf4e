"""Questions: what does Medusa hold, and how long does a small train take?

See ``bench.footprint`` and ``bench.latency``.

Percentiles need every single call, so these two measure by themselves, not by pytest-benchmark.
"""

from __future__ import annotations

import pytest

from bench import footprint, latency


def test_footprint(request: pytest.FixtureRequest) -> None:
    found = footprint.measure((10_000, 100_000, 1_000_000))
    print(footprint.write(found, request.config.getoption("--results")))
    assert found["keys"]


def test_percentiles(request: pytest.FixtureRequest) -> None:
    found = latency.measure(100_000 if request.config.getoption("--full-size") else 4_000)
    print(latency.write(found, request.config.getoption("--results")))
    assert found["shapes"]
