"""Nodes that stand by for each other, started for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.standby_nodes import StandbyNodes


@pytest.fixture(params=[False, True], ids=["plain", "curve"])
def nodes(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[StandbyNodes]:
    made = StandbyNodes(tmp_path_factory.mktemp("s"), keyed=bool(request.param))
    made.start()
    yield made
    made.close()
