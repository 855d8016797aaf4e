"""Question: is there an answer within X while an input is missing, and how fast are corrections?"""

from __future__ import annotations

import pytest

from bench.delay import command


def test_delay(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    quick = ["--quick"] if option("--quick") else []
    command.main([*quick, "--budget", "2min", "--out", str(option("--results"))])
