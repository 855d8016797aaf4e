"""Moments of splits, merges and moves to which few seeds of ``splits`` come."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from medusa.query.boxes import Schema
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.trials.federations import ROWS, options
from medusa.sim.trials.moves import KINDS, answered
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.seam_moments import HandOn, comes_again, ends_within, is_at
from medusa.sim.trials.splits import BOXES, SplitTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_dice import AWAY_US
from medusa.sim.world.fault_kinds import KINDS as KINDS_OF_FAULTS
from medusa.sim.world.fault_kinds import LINKS, WEATHER, Fault, Scene, begin
from medusa.sim.world.keys_at_cuts import keys_of_rows
from medusa.sim.world.virtual_time import World
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge

__all__ = ["SEAMS", "SeamTrial"]

SEAM_KINDS = ("behind", "end", "asked again", "received", "caught")
SUITED = {"behind": "waits", "end": "decides", "received": "keeps"}
"""With which query a seed may come to it; others take several."""

QUESTIONS = ("unexpect", "unexpect", "expect", "follow", "placed")
"""Of moves: what one attempt asks, and a later one asks again."""

MOMENTS = ("splits", "splits", "arrives", "moves away", "repeats")
"""Of a node: it splits or merges a box, a fragment is on its way to it or from it, it repeats a log."""

CAUGHT = (
    *("pause", "slow machine", "write fails", "disk full", "clock jump", "stuck connection"),
    *("crash after sending", "fails and crashes", "one write fails", "damaged copy"),
)
"""What goes wrong then."""

WAITS = 8
"""Faults that wait for such a moment in one seed; several may happen at the same one."""

DEATHS_MAX = 2
"""So often a node dies at the moment that is waited for."""

SLOWER = 20
"""So many times slower is an owner that is to be behind with what it has received."""

BLOCK_ROWS = 80
"""Of 0.1 s each, about: together surely less than the slack of their source."""

HELD_US = 1_000_000
"""So long the coordinator isn't heard at most while a merge asks it: less than what makes it silent."""


class SeamTrial(SplitTrial):
    """One of five things happens to a query that is split, moved and merged as in ``splits``.

    - ``behind``: a node dies when the parts of a box that was split there have written a checkpoint and are
      still behind what was sent before.
    - ``end``: a box is made whole again while the end of the stream is on its way between its parts; the
      node stands still meanwhile, so that all parts have fed it in one turn.
    - ``asked again``: who takes part in a move dies, and questions of that attempt come again in the next.
    - ``received``: an owner that is far behind with what it has received hands a fragment on; who feeds that
      and who took it die just as it has attached.
    - ``caught``: something goes wrong with a machine just when it splits a box, has a fragment on its way, or
      repeats its log.
    """

    def __init__(self, *args: Any, seam: str, **more: Any) -> None:
        self._seam = seam
        self._deaths = 0
        self._waits: tuple[tuple[str, str], ...] = ()
        """Moments that are waited for, and what goes wrong then."""
        self._unheard: tuple[str, str] | None = None
        """The coordinator and the node that merges, while that doesn't hear it."""
        self._hand_on: HandOn | None = None
        self._asked_whole = False
        super().__init__(*args, **more)
        self._picks = self.world.dice("seams")

    def heal(self) -> None:
        self._waits, self._hand_on, self._deaths = (), None, DEATHS_MAX
        self._hear()
        super().heal()

    def _plan_orders(self) -> None:
        """Others would be in the way of what few seeds come to."""
        if self._seam in ("asked again", "caught"):
            super()._plan_orders()

    def _begin(self) -> None:
        super()._begin()
        dice, span_us = self._picks, self.options.publish_us
        if self._seam == "caught":
            self._catch(span_us)
        if self._seam == "asked again":
            self._plan(dice.randrange(1, span_us), self._ask_again)
            return
        if self._seam == "received":
            self._slow_down()
            return
        for box in dict.fromkeys(self.boxes):
            by, parts = dice.choice(list(self.nodes)), dice.randrange(2)  # Two or three, by even ranges.
            pick = dice.randrange(1 << 20) if self._seam == "caught" else parts
            self._plan(dice.randrange(1, span_us * 3 // 4), partial(self._split, box, by, pick))

    def _watch(self, node: NodeMachine) -> None:
        super()._watch(node)
        if node.loop is None:
            return
        if self._waits:
            self._look(node)
        if self._seam == "behind" and self._deaths < DEATHS_MAX and comes_again(node):
            self._crash(node.name, self._picks.choice([1000, 300_000]))
        if self._unheard is not None and node.name == self._unheard[1] and ends_within(node):
            self._let_it_hear(node.name)
        if self._hand_on is not None and self._hand_on.is_done(node):
            self._crash(self._hand_on.upstream, 1000)
            self._crash(self._hand_on.to, 20_000)
            self._hand_on = None

    def _does(self, kind: str, who: tuple[str, ...], for_us: int, amount: int = 0) -> None:
        """A fault; not in the middle of the turn of a node."""
        now_us = self.world.now_us
        fault = Fault(number=0, kind=kind, at_us=now_us, for_us=for_us, who=who, amount=amount)
        self.world.after(1, partial(begin, self, fault))

    def _crash(self, name: str, for_us: int) -> None:
        self._deaths += 1
        self._does("crash", (name,), for_us)

    # --- caught ---------------------------------------------------------------------------------------

    def _catch(self, span_us: int) -> None:
        dice = self._picks
        self._waits = tuple((dice.choice(MOMENTS), dice.choice(CAUGHT)) for _ in range(WAITS))
        for _ in range(4):
            by, pick = dice.choice(list(self.nodes)), dice.randrange(1 << 20)
            self._plan(dice.randrange(1, span_us), partial(self._move, self.boxes[0], by, pick))
        sources = sorted({node for _, node in self.publishers.values()})
        for name in (*dice.sample(list(self.nodes), 2), *sources):  # Who lives again repeats its log.
            self.world.after(dice.randrange(100_000, span_us), partial(self._die_at_once, name))

    def _die_at_once(self, name: str) -> None:
        self.nodes[name].crash()
        self.world.after(AWAY_US, lambda: self.restart(name))

    def _look(self, node: NodeMachine) -> None:
        """Whether a node has come to a moment that is waited for."""
        for wait in self._waits:
            moment, kind = wait
            if not is_at(node, moment):
                continue
            self._waits = tuple(each for each in self._waits if each is not wait)
            scene = Scene(machines=[node.name], links=self.links, span_us=1)
            who, for_us, amount = KINDS_OF_FAULTS[kind].draw(self._picks, scene)
            self._does(kind, who, for_us, amount)
            return

    # --- asked again ----------------------------------------------------------------------------------

    def _ask_again(self) -> None:
        """Its target or owner dies amid a move; what was asked in that attempt comes again in the next."""
        dice, specs = self._picks, self._specs()
        tag = dice.choice(QUESTIONS)
        names = sorted(specs)
        if tag == "unexpect":  # It reads from another node.
            names = [name for name in names if any(f.node != specs[name].node for f in specs[name].feeds)]
        if not names:
            return
        fragment = dice.choice(names)
        home = self._node_of(fragment)
        to = dice.choice([name for name in self.nodes if name != home])
        if tag == "unexpect":
            self._unexpect_again(home, to)
        else:
            self.network.delay(tag, dice.choice([20_000, 100_000, 300_000]), again=True)
            self.world.after(
                dice.randrange(1000, 200_000), partial(self._die_at_once, dice.choice((to, to, home)))
            )
            self.world.after(1_500_000, lambda: self.network.delay(tag, 0))
        self._ask(
            home, lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=2000), f"{fragment} to {to}"
        )

    def _unexpect_again(self, home: str, to: str) -> None:
        """The target dies when it is asked; that it wasn't to be expected comes again once it is."""
        late_us = self._picks.choice([1, 1000, 5000])

        def sent(source: str, target: str) -> bool:
            if (source, target) != (home, to):
                return False
            self.world.after(late_us, partial(self._die_at_once, to))
            return True

        self.network.repeat_behind("unexpect", "expect")
        self.network.when_sent("receive", 1, sent)

    # --- received -------------------------------------------------------------------------------------

    def _slow_down(self) -> None:
        """The owner of what the source feeds is so slow that it is behind, and is to hand that on."""
        dice, spec, span_us = self._picks, self._with_box(self.boxes[0]), self.options.publish_us
        if spec is None:
            return
        home, feed = spec.node, spec.feeds[0]
        to = dice.choice([name for name in self.nodes if name not in (home, feed.node)])
        self._does("slow machine", (home,), 3_000_000, SLOWER)
        self._hand_on = HandOn(feed.node, feed.stream, to)
        name = spec.name
        self._plan(
            dice.randrange(span_us * 2 // 10, span_us * 4 // 10),
            lambda: self._ask(
                home, lambda n: Move(request=n, fragment=name, to=to, timeout_ms=3000), f"{name} to {to}"
            ),
        )

    # --- the end --------------------------------------------------------------------------------------

    def _finish(self, client: Client, stream: str, schema: Schema) -> None:
        """Just before the end comes it is asked whether the box may be whole again; nobody hears the answer
        until the end is between its parts."""
        router = self._with_box(f"{self.boxes[0]}-router") if self._seam == "end" else None
        if router is not None and not self._asked_whole:
            self._asked_whole = True
            coordinator, name, box = self.reader.mind.node, router.name, self.boxes[0]
            self._unheard = coordinator, router.node
            self.network.cut(coordinator, router.node, hold=True)
            self.world.after(HELD_US, self._hear)
            self._ask(router.node, lambda n: Merge(request=n, fragment=name, box=box), f"{box} whole again")
        super()._finish(client, stream, schema)

    def _let_it_hear(self, name: str) -> None:
        """All that its parts have to feed, and the answer, are there when it goes on."""
        options = self.options
        self._does("pause", (name,), options.delay_us + 8 * options.job_us + 1000)
        self._hear()

    def _hear(self) -> None:
        if self._unheard is not None:
            self.network.heal(*self._unheard, hold=True)
            self._unheard = None


def seams(world: World, rows: int | None, parts: Any) -> QueryTrial:
    dice = world.dice("options")
    seam = world.dice("seam").choice(SEAM_KINDS)
    kind = SUITED.get(seam) or ("meets" if world.seed % 3 == 0 else "keeps")
    if seam == "caught" and world.seed % 2:
        kind = "decides"  # Only there a log is repeated.
    q, at = KINDS[kind][0]()
    tables, want = answered(kind, world.seed % 16, ROWS // 2 if rows is None else rows, keys_of_rows)
    if seam == "behind":
        tables = {name: newest_first(each) for name, each in tables.items()}
    decided = suited(seam, options(dice, at))
    trial = SeamTrial(world, q, tables, decided, want=want, movable=(), moves=0, seam=seam)
    trial.boxes = BOXES[kind]
    return trial


def newest_first(rows: pa.Table) -> pa.Table:
    """In blocks the last row of which comes first: the others promise nothing, so what is in order by their
    numbers waits until the next block."""
    places = range(len(rows))
    blocks = [places[at : at + BLOCK_ROWS] for at in range(0, len(rows), BLOCK_ROWS)]
    return rows.take(pa.array([place for block in blocks for place in (block[-1], *block[:-1])], pa.int64()))


def suited(seam: str, options: QueryOptions) -> QueryOptions:
    """Options with which a seed may come to the moment."""
    often = replace(options.limits, checkpoint_every_us=50_000)
    match seam:
        case "behind":  # A checkpoint is due before the next promise comes.
            return replace(options, publish_us=1_500_000, piece_rows=5, limits=often)
        case "received":  # More elements wait than are given to the engine at once, and more come.
            waits = replace(options, piece_rows=2, publish_us=1_400_000, limits=often)
            return replace(waits, job_us=500, sync_us=500, delay_us=2000)
        case "end":  # The answer is there while the parts have something to do.
            return replace(options, publish_us=1_500_000, delay_us=100, job_us=50)
        case _:
            return options


SEAMS: dict[str, Scenario] = {
    "seams": Scenario(
        about="rare moments of splits, merges and moves: parts behind, the end, stale questions, faults",
        build=seams,
        kinds=[*WEATHER, *LINKS, "crash"],
        count=2,
        events_max=600_000,
    ),
}
