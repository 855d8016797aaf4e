"""Question: how long does a reader see nothing while a fragment moves, by its state? See ``bench.moves``."""

from __future__ import annotations

import pytest

from bench import moves


def test_moves(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = moves.QUICK if option("--quick") else moves.SIZES
    print(moves.write(moves.measure(sizes, moves.ROUNDS), option("--results")))
