"""Whether an input that is back is as near as it comes to where a fork stands without it. Pure.

    the fork, which lifts the source    ──── mark ──────── mark ─────── ...
    what the input promises             ......... reached ........ reached within the margin: near
                                             or as late as some marks before: it comes no nearer

What its sender had when it came back is only the first part of what it has to bring: the rest came up
meanwhile. Were the fork to go then, new results would wait until that is through too, for longer than X after
a long failure. Times of the stream are compared with each other alone: where they go slower or faster than
the clock, both do.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Approach"]

SHARE = 20
"""One that comes nearer by less than one part in so many of what the fork gets on, or of how late it was,
doesn't come nearer. Too small: an input that catches up slowly is taken for one that is always late; too
large: one that is always late keeps its fork for long."""

LAGS = 3
"""How late it was is compared over so many marks. Too few: one that catches up slowly seems to be always
late; too many: one that is always late keeps its fork for long."""


class Approach:
    """Of one input.

    Args:
        margin_us: who gets in this time to where the fork stood at its begin is near.
        patience_us: after so long without getting nearer it is as near as it comes; sooner, if it lags by
            less, since then nothing waits for it for longer than X.
    """

    def __init__(self, margin_us: int, patience_us: int) -> None:
        self._margin_us, self._patience_us = margin_us, max(patience_us, 1)
        self._mark: tuple[int, int] | None = None
        """Where the fork stood, and when."""
        self._lags_us: deque[int] = deque(maxlen=LAGS)
        """How long it took to each of the last marks."""
        self._far: tuple[int, int, int] | None = None
        """How far it was, where the fork stood, and when."""

    def is_over(self, now_us: int, promised_us: int, stood_us: int) -> bool:
        """Whether it is, as of now.

        Args:
            promised_us: what the input has promised.
            stood_us: where the fork stands at its source.
        """
        far_us = stood_us - promised_us
        if far_us <= 0:
            return True
        if self._mark is None or self._far is None:
            self._mark, self._far = (stood_us, now_us), (far_us, stood_us, now_us)
            return False
        if promised_us >= self._mark[0]:
            lag_us = now_us - self._mark[1]
            if lag_us <= self._margin_us:
                return True
            if len(self._lags_us) == LAGS and lag_us < self._patience_us:
                before_us = self._lags_us[0]
                if lag_us >= before_us - before_us // SHARE:
                    return True
            self._mark = stood_us, now_us
            self._lags_us.append(lag_us)
        before_us, began_us, at_us = self._far
        if now_us - at_us >= self._patience_us:
            if before_us - far_us <= (stood_us - began_us) // SHARE:
                return True
            self._far = far_us, stood_us, now_us
        return False

    def due_at_us(self) -> int | None:
        """When it is looked again whether it has come nearer; None: it wasn't looked yet."""
        return None if self._far is None else self._far[2] + self._patience_us
