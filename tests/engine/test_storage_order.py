"""Which boxes are asked to spill state, in what order, and for how much."""

from __future__ import annotations

from typing import Any

from medusa.engine.core.memory_bounds import Storage
from medusa.errors import StateError
from tests.engine.spilling import MemorySpill, storage_of


class Holds:
    """A box that holds so many bytes, of which it can spill some."""

    def __init__(self, id: str, held: int, most: int, asked: list[tuple[str, int]]) -> None:
        self.id, self.held, self.most, self._asked = id, held, most, asked
        self.fails: Storage | None = None

    def state_bytes(self) -> int:
        return self.held

    def queue_bytes(self) -> int:
        return 0

    def spill(self, nbytes: int) -> int:
        self._asked.append((self.id, nbytes))
        if self.fails is not None:
            self.fails.failed_write(StateError("no space", code="state.io"))
            return 0
        freed = min(nbytes, self.most, self.held)
        self.held -= freed
        return freed


def storage(budget: int, **boxes: tuple[int, int]) -> tuple[Storage, list[tuple[str, int]], dict[str, Any]]:
    asked: list[tuple[str, int]] = []
    made = {id: Holds(id, held, most, asked) for id, (held, most) in boxes.items()}
    storage = storage_of(MemorySpill(), budget, 0)
    storage.adopt(list(made.values()))  # type: ignore[arg-type]
    return storage, asked, made


def test_the_largest_first_and_the_next_where_that_is_not_enough() -> None:
    made, asked, boxes = storage(400, small=(100, 100), large=(600, 300), middle=(500, 500))
    made.relieve()
    assert asked == [("large", 900), ("middle", 600), ("small", 100)]
    assert sum(box.held for box in boxes.values()) == 300  # a quarter more than need be, or not at all


def test_no_further_box_is_asked_when_it_is_enough() -> None:
    made, asked, _ = storage(400, small=(100, 100), large=(600, 600))
    made.relieve()
    assert asked == [("large", 400)]


def test_nobody_is_asked_within_the_budget() -> None:
    made, asked, boxes = storage(700, small=(100, 100), large=(600, 600))
    made.relieve()
    assert asked == []
    boxes["small"].held += 1
    made.relieve()
    assert asked == [("large", 176)]


def test_a_disk_that_takes_nothing_is_asked_once() -> None:
    made, asked, boxes = storage(400, small=(500, 500), large=(600, 600))
    boxes["large"].fails = made
    made.relieve()
    assert asked == [("large", 800)]
    assert made.error is not None
