"""A user's own place in a market: his costs, his contracts, and what would happen in the next minutes.

The others are drawn from the seed. Everything is simulated: nothing is signed, nobody owes anything.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from medusa.decoders import converter
from medusa.errors import ConfigError, ContractError
from medusa.market.contract.terms import Contract
from medusa.market.money import micro_of, money_text
from medusa.market.negotiation.trader import Trader
from medusa.query.suggest import did_you_mean
from medusa.sim.market.graphs import ContractGraph
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import (
    Endowment,
    Population,
    draw_population,
    load_contract,
    tasks_of,
)
from medusa.sim.market.run import trader
from medusa.sim.market.setup import MarketSetup
from medusa.sim.market.world import MakeMind, MarketWorld

__all__ = [
    "EXAMPLE",
    "GameContract",
    "GameMinute",
    "GameSpec",
    "check_cost",
    "check_partner",
    "check_prices",
    "game_lines",
    "play",
    "read_game",
]

YOU = "you"

EXAMPLE = """\
# medusa sim market --game --file game.toml
minutes = 6
seed = 1

[you]
cores = 1.0             # of your machine
cost = "0.001"          # a second of a row that waits on it: what slow answers cost you
load = 0.95             # cores that your own tasks take
task = 0.02             # cores of one of them

[others]                # p0, p1, ...: drawn from the seed
participants = 8
load = "medium"         # light, medium, heavy, overload, or a share such as "0.6"

[[contract]]            # as many as you like
partner = "p0"
price = "0.025"         # of a core-second, at most
range = "0.005"         # so much less it may be
way = "both"            # both, give (your tasks go there), take (theirs come to you)

[[contract]]
partner = "p3"
price = "0.02"

[[change]]              # what would happen if
minute = 4
load = 0.4              # cores that your own tasks take from then on
"""
"""A file that a user can change."""

Positive = Annotated[float, Meta(gt=0, le=1_000)]
Name = Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class GamePlayer(_Part, frozen=True):
    """The user. ``cost``: currency units a second, as text."""

    cores: Positive = 1.0
    cost: str = "0.001"
    load: Positive = 0.95
    task: Annotated[float, Meta(ge=0.0005, le=10)] = 0.02


class GameOthers(_Part, frozen=True):
    """All others; they have two partners among themselves at least."""

    participants: Annotated[int, Meta(ge=3, le=200)] = 8
    load: str = "medium"


class GameContract(_Part, frozen=True):
    """One of the user's. Amounts are text, as in a contract."""

    partner: Name
    price: str = "0.025"
    range: str = "0"
    way: Literal["both", "give", "take"] = "both"


class GameChange(_Part, frozen=True):
    """The user's load from the beginning of that minute on, the first one being 1."""

    minute: Annotated[int, Meta(ge=1, le=1_440)]
    load: Annotated[float, Meta(ge=0, le=1_000)]


class GameSpec(_Part, frozen=True):
    """What a file says; every part has a default."""

    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 6
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] = 1
    you: GamePlayer = GamePlayer()
    others: GameOthers = GameOthers()
    contract: tuple[GameContract, ...] = (
        GameContract(partner="p0", range="0.005"),
        GameContract(partner="p3", price="0.02"),
    )
    change: tuple[GameChange, ...] = ()


@dataclass(frozen=True, slots=True)
class GameMinute:
    """How it is at the end of a minute.

    Attributes:
        own_load, load: cores that the own tasks take wherever they are; and all that runs here.
        away, guests: partner -> (tasks, cores, mean price in micro-units).
        earned_micro, paid_micro, cost_micro, alone_micro: in this minute: from guests, to partners, what the
            load here costs, and what it would have cost alone.
        profit_micro: so far, against staying alone.
        why: what the user's trader says of why nothing moves.
    """

    minute: int
    own_load: float
    load: float
    away: dict[str, tuple[int, float, float]]
    guests: dict[str, tuple[int, float, float]]
    earned_micro: float
    paid_micro: float
    cost_micro: float
    alone_micro: float
    profit_micro: float
    moves: int
    why: str = ""


_spec = converter(GameSpec)


def read_game(path: Path) -> GameSpec:
    """Of a TOML file.

    Raises:
        ConfigError: it can't be read; which field is what, and what it may be.
    """
    try:
        return _spec(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", code="config.file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}", code="config.file") from error
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{path}: {error}", hint="medusa sim market --game-example prints one", code="config.value"
        ) from error


def play(spec: GameSpec, *, make: MakeMind | None = None) -> Iterator[GameMinute]:
    """Minute after minute.

    Raises:
        ConfigError: no such partner, two contracts with the same one, or an amount that is none.
        SimulationError: a rule of the market was broken.
    """
    population = _population(spec)
    world = MarketWorld(population, make or trader())
    you = len(population.members) - 1
    changes = {each.minute: each.load for each in spec.change}
    seat = world.books.seats[you]
    earned = paid = cost = alone = 0.0
    for minute in range(1, spec.minutes + 1):
        world.run(until_s=(minute - 1) * 60.0)
        if minute in changes:
            world.change_load(you, changes[minute] / population.members[you].load)
        world.run(until_s=minute * 60.0)
        sums = seat.earned_micro, seat.paid_micro, seat.cost_micro, seat.alone_micro
        mind = world.mind(you)
        yield GameMinute(
            minute=minute,
            own_load=seat.own_load,
            load=seat.load,
            away=_away(world, you),
            guests=_guests(world, you),
            earned_micro=sums[0] - earned,
            paid_micro=sums[1] - paid,
            cost_micro=sums[2] - cost,
            alone_micro=sums[3] - alone,
            profit_micro=seat.profit_micro,
            moves=world.books.moves + world.books.returns,
            why=mind.status(world.now_us).why_still if isinstance(mind, Trader) else "",
        )
        earned, paid, cost, alone = sums


def game_lines(spec: GameSpec, minutes: Iterator[GameMinute]) -> Iterator[str]:
    """To a person: a few lines for each minute, and what came of it all."""
    curve = _curve(spec)
    prices = [micro_of(each.price, what="price") for each in spec.contract]
    yield (
        f"you: {spec.you.cores:g} cores, {spec.you.load:g} of them taken by your own tasks; alone that costs"
        f" {_money(curve.cost(spec.you.load))} a second"
    )
    for each, price in zip(spec.contract, prices, strict=True):
        yield (
            f"  contract with {each.partner} ({each.way}): {money_text(price)} of a core-second, up to"
            f" {money_text(micro_of(each.range, what='range'))} less; worth it to you above"
            f" {curve.load_at(price):.2f} cores"
        )
    last: GameMinute | None = None
    for at in minutes:
        last = at
        yield (
            f"minute {at.minute}: {at.load:.2f} cores run here, {at.own_load:.2f} are yours; earned"
            f" {_money(at.earned_micro)}, paid {_money(at.paid_micro)}, load cost {_money(at.cost_micro)},"
            f" alone {_money(at.alone_micro)}"
        )
        for word, places in (("yours at", at.away), ("guests of", at.guests)):
            for partner, (tasks, cores, mean) in sorted(places.items()):
                each_unit = money_text(round(mean))
                yield f"    {word} {partner}: {tasks} tasks, {cores:.2f} cores, {each_unit} a core-second"
        if at.why:
            yield f"    {at.why}"
    if last is not None:
        word = "better" if last.profit_micro >= 0 else "worse"
        yield (
            f"after {last.minute} minutes: {_money(abs(last.profit_micro))} {word} than alone;"
            f" {last.moves:,} moves in the whole market"
        )


def _money(micro: float) -> str:
    """Four digits behind the point do for what is much."""
    return money_text(round(micro / 100) * 100 if abs(micro) >= 10_000 else round(micro))


def check_cost(cost: str) -> int:
    """What a waiting row costs, in micro-units a second.

    Raises:
        ConfigError: it is no amount, or not above 0.
    """
    try:
        scale = micro_of(cost, what="cost")
    except ContractError as error:
        raise ConfigError(error.message, hint=error.hint, code="config.value") from error
    if scale <= 0:
        raise ConfigError(f"cost is {cost!r}: more than 0", code="config.value")
    return scale


def check_partner(partner: str, names: Sequence[str], taken: Collection[str]) -> None:
    """See that somebody has this name, and that there is no contract with him yet.

    Raises:
        ConfigError: what isn't so.
    """
    if partner not in names:
        raise ConfigError(f"no partner {partner!r}", hint=did_you_mean(partner, names), code="config.value")
    if partner in taken:
        raise ConfigError(f"two contracts with {partner!r}: one says all", code="config.value")


def check_prices(price: str, less: str, *, what: str) -> tuple[int, int]:
    """A price and its range, in micro-units.

    Args:
        what: they are of, for the error.

    Raises:
        ConfigError: one is no amount, the price isn't above 0, or the range not less than it.
    """
    try:
        found = micro_of(price, what="price"), micro_of(less, what="range")
    except ContractError as error:
        raise ConfigError(f"{what}: {error.message}", hint=error.hint, code="config.value") from error
    if found[0] <= 0 or not 0 <= found[1] < found[0]:
        raise ConfigError(
            f"{what}: a price of {price} and a range of {less}: the price is above 0 and the range less than"
            " the price, 0 at least",
            code="config.value",
        )
    return found


def _curve(spec: GameSpec) -> CostCurve:
    return CostCurve(spec.you.cores, float(check_cost(spec.you.cost)) * spec.you.cores)


def _population(spec: GameSpec) -> Population:
    """The user is the last one."""
    setup = MarketSetup(
        participants=spec.others.participants,
        contracts=2,
        load=spec.others.load,
        seed=spec.seed,
        limit_s=spec.minutes * 60.0,
    )
    others = draw_population(setup)
    names = [member.name for member in others.members]
    seen: list[str] = []
    edges, contracts = list(others.graph.edges), list(others.contracts)
    for each in spec.contract:
        check_partner(each.partner, names, seen)
        seen.append(each.partner)
        edges.append((names.index(each.partner), len(names)))
        contracts += _contracts(each)
    graph = ContractGraph(len(names) + 1, tuple(edges))
    tasks = tuple(tasks_of(MarketSetup(task_cores=spec.you.task), YOU, spec.you.load, Random(0)))
    you = Endowment(YOU, _curve(spec), tasks)
    return Population(setup, graph, (*others.members, you), tuple(contracts))


def _contracts(each: GameContract) -> Iterator[Contract]:
    price, less = check_prices(each.price, each.range, what=f"contract with {each.partner}")
    if each.way in ("both", "give"):
        yield load_contract(each.partner, YOU, price, less)
    if each.way in ("both", "take"):
        yield load_contract(YOU, each.partner, price, less)


def _away(world: MarketWorld, you: int) -> dict[str, tuple[int, float, float]]:
    """What the user has handed over, own tasks and those of others."""
    found: dict[str, list[tuple[float, int]]] = {}
    for placed in world.books.tasks.values():
        way = [placed.owner, *(hop.host for hop in placed.hops)]
        for hop, payer in zip(placed.hops, way, strict=False):
            if payer == you:
                name = world.population.members[hop.host].name
                found.setdefault(name, []).append((placed.task.use.cpu_cores, hop.price_micro))
    return _sums(found)


def _guests(world: MarketWorld, you: int) -> dict[str, tuple[int, float, float]]:
    found: dict[str, list[tuple[float, int]]] = {}
    for placed in world.books.seats[you].tasks.values():
        if placed.hops:
            name = world.population.members[placed.from_whom].name
            found.setdefault(name, []).append((placed.task.use.cpu_cores, placed.hops[-1].price_micro))
    return _sums(found)


def _sums(found: dict[str, list[tuple[float, int]]]) -> dict[str, tuple[int, float, float]]:
    return {
        name: (len(each), math.fsum(cores for cores, _ in each), sum(price for _, price in each) / len(each))
        for name, each in found.items()
    }
