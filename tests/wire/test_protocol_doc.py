"""The documents of protocols show the automata and messages that the code has.

``MEDUSA_REWRITE=1 pytest tests/wire/test_protocol_doc.py`` draws them anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medusa.wire.link.automaton import RECEIVER, LinkEvent, ReceiverState
from tests.wire.drawing import (
    AGREEING,
    DELAYED,
    MOVING,
    NODES,
    PARTS,
    SPLITTING,
    TRADING,
    automaton,
    drawn,
)

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("contracts.md", TRADING),
        ("protocol.md", PARTS),
        ("moving.md", MOVING),
        ("splitting.md", SPLITTING),
        ("nodes.md", NODES),
        ("standby.md", AGREEING),
        ("dpc.md", DELAYED),
        ("negotiation.md", TRADING),
    ],
)
def test_the_document_shows_what_the_code_has(name, parts):
    document = DOCS / name
    text = document.read_text()
    if os.environ.get("MEDUSA_REWRITE"):
        document.write_text(drawn(text))
    assert text == drawn(text)
    assert all(f"<!-- drawn: {part} -->" in text for part in parts)


def test_a_pair_taken_out_of_the_table_shows():
    fewer = {state: dict(moves) for state, moves in RECEIVER.items()}
    del fewer[ReceiverState.FLOWING][LinkEvent.FRAME_MISSING]
    assert automaton(fewer) != automaton(RECEIVER)
