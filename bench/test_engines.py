"""Question: is Medusa exact on W1 to W5, and how fast, beside the batch engines?

The contest of ``bench.engines`` as part of ``make bench``; see there for data, peers and what it
doesn't show. ``--quick`` takes 1,000,000 events, ``--peers streamz`` adds streaming peers.
"""

from __future__ import annotations

import pytest

from bench import engines
from bench.workloads import WORKLOADS


def test_engines(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    peers = [*engines.BATCH_PEERS, *filter(None, option("--peers").split(","))]
    rows = 1_000_000 if option("--quick") else 10_000_000
    found = engines.measure(list(WORKLOADS), ["medusa", "medusa-push", *peers], rows, rounds=5)
    print(engines.write(found, option("--results")))
    for name, figures in found["workloads"].items():
        assert figures["medusa"].get("exact"), (name, figures["medusa"])
        assert figures["medusa-push"].get("exact"), (name, figures["medusa-push"])
