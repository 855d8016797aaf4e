"""How many messages are taken of one socket before others have their turn.

ZeroMQ gives one message of each peer in turn, so who sends without a rest fills what is left of each round.
Where one message takes 3 ms (a status, a small query), 64 of them hold up everything else for 0.2 s. A round
therefore has as many messages as their time allows: many short ones, few long ones.
"""

from __future__ import annotations

__all__ = ["RoundSize"]

MESSAGES_MAX = 64
MESSAGES_MIN = 4
"""Fewer: where each takes long, most of the time goes into looking at sockets; more: others wait for them."""

ROUND_S = 0.01
"""What a round should take. Shorter: trains are taken one by one; longer: rows and heartbeats wait for it."""


class RoundSize:
    """Of one transport.

    Attributes:
        most: so many messages in the next round; ``MESSAGES_MIN`` to ``MESSAGES_MAX``.
    """

    def __init__(self) -> None:
        self.most = MESSAGES_MAX
        self._given = 0
        self._given_s = 0.0

    def gave(self, now_s: float, count: int) -> None:
        """So much has come and is being handled from now on."""
        self._given, self._given_s = count, now_s

    def handled(self, now_s: float) -> None:
        """What was given last has been handled: shorter rounds at once where it took too long, else
        longer ones little by little."""
        if not self._given:
            return
        each_s = max(now_s - self._given_s, 0.0) / self._given
        fit = int(ROUND_S / each_s) if each_s else MESSAGES_MAX
        self.most = max(MESSAGES_MIN, min(fit, 2 * self.most, MESSAGES_MAX))
        self._given = 0
