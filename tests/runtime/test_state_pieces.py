"""A copy that can't go on leaves nothing that looks at the engine's state from another thread."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from medusa.engine.state.background_copy import BackgroundCopy, OfItems
from medusa.runtime.machine.state_pieces import StatePieces


class Copy:
    """Three pieces, a row each; the memory for the second is there only when it is asked for again."""

    partial, runs = False, None

    def __init__(self) -> None:
        self.left = 3
        self.fails = [False, True, False, False]

    def next(self, rows: int) -> pa.RecordBatch:
        self.left -= 1
        return pa.record_batch({"v": [self.left]})

    def take(self, rows: pa.RecordBatch) -> list[pa.Array]:
        if self.fails.pop(0):
            raise MemoryError
        return rows.columns


def of(copy: Copy) -> OfItems:
    return OfItems(copy, copy.take, lambda columns: pa.table(columns, ["v"]))


@pytest.mark.parametrize("how", ["a step fails", "abandoned"])
def test_what_is_not_done_goes_in_the_thread_that_copied(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.engine.state.background_copy.SLICE_ROWS", 1)
    given: list[Callable[[], None]] = []
    told: list[str] = []
    copying = BackgroundCopy({"a": of(Copy())})
    pieces = StatePieces(given.append)

    def ended(why: str) -> None:
        told.append(why)
        assert copying.done, "whoever is told may be in another thread"
        assert not copying.files()

    pieces.begin(copying, ended)
    assert not copying.done
    if how == "abandoned":
        pieces.abandon("the fragment goes")
    while given:
        given.pop(0)()
    assert told == ["the fragment goes" if how == "abandoned" else "MemoryError"]


def test_a_piece_that_was_copied_and_not_taken_comes_again() -> None:
    part = of(Copy())
    part.copy(1)
    with pytest.raises(MemoryError):
        part.copy(1)
    assert not part.done
    part.copy(1)
    part.copy(1)
    assert part.done
    assert part.table()["v"].to_pylist() == [2, 1, 0]
