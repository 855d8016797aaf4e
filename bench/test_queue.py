"""Question: what does a train's way through a queue cost, beside Python's own deque?

Data: 1,000 train ids pushed, read by one and by three readers, trimmed.
Not shown: the trains themselves, which the queue never touches. deque has no bound in bytes and no
second reader; it is there as the floor.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from medusa import _native

TRAINS = 1_000


@pytest.mark.parametrize("readers", [1, 3])
def test_medusa(peer: Any, readers: int) -> None:
    peer.extra_info["rows"] = TRAINS
    queue = _native.Queue(bytes_max=1 << 30)
    cursors = [queue.reader() for _ in range(readers)]

    def run() -> int:
        for number in range(TRAINS):
            queue.push(number, 1 << 10)
        for cursor in cursors:
            while queue.next(cursor) is not None:
                pass
        return len(queue.trim())

    assert peer(run) == TRAINS


def test_deque(peer: Any) -> None:
    peer.extra_info["rows"] = TRAINS
    queue: deque[tuple[int, int]] = deque()

    def run() -> int:
        taken = 0
        for number in range(TRAINS):
            queue.append((number, 1 << 10))
        while queue:
            queue.popleft()
            taken += 1
        return taken

    assert peer(run) == TRAINS
