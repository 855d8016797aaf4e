"""When a fragment is done with all that its inputs had brought at a moment. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from medusa.nodes.fragment.inputs import FragmentInput, Work

__all__ = ["CatchingUp", "CatchingUpInRounds", "FedInstance"]

SHORTER = 0.75
"""A round that takes more than this of the one before is as short as they become. Too small: a fragment that
catches up slowly is left early; too large: one that doesn't is waited for."""


class FedInstance(Protocol):
    """An instance that is fed in the order in which rows come."""

    @property
    def newest(self) -> Work | None:
        """What it was given last, until what came of it may leave; None: all may."""
        ...

    def has_left(self, work: Work) -> bool:
        """Whether this was run, and what came of it may leave."""
        ...


class CatchingUp:
    """From now on: whether all is done that these inputs have brought so far."""

    def __init__(self, inputs: Iterable[FragmentInput]) -> None:
        self._goal = {each: (each.receiver.next_seq, each.receiver.boundary_us) for each in inputs}
        """Of those that aren't done."""
        self._is_fed = False
        self._last: Work | None = None

    def is_over(self, of: FedInstance) -> bool:
        """Whether it is, as of now."""
        if not self._is_fed:
            self._goal = {each: at for each, at in self._goal.items() if not _is_fed(each, *at)}
            if self._goal:
                return False
            self._is_fed, self._last = True, of.newest
        return self._last is None or of.has_left(self._last)


class CatchingUpInRounds:
    """From now on: whether so little is left to do that it is done in a moment.

    While what had come is done more comes: that is the next round, which is shorter, unless as much comes as
    is done.

    Args:
        moment_us: a round that takes no longer is the last one.
    """

    def __init__(self, now_us: int, inputs: Collection[FragmentInput], moment_us: int) -> None:
        self._inputs, self._moment_us = inputs, moment_us
        self._round, self._begun_us = CatchingUp(inputs), now_us
        self._took_us: int | None = None
        """By the round before."""

    def is_over(self, now_us: int, of: FedInstance) -> bool:
        """Whether it is, as of now."""
        if not self._round.is_over(of):
            return False
        took_us, before_us = now_us - self._begun_us, self._took_us
        if took_us <= self._moment_us or (before_us is not None and took_us > before_us * SHORTER):
            return True
        self._round, self._begun_us, self._took_us = CatchingUp(self._inputs), now_us, took_us
        return False


def _is_fed(input: FragmentInput, seq: int, boundary_us: int) -> bool:
    """Whether it was fed up to there. Of a stream that began anew all was that had come before."""
    return input.fed_seq >= min(seq, input.receiver.next_seq) and input.fed_us >= boundary_us
