"""Question: what does measuring quality of service cost on W1? Under 5%. See ``bench.qos``."""

from __future__ import annotations

import pytest

from bench import qos


def test_qos(request: pytest.FixtureRequest) -> None:
    found = qos.measure(qos.ROWS, rounds=40)
    print(qos.write(found, request.config.getoption("--results")))
    large = found["batches"][str(qos.BATCHES[0])]
    assert large["more"]["all"] < qos.LIMIT
