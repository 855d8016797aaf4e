"""Recovered by amnesia: whoever takes over begins empty, no row comes twice, what is lost is counted."""

from __future__ import annotations

import pytest

from tests.nodes.recovery.amnesia_run import KINDS, AmnesiaRun, by_amnesia
from tests.nodes.taken_over import PIECE, ROWS

HALF = ROWS // 2 // PIECE * PIECE


@pytest.fixture(autouse=True)
def _by_amnesia(monkeypatch: pytest.MonkeyPatch) -> None:
    by_amnesia(monkeypatch)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_is_what_is_counted(kind: str) -> None:
    run = AmnesiaRun(kind)
    run.publish()
    run.fed.run(for_us=70_000)
    run.lose("m")
    run.until_owned(run.fragment, "s1")
    print(kind, run.check_gap())
