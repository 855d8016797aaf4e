"""What may move at all: the owner's lists, and what stands in the way of a fragment or a contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from medusa.market.contract.terms import ANY, TaskTerms
from medusa.market.negotiation.policies import LoadPolicy, OwnersPolicy
from medusa.market.work import TradedTask
from medusa.nodes.config.fields import matches
from medusa.nodes.config.settings_market import MarketRules
from medusa.nodes.market.measured_tasks import task_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Source
from medusa.query.ids import kind_of

__all__ = ["TaskPolicy", "terms_against"]

ALWAYS = ("source", "sink")
"""Kinds of boxes that each fragment has: no contract names them."""


def terms_against(terms: TaskTerms, spec: FragmentSpec) -> str:
    """What of a fragment a contract doesn't allow; empty: nothing."""
    kinds = dict.fromkeys(kind_of(box) for box in spec.graph.boxes)
    streams = [*(feed.stream for feed in spec.feeds), *spec.entries.values(), *spec.streams.values()]
    sources = (box for box in spec.graph.boxes if isinstance(box, Source))
    columns = [field.name for box in sources for field in box.schema]
    for what, found, allowed in (
        ("box", [kind for kind in kinds if kind not in ALWAYS], terms.boxes),
        ("stream", streams, terms.streams),
        ("column", columns, terms.columns),
    ):
        wrong = next((each for each in found if not any(matches(one, each) for one in allowed)), None)
        if wrong is not None:
            return f"the contract allows no {what} {wrong!r}"
    if ANY not in terms.definitions:
        return "the contract allows kept definitions alone"
    return ""


class TaskPolicy(LoadPolicy):
    """The owner's policy, for fragments.

    Args:
        own: our participant.
        stays: why a task doesn't go to a partner, by the contracts with it; empty: it may.
        takes_nothing: why nothing is taken from a partner; empty: it may be.
    """

    def __init__(
        self,
        own: str,
        rules: MarketRules,
        *,
        stays: Callable[[TradedTask, str], str],
        takes_nothing: Callable[[str], str],
    ) -> None:
        lists = rules.policy
        self._own, self._rules = own, rules
        self._stays, self._takes_nothing = stays, takes_nothing
        self._watches = rules.shadow
        self._lists = OwnersPolicy(
            prefer=lists.prefer,
            avoid=lists.avoid,
            shed_first=[task_of(own, each) for each in lists.shed_first],
            never_move=[task_of(own, each) for each in lists.never_move],
        )

    @contextmanager
    def as_if_it_traded(self) -> Iterator[None]:
        """Inside, a node that only watches answers as one that trades."""
        self._watches = False
        try:
            yield
        finally:
            self._watches = self._rules.shadow

    def rank(self, partner: str) -> int:
        return self._lists.rank(partner)

    def shed_order(self, tasks: Sequence[TradedTask]) -> Sequence[TradedTask]:
        return self._lists.shed_order(tasks)

    def may_move(self, task: TradedTask, partner: str) -> bool:
        return not self.why_stays(task, partner)

    def may_take(self, task: TradedTask, partner: str) -> bool:
        allowed = not self._watches and self._lists.may_take(task, partner)
        return allowed and task.owner == partner and not self._takes_nothing(partner)

    def why_stays(self, task: TradedTask, partner: str) -> str:
        """Why a task that runs here doesn't go there, whatever is paid; empty: it may."""
        if self._watches:
            return "this node only watches: [market] shadow = true"
        if task.owner != self._own:
            return f"it is {task.owner}'s, and nodes don't pass guests on"
        if not self._lists.may_move(task, partner):
            return "[market.policy] of this node says no"
        return self._stays(task, partner)
