"""What a trader decided lately, and why: what ``explain`` reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec

from medusa.market.negotiation.books import TakenFigures
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.reasons import reason_text

__all__ = ["TradeLog", "TradeDecision", "TradeStep"]

TradeStep = Literal[
    "asked",
    "countered",
    "accepted",
    "agreed",
    "refused",
    "moved",
    "runs",
    "ended",
    "recalled",
    "handed_back",
    "home",
    "passing_on",
    "rests",
]


class TradeDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One.

    Attributes:
        step: what was done.
        partner: with whom; ``contract``: under which; ``negotiation``: the consumer's number.
        tasks: about which.
        price_micro: of a unit; 0: none was said.
        code, text: the reason; empty: it went well.
    """

    at_us: int
    step: TradeStep
    partner: str
    contract: str
    negotiation: int = 0
    tasks: tuple[str, ...] = ()
    price_micro: int = 0
    code: str = ""
    text: str = ""


class TradeLog:
    """The last ones. What moves or goes wrong is a line for the driver's log too.

    Args:
        most: so many are kept.
    """

    def __init__(self, effects: TradeEffects, most: int) -> None:
        self._effects = effects
        self._decisions: deque[TradeDecision] = deque(maxlen=most)

    def note(
        self,
        now_us: int,
        step: TradeStep,
        partner: str,
        contract: str,
        *,
        negotiation: int = 0,
        tasks: tuple[str, ...] = (),
        price_micro: int = 0,
        code: str = "",
        text: str = "",
    ) -> None:
        said = text or (reason_text(code) if code else "")
        self._decisions.append(
            TradeDecision(
                at_us=now_us,
                step=step,
                partner=partner,
                contract=contract,
                negotiation=negotiation,
                tasks=tasks,
                price_micro=price_micro,
                code=code,
                text=said,
            )
        )
        if step in ("moved", "runs", "recalled", "handed_back", "home"):
            shown = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
            self._effects.report(
                "info",
                f"{step.replace('_', ' ')}: {shown} ({partner}, contract {contract})"
                + (f": {said}" if said else ""),
                partner=partner,
                contract=contract,
                negotiation=negotiation,
                code=code,
            )

    def note_task(self, now_us: int, step: TradeStep, taken: TakenFigures, code: str, text: str = "") -> None:
        """The same of one task that was handed over."""
        self.note(
            now_us,
            step,
            taken.partner,
            taken.signed.contract.id,
            negotiation=taken.number,
            tasks=(taken.task.name,),
            price_micro=taken.price_micro,
            code=code,
            text=text,
        )

    def about(self, *, task: str = "", partner: str = "") -> Iterator[TradeDecision]:
        """Oldest first; empty: of all."""
        for each in self._decisions:
            if (not task or task in each.tasks) and (not partner or partner == each.partner):
                yield each
