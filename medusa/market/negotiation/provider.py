"""The provider's side: requests that came, offers, room that is kept. What runs here is in ``guests``.

Each negotiation ends by its deadline, and its room is free then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from medusa.automaton import next_state
from medusa.errors import RemoteProtocolError
from medusa.market.contract.states import NEGOTIATION, NegotiationEvent, NegotiationState
from medusa.market.negotiation.answers import AnswerJudge
from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import GuestTask, LoadBooks
from medusa.market.negotiation.chains import ChainedMove, ChainFinder
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.decisions import TradeLog, TradeStep
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.guests import GuestKeeper
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
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import TradedTask, nano_units_per_row

__all__ = ["LoadProvider", "PendingRequest", "Sale"]

_S, _E = NegotiationState, NegotiationEvent

PENDING_MAX = 16
"""Requests of one partner that wait for an answer."""

ENDED_MAX = 256
"""Negotiations of one partner that are over and remembered. An older number is refused."""

_WITHIN_MAX_US = 3_600_000_000


@dataclass(slots=True, kw_only=True)
class PendingRequest:
    """One without an answer yet.

    Attributes:
        expires_us: it is refused then, while its consumer still listens.
        bid: it is the consumer's answer to an offer, and isn't answered with another one.
    """

    signed: SignedContract
    request: LoadRequest
    came_us: int
    expires_us: int
    bid: bool = False


@dataclass(slots=True, kw_only=True)
class Sale:
    """One negotiation, as its provider knows it.

    Attributes:
        tasks: for which room is kept; once it is finalized, those that run here by it.
        names: of all that were agreed, and later of all that were moved.
        asked_micro: what the consumer offered, where that was answered with an offer.
        deadline_us: until then it is kept.
    """

    number: int
    signed: SignedContract
    tasks: dict[str, TradedTask]
    price_micro: int
    deadline_us: int
    state: NegotiationState = NegotiationState.REQUESTED
    names: tuple[str, ...] = ()
    asked_micro: int = -1

    @property
    def key(self) -> tuple[str, int]:
        return self.signed.partner, self.number

    def step(self, *events: NegotiationEvent) -> None:
        state = self.state
        for event in events:
            state = next_state(NEGOTIATION, state, event, of=f"negotiation {self.number}")
        self.state = state

    def is_agreed(self, tasks: dict[str, TradedTask], deadline_us: int) -> None:
        if self.state is _S.OFFERED:
            self.step(_E.ACCEPT)
        self.step(_E.AGREE)
        self.tasks, self.names, self.deadline_us = tasks, tuple(tasks), deadline_us

    def resumes(self, deal: KeptDeal) -> None:
        if self.state is _S.REQUESTED:
            self.step(_E.AGREE)
            if deal.part == "guest":
                self.step(_E.VERIFY, _E.FINALIZE)
        self.tasks[deal.task.name] = deal.task
        self.names = tuple(self.tasks)

    def is_moved(self, names: tuple[str, ...]) -> None:
        self.step(_E.VERIFY, _E.FINALIZE)
        self.names = names
        self.tasks = {name: self.tasks[name] for name in names}


class LoadProvider:
    """Answers, keeps room, gives back. The trader says when, and what comes from partners and the driver.

    Args:
        moves_free: whether one move more may begin; ``asks_free``: and one request.
        pass_on: has a task go to a partner.
        held_micro: the price of the dearest task that is away and would be cheaper here; 0: none would.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        contracts: ContractBook,
        judge: AnswerJudge,
        guests: GuestKeeper,
        distrust: Backoff,
        log: TradeLog,
        effects: TradeEffects,
        chains: ChainFinder,
        moves_free: Callable[[], bool],
        asks_free: Callable[[], bool],
        pass_on: Callable[[int, ChainedMove], None],
        held_micro: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._books, self._contracts, self._judge = books, contracts, judge
        self._distrust, self._log, self._effects = distrust, log, effects
        self._moves_free, self._asks_free = moves_free, asks_free
        self._chains, self._pass_on, self._held_micro = chains, pass_on, held_micro
        self._guests = guests
        guests.listen(self._left)
        self._pending: dict[tuple[str, int], PendingRequest] = {}
        self._sales: dict[tuple[str, int], Sale] = {}
        self._rooms: dict[tuple[str, int], Sale] = {}  # of them those for which room is kept
        self._ended: dict[str, dict[int, str]] = {}
        self._floor: dict[str, int] = {}
        self._floors: dict[tuple[str, str], tuple[int, int]] = {}
        self._likes: dict[tuple[str, str], TradedTask] = {}

    @property
    def moving(self) -> int:
        """Negotiations for which room is kept."""
        return len(self._rooms)

    def knows(self, partner: str, message: LoadEnded) -> bool:
        """Whether a negotiation of that partner is known here."""
        key = partner, message.negotiation
        return key in self._sales or key in self._pending

    def sales(self) -> Iterator[Sale]:
        yield from self._sales.values()

    def pending(self) -> Iterator[PendingRequest]:
        yield from self._pending.values()

    def like(self, signed: SignedContract) -> TradedTask | None:
        """What was asked for last under a contract."""
        return self._likes.get(signed.key)

    def admits(self, now_us: int, partner: str, number: int, name: str) -> TradeReason | None:
        """Whether room is kept for a task that is about to arrive; None: it is."""
        sale = self._sales.get((partner, number))
        if sale is None or sale.state is not _S.AGREED or now_us >= sale.deadline_us:
            return TradeReason.LATE
        return None if name in sale.tasks else TradeReason.TASK_NOT_ALLOWED

    def reached(self, now_us: int, partner: str) -> None:
        """A partner is reached again: if tasks of his didn't come for which room was kept, he may ask now."""
        self._distrust.eased(now_us, ("absent", partner))

    # --- what a consumer says -------------------------------------------------------------------

    def on_request(self, now_us: int, partner: str, message: LoadRequest) -> None:
        """Raises RemoteProtocolError: it names no task, or one twice."""
        key = partner, message.negotiation
        if not message.tasks or len({task.name for task in message.tasks}) != len(message.tasks):
            raise RemoteProtocolError(
                "a request names no task, or one twice",
                peer=partner,
                code=TradeReason.TASK_NOT_ALLOWED.value,
            )
        sale = self._sales.get(key)
        bid = sale is not None and sale.state is _S.OFFERED and message.price_micro != sale.asked_micro
        if sale is not None and not bid:
            self._say(now_us, sale)
            return
        if key in self._pending:
            return
        code = self._ended.get(partner, {}).get(message.negotiation)
        if code is None and message.negotiation <= self._floor.get(partner, -1):
            code = TradeReason.LATE.value
        if code is not None:
            self._refuse(now_us, partner, message, code, log=False)
            return
        signed = self._contracts.in_force(now_us, partner, message.contract)
        if signed is None or signed.consumes or signed.contract.version != message.version:
            self._refuse(now_us, partner, message, TradeReason.NO_CONTRACT)
            return
        contract = signed.contract
        if not contract.least_micro <= message.price_micro <= contract.price_micro:
            self._refuse(now_us, partner, message, TradeReason.PRICE)
        elif self._distrust.rests(now_us, ("understates", partner)):
            self._refuse(now_us, partner, message, TradeReason.UNDERSTATED)
        elif (
            self._distrust.rests(now_us, ("absent", partner))
            or sum(each[0] == partner for each in self._pending) >= PENDING_MAX
        ):
            self._refuse(now_us, partner, message, TradeReason.BUSY)
        elif sale is None and _is_planned(signed, message):
            self._come_by_plan(now_us, signed, message)
        else:
            if sale is not None:
                sale.step(_E.REQUEST)
                del self._sales[key], self._rooms[key]
                self._books.free_room(key)
            self._likes[signed.key] = message.tasks[0]
            within_us = min(message.within_us, _WITHIN_MAX_US)
            self._pending[key] = PendingRequest(
                signed=signed,
                request=message,
                came_us=now_us,
                expires_us=now_us + within_us * 3 // 4,
                bid=bid,
            )

    def _come_by_plan(self, now_us: int, signed: SignedContract, message: LoadRequest) -> None:
        """What it costs was settled when the contract was signed. Whether it may come at all is asked as of
        any other, and its most load counts. A task has room once: a partner can't take it without end."""
        for task in message.tasks:
            if (reason := self._judge.forbidden(signed, task)) is not None:
                self._refuse(now_us, signed.partner, message, reason)
                return
        sale = Sale(
            number=message.negotiation,
            signed=signed,
            tasks={},
            price_micro=message.price_micro,
            deadline_us=0,
        )
        units = self._books.all_units_taken().get(signed.key, 0.0)
        units += sum(signed.units_per_s(task) for task in message.tasks)
        if units * 1_000 > signed.contract.units_per_s_max_milli:
            self._refuse(now_us, signed.partner, message, TradeReason.OVER_LIMIT)
            return
        self._sales[sale.key] = self._rooms[sale.key] = sale
        self._agree(now_us, sale, message.tasks)

    def on_accepted(self, now_us: int, partner: str, message: LoadAccepted) -> None:
        """Raises RemoteProtocolError: that wasn't offered."""
        sale = self._sales.get((partner, message.negotiation))
        if sale is None:
            self._void(partner, message.contract, message.version, message.negotiation)
            return
        if sale.state is not _S.OFFERED:
            self._check(sale, partner, message.contract, ())
            self._say(now_us, sale)
            return
        self._check(sale, partner, message.contract, message.tasks)
        if message.price_micro != sale.price_micro or not message.tasks:
            raise RemoteProtocolError(
                f"{len(message.tasks)} tasks are accepted at {message.price_micro}, and"
                f" {sale.price_micro} was offered",
                peer=partner,
                code=TradeReason.PRICE.value,
            )
        if not self._contracts.still_holds(now_us, sale.signed):
            self._end(now_us, sale, TradeReason.ENDED)
            return
        wanted = [sale.tasks[name] for name in message.tasks]
        found = self._judge.judge(
            sale.signed,
            wanted,
            sale.price_micro,
            without=self._books.kept(sale.key),
            units_without=sum(sale.signed.units_per_s(task) for task in sale.tasks.values()),
            known=True,
        )
        if not found.taken:
            self._end(now_us, sale, found.reason)
            return
        self._agree(now_us, sale, found.taken)

    def on_moved(self, now_us: int, partner: str, message: LoadMoved) -> None:
        """Raises RemoteProtocolError: a task for which no room was kept."""
        key = partner, message.negotiation
        sale = self._sales.get(key)
        if sale is not None:
            again = sale.state is _S.FINALIZED
            self._check(sale, partner, message.contract, () if again else message.tasks)
        if sale is not None and sale.state is _S.AGREED and now_us >= sale.deadline_us:
            self._expire(now_us, sale)
            sale = None
        if sale is None or sale.state is _S.OFFERED:
            for name in message.tasks:
                self._guests.give_stray(now_us, name)
            self._void(partner, message.contract, message.version, message.negotiation, message.tasks)
            return
        if sale.state is _S.FINALIZED:
            self._say(now_us, sale)
            return
        stayed = [name for name in sale.tasks if name not in message.tasks]
        tasks = dict(sale.tasks)
        if not message.tasks:
            self._end(now_us, sale, TradeReason.FAILED, say=False)
            return
        sale.is_moved(message.tasks)
        del self._rooms[key]
        self._books.free_room(key)
        for name in stayed:
            self._guests.stray(now_us, name, sale.signed, sale.number)
        for name in message.tasks:
            self._guests.settle(now_us, sale.signed, sale.number, sale.price_micro, tasks[name])
        self._distrust.succeeded(("absent", partner))
        if self._floors.pop(sale.signed.key, None) is not None:
            self._distrust.succeeded(("chain", partner))
        self._say(now_us, sale)
        self._note(now_us, "runs", sale, message.tasks)

    def on_ended(self, now_us: int, partner: str, message: LoadEnded) -> None:
        """The consumer withdraws, or calls tasks back. What it calls back is confirmed."""
        key = partner, message.negotiation
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._remember(key, message.code)
            return
        sale = self._sales.get(key)
        if sale is not None:
            self._check(sale, partner, message.contract, ())
        if sale is None:
            if message.tasks:
                for name in message.tasks:
                    self._guests.give_stray(now_us, name)
                self._void(
                    partner,
                    message.contract,
                    message.version,
                    message.negotiation,
                    message.tasks,
                    TradeReason.GONE,
                )
            elif message.negotiation not in self._ended.get(partner, {}):
                self._remember(key, message.code)
            return
        if sale.state is not _S.FINALIZED:
            self._end(now_us, sale, message.code, say=False)
            return
        for name in message.tasks or tuple(sale.tasks):
            guest = self._books.guests.get((name, sale.signed.contract.shadow))
            if guest is None or guest.number != sale.number or guest.signed.key != sale.signed.key:
                self._void(
                    partner,
                    message.contract,
                    message.version,
                    message.negotiation,
                    (name,),
                    TradeReason.GONE,
                )
            else:
                self._guests.give_back(now_us, guest, message.code, message.text)

    # --- restarts -------------------------------------------------------------------------------

    def kept(self) -> Iterator[KeptDeal]:
        """What has to outlive a restart."""
        for sale in self._rooms.values():
            contract = sale.signed.contract
            for task in sale.tasks.values() if sale.state is _S.AGREED and not contract.shadow else ():
                yield KeptDeal(
                    part="room",
                    partner=sale.signed.partner,
                    task=task,
                    contract=contract,
                    negotiation=sale.number,
                    price_micro=sale.price_micro,
                    nano=nano_units_per_row(task.cpu_ns_per_row, task.bytes_per_row, contract.bytes_per_unit),
                    since_us=0,
                )
        yield from self._guests.kept()

    def resume(self, now_us: int, deals: Iterable[KeptDeal]) -> None:
        """Go on after a restart: room is kept anew, and what was to go back goes."""
        for deal in deals:
            signed = SignedContract(contract=deal.contract, partner=deal.partner, consumes=False)
            sale = self._sales.get((deal.partner, deal.negotiation))
            if sale is None:
                sale = Sale(
                    number=deal.negotiation,
                    signed=signed,
                    tasks={},
                    price_micro=deal.price_micro,
                    deadline_us=now_us + self._settings.room_us,
                )
                self._sales[sale.key] = sale
            sale.resumes(deal)
            if sale.state is _S.AGREED:
                self._rooms[sale.key] = sale
            if deal.part == "room":
                self._books.keep_room(sale.key, signed, deal.price_micro, tuple(sale.tasks.values()))
                continue
            guest = self._guests.settle(now_us, signed, sale.number, sale.price_micro, deal.task)
            if deal.back:
                self._guests.give_back(now_us, guest, deal.back, reason_text(deal.back))

    # --- answering ------------------------------------------------------------------------------

    def answer(self, now_us: int) -> None:
        """Those that have waited for others, the best paid first. One that finds another move under way
        stays until it expires."""
        if not self._pending or now_us < min(map(self._due_us, self._pending.values())):
            return
        order = sorted(
            self._pending.items(), key=lambda each: (-each[1].request.price_micro, each[1].came_us)
        )
        for key, pending in order:
            free = self._moves_free()
            if now_us >= pending.expires_us and not free:
                del self._pending[key]
                self._refuse(now_us, key[0], pending.request, TradeReason.BUSY)
            elif free:
                del self._pending[key]
                self._answer(now_us, pending)

    def _due_us(self, pending: PendingRequest) -> int:
        return min(pending.came_us + self._settings.gather_us, pending.expires_us)

    def _answer(self, now_us: int, pending: PendingRequest) -> None:
        signed, request = pending.signed, pending.request
        partner = signed.partner
        if not self._contracts.still_holds(now_us, signed):
            self._refuse(now_us, partner, request, TradeReason.NO_CONTRACT)
            return
        floor = 0 if signed.contract.shadow else self.floor_micro(now_us)
        found = self._judge.judge(signed, request.tasks, request.price_micro, floor_micro=floor)
        sale = Sale(
            number=request.negotiation,
            signed=signed,
            tasks={},
            price_micro=request.price_micro,
            deadline_us=0,
        )
        if found.taken:
            self._sales[sale.key] = self._rooms[sale.key] = sale
            self._agree(now_us, sale, found.taken)
            return
        if found.dearest is not None and not pending.bid:
            dearer = self._judge.judge(signed, request.tasks, found.dearest)
            if dearer.taken:
                self._offer(now_us, sale, dearer.taken, found.dearest)
                return
        chain = None
        if found.reason in (TradeReason.TOO_DEAR, TradeReason.FULL) and not signed.contract.shadow:
            wanted = next(task for task in request.tasks if task.name in found.refused)
            chain = self._chain(now_us, signed, wanted, request.price_micro)
        if chain is None:
            self._refuse(now_us, partner, request, found.reason)
            return
        # Its consumer hears of the room once that is there, and asks again.
        self._refuse(now_us, partner, request, TradeReason.PASSING_ON)
        self._distrust.failed(now_us, ("chain", partner))
        self._floors[signed.key] = request.price_micro, now_us + self._settings.hold_us
        self._pass_on(now_us, chain)

    def passed_on(self, now_us: int, by: SignedContract, went: bool) -> None:
        """What came of a task that was to make room for one that comes by this contract: that is expected for
        so long as the first one may be kept away, or not at all."""
        floor_micro, _ = self._floors.get(by.key, (0, 0))
        if went and floor_micro:
            self._floors[by.key] = floor_micro, now_us + self._settings.chain_us
        elif not went:
            self._floors.pop(by.key, None)

    def floor_micro(self, now_us: int) -> int:
        """What a unit has to bring at least, whoever brings it: what was bid where a task was passed on to
        make room; and what is paid for one that would be cheaper here, and is only held. Sold for less, the
        room would cost more than it earns for as long as both stay. 0: anything."""
        bids = (bid_micro for bid_micro, until_us in self._floors.values() if now_us < until_us)
        return max(max(bids, default=0), self._held_micro())

    def _chain(
        self, now_us: int, signed: SignedContract, wanted: TradedTask, pays_micro: int
    ) -> ChainedMove | None:
        """A task to pass on for less, so that this one can come. A consumer for whom that was done, and who
        didn't come then, rests."""
        if not self._asks_free() or self._distrust.rests(now_us, ("chain", signed.partner)):
            return None
        if self.expects_until_us(now_us) is not None:
            return None
        return self._chains.find(now_us, signed, wanted, pays_micro)

    def expects_until_us(self, now_us: int) -> int | None:
        """Up to when a consumer may come for whom room was made; None: nobody is expected."""
        times = [until_us for _, until_us in self._floors.values() if until_us > now_us]
        return max(times, default=None)

    def _offer(self, now_us: int, sale: Sale, taken: tuple[TradedTask, ...], price_micro: int) -> None:
        sale.step(_E.OFFER)
        offered = Sale(
            number=sale.number,
            signed=sale.signed,
            tasks={task.name: task for task in taken},
            price_micro=price_micro,
            asked_micro=sale.price_micro,
            deadline_us=now_us + self._settings.answer_us * 2,
            state=sale.state,
        )
        self._sales[offered.key] = self._rooms[offered.key] = offered
        self._books.keep_room(offered.key, offered.signed, price_micro, taken)
        self._say(now_us, offered)
        self._note(now_us, "countered", offered, tuple(offered.tasks))

    def _agree(self, now_us: int, sale: Sale, taken: tuple[TradedTask, ...]) -> None:
        sale.is_agreed({task.name: task for task in taken}, now_us + self._settings.room_us)
        self._books.keep_room(sale.key, sale.signed, sale.price_micro, taken)
        for name in sale.tasks:
            self._guests.welcome(name)
        self._say(now_us, sale)
        self._note(now_us, "agreed", sale, tuple(sale.tasks))

    def _say(self, now_us: int, sale: Sale) -> None:
        """The answer, for the first time or again."""
        contract = sale.signed.contract
        about: dict[str, Any] = {
            "contract": contract.id,
            "version": contract.version,
            "negotiation": sale.number,
        }
        left_us = max(sale.deadline_us - now_us, 0)
        if sale.state is _S.OFFERED:
            self._effects.say(
                sale.signed.partner,
                LoadOffer(**about, tasks=tuple(sale.tasks), price_micro=sale.price_micro, within_us=left_us),
            )
        elif sale.state is _S.AGREED:
            self._effects.say(
                sale.signed.partner,
                LoadAgreed(
                    **about,
                    tasks=tuple(sale.tasks),
                    nano_units_per_row=tuple(
                        nano_units_per_row(task.cpu_ns_per_row, task.bytes_per_row, contract.bytes_per_unit)
                        for task in sale.tasks.values()
                    ),
                    price_micro=sale.price_micro,
                    within_us=left_us,
                ),
            )
        elif sale.state is _S.FINALIZED:
            self._effects.say(sale.signed.partner, LoadRuns(**about, tasks=tuple(sale.tasks)))

    def _left(self, now_us: int, guest: GuestTask) -> None:
        """It is no guest any more; its negotiation is over with the last one."""
        sale = self._sales.get((guest.partner, guest.number))
        if sale is None or sale.state is not _S.FINALIZED:
            return
        sale.tasks.pop(guest.task.name, None)
        if not sale.tasks:
            self._end(now_us, sale, guest.leaving or TradeReason.GONE, say=False)

    def contract_over(self, now_us: int, signed: SignedContract, keep: SignedContract | None) -> None:
        """It has ended, was revoked, or replaced: what runs by it goes home.

        Args:
            keep: the version in its place: what that allows at this price stays.
        """
        for key, pending in list(self._pending.items()):
            if pending.signed.key == signed.key:
                del self._pending[key]
                self._refuse(now_us, key[0], pending.request, TradeReason.ENDED)
        for sale in list(self._rooms.values()):
            if sale.signed.key == signed.key:
                self._end(now_us, sale, TradeReason.ENDED)
        self._guests.contract_over(now_us, signed, keep)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Room that wasn't used in time is free."""
        for sale in list(self._rooms.values()):
            if now_us >= sale.deadline_us:
                self._expire(now_us, sale)

    def _expire(self, now_us: int, sale: Sale) -> None:
        if sale.state is _S.AGREED:
            self._distrust.failed(now_us, ("absent", sale.signed.partner))
        self._end(now_us, sale, TradeReason.TIMEOUT)

    def wake_at_us(self) -> int | None:
        free = self._moves_free()
        times = [self._due_us(each) if free else each.expires_us for each in self._pending.values()]
        times += [each.deadline_us for each in self._rooms.values()]
        return min(times, default=None)

    # --- ends -----------------------------------------------------------------------------------

    def _end(self, now_us: int, sale: Sale, reason: TradeReason | str, *, say: bool = True) -> None:
        code = reason.value if isinstance(reason, TradeReason) else reason
        was_agreed = sale.state is _S.AGREED
        sale.step(_E.TERMINATE)
        del self._sales[sale.key]
        self._rooms.pop(sale.key, None)
        self._books.free_room(sale.key)
        self._remember(sale.key, code)
        self._note(now_us, "ended", sale, tuple(sale.tasks), code=code)
        contract = sale.signed.contract
        if say:
            self._void(sale.signed.partner, contract.id, contract.version, sale.number, (), code)
        if was_agreed and not contract.shadow:
            for name in sale.tasks:
                self._guests.stray(now_us, name, sale.signed, sale.number)

    def _remember(self, key: tuple[str, int], code: str) -> None:
        ended = self._ended.setdefault(key[0], {})
        ended[key[1]] = code
        while len(ended) > ENDED_MAX:
            oldest = next(iter(ended))
            del ended[oldest]
            self._floor[key[0]] = max(self._floor.get(key[0], -1), oldest)

    def _refuse(
        self,
        now_us: int,
        partner: str,
        request: LoadRequest,
        reason: TradeReason | str,
        *,
        log: bool = True,
    ) -> None:
        code = reason.value if isinstance(reason, TradeReason) else reason
        if log:
            self._remember((partner, request.negotiation), code)
            self._log.note(
                now_us,
                "refused",
                partner,
                request.contract,
                negotiation=request.negotiation,
                tasks=tuple(task.name for task in request.tasks),
                price_micro=request.price_micro,
                code=code,
            )
        self._void(partner, request.contract, request.version, request.negotiation, (), code)

    def _void(
        self,
        partner: str,
        contract: str,
        version: int,
        negotiation: int,
        tasks: tuple[str, ...] = (),
        reason: TradeReason | str = TradeReason.LATE,
    ) -> None:
        code = reason.value if isinstance(reason, TradeReason) else reason
        self._effects.say(
            partner,
            LoadEnded(
                contract=contract,
                version=version,
                negotiation=negotiation,
                code=code,
                tasks=tasks,
                text=reason_text(code),
            ),
        )

    def _check(self, sale: Sale, partner: str, contract: str, names: tuple[str, ...]) -> None:
        known = sale.names if sale.state is _S.FINALIZED else tuple(sale.tasks)
        strange = [name for name in names if name not in known]
        if sale.signed.contract.id != contract or strange or len(set(names)) != len(names):
            raise RemoteProtocolError(
                f"negotiation {sale.number} isn't about contract {contract!r} and tasks {strange[:5]}",
                peer=partner,
                code=TradeReason.TASK_NOT_ALLOWED.value,
            )

    def _note(
        self, now_us: int, step: TradeStep, sale: Sale, tasks: tuple[str, ...], *, code: str = ""
    ) -> None:
        self._log.note(
            now_us,
            step,
            sale.signed.partner,
            sale.signed.contract.id,
            negotiation=sale.number,
            tasks=tasks,
            price_micro=sale.price_micro,
            code=code,
        )


def _is_planned(signed: SignedContract, message: LoadRequest) -> bool:
    """Whether the contract says that these tasks may come for this price, at a signal."""
    prices = {signed.contract.planned_micro(task.name) for task in message.tasks}
    return prices == {message.price_micro}
