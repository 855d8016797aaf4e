"""When a fragment is done with all that its inputs had brought at a moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from medusa.nodes.fragment.inputs import FragmentInput, Work

__all__ = ["CatchingUp", "FedInstance"]


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


def _is_fed(input: FragmentInput, seq: int, boundary_us: int) -> bool:
    """Whether it was fed up to there. Of a stream that began anew all was that had come before."""
    return input.fed_seq >= min(seq, input.receiver.next_seq) and input.fed_us >= boundary_us
