"""Fragments as a trader sees them: what is agreed, what may move, and what has moved.

What the trader has agreed on (its *deals*) is compared with where fragments are, again and again: a fragment
that is at a partner was handed over, one that isn't any more has come home. So it makes no difference whether
a word about it was lost, or who has died since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from medusa.errors import LinkError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import StopWork
from medusa.market.negotiation.effects import HandBack, HandOver, TradeEffect, TradeEffects
from medusa.market.negotiation.kept import KeptDeal, KeptTrades, Part
from medusa.market.negotiation.messages import LoadMessage
from medusa.market.negotiation.settings import PPM, TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse, TradedTask
from medusa.nodes.config.settings_market import MarketRules, cost_function
from medusa.nodes.deploy.admission import ClusterNow
from medusa.nodes.market.contended_cost import ContendedCost
from medusa.nodes.market.dice import Dice
from medusa.nodes.market.measured_tasks import AwayRates, KnownLoads, MeasuredTasks, fragment_of, task_of
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.market.task_policy import TaskPolicy, terms_against
from medusa.nodes.market.tasks_port import (
    FragmentAway,
    HostedGuest,
    TaskHome,
    TaskMoves,
    TaskPermit,
    TaskStayed,
)
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.outbox import Outbox

__all__ = ["OwnFragments", "TradedTasks"]

OwnFragments: TypeAlias = Callable[[], Mapping[str, FragmentSpec]]
"""The fragments of our participant that run at this node, by name."""

RECALL_US = 10_000_000
"""What is to come home and doesn't is ordered home again."""

CHECKPOINTS = 4
"""A guest's owner counts rows by its checkpoints: so many there are in an interval at least. Too few: rows of
the end of an interval aren't there when it is read; too many: the guest does little else."""

DISTRUST_US = 60_000_000
DISTRUST_US_MAX = 3_600_000_000
"""From a partner that didn't say what it pays for nothing is taken for so long, doubled each time."""

RESTARTED = "the node was restarted"


class TradedTasks:
    """Drives a trader.

    Args:
        own: our participant.
        seed: of what looks random; another one in each life.
        moves: moves fragments between participants.
        fragments: what of our own runs here.
        cluster: what runs fragments in the node's place; None: they run in the node.

    Attributes:
        trader: decides.
        policy: what may move at all.
        used_cores: that all that runs here and the node itself occupied when it was looked last.
        handed_over, came_home, lost, took, gave_back: tasks of ours that went, came home, and of these were
            taken over since their host was silent; guests that came, and that went. In this life.
    """

    def __init__(
        self,
        own: str,
        rules: MarketRules,
        *,
        seed: str,
        paid: PaidTasks,
        moves: TaskMoves,
        loads: KnownLoads,
        fragments: OwnFragments,
        outbox: Outbox,
        cluster: Callable[[], ClusterNow | None],
    ) -> None:
        self._cluster = cluster
        self._effects = TradeEffects()
        self.policy = TaskPolicy(own, rules, stays=self._stays, takes_nothing=self._takes_nothing)
        self._measured = MeasuredTasks(own, loads, in_process=cluster() is None)
        self._idle = ResourceUse()
        self._cost = ContendedCost(
            cost_function(rules, self._overhead_us),
            beside_cores=lambda: self._idle.cpu_cores,
            on_processor=lambda: self._measured.on_processor,
        )
        self.trader = Trader(
            own,
            self._cost,
            policy=self.policy,
            settings=TradeSettings(
                capacity=rules.capacity, hold_us=rules.hold_us, tolerance_ppm=round(rules.tolerance * PPM)
            ),
            effects=self._effects,
            pick=Dice(seed).pick,
        )
        self.handed_over = self.came_home = self.lost = self.took = self.gave_back = 0
        self.used_cores = 0.0
        self._own, self._rules = own, rules
        self._paid, self._moves, self._fragments, self._outbox = paid, moves, fragments, outbox
        self._away_rates = AwayRates()
        self._time_us = 0
        self._up: dict[str, bool] = {}
        self._contracts: dict[tuple[str, str], bool] = {}
        """Partner and contract -> whether we are the consumer."""
        self._out: dict[str, TaskPermit] = {}
        self._in: dict[str, TaskPermit] = {}
        self._unpermitted: dict[str, str] = {}
        self._sending: dict[str, None] = {}
        """Tasks whose order to go waits until what was agreed is on disk."""
        self._why_stayed: dict[str, str] = {}
        self._lost: dict[str, None] = {}
        self._recalled_us: dict[str, int] = {}
        self._given_us: dict[str, int] = {}
        self._uncounted: dict[str, None] = {}
        """Tasks of which somebody says a number of rows that nobody can count."""
        self._distrusted: dict[str, tuple[int, int]] = {}
        """Partner -> until when nothing is taken from it, and for how long the next time."""
        self._guests: dict[str, int] = {}
        """Those that are here, and since when."""

    def resume(self, time_us: int, kept: KeptTrades) -> None:
        """Go on from what was kept. Permits of what isn't agreed any more end."""
        self._time_us = time_us
        self.trader.resume(time_us, kept)
        out = {fragment_of(name) for name in self._wanted(time_us, "moving", "away")}
        into = {fragment_of(name) for name in self._wanted(time_us, "room", "guest")}
        for fragment in self._moves.permitted_out():
            if fragment not in out:
                self._moves.end_out(fragment)
        for fragment in self._moves.permitted_in():
            if fragment not in into:
                self._moves.end_in(fragment)

    def knows(self, partner: str) -> bool:
        """Whether there is a contract with it."""
        return any(each == partner for each, _ in self._contracts)

    def has(self, partner: str, contract: str) -> bool:
        """Whether it is one about load."""
        return (partner, contract) in self._contracts

    def signed(self, time_us: int, contract: Contract) -> None:
        """Both have signed it.

        Raises:
            ContractError: it can't follow what is known; nothing changed.
        """
        self._time_us = time_us
        self.trader.sign(time_us, contract)
        consumes = contract.consumer == self._own
        partner = contract.provider if consumes else contract.consumer
        self._contracts[partner, contract.id] = consumes

    def revoked(self, time_us: int, contract: str, partner: str, ends_us: int) -> None:
        """It ends then."""
        self.trader.revoke(time_us, contract, partner, ends_us)

    def reaches(self, time_us: int, partner: str, *, up: bool) -> bool:
        """A partner's node is there, or isn't; whether it has just come."""
        came = up and not self._up.get(partner, False)
        if self._up.get(partner) != up:
            self._up[partner] = up
            self.trader.partner(time_us, partner, reachable=up)
        return came

    def receive(self, time_us: int, partner: str, message: LoadMessage) -> None:
        """See ``Trader.receive``."""
        self.trader.receive(time_us, partner, message)

    def tick(self, time_us: int) -> None:
        """Time has passed."""
        self._time_us = time_us
        self.trader.tick(time_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has something to do, by the clock of the wall."""
        return self.trader.wake_at_us()

    def take_effects(self) -> Iterator[TradeEffect]:
        """What the trader wants done, oldest first."""
        return self._effects.take()

    def kept(self) -> KeptTrades:
        """For the next life."""
        return self.trader.kept()

    def deals(self, *parts: Part) -> dict[str, KeptDeal]:
        """What the trader has agreed on, by task."""
        return {deal.task.name: deal for deal in self.trader.kept().deals if deal.part in parts}

    # --- what may move --------------------------------------------------------------------------------

    def _stays(self, task: TradedTask, partner: str) -> str:
        fragment = fragment_of(task.name)
        spec = self._fragments().get(fragment)
        if spec is None:
            return "it doesn't run here"
        if why := self._moves.obstacle(fragment):
            return why
        reasons = []
        for (whose, contract_id), consumes in self._contracts.items():
            if whose == partner and consumes:
                why = self._against(contract_id, partner, spec)
                if not why:
                    return ""
                reasons.append(why)
        return reasons[0] if reasons else "there is no contract by which it could go there"

    def _against(self, contract_id: str, partner: str, spec: FragmentSpec) -> str:
        versions = self._paid.versions(contract_id, partner)
        contract = versions.in_force(self._time_us) if versions is not None else None
        if contract is None:
            return "the contract doesn't count now"
        if stopped := self._paid.stopped(contract_id, partner):
            return f"{contract_id} takes no task before all that was done is receipted ({stopped})"
        return terms_against(contract.tasks, spec)

    def _overhead_us(self) -> int:
        cluster = self._cluster()
        return 0 if cluster is None else cluster.overhead_us

    def _takes_nothing(self, partner: str) -> str:
        cluster = self._cluster()
        if cluster is not None and cluster.down:
            return f"this node runs nothing: {cluster.down}"
        if not self._moves.takes_guests:
            return "this node takes no fragment of another participant"
        if self._time_us < self._distrusted.get(partner, (0, 0))[0]:
            return f"{partner!r} didn't say from which row on it pays"
        mine = self._contracts.items()
        ours = [name for (whose, name), consumes in mine if whose == partner and not consumes]
        stopped = [self._paid.stopped(name, partner) for name in ours]
        return stopped[0] if stopped and all(stopped) else ""

    # --- what was agreed beforehand --------------------------------------------------------------------

    def is_planned(self, time_us: int, fragment: str, partner: str) -> bool:
        """Whether a contract in force says that a fragment may go there at a signal."""
        return self.trader.planned_at(time_us, partner, task_of(self._own, fragment))

    def why_stays(self, fragment: str, partner: str) -> str:
        """Why it may not go there, whatever a contract plans; empty: it may."""
        return self.policy.why_stays(TradedTask(name=task_of(self._own, fragment), owner=self._own), partner)

    def go_by_plan(self, time_us: int, fragment: str, partner: str) -> int | None:
        """Have it go: the number of the negotiation; None: it can't go now."""
        return self.trader.go_by_plan(time_us, partner, task_of(self._own, fragment))

    def came_to_nothing(self, negotiation: int) -> str | None:
        """The code with which a negotiation of ours ended; None: it goes on, or something went."""
        return self.trader.ended(negotiation)

    def come_by_plan(self, time_us: int, fragment: str) -> bool:
        """Have what went so come home; False: it didn't go so."""
        return self.trader.come_by_plan(time_us, task_of(self._own, fragment))

    # --- what has moved -------------------------------------------------------------------------------

    def follow(self, now_us: int, time_us: int) -> None:
        """Compare what is agreed with where fragments are."""
        self._time_us = time_us
        for event in self._moves.take_events():
            if isinstance(event, TaskStayed):
                self._why_stayed[event.fragment] = event.why
            elif isinstance(event, TaskHome) and event.lost:
                self._lost[event.fragment] = None
        self._follow_ours(now_us, time_us)
        self._follow_guests(now_us, time_us)

    def _follow_ours(self, now_us: int, time_us: int) -> None:
        away, going = self._moves.away(), self._moves.going()
        for name, deal in self.deals("moving").items():
            fragment = fragment_of(name)
            if fragment in away:
                self._went(now_us, time_us, deal, away[fragment])
            elif fragment not in going and name not in self._sending:
                why = self._why_stayed.pop(fragment, RESTARTED)
                self.trader.handed_over(time_us, deal.negotiation, name, why=why)
        recalled = {}
        for name, deal in self.deals("away").items():
            fragment = fragment_of(name)
            if fragment not in away and fragment not in going:
                self._is_home(time_us, deal)
            elif deal.back or name in self._uncounted:
                recalled[name] = self._recall(now_us, name)
        self._recalled_us = recalled

    def _went(self, now_us: int, time_us: int, deal: KeptDeal, away: FragmentAway) -> None:
        why = self._paid.went(time_us, deal, away.begin_row)
        self.trader.handed_over(time_us, deal.negotiation, deal.task.name)
        self.handed_over += 1
        if why:
            about = {"task": deal.task.name, "partner": deal.partner}
            text = f"a task that went can't be paid for, and comes home: {why}"
            self._outbox.report("error", text, **about)
            self._moves.recall(now_us, fragment_of(deal.task.name))

    def _is_home(self, time_us: int, deal: KeptDeal) -> None:
        fragment = fragment_of(deal.task.name)
        self._paid.came_home(time_us, deal, self._moves.home_row(fragment))
        self.came_home += 1
        if fragment in self._lost:
            del self._lost[fragment]
            self.lost += 1
            about = {"task": deal.task.name, "partner": deal.partner}
            self._outbox.report("warning", "a task was taken over at home: its host is silent", **about)
        self.trader.handed_back(time_us, deal.task.name)

    def _recall(self, now_us: int, task: str) -> int:
        """Order it home, now and then; when that was done last."""
        last_us = self._recalled_us.get(task)
        if last_us is not None and now_us < last_us + RECALL_US:
            return last_us
        self._moves.recall(now_us, fragment_of(task))
        return now_us

    def _follow_guests(self, now_us: int, time_us: int) -> None:
        guests = self._moves.guests()
        here: dict[str, int] = {}
        for name, deal in self.deals("room", "guest").items():
            guest = guests.get(fragment_of(name))
            if guest is None or guest.participant != deal.partner:
                continue
            here[name] = since_us = self._guests.get(name, time_us)
            self._paid.runs_here(deal, guest.row)
            unsaid_us = time_us - since_us
            if name not in self._guests:
                self.took += 1
            elif (deal.part == "guest" and name not in self._in) or name in self._uncounted:
                self._give_back(now_us, name)
            elif unsaid_us >= deal.contract.interval_s * 1_000_000 and not self._paid.is_paid(deal):
                self._give_back_unpaid(now_us, time_us, deal)
        for name in [name for name in self._guests if name not in here]:
            self.gave_back += 1
            self.trader.handed_back(time_us, name)
        self._guests = here
        self._given_us = {name: at_us for name, at_us in self._given_us.items() if name in here}

    def _give_back_unpaid(self, now_us: int, time_us: int, deal: KeptDeal) -> None:
        """Its owner doesn't say from which row on it pays."""
        until_us, pause_us = self._distrusted.get(deal.partner, (0, DISTRUST_US))
        if time_us >= until_us:
            self._distrusted[deal.partner] = time_us + pause_us, min(2 * pause_us, DISTRUST_US_MAX)
            about = {"task": deal.task.name, "partner": deal.partner}
            self._outbox.report("warning", "a guest that nobody pays for goes back", **about)
        self._give_back(now_us, deal.task.name)

    def _give_back(self, now_us: int, task: str) -> None:
        """Ask its owner to take it home, now and then."""
        last_us = self._given_us.get(task)
        if last_us is None or now_us >= last_us + RECALL_US:
            self._given_us[task] = now_us
            self._moves.give_back(now_us, fragment_of(task))

    # --- what is measured -----------------------------------------------------------------------------

    def measure(self, time_us: int) -> None:
        """Tell the trader what runs here, and what it takes."""
        away = self._moves.away()
        own = [name for name in self._fragments() if name not in away]
        tasks = self._measured.look(own, self._moves.guests())
        self._idle = idle = self._measured.idle(self._moves.permitted_in())
        taken = idle.cpu_cores + sum(each.use.cpu_cores for each in tasks)
        self.used_cores = self._cost.occupied(ResourceUse(cpu_cores=taken)).cpu_cores
        rates = self._away_rates.look(time_us, {name: each.row for name, each in away.items()})
        told = {task_of(self._own, name): rate for name, rate in rates.items()}
        self.trader.measured(time_us, tasks, idle, away=told)

    def why_each_stays(self) -> dict[str, str]:
        """Of each fragment here that may go to no partner at all, why; by its name."""
        found = {}
        away = self._moves.away()
        for fragment in [name for name in self._fragments() if name not in away]:
            task = TradedTask(name=task_of(self._own, fragment), owner=self._own)
            whys = [self.policy.why_stays(task, partner) for partner in self._rules.partners]
            if all(whys):
                found[fragment] = whys[0]
        return found

    def count(self, time_us: int) -> None:
        """Tell the ledger how many rows there are. What has more than can be counted goes home."""
        away = self._moves.away()
        ours = [
            (deal, found.row)
            for name, deal in self.deals("away").items()
            if (found := away.get(fragment_of(name))) is not None
        ]
        theirs = [(deal, guest.row) for deal, guest in self._paying()]
        self._uncounted = {
            deal.task.name: None for deal, row in ours + theirs if self._paid.count(time_us, deal, row)
        }

    def missed(self, time_us: int, since_us: int) -> None:
        """Tell the ledger how long guests didn't run that should have.

        Args:
            since_us: how long ago that was done last.
        """
        missed: dict[tuple[str, str], int] = {}
        for deal, guest in self._paying():
            key = deal.contract.id, deal.partner
            missed[key] = missed.get(key, 0) if guest.runs else since_us
        for (contract, partner), missed_us in missed.items():
            self._paid.measured(time_us, contract, partner, missed_us)

    def _paying(self) -> Iterator[tuple[KeptDeal, HostedGuest]]:
        guests = self._moves.guests()
        for name, deal in self.deals("guest").items():
            guest = guests.get(fragment_of(name))
            if guest is not None and guest.participant == deal.partner:
                yield deal, guest

    # --- permits --------------------------------------------------------------------------------------

    def permit(self, time_us: int) -> None:
        """Have permits in force for what is agreed, and for nothing else."""
        out = self._wanted(time_us, "moving", "away")
        into = self._wanted(time_us, "room", "guest")
        for known, wanted, end in (
            (self._out, out, self._moves.end_out),
            (self._in, into, self._moves.end_in),
        ):
            for name in [name for name in known if name not in wanted]:
                end(fragment_of(name))
                del known[name]
        self._unpermitted = {name: why for name, why in self._unpermitted.items() if name in {**out, **into}}
        for known, wanted, put in (
            (self._out, out, self._moves.permit_out),
            (self._in, into, self._moves.permit_in),
        ):
            for name, permit in wanted.items():
                if known.get(name) != permit:
                    self._put(name, permit, known, put)

    def _put(
        self, task: str, permit: TaskPermit, known: dict[str, TaskPermit], put: Callable[[TaskPermit], None]
    ) -> None:
        try:
            put(permit)
        except LinkError as error:
            if self._unpermitted.get(task) != error.message:
                self._outbox.report("warning", "no permit", task=task, why=error.message)
            self._unpermitted[task] = error.message
            return
        known[task] = permit
        self._unpermitted.pop(task, None)

    def _wanted(self, time_us: int, *parts: Part) -> dict[str, TaskPermit]:
        found = {}
        for name, deal in self.deals(*parts).items():
            contract, partner = deal.contract, deal.partner
            versions = self._paid.versions(contract.id, partner)
            over = versions is None or versions.at(time_us) is None
            stopped = self._paid.stopped(contract.id, partner)
            if contract.shadow or over or stopped or versions is None or partner not in self._rules.partners:
                continue
            ours = contract.consumer == self._own
            found[name] = TaskPermit(
                fragment=fragment_of(name),
                owner=self._own if ours else partner,
                host=partner if ours else self._own,
                node=self._rules.partners[partner],
                contract=contract.id,
                boxes=contract.tasks.boxes,
                streams=contract.tasks.streams,
                columns=contract.tasks.columns,
                definitions=contract.tasks.definitions,
                ends_us=versions.last_us,
                keep_us=self._rules.keep_us,
                checkpoint_every_us=contract.interval_s * 1_000_000 // CHECKPOINTS,
            )
        return found

    # --- orders ---------------------------------------------------------------------------------------

    def order(self, effect: HandOver | HandBack | StopWork) -> Callable[[int], None]:
        """What to do about it once all that was agreed is on disk; of the time of the node."""
        if isinstance(effect, HandOver):
            self._sending[effect.task] = None
            return lambda now_us: self._hand_over(now_us, effect)
        if isinstance(effect, HandBack):
            return lambda now_us: self._hand_back(now_us, effect.task)
        return lambda now_us: self._stop(now_us, effect)

    def _hand_over(self, now_us: int, effect: HandOver) -> None:
        name, fragment = effect.task, fragment_of(effect.task)
        self._sending.pop(name, None)
        deal = self.deals("moving").get(name)
        if deal is None or deal.negotiation != effect.negotiation:
            return
        spec = self._fragments().get(fragment)
        if spec is None:
            why = "it doesn't run here"
        else:
            why = self._moves.obstacle(fragment) or self._against(effect.contract, effect.partner, spec)
        why = why or self._unpermitted.get(name, "")
        if why:
            self.trader.handed_over(self._time_us, effect.negotiation, name, why=why)
            return
        self._why_stayed.pop(fragment, None)
        self._moves.send(now_us, fragment, self._rules.partners[effect.partner])

    def _hand_back(self, now_us: int, task: str) -> None:
        guest = self._moves.guests().get(fragment_of(task))
        if guest is None or guest.participant != task.partition("/")[0]:
            self.trader.handed_back(self._time_us, task)
        else:
            self._moves.give_back(now_us, fragment_of(task))

    def _stop(self, now_us: int, effect: StopWork) -> None:
        away = self._moves.away()
        for _, task in effect.tasks:
            fragment = fragment_of(task)
            if fragment in away:
                self._moves.recall(now_us, fragment)
            elif fragment in self._moves.guests():
                self._moves.give_back(now_us, fragment)
