"""Rounds in which a socket gives the messages of its callers.

ZeroMQ's ROUTER gives one message of each connection that has a whole one, and then begins again. So when a
connection brings its second message of a round, that round is over, and each other connection that had a
message was served in it. The first rounds after a message has come may still lack it: the socket learns of
it after 100 parts at the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CallerRounds", "RoundsMark"]

ROUNDS_MIN = 8
"""More than two: a connection that ends shifts the order, and its descriptor may bring another's message."""

MESSAGES_MIN = 256


@dataclass(frozen=True, slots=True)
class RoundsMark:
    """How many messages were taken, in how many rounds."""

    messages: int
    rounds: int

    def shows(self, before: RoundsMark) -> bool:
        """Whether by now a message was taken of each caller that had a whole one before."""
        return self.rounds - before.rounds >= ROUNDS_MIN and self.messages - before.messages >= MESSAGES_MIN


class CallerRounds:
    """Counts them. One thread calls ``took``; any may call ``mark``."""

    def __init__(self) -> None:
        self._served: set[int] = set()
        """In this round, by descriptor."""
        self._messages = self._rounds = 0

    def took(self, number: int) -> None:
        """A message of a caller came by this descriptor."""
        self._messages += 1
        if number in self._served:
            self._served.clear()
            self._rounds += 1
        self._served.add(number)

    def mark(self) -> RoundsMark:
        """How many until now."""
        return RoundsMark(self._messages, self._rounds)
