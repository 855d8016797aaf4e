"""What a trader wants done, as values, in order. Its driver does it, and reports what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from medusa.market.negotiation.messages import LoadMessage

__all__ = ["HandBack", "HandOver", "Say", "TradeEffect", "TradeEffects", "TradeLine"]


ReportLevel: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Send a message to a partner; it may be lost."""

    partner: str
    message: LoadMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Move this task to a partner. The driver answers with ``Trader.handed_over``.

    Attributes:
        contract, negotiation: under which.
    """

    partner: str
    task: str
    contract: str
    negotiation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """A task that runs here for a partner goes back to it: it was asked for, or is kept no more. The driver
    answers with ``Trader.handed_back`` once its owner has it, or has given it up.

    Attributes:
        code, text: why.
    """

    partner: str
    task: str
    code: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeLine:
    """A line for the log, and for ``explain``."""

    level: ReportLevel
    text: str
    about: Mapping[str, str | int | float] = field(default_factory=dict)


TradeEffect: TypeAlias = Say | HandOver | HandBack | TradeLine


class TradeEffects:
    """What is to be done, oldest first."""

    def __init__(self) -> None:
        self._effects: list[TradeEffect] = []

    def append(self, effect: TradeEffect) -> None:
        self._effects.append(effect)

    def say(self, partner: str, message: LoadMessage) -> None:
        self._effects.append(Say(partner=partner, message=message))

    def report(
        self, level: Literal["info", "warning", "error"], text: str, **about: str | int | float
    ) -> None:
        self._effects.append(TradeLine(level=level, text=text, about=about))

    def take(self) -> Iterator[TradeEffect]:
        """Those so far; they are gone from here."""
        effects, self._effects = self._effects, []
        return iter(effects)
