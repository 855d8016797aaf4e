"""Question: when do several connections for streams pay, pinned or striped? See ``bench.lanes``."""

from __future__ import annotations

import pytest

from bench import lanes


def test_lanes(request: pytest.FixtureRequest) -> None:
    print(lanes.write(lanes.measure(lanes.ROUNDS), request.config.getoption("--results")))
