"""Question: how long does a reader see nothing when a machine is lost for good? See ``bench.takeovers``."""

from __future__ import annotations

import pytest

from bench import takeovers


def test_takeovers(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = takeovers.QUICK if option("--quick") else takeovers.SIZES
    print(takeovers.write(takeovers.measure(sizes, takeovers.KILLS), option("--results")))
