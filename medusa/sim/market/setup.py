"""What a simulated market is made of: options in words and numbers, and their checks."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.errors import ConfigError
from medusa.query.suggest import did_you_mean
from medusa.sim.market.graphs import GRAPHS

__all__ = ["LIES", "LOADS", "LOAD_SHAPES", "PRICINGS", "TASK_SIZES", "MarketSetup", "load_share"]

LOADS = {"light": 0.5, "medium": 0.75, "heavy": 0.9, "overload": 1.25}
"""All load together, as a share of what all have below their thresholds."""

LOAD_SHAPES = ("pareto", "exponential", "mix", "same")
"""How load differs between participants. ``mix``: half of them exponential, half Pareto."""

TASK_SIZES = ("same", "pareto")

PRICINGS = ("bounded", "fixed", "auction", "alone")
"""By contract with a range, or with none; an auction for each move; nobody moves anything."""

LIES = {
    "": "all are honest",
    "low-cost": "says to its own trader that load costs it half: it sheds less and takes more",
    "high-cost": "says to its own trader that load costs it twice as much: it sheds more and takes less",
    "load": "asks for its tasks as half of what they take",
    "bill": "bills half more rows than it was given",
    "receipts": "never accepts a reading: it doesn't pay",
    "idle": "says that what it was given runs, and runs none of it",
    "refuse": "takes nothing, and hands over what it can",
}
"""What those do who aren't honest."""

Share = Annotated[float, Meta(ge=0)]


class MarketSetup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One market. With the seed it decides the whole run.

    Attributes:
        participants: how many.
        graph: a name in ``GRAPHS``; ``contracts``: partners that each has at least, in a random graph.
        load: one of ``LOADS``, or a share as text ("0.8").
        loads: a name in ``LOAD_SHAPES``; ``pareto``: its exponent, for tasks too.
        task_cores: of a task: of each, or the smallest.
        task_sizes: one of ``TASK_SIZES``.
        pricing: one of ``PRICINGS``.
        price_micro: of a core-second, at most; ``range_share``: so much of it the price may be lower.
        price_spread: 0.2: the prices of contracts lie between 0.8 and 1.2 of that, evenly.
        cost_spread: 1: costs of participants differ by up to a factor of 2 each way.
        core_spread: the same, of their machines.
        change_s: after so long on average a participant's load changes; 0: never.
        delay_ms: a message takes from this to twice this. ``loss``: so many of all messages are lost.
        move_s: a move takes so long.
        heartbeat_s: a provider says its price at least so often, beside when it changes.
        limit_s: the run ends then, at rest or not. ``quiet_s``: it ends when nothing has moved for so long.
        liars: a share of all participants; ``lie``: a name in ``LIES``.
    """

    participants: int = 100
    graph: str = "random"
    contracts: int = 5
    load: str = "heavy"
    loads: str = "pareto"
    pareto: float = 1.5
    task_cores: float = 0.02
    task_sizes: str = "same"
    pricing: str = "bounded"
    price_micro: int = 25_000
    range_share: float = 0.3
    price_spread: float = 0.0
    cost_spread: float = 0.0
    core_spread: float = 0.0
    change_s: float = 0.0
    delay_ms: float = 20.0
    loss: float = 0.0
    move_s: float = 2.0
    heartbeat_s: float = 10.0
    limit_s: float = 3_600.0
    quiet_s: float = 120.0
    liars: float = 0.0
    lie: str = ""
    seed: int = 1

    def check(self) -> None:
        """See that a market can be made of this.

        Raises:
            ConfigError: which option is what, and what it may be.
        """
        for name, allowed in (
            ("graph", tuple(GRAPHS)),
            ("loads", LOAD_SHAPES),
            ("task_sizes", TASK_SIZES),
            ("pricing", PRICINGS),
            ("lie", tuple(LIES)),
        ):
            given = getattr(self, name)
            if given not in allowed:
                raise ConfigError(
                    f"{name} is {given!r}: one of {', '.join(each for each in allowed if each)}",
                    hint=did_you_mean(given, [each for each in allowed if each]),
                    code="config.value",
                )
        load_share(self.load)
        for name, least, most in _BOUNDS:
            given = getattr(self, name)
            if not math.isfinite(given) or not least <= given <= most:
                raise ConfigError(f"{name} is {given:g}: from {least:g} to {most:g}", code="config.value")
        if bool(self.liars) != bool(self.lie):
            raise ConfigError(
                f"liars is {self.liars:g} and lie is {self.lie!r}: give both, or none of the two",
                code="config.value",
            )
        if self.lie and self.pricing in ("auction", "alone"):
            raise ConfigError(
                f"lie is {self.lie!r} and pricing is {self.pricing!r}: lies are told to partners by contract",
                hint="pricing bounded or fixed",
                code="config.value",
            )
        if self.change_s and self.pricing == "auction":
            raise ConfigError(
                "change_s and pricing 'auction': the auction is simulated with constant load only",
                code="config.value",
            )


_BOUNDS = (
    ("participants", 2, 100_000),
    ("contracts", 1, 1_000),
    ("pareto", 1.05, 10),
    ("task_cores", 0.0005, 1),
    ("price_micro", 2_000, 10**12),
    ("range_share", 0, 1),
    ("price_spread", 0, 0.9),
    ("cost_spread", 0, 3),
    ("core_spread", 0, 3),
    ("change_s", 0, 10**6),
    ("delay_ms", 0, 10_000),
    ("loss", 0, 0.5),
    ("move_s", 0, 600),
    ("heartbeat_s", 1, 3_600),
    ("limit_s", 1, 10**6),
    ("quiet_s", 1, 10**6),
    ("liars", 0, 1),
    ("seed", 0, 2**63),
)


def load_share(load: str) -> float:
    """Of a word in ``LOADS``, or of a number as text.

    Raises:
        ConfigError: it is neither, or not between 0 and 10.
    """
    if load in LOADS:
        return LOADS[load]
    try:
        share = float(load)
    except ValueError:
        share = math.nan
    if not 0 < share <= 10:
        raise ConfigError(
            f"load is {load!r}: one of {', '.join(LOADS)}, or a share of the capacity from 0 to 10",
            hint=did_you_mean(load, list(LOADS)),
            code="config.value",
        )
    return share
