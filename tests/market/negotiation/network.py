"""Traders over a network that loses, doubles, delays, reorders and cuts, in virtual time; and their drivers.

The network knows where each task really runs. It judges every move by costs that it works out itself.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.cost import CostFunction
from medusa.market.negotiation.effects import HandBack, HandOver, Say, TradeEffects, TradeLine
from medusa.market.negotiation.kept import KeptTrades
from medusa.market.negotiation.messages import LoadAgreed, LoadEnded, LoadRequest, PriceSaid
from medusa.market.negotiation.policies import LoadPolicy
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse, TradedTask

S = 1_000_000
AT_ONCE_MAX = 2_000
"""Events at one moment: more are a loop."""


class Square:
    """A cost by which everything can be reckoned by hand: ``scale * cores ** 2`` micro-units a second."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def cost(self, use: ResourceUse) -> float:
        return self.scale * use.cpu_cores**2


def task(name: str, owner: str, cores: float = 0.1, *, kind: str = "", rows_per_s: int = 1_000) -> TradedTask:
    """One that takes so many cores at 1,000 rows a second."""
    return TradedTask(
        name=name,
        owner=owner,
        kind=kind,
        rows_per_s_milli=rows_per_s * 1_000,
        cpu_ns_per_row=round(cores * 1_000_000),
    )


def contract(consumer: str, provider: str, price: int = 1_000_000, **more: object) -> Contract:
    """One of any number of tasks, for long."""
    given: dict[str, object] = {
        "id": f"{consumer}-{provider}",
        "provider": provider,
        "consumer": consumer,
        "begins_us": 0,
        "ends_us": 10**17,
        "price_micro": price,
        "units_per_s_max_milli": 1_000_000,
        **more,
    }
    return Contract(**given)


@dataclass
class Weather:
    """How bad the network is: shares of messages, and delays in microseconds."""

    lost: float = 0.0
    doubled: float = 0.0
    least_us: int = 1_000
    most_us: int = 20_000
    fails: float = 0.0


@dataclass
class Member:
    """A participant, and what its driver knows."""

    trader: Trader
    effects: TradeEffects
    cost: CostFunction
    settings: TradeSettings
    remake: Callable[[], tuple[Trader, TradeEffects]]
    contracts: list[Contract] = field(default_factory=list)
    dead: bool = False
    wakes_us: int = -1


class Network:
    """All of them.

    Attributes:
        runs_at: task -> who runs it.
        moves: (time, task, from, to, price) of each that was carried out.
        broken: rules that were broken, in words.
    """

    def __init__(self, seed: int = 0, weather: Weather | None = None, *, measures_us: int = S) -> None:
        self.rng = random.Random(seed)
        self.weather = weather or Weather()
        self.now_us = 0
        self.members: dict[str, Member] = {}
        self.tasks: dict[str, TradedTask] = {}
        self.runs_at: dict[str, str] = {}
        self.moves: list[tuple[int, str, str, str, int]] = []
        self.handed: list[tuple[int, str, str, str, str]] = []
        self.said: list[tuple[int, str, str, object]] = []
        self.broken: list[str] = []
        self.lines: list[tuple[int, str, str]] = []
        self.cuts: set[frozenset[str]] = set()
        self.measures_us = measures_us
        self.counts_away = False
        self.slowness: dict[str, float] = {}
        self.contracts: dict[tuple[str, str], Contract] = {}
        self.versions: dict[tuple[str, int], Contract] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._under_way: dict[str, str] = {}

    # --- setting up -----------------------------------------------------------------------------

    def join(
        self,
        name: str,
        cost: CostFunction,
        tasks: list[TradedTask] | None = None,
        *,
        policy: LoadPolicy | None = None,
        **settings: object,
    ) -> Trader:
        chosen = TradeSettings(**settings)

        def make() -> tuple[Trader, TradeEffects]:
            effects = TradeEffects()
            pick = random.Random(f"{name} {self.rng.random()}").randrange
            return Trader(name, cost, policy=policy, settings=chosen, effects=effects, pick=pick), effects

        trader, effects = make()
        self.members[name] = Member(trader, effects, cost, chosen, make)
        for each in tasks or ():
            self.tasks[each.name], self.runs_at[each.name] = each, name
        self.at(self.rng.randrange(self.measures_us), lambda: self._measures(name))
        return trader

    def sign(self, *contracts: Contract) -> None:
        for each in contracts:
            for name in (each.consumer, each.provider):
                self.members[name].contracts.append(each)
                self.members[name].trader.sign(self.now_us, each)
                self._look(name)
            self.versions[each.id, each.version] = each
            self.contracts[each.consumer, each.provider] = each

    def renew(self, one: Contract, *, first: str) -> None:
        """A newer version, which one party knows a while before the other."""
        other = one.provider if first == one.consumer else one.consumer
        self.versions[one.id, one.version] = one
        self.contracts[one.consumer, one.provider] = one
        late_us = self.now_us + self.rng.randrange(20 * S)
        for name, at_us in ((first, self.now_us), (other, late_us)):
            self.members[name].contracts.append(one)
            self.at(at_us, lambda name=name: self._signs(name, one))

    def _signs(self, name: str, one: Contract) -> None:
        self.members[name].trader.sign(self.now_us, one)
        self._look(name)

    def revoke(self, one: Contract, *, first: str) -> None:
        """By one party; the other hears of it a while later."""
        other = one.provider if first == one.consumer else one.consumer
        self.contracts.pop((one.consumer, one.provider), None)
        late_us = self.now_us + self.rng.randrange(20 * S)
        for name, partner, at_us in ((first, other, self.now_us), (other, first, late_us)):
            self.members[name].contracts = [
                each for each in self.members[name].contracts if each.id != one.id
            ]
            self.at(at_us, lambda name=name, partner=partner: self._revokes(name, one.id, partner))

    def _revokes(self, name: str, contract_id: str, partner: str) -> None:
        self.members[name].trader.revoke(self.now_us, contract_id, partner)
        self._look(name)

    def at(self, us: int, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(us, self.now_us), self._count, do))

    def run(self, until_us: int) -> None:
        at_once = 0
        while self._queue and self._queue[0][0] <= until_us:
            before = self.now_us
            self.now_us, _, do = heapq.heappop(self._queue)
            at_once = at_once + 1 if self.now_us == before else 0
            assert at_once < AT_ONCE_MAX, "somebody is woken without end"
            do()
        self.now_us = until_us

    # --- drivers --------------------------------------------------------------------------------

    def here(self, name: str) -> list[TradedTask]:
        """As it is measured there: slower machines take more for a row."""
        return [self._as_measured(name, self.tasks[each]) for each, at in self.runs_at.items() if at == name]

    def _as_measured(self, name: str, each: TradedTask) -> TradedTask:
        factor = self.slowness.get(each.name, 1.0) if name != each.owner else 1.0
        return TradedTask(
            name=each.name,
            owner=each.owner,
            kind=each.kind,
            rows_per_s_milli=each.rows_per_s_milli,
            cpu_ns_per_row=round(each.cpu_ns_per_row * factor),
            bytes_per_row=each.bytes_per_row,
        )

    def _measures(self, name: str) -> None:
        self.at(self.now_us + self.measures_us, lambda: self._measures(name))
        self.measure(name)

    def measure(self, name: str) -> None:
        member = self.members[name]
        if not member.dead:
            away = self.away_of(name) if self.counts_away else {}
            member.trader.measured(self.now_us, self.here(name), away=away)
            self._look(name)

    def away_of(self, name: str) -> dict[str, int]:
        """How many rows come to its own tasks that are elsewhere."""
        own = (each for each in self.tasks.values() if each.owner == name != self.runs_at[each.name])
        return {each.name: each.rows_per_s_milli for each in own}

    def _look(self, name: str) -> None:
        """Do what it wants done, and have it woken."""
        member = self.members[name]
        if member.dead:
            return
        for effect in member.effects.take():
            self._perform(name, member, effect)
        wake_us = member.trader.wake_at_us()
        if wake_us is not None and (wake_us != member.wakes_us or wake_us <= self.now_us):
            at_us = max(wake_us, self.now_us)
            member.wakes_us = at_us
            self.at(at_us, lambda: self._wake(name, at_us))

    def _wake(self, name: str, at_us: int) -> None:
        member = self.members[name]
        if member.wakes_us != at_us or member.dead:
            return
        member.wakes_us = -1
        member.trader.tick(self.now_us)
        self._look(name)

    def _perform(self, name: str, member: Member, effect: object) -> None:
        if isinstance(effect, Say):
            self._judge_message(name, effect)
            self.said.append((self.now_us, name, effect.partner, effect.message))
            self._send(name, effect.partner, effect.message)
        elif isinstance(effect, HandOver):
            self._judge_move(name, effect)
            self._under_way[effect.task] = effect.partner
            took_us = self.rng.randrange(10_000, 3 * S)
            self.at(self.now_us + took_us, lambda: self._arrives(name, effect))
        elif isinstance(effect, HandBack):
            self.handed.append((self.now_us, effect.task, name, effect.partner, effect.code))
            self.at(self.now_us + self.rng.randrange(10_000, S), lambda: self._goes_back(name, effect))
        elif isinstance(effect, TradeLine):
            self.lines.append((self.now_us, name, effect.text))

    def _send(self, name: str, to: str, message: object) -> None:
        for _ in range(1 + (self.rng.random() < self.weather.doubled)):
            if self.rng.random() < self.weather.lost:
                continue
            late_us = self.rng.randrange(self.weather.least_us, self.weather.most_us)
            self.at(self.now_us + late_us, lambda: self._comes(name, to, message))

    def _comes(self, name: str, to: str, message: object) -> None:
        member = self.members[to]
        if member.dead or self.cut(name, to):
            return
        try:
            member.trader.receive(self.now_us, name, message)
        except RemoteProtocolError as error:
            self.broken.append(f"{to} refuses {message} of {name}: {error}")
        self._look(to)

    def _arrives(self, name: str, effect: HandOver) -> None:
        """A move is decided at both ends at once, as a hand-over between nodes is."""
        source, target = self.members[name], self.members[effect.partner]
        if source.dead:
            self.at(self.now_us + S, lambda: self._arrives(name, effect))
            return
        why = ""
        if target.dead or self.cut(name, effect.partner):
            why = "it isn't reached"
        elif self.rng.random() < self.weather.fails:
            why = "the state was too large"
        elif self.runs_at[effect.task] != name:
            why = "it isn't here"
        elif (no := target.trader.admits(self.now_us, name, effect.negotiation, effect.task)) is not None:
            why = no.value
        self._under_way.pop(effect.task, None)
        if not why:
            price = self.price_of(effect.negotiation)
            self.moves.append((self.now_us, effect.task, name, effect.partner, price))
            self.runs_at[effect.task] = effect.partner
            self._judge_arrival(effect.partner, effect.task)
        source.trader.handed_over(self.now_us, effect.negotiation, effect.task, why=why)
        self._look(name)

    def _goes_back(self, name: str, effect: HandBack) -> None:
        source, target = self.members[name], self.members[effect.partner]
        if source.dead or target.dead or self.cut(name, effect.partner) or effect.task in self._under_way:
            self.at(self.now_us + S, lambda: self._goes_back(name, effect))
            return
        if self.runs_at[effect.task] == name:
            self.runs_at[effect.task] = effect.partner
        source.trader.handed_back(self.now_us, effect.task)
        self._look(name)
        self.measure(name)
        self.measure(effect.partner)

    # --- failures -------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cuts

    def part(self, one: str, other: str, *, told: bool = True) -> None:
        self.cuts.add(frozenset((one, other)))
        self._tell(one, other, reachable=False, told=told)

    def heal(self, one: str, other: str, *, told: bool = True) -> None:
        self.cuts.discard(frozenset((one, other)))
        self._tell(one, other, reachable=True, told=told)

    def stop(self, name: str) -> None:
        """It stands still: nothing that is sent to it is heard, and nothing is done."""
        self.members[name].dead = True
        for other in self.members:
            if other != name:
                self._tell(name, other, reachable=False, told=True)

    def go_on(self, name: str) -> None:
        member = self.members[name]
        if not member.dead:
            return
        member.dead, member.wakes_us = False, -1
        for other in self.members:
            if other != name and not self.cut(name, other):
                self._tell(name, other, reachable=True, told=True)
        self._look(name)

    def lose_memory(self, name: str) -> None:
        """It is restarted, with what it kept on disk."""
        member = self.members[name]
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(member.trader.kept()), type=KeptTrades)
        member.trader, member.effects = member.remake()
        for each in member.contracts:
            member.trader.sign(self.now_us, each)
        member.trader.resume(self.now_us, kept)
        member.dead = True
        self.go_on(name)
        for other in self.members:
            if self.cut(name, other):
                member.trader.partner(self.now_us, other, reachable=False)

    def calm(self) -> None:
        """No failures from now on."""
        self.weather = Weather()
        for pair in list(self.cuts):
            self.heal(*sorted(pair))
        for name in self.members:
            self.go_on(name)

    def _tell(self, one: str, other: str, *, reachable: bool, told: bool) -> None:
        for name, partner in ((one, other), (other, one)):
            if told and not self.members[name].dead:
                reached = reachable and not self.members[partner].dead
                self.members[name].trader.partner(self.now_us, partner, reachable=reached)
                self._look(name)

    # --- judging --------------------------------------------------------------------------------

    def price_of(self, negotiation: int) -> int:
        return next(
            message.price_micro
            for _, _, _, message in reversed(self.said)
            if isinstance(message, LoadAgreed) and message.negotiation == negotiation
        )

    def cores(self, name: str, without: tuple[str, ...] = ()) -> float:
        """What really is there."""
        return sum(each.use.cpu_cores for each in self.here(name) if each.name not in without)

    def cost(self, name: str, cores: float) -> float:
        return self.members[name].cost.cost(ResourceUse(cpu_cores=cores))

    def saved(self, name: str, each: str) -> float:
        """What a unit of a task costs where it runs: by this the cost falls without it."""
        took = self.tasks[each].use.cpu_cores
        cores = self.cores(name)
        return (self.cost(name, cores) - self.cost(name, cores - took)) / took

    def added(self, name: str, each: str) -> float:
        """By what a unit of it would raise the cost."""
        took = self.tasks[each].use.cpu_cores
        cores = self.cores(name)
        return (self.cost(name, cores + took) - self.cost(name, cores)) / took

    def _judge_message(self, name: str, say: Say) -> None:
        message = say.message
        price = getattr(message, "price_micro", None)
        if price is None:
            return
        terms = self.versions.get((message.contract, message.version))
        if terms is None or not terms.price_micro - terms.range_micro <= price <= terms.price_micro:
            self.broken.append(f"{name} says {message}: the price isn't in the range")
        if isinstance(message, LoadAgreed) and terms is not None and not self._again(name, message):
            cores = self.cores(name)
            more = sum(self.tasks[each].use.cpu_cores for each in message.tasks)
            if not terms.shadow:
                if self.cost(name, cores + more) - self.cost(name, cores) > price * more * (1 + 1e-9):
                    self.broken.append(f"{name} agrees to {message.tasks} at a loss")
                most = self.members[name].settings.capacity
                if most is not None and cores + more > most.cpu_cores * (1 + 1e-6):
                    self.broken.append(f"{name} agrees to {message.tasks} beyond its capacity")

    def _again(self, name: str, message: LoadAgreed) -> bool:
        return any(
            isinstance(other, LoadAgreed) and other.negotiation == message.negotiation and who == name
            for _, who, _, other in self.said
        )

    def _judge_move(self, name: str, effect: HandOver) -> None:
        if self.runs_at[effect.task] != name:
            self.broken.append(f"{name} hands {effect.task} over, which runs at {self.runs_at[effect.task]}")
        if effect.task in self._under_way:
            self.broken.append(f"{effect.task} is handed over twice")
        price, took = self.price_of(effect.negotiation), self.tasks[effect.task].use.cpu_cores
        gone = tuple(self._under_way)
        cores = self.cores(name, gone)
        saves = self.cost(name, cores) - self.cost(name, cores - took)
        if saves < price * took * (1 - 1e-9) and not self._pays_in_a_chain(name, cores, took, price):
            self.broken.append(f"{name} pays more for {effect.task} than it saves")

    def _pays_in_a_chain(self, name: str, cores: float, took: float, price: int) -> bool:
        """Whether a consumer was told to ask again, and its task in place of this one is worth it."""
        told = {
            (to, message.negotiation)
            for at_us, who, to, message in self.said
            if who == name
            and isinstance(message, LoadEnded)
            and message.code == "E_PASSING_ON"
            and self.now_us - at_us < 10 * S
        }
        asked = [
            (message.price_micro, each.use.cpu_cores)
            for _, who, to, message in self.said
            if isinstance(message, LoadRequest) and to == name and (who, message.negotiation) in told
            for each in message.tasks
        ]
        bare = self.cost(name, cores)
        return any(
            self.cost(name, cores - took + more) - bare + price * took < pays * more for pays, more in asked
        )

    def _judge_arrival(self, name: str, arrived: str) -> None:
        most = self.members[name].settings.capacity
        if most is not None and self.cores(name) > most.cpu_cores * (1 + 1e-6):
            homes = [each.name for each in self.here(name) if each.owner == name]
            if self.cores(name, tuple(homes)) > most.cpu_cores * (1 + 1e-6):
                self.broken.append(f"{arrived} takes {name} beyond its capacity")

    # --- the end --------------------------------------------------------------------------------

    def messages(self, *kinds: type) -> list[tuple[int, str, str, object]]:
        return [each for each in self.said if not kinds or isinstance(each[3], kinds)]

    def talk(self) -> list[tuple[int, str, str, object]]:
        """All but heartbeats."""
        return [each for each in self.said if not isinstance(each[3], PriceSaid)]

    def trades_left(self) -> list[str]:
        """Moves of own tasks by which both would gain at a price of their contract: by brute force."""
        found = []
        for (consumer, provider), terms in self.contracts.items():
            if terms.shadow:
                continue
            slack = self.members[consumer].settings.epsilon_ppm / 1e6
            most = self.members[provider].settings.capacity
            # No task is at the provider but by this contract, unless it was passed on to it.
            left = terms.units_per_s_max_milli / 1_000 - sum(
                self.tasks[each.name].use.cpu_cores
                for each in self.members[consumer].trader.status(self.now_us).away
                if each.partner == provider
            )
            for name, at in self.runs_at.items():
                if at != consumer or self.tasks[name].owner != consumer:
                    continue
                least, top = terms.price_micro - terms.range_micro, terms.price_micro
                lowest = max(self.added(provider, name) / (1 - slack) + 1, least)
                highest = min(self.saved(consumer, name) / (1 + slack), top)
                fits = most is None or self.cores(provider) + self.tasks[name].use.cpu_cores <= most.cpu_cores
                fits = fits and self.tasks[name].use.cpu_cores <= left + 1e-9
                if fits and lowest < highest:
                    found.append(f"{name}: {consumer} -> {provider} at {lowest:.0f} to {highest:.0f}")
        return found

    def books_agree(self) -> list[str]:
        """Where the books of two traders, or those and what really is, differ. None may once all is quiet."""
        found = []
        status = {name: member.trader.status(self.now_us) for name, member in self.members.items()}
        guests = {(each.name, at): each for at in status for each in status[at].guests if not each.virtual}
        aways = {(each.name, of): each for of in status for each in status[of].away if not each.virtual}
        for (name, of), away in aways.items():
            guest = guests.get((name, away.partner))
            if guest is None or guest.partner != of:
                found.append(f"{of} has {name} away at {away.partner}, which has it not")
            elif (guest.negotiation, guest.price_micro, guest.nano_units_per_row) != (
                away.negotiation,
                away.price_micro,
                away.nano_units_per_row,
            ):
                found.append(f"{of} and {away.partner} differ about {name}: {away} and {guest}")
        for (name, at), guest in guests.items():
            if (name, guest.partner) not in aways:
                found.append(f"{at} has {name} as a guest of {guest.partner}, which doesn't know")
        for name, each in self.tasks.items():
            at = each.owner
            while (name, at) in aways:
                at = aways[name, at].partner
            if at != self.runs_at[name]:
                found.append(f"{name} runs at {self.runs_at[name]}, by the books at {at}")
        return found

    def overdue(self) -> list[str]:
        """Negotiations that are open after their deadline."""
        found = []
        for name, member in self.members.items():
            status = member.trader.status(self.now_us)
            found += [
                f"{name} has {each} open at {self.now_us}"
                for each in (*status.open, *status.serving)
                if each.deadline_us < self.now_us and not member.dead
            ]
        return found
