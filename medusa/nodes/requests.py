"""Requests of a node to other nodes that wait for their answers: said again until those come. No IO.

Who asks sends by itself: this knows what is open, when it is due again, and for whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["AGAIN_US", "Request", "Requests"]

OrderT = TypeVar("OrderT")

AGAIN_US = 1_000_000
"""What wasn't answered is said again after this."""

Cause = tuple[str, int]
"""A client and the number of its own request."""


@dataclass(slots=True)
class Request(Generic[OrderT]):
    """One that has no answer yet.

    Attributes:
        number: the answer bears it.
        to: the node that is asked; another one by the next time, where what is asked about has moved.
        cause: the command that led to it; its client waits.
        due_us: when it is said again, or has expired.
        deadline_us: when it expires; None: never.
    """

    number: int
    to: str
    order: OrderT
    cause: Cause
    since_us: int
    due_us: int
    deadline_us: int | None

    def said(self, now_us: int, to: str = "") -> None:
        """It is said now; ``to``: to another node than before."""
        self.to = to or self.to
        self.due_us = now_us + AGAIN_US
        if self.deadline_us is not None:
            self.due_us = min(self.due_us, self.deadline_us)

    def expired(self, now_us: int) -> bool:
        """Whether its time is over."""
        return self.deadline_us is not None and now_us >= self.deadline_us


class Requests(Generic[OrderT]):
    """Those of one kind, in the order in which they were opened.

    Args:
        most: are open at once; of more the oldest is forgotten. None: who opens them looks to that.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._open: dict[int, Request[OrderT]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Request[OrderT]]:
        return iter(self._open.values())

    def open(
        self,
        now_us: int,
        number: int,
        to: str,
        order: OrderT,
        *,
        cause: Cause = ("", 0),
        deadline_us: int | None = None,
        said: bool = True,
    ) -> Request[OrderT]:
        """Wait for an answer.

        Args:
            number: of the node's one series, over all its lives.
            cause: the default: no client waits.
            said: whether it is sent with this; else it is due at once.
        """
        made = self._open[number] = Request(number, to, order, cause, now_us, now_us, deadline_us)
        if said:
            made.said(now_us)
        if self._most is not None and len(self._open) > self._most:
            del self._open[next(iter(self._open))]
        return made

    def get(self, number: int, peer: str | None = None) -> Request[OrderT] | None:
        """The one to which this is the answer; it stays open.

        Args:
            peer: who answers, where nobody else than who was asked may.
        """
        found = self._open.get(number)
        return found if found is not None and peer in (None, found.to) else None

    def close(self, request: Request[OrderT]) -> None:
        """It is answered, or waited for no longer."""
        del self._open[request.number]

    def forget(self, which: Callable[[OrderT], bool]) -> None:
        """Close what was asked for these."""
        self._open = {number: each for number, each in self._open.items() if not which(each.order)}

    def waits(self, cause: Cause) -> bool:
        """Whether a command of a client waits already: it asks again what is under way."""
        return any(each.cause == cause for each in self._open.values())

    def due(self, now_us: int) -> Iterator[Request[OrderT]]:
        """Those that are to be said again or have expired; none that was closed or opened meanwhile."""
        for each in list(self._open.values()):
            if now_us >= each.due_us and self._open.get(each.number) is each:
                yield each

    def wake_at_us(self) -> int | None:
        """When there is something due."""
        return min((each.due_us for each in self._open.values()), default=None)
