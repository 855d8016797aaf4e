"""Which of the streams that wait for one connection goes next. Pure: no IO, no clock.

Weighted deficit round robin (Shreedhar and Varghese, "Efficient fair queueing using deficit round
robin", 1995): the streams stand in a ring; in each round a stream may send as many bytes more as its
weight says, and what it couldn't use of that, because its next frame is larger, it keeps for the
next round. One that runs empty leaves the ring and keeps nothing, so that its share goes to the
others and it can't save up for a burst.

Rounds in which nobody may send are not walked through: a stream knows in which round its next
frame fits, and the least such round comes next. The order is that of the plain algorithm. The quantum
can so be small, and shares hold over few frames.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from medusa.errors import LocalProtocolError

__all__ = ["QUANTUM_BYTES", "FairQueue"]

QUANTUM_BYTES = 1024
"""Bytes per unit of weight and round. Too small: nothing, as idle rounds cost nothing. Too large: a
stream of a large weight sends all that its credit allows before another one's turn."""

Item = TypeVar("Item")


@dataclass(slots=True)
class _Stream(Generic[Item]):
    """One stream in the ring.

    Attributes:
        round: in which it had its last turn.
        deficit: bytes it may send now.
        share: bytes more per round, until its next turn.
        items: (cost, item), oldest first; never empty while it is in the ring.
    """

    name: str
    weight: int
    place: int
    round: int
    deficit: int = 0
    share: int = 0
    items: deque[tuple[int, Item]] = field(default_factory=deque)


class FairQueue(Generic[Item]):
    """What waits for one connection: first what is urgent, then the streams by their weights.

    The items of a stream keep their order, and so do urgent ones. Each call takes the time of a few
    heap steps, whatever waits.

    Attributes:
        nbytes: cost of all that waits, urgent things left out.
    """

    def __init__(self, *, quantum_bytes: int = QUANTUM_BYTES) -> None:
        if quantum_bytes < 1:
            raise LocalProtocolError(f"a quantum of {quantum_bytes} bytes", hint="at least 1")
        self.nbytes = 0
        self._quantum = quantum_bytes
        self._urgent: deque[Item] = deque()
        self._streams: dict[str, _Stream[Item]] = {}
        self._heap: list[tuple[int, int, str]] = []
        """(round of the next turn, place in the ring, stream) of all but the one whose turn it is."""
        self._turn: _Stream[Item] | None = None
        self._round = 0
        self._places = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._urgent)

    @property
    def heads(self) -> int:
        """How many urgent things wait, and streams: what no credit bounds."""
        return len(self._urgent) + len(self._streams)

    def put_first(self, item: Item) -> None:
        """Add something that goes before all streams."""
        self._urgent.append(item)

    def put(self, stream: str, weight: int, cost: int, item: Item) -> None:
        """Add the next item of a stream.

        Args:
            weight: from its next turn on; at least 1.
            cost: bytes; at least 1.

        Raises:
            LocalProtocolError: weight or cost is below 1. Nothing changed.
        """
        if weight < 1 or cost < 1:
            raise LocalProtocolError(f"stream {stream!r}: weight {weight}, cost {cost}", hint="at least 1")
        entry = self._streams.get(stream)
        if entry is None:
            self._places += 1
            entry = _Stream(stream, weight, self._places, self._round)
            entry.items.append((cost, item))
            self._streams[stream] = entry
            self._wait(entry)
        else:
            entry.weight = weight
            entry.items.append((cost, item))
        self.nbytes += cost
        self._count += 1

    def take(self) -> Item | None:
        """The next item; None: nothing waits."""
        if self._urgent:
            return self._urgent.popleft()
        entry = self._turn
        if entry is None or entry.items[0][0] > entry.deficit:
            entry = self._next()
            if entry is None:
                return None
        cost, item = entry.items.popleft()
        entry.deficit -= cost
        self.nbytes -= cost
        self._count -= 1
        if not entry.items:
            self._leave(entry)
        return item

    def drop(self, stream: str) -> int:
        """Forget what waits of a stream; how many items that were."""
        entry = self._streams.get(stream)
        if entry is None:
            return 0
        self.nbytes -= sum(cost for cost, _ in entry.items)
        self._count -= len(entry.items)
        dropped = len(entry.items)
        if entry is not self._turn:
            self._heap = [each for each in self._heap if each[2] != stream]
            heapq.heapify(self._heap)
        self._leave(entry)
        return dropped

    def clear(self) -> None:
        """Forget everything."""
        self._urgent.clear()
        self._streams.clear()
        self._heap.clear()
        self._turn = None
        self.nbytes = self._count = 0

    def _wait(self, entry: _Stream[Item]) -> None:
        """It has its next turn in the round in which its first item fits."""
        entry.share = self._quantum * entry.weight
        rounds = max(1, -(-(entry.items[0][0] - entry.deficit) // entry.share))
        heapq.heappush(self._heap, (entry.round + rounds, entry.place, entry.name))

    def _next(self) -> _Stream[Item] | None:
        if self._turn is not None:
            self._wait(self._turn)
            self._turn = None
        if not self._heap:
            return None
        self._round, _, name = heapq.heappop(self._heap)
        entry = self._turn = self._streams[name]
        entry.deficit += entry.share * (self._round - entry.round)
        entry.round = self._round
        return entry

    def _leave(self, entry: _Stream[Item]) -> None:
        """What it may still send is not kept: it comes back with nothing."""
        del self._streams[entry.name]
        if entry is self._turn:
            self._turn = None
