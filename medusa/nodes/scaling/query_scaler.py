"""Sees to the parts of one query: what its nodes tell comes in, one order at a time goes out. No IO.

    look ── too much or too little, by the policy ──> goal ── next step ──> order ── answered ──> look
         <── nothing to do, or something is under way ──                        ── refused ──> rest

A goal lasts until its box is as it should be, or can't be. A box that couldn't be changed rests, and for
twice as long each time. A change shows in what is measured for a while (a part that has moved makes up for
what waited): until then that is no reason to stop gathering parts, nor to part them again. Nothing of this is
kept: who coordinates the query next looks for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.nodes.scaling.measured_boxes import BoxWork, measured_boxes
from medusa.nodes.scaling.missing_nodes import MissingNodes
from medusa.nodes.scaling.next_step import ScaleGoal, ScaleOrder, crowded, next_step
from medusa.nodes.scaling.policy import Resize, ScalePolicy, ScaleRules
from medusa.nodes.scaling.split_sets import split_sets
from medusa.nodes.scaling.under_way import under_way
from medusa.wire.messages.commands import Reply
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import NodeStatus, ScalingStatus

__all__ = ["QueryScaler", "rules_of"]

SETTLE_US = 1_000_000
"""So long after an order was carried out the next is looked for: by then nodes tell what has become of it."""

REST_US_MAX = 600_000_000
"""What couldn't be changed again and again is tried so often."""

HALF_LIVES = 3
"""So many after a change what was measured before it, and while it was made, is an eighth of what is told."""

GOAL_US = 300_000_000
"""A goal that isn't reached by then is given up: what it was decided by is long over."""

PASSES = ("E_BUSY", "E_FRAGMENT", "E_ELSEWHERE")
"""So an order is refused that can be given in a moment."""

TRIES_MAX = 5
"""So often such an order is given."""


def rules_of(settings: ScaleSettings) -> ScaleRules:
    """The marks that a configuration says."""
    return ScaleRules(
        high=settings.high,
        low=settings.low,
        target=(settings.high + settings.low) / 2,
        looks=settings.looks,
        rest_us=settings.cooldown_us,
        parts_max=settings.parts_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """What was done last; ``outcome`` is empty until that is known."""

    at_us: int
    text: str
    why: str
    outcome: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """A box is left alone until then.

    Attributes:
        times: so often in a row it couldn't be changed.
        why: it isn't as was wanted the last time; empty: it is.
    """

    until_us: int
    times: int = 0
    why: str = ""


class QueryScaler:
    """Of one query.

    Args:
        now_us: it looks for the first time one ``every`` later.
        policy: decides in how many parts boxes should run.
        half_life_us: of the means by which nodes tell what boxes have to do.

    Attributes:
        next_look_us: when it wants to see the statuses of the query's nodes.
        order: that is under way; None: none is.
    """

    def __init__(
        self,
        now_us: int,
        query: str,
        settings: ScaleSettings,
        policy: ScalePolicy,
        outbox: Outbox,
        *,
        half_life_us: int,
    ) -> None:
        self._query = query
        self._settings = settings
        self._rules = rules_of(settings)
        self._policy = policy
        self._outbox = outbox
        self._follows_us = HALF_LIVES * half_life_us
        self._settled_us = now_us + self._follows_us
        """What is measured has followed the last change by then; what was done before us nobody knows."""
        self.next_look_us = now_us + settings.every_us
        self.order: ScaleOrder | None = None
        self._goal: ScaleGoal | None = None
        self._goal_until_us = 0
        self._wanted: list[Resize] = []
        """Decided, and not begun yet."""
        self._crowded: dict[str, int] = {}
        """Box -> in how many looks in a row its parts stood together with too much to do."""
        self._rests: dict[str, _Rest] = {}
        """By box."""
        self._missing = MissingNodes(self._rules)
        self._tries = 0
        self._last: _Act | None = None
        self._acts = 0
        self._waits_for = ""

    # --- what comes -------------------------------------------------------------------------------

    def look(
        self,
        now_us: int,
        statuses: Sequence[NodeStatus],
        silent: Sequence[str],
        rooms: Mapping[str, float],
    ) -> ScaleOrder | None:
        """See how the query is; what is to be ordered now, which counts as ordered.

        Args:
            statuses: of the nodes that have a part of it.
            silent: those of them that don't answer.
            rooms: node that may get parts -> the share of it that is used.
        """
        self.next_look_us = now_us + self._settings.every_us
        if self.order is not None:
            return None
        self._waits_for = f"no answer from {', '.join(silent)}" if silent else ""
        if not silent and (changes := under_way(statuses, self._query)):
            self._waits_for = changes
            self._settled_us = now_us + self._follows_us
        if self._waits_for:
            return None
        measured = measured_boxes(statuses, self._query, rests=0.0)
        begins = self._goal is None and now_us >= self._settled_us
        came = self._missing.follow(measured, rooms, begins=begins)
        if self._goal is None:
            self._goal = came or self._decided(now_us, measured, rooms)
            self._goal_until_us, self._tries = now_us + GOAL_US, 0
        if (goal := self._goal) is None:
            return None
        box = measured.get(goal.box)
        if box is not None and goal.grows:
            self._missing.note(now_us, goal, box, rooms)
        if box is None or now_us >= self._goal_until_us:
            self._ends(now_us, "it took too long" if box else f"there is no box {goal.box} any more")
            return None
        found = next_step(goal, box, split_sets(statuses, self._query, measured), rooms, self._rules)
        if isinstance(found, ScaleOrder):
            return self._ordered(now_us, goal, found)
        if found.passes:
            self._waits_for = found.why
        elif found.measured and now_us < self._settled_us:
            self._waits_for = f"what is measured has to follow the last change: {found.why}"
        else:
            self._ends(now_us, found.why, fails=found.fails)
        return None

    def answered(self, now_us: int, reply: Reply) -> None:
        """The order was carried out, or refused."""
        order, goal = self.order, self._goal
        assert order is not None
        assert goal is not None
        self.order = None
        if not reply.code:
            self._done(now_us, order, goal)
            return
        why = f"{reply.text} ({reply.code})"
        about = {"query": self._query, "order": order.text, "code": reply.code, "why": reply.text}
        self._outbox.report("warning", "scaling order refused", **about)
        self._says(f"refused: {why}")
        if order.what == "move" and reply.code not in PASSES:
            self._goal = replace(goal, refused=(*goal.refused, order.to))
            self.next_look_us = now_us + SETTLE_US
            if not goal.grows:
                self._ends(now_us, why)
        elif order.ranges == "weight" and reply.code == "query.split" and order.box == goal.box:
            self._goal = replace(goal, ranges="even")  # It may hold nothing yet by which to weigh.
            self.next_look_us = now_us + SETTLE_US
        elif reply.code in PASSES and self._tries < TRIES_MAX:
            self._tries += 1
        else:
            self._ends(now_us, why)

    def unanswered(self, now_us: int) -> None:
        """Nobody has answered the order in time; what has become of it the next look shows."""
        assert self.order is not None
        node, self.order = self.order.node, None
        self._says("no answer")
        self._ends(now_us, f"node {node} didn't answer")

    # --- deciding -----------------------------------------------------------------------------------

    def _decided(
        self, now_us: int, measured: Mapping[str, BoxWork], rooms: Mapping[str, float]
    ) -> ScaleGoal | None:
        boxes = {
            id: each
            for id, each in measured.items()
            if len(dict.fromkeys(part.box for part in each.parts)) == len(each.parts)  # One router feeds all.
            and (id not in self._rests or now_us >= self._rests[id].until_us)
        }
        work = {id: of for id, each in boxes.items() if (of := _whole_work(each)) is not None}
        parts = {id: len(each.parts) for id, each in boxes.items()}
        found = self._policy.look(now_us, work, parts)
        self._wanted = [*self._wanted, *found]
        while self._wanted:
            resize = self._wanted.pop(0)
            if resize.box in parts and self._still(work.get(resize.box), parts[resize.box], resize.parts):
                grows = resize.parts > parts[resize.box]
                return ScaleGoal(box=resize.box, parts=resize.parts, grows=grows, why=resize.why)
        return self._crowding(now_us, boxes, rooms)

    def _still(self, work: float | None, parts: int, wanted: int) -> bool:
        """Whether that is still so: another goal may have come first."""
        if work is None:
            return False
        share = work / parts
        return share > self._rules.high if wanted > parts else share < self._rules.low and wanted < parts

    def _crowding(
        self, now_us: int, boxes: Mapping[str, BoxWork], rooms: Mapping[str, float]
    ) -> ScaleGoal | None:
        if now_us < self._settled_us:
            self._crowded.clear()
            return None
        self._crowded = {
            id: self._crowded.get(id, 0) + 1
            for id, each in boxes.items()
            if crowded(each, rooms, self._rules)
        }
        for id, looks in self._crowded.items():
            if looks >= self._rules.looks:
                why = (
                    f"parts of {id} stand together and have more than {self._rules.high:g} of a thread to do"
                )
                return ScaleGoal(box=id, parts=len(boxes[id].parts), grows=True, why=why)
        return None

    # --- what becomes of it ---------------------------------------------------------------------------

    def _ordered(self, now_us: int, goal: ScaleGoal, order: ScaleOrder) -> ScaleOrder:
        self.order = order
        self._last = _Act(at_us=now_us, text=order.text, why=goal.why)
        self._outbox.report("info", "scaling", query=self._query, order=order.text, why=goal.why)
        return order

    def _done(self, now_us: int, order: ScaleOrder, goal: ScaleGoal) -> None:
        self._acts += 1
        self._settled_us = now_us + self._follows_us
        self._tries = 0
        self._says("done")
        self._outbox.report("info", "scaled", query=self._query, order=order.text)
        self.next_look_us = now_us + SETTLE_US
        self._goal = replace(goal, split=goal.split or order.what == "split")

    def _ends(self, now_us: int, why: str, *, fails: bool = True) -> None:
        """The goal is reached, or (``why``) isn't: it can't be, or (``fails`` is false) not by this load."""
        assert self._goal is not None
        goal, self._goal = self._goal, None
        self._crowded.pop(goal.box, None)
        if not why:
            self._rests[goal.box] = _Rest(until_us=now_us + self._settings.cooldown_us)
            return
        before = self._rests.get(goal.box, _Rest(until_us=now_us))
        if not fails:
            until_us = now_us + self._settings.cooldown_us
            self._rests[goal.box] = replace(before, until_us=until_us, why=why)
            return
        times = min(before.times + 1, 20)
        rest_us = max(self._settings.cooldown_us, self._settings.every_us) << (times - 1)
        rest = _Rest(until_us=now_us + min(rest_us, REST_US_MAX), times=times, why=why)
        self._rests[goal.box] = rest
        self._outbox.report(
            "warning", "not scaled", query=self._query, box=goal.box, wanted=goal.parts, why=why
        )

    def _says(self, outcome: str) -> None:
        if self._last is not None:
            self._last = replace(self._last, outcome=outcome)

    # --- what is seen ---------------------------------------------------------------------------------

    def status(self, now_us: int, absent: Sequence[str] = ()) -> ScalingStatus:
        """``status()["queries"][query]["scaling"]``.

        Args:
            absent: nodes that may take parts, and aren't up.
        """
        last = self._last
        return ScalingStatus(
            acts=self._acts,
            now="" if self.order is None else self.order.text,
            waits_for="; ".join(filter(None, (self._waits_for, *self._resting(now_us)))),
            last="" if last is None else last.text,
            last_us=None if last is None else now_us - last.at_us,
            why="" if last is None else last.why,
            outcome="" if last is None else last.outcome,
            next_look_us=max(self.next_look_us - now_us, 0),
            lacks=self._missing.status(now_us, absent),
        )

    def _resting(self, now_us: int) -> Iterator[str]:
        for box, rest in self._rests.items():
            if rest.why and now_us < rest.until_us:
                yield f"{box} stays as it is for {(rest.until_us - now_us) // 1_000_000} s: {rest.why}"


def _whole_work(box: BoxWork) -> float | None:
    """Of all parts; None: of one it isn't known, so the whole may be more."""
    return None if any(part.work is None for part in box.parts) else box.work
