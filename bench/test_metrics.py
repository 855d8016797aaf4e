"""Question: what do accounting and metrics cost on W1? Under 5%. See ``bench.metrics``."""

from __future__ import annotations

import pytest

from bench import metrics


def test_metrics(request: pytest.FixtureRequest) -> None:
    found = metrics.measure(metrics.ROWS, rounds=40)
    print(metrics.write(found, request.config.getoption("--results")))
    large = found["batches"][str(metrics.BATCHES[0])]
    assert large["scraped"] < metrics.LIMIT
