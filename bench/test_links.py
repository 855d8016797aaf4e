"""Question: what does a link cost beside raw ZeroMQ and Arrow Flight, and a hop? See ``bench.links``."""

from __future__ import annotations

import pytest

from bench import links


def test_links(request: pytest.FixtureRequest) -> None:
    size = links.FULL_BYTES if request.config.getoption("--full-size") else links.BYTES
    print(links.write(links.measure(links.ROUNDS, size), request.config.getoption("--results")))
