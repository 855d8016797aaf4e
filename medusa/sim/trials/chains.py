"""Scenarios of links: chains of relays of any shape, under faults."""

from __future__ import annotations

from random import Random

from medusa.sim.trials.chain import Chain, ChainClasses, ChainOptions
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import DAMAGE, LINKS, MACHINES, WEATHER
from medusa.sim.world.network import Faults
from medusa.sim.world.virtual_time import World
from medusa.wire.link.automaton import LinkSettings

__all__ = ["CHAINS"]


def draw_options(dice: Random, rows: int | None) -> ChainOptions:
    """A chain of any shape: small windows, slow relays and odd intervals as often as ordinary ones."""
    window = dice.choice([600, 1200, 4000, 1 << 20])
    retained = dice.choice([1500, 6000, 1 << 20])
    drawn = dice.randrange(100, 600)
    relays = dice.randrange(1, 4)
    return ChainOptions(
        relays=relays,
        rows=drawn if rows is None else rows,
        train_rows_max=dice.choice([1, 8, 30]),
        gap_us=dice.choice([1000, 5000, 20_000, 60_000]),
        work_us=dice.choice([0, 300, 5000, 15_000]),
        reader_work_us=dice.choice([0, 0, 2000]),
        sync_us=dice.choice([200, 5000, 60_000]),
        checkpoint_us=dice.choice([30_000, 200_000, 1_000_000]),
        bursts=dice.random() < 0.25,
        # Behind one relay the reader's oldest row would be what the twin has left of the stream.
        twin=dice.random() < 0.4 and relays > 1,
        faults=Faults(delay_us=dice.choice([100, 2000, 20_000])),
        link=LinkSettings(
            window_bytes=window,
            frame_bytes_max=500,
            retained_bytes_max=retained,
            keep_bytes=1 << 20,
            idle_us=10_000_000_000,
        ),
    )


def chain(world: World, rows: int | None, parts: ChainClasses | None) -> Chain:
    return Chain(world, draw_options(world.dice("options"), rows), parts)


def damaged(world: World, rows: int | None, parts: ChainClasses | None) -> Chain:
    options = draw_options(world.dice("options"), rows)
    return Chain(world, changed(options, damage=True), parts)


def forgetful(world: World, rows: int | None, parts: ChainClasses | None) -> Chain:
    """The reader is cut off when it takes nothing for a while, and little is kept without it."""
    dice = world.dice("options")
    link = LinkSettings(
        window_bytes=1200,
        frame_bytes_max=500,
        retained_bytes_max=4000,
        keep_bytes=dice.choice([600, 2000]),
        idle_us=dice.choice([100_000, 300_000]),
    )
    options = draw_options(dice, 600 if rows is None else rows)
    shape = changed(options, relays=1, twin=False, reader_work_us=0, gap_us=10_000, link=link, lost_ok=True)
    return Chain(world, shape, parts)


def shedding(world: World, rows: int | None, parts: ChainClasses | None) -> Chain:
    """The reader is slower than the rows come, and what is too much is shed."""
    dice = world.dice("options")
    link = LinkSettings(
        window_bytes=1200,
        frame_bytes_max=500,
        retained_bytes_max=dice.choice([1500, 4000]),
        at_limit="shed",
        keep_bytes=1 << 20,
        idle_us=10_000_000_000,
    )
    options = draw_options(dice, 600 if rows is None else rows)
    slow = {"reader_work_us": dice.choice([5000, 20_000]), "gap_us": 1000}
    return Chain(world, changed(options, relays=1, twin=False, link=link, lost_ok=True, **slow), parts)


def changed(options: ChainOptions, **fields: object) -> ChainOptions:
    """The same but for these."""
    values = {name: getattr(options, name) for name in ChainOptions.__slots__}
    return ChainOptions(**values | fields)


CHAINS: dict[str, Scenario] = {
    "cut": Scenario(about="links are cut, clogged, slow, and healed", build=chain, kinds=LINKS),
    "crash": Scenario(
        about="nodes die and come back, disks fail, machines stand still, clocks are wrong",
        build=chain,
        kinds=["crash", "crash", "crash", *MACHINES],
    ),
    "chaos": Scenario(
        about="weather, cuts and crashes together",
        build=chain,
        kinds=[*WEATHER, *LINKS, "crash", "crash", *MACHINES],
        count=14,
    ),
    "gap": Scenario(
        about="a subscriber is away for longer than rows are kept",
        build=forgetful,
        kinds=("cut", "cut one way"),
        count=4,
        swarm=False,
    ),
    "shed": Scenario(
        about="a reader that can't keep up, and a stream that sheds: what is missing is told",
        build=shedding,
        kinds=[*LINKS, "crash", "crash"],
        count=5,
    ),
    "damage": Scenario(
        about="disks give back what they never should: what is lost is told",
        build=damaged,
        kinds=[*DAMAGE, "cut", "crash"],
        count=6,
    ),
}
