"""What a ledger wants done, as values, in order.

Nothing behind a ``KeepRecord`` is done before that is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from medusa.market.ledger.messages import LedgerMessage

__all__ = ["KeepRecord", "LedgerEffect", "LedgerEffects", "LedgerLine", "SayInLedger", "StopWork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRecord:
    """Append these bytes to what outlives the process. All of them in order are given to a new ledger."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SayInLedger:
    """Send a message to a partner; it may be lost."""

    partner: str
    message: LedgerMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWork:
    """These tasks stop, and go home. The driver answers with ``PartyLedger.ended`` for each.

    Attributes:
        tasks: (negotiation, name).
        code, text: why: stable, and to a person.
    """

    contract: str
    partner: str
    tasks: tuple[tuple[int, str], ...]
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """A line for the log."""

    level: Literal["info", "warning", "error"]
    text: str
    about: Mapping[str, str | int] = field(default_factory=dict)


LedgerEffect: TypeAlias = KeepRecord | SayInLedger | StopWork | LedgerLine


class LedgerEffects:
    """What is to be done, oldest first."""

    def __init__(self) -> None:
        self._effects: list[LedgerEffect] = []

    def append(self, effect: LedgerEffect) -> None:
        self._effects.append(effect)

    def say(self, partner: str, message: LedgerMessage) -> None:
        self._effects.append(SayInLedger(partner=partner, message=message))

    def report(self, level: Literal["info", "warning", "error"], text: str, **about: str | int) -> None:
        self._effects.append(LedgerLine(level=level, text=text, about=about))

    def take(self) -> Iterator[LedgerEffect]:
        """Those so far; they are gone from here."""
        effects, self._effects = self._effects, []
        return iter(effects)
