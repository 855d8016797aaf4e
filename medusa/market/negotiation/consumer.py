"""The consumer's side: negotiations that this participant began, and what came of them.

Each ends by its deadline. What was handed over stays in the books as away until the driver says that it is
home, whatever a partner says or doesn't.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from medusa.automaton import next_state
from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.market.contract.states import NEGOTIATION, NegotiationEvent, NegotiationState
from medusa.market.negotiation.aways import AwayKeeper
from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import AwayTask, LoadBooks
from medusa.market.negotiation.chains import ChainedMove, ChainFinder
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.decisions import TradeLog, TradeStep
from medusa.market.negotiation.effects import HandOver, TradeEffects
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.negotiation.messages import (
    LoadAccepted,
    LoadAgreed,
    LoadEnded,
    LoadMoved,
    LoadOffer,
    LoadRequest,
    LoadRuns,
)
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.negotiation.requests import PlannedRequest, RequestPlanner
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import TradedTask, nano_units_per_row

__all__ = ["ENDED_MAX", "LoadConsumer", "Purchase"]

_S, _E = NegotiationState, NegotiationEvent

ENDED_MAX = 1_024
"""So many negotiations that are over are remembered, so that what comes late is answered."""

BUSY_US = 16_000_000
"""Who has another move under way is asked again after so long at most: that says nothing of price or room.
Too small: partners that trade much are asked for nothing; too large: who waits never meets it free."""

ASKING = (_S.REQUESTED, _S.OFFERED, _S.ACCEPTED)
_WITHIN_MAX_US = 3_600_000_000


@dataclass(slots=True, kw_only=True)
class Purchase:
    """One negotiation, as its consumer knows it.

    Attributes:
        tasks: that were asked for; ``price_micro``: for how much, last.
        asked_us: when that was said first.
        say_at_us: when it is said again.
        agreed: name -> nano-units of a row, of what is to be handed over.
        waiting: names of which the driver hasn't said yet what came of them.
        got: names of what was handed over.
        bid: it has answered an offer with a price of its own, which it does once.
        chain: it is to make room for another task.
        planned: it was begun by a signal, whatever it costs.
    """

    number: int
    signed: SignedContract
    tasks: dict[str, TradedTask]
    price_micro: int
    asked_us: int
    deadline_us: int
    say_at_us: int
    state: NegotiationState = NegotiationState.REQUESTED
    agreed: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    got: dict[str, None] = field(default_factory=dict)
    bid: bool = False
    chain: ChainedMove | None = None
    planned: bool = False

    def step(self, *events: NegotiationEvent) -> None:
        state = self.state
        for event in events:
            state = next_state(NEGOTIATION, state, event, of=f"negotiation {self.number}")
        self.state = state

    def accepts(self, now_us: int, price_micro: int, tasks: Iterable[TradedTask], deadline_us: int) -> None:
        self.step(_E.OFFER, _E.ACCEPT)
        self.price_micro, self.tasks = price_micro, {task.name: task for task in tasks}
        self.asked_us, self.deadline_us = now_us, deadline_us

    def bids(self, now_us: int, price_micro: int, tasks: Iterable[TradedTask], deadline_us: int) -> None:
        self.step(_E.OFFER, _E.REQUEST)
        self.price_micro, self.tasks, self.bid = price_micro, {task.name: task for task in tasks}, True
        self.asked_us, self.deadline_us = now_us, deadline_us

    def is_agreed(self, agreed: dict[str, int], deadline_us: int) -> None:
        self.step(_E.AGREE)
        self.agreed, self.waiting, self.deadline_us = agreed, dict.fromkeys(agreed), deadline_us

    def resumes(self, deal: KeptDeal) -> None:
        name = deal.task.name
        self.tasks[name], self.agreed[name] = deal.task, deal.nano
        (self.waiting if deal.part == "moving" else self.got)[name] = None

    def verifies(self, deadline_us: int) -> None:
        self.step(_E.VERIFY)
        self.deadline_us = deadline_us

    def said(self, again_us: int) -> None:
        self.say_at_us = again_us


class LoadConsumer:
    """Asks, hands over, calls back. The trader says when, and what comes from partners and the driver."""

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        contracts: ContractBook,
        prices: PriceBoard,
        planner: RequestPlanner,
        chains: ChainFinder,
        aways: AwayKeeper,
        rests: Backoff,
        log: TradeLog,
        effects: TradeEffects,
        reachable: Callable[[str], bool],
    ) -> None:
        self._settings, self._chains, self._aways = settings, chains, aways
        aways.listen(self._home)
        self._passed_on: Callable[[int, SignedContract, bool], None] = _nobody
        self._books, self._contracts, self._prices, self._planner = books, contracts, prices, planner
        self._rests, self._log, self._effects, self._reachable = rests, log, effects, reachable
        self._number = -1
        self._purchases: dict[int, Purchase] = {}
        self._open: dict[int, Purchase] = {}  # of them those that aren't finalized
        self._late: dict[int, Purchase] = {}
        self._ended: dict[int, str] = {}

    def listen(self, passed_on: Callable[[int, SignedContract, bool], None]) -> None:
        """Have this told what came of a task that was to make room: by which contract another one is to come,
        and whether it went."""
        self._passed_on = passed_on

    # --- asking ---------------------------------------------------------------------------------

    @property
    def asking(self) -> int:
        """Requests that are open."""
        return sum(each.state in ASKING for each in self._open.values())

    @property
    def moving(self) -> int:
        """Negotiations whose tasks are being handed over."""
        late = sum(bool(each.waiting) for each in self._late.values()) if self._late else 0
        return late + sum(bool(each.waiting) for each in self._open.values()) if self._open else late

    def knows(self, partner: str, message: LoadEnded) -> bool:
        """Whether a negotiation of that partner is ours and isn't over, or a task of it is still away."""
        number, key = message.negotiation, (partner, message.contract)
        purchase = self._purchases.get(number)
        away = (each for each in self._books.away.values() if each.number == number)
        return (purchase is not None and purchase.signed.key == key) or any(
            each.signed.key == key for each in away
        )

    def purchases(self) -> Iterator[Purchase]:
        yield from self._purchases.values()

    def busy(self) -> set[str]:
        """Tasks that are in a negotiation that isn't over yet."""
        open_ = (*ASKING, _S.AGREED)
        return {name for each in self._open.values() if each.state in open_ for name in each.tasks}

    def make_room(self, now_us: int, chain: ChainedMove) -> None:
        """Ask a partner to take a task, so that another can come."""
        plan = PlannedRequest(
            signed=chain.out, tasks=(chain.task,), price_micro=chain.price_micro, saved_micro_per_s=chain.gain
        )
        purchase = self.ask(now_us, plan, chain)
        self._note(now_us, "passing_on", purchase, (chain.task.name,))

    def go_by_plan(self, now_us: int, signed: SignedContract, task: TradedTask, price_micro: int) -> int:
        """Have a task go as was agreed beforehand; the number of the negotiation."""
        plan = PlannedRequest(signed=signed, tasks=(task,), price_micro=price_micro, saved_micro_per_s=0.0)
        return self.ask(now_us, plan, planned=True).number

    def ended(self, number: int) -> str | None:
        """The code with which a negotiation ended, and nothing went; None: it goes on, or something did."""
        return self._ended.get(number)

    def ask(
        self, now_us: int, plan: PlannedRequest, chain: ChainedMove | None = None, *, planned: bool = False
    ) -> Purchase:
        """Begin a negotiation."""
        # Greater than any from before a restart, as long as the clock doesn't go back by more.
        self._number = max(self._number + 1, now_us)
        deadline_us = now_us + self._settings.answer_us
        purchase = Purchase(
            number=self._number,
            signed=plan.signed,
            tasks={task.name: task for task in plan.tasks},
            price_micro=plan.price_micro,
            asked_us=now_us,
            deadline_us=deadline_us,
            say_at_us=now_us + self._settings.again_us,
            chain=chain,
            planned=planned,
        )
        self._purchases[purchase.number] = self._open[purchase.number] = purchase
        self._say(now_us, purchase)
        self._note(now_us, "asked", purchase, tuple(purchase.tasks))
        return purchase

    def _say(self, now_us: int, purchase: Purchase) -> None:
        """What the state asks for, for the first time or again."""
        contract = purchase.signed.contract
        about: dict[str, Any] = {
            "contract": contract.id,
            "version": contract.version,
            "negotiation": purchase.number,
        }
        left_us = max(purchase.deadline_us - now_us, 1)
        partner = purchase.signed.partner
        if purchase.state is _S.REQUESTED:
            self._effects.say(
                partner,
                LoadRequest(
                    **about,
                    tasks=tuple(purchase.tasks.values()),
                    price_micro=purchase.price_micro,
                    within_us=left_us,
                ),
            )
        elif purchase.state is _S.ACCEPTED:
            self._effects.say(
                partner,
                LoadAccepted(**about, tasks=tuple(purchase.tasks), price_micro=purchase.price_micro),
            )
        elif purchase.state is _S.VERIFIED:
            self._effects.say(partner, LoadMoved(**about, tasks=tuple(purchase.got)))
        purchase.said(now_us + self._settings.again_us)

    # --- restarts -------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The highest that was used."""
        return self._number

    def kept(self) -> Iterator[KeptDeal]:
        """What has to outlive a restart."""
        for purchase in (*self._purchases.values(), *self._late.values()):
            for name in purchase.waiting:
                yield KeptDeal(
                    part="moving",
                    partner=purchase.signed.partner,
                    task=purchase.tasks[name],
                    contract=purchase.signed.contract,
                    negotiation=purchase.number,
                    price_micro=purchase.price_micro,
                    nano=purchase.agreed[name],
                    since_us=0,
                )
        yield from self._aways.kept()

    def resume(self, now_us: int, number: int, deals: Iterable[KeptDeal]) -> None:
        """Go on after a restart: each provider is told once more what is there by us."""
        self._number = max(self._number, number)
        for deal in deals:
            signed = SignedContract(contract=deal.contract, partner=deal.partner, consumes=True)
            purchase = self._purchases.get(deal.negotiation)
            if purchase is None:
                purchase = Purchase(
                    number=deal.negotiation,
                    signed=signed,
                    tasks={},
                    price_micro=deal.price_micro,
                    asked_us=now_us,
                    deadline_us=now_us + self._settings.room_us,
                    say_at_us=now_us,
                )
                purchase.is_agreed({}, now_us + self._settings.room_us)
                self._purchases[deal.negotiation] = self._open[deal.negotiation] = purchase
            purchase.resumes(deal)
            if deal.part == "moving":
                self._books.moves(deal.task.name, deal.negotiation)
                continue
            away = AwayTask(
                task=deal.task,
                signed=signed,
                number=deal.negotiation,
                price_micro=deal.price_micro,
                nano=deal.nano,
                since_us=deal.since_us,
                reckoned_us=now_us,
            )
            self._aways.went(away)
            if deal.back:
                self._aways.recall(now_us, (deal.task.name, False), deal.back)
        for purchase in list(self._purchases.values()):
            if not purchase.waiting and purchase.state is _S.AGREED:
                self._verify(now_us, purchase)

    # --- what a provider says -------------------------------------------------------------------

    def _known(self, partner: str, negotiation: int, contract: str) -> Purchase | None:
        purchase = self._purchases.get(negotiation) or self._late.get(negotiation)
        if purchase is not None and purchase.signed.key != (partner, contract):
            raise RemoteProtocolError(
                f"negotiation {negotiation} isn't about contract {contract!r}",
                peer=partner,
                code=TradeReason.NO_CONTRACT.value,
            )
        return self._purchases.get(negotiation)

    def on_offer(self, now_us: int, partner: str, message: LoadOffer) -> None:
        """Raises RemoteProtocolError: the price isn't in the range, or a task wasn't asked for."""
        purchase = self._known(partner, message.negotiation, message.contract)
        if purchase is None:
            self._too_late(partner, message.contract, message.version, message.negotiation)
            return
        if purchase.state is not _S.REQUESTED or purchase.bid:
            return
        contract = purchase.signed.contract
        _check_tasks(partner, message.tasks, purchase.tasks)
        if not contract.least_micro <= message.price_micro <= contract.price_micro or not message.tasks:
            raise RemoteProtocolError(
                f"an offer of {len(message.tasks)} tasks at {message.price_micro}: expected some, at a price"
                f" from {contract.least_micro} to {contract.price_micro}",
                peer=partner,
                code=TradeReason.PRICE.value,
            )
        self._note(now_us, "countered", purchase, message.tasks, price_micro=message.price_micro)
        offered = [purchase.tasks[name] for name in message.tasks]
        offered = [task for task in offered if self._may_still(now_us, purchase.signed, task)]
        wanted = self._worth(purchase, offered, message.price_micro)
        other = self._planner.cheaper_elsewhere(now_us, purchase.signed, wanted, message.price_micro)
        self._prices.learnt(now_us, purchase.signed, message.price_micro)
        asked = [each for each in purchase.tasks.values() if self._may_still(now_us, purchase.signed, each)]
        bid = None
        if not wanted and purchase.chain is None:
            bid = self._planner.highest(purchase.signed, asked, message.price_micro)
        tasks: list[TradedTask] = []
        if bid is not None and bid > purchase.price_micro:
            tasks = self._planner.worthwhile(purchase.signed, asked, bid)
        if bid is not None and tasks:
            purchase.bids(now_us, bid, tasks, now_us + self._settings.answer_us)
            self._say(now_us, purchase)
            self._note(now_us, "asked", purchase, tuple(purchase.tasks))
            return
        if not wanted or other is not None:
            reason = TradeReason.WITHDRAWN if other is None else TradeReason.DEARER
            self._end(now_us, purchase, reason)
            if other is None:
                self._rests.failed(now_us, purchase.signed.key)
            return
        purchase.accepts(now_us, message.price_micro, wanted, now_us + self._settings.answer_us)
        self._say(now_us, purchase)
        self._note(now_us, "accepted", purchase, tuple(purchase.tasks))

    def on_agreed(self, now_us: int, partner: str, message: LoadAgreed) -> None:
        """Raises RemoteProtocolError: it isn't what was asked for, or a row would be billed as more."""
        purchase = self._known(partner, message.negotiation, message.contract)
        if purchase is None:
            self._too_late(partner, message.contract, message.version, message.negotiation)
            return
        if purchase.state not in (_S.REQUESTED, _S.ACCEPTED):
            return
        _check_tasks(partner, message.tasks, purchase.tasks)
        if message.price_micro != purchase.price_micro:
            raise RemoteProtocolError(
                f"an agreement at {message.price_micro}: {purchase.price_micro} was asked for",
                peer=partner,
                code=TradeReason.PRICE.value,
            )
        per_unit = purchase.signed.contract.bytes_per_unit
        expected = tuple(
            nano_units_per_row(task.cpu_ns_per_row, task.bytes_per_row, per_unit)
            for task in (purchase.tasks[name] for name in message.tasks)
        )
        if message.nano_units_per_row != expected or not message.tasks:
            raise RemoteProtocolError(
                f"an agreement on {message.nano_units_per_row} nano-units a row: {expected} was said",
                peer=partner,
                code=TradeReason.PRICE.value,
            )
        deadline_us = purchase.asked_us + min(message.within_us, _WITHIN_MAX_US)
        if now_us >= deadline_us:
            self._end(now_us, purchase, TradeReason.LATE)
            return
        if not self._contracts.still_holds(now_us, purchase.signed):
            self._end(now_us, purchase, TradeReason.ENDED)
            return
        # What was worth it when it was asked for may not be so any more.
        agreed = [self._books.task(name) for name in message.tasks]
        here = [task for task in agreed if task is not None and not self._books.moving(task.name)]
        if not purchase.planned:
            here = [task for task in here if self._may_still(now_us, purchase.signed, task)]
        wanted = {task.name for task in self._worth(purchase, here, message.price_micro)}
        nanos = {
            name: nano
            for name, nano in zip(message.tasks, message.nano_units_per_row, strict=True)
            if name in wanted
        }
        if not nanos:
            self._end(now_us, purchase, TradeReason.WITHDRAWN)
            return
        purchase.is_agreed(nanos, deadline_us)
        self._rests.succeeded(purchase.signed.key)
        self._prices.learnt(now_us, purchase.signed, purchase.price_micro)
        self._note(now_us, "agreed", purchase, tuple(nanos))
        if purchase.signed.contract.shadow:
            for name in list(nanos):
                self._there(now_us, purchase, name)
            self._verify(now_us, purchase)
            return
        for name in nanos:
            self._books.moves(name, purchase.number)
            self._effects.append(
                HandOver(
                    partner=partner,
                    task=name,
                    contract=purchase.signed.contract.id,
                    negotiation=purchase.number,
                )
            )

    def _worth(self, purchase: Purchase, tasks: list[TradedTask], price_micro: int) -> list[TradedTask]:
        """Which of these are worth this price now: alone, or for what can come in their place."""
        chain = purchase.chain
        if purchase.planned:
            return tasks
        found = self._planner.worthwhile(purchase.signed, tasks, price_micro)
        if found or chain is None:
            return found
        gain = self._chains.gain(chain.out, chain.task, price_micro, chain.by, chain.wanted, chain.pays_micro)
        return tasks if gain > 0 else []

    def _may_still(self, now_us: int, signed: SignedContract, task: TradedTask) -> bool:
        """Whether nothing forbids it meanwhile."""
        if self._books.task(task.name) is None:
            return False
        if signed.contract.shadow and (task.name, True) in self._books.away:
            return False
        return self._planner.why_not(now_us, signed, task) is None

    def on_runs(self, now_us: int, partner: str, message: LoadRuns) -> None:
        """Raises RemoteProtocolError: nothing was said to have been moved yet."""
        purchase = self._known(partner, message.negotiation, message.contract)
        if purchase is None:
            self._too_late(partner, message.contract, message.version, message.negotiation)
            return
        if purchase.state is _S.FINALIZED:
            return
        if purchase.state is not _S.VERIFIED:
            raise RemoteProtocolError(
                f"negotiation {purchase.number} is {purchase.state.value}: nothing runs by it",
                peer=partner,
                code=TradeReason.LATE.value,
            )
        # Some that it names may be home already, or be forgotten here by a restart.
        purchase.step(_E.FINALIZE)
        del self._open[purchase.number]
        self._note(now_us, "runs", purchase, tuple(purchase.got))
        for name in list(purchase.got):
            if name not in message.tasks:
                self._aways.recall(now_us, (name, purchase.signed.contract.shadow), TradeReason.GONE)

    def on_ended(self, now_us: int, partner: str, message: LoadEnded) -> None:
        """The provider refuses, withdraws, or gives tasks back."""
        purchase = self._known(partner, message.negotiation, message.contract)
        code, text = message.code, message.text
        if purchase is None or purchase.state not in ASKING:  # while it is asked for nothing of it is away
            self._aways.on_ended(now_us, partner, message)
        if purchase is None or purchase.state in (_S.FINALIZED, _S.TERMINATED):
            return
        if purchase.state in ASKING:
            self._refused(now_us, purchase, code)
        elif purchase.state is _S.VERIFIED and message.tasks:
            return
        self._end(now_us, purchase, code, say=False, text=text)

    def _refused(self, now_us: int, purchase: Purchase, code: str) -> None:
        """Raise the price, or let the contract rest."""
        signed, dear = purchase.signed, code == TradeReason.TOO_DEAR.value
        if code == TradeReason.BUSY.value:
            self._rests.failed(now_us, signed.key, most_us=BUSY_US)
        elif not dear or not self._prices.refused(now_us, signed, purchase.price_micro):
            self._rests.failed(now_us, signed.key)
            if dear or code == TradeReason.FULL.value:
                least = min(signed.units_per_s(task) for task in purchase.tasks.values())
                self._prices.has_no_room(signed, round(least * 1_000))

    # --- what the driver says -------------------------------------------------------------------

    def handed_over(self, now_us: int, number: int, name: str, why: str) -> None:
        """Raises LocalProtocolError: it isn't being handed over."""
        purchase = self._purchases.get(number) or self._late.get(number)
        if purchase is None or name not in purchase.waiting:
            raise LocalProtocolError(f"task {name!r} isn't being handed over by negotiation {number}")
        self._books.stays(name)
        if why:
            purchase.waiting.pop(name)
            self._note(now_us, "ended", purchase, (name,), code=TradeReason.FAILED.value, text=why)
        else:
            self._there(now_us, purchase, name)
        if purchase.number in self._late:
            if not why:
                self._aways.recall(now_us, (name, False), TradeReason.LATE)
            if not purchase.waiting:
                del self._late[purchase.number]
        elif not purchase.waiting and purchase.got:
            self._verify(now_us, purchase)
        elif not purchase.waiting:
            self._end(now_us, purchase, TradeReason.FAILED)
            self._rests.failed(now_us, purchase.signed.key)

    def _there(self, now_us: int, purchase: Purchase, name: str) -> None:
        purchase.waiting.pop(name)
        purchase.got[name] = None
        virtual = purchase.signed.contract.shadow
        self._aways.went(
            AwayTask(
                task=purchase.tasks[name],  # As its host has it, and as the contract allows.
                seen=self._books.task(name),
                signed=purchase.signed,
                number=purchase.number,
                price_micro=purchase.price_micro,
                nano=purchase.agreed[name],
                since_us=now_us,
                reckoned_us=now_us,
                makes_room=purchase.chain is not None,
            )
        )
        if not virtual:
            self._books.left(name)
        if purchase.chain is not None:
            self._passed_on(now_us, purchase.chain.by, True)

    def _verify(self, now_us: int, purchase: Purchase) -> None:
        purchase.verifies(now_us + self._settings.room_us)
        self._say(now_us, purchase)
        self._note(now_us, "moved", purchase, tuple(purchase.got))

    def _home(self, now_us: int, away: AwayTask) -> None:
        """It is away no more; its negotiation is over with the last one."""
        purchase = self._purchases.get(away.number)
        if purchase is None:
            return
        purchase.got.pop(away.task.name, None)
        if not purchase.got and not purchase.waiting and purchase.state not in ASKING:
            self._end(now_us, purchase, away.recalled or TradeReason.HOME, say=False)

    def contract_over(self, now_us: int, signed: SignedContract, keep: SignedContract | None) -> None:
        """It has ended, was revoked, or replaced: what runs by it comes home.

        Args:
            keep: the version in its place: what that allows at this price stays.
        """
        for purchase in list(self._open.values()):
            if purchase.signed.key == signed.key and purchase.state in (*ASKING, _S.AGREED):
                self._end(now_us, purchase, TradeReason.ENDED)
        self._aways.contract_over(now_us, signed, keep)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Deadlines, and what is said again."""
        for purchase in list(self._open.values()):
            if now_us >= purchase.deadline_us:
                self._end(now_us, purchase, TradeReason.TIMEOUT)
                self._rests.failed(now_us, purchase.signed.key)
            elif now_us >= purchase.say_at_us and purchase.state is not _S.AGREED:
                self._say(now_us, purchase)
        self._aways.tick(now_us)

    def wake_at_us(self) -> int | None:
        times = [
            min(each.deadline_us, each.deadline_us if each.state is _S.AGREED else each.say_at_us)
            for each in self._open.values()
        ]
        recall_us = self._aways.wake_at_us()
        if recall_us is not None:
            times.append(recall_us)
        return min(times, default=None)

    def unreachable(self, now_us: int, partner: str) -> None:
        """Nothing more is waited for; what is there stays there, and what is moved the driver knows."""
        for purchase in list(self._open.values()):
            if purchase.signed.partner == partner and purchase.state in ASKING:
                self._end(now_us, purchase, TradeReason.AWAY)
                self._rests.failed(now_us, purchase.signed.key)

    def _end(
        self,
        now_us: int,
        purchase: Purchase,
        reason: TradeReason | str,
        *,
        say: bool = True,
        text: str = "",
    ) -> None:
        code = reason.value if isinstance(reason, TradeReason) else reason
        never_went = purchase.state in (*ASKING, _S.AGREED) and not purchase.got
        purchase.step(_E.TERMINATE)
        del self._purchases[purchase.number]
        self._open.pop(purchase.number, None)
        self._ended[purchase.number] = code
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        if purchase.waiting:
            self._late[purchase.number] = purchase
        elif purchase.chain is not None and never_went:
            self._passed_on(now_us, purchase.chain.by, False)
        self._note(now_us, "ended", purchase, tuple(purchase.got or purchase.tasks), code=code, text=text)
        if say:
            contract = purchase.signed.contract
            self._effects.say(
                purchase.signed.partner,
                LoadEnded(
                    contract=contract.id,
                    version=contract.version,
                    negotiation=purchase.number,
                    code=code,
                    text=reason_text(code),
                ),
            )
        for name in list(purchase.got):
            if (name, purchase.signed.contract.shadow) in self._books.away:
                self._aways.recall(now_us, (name, purchase.signed.contract.shadow), code)

    def _too_late(self, partner: str, contract: str, version: int, negotiation: int) -> None:
        """It is over, or nobody knows it here any more: room that is kept for it may be freed."""
        self._effects.say(
            partner,
            LoadEnded(
                contract=contract,
                version=version,
                negotiation=negotiation,
                code=self._ended.get(negotiation, TradeReason.LATE.value),
                text=reason_text(TradeReason.LATE.value),
            ),
        )

    def _note(
        self,
        now_us: int,
        step: TradeStep,
        purchase: Purchase,
        tasks: tuple[str, ...],
        *,
        price_micro: int = 0,
        code: str = "",
        text: str = "",
    ) -> None:
        self._log.note(
            now_us,
            step,
            purchase.signed.partner,
            purchase.signed.contract.id,
            negotiation=purchase.number,
            tasks=tasks,
            price_micro=price_micro or purchase.price_micro,
            code=code,
            text=text,
        )


def _nobody(now_us: int, by: SignedContract, went: bool) -> None:
    """Nobody listens yet."""


def _check_tasks(partner: str, said: Iterable[str], known: Iterable[str]) -> None:
    names, known = list(said), set(known)
    if len(set(names)) != len(names) or not known.issuperset(names):
        raise RemoteProtocolError(
            f"tasks {sorted(set(names) - known)[:5]} weren't asked for, or one is named twice",
            peer=partner,
            code=TradeReason.TASK_NOT_ALLOWED.value,
        )
