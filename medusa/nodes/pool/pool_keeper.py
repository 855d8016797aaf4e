"""Which nodes of a pool should be started or let go now, and why. No IO.

    absent ── a query lacks nodes, too few are warm, or something is there ──> starting ── answers ──> up
    up ── nothing holds it, for ``idle_us``, and nobody lacks one ──> stopping ──> absent
    starting ── fails, or takes too long ──> rests, for twice as long each time

Nothing of it is kept: what is up and what it has is seen anew. A node that somebody else has started is used
as any other, and never let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET

from medusa.nodes.pool.holding import holding
from medusa.nodes.pool.provider import ProvidedNode
from medusa.nodes.pool.warm_nodes import Warm, WarmPolicy
from medusa.wire.status_and_metrics import NodesLackedStatus, NodeStatus

__all__ = ["PoolAct", "PoolKeeper", "PoolRules", "PoolView"]

SETTLE_US = 20_000_000
"""A node that came up is taken for one that is still to be found by whoever lacks it. Too small: more are
started than are lacked; too large: where it can't be used another comes late."""

REST_US = 10_000_000
REST_US_MAX = 600_000_000
"""A node that couldn't be started is tried again after the first, then twice as long, up to the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """When nodes are let go.

    Attributes:
        idle_us: a node that has had nothing for so long is.
        start_us: one that doesn't answer so long after it was acquired is given up.
    """

    idle_us: int = 60_000_000
    start_us: int = 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """What was seen.

    Attributes:
        statuses: of all nodes of the participant that answered.
        placed: fragment -> nodes that have it, as the catalog knows.
        provided: how nodes are, as the provider knows.
    """

    statuses: Sequence[NodeStatus]
    placed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    provided: Mapping[str, ProvidedNode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAct:
    """What is to be done with a node; ``why`` is for people."""

    what: Literal["acquire", "release"]
    node: str
    why: str


@dataclass(slots=True, kw_only=True)
class _Node:
    """What is known of one.

    Attributes:
        acquired_us: when we acquired it, as far as it is ours still.
        released_us: when it was to be let go, as far as that isn't over.
        answered: it did, since it was acquired.
        up_us: when it answered first; None: it doesn't.
        empty_us: since when nothing held it; None: something does, or nobody knows.
        fails: so often in a row it couldn't be started; until ``rests_us`` it isn't tried.
    """

    acquired_us: int | None = None
    released_us: int | None = None
    answered: bool = False
    up_us: int | None = None
    empty_us: int | None = None
    fails: int = 0
    rests_us: int = 0
    why_failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A node, as it is in this look."""

    name: str
    of: _Node
    state: str
    up: bool
    holds: str

    @property
    def is_off(self) -> bool:
        return not self.up and self.state in ("absent", "failed")

    @property
    def is_coming(self) -> bool:
        """It was acquired, and hasn't answered yet."""
        is_on = self.state in ("starting", "up") and self.of.acquired_us is not None
        return is_on and not (self.up or self.of.answered)

    @property
    def is_empty(self) -> bool:
        return self.up and not (self.holds or self.ends)

    @property
    def ends(self) -> bool:
        return self.state == "stopping" or self.of.released_us is not None

    def is_new(self, now_us: int) -> bool:
        """It may be needed by whoever hasn't found it yet."""
        return self.is_empty and self.of.up_us is not None and now_us < self.of.up_us + SETTLE_US


class PoolKeeper:
    """Of one pool.

    Args:
        nodes: names, in the order in which they are taken.
        warm: says how many are kept up that have nothing.
    """

    def __init__(self, nodes: Sequence[str], rules: PoolRules, warm: WarmPolicy) -> None:
        self._nodes = {name: _Node() for name in nodes}
        self._rules = rules
        self._warm = warm
        self._said: dict[str, str] = {}
        self._short = ""

    def look(self, now_us: int, view: PoolView) -> list[PoolAct]:
        """What to do now; it counts as done until ``refused`` is called."""
        lacks = list(_lacks(view.statuses))
        seen = [self._see(now_us, name, view) for name in self._nodes]
        if not view.statuses:
            return []  # Nobody can be asked: nothing is known.
        missing = sum(lack.count for _, lack in lacks)
        used = sum(1 for each in seen if each.holds) + missing
        warm = self._warm.look(now_us, used)
        acts = [*self._restored(now_us, seen)]
        taken = [act.node for act in acts]
        off = [
            each for each in seen if each.is_off and not self._rests(now_us, each) and each.name not in taken
        ]
        acts += self._wanted(now_us, seen, off, lacks, warm)
        acts += self._given_up(now_us, seen)
        if not missing:
            acts += self._left_over(now_us, seen, warm)
        for act in acts:
            self._note(now_us, act)
        self._said = {each.name: self._text(now_us, each) for each in seen}
        return acts

    def refused(self, now_us: int, act: PoolAct, why: str) -> None:
        """Its provider couldn't do it."""
        of = self._nodes[act.node]
        if act.what == "acquire":
            self._fail(now_us, of, why)
        else:
            of.released_us = None

    def still_held(self, node: str, view: PoolView) -> str:
        """What holds a node that was to be let go, and was asked once more; empty: nothing does. Where
        something does it isn't let go."""
        of = self._nodes[node]
        answers = any(status.node == node for status in view.statuses)
        silent = "it doesn't answer" if of.answered and not answers else ""
        if why := silent or holding(node, view.statuses, view.placed):
            of.released_us = of.empty_us = None
        return why

    @property
    def short(self) -> str:
        """What was lacked at the last look beyond all in store, in words; empty: nothing."""
        return self._short

    def explain(self) -> Mapping[str, str]:
        """Node -> how it was at the last look, in words."""
        return self._said

    # --- seeing -------------------------------------------------------------------------------------

    def _see(self, now_us: int, name: str, view: PoolView) -> _Seen:
        of = self._nodes[name]
        provided = view.provided.get(name, ProvidedNode())
        up = any(status.node == name for status in view.statuses)
        holds = holding(name, view.statuses, view.placed)
        if up and of.up_us is None:
            of.up_us = now_us
            if of.acquired_us is not None and not of.answered:
                self._warm.started(now_us, now_us - of.acquired_us)
            of.answered, of.fails, of.why_failed = True, 0, ""
        elif not up:
            of.up_us = None
        if not up or holds:
            of.empty_us = None
        elif of.empty_us is None:
            of.empty_us = now_us
        if provided.state == "failed" and of.acquired_us is not None and not up:
            self._fail(now_us, of, provided.why)
        state = provided.state
        if state == "absent" and not up and of.acquired_us is not None:
            if of.released_us is None and now_us < of.acquired_us + REST_US:
                state = "starting"  # Its provider hasn't noticed yet.
            else:
                of.acquired_us, of.answered = None, False
        if state in ("absent", "failed"):
            of.released_us = None
        return _Seen(name=name, of=of, state=state, up=up, holds=holds)

    def _rests(self, now_us: int, each: _Seen) -> bool:
        return now_us < each.of.rests_us

    def _fail(self, now_us: int, of: _Node, why: str) -> None:
        of.acquired_us, of.released_us, of.answered = None, None, False
        of.rests_us = now_us + min(REST_US << min(of.fails, 20), REST_US_MAX)
        of.fails += 1
        of.why_failed = why

    def _note(self, now_us: int, act: PoolAct) -> None:
        of = self._nodes[act.node]
        if act.what == "acquire":
            of.acquired_us, of.answered = now_us, False
        elif of.acquired_us is not None:
            of.released_us = now_us

    # --- deciding -----------------------------------------------------------------------------------

    def _restored(self, now_us: int, seen: Iterable[_Seen]) -> Iterator[PoolAct]:
        """Nodes that ended with something: it is there again once they are."""
        for each in seen:
            if each.is_off and each.holds and not self._rests(now_us, each):
                yield PoolAct(what="acquire", node=each.name, why=f"{each.holds}, and it isn't up")

    def _wanted(
        self,
        now_us: int,
        seen: Sequence[_Seen],
        off: Sequence[_Seen],
        lacks: Sequence[tuple[str, NodesLackedStatus]],
        warm: Warm,
    ) -> list[PoolAct]:
        coming = sum(1 for each in seen if each.is_coming or each.is_new(now_us))
        free = [each.name for each in off]
        acts: list[PoolAct] = []
        short = []
        for query, lack in lacks:
            count, coming = max(lack.count - coming, 0), max(coming - lack.count, 0)
            taken = [name for name in free if name in lack.nodes][:count]
            if len(taken) < count:
                short.append(f"query {query} lacks {count - len(taken)} more ({lack.why})")
            for node in taken:
                free.remove(node)
                nodes = "a node" if lack.count == 1 else f"{lack.count} nodes"
                why = f"query {query} lacks {nodes} with room since {lack.for_us / 1e6:.1f} s: {lack.why}"
                acts.append(PoolAct(what="acquire", node=node, why=why))
        self._short = "; ".join(short)
        have = coming + sum(1 for each in seen if each.is_empty and not each.is_new(now_us))
        why = f"{have} have nothing to do: {warm.why}"
        few = free[: max(warm.count - have, 0)]
        return [*acts, *(PoolAct(what="acquire", node=node, why=why) for node in few)]

    def _given_up(self, now_us: int, seen: Iterable[_Seen]) -> Iterator[PoolAct]:
        """Nodes that don't come up."""
        for each in seen:
            since_us = each.of.acquired_us
            if not each.is_coming or each.holds or since_us is None:
                continue
            if now_us >= since_us + self._rules.start_us:
                why = f"it didn't answer within {self._rules.start_us / 1e6:g} s"
                self._fail(now_us, each.of, why)
                yield PoolAct(what="release", node=each.name, why=why)

    def _left_over(self, now_us: int, seen: Sequence[_Seen], warm: Warm) -> Iterator[PoolAct]:
        """Nodes that have had nothing for long, and aren't kept warm: the last of the list first."""
        empty = [each for each in seen if each.is_empty]
        over = len(empty) - warm.count
        for each in reversed(empty):
            idle_us = now_us - (now_us if each.of.empty_us is None else each.of.empty_us)
            ours = each.state == "up" and each.of.acquired_us is not None
            if over > 0 and ours and idle_us >= self._rules.idle_us:
                over -= 1
                why = f"it has had nothing for {idle_us / 1e6:.0f} s"
                yield PoolAct(what="release", node=each.name, why=why)

    # --- what is seen -------------------------------------------------------------------------------

    def _text(self, now_us: int, each: _Seen) -> str:
        of = each.of
        if each.ends:
            return "ends"
        if each.up:
            whose = "" if of.acquired_us is not None else "; somebody else has started it"
            if each.holds:
                return f"up: {each.holds}{whose}"
            idle_s = 0 if of.empty_us is None else (now_us - of.empty_us) / 1e6
            return f"up, has nothing since {idle_s:.0f} s{whose}"
        if self._rests(now_us, each):
            return f"not tried for {(of.rests_us - now_us) / 1e6:.0f} s: {of.why_failed}"
        if each.is_off:
            return f"off{f', though {each.holds}' if each.holds else ''}"
        return "starts" if each.is_coming else "doesn't answer"


def _lacks(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, NodesLackedStatus]]:
    """Of each query that a node scales."""
    for status in statuses:
        for query, of in status.queries.items():
            if of.scaling is not UNSET and of.scaling.lacks is not None:
                yield query, of.scaling.lacks
