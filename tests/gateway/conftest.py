"""What the tests of gateways share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import medusa as md
from medusa.spark.exchange import caller as calling
from medusa.spark.exchange.caller import GatewayConnection
from tests.gateway.here import running, values


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of this process to gateways end with the test, as they would with the process."""
    made: dict[object, GatewayConnection] = {}
    monkeypatch.setattr(calling, "_callers", made)
    yield
    for each in made.values():
        each.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[md.Federation, str]]:
    with running(tmp_path, values()) as made:
        yield made
