"""The simulated disk under decision logs loses what a real one may lose, and nothing that was synced."""

from __future__ import annotations

import pytest

from medusa.errors import StateError
from medusa.sim.world.journal import DiskJournal


def written(*, fails: bool = False, tears: bool = False) -> DiskJournal:
    """Four bytes are synced, four are not."""
    weak = [False, False]
    journal = DiskJournal("n", fails=lambda: weak[0], tears=lambda: weak[1])
    journal.append(7, b"good")
    journal.sync(7)
    weak[:] = [fails, tears]
    return journal


@pytest.mark.parametrize(
    ("unsynced", "left"), [("lost", b"good"), ("torn", b"goodto"), ("kept", b"goodtorn")]
)
def test_a_crash_takes_what_was_not_synced(unsynced: str, left: bytes) -> None:
    journal = written()
    journal.append(7, b"torn")
    journal.append(8, b"")
    journal.crash(unsynced)
    assert journal.numbers() == [7]
    assert bytes(journal.read(7)) == left
    journal.crash("lost")
    assert bytes(journal.read(7)) == left, "what was there after a crash stays"


def test_a_write_that_fails_leaves_a_part_that_is_not_synced() -> None:
    journal = written(fails=True)
    with pytest.raises(StateError, match="decisions-7"):
        journal.append(7, b"torn")
    journal.crash("lost")
    assert bytes(journal.read(7)) == b"good"


def test_a_write_that_tears_leaves_a_part_that_is() -> None:
    journal = written(tears=True)
    with pytest.raises(StateError):
        journal.append(7, b"torn")
    journal.crash("lost")
    assert bytes(journal.read(7)) == b"goodto"
