"""Decides how much is left out of which source of a node, so that it does what is left. No IO.

    work that comes + what waits  >  high, for high_for  ──>  nobody takes it?  ──>  shares, 4 times a second
                                  <  low, for low_for    ──>  nothing is left out any more

Both marks are of the work as it would be if nothing were left out: what is left out doesn't make a node
look as if it had little to do. Between them shares follow the work, down to none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import UNSET, UnsetType

from medusa.elements import WHOLE_PPM
from medusa.engine.overload.controller import DRIFT, HORIZON_US, PERIOD_US, WAIT_SHARE, tolerated_us
from medusa.engine.overload.road_map import RoadMap, coefficients
from medusa.engine.qos.delay_utility import Utility
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.load.overload import Overload
from medusa.nodes.shedding.node_work import Arrivals, NodeWork, RuledSource, work_of
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import NodeSheddingStatus, ShedSourceStatus

__all__ = ["NodeShedder"]

STEP_PPM = 20_000
"""A share that has changed by less stays, but for the last step to none. Too small: each look is a decision
in the log; too large: it is that far from what is needed."""

LINEAR = Utility(((0.0, 0.0), (1.0, 1.0)))
LOSS = ((0.0, 0.0), (100.0, 1.0))
"""What an output without a loss graph is worth, by percent delivered."""


class NodeShedder:
    """Of one node.

    Args:
        here: its name.
        hosted: fragments that run here, as they come and go.
        loads: what was measured of them.
        is_elsewhere: a cluster runs them, and decides how much it takes: nothing is left out of any.
        own: the fragments of our participant: nothing is left out of those of others.
        others_may_take: told since when there is too much: whether somebody may still take some of it.

    Attributes:
        work: what comes and waits, in processors, if nothing were left out; None: nothing is known.
        kept: the share of the work that comes and waits which is to be done.
    """

    def __init__(
        self,
        here: str,
        rules: LoadRules,
        hosted: Mapping[str, FragmentHost],
        loads: NodeLoads,
        *,
        is_elsewhere: bool = False,
        own: Callable[[], Collection[str]],
        others_may_take: Callable[[int], bool],
        outbox: Outbox,
    ) -> None:
        self._here, self._rules, self._hosted, self._loads = here, rules, hosted, loads
        self._may = rules.shed and not is_elsewhere
        self._own, self._others_may_take, self._outbox = own, others_may_take, outbox
        self._overload = Overload(rules)
        self._arrivals = Arrivals()
        self._look_at_us = -(1 << 62)
        self._waits_for_others = False
        self._drawn: tuple[object, Sequence[float], RoadMap] | None = None
        self._is_shedding_since_us: int | None = None
        self.work: float | None = None
        self.kept = 1.0

    def tick(self, now_us: int) -> None:
        """Decide again, where that is due."""
        if now_us < self._look_at_us:
            return
        self._look_at_us = now_us + PERIOD_US
        ruled = self._ruled()
        self._leave_guests_whole(now_us, ruled)
        if not ruled:
            self._rest()
            return
        self._arrivals.look(now_us, self._hosted)
        boxes = {name: self._loads.boxes(name) for name in self._hosted}
        work = work_of(self._here, self._hosted, boxes, self._arrivals, ruled)
        if work.places:
            self._decide(now_us, work)

    def _rest(self) -> None:
        """Nothing could be left out any more: what was too much says nothing of what comes later."""
        self.work, self.kept = None, 1.0
        self._overload, self._waits_for_others = Overload(self._rules), False
        self._ends_shedding()

    def _ends_shedding(self) -> None:
        if self._is_shedding_since_us is not None:
            self._is_shedding_since_us = None
            self._outbox.report("warning", "nothing is left out any more", work=f"{self.work or 0:.2f}")

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work; None: there is nothing that could be left out."""
        return (
            self._look_at_us if self._may and any(each.may_shed for each in self._hosted.values()) else None
        )

    def _ruled(self) -> list[str]:
        """Fragments of ours of which rows may be left out."""
        if not self._may:
            return []
        found = [name for name, each in self._hosted.items() if each.may_shed]
        own = self._own() if found else ()
        return [name for name in found if name in own]

    def _leave_guests_whole(self, now_us: int, ruled: Collection[str]) -> None:
        """What their owners left out before they came here isn't left out by us."""
        for name, each in self._hosted.items():
            for source in each.rules if name not in ruled else ():
                if each.shares.get(source) != 0:
                    each.shed(now_us, source, 0)

    def _decide(self, now_us: int, work: NodeWork) -> None:
        costs = coefficients(work.model)
        comes = work.model.load()
        waits_us = sum(rows * costs[id] for id, rows in work.waiting.items())
        allowed_us = min(_allowed_us(place) for place in work.places)
        horizon_us = max(HORIZON_US, allowed_us)
        beside = self._beside()
        self.work = comes + beside + max(waits_us - WAIT_SHARE * allowed_us, 0.0) / horizon_us
        self._judge(now_us)
        pressed = self._overload.since_us is not None or self.work > self._rules.high
        for name in dict.fromkeys(place.fragment for place in work.places):
            self._hosted[name].press(pressed)
        room_us = max(self._rules.high - beside, 0.0) * horizon_us + WAIT_SHARE * allowed_us
        whole_us = comes * horizon_us + waits_us
        self.kept = min(1.0, room_us / whole_us) if self._sheds(now_us) and whole_us else 1.0
        shares = [0.0] * len(work.places)
        if self.kept < 1.0:
            shares = list(self._map(work).down_to(self.kept).shares)
        for place, share in zip(work.places, shares, strict=True):
            self._tell(now_us, place, share)

    def _judge(self, now_us: int) -> None:
        """Whether there is too much, against two marks."""
        if self._overload.note(now_us, self.work):
            over = self._overload.since_us is not None
            if not over:
                self._ends_shedding()
            self._waits_for_others = over

    def _sheds(self, now_us: int) -> bool:
        """Whether rows are to be left out: there is too much, and nobody takes it. Once they are, whoever
        takes some makes it less."""
        since_us = self._overload.since_us
        if since_us is None:
            return False
        if self._waits_for_others:
            self._waits_for_others = self._others_may_take(since_us)
        if not self._waits_for_others and self._is_shedding_since_us is None:
            self._is_shedding_since_us = now_us
            self._outbox.report("warning", "rows are left out: too much comes", work=f"{self.work or 0:.2f}")
        return not self._waits_for_others

    def _beside(self) -> float:
        """What the engine's thread does beside boxes: frames become rows, and rows frames."""
        busy, engine = self._loads.busy_share, self._loads.engine_share
        return 0.0 if busy is None or engine is None else min(max(engine - busy, 0.0), 1.0)

    def _map(self, work: NodeWork) -> RoadMap:
        """The road map, drawn again where what it was drawn by has changed."""
        model = work.model
        figures = [*model.rates.values(), *model.costs_us.values(), *model.gives.values()]
        about = tuple(model.order), tuple(model.arcs)
        if self._drawn is not None and self._drawn[0] == about and _are_near(figures, self._drawn[1]):
            return self._drawn[2]
        drawn = self._draw(work)
        self._drawn = about, figures, drawn
        return drawn

    def _draw(self, work: NodeWork) -> RoadMap:
        return RoadMap(
            work.model,
            [place.arcs for place in work.places],
            [LINEAR for _ in work.places],
            {id: Utility(qos.loss or LOSS) for id, qos in work.outputs.items()},
        )

    def _tell(self, now_us: int, place: RuledSource, share: float) -> None:
        hosted = self._hosted[place.fragment]
        wanted, stands = min(round(share * WHOLE_PPM), WHOLE_PPM), hosted.shares.get(place.source)
        if stands is not None and (
            wanted == stands or (abs(wanted - stands) < STEP_PPM and 0 < wanted < WHOLE_PPM)
        ):
            return
        hosted.shed(now_us, place.source, wanted)

    # --- what is seen -----------------------------------------------------------------------------

    def status(self, now_us: int) -> NodeSheddingStatus | UnsetType:
        """``status()["shedding"]``: docs/shedding.md describes each field. Unset: there is nothing that
        could be left out."""
        if not (ruled := self._ruled()):
            return UNSET
        since_us = self._is_shedding_since_us
        return NodeSheddingStatus(
            work=self.work,
            kept=self.kept,
            shedding_us=None if since_us is None else now_us - since_us,
            waits_for_others=self._overload.since_us is not None and self._waits_for_others,
            sources=tuple(
                ShedSourceStatus(
                    fragment=name,
                    source=source,
                    how=rule.how,
                    outputs=tuple(f"{each.spec.query}.{output.sink}" for output in rule.outputs),
                    share=(each.shares.get(source) or 0) / WHOLE_PPM,
                    left_out_rows=each.thinning.shed_rows.get(source, 0),
                )
                for name in ruled
                for each in (self._hosted[name],)
                for source, rule in each.rules.items()
            ),
        )


def _are_near(now: Sequence[float], was: Sequence[float]) -> bool:
    pairs = zip(now, was, strict=False)
    same = len(now) == len(was)
    return same and all(abs(a - b) <= DRIFT * max(abs(a), abs(b), 1e-9) for a, b in pairs)


def _allowed_us(place: RuledSource) -> float:
    """How long a row may take at this node: of the delay at which an output begins to lose, the part of one
    of the fragments on the way."""
    found = (
        tolerated_us(Utility(each.qos.latency)) / each.hops
        for each in place.rule.outputs
        if each.qos.latency is not None
    )
    least_us = min(found, default=math.inf)
    return least_us if math.isfinite(least_us) else float(HORIZON_US)
