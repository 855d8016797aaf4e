"""What an owner wants beside profit: whom to prefer, what to shed first, what never to move."""

from __future__ import annotations

import re
from collections.abc import Sequence

from medusa.market.work import TradedTask

__all__ = ["LoadPolicy", "OwnersPolicy"]


class LoadPolicy:
    """The paper's: the cheapest partner, tasks in the order in which they are measured, all of them.

    An owner's own one overrides what it wants otherwise. A policy is asked, and changes nothing; the same
    questions have the same answers.
    """

    def rank(self, partner: str) -> int:
        """Partners of a lower rank are asked before all of a higher one, whatever they cost."""
        return 0

    def shed_order(self, tasks: Sequence[TradedTask]) -> Sequence[TradedTask]:
        """What to offer first."""
        return tasks

    def may_move(self, task: TradedTask, partner: str) -> bool:
        """Whether a task that runs here may go there."""
        return True

    def may_take(self, task: TradedTask, partner: str) -> bool:
        """Whether a task of that partner may come here."""
        return True


class OwnersPolicy(LoadPolicy):
    """One by lists of names, as an owner writes them into a configuration. ``*`` is any text.

    Args:
        prefer: partners, best first; those not named come after them.
        avoid: partners to whom nothing is given and from whom nothing is taken.
        shed_first: names of tasks; those that fit an earlier one go before the rest.
        never_move: names of tasks.
    """

    def __init__(
        self,
        *,
        prefer: Sequence[str] = (),
        avoid: Sequence[str] = (),
        shed_first: Sequence[str] = (),
        never_move: Sequence[str] = (),
    ) -> None:
        self._prefer, self._avoid = tuple(prefer), tuple(avoid)
        self._shed_first, self._never_move = tuple(shed_first), tuple(never_move)

    def rank(self, partner: str) -> int:
        return _first(self._prefer, partner)

    def shed_order(self, tasks: Sequence[TradedTask]) -> Sequence[TradedTask]:
        return sorted(tasks, key=lambda task: _first(self._shed_first, task.name))

    def may_move(self, task: TradedTask, partner: str) -> bool:
        return not _fits(self._avoid, partner) and not _fits(self._never_move, task.name)

    def may_take(self, task: TradedTask, partner: str) -> bool:
        return not _fits(self._avoid, partner)


def _first(patterns: Sequence[str], name: str) -> int:
    """Which one fits first; their number where none does."""
    return next((n for n, pattern in enumerate(patterns) if _fits((pattern,), name)), len(patterns))


def _fits(patterns: Sequence[str], name: str) -> bool:
    return any(re.fullmatch(re.escape(each).replace(r"\*", ".*"), name, re.DOTALL) for each in patterns)
