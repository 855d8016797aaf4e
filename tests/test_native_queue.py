"""The train queue from Python: bounds, cursors, trimming; the algorithm is tested in C."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from medusa._native import Queue


class Model(RuleBasedStateMachine):
    """The queue beside a plain list and one index per reader."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(bytes_max=100, trains_max=6)
        self.held: list[tuple[int, int]] = []
        self.unread: dict[int, list[int]] = {}
        self.pushed = 0

    @rule(nbytes=st.one_of(st.integers(0, 60), st.integers(100, 300)))
    def push(self, nbytes: int) -> None:
        total = sum(size for _, size in self.held) + nbytes
        fits = not self.held or (len(self.held) < 6 and total <= 100)
        assert self.queue.push(self.pushed, nbytes) is fits
        if fits:
            self.held.append((self.pushed, nbytes))
            for ids in self.unread.values():
                ids.append(self.pushed)
            self.pushed += 1

    @rule()
    def open(self) -> None:
        number = self.queue.reader()
        assert number not in self.unread
        self.unread[number] = [train_id for train_id, _ in self.held]

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.unread)))
        ids = self.unread[number]
        assert self.queue.next(number) == (ids.pop(0) if ids else None)

    @precondition(lambda self: self.unread)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.unread)))
        self.queue.close(number)
        del self.unread[number]
        with pytest.raises(ValueError, match=f"no open reader {number}"):
            self.queue.next(number)

    @rule()
    def trim(self) -> None:
        wanted = {train_id for ids in self.unread.values() for train_id in ids}
        passed = [train_id for train_id, _ in self.held if train_id not in wanted]
        assert self.queue.trim() == passed
        self.held = [train for train in self.held if train[0] in wanted]

    @invariant()
    def sizes(self) -> None:
        assert len(self.queue) == len(self.held)
        assert self.queue.nbytes == sum(size for _, size in self.held)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40)


def test_bad_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes_max"):
        Queue(bytes_max=0)
    with pytest.raises(ValueError, match="trains_max"):
        Queue(bytes_max=1, trains_max=0)
    with pytest.raises(OverflowError):
        Queue(bytes_max=-1)


def test_an_id_may_be_any_64_bit_number() -> None:
    queue = Queue(bytes_max=10)
    reader = queue.reader()
    assert queue.push(2**64 - 1, 1)
    assert queue.next(reader) == 2**64 - 1
    with pytest.raises(OverflowError):
        queue.push(2**64, 1)
    assert len(queue) == 1
