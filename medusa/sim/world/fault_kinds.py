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

from medusa.sim.world import failing_writes, stale_messages
from medusa.sim.world import fault_dice as draws
from medusa.sim.world.fault_dice import MESSAGES, SPLIT_STEPS, STEPS, UNSYNCED
from medusa.sim.world.machine import Machine
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import World

__all__ = [
    "AIMED",
    "AIMED_SPLITS",
    "BELIEVED",
    "DAMAGE",
    "KINDS",
    "LATE",
    "LINKS",
    "LONG",
    "MACHINES",
    "MESSAGES",
    "OF_MACHINES",
    "LATE_ORDERS",
    "LATE_VOTES",
    "SPLIT_STEPS",
    "STEPS",
    "STORAGE",
    "TAKEOVERS",
    "UNSYNCED",
    "WEATHER",
    "MovingStage",
    "Fault",
    "Scene",
    "FaultStage",
    "begin",
    "draw",
    "inject",
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


class FaultStage(Protocol):
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
class MovingStage(FaultStage, Protocol):
    """A stage where fragments move, are split or are taken over."""

    def aim(self, fault: Fault) -> None:
        """Have it happen when a move, a split or a takeover comes to its step."""


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
class FaultKind:
    """How a kind of fault is drawn, said and done.

    Attributes:
        draw: (dice, scene) -> (who, for_us, amount).
        begin: makes it happen; what it returns ends it after ``for_us``.
    """

    words: str
    draw: Callable[[Random, Scene], tuple[tuple[str, ...], int, int]]
    begin: Callable[[FaultStage, Fault], Callable[[], None] | None]
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


def inject(stage: FaultStage, faults: Iterable[Fault]) -> None:
    """Plan the faults; those of the start happen now. Call it before anything starts."""

    for fault in faults:
        if fault.at_us == 0:
            begin(stage, fault)
        else:
            stage.world.at(fault.at_us, partial(begin, stage, fault))


def begin(stage: FaultStage, fault: Fault) -> None:
    """Let it happen now, and end when its time is over."""
    stage.world.trace("world", f"fault {fault}")
    stage.world.tell_fault(stage.machines, fault)
    end = KINDS[fault.kind].begin(stage, fault)
    if end is not None and fault.for_us:
        stage.world.after(fault.for_us, end)


# --- what they do -------------------------------------------------------------------------------


def _worsen(field: str) -> Callable[[FaultStage, Fault], None]:
    return lambda stage, fault: stage.network.worsen(**{field: fault.amount})


def _cut(stage: FaultStage, ways: Sequence[tuple[str, str]], *, hold: bool = False) -> Callable[[], None]:
    for way in ways:
        stage.network.cut(*way, hold=hold)

    def heal() -> None:
        for way in ways:
            stage.network.heal(*way, hold=hold)

    return heal


def _both(fault: Fault) -> list[tuple[str, str]]:
    a, b = fault.who
    return [(a, b), (b, a)]


def _partition(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    inside = set(fault.who)
    pairs = [pair for pair in stage.links if (pair[0] in inside) != (pair[1] in inside)]
    return _cut(stage, pairs + [pair[::-1] for pair in pairs])


def _swizzle(stage: FaultStage, fault: Fault) -> None:
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


def _slow_link(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    source, target = fault.who
    stage.network.slow(source, target, fault.amount)
    return lambda: stage.network.slow(source, target, 0)


def _reconnect(stage: FaultStage, fault: Fault) -> None:
    """ZeroMQ at a reconnection: what was handed over lately is gone, silently."""
    source, target = fault.who
    stage.network.reconnect(source, target, max(stage.world.now_us - fault.for_us, 0))


def _aim(stage: FaultStage, fault: Fault) -> None:
    assert isinstance(stage, MovingStage), "nothing moves, is split or is taken over here"
    stage.aim(fault)


def _crash(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    stage.machines[fault.who[0]].crash(UNSYNCED[fault.amount])
    return lambda: stage.restart(fault.who[0])


def _crash_and(harm: Callable[[Machine, Fault], None]) -> Callable[[FaultStage, Fault], Callable[[], None]]:
    def begin(stage: FaultStage, fault: Fault) -> Callable[[], None]:
        machine = stage.machines[fault.who[0]]
        machine.crash()
        harm(machine, fault)
        return lambda: stage.restart(fault.who[0])

    return begin


def _pause(stage: FaultStage, fault: Fault) -> None:
    stage.machines[fault.who[0]].pause(fault.for_us)


def _slow_machine(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    machine = stage.machines[fault.who[0]]
    machine.slow_down(fault.amount)
    return lambda: machine.slow_down(1)


def _write_fails(stage: FaultStage, fault: Fault) -> None:
    stage.machines[fault.who[0]].disk.fail_later(fault.amount)


def _full(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    disk = stage.machines[fault.who[0]].disk
    disk.fill()
    return disk.make_room


def _drift(stage: FaultStage, fault: Fault) -> None:
    clock = stage.machines[fault.who[0]].clock
    clock.jump(fault.amount * fault.amount * 1000)
    clock.drift(fault.amount * 1000)


def _jump(stage: FaultStage, fault: Fault) -> None:
    stage.machines[fault.who[0]].clock.jump(fault.amount)


def _step(stage: FaultStage, fault: Fault) -> None:
    stage.machines[fault.who[0]].clock.step(fault.amount)


KINDS: dict[str, FaultKind] = {
    # Weather: until all faults end.
    "jitter": FaultKind(
        "delays of up to {amount} us more",
        draws.weather(500, 3000, 30_000),
        _worsen("jitter_us"),
        at_start=True,
    ),
    "tail": FaultKind(
        "{amount} of 1000 frames are very late",
        draws.weather(5, 10),
        _worsen("tail_permille"),
        at_start=True,
    ),
    "loss": FaultKind(
        "{amount} of 1000 frames are lost",
        draws.weather(5, 20, 50, 200),
        _worsen("loss_permille"),
        at_start=True,
    ),
    "repeat": FaultKind(
        "{amount} of 1000 frames come twice",
        draws.weather(10, 30),
        _worsen("duplicate_permille"),
        at_start=True,
    ),
    "reorder": FaultKind(
        "{amount} of 1000 frames overtake",
        draws.weather(10, 30),
        _worsen("reorder_permille"),
        at_start=True,
    ),
    # Links.
    "cut one way": FaultKind(
        "cut {who}, one way", draws.link(50_000, 900_000), lambda stage, fault: _cut(stage, _both(fault)[:1])
    ),
    "cut": FaultKind(
        "cut {who}, both ways", draws.link(50_000, 900_000), lambda stage, f: _cut(stage, _both(f))
    ),
    "short cut": FaultKind(
        "cut {who}, not noticed",
        draws.link(50_000, 200_000),
        lambda stage, fault: _cut(stage, _both(fault), hold=True),
    ),
    "partition": FaultKind("cut {who} off from all others", draws.group, _partition),
    "swizzle": FaultKind("clog the links of {first} one by one, then open: {who}", draws.clogged, _swizzle),
    "slow link": FaultKind(
        "slow link {who}: {amount} us a frame", draws.link(50_000, 900_000, 2000, 10_000, 40_000), _slow_link
    ),
    "reconnect": FaultKind(
        "{who} reconnects and loses what is under way since the", draws.link(1000, 60_000), _reconnect
    ),
    "long cut": FaultKind(
        "cut {who}, both ways", draws.link(900_000, 5_000_000), lambda stage, f: _cut(stage, _both(f))
    ),
    "long cut one way": FaultKind(
        "cut {who}, one way",
        draws.link(900_000, 5_000_000),
        lambda stage, fault: _cut(stage, _both(fault)[:1]),
    ),
    # Machines.
    "long crash": FaultKind(
        "{who} crashes (unsynced writes: {amount}; 0 lost, 1 kept, 2 torn)",
        draws.machine(900_000, 5_000_000, 0, 1, 2),
        _crash,
    ),
    "long pause": FaultKind("{who} stands still", draws.machine(1_500_000, 5_000_000), _pause),
    "crash": FaultKind(
        "{who} crashes (unsynced writes: {amount}; 0 lost, 1 kept, 2 torn)", draws.crashed, _crash
    ),
    "pause": FaultKind("{who} stands still", draws.machine(50_000, 1_500_000), _pause),
    "slow machine": FaultKind(
        "{who} is {amount} times slower", draws.machine(100_000, 1_500_000, 5, 30), _slow_machine
    ),
    "write fails": FaultKind(
        "the write of {who} number {amount} from now fails", draws.machine(0, 0, 1, 2, 5), _write_fails
    ),
    "disk full": FaultKind("the disk of {who} is full", draws.machine(50_000, 900_000), _full),
    "clock": FaultKind(
        "the clock of {who} is off and runs {amount}/1000 too fast",
        draws.machine(0, 0, -50, -7, 7, 50),
        _drift,
        True,
    ),
    "clock jump": FaultKind(
        "the clock of {who} jumps ahead {amount} us", draws.machine(0, 0, 30_000, 2_000_000), _jump
    ),
    "clock step": FaultKind(
        "somebody sets the clock of {who} by {amount} us",
        draws.machine(0, 0, -9_000_000_000, -50_000, 7_000_000),
        _step,
    ),
    # Of moves.
    "crash in a move": FaultKind(
        "{amount} us after the next move comes there, crashes: {who}", draws.at_a_step, _aim
    ),
    "cut in a move": FaultKind(
        "{amount} us after the next move comes there, cut from the other one: {who}",
        draws.cut_at_a_step,
        _aim,
    ),
    "stale move": FaultKind(
        "a fragment goes away and comes back; what says {who} of the first way comes {amount} us late",
        draws.stale_move,
        _aim,
    ),
    "crash in a split": FaultKind(
        "{amount} us after a split or merge comes there, crashes: {who}",
        draws.at_a_split,
        _aim,
        at_start=True,
    ),
    "cut in a split": FaultKind(
        "{amount} us after a split or merge comes there, who does it is cut off from: {who}",
        draws.cut_at_a_split,
        _aim,
        at_start=True,
    ),
    # Of takeovers.
    "crash in a takeover": FaultKind(
        "{amount} us after a fragment comes there, crashes: {who}", draws.at_a_takeover, _aim, at_start=True
    ),
    "pause in a takeover": FaultKind(
        "{amount} us after a fragment comes there, stands still: {who}",
        draws.asleep_at_a_takeover,
        _aim,
        at_start=True,
    ),
    "cut in a takeover": FaultKind(
        "{amount} us after a fragment comes there, nothing passes from and to: {who}",
        draws.cut_at_a_takeover,
        _aim,
        at_start=True,
    ),
    "late vote": FaultKind(
        "what says {who} comes {amount} us late, after others",
        partial(draws.word, words=draws.VOTES),
        partial(stale_messages.late, again=False),
    ),
    "vote again": FaultKind(
        "what says {who} comes once more, {amount} us later",
        partial(draws.word, words=draws.VOTES),
        partial(stale_messages.late, again=True),
    ),
    "late word": FaultKind(
        "what says {who} comes {amount} us late, after others",
        draws.word,
        partial(stale_messages.late, again=False),
    ),
    "word again": FaultKind(
        "what says {who} comes once more, {amount} us later",
        draws.word,
        partial(stale_messages.late, again=True),
    ),
    # What outlives a connection or a life.
    "stuck connection": FaultKind(
        "the connection of {who}; what it brings comes {amount} us later",
        draws.stuck,
        stale_messages.stuck_connection,
    ),
    "stuck attachment": FaultKind(
        "{who} begins anew twice, and is attached the second time by what was sent in answer to the first",
        draws.stuck_attachment,
        stale_messages.stuck_attachment,
    ),
    "crash after sending": FaultKind(
        "{who} crashes, what it has sent arrives (unsynced writes: {amount}; 0 lost, 1 kept, 2 torn)",
        draws.crashed,
        stale_messages.crash_flushed,
    ),
    "late message": FaultKind(
        "what says {who} comes {amount} us late, after others",
        partial(draws.word, words=MESSAGES),
        partial(stale_messages.late, again=False),
    ),
    "message again": FaultKind(
        "what says {who} comes once more, {amount} us later",
        partial(draws.word, words=MESSAGES),
        partial(stale_messages.late, again=True),
    ),
    "crash at a message": FaultKind(
        "{amount} us after a message of a kind was sent, the last of so many, one end of it crashes: {who}",
        draws.at_a_message,
        stale_messages.crash_at_a_message,
    ),
    "late order": FaultKind(
        "what says {who} comes {amount} us late, after others",
        partial(draws.word, words=draws.ORDERS),
        partial(stale_messages.late, again=False),
    ),
    "order again": FaultKind(
        "what says {who} comes once more, {amount} us later",
        partial(draws.word, words=draws.ORDERS),
        partial(stale_messages.late, again=True),
    ),
    "one write fails": FaultKind(
        "the next write of {who} fails", draws.failing_kind, failing_writes.fail_once
    ),
    "fails and crashes": FaultKind(
        "the write of {who} number {amount} from now fails, and then it crashes",
        draws.failing,
        failing_writes.fail_and_crash,
    ),
    # One of two copies: costs nothing.
    "damaged copy": FaultKind(
        "{who} of one file while it is down (at {amount})",
        partial(draws.damaged_file, what=("catalog copy",)),
        failing_writes.crash_and_damage,
    ),
    # Damage: more than the protocols promise to survive without loss. They must say what is lost.
    "bit flip": FaultKind(
        "{who} crashes, and a bit of its disk flips",
        draws.damaged,
        _crash_and(lambda m, f: m.disk.flip(f.amount)),
    ),
    "truncated": FaultKind(
        "{who} crashes, and its newest file is cut short",
        draws.damaged,
        _crash_and(lambda m, f: m.disk.truncate()),
    ),
    "old version": FaultKind(
        "{who} crashes, and its disk shows an older version",
        draws.damaged,
        _crash_and(lambda m, f: m.disk.roll_back()),
    ),
    "damaged file": FaultKind(
        "{who} of one file while it is down (at {amount})",
        partial(draws.damaged_file, what=draws.FILES),
        failing_writes.crash_and_damage,
    ),
    "disk lost": FaultKind(
        "{who} crashes and loses its disk", draws.damaged, _crash_and(lambda m, f: m.disk.lose())
    ),
}
LATE = (
    *(
        "stuck connection",
        "stuck attachment",
        "stuck attachment",
        "crash after sending",
        "late message",
        "message again",
    ),
    *("crash at a message", "crash at a message", "crash at a message"),
)
BELIEVED = ("fails and crashes", "one write fails", "damaged copy")
LATE_ORDERS = ("late order", "order again")
AIMED = ("crash in a move", "cut in a move", "late word", "word again")
TAKEOVERS = ("crash in a takeover", "pause in a takeover", "cut in a takeover")
LATE_VOTES = ("late vote", "vote again")
AIMED_SPLITS = ("crash in a split", "cut in a split")
WEATHER = ("jitter", "tail", "loss", "repeat", "reorder")
LINKS = ("cut one way", "cut", "short cut", "partition", "swizzle", "slow link", "reconnect")
LONG = ("long cut", "long cut one way", "long crash", "long pause")
MACHINES = ("crash", "pause", "slow machine", "write fails", "disk full", "clock", "clock jump", "clock step")
DAMAGE = ("bit flip", "truncated", "old version", "disk lost")
STORAGE = ("damaged file",)
OF_MACHINES = (
    *MACHINES,
    "long crash",
    "long pause",
    *DAMAGE,
    *STORAGE,
    "stuck connection",
    "crash after sending",
    *BELIEVED,
)
"""They happen to the machine that they name first."""
