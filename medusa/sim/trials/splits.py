"""Boxes of a running query are split and merged, and all fragments move, at random moments under faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.sim.actors.node import NodeMachine
from medusa.sim.trials.federations import OFTEN, ROWS, options
from medusa.sim.trials.moves import KINDS, MoveTrial, answered, emits
from medusa.sim.trials.queries import QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import AIMED_SPLITS, BELIEVED, LATE, LINKS, MACHINES, WEATHER
from medusa.sim.world.keys_at_cuts import keys_of_rows
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages import Message
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge, Ranges, Split

__all__ = ["SPLITS", "SplitTrial"]

BOXES = {
    "keeps": ("per_k", "per_k", "most", "totals"),
    "meets": ("pairs", "stays", "firsts", "so_far"),
    "rings": ("alone", "several"),
    "ledgers": ("held", "seen", "copied"),
    "waits": ("most",),
    "decides": ("most",),
}
"""What is split of which query."""
MERGE_US = 1_000_000
"""Merges are ordered so much later: what isn't split yet can't be merged."""
GATHER_US = 400_000
"""Parts that are to be merged are ordered to one node so long before."""


class SplitTrial(MoveTrial):
    """Orders to split a box, to bring its parts together and merge them, and to move whatever there is.

    Attributes:
        boxes: that are split; each as often as it is named.
    """

    boxes: Sequence[str] = BOXES["keeps"]

    def _begin(self) -> None:
        super()._begin()
        self._plan_orders()

    def _plan_orders(self) -> None:
        """Orders at random moments."""
        dice = self.world.dice("splits")
        for _ in range(dice.randrange(2, 9)):
            what = dice.choice([self._split, self._split, self._merge, self._move])
            # What is cut while rows come has state, and more rows for it come later.
            span_us = self.options.publish_us if dice.random() < 0.75 else self.scene.span_us + 500_000
            at_us = dice.randrange(1, span_us) + (MERGE_US if what == self._merge else 0)
            box, by, pick = dice.choice(self.boxes), dice.choice(list(self.nodes)), dice.randrange(1 << 20)
            self._plan(at_us, partial(what, box, by, pick))

    # --- orders ---------------------------------------------------------------------------------------

    def _specs(self) -> dict[str, FragmentSpec]:
        """What runs, by name."""
        living = (node for node in self.nodes.values() if node.alive)
        return {h.spec.name: h.spec for node in living for h in node.brain.fragments.values()}

    def _with_box(self, box: str) -> FragmentSpec | None:
        specs = self._specs().values()
        return next((spec for spec in specs if any(each.id == box for each in spec.graph.boxes)), None)

    def _split(self, box: str, by: str, pick: int) -> None:
        spec = self._with_box(box)
        if spec is not None and self._with_box(f"{box}-router") is None:
            parts, name = 2 + pick % 2, spec.name
            ranges: Ranges = "weight" if pick // 2 % 2 else "even"
            self._ask(
                by,
                lambda n: Split(request=n, fragment=name, box=box, parts=parts, ranges=ranges),
                f"{box} of {name} in {parts} parts, {ranges}",
            )

    def _merge(self, box: str, by: str, pick: int) -> None:
        """Its parts come together first."""
        router = self._with_box(f"{box}-router")
        if router is None:
            return
        for spec in self._specs().values():
            of = {each.id for each in spec.graph.boxes} & {box, *(f"{box}-{part}" for part in range(1, 4))}
            if of and spec.node != router.node:
                self._ask(by, _move(spec.name, router.node), f"{spec.name} to {router.node}")
        self._plan(
            GATHER_US,
            lambda: self._ask(
                by,
                lambda n: Merge(request=n, fragment=router.name, box=box),
                f"{box} of {router.name} whole again",
            ),
        )

    def _move(self, box: str, by: str, pick: int) -> None:
        names, nodes = sorted(self._specs()), list(self.nodes)
        if names:
            name, to = names[pick % len(names)], nodes[pick // len(names) % len(nodes)]
            self._ask(by, _move(name, to), f"{name} to {to}")

    # --- what must hold -----------------------------------------------------------------------------

    @property
    def fragments(self) -> Collection[str]:
        return self._specs()

    def _check_senders(self, fragment: str, active: Collection[str]) -> None:
        """Who doesn't run it sends nothing of it, but what is to be split does while it comes to rest."""
        for name, node in self.nodes.items():
            if name in active or node.loop is None or not emits(node, fragment):
                continue
            if not node.brain.orders.splits.busy(fragment):
                raise SimulationError(f"emits: {fragment} is sent by {name}, it runs at {active}")

    def _watch(self, node: NodeMachine) -> None:
        """Each stream is sent by one fragment, also while others take its place."""
        super()._watch(node)
        senders: dict[str, str] = {}
        for name, other in self.nodes.items():
            if other.loop is None:
                continue
            for hosted in all_of(other):
                for output in hosted.outputs.values():
                    if output.sender.muted:
                        continue
                    here = f"{hosted.spec.name} at {name}"
                    if (there := senders.setdefault(output.stream, here)) != here:
                        raise SimulationError(f"emits: {output.stream} is sent by {there} and by {here}")

    @property
    def _settled(self) -> bool:
        return super()._settled and not any(node.brain.orders.splits.status() for node in self.nodes.values())


def all_of(node: NodeMachine) -> list[FragmentHost]:
    """What it runs, and what it has of others'."""
    arrivals = node.brain.orders.arrivals
    shadows = [each for name in arrivals.status() if (each := arrivals.shadow(name)) is not None]
    return list({id(each): each for each in (*node.brain.fragments.values(), *shadows)}.values())


def _move(fragment: str, to: str) -> Callable[[int], Message]:
    return lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=2000)


def splits(world: World, rows: int | None, parts: Any, **more: Any) -> QueryTrial:
    dice = world.dice("options")
    if world.seed % 10 == 8:
        kind = "rings"
    elif world.seed % 20 == 13:
        kind = "ledgers"
    else:
        kind = "meets" if world.seed % 3 == 0 else "keeps"
    q, at = KINDS[kind][0]()
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows, keys_of_rows)
    decided = options(dice, at, **({"publish_us": 1_500_000} | more))
    trial = SplitTrial(world, q, tables, decided, want=want, movable=(), moves=0)
    trial.boxes = BOXES[kind]
    return trial


SPLITS: dict[str, Scenario] = {
    "splits": Scenario(
        about="boxes are split and merged while they run, and parts move: one owner each, the same answer",
        build=splits,
        kinds=[*WEATHER, *LINKS, *OFTEN, *MACHINES, *AIMED_SPLITS, "crash in a split"],
        more=[*LATE, *BELIEVED],
        events_max=600_000,
    ),
}
