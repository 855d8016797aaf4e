"""Question: how does cost grow with keys, overlap, slack, boxes and queries? See the files of bench/growth.

``make bench`` takes their small samples; ``python -m bench.growth.NAME --full`` the real sizes.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from bench.growth import boxes, common, keys, overlap, queries, slack


@pytest.mark.parametrize(
    "question", [keys, overlap, slack, boxes, queries], ids=lambda module: module.__name__
)
def test_growth(request: pytest.FixtureRequest, question: ModuleType) -> None:
    found = question.measure(request.config.getoption("--full-size"))
    print(common.write(found, request.config.getoption("--results")))
    assert all(points for points in found["series"].values())
