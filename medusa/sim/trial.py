"""Named scenarios: a seed decides the options and the faults; the checkers decide whether it passed.

Two phases. *Safety*: faults happen, and the invariants hold after every event. *Liveness*: all
faults end, the dead are started again, and then everything must arrive by a deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from medusa.errors import MedusaError
from medusa.sim.chain import Chain, ChainOptions, Parts
from medusa.sim.network import Faults
from medusa.sim.world import SimulationError, World
from medusa.wire.link import LinkSettings

__all__ = ["SCENARIOS", "Outcome", "run_scenario"]

EVENTS_MAX = 300_000
SAFETY_US = 3_000_000
LIVENESS_US = 30_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        violation: the first invariant that didn't hold; empty where all did.
        last: the last lines of the trace.
        replay: the command that does exactly this again.
    """

    scenario: str
    seed: int
    options: str
    violation: str
    events: int
    virtual_us: int
    delivered: int
    lost: int
    trace_hash: str
    last: tuple[str, ...]
    replay: str

    @property
    def ok(self) -> bool:
        return not self.violation

    def __str__(self) -> str:
        head = f"{self.scenario} --seed {self.seed}: "
        if self.ok:
            return (
                f"{head}ok, {self.delivered:,} rows delivered, {self.lost:,} reported lost, "
                f"{self.events:,} events in {self.virtual_us / 1e6:.1f} virtual s, trace {self.trace_hash}"
            )
        lines = [f"{head}VIOLATED {self.violation}", f"options: {self.options}", *self.last]
        return "\n".join([*lines, f"replay: {self.replay}"])


@dataclass(frozen=True, slots=True)
class Scenario:
    """Options and faults, both drawn from the seed's dice."""

    about: str
    options: Callable[[Random], ChainOptions]
    faults: Callable[[Chain], None]


def run_scenario(name: str, seed: int, *, parts: Parts | None = None) -> Outcome:
    """Run one seed of a scenario.

    Args:
        name: a key of ``SCENARIOS``.
        seed: any integer; the same one gives the same run.
        parts: classes with a mistake planted, in tests of the checkers.
    """
    world = World(seed)
    scenario = SCENARIOS[name]
    options = scenario.options(world.random)
    chain = Chain(world, options, parts)
    violation = ""
    try:
        chain.start()
        scenario.faults(chain)
        world.run(until_us=SAFETY_US, events_max=EVENTS_MAX)
        heal(chain)
        deadline_us = world.now_us + LIVENESS_US
        if not world.run(until_us=deadline_us, events_max=EVENTS_MAX, done=lambda: chain.ended):
            raise SimulationError(
                f"liveness: {chain.delivered.next_seq} rows delivered, not all is at rest "
                f"{LIVENESS_US // 1_000_000} s after the faults ended"
            )
    except (AssertionError, MedusaError) as error:
        violation = f"{type(error).__name__}: {error}"
    return Outcome(
        scenario=name,
        seed=seed,
        options=str(options),
        violation=violation,
        events=world.events,
        virtual_us=world.now_us,
        delivered=chain.delivered.next_seq - chain.delivered.lost,
        lost=chain.delivered.lost,
        trace_hash=world.trace_hash,
        last=tuple(world.lines),
        replay=f"medusa sim {name} --seed {seed}",
    )


def heal(chain: Chain) -> None:
    """End of the faults: links whole, everybody alive and listening."""
    chain.world.trace("world", "all faults end")
    chain.network.heal_all()
    for host in chain.hosts.values():
        host.disk.fail_next = 0
        if host.mind is None:
            host.start()


# --- options ------------------------------------------------------------------------------------


def draw_options(random: Random) -> ChainOptions:
    """A chain of any shape: small windows, slow relays and odd intervals as often as ordinary ones."""
    window = random.choice([600, 1200, 4000, 1 << 20])
    retained = random.choice([1500, 6000, 1 << 20])
    return ChainOptions(
        relays=random.randrange(1, 4),
        rows=random.randrange(100, 600),
        train_rows_max=random.choice([1, 8, 30]),
        gap_us=random.choice([1000, 5000, 20_000, 60_000]),
        work_us=random.choice([0, 300, 5000, 15_000]),
        reader_work_us=random.choice([0, 0, 2000]),
        sync_us=random.choice([200, 5000, 60_000]),
        checkpoint_us=random.choice([30_000, 200_000, 1_000_000]),
        link=LinkSettings(
            window_bytes=window,
            frame_bytes_max=500,
            retained_bytes_max=retained,
            keep_bytes=1 << 20,
            idle_us=10_000_000_000,
        ),
    )


def with_faults(options: ChainOptions, faults: Faults) -> ChainOptions:
    return ChainOptions(
        **{name: getattr(options, name) for name in ChainOptions.__slots__ if name != "faults"},
        faults=faults,
    )


def calm(random: Random) -> ChainOptions:
    faults = Faults(delay_us=random.choice([100, 2000]), jitter_us=random.choice([0, 2000]))
    return with_faults(draw_options(random), faults)


def rough(random: Random) -> ChainOptions:
    """Swarm: each kind of fault is absent in some seeds."""
    faults = Faults(
        delay_us=random.choice([100, 2000, 20_000]),
        jitter_us=random.choice([0, 2000]),
        tail_permille=random.choice([0, 10]),
        loss_permille=random.choice([0, 10, 50, 200]),
        duplicate_permille=random.choice([0, 20]),
        reorder_permille=random.choice([0, 20]),
    )
    return with_faults(draw_options(random), faults)


def forgetful(random: Random) -> ChainOptions:
    """The reader is cut off when it takes nothing for a second, and little is kept without it."""
    link = LinkSettings(
        window_bytes=1200,
        frame_bytes_max=500,
        retained_bytes_max=4000,
        keep_bytes=random.choice([600, 2000]),
        idle_us=300_000,
    )
    return ChainOptions(
        relays=1, rows=600, train_rows_max=8, gap_us=10_000, checkpoint_us=100_000, link=link, lost_ok=True
    )


# --- faults -------------------------------------------------------------------------------------


def cuts(chain: Chain) -> None:
    """Links are cut one way or both, noticed or not, and healed."""
    world, random = chain.world, chain.world.random
    for _ in range(random.randrange(1, 8)):
        ways = random.choice(chain.ways())
        both = random.random() < 0.5
        hold = random.random() < 0.3
        start_us = random.randrange(chain.options.active_us)
        length_us = random.randrange(50_000, 200_000 if hold else 900_000)

        def cut(way: tuple[str, str], both: bool, hold: bool) -> None:
            world.trace("world", f"cut {way[0]} {'-' if both else '>'} {way[1]}{' (short)' if hold else ''}")
            for source, target in [way, way[::-1]][: 1 + both]:
                chain.network.cut(source, target, hold=hold)

        def heal_way(way: tuple[str, str]) -> None:
            world.trace("world", f"heal {way[0]} - {way[1]}")
            chain.network.heal(*way)
            chain.network.heal(*way[::-1])

        world.at(start_us, lambda way=ways, both=both, hold=hold: cut(way, both, hold))  # type: ignore[misc]
        world.at(start_us + length_us, lambda way=ways: heal_way(way))  # type: ignore[misc]


def crashes(chain: Chain) -> None:
    """Relays die and come back; some disks fail; some hosts stand still for a while."""
    world, random = chain.world, chain.world.random
    for _ in range(random.randrange(1, 8)):
        host = chain.hosts[random.choice(chain.relays)]
        start_us = random.randrange(chain.options.active_us)
        kind = random.randrange(10)
        if kind < 6:
            world.at(start_us, host.crash)
            world.at(
                start_us + random.choice([1000, 100_000, 800_000]),
                lambda host=host: host.start() if host.mind is None else None,  # type: ignore[misc]
            )
        elif kind < 8:
            length_us = random.randrange(50_000, 1_000_000)
            world.at(start_us, lambda host=host, length_us=length_us: host.pause(length_us))  # type: ignore[misc]
        else:
            world.at(start_us, lambda host=host: setattr(host.disk, "fail_next", 2))  # type: ignore[misc]


def both(chain: Chain) -> None:
    cuts(chain)
    crashes(chain)


def deafness(chain: Chain) -> None:
    """The reader's link is cut for longer than rows are kept for it."""
    world, random = chain.world, chain.world.random
    start_us = random.randrange(100_000, 1_000_000)
    for way in (("r1", "reader"), ("reader", "r1")):
        world.at(start_us, lambda way=way: chain.network.cut(*way))  # type: ignore[misc]
        world.at(start_us + 1_500_000, lambda way=way: chain.network.heal(*way))  # type: ignore[misc]


SCENARIOS = {
    "cut": Scenario("links are cut and healed", calm, cuts),
    "crash": Scenario("nodes die and come back, disks fail, hosts stand still", calm, crashes),
    "chaos": Scenario("cuts, crashes, loss, repetition and disorder together", rough, both),
    "gap": Scenario("a subscriber is away for longer than rows are kept", forgetful, deafness),
}
