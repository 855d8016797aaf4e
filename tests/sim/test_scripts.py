"""The scenarios of ``tests/scenarios``: what they say happens is what happens, line by line.

``MEDUSA_REWRITE=1 pytest tests/sim/test_scripts.py`` writes them anew. Commit only a difference that
you understand: it is what the reviewer reads.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medusa.sim.actors.relay import Relay
from medusa.sim.script import Script
from medusa.sim.trials.chain import ChainClasses
from tests.sim.planted import NeverAsks

FILES = sorted(Path(__file__).parents[1].glob("scenarios/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path):
    text = path.read_text()
    now = Script().run(text)
    if os.environ.get("MEDUSA_REWRITE"):
        path.write_text(now)
    assert now == text


def test_a_sender_that_never_asks_is_noticed_where_the_last_frame_is_lost():
    text = next(path for path in FILES if path.stem == "lost_last_frame").read_text()
    parts = ChainClasses(relay=type("Planted", (Relay,), {"sender_type": NeverAsks}))
    now = Script(parts).run(text)
    assert "rows 3..5" in text
    assert "rows 3..5" not in now


def test_there_are_scenarios():
    assert len(FILES) >= 12
