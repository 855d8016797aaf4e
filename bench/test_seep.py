"""Question: do the experiments of SEEP give the shapes that its authors found? See ``bench.seep``."""

from __future__ import annotations

import pytest

from bench.seep.command import EXPERIMENTS, main


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_seep(request: pytest.FixtureRequest, name: str) -> None:
    option = request.config.getoption
    quick = ["--quick"] if option("--quick") else []
    assert main([name, *quick, "--budget", "2min", "--out", str(option("--results"))]) == 0
