"""What became of a run in which Spark took load by contract, and what was to be seen in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from medusa.apps.workloads.market.market_outcome import MarketCheck, MarketMove, MarketOutcome
from medusa.apps.workloads.market.market_owners import Deal

__all__ = ["ROOM_AGAIN", "OverflowOutcome"]

ROOM_AGAIN = "room again"
"""The phase in which what is away comes home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowOutcome:
    """A finished run.

    Attributes:
        market: what was seen.
        deal: by which Spark takes load.
        cost: what a core-second of Spark costs its owner, whatever else runs there.
    """

    market: MarketOutcome
    deal: Deal
    cost: float

    @property
    def fine(self) -> bool:
        """All checks are held."""
        return all(each.held for each in self.checks())

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        checks = [asdict(each) for each in self.checks()]
        return {"fine": self.fine, "checks": checks, **self.market.seen()}

    def checks(self) -> list[MarketCheck]:
        """In the order in which the demonstration shows them."""
        return [*self._moved(), self._priced(), self.market.thrashes(), *self.market.exact()]

    def _moved(self) -> Iterator[MarketCheck]:
        went = [each for each in self.market.moves if each.goes]
        shown = ", ".join(_said(each) for each in went) or "nothing moved"
        yield MarketCheck(
            f"{self.deal.consumer}, who has too much, sheds to Spark",
            bool(went) and all(each.taker == self.deal.provider for each in went),
            True,
            shown,
        )
        room_s = self.market.phase(ROOM_AGAIN).begin_s
        back = [each for each in self.market.moves if not each.goes and each.at_s >= room_s]
        last = {each.task: each for each in self.market.moves}
        away = sorted(task for task, move in last.items() if move.goes)
        shown = ", ".join(_said(each) for each in back) or "nothing came home"
        shown += f"; NOT home: {', '.join(away)}" if away else ""
        yield MarketCheck("and has it at home again once there is room", bool(back) and not away, True, shown)

    def _priced(self) -> MarketCheck:
        """No unit is sold below what it costs, nor outside of the range."""
        least, most = max(self.deal.price - self.deal.width, self.cost), self.deal.price
        prices = self.market.prices
        held = bool(prices) and all(least <= each.price_micro / 1e6 <= most for each in prices)
        shown = (
            ", ".join(f"{each.task} {each.price_micro / 1e6:.6f}" for each in prices) or "nothing was sold"
        )
        about = f"at a cost of {self.cost:.6f} a core-second, and waiting; at most {most:.6f}"
        return MarketCheck(
            "what Spark asks is more than it costs, and within the contract", held, True, f"{shown}; {about}"
        )


def _said(move: MarketMove) -> str:
    why = f" ({move.why})" if move.why else ""
    return f"{move.task} from {move.giver} to {move.taker} at {move.at_s:.1f} s{why}"
