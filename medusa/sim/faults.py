"""Everything that can go wrong, as values: a seed draws a list of them, and each can be left out.

A fault has a number. ``medusa sim SCENARIO --seed N --only 3,7`` runs the seed with these two only,
which is what a shrunk failure prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol, runtime_checkable

from medusa.sim.machine import Machine
from medusa.sim.network import Network
from medusa.sim.world import World

__all__ = [
    *("AIMED", "AIMED_SPLITS", "DAMAGE", "KINDS", "LINKS", "MACHINES"),
    *("SPLIT_STEPS", "STEPS", "UNSYNCED", "WEATHER"),
    *("Aiming", "Fault", "Scene", "Stage", "draw", "inject"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        number: its place in the seed's list, from 0.
        kind: a key of ``KINDS``.
        at_us: when, in the world's time; 0: before anything starts.
        for_us: how long; 0 where it is a moment, or lasts until all faults end.
        who: names, as the kind says.
        amount: as the kind says.
    """

    number: int
    kind: str
    at_us: int
    for_us: int = 0
    who: tuple[str, ...] = ()
    amount: int = 0

    def __str__(self) -> str:
        words = KINDS[self.kind].words.format(
            who=" ".join(self.who), first=self.who[0] if self.who else "", amount=self.amount
        )
        length = f" for {self.for_us / 1e6:.3f} s" if self.for_us else ""
        return f"{self.number}: at {self.at_us / 1e6:.3f} s {words}{length}"


class Stage(Protocol):
    """Where faults happen: a chain, or a federation."""

    world: World
    network: Network

    @property
    def machines(self) -> Mapping[str, Machine]:
        """What can crash."""

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        """Pairs that speak with each other."""

    def restart(self, name: str) -> None:
        """Start a machine unless it runs."""


@runtime_checkable
class Aiming(Stage, Protocol):
    """A stage where fragments move and are split."""

    def aim(self, fault: Fault) -> None:
        """Have it happen when a move or a split comes to its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the dice need to know of a stage.

    Attributes:
        machines: what can crash.
        links: pairs that speak with each other.
        span_us: faults begin before this.
    """

    machines: Sequence[str]
    links: Sequence[tuple[str, str]]
    span_us: int

    def neighbours(self, name: str) -> list[str]:
        """Who speaks with it."""
        return [b if a == name else a for a, b in self.links if name in (a, b)]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of fault is drawn, said and done.

    Attributes:
        draw: (dice, scene) -> (who, for_us, amount).
        begin: makes it happen; what it returns ends it after ``for_us``.
    """

    words: str
    draw: Callable[[Random, Scene], tuple[tuple[str, ...], int, int]]
    begin: Callable[[Stage, Fault], Callable[[], None] | None]
    at_start: bool = False


def draw(
    dice: Random, scene: Scene, kinds: Iterable[str], count: int, *, swarm: bool = True
) -> tuple[Fault, ...]:
    """A list of ``count`` faults, and of the weather at the start.

    Args:
        swarm: each seed lacks some of the kinds, so that one doesn't hide another.
    """
    present = [kind for kind in kinds if not swarm or dice.random() < 0.6]
    drawn: list[tuple[str, int]] = []
    drawn += [(kind, 0) for kind in present if KINDS[kind].at_start]
    moments = [kind for kind in present if not KINDS[kind].at_start]
    drawn += [(dice.choice(moments), dice.randrange(1, scene.span_us)) for _ in range(count) if moments]
    faults = []
    for number, (kind, at_us) in enumerate(drawn):
        who, for_us, amount = KINDS[kind].draw(dice, scene)
        faults.append(Fault(number=number, kind=kind, at_us=at_us, for_us=for_us, who=who, amount=amount))
    return tuple(faults)


def inject(stage: Stage, faults: Iterable[Fault]) -> None:
    """Plan the faults; those of the start happen now. Call it before anything starts."""

    def begin(fault: Fault) -> None:
        stage.world.trace("world", f"fault {fault}")
        end = KINDS[fault.kind].begin(stage, fault)
        if end is not None and fault.for_us:
            stage.world.after(fault.for_us, end)

    for fault in faults:
        if fault.at_us == 0:
            begin(fault)
        else:
            stage.world.at(fault.at_us, lambda fault=fault: begin(fault))  # type: ignore[misc]


UNSYNCED = ("lost", "kept", "torn")
STEPS = ("preparing", "copying", "handing", "handed", "undoing", "filling", "following", "taking", "owning")
"""Of moves: those of ``medusa.mind.moving``; ``handed``: and it stands still."""
CROSSING = ("handing", "handed", "taking", "owning")
"""Where each may be the owner by its disk: drawn more often."""
SPLIT_STEPS = ("asking", "weighing", "draining", "cutting", "writing", "following", "switching", "over")
"""Of splits and merges: those of ``medusa.mind.split_steps``; ``over``: done, or given up."""
PARTS = ("owner", "target", "target", "upstream", "reader")
WORDS = (
    *("expect", "unexpect", "release", "follow", "moved", "placed"),
    *("receive", "ready", "got", "giveup", "handover", "settle", "settled"),
)
"""Of moves: tags of messages."""


# --- how they are drawn -------------------------------------------------------------------------

Drawn = tuple[tuple[str, ...], int, int]


def _link(least_us: int, most_us: int, *amounts: int) -> Callable[[Random, Scene], Drawn]:
    def drawn(dice: Random, scene: Scene) -> Drawn:
        pair = dice.choice(scene.links)
        way = pair if dice.random() < 0.5 else pair[::-1]
        return way, dice.randrange(least_us, most_us), dice.choice(amounts or (0,))

    return drawn


def _machine(least_us: int, most_us: int, *amounts: int) -> Callable[[Random, Scene], Drawn]:
    def drawn(dice: Random, scene: Scene) -> Drawn:
        for_us = dice.randrange(least_us, most_us) if most_us else 0
        return (dice.choice(scene.machines),), for_us, dice.choice(amounts or (0,))

    return drawn


def _weather(*amounts: int) -> Callable[[Random, Scene], Drawn]:
    return lambda dice, scene: ((), 0, dice.choice(amounts))


def _away(dice: Random) -> int:
    return dice.choice([1000, 20_000, 100_000, 400_000, 800_000])


def _crashed(dice: Random, scene: Scene) -> Drawn:
    return (dice.choice(scene.machines),), _away(dice), dice.randrange(3)


def _damaged(dice: Random, scene: Scene) -> Drawn:
    return (dice.choice(scene.machines),), _away(dice), dice.randrange(1 << 16)


def _group(dice: Random, scene: Scene) -> Drawn:
    """One side of a partition: from one place to all but one."""
    places = sorted({name for pair in scene.links for name in pair})
    side = dice.sample(places, dice.randrange(1, max(len(places) - 1, 2)))
    return tuple(sorted(side)), dice.randrange(50_000, 900_000), 0


def _clogged(dice: Random, scene: Scene) -> Drawn:
    """A machine and its neighbours, in the order in which the links are opened again."""
    name = dice.choice(scene.machines)
    others = sorted(set(scene.neighbours(name)))
    dice.shuffle(others)
    return (name, *others), dice.randrange(100_000, 600_000), dice.randrange(1000, 60_000)


def _at_a_step(dice: Random, scene: Scene) -> Drawn:
    """Who dies, at which step, and what becomes of its writes under way; how much later."""
    who = dice.choice(PARTS), dice.choice(STEPS + CROSSING + CROSSING), dice.choice(UNSYNCED)
    return who, _away(dice), dice.choice([1, 1, 300, 2000, 10_000, 40_000])


def _cut_at_a_step(dice: Random, scene: Scene) -> Drawn:
    return ("owner", dice.choice(STEPS)), dice.randrange(50_000, 2_000_000), dice.choice([1, 300, 10_000])


def _split_step(dice: Random, steps: Sequence[str]) -> str:
    """Of a merge, or of either."""
    return dice.choice(("", "", "merge ")) + dice.choice(steps)


def _at_a_split(dice: Random, scene: Scene) -> Drawn:
    """As ``_at_a_step``. Most often who splits dies, where its disk may say either."""
    part = dice.choice(("owner", "owner", "owner", "coordinator", "upstream", "reader"))
    step = _split_step(dice, (*SPLIT_STEPS, "following", "switching", "switching", "over"))
    who = part, step, dice.choice(UNSYNCED)
    return who, _away(dice), dice.choice([1, 1, 300, 2000, 10_000, 40_000])


def _cut_at_a_split(dice: Random, scene: Scene) -> Drawn:
    who = dice.choice(("coordinator", "upstream", "reader")), _split_step(dice, SPLIT_STEPS)
    return who, dice.randrange(50_000, 2_000_000), dice.choice([1, 300, 10_000])


def _word(dice: Random, scene: Scene) -> Drawn:
    late_us = dice.choice([30_000, 200_000, 700_000, 1_500_000])
    return (dice.choice(WORDS),), dice.randrange(100_000, 900_000), late_us


# --- what they do -------------------------------------------------------------------------------


def _worsen(field: str) -> Callable[[Stage, Fault], None]:
    return lambda stage, fault: stage.network.worsen(**{field: fault.amount})


def _cut(stage: Stage, ways: Sequence[tuple[str, str]], *, hold: bool = False) -> Callable[[], None]:
    for way in ways:
        stage.network.cut(*way, hold=hold)

    def heal() -> None:
        for way in ways:
            stage.network.heal(*way, hold=hold)

    return heal


def _both(fault: Fault) -> list[tuple[str, str]]:
    a, b = fault.who
    return [(a, b), (b, a)]


def _partition(stage: Stage, fault: Fault) -> Callable[[], None]:
    inside = set(fault.who)
    pairs = [pair for pair in stage.links if (pair[0] in inside) != (pair[1] in inside)]
    return _cut(stage, pairs + [pair[::-1] for pair in pairs])


def _swizzle(stage: Stage, fault: Fault) -> None:
    """Clog the links of a machine one by one; open them in another order, one by one."""
    name, *others = fault.who
    step_us = fault.amount
    for place, other in enumerate(sorted(others)):
        for way in ((name, other), (other, name)):
            stage.world.after(place * step_us, lambda way=way: stage.network.cut(*way, hold=True))  # type: ignore[misc]
    open_us = len(others) * step_us + fault.for_us
    for place, other in enumerate(others):
        for way in ((name, other), (other, name)):
            stage.world.after(
                open_us + place * step_us,
                lambda way=way: stage.network.heal(*way, hold=True),  # type: ignore[misc]
            )


def _slow_link(stage: Stage, fault: Fault) -> Callable[[], None]:
    source, target = fault.who
    stage.network.slow(source, target, fault.amount)
    return lambda: stage.network.slow(source, target, 0)


def _reconnect(stage: Stage, fault: Fault) -> None:
    """ZeroMQ at a reconnection: what was handed over lately is gone, silently."""
    source, target = fault.who
    stage.network.reconnect(source, target, max(stage.world.now_us - fault.for_us, 0))


def _late(stage: Stage, fault: Fault, *, again: bool) -> Callable[[], None]:
    stage.network.delay(fault.who[0], fault.amount, again=again)
    return lambda: stage.network.delay(fault.who[0], 0)


def _aim(stage: Stage, fault: Fault) -> None:
    assert isinstance(stage, Aiming), "nothing moves or is split here"
    stage.aim(fault)


def _crash(stage: Stage, fault: Fault) -> Callable[[], None]:
    stage.machines[fault.who[0]].crash(UNSYNCED[fault.amount])
    return lambda: stage.restart(fault.who[0])


def _crash_and(harm: Callable[[Machine, Fault], None]) -> Callable[[Stage, Fault], Callable[[], None]]:
    def begin(stage: Stage, fault: Fault) -> Callable[[], None]:
        machine = stage.machines[fault.who[0]]
        machine.crash()
        harm(machine, fault)
        return lambda: stage.restart(fault.who[0])

    return begin


def _pause(stage: Stage, fault: Fault) -> None:
    stage.machines[fault.who[0]].pause(fault.for_us)


def _slow_machine(stage: Stage, fault: Fault) -> Callable[[], None]:
    machine = stage.machines[fault.who[0]]
    machine.slowness = fault.amount

    def mend() -> None:
        machine.slowness = 1

    return mend


def _write_fails(stage: Stage, fault: Fault) -> None:
    stage.machines[fault.who[0]].disk.fail_at = fault.amount


def _full(stage: Stage, fault: Fault) -> Callable[[], None]:
    disk = stage.machines[fault.who[0]].disk
    disk.full = True

    def mend() -> None:
        disk.full = False

    return mend


def _drift(stage: Stage, fault: Fault) -> None:
    clock = stage.machines[fault.who[0]].clock
    clock.jump(fault.amount * fault.amount * 1000)
    clock.drift(fault.amount * 1000)


def _jump(stage: Stage, fault: Fault) -> None:
    stage.machines[fault.who[0]].clock.jump(fault.amount)


def _step(stage: Stage, fault: Fault) -> None:
    stage.machines[fault.who[0]].clock.step(fault.amount)


KINDS: dict[str, Kind] = {
    # Weather: until all faults end.
    "jitter": Kind(
        "delays of up to {amount} us more", _weather(500, 3000, 30_000), _worsen("jitter_us"), at_start=True
    ),
    "tail": Kind(
        "{amount} of 1000 frames are very late", _weather(5, 10), _worsen("tail_permille"), at_start=True
    ),
    "loss": Kind(
        "{amount} of 1000 frames are lost", _weather(5, 20, 50, 200), _worsen("loss_permille"), at_start=True
    ),
    "repeat": Kind(
        "{amount} of 1000 frames come twice", _weather(10, 30), _worsen("duplicate_permille"), at_start=True
    ),
    "reorder": Kind(
        "{amount} of 1000 frames overtake", _weather(10, 30), _worsen("reorder_permille"), at_start=True
    ),
    # Links.
    "cut one way": Kind(
        "cut {who}, one way", _link(50_000, 900_000), lambda stage, fault: _cut(stage, _both(fault)[:1])
    ),
    "cut": Kind("cut {who}, both ways", _link(50_000, 900_000), lambda stage, f: _cut(stage, _both(f))),
    "short cut": Kind(
        "cut {who}, not noticed",
        _link(50_000, 200_000),
        lambda stage, fault: _cut(stage, _both(fault), hold=True),
    ),
    "partition": Kind("cut {who} off from all others", _group, _partition),
    "swizzle": Kind("clog the links of {first} one by one, then open: {who}", _clogged, _swizzle),
    "slow link": Kind(
        "slow link {who}: {amount} us a frame", _link(50_000, 900_000, 2000, 10_000, 40_000), _slow_link
    ),
    "reconnect": Kind(
        "{who} reconnects and loses what is under way since the", _link(1000, 60_000), _reconnect
    ),
    # Machines.
    "crash": Kind("{who} crashes (unsynced writes: {amount}; 0 lost, 1 kept, 2 torn)", _crashed, _crash),
    "pause": Kind("{who} stands still", _machine(50_000, 1_500_000), _pause),
    "slow machine": Kind(
        "{who} is {amount} times slower", _machine(100_000, 1_500_000, 5, 30), _slow_machine
    ),
    "write fails": Kind(
        "the write of {who} number {amount} from now fails", _machine(0, 0, 1, 2, 5), _write_fails
    ),
    "disk full": Kind("the disk of {who} is full", _machine(50_000, 900_000), _full),
    "clock": Kind(
        "the clock of {who} is off and runs {amount}/1000 too fast",
        _machine(0, 0, -50, -7, 7, 50),
        _drift,
        True,
    ),
    "clock jump": Kind(
        "the clock of {who} jumps ahead {amount} us", _machine(0, 0, 30_000, 2_000_000), _jump
    ),
    "clock step": Kind(
        "somebody sets the clock of {who} by {amount} us",
        _machine(0, 0, -9_000_000_000, -50_000, 7_000_000),
        _step,
    ),
    # Of moves.
    "crash in a move": Kind("{amount} us after the next move comes there, crashes: {who}", _at_a_step, _aim),
    "cut in a move": Kind(
        "{amount} us after the next move comes there, cut from the other one: {who}", _cut_at_a_step, _aim
    ),
    "crash in a split": Kind(
        "{amount} us after a split or merge comes there, crashes: {who}", _at_a_split, _aim, at_start=True
    ),
    "cut in a split": Kind(
        "{amount} us after a split or merge comes there, who does it is cut off from: {who}",
        _cut_at_a_split,
        _aim,
        at_start=True,
    ),
    "late word": Kind(
        "what says {who} comes {amount} us late, after others", _word, partial(_late, again=False)
    ),
    "word again": Kind(
        "what says {who} comes once more, {amount} us later", _word, partial(_late, again=True)
    ),
    # Damage: more than the protocols promise to survive without loss. They must say what is lost.
    "bit flip": Kind(
        "{who} crashes, and a bit of its disk flips", _damaged, _crash_and(lambda m, f: m.disk.flip(f.amount))
    ),
    "truncated": Kind(
        "{who} crashes, and its newest file is cut short",
        _damaged,
        _crash_and(lambda m, f: m.disk.truncate()),
    ),
    "old version": Kind(
        "{who} crashes, and its disk shows an older version",
        _damaged,
        _crash_and(lambda m, f: m.disk.roll_back()),
    ),
    "disk lost": Kind("{who} crashes and loses its disk", _damaged, _crash_and(lambda m, f: m.disk.lose())),
}
AIMED = ("crash in a move", "cut in a move", "late word", "word again")
AIMED_SPLITS = ("crash in a split", "cut in a split")
WEATHER = ("jitter", "tail", "loss", "repeat", "reorder")
LINKS = ("cut one way", "cut", "short cut", "partition", "swizzle", "slow link", "reconnect")
MACHINES = ("crash", "pause", "slow machine", "write fails", "disk full", "clock", "clock jump", "clock step")
DAMAGE = ("bit flip", "truncated", "old version", "disk lost")
