"""One participant's mind: the only door to the negotiation. What is to be done is in its effects, in order.

The protocol is that of Medusa's bounded prices (NSDI 2004); docs/negotiation.md says where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.cost import CostFunction, check_convex
from medusa.market.negotiation.answers import AnswerJudge
from medusa.market.negotiation.aways import AwayKeeper
from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.chains import ChainedMove, ChainFinder
from medusa.market.negotiation.consumer import LoadConsumer
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.decisions import TradeLog
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.explaining import TradeExplainer
from medusa.market.negotiation.guests import GuestKeeper
from medusa.market.negotiation.heralds import PriceHerald
from medusa.market.negotiation.kept import KeptTrades
from medusa.market.negotiation.messages import (
    LoadAccepted,
    LoadAgreed,
    LoadEnded,
    LoadMessage,
    LoadMoved,
    LoadOffer,
    LoadRequest,
    LoadRuns,
    PriceSaid,
)
from medusa.market.negotiation.policies import LoadPolicy
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.provider import LoadProvider
from medusa.market.negotiation.reasons import TradeReason
from medusa.market.negotiation.requests import RequestPlanner
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.status import PlannedMove, TraderStatus, WhyNot
from medusa.market.work import ResourceUse, TradedTask

__all__ = ["Trader"]

ONE_CORE = ResourceUse(cpu_cores=1.0)
"""Where no capacity is declared the cost is looked at up to twice that."""


class Trader:
    """Consumer and provider at once. The caller drives it: every call has the time, never before the last.

    Args:
        name: of the participant, as contracts have it.
        cost: private: what load costs here, in micro-units of money a second.
        policy: the owner's; None: the paper's.
        effects: where what is to be done is put.
        pick: a number in [0, n), at random, for jitter and the order among equals.

    Raises:
        ContractError: the cost isn't convex, up to twice the declared capacity (or two cores).
    """

    def __init__(
        self,
        name: str,
        cost: CostFunction,
        *,
        policy: LoadPolicy | None = None,
        settings: TradeSettings | None = None,
        effects: TradeEffects,
        pick: Callable[[int], int],
    ) -> None:
        self.name = name
        settings, policy = settings or TradeSettings(), policy or LoadPolicy()
        self._policy = policy
        check_convex(cost, settings.capacity or ONE_CORE)
        self._settings, self._pick = settings, pick
        self._away_partners: dict[str, None] = {}
        self._contracts = ContractBook(name)
        self._books = LoadBooks(cost, settings.capacity)
        self._prices = PriceBoard(settings.memory_us, settings.price_steps)
        self._rests = Backoff(settings.backoff_us, settings.backoff_max_us, pick)
        log = TradeLog(effects, settings.decisions)
        judge = AnswerJudge(name, settings, books=self._books, policy=policy)
        self._planner = RequestPlanner(
            name,
            settings,
            books=self._books,
            contracts=self._contracts,
            prices=self._prices,
            policy=policy,
            rests=self._rests,
            reachable=self._reachable,
            pick=pick,
        )
        chains = ChainFinder(
            settings,
            books=self._books,
            prices=self._prices,
            planner=self._planner,
            busy=self._busy,
        )
        self._aways = AwayKeeper(
            settings, books=self._books, log=log, effects=effects, reachable=self._reachable
        )
        self._consumer = LoadConsumer(
            settings,
            books=self._books,
            contracts=self._contracts,
            prices=self._prices,
            planner=self._planner,
            chains=chains,
            aways=self._aways,
            rests=self._rests,
            log=log,
            effects=effects,
            reachable=self._reachable,
        )
        distrust = Backoff(settings.backoff_us * 8, settings.backoff_max_us * 8, pick)
        self._guests = GuestKeeper(
            settings,
            books=self._books,
            distrust=distrust,
            log=log,
            effects=effects,
            call_back=self._call_back,
        )
        self._provider = LoadProvider(
            settings,
            books=self._books,
            contracts=self._contracts,
            judge=judge,
            guests=self._guests,
            distrust=distrust,
            log=log,
            effects=effects,
            chains=chains,
            moves_free=self._moves_free,
            asks_free=self._asks_free,
            pass_on=self._pass_on,
            held_micro=self._aways.held_micro,
        )
        self._consumer.listen(self._provider.passed_on)
        self._herald = PriceHerald(
            settings,
            contracts=self._contracts,
            judge=judge,
            chains=chains,
            effects=effects,
            like=self._provider.like,
            floor_micro=self._provider.floor_micro,
            reachable=self._reachable,
        )
        self._explainer = TradeExplainer(
            name,
            settings,
            books=self._books,
            contracts=self._contracts,
            prices=self._prices,
            planner=self._planner,
            consumer=self._consumer,
            provider=self._provider,
            herald=self._herald,
            rests=self._rests,
            log=log,
            reachable=self._reachable,
        )
        self._round_us: int | None = None
        self._noticed_us = -settings.heartbeat_us
        self._last_round_us = -settings.round_us
        self._period_us: int | None = None
        self._counted: dict[tuple[str, str], SignedContract] = {}

    def _reachable(self, partner: str) -> bool:
        return partner not in self._away_partners

    def _moves_free(self) -> bool:
        """Whether one may begin. None does before the load of this machine is known."""
        return self._books.known and self._consumer.moving + self._provider.moving < self._settings.moves_max

    def _asks_free(self) -> bool:
        return self._consumer.asking < self._settings.offers_max

    def _busy(self) -> set[str]:
        return self._consumer.busy().union(self._books.all_moving())

    def _pass_on(self, now_us: int, chain: ChainedMove) -> None:
        self._consumer.make_room(now_us, chain)

    def _call_back(self, now_us: int, name: str, code: str) -> None:
        self._aways.recall(now_us, (name, False), code)

    # --- contracts ------------------------------------------------------------------------------

    def sign(self, now_us: int, contract: Contract) -> None:
        """A contract of this participant is in force from its begin on. A newer version takes the place of
        the one before once it begins: what runs by that stays where the new one allows it at its price.

        Raises:
            ContractError: it isn't ours, contradicts itself, or can't follow what is known.
        """
        signed = self._contracts.sign(contract)
        if signed is None:
            return
        self._periods(now_us)
        self._herald.changed(now_us)
        self._look(now_us)

    def revoke(self, now_us: int, contract_id: str, partner: str, ends_us: int | None = None) -> None:
        """It is over once its notice is: what runs by it goes home then. Nothing happens where there is none.

        Args:
            ends_us: when, as the revocation says; None: the notice begins now.
        """
        if self._contracts.revoke(now_us, partner, contract_id, ends_us) is not None:
            self._periods(now_us)

    def _periods(self, now_us: int) -> None:
        """See which contracts count now."""
        for key, signed in list(self._counted.items()):
            if self._contracts.in_force(now_us, *key) is None:
                del self._counted[key]
                self._over(now_us, signed, None)
        for signed in self._contracts.counting(now_us):
            before = self._counted.get(signed.key)
            if before == signed:
                continue
            self._counted[signed.key] = signed
            if before is not None:
                self._prices.forget(before)
                self._over(now_us, before, signed)
            self._herald.changed(now_us)
            self._look(now_us)
        self._period_us = self._contracts.changes_at_us(now_us)

    def _over(self, now_us: int, signed: SignedContract, keep: SignedContract | None) -> None:
        self._consumer.contract_over(now_us, signed, keep)
        self._provider.contract_over(now_us, signed, keep)

    # --- restarts -------------------------------------------------------------------------------

    def kept(self) -> KeptTrades:
        """What has to outlive a restart. A driver that can be restarted has it on disk before it does what
        the effects say."""
        return KeptTrades(
            number=self._consumer.number, deals=(*self._consumer.kept(), *self._provider.kept())
        )

    def resume(self, now_us: int, kept: KeptTrades) -> None:
        """Go on after a restart, once the contracts are signed and before anything else. The driver still
        answers each ``HandOver`` from before, and is told each ``HandBack`` again."""
        parts = {
            part: [each for each in kept.deals if each.part in names]
            for part, names in (("ours", ("moving", "away")), ("theirs", ("room", "guest")))
        }
        self._consumer.resume(now_us, kept.number, parts["ours"])
        self._provider.resume(now_us, parts["theirs"])
        for deal in kept.deals:
            counts = self._contracts.in_force(now_us, deal.partner, deal.contract.id)
            if counts is None or not (
                counts.allows(deal.task)
                and counts.contract.least_micro <= deal.price_micro <= counts.contract.price_micro
            ):
                signed = SignedContract(
                    contract=deal.contract, partner=deal.partner, consumes=deal.part in ("moving", "away")
                )
                self._over(now_us, signed, counts)

    # --- what was agreed beforehand -------------------------------------------------------------

    def go_by_plan(self, now_us: int, partner: str, task: str) -> int | None:
        """A signal: a task goes to a partner, as a contract in force says that it may; the number of the
        negotiation, or None: no contract says so, it isn't here, isn't measured yet, is on its way, or the
        policy has it stay."""
        found = self._books.task(task)
        if found is None or task in self._busy() or not self._reachable(partner):
            return None
        if not self._policy.may_move(found, partner):
            return None
        for signed in self._contracts.consuming(now_us):
            price_micro = signed.contract.planned_micro(task)
            if signed.partner == partner and price_micro is not None and not signed.contract.shadow:
                return self._consumer.go_by_plan(now_us, signed, found, price_micro)
        return None

    def planned_at(self, now_us: int, partner: str, task: str) -> bool:
        """Whether a contract in force says that a task may go to a partner at a signal."""
        return any(
            signed.partner == partner and signed.contract.planned_micro(task) is not None
            for signed in self._contracts.consuming(now_us)
        )

    def ended(self, negotiation: int) -> str | None:
        """The code with which a negotiation of ours ended; None: it goes on, or isn't known."""
        return self._consumer.ended(negotiation)

    def come_by_plan(self, now_us: int, task: str) -> bool:
        """A signal: a task that went so comes home; False: none did."""
        away = self._books.away.get((task, False))
        if away is None or not away.planned:
            return False
        self._aways.recall(now_us, (task, False), TradeReason.SIGNAL)
        return True

    # --- what the driver knows ------------------------------------------------------------------

    def measured(
        self,
        now_us: int,
        tasks: Sequence[TradedTask],
        idle: ResourceUse | None = None,
        *,
        away: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """All tasks that run here now, our own and guests, as they are measured; a task that was handed
        over is none any more.

        Args:
            idle: what the machine bears beside them.
            away: rows a second, times 1,000, that come to tasks that are away, where they are counted here.
        """
        self._books.reckon(now_us)
        changed = self._books.measured(tasks, idle or ResourceUse())
        changed = self._books.measured_away(away) or changed
        for task in tasks:
            if (task.name, False) in self._books.away and not self._books.moving(task.name):
                self._home(now_us, task.name)
        self._guests.measured(now_us)
        if changed or now_us >= self._noticed_us + self._settings.heartbeat_us:
            self._noticed_us = now_us
            self._herald.changed(now_us)
            self._look(now_us)

    def _home(self, now_us: int, name: str) -> None:
        self._aways.home(now_us, name)
        self._guests.back_here(now_us, name)

    def partner(self, now_us: int, partner: str, *, reachable: bool) -> None:
        """Whether a partner can be reached. Tasks that run there count as away either way, until they are
        measured here, or ``handed_back``."""
        if reachable and partner in self._away_partners:
            del self._away_partners[partner]
            # That he didn't answer, or didn't come, may have been the network's fault.
            for signed in self._contracts.consuming(now_us):
                if signed.partner == partner:
                    self._rests.eased(now_us, signed.key)
            self._provider.reached(now_us, partner)
            self._herald.changed(now_us)
            self._look(now_us)
        elif not reachable and partner not in self._away_partners:
            self._away_partners[partner] = None
            self._consumer.unreachable(now_us, partner)
            self._look(now_us)

    def handed_over(self, now_us: int, negotiation: int, task: str, *, why: str = "") -> None:
        """The answer to ``HandOver``: it runs there now, or, with ``why``, it stayed.

        Raises:
            LocalProtocolError: that wasn't to be done.
        """
        self._consumer.handed_over(now_us, negotiation, task, why)
        self._herald.changed(now_us)
        self._look(now_us)

    def handed_back(self, now_us: int, task: str) -> None:
        """The answer to ``HandBack``: its owner has it, or has given it up. And for a task of ours that is
        away: it is home, or is given up. Of what isn't known any more, as after a restart, it is no news."""
        if (task, False) in self._books.away:
            self._home(now_us, task)
        else:
            self._guests.handed_back(now_us, task)
        self._herald.changed(now_us)
        self._look(now_us)

    def admits(self, now_us: int, partner: str, negotiation: int, task: str) -> TradeReason | None:
        """For a driver, before it lets a task of a partner in: None if room is kept for it, else why not."""
        return self._provider.admits(now_us, partner, negotiation, task)

    # --- partners -------------------------------------------------------------------------------

    def receive(self, now_us: int, partner: str, message: LoadMessage) -> None:
        """Take what a partner says. One that comes again has the effect of one.

        Raises:
            RemoteProtocolError: it breaks a rule of the protocol; nothing has changed.
        """
        match message:
            case LoadRequest():
                self._provider.on_request(now_us, partner, message)
            case LoadOffer():
                self._consumer.on_offer(now_us, partner, message)
            case LoadAccepted():
                self._provider.on_accepted(now_us, partner, message)
            case LoadAgreed():
                self._consumer.on_agreed(now_us, partner, message)
            case LoadMoved():
                self._provider.on_moved(now_us, partner, message)
            case LoadRuns():
                self._consumer.on_runs(now_us, partner, message)
            case LoadEnded():
                self._on_ended(now_us, partner, message)
            case PriceSaid():
                self._on_price(now_us, partner, message)
                return
        self._look(now_us)

    def _on_ended(self, now_us: int, partner: str, message: LoadEnded) -> None:
        """The number is the consumer's: whose it is tells the contract."""
        signed = self._contracts.find(partner, message.contract)
        if signed is not None and not signed.consumes:
            self._provider.on_ended(now_us, partner, message)
        elif signed is not None:
            self._consumer.on_ended(now_us, partner, message)
        else:
            # It was revoked here. What it is about is known all the same, by its number.
            if self._consumer.knows(partner, message):
                self._consumer.on_ended(now_us, partner, message)
            if self._provider.knows(partner, message):
                self._provider.on_ended(now_us, partner, message)
        self._herald.changed(now_us)

    def _on_price(self, now_us: int, partner: str, message: PriceSaid) -> None:
        signed = self._contracts.in_force(now_us, partner, message.contract)
        if signed is None or signed.contract.version != message.version:
            return
        contract = signed.contract
        if not signed.consumes or not contract.least_micro <= message.price_micro <= contract.price_micro:
            raise RemoteProtocolError(
                f"a price of {message.price_micro} under contract {contract.id!r}: its provider may say from"
                f" {contract.least_micro} to {contract.price_micro}",
                peer=partner,
                code=TradeReason.PRICE.value,
            )
        if self._prices.heard(now_us, signed, message.price_micro, message.units_per_s_milli):
            self._rests.eased(now_us, signed.key)
            self._look(now_us)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        if self._period_us is not None and now_us >= self._period_us:
            self._periods(now_us)
        self._consumer.tick(now_us)
        self._provider.tick(now_us)
        self._provider.answer(now_us)
        if self._round_us is not None and now_us >= self._round_us:
            self._round(now_us)
        if self._books.known:
            self._herald.tick(now_us)

    def _look(self, now_us: int) -> None:
        """Something has changed: have a round, a while after the last one."""
        soon_us = max(now_us, self._last_round_us + self._settings.round_us)
        if self._round_us is None or soon_us + self._settings.round_us < self._round_us:
            self._round_us = soon_us + self._pick(self._settings.round_us // 4 + 1)

    def _round(self, now_us: int) -> None:
        """Look once whether anything is worth moving. What waits for a time is looked at again then."""
        self._round_us, self._last_round_us = None, now_us
        again_us = [self._guests.shed(now_us)]
        # Room that was made for a consumer isn't filled again before it can come.
        expects_us = self._provider.expects_until_us(now_us)
        again_us.append(expects_us if expects_us is not None else self._aways.call_home(now_us))
        started = False
        if self._moves_free() and self._asks_free():
            plan = next(self._planner.plan(now_us, self._busy()), None)
            if plan is not None:
                self._consumer.ask(now_us, plan)
                started = True
            else:
                again_us.append(self._planner.look_again_us(now_us))
        if started or self._consumer.asking or not self._moves_free():
            again_us.append(now_us + self._settings.round_us + self._pick(self._settings.round_us // 4 + 1))
        times = [each for each in again_us if each is not None]
        if times:
            self._round_us = max(min(times), now_us + 1)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has something to do; None: not before something happens."""
        times = (
            self._round_us,
            self._period_us,
            self._consumer.wake_at_us(),
            self._provider.wake_at_us(),
            self._herald.wake_at_us() if self._books.known else None,
        )
        return min((each for each in times if each is not None), default=None)

    # --- questions ------------------------------------------------------------------------------

    def status(self, now_us: int) -> TraderStatus:
        return self._explainer.status(now_us)

    def dry_run(self, now_us: int) -> tuple[list[PlannedMove], list[WhyNot]]:
        """What would be offered now, each on its own; and for each task and contract why not."""
        return self._explainer.dry_run(now_us)

    def explain(self, now_us: int, task: str = "", partner: str = "") -> Iterator[str]:
        """Why something did or did not move, in sentences: of a task, of a partner, or of all."""
        return self._explainer.explain(now_us, task, partner)
