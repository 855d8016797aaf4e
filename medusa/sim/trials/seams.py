"""Moments of splits, merges and moves to which few seeds of ``splits`` come."""

from __future__ import annotations

from functools import partial
from typing import Any

from medusa.elements import END_US
from medusa.sim.actors.node import NodeMachine
from medusa.sim.trials.federations import ROWS, options
from medusa.sim.trials.moves import KINDS, answered
from medusa.sim.trials.queries import QueryTrial
from medusa.sim.trials.splits import BOXES, SplitTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_draws import AWAY_US
from medusa.sim.world.faults import KINDS as KINDS_OF_FAULTS
from medusa.sim.world.faults import LINKS, WEATHER, Fault, Scene, begin
from medusa.sim.world.keys_at_cuts import keys_of_rows
from medusa.sim.world.virtual_time import World
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge

__all__ = ["SEAMS", "SeamTrial"]

QUESTIONS = ("unexpect", "unexpect", "expect", "follow", "placed")
"""Of moves: what one attempt asks, and a later one asks again."""

MOMENTS = ("splits", "splits", "arrives", "moves away", "repeats")
"""Of a node: it splits or merges a box, a fragment is on its way to it or from it, it repeats a log."""

CAUGHT = (
    *("pause", "slow machine", "write fails", "disk full", "clock jump", "stuck connection"),
    *("crash after sending", "fails and crashes", "one write fails", "damaged copy"),
)
"""What goes wrong then."""


class SeamTrial(SplitTrial):
    """One of four things happens to a query that is split, moved and merged as in ``splits``.

    A node dies a while after a box was split there, when its parts have written checkpoints and may still
    be behind what was sent before. Parts are merged while the end of the stream is on its way between them.
    Or who takes part in a move dies, and questions of that attempt come again in the next one. Or something
    goes wrong with a machine just when it splits a box, has a fragment on its way, or repeats its log.
    """

    def _begin(self) -> None:
        super()._begin()
        dice = self.world.dice("seams")
        self._seam = dice.choice(("behind", "end", "asked again", "caught"))
        self._picks = dice
        span_us = self.options.publish_us
        if self._seam == "caught":
            self._catch(span_us)
        if self._seam == "asked again":
            self._plan(dice.randrange(1, span_us), self._ask_again)
            return
        for box in dict.fromkeys(self.boxes):
            by, pick = dice.choice(list(self.nodes)), dice.randrange(1 << 20)
            self._plan(dice.randrange(1, span_us * 3 // 4), partial(self._split, box, by, pick))
        if self._seam == "behind":
            for _ in range(2):
                self.aim(
                    Fault(
                        number=0,
                        kind="crash in a split",
                        at_us=self.world.now_us,
                        for_us=dice.choice([1000, 300_000]),
                        who=("owner", "split over", "lost"),
                        amount=dice.randrange(20_000, 500_000),
                    )
                )

    _seam = ""
    _ends = False
    _waits: tuple[tuple[str, str], ...] = ()
    """Moments that are waited for, and what goes wrong then."""

    def _catch(self, span_us: int) -> None:
        dice = self._picks
        self._waits = tuple((dice.choice(MOMENTS), dice.choice(CAUGHT)) for _ in range(4))
        for _ in range(4):
            by, pick = dice.choice(list(self.nodes)), dice.randrange(1 << 20)
            self._plan(dice.randrange(1, span_us), partial(self._move, self.boxes[0], by, pick))
        for name in dice.sample(list(self.nodes), 2):  # Who lives again repeats its log.
            self.world.after(dice.randrange(100_000, span_us), partial(self._dies, name))

    def _dies(self, name: str) -> None:
        self.nodes[name].crash()
        self.world.after(AWAY_US, lambda: self.restart(name))

    def _look(self, node: NodeMachine) -> None:
        """Whether a node has come to a moment that is waited for."""
        for wait in self._waits:
            moment, kind = wait
            if not _is_at(node, moment):
                continue
            self._waits = tuple(each for each in self._waits if each is not wait)
            scene = Scene(machines=[node.name], links=self.links, span_us=1)
            who, for_us, amount = KINDS_OF_FAULTS[kind].draw(self._picks, scene)
            fault = Fault(number=0, kind=kind, at_us=self.world.now_us, for_us=for_us, who=who, amount=amount)
            # Not in the middle of its turn.
            self.world.after(1, partial(begin, self, fault))
            return

    def _ask_again(self) -> None:
        """Its target or owner dies amid a move; what was asked in that attempt comes again in the next."""
        dice, names = self._picks, sorted(self._specs())
        if not names:
            return
        fragment = dice.choice(names)
        home = self._node_of(fragment)
        to = dice.choice([name for name in self.nodes if name != home])
        tag = dice.choice(QUESTIONS)
        self.network.delay(tag, dice.choice([20_000, 100_000, 300_000]), again=True)
        self._ask(
            home, lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=2000), f"{fragment} to {to}"
        )

        dies = dice.choice((to, to, home))

        def die() -> None:
            self.nodes[dies].crash()
            self.world.after(AWAY_US, lambda: self.restart(dies))

        self.world.after(dice.randrange(1000, 200_000), die)
        self.world.after(1_500_000, lambda: self.network.delay(tag, 0))

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        if self._waits and node.loop is not None:
            self._look(node)
        if self._seam == "end" and not self._ends and node.loop is not None and self._sees_end(node):
            self._ends = True
            for box in dict.fromkeys(self.boxes):
                late_us = self._picks.choice([1, 1000, 5000, 20_000, 60_000])
                self._plan(late_us, partial(self._merge_now, box))

    def _sees_end(self, node: NodeMachine) -> bool:
        """All publishers have come to their end."""
        entries = [
            input
            for hosted in node.brain.fragments.values()
            for input in hosted.inputs.values()
            if not input.judged
        ]
        return bool(entries) and all(input.receiver.boundary_us >= END_US for input in entries)

    def _merge_now(self, box: str) -> None:
        router = self._with_box(f"{box}-router")
        if router is not None:
            name = router.name
            self._ask(router.node, lambda n: Merge(request=n, fragment=name, box=box), f"{box} whole again")


def _is_at(node: NodeMachine, moment: str) -> bool:
    if moment == "repeats":
        return any(hosted.repeating for hosted in node.brain.fragments.values())
    sliding = node.brain.orders
    if moment == "splits":
        return bool(sliding.splits.status())
    moves = sliding.status()
    return bool(moves.coming if moment == "arrives" else moves.going)


def seams(world: World, rows: int | None, parts: Any) -> QueryTrial:
    dice = world.dice("options")
    kind = "meets" if world.seed % 3 == 0 else "keeps"
    q, at = KINDS[kind][0]()
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows, keys_of_rows)
    trial = SeamTrial(world, q, tables, options(dice, at), want=want, movable=(), moves=0)
    trial.boxes = BOXES[kind]
    return trial


SEAMS: dict[str, Scenario] = {
    "seams": Scenario(
        about="rare moments of splits, merges and moves: parts behind, the end, stale questions, faults",
        build=seams,
        kinds=[*WEATHER, *LINKS, "crash"],
        count=2,
        events_max=600_000,
    ),
}
