"""How faults are drawn: who, for how long and how much, by the dice of a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from medusa.sim.world.file_damage import HOW

if TYPE_CHECKING:
    from medusa.sim.world.fault_kinds import Scene

__all__ = [
    "AWAY_US",
    "MOMENTS",
    "VOTES",
    "CROSSING",
    "Drawn",
    "PARTS",
    "SPLIT_STEPS",
    "STEPS",
    "MESSAGES",
    "UNSYNCED",
    "WORDS",
    "at_a_message",
    "at_a_split",
    "asleep_at_a_takeover",
    "at_a_step",
    "at_a_takeover",
    "clogged",
    "crashed",
    "cut_at_a_split",
    "cut_at_a_step",
    "cut_at_a_takeover",
    "FILES",
    "ORDERS",
    "damaged",
    "damaged_file",
    "failing",
    "failing_kind",
    "group",
    "link",
    "machine",
    "stale_move",
    "stuck",
    "stuck_attachment",
    "weather",
    "word",
]

UNSYNCED = ("lost", "kept", "torn")
STEPS = ("preparing", "copying", "handing", "handed", "undoing", "filling", "following", "taking", "owning")
"""Of moves: those of ``medusa.nodes.migration.automaton``; ``handed``: and it stands still."""
CROSSING = ("handing", "handed", "taking", "owning")
"""Where each may be the owner by its disk: drawn more often."""
SPLIT_STEPS = ("asking", "weighing", "draining", "cutting", "writing", "following", "switching", "over")
"""Of splits and merges: those of ``medusa.nodes.repartition.automaton``."""
PARTS = ("owner", "target", "target", "upstream", "reader")
WORDS = (
    *("expect", "unexpect", "release", "follow", "moved", "placed"),
    *("receive", "ready", "got", "giveup", "handover", "settle", "settled"),
)
"""Of moves: tags of messages."""
MESSAGES = (
    *("attach", "attached", "ack", "detach", "offer", "refuse", "progress", "hello", "heartbeat"),
    *("reply", "install", "remove", "digest", "entries"),
)
"""Of links, streams, deployments and catalogs: tags of messages."""
ORDERS = ("install", "install", "remove", "reply", "deploy")
"""Of deployments: tags of messages."""
FILES = ("catalog", "checkpoint", "output segment", "first checkpoint mark", "life", "decision log")
"""What lies on the disk of a node."""
VOTES = ("configure", "configure", "prepare", "accept", "vote", "vote", "seed", "ready", "got", "giveup")
"""Of configurations, and of those who follow: tags of messages."""
MOMENTS = ("seeds", "joins", "guarded", "guarded", "guarded", "proposes", "takes over", "has taken over")
"""Of a fragment that others stand by for: its owner sends a secondary the checkpoint; wants to have it
counted; it counts; a secondary wants to succeed; it is chosen, and its disk doesn't say so yet; it has
begun."""
ROLES = ("owner", "owner", "owner", "secondary", "secondary", "other", "upstream", "reader", "voter")
AWAY_US = 5000
"""So long is a machine dead that is started again at once."""

Drawn = tuple[tuple[str, ...], int, int]


def link(least_us: int, most_us: int, *amounts: int) -> Callable[[Random, Scene], Drawn]:
    def drawn(dice: Random, scene: Scene) -> Drawn:
        pair = dice.choice(scene.links)
        way = pair if dice.random() < 0.5 else pair[::-1]
        return way, dice.randrange(least_us, most_us), dice.choice(amounts or (0,))

    return drawn


def machine(least_us: int, most_us: int, *amounts: int) -> Callable[[Random, Scene], Drawn]:
    def drawn(dice: Random, scene: Scene) -> Drawn:
        for_us = dice.randrange(least_us, most_us) if most_us else 0
        return (dice.choice(scene.machines),), for_us, dice.choice(amounts or (0,))

    return drawn


def weather(*amounts: int) -> Callable[[Random, Scene], Drawn]:
    return lambda dice, scene: ((), 0, dice.choice(amounts))


def _away(dice: Random) -> int:
    return dice.choice([1000, 20_000, 100_000, 400_000, 800_000])


def crashed(dice: Random, scene: Scene) -> Drawn:
    return (dice.choice(scene.machines),), _away(dice), dice.randrange(3)


def damaged(dice: Random, scene: Scene) -> Drawn:
    return (dice.choice(scene.machines),), _away(dice), dice.randrange(1 << 16)


def damaged_file(dice: Random, scene: Scene, what: Sequence[str]) -> Drawn:
    """Whose, which and how; for how long it is down; where in the file."""
    who = dice.choice(scene.machines), dice.choice(what), dice.choice(HOW)
    return who, _away(dice), dice.randrange(1 << 30)


def group(dice: Random, scene: Scene) -> Drawn:
    """One side of a partition: from one place to all but one."""
    places = sorted({name for pair in scene.links for name in pair})
    side = dice.sample(places, dice.randrange(1, max(len(places) - 1, 2)))
    return tuple(sorted(side)), dice.randrange(50_000, 900_000), 0


def clogged(dice: Random, scene: Scene) -> Drawn:
    """A machine and its neighbours, in the order in which the links are opened again."""
    name = dice.choice(scene.machines)
    others = sorted(set(scene.neighbours(name)))
    dice.shuffle(others)
    return (name, *others), dice.randrange(100_000, 600_000), dice.randrange(1000, 60_000)


def at_a_step(dice: Random, scene: Scene) -> Drawn:
    """Who dies, at which step, and what becomes of its writes under way; how much later."""
    who = dice.choice(PARTS), dice.choice(STEPS + CROSSING + CROSSING), dice.choice(UNSYNCED)
    return who, _away(dice), dice.choice([1, 1, 300, 2000, 10_000, 40_000])


def cut_at_a_step(dice: Random, scene: Scene) -> Drawn:
    return ("owner", dice.choice(STEPS)), dice.randrange(50_000, 2_000_000), dice.choice([1, 300, 10_000])


def _split_step(dice: Random, steps: Sequence[str]) -> str:
    """Of a merge, or of either."""
    return dice.choice(("", "", "merge ")) + dice.choice(steps)


def at_a_split(dice: Random, scene: Scene) -> Drawn:
    """As ``at_a_step``. Most often who splits dies, where its disk may say either."""
    part = dice.choice(("owner", "owner", "owner", "coordinator", "upstream", "reader"))
    step = _split_step(dice, (*SPLIT_STEPS, "following", "switching", "switching", "over"))
    who = part, step, dice.choice(UNSYNCED)
    return who, _away(dice), dice.choice([1, 1, 300, 2000, 10_000, 40_000])


def cut_at_a_split(dice: Random, scene: Scene) -> Drawn:
    who = dice.choice(("coordinator", "upstream", "reader")), _split_step(dice, SPLIT_STEPS)
    return who, dice.randrange(50_000, 2_000_000), dice.choice([1, 300, 10_000])


def at_a_takeover(dice: Random, scene: Scene) -> Drawn:
    """Who dies, at which moment, and what becomes of its writes under way; how much later."""
    who = dice.choice(ROLES), dice.choice(MOMENTS), dice.choice(UNSYNCED)
    return who, _away(dice), dice.choice([1, 1, 300, 2000, 10_000, 40_000, 200_000])


def asleep_at_a_takeover(dice: Random, scene: Scene) -> Drawn:
    """Most often for so long that others notice."""
    who = dice.choice(ROLES), dice.choice(MOMENTS)
    return who, dice.randrange(400_000, 2_500_000), dice.choice([1, 300, 10_000, 200_000])


def cut_at_a_takeover(dice: Random, scene: Scene) -> Drawn:
    """From whom to whom nothing passes."""
    way = ["owner", dice.choice(("secondary", "secondary", "other", "upstream", "reader", "voter"))]
    if dice.random() < 0.5:
        way.reverse()
    who = (*way, dice.choice(MOMENTS))
    return who, dice.randrange(50_000, 2_000_000), dice.choice([1, 1, 300, 10_000, 200_000])


def word(dice: Random, scene: Scene, words: Sequence[str] = WORDS) -> Drawn:
    late_us = dice.choice([30_000, 200_000, 700_000, 1_500_000])
    return (dice.choice(words),), dice.randrange(100_000, 900_000), late_us


def stale_move(dice: Random, scene: Scene) -> Drawn:
    """Which kind of message is stale, how it comes, and what decides who moves where."""
    how = dice.choice(("late", "again", "again", "late, and its first owner dies"))
    tag = (
        "settled" if how.endswith("dies") else dice.choice(("moved", "moved", "settled", dice.choice(WORDS)))
    )
    who = tag, how, str(dice.randrange(1000))
    return who, dice.choice([60_000, 150_000, 400_000]), dice.choice([300_000, 800_000, 1_500_000])


def at_a_message(dice: Random, scene: Scene) -> Drawn:
    """Of which kind, who dies, and which of them, counted from 1; how much later."""
    tag = dice.choice((*MESSAGES, *MESSAGES[:3], *WORDS))
    place = dice.choice((1, 1, 2, 3, 5, 10, 30, 100))
    who = tag, dice.choice(("sender", "sender", "receiver")), str(place)
    if dice.random() < 0.4:  # It was promised, as far as a program can know.
        who = (
            dice.choice(("attach", "attach", "reply", "ack")),
            "sender to a client",
            str(dice.randrange(1, 9)),
        )
    return who, dice.choice([5000, 100_000, 700_000]), dice.choice([1, 1000, 5000, 30_000])


def stuck_attachment(dice: Random, scene: Scene) -> Drawn:
    """Whose; for how long, and how late what followed it is."""
    who = (dice.choice(scene.machines),)
    return who, dice.choice([50_000, 300_000, 600_000]), dice.choice([1, 1, 1, 3000])


def stuck(dice: Random, scene: Scene) -> Drawn:
    """Whose connection to which machine, what its caller does meanwhile; how long, and how late it is."""
    name = dice.choice(scene.machines)
    others = sorted({each for each in scene.neighbours(name) if each in scene.machines}) or [name]
    who = name, dice.choice(others), dice.choice(("dies", "is born and dies", "is born and dies", "lives"))
    return who, dice.randrange(20_000, 500_000), dice.choice([1, 1000, 30_000, 300_000, 1_200_000])


def failing_kind(dice: Random, scene: Scene) -> Drawn:
    """Whose write, and of what."""
    return (dice.choice(scene.machines), dice.choice(("catalog", "every catalog", *FILES))), 0, 0


def failing(dice: Random, scene: Scene) -> Drawn:
    amount = dice.choice([1, 1, 2, 3, 5, 8])
    return (dice.choice(scene.machines),), dice.choice([1, 3000, 20_000, 60_000, 150_000]), amount
