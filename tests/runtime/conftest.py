"""What several tests of sockets share."""

from __future__ import annotations

import pytest

from medusa.runtime.transport.zeromq import Transport


@pytest.fixture
def open_transport():
    made: list[Transport] = []

    def make(**kwargs) -> Transport:
        made.append(Transport(**kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()
