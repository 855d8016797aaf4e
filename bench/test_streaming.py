"""Question: how many times as many events as each streaming engine? See ``bench.streaming``."""

from __future__ import annotations

import pytest

from bench import cores, streaming
from bench.workloads import WORKLOADS


def test_streaming(request: pytest.FixtureRequest) -> None:
    found = streaming.measure(list(streaming.ROWS), list(WORKLOADS), rounds=3)
    print(streaming.write(found, request.config.getoption("--results")))
    troubles = [
        each.get("trouble", "") for results in found["workloads"].values() for each in results.values()
    ]
    assert not [trouble for trouble in troubles if trouble.startswith("medusa")]


def test_cores(request: pytest.FixtureRequest) -> None:
    """Two threads beside one: ``bench.cores``."""
    found = cores.measure(list(WORKLOADS), 4_000_000, rounds=5)
    print(cores.write(found, request.config.getoption("--results")))
    assert not [figures for figures in found["workloads"].values() if "trouble" in figures]
