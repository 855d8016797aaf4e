"""What is given to ZeroMQ and not yet on its way is bounded, and counted as it gets free."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from medusa.runtime.transport import send_queue
from medusa.runtime.transport.send_queue import LENT_BYTES, WINDOW_BYTES, SendQueue
from medusa.runtime.transport.sockets import UNANSWERED_MS, open_socket
from medusa.wire.link.session import PROMPT

LARGE = bytes(1 << 20)
SMALL = bytes(1 << 10)
FIT = WINDOW_BYTES // len(LARGE)


class Lent:
    """A buffer that libzmq has until we say that it hasn't."""

    def __init__(self, data: bytes, **how: Any) -> None:
        self.tracker = SimpleNamespace(done=False)


class Taken:
    """A connection that takes everything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(send_queue.zmq, "Frame", Lent)
        self.given: list[Any] = []
        self.waiting = SendQueue(self._give)

    def _give(self, frames: Any) -> bool:
        self.given.append(frames[-1])
        return True

    def send(self, data: bytes, count: int = 1) -> int:
        """How many of so many were given at once."""
        before = len(self.given)
        for _ in range(count):
            self.waiting.send([data], "s", 1)
        return len(self.given) - before


def test_as_much_goes_on_as_has_got_free_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Taken(monkeypatch)
    assert link.send(LARGE, FIT + 3) == FIT
    link.given[1].tracker.done = True
    link.waiting.flush()
    assert len(link.given) == FIT, "what is behind one that is not free stands for nothing yet"
    link.given[0].tracker.done = True
    link.waiting.flush()
    assert len(link.given) == FIT + 2
    assert link.waiting


def test_what_is_small_is_copied_until_it_has_come_to_something(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Taken(monkeypatch)
    per_loan = LENT_BYTES // len(SMALL)
    link.send(SMALL, 3 * per_loan)
    lent = [number for number, each in enumerate(link.given, start=1) if isinstance(each, Lent)]
    assert lent == [per_loan, 2 * per_loan, 3 * per_loan]


def test_small_frames_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Taken(monkeypatch)
    assert link.send(SMALL, WINDOW_BYTES // len(SMALL) + 100) == WINDOW_BYTES // len(SMALL)


def test_a_connection_ends_soon_after_its_line_is_cut_and_never_the_process() -> None:
    """libzmq aborts over heartbeats of its own: docs/nodes.md. Ours notice a cut; without TCP's time-out the
    connection would go on to wait for minutes."""
    assert PROMPT.timeout_us <= 700_000
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        for kind in (zmq.DEALER, zmq.ROUTER):
            made = open_socket(context, kind)
            assert 0 < made.getsockopt(zmq.TCP_MAXRT) == UNANSWERED_MS <= 2000
            assert made.getsockopt(zmq.HEARTBEAT_IVL) == 0
            made.close(linger=0)
    finally:
        context.destroy(linger=0)
