"""Why something moved, or didn't: status, dry run, and sentences. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from medusa.market.money import money_text
from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import LoadBooks, TakenFigures
from medusa.market.negotiation.consumer import LoadConsumer, Purchase
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.decisions import TradeDecision, TradeLog
from medusa.market.negotiation.heralds import PriceHerald
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.provider import LoadProvider, Sale
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.negotiation.requests import RequestPlanner
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.status import (
    ContractStanding,
    OpenNegotiation,
    PlannedMove,
    TaskStanding,
    TraderStatus,
    WhyNot,
)
from medusa.market.work import TradedTask
from medusa.units import duration_text

__all__ = ["TradeExplainer"]


class TradeExplainer:
    """Reads all parts of a trader."""

    def __init__(
        self,
        name: str,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        contracts: ContractBook,
        prices: PriceBoard,
        planner: RequestPlanner,
        consumer: LoadConsumer,
        provider: LoadProvider,
        herald: PriceHerald,
        rests: Backoff,
        log: TradeLog,
        reachable: Callable[[str], bool],
    ) -> None:
        self._name, self._settings = name, settings
        self._books, self._contracts, self._prices = books, contracts, prices
        self._planner, self._consumer, self._provider = planner, consumer, provider
        self._herald, self._rests, self._log, self._reachable = herald, rests, log, reachable

    # --- status ---------------------------------------------------------------------------------

    def status(self, now_us: int) -> TraderStatus:
        return TraderStatus(
            name=self._name,
            running=tuple(task.name for task in self._books.here()),
            away=tuple(_standing(each, each.recalled) for each in self._books.away.values()),
            guests=tuple(_standing(each, each.leaving) for each in self._books.guests.values()),
            contracts=tuple(self._contract(now_us, each) for each in self._contracts.all(now_us)),
            open=tuple(_open(each) for each in self._consumer.purchases() if each.state.value != "FINALIZED"),
            serving=tuple(_open(each) for each in self._provider.sales() if each.state.value != "FINALIZED"),
            overloaded=self._books.overloaded,
            why_still=self.why_still(now_us),
            decisions=tuple(self._log.about()),
        )

    def _contract(self, now_us: int, signed: SignedContract) -> ContractStanding:
        contract, said = signed.contract, self._herald.said(signed)
        rests_us = self._rests.until_us(signed.key)
        return ContractStanding(
            id=contract.id,
            version=contract.version,
            partner=signed.partner,
            role="consumer" if signed.consumes else "provider",
            in_force=self._contracts.still_holds(now_us, signed),
            reachable=self._reachable(signed.partner),
            shadow=contract.shadow,
            rests_until_us=rests_us if rests_us > now_us else 0,
            ask_micro=self._prices.ask(now_us, signed)
            if signed.consumes
            else (said[0] if said else contract.price_micro),
            room_milli=self._prices.room_milli(now_us, signed)
            if signed.consumes
            else (said[1] if said else None),
            units_per_s=self._books.units_away(signed)
            if signed.consumes
            else self._books.units_taken(signed),
            virtual_micro=self._books.virtual_micro(signed),
        )

    # --- dry run --------------------------------------------------------------------------------

    def dry_run(self, now_us: int) -> tuple[list[PlannedMove], list[WhyNot]]:
        """Each plan is on its own: as if the others weren't."""
        plans = [
            PlannedMove(
                partner=each.signed.partner,
                contract=each.signed.contract.id,
                tasks=tuple(task.name for task in each.tasks),
                price_micro=each.price_micro,
                saved_micro_per_s=each.saved_micro_per_s,
            )
            for each in self._planner.plan(now_us, self._consumer.busy())
        ]
        planned = {(task, each.contract, each.partner) for each in plans for task in each.tasks}
        return plans, [
            found
            for task in self._books.here()
            for signed in self._contracts.all(now_us)
            if (task.name, signed.contract.id, signed.partner) not in planned
            and (found := self._why_not(now_us, signed, task)) is not None
        ]

    def _why_not(self, now_us: int, signed: SignedContract, task: TradedTask) -> WhyNot | None:
        if not signed.consumes:
            return None
        price, shown = self._prices.ask(now_us, signed), signed.contract.currency
        text, reason = "", self._planner.why_not(now_us, signed, task)
        rests_us = self._rests.until_us(signed.key)
        if not self._contracts.still_holds(now_us, signed):
            reason = TradeReason.NO_CONTRACT
        elif not self._reachable(signed.partner):
            reason = TradeReason.AWAY
        elif self._prices.full(now_us, signed):
            reason, text = TradeReason.FULL, "it has said that it has no room at any price of the contract"
        elif rests_us > now_us:
            reason = TradeReason.BUSY
            text = f"it was refused there, and rests for {duration_text(rests_us - now_us)}"
        elif task.name in self._consumer.busy() or self._books.moving(task.name):
            reason, text = TradeReason.BUSY, "it is in a negotiation"
        elif reason is TradeReason.BUSY:
            held = duration_text(self._settings.hold_us)
            text = f"it came here less than {held} ago"
        elif reason is None:
            units = signed.units_per_s(task)
            saved = self._books.saved(self._books.load(virtual=signed.contract.shadow), task, units)
            reason = TradeReason.DEARER
            if saved > self._settings.above(price):
                reason = TradeReason.OVER_LIMIT
                text = "with others that go first it is too much, or isn't worth it any more"
            else:
                text = (
                    f"a unit costs {money_text(round(saved), shown)} here, and"
                    f" {money_text(price, shown)} there"
                )
        return WhyNot(
            task=task.name,
            partner=signed.partner,
            contract=signed.contract.id,
            code=reason.value,
            text=text or reason_text(reason.value),
        )

    # --- sentences ------------------------------------------------------------------------------

    def why_still(self, now_us: int) -> str:
        """Why nothing more moves now."""
        if self._consumer.moving + self._provider.moving >= self._settings.moves_max:
            return "a move is under way"
        if self._consumer.asking >= self._settings.offers_max:
            return "a request is open"
        plans, why_not = self.dry_run(now_us)
        if plans:
            return f"{', '.join(plans[0].tasks[:5])} will be offered to {plans[0].partner}"
        if not any(True for _ in self._books.here()):
            return "nothing runs here"
        if not any(signed.consumes for signed in self._contracts.all(now_us)):
            return "there is no contract by which load may go"
        codes = list(dict.fromkeys(each.code for each in why_not))
        return "; ".join(_sentence(why_not, code) for code in codes) or "nothing is worth moving"

    def explain(self, now_us: int, task: str, partner: str) -> Iterator[str]:
        """Where it is, what was decided about it, and why it doesn't go now."""
        standing: Iterable[TakenFigures] = (*self._books.away.values(), *self._books.guests.values())
        away = self._books.away.values()
        for each in standing:
            if (not task or task == each.task.name) and (not partner or partner == each.partner):
                yield _where(now_us, each, away=each in away)
        for decision in self._log.about(task=task, partner=partner):
            yield _told(now_us, decision)
        plans, why_not = self.dry_run(now_us)
        for plan in plans:
            if (not task or task in plan.tasks) and (not partner or partner == plan.partner):
                yield (
                    f"{', '.join(plan.tasks)} would be offered to {plan.partner} now at"
                    f" {money_text(plan.price_micro)}, and save {plan.saved_micro_per_s / 1e6:.6f} a second"
                )
        for found in why_not:
            if (not task or task == found.task) and (not partner or partner == found.partner):
                yield f"{found.task} isn't offered to {found.partner} ({found.contract}): {found.text}"


def _sentence(why_not: list[WhyNot], code: str) -> str:
    found = [each for each in why_not if each.code == code]
    names = list(dict.fromkeys(each.task for each in found))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{shown}: {found[0].text}"


def _where(now_us: int, taken: TakenFigures, *, away: bool) -> str:
    contract = taken.signed.contract
    said = "is away at" if away else "is a guest of"
    if taken.virtual:
        said = "would be away at" if away else "would be a guest of"
    since = duration_text(max(now_us - taken.since_us, 0))
    return (
        f"{taken.task.name} {said} {taken.partner} for {since}, by contract {contract.id} at"
        f" {money_text(taken.price_micro, contract.currency)} a unit"
    )


def _told(now_us: int, decision: TradeDecision) -> str:
    ago = duration_text(max(now_us - decision.at_us, 0))
    names = ", ".join(decision.tasks[:5])
    price = f" at {money_text(decision.price_micro)}" if decision.price_micro else ""
    why = f": {decision.code}, {decision.text}" if decision.code else ""
    return f"{ago} ago: {decision.step.replace('_', ' ')}: {names} ({decision.partner}){price}{why}"


def _standing(taken: TakenFigures, recalled: str) -> TaskStanding:
    return TaskStanding(
        name=taken.task.name,
        owner=taken.task.owner,
        partner=taken.partner,
        contract=taken.signed.contract.id,
        negotiation=taken.number,
        price_micro=taken.price_micro,
        nano_units_per_row=taken.nano,
        since_us=taken.since_us,
        recalled=recalled,
        virtual=taken.virtual,
        spent_micro=taken.spent,
    )


def _open(negotiation: Purchase | Sale) -> OpenNegotiation:
    return OpenNegotiation(
        number=negotiation.number,
        partner=negotiation.signed.partner,
        contract=negotiation.signed.contract.id,
        state=negotiation.state.value,
        tasks=tuple(negotiation.tasks),
        price_micro=negotiation.price_micro,
        deadline_us=negotiation.deadline_us,
    )
