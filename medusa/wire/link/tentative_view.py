"""What a sender knows of one receiver of its tentative lane, in one epoch. Pure."""

from __future__ import annotations

from collections import deque

from medusa.elements import START_US
from medusa.wire.messages.tentative import TentativeTaken

__all__ = ["TentativeView"]


class TentativeView:
    """One receiver, from its attachment to the next one.

    Attributes:
        frames: sent so far; the number of the next one.
        under_way_bytes: sent, and not said to be taken.
        promised_us: the last boundary of the fork that was sent.
        asked_at_us: when it was last asked how far it is, or the first of what is under way left.
    """

    __slots__ = (
        "_heard",
        "_said",
        "_under_way",
        "asked_at_us",
        "frames",
        "promised_us",
        "under_way_bytes",
    )

    def __init__(self) -> None:
        self.frames = self.under_way_bytes = self.asked_at_us = 0
        self.promised_us: int = START_US
        self._said = self._heard = 0
        """One more than the first frame that said how the stream is now (0: none did yet), and than the last
        such frame that it has heard."""
        self._under_way: deque[tuple[int, int]] = deque()
        """(frame, cost)."""

    @property
    def outstanding(self) -> bool:
        """It hasn't said that it knows how the stream is, or that it took all."""
        return self._heard < self._said or bool(self._under_way)

    def turned(self) -> None:
        """The stream is otherwise now, or has another fork: that is to be said."""
        self._said, self.promised_us = 0, START_US

    def said_state(self, now_us: int) -> int:
        """How the stream is goes out; the number of that frame."""
        number, self.frames = self.frames, self.frames + 1
        self._said = self._said or number + 1
        self.asked_at_us = now_us
        return number

    def sent(self, now_us: int, cost: int) -> int:
        """A frame of this cost goes out; its number."""
        if not self.outstanding:
            self.asked_at_us = now_us
        number, self.frames = self.frames, self.frames + 1
        self._under_way.append((number, cost))
        self.under_way_bytes += cost
        return number

    def promised(self, time_us: int) -> None:
        """This boundary of the fork was sent."""
        self.promised_us = time_us

    def asked(self, now_us: int) -> None:
        """It is asked how far it is, or need not be for a while."""
        self.asked_at_us = now_us

    def taken(self, message: TentativeTaken) -> None:
        """It has so much."""
        self._heard = max(self._heard, message.said)
        while self._under_way and self._under_way[0][0] < message.frames:
            self.under_way_bytes -= self._under_way.popleft()[1]

    def lost(self) -> None:
        """What is under way may never come: it makes room for what comes."""
        self._under_way.clear()
        self.under_way_bytes = 0
        self._said, self.promised_us = 0, START_US
