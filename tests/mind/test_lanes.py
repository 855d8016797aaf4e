"""Connections for streams in a brain with keys: who may say how the streams of a node come."""

from __future__ import annotations

import pytest

from medusa.errors import RemoteProtocolError
from medusa.wire import limits
from medusa.wire.messages import Hello
from tests.mind.keyed import Keyed, curve


def test_nobody_says_for_another_how_its_streams_come():
    brain = Keyed().brain
    hello = Hello(version=limits.PROTOCOL_VERSION, node="core", incarnation=1, lane=1, striped=4)
    for key in (curve("reader"), curve("near"), ""):
        with pytest.raises(RemoteProtocolError):
            brain.admit(hello, key=key)
        assert brain.lanes._striped == {}
    brain.admit(hello, key=curve("core"))
    assert brain.lanes._striped == {"core": 4}
    brain.admit(Hello(version=limits.PROTOCOL_VERSION, node="core", incarnation=2, lane=1), key=curve("core"))
    assert brain.lanes._striped == {}
