"""A node with a query, for all who look at one."""

from __future__ import annotations

import pytest

import medusa as md


@pytest.fixture(scope="module")  # Tests of other folders look for threads left over.
def node(tmp_path_factory: pytest.TempPathFactory):
    """The address of a node ``here`` that runs ``cars``."""
    folder = tmp_path_factory.mktemp("node")
    q = md.Query("cars")
    cars = q.source("cars", {"ts": "int64", "speed": "float64"}, time="ts", unit="s")
    q.sink("fast", cars.filter("speed > 80"))
    config = {"name": "here", "listen": "tcp://127.0.0.1:*", "data": str(folder / "state")}
    with md.node(config) as running:
        with running.connect() as fed:
            fed.deploy(q)
        yield running.address
