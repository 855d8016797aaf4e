"""Participants in virtual time, each a real ``Trader``. Messages and moves take time; messages may be lost.

One heap of events; ties are done in the order in which they were asked for. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Protocol

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import Contract
from medusa.market.cost import CostFunction
from medusa.market.negotiation.effects import HandBack, HandOver, Say, TradeEffects, TradeLine
from medusa.market.negotiation.messages import LoadAgreed, LoadEnded, LoadMessage, LoadRequest, PriceSaid
from medusa.market.negotiation.reasons import TradeReason
from medusa.market.work import TradedTask, nano_units_per_row
from medusa.sim.market.books import Hop, MarketBooks
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import Population, redrawn_factor
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["EVENTS_MAX", "MarketWorld", "MarketMoment", "TradingMind"]

_ENCODER = msgspec.msgpack.Encoder()

EVENTS_MAX = 200_000_000
"""More is a livelock."""

REACTION_US = 120_000_000
"""So long after its load, or that of a guest, has changed, or a partner has sent a task back or called one
home, a participant may do worse than alone. A task that was moved stays for 60 s, and those that come back do
so one after the other."""

EXPOSURE_US = 20_000_000
"""Work that isn't receipted ends after two intervals of 10 s, with the contract."""

SAMPLE_US = 10_000_000

WARM_US = 300_000_000
"""Under changing load peaks are counted from here on: before that the first loads are spread. Under constant
load only how it ends counts."""

LINES_MAX = 2_000
"""Lines kept of what traders say of themselves."""


class TradingMind(Protocol):
    """What is driven here: ``Trader``, or something planted in a test."""

    def sign(self, now_us: int, contract: Contract) -> None: ...
    def revoke(self, now_us: int, contract_id: str, partner: str) -> None: ...
    def measured(self, now_us: int, tasks: Sequence[TradedTask]) -> None: ...
    def receive(self, now_us: int, partner: str, message: LoadMessage) -> None: ...
    def partner(self, now_us: int, partner: str, *, reachable: bool) -> None: ...
    def handed_over(self, now_us: int, negotiation: int, task: str, *, why: str = "") -> None: ...
    def handed_back(self, now_us: int, task: str) -> None: ...
    def admits(self, now_us: int, partner: str, negotiation: int, task: str) -> object | None: ...
    def tick(self, now_us: int) -> None: ...
    def wake_at_us(self) -> int | None: ...


MakeMind = Callable[[str, CostFunction, TradeEffects, Callable[[int], int]], TradingMind]


@dataclass(frozen=True, slots=True)
class MarketMoment:
    """One line of what happened: for plots.

    Attributes:
        at_s: seconds since the beginning.
        moves: so far, there and back.
    """

    at_s: float
    loads: tuple[float, ...]
    moves: int


class MarketWorld:
    """A market that runs.

    Args:
        population: who takes part.
        make: a mind of this name, cost, effects and dice.
        watch: called at each sample, with the seconds so far: progress.
        keep_trace: keep each line, not only their hash.
    """

    def __init__(
        self,
        population: Population,
        make: MakeMind,
        *,
        watch: Callable[[float], None] = lambda seconds: None,
        keep_trace: bool = False,
    ) -> None:
        self.population, self.setup = population, population.setup
        self.now_us = 0
        self.books = MarketBooks(population.members, reaction_us=REACTION_US)
        self.messages: Counter[str] = Counter()
        self.events = self.lost = self.message_bytes = self.refused_moves = self.rule_breaks = 0
        self.last_move_us = 0
        self.prices: list[tuple[float, float]] = []
        self.samples: list[MarketMoment] = []
        self.lines: deque[tuple[float, str, str]] = deque(maxlen=LINES_MAX)
        self.trace: list[str] = []
        self._watch, self._keep_trace = watch, keep_trace
        self._hash = blake2b(digest_size=8)
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = 0
        self._index = {member.name: number for number, member in enumerate(population.members)}
        self._contracts = {contract.id: contract for contract in population.contracts}
        self._agreed: dict[tuple[int, int], LoadAgreed] = {}
        self._last_price: dict[str, int] = {}
        self._moving: set[str] = set()
        self._returning: set[tuple[int, str]] = set()
        self._arrives: dict[tuple[int, int], int] = {}
        self._alarm: list[int | None] = [None] * len(population.members)
        self._dice, self._changes = self._random("network"), self._random("changes")
        self.liars = frozenset(_liars(population, self._random("liars")))
        self._effects = [TradeEffects() for _ in population.members]
        self._minds = [self._mind(number, make) for number in range(len(population.members))]

    @property
    def trace_hash(self) -> str:
        """Of every message and every move so far."""
        return self._hash.hexdigest()

    @property
    def settled(self) -> bool:
        """Whether nothing has moved for as long as the setup says."""
        return not self._moving and self.now_us - self.last_move_us >= self.setup.quiet_s * 1e6

    def mind(self, member: int) -> TradingMind:
        """For looking at."""
        return self._minds[member]

    def run(self, *, until_s: float | None = None) -> None:
        """Let time pass until nothing moves any more, or until then.

        Raises:
            SimulationError: a rule of the market was broken, or it never comes to rest.
        """
        if not self.now_us and not self.events:
            self._begin()
        end_us = round((self.setup.limit_s if until_s is None else until_s) * 1e6)
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, action, about = heapq.heappop(heap)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise SimulationError(f"no rest after {self.events:,} events: livelock?")
            action(*about)
            if until_s is None and not self.setup.change_s and self.settled:
                break
        else:
            self.now_us = end_us
        self.books.close(self.now_us)
        if not self.setup.change_s:
            self._begin_peaks()

    def revoke(self, contract_id: str) -> None:
        """Both parties are told that a contract has ended."""
        contract = self._contracts.pop(contract_id, None)
        if contract is None:
            return
        pairs = (contract.provider, contract.consumer), (contract.consumer, contract.provider)
        for party, partner in pairs:
            member = self._index[party]
            self._minds[member].revoke(self.now_us, contract_id, partner)
            self._perform(member)

    def change_load(self, member: int, factor: float) -> None:
        """A participant's own tasks get so much of the rows that they began with; now."""
        first = {task.name: task.rows_per_s_milli for task in self.population.members[member].tasks}
        hosts = self.books.change(self.now_us, member, lambda task: round(first[task.name] * factor))
        self._note(member, f"load x {factor:.3f}")
        for host in sorted(hosts):
            self._minds[host].measured(self.now_us, self.books.running_at(host))
            self._perform(host)

    # --- events -----------------------------------------------------------------------------

    def _begin(self) -> None:
        signed: dict[str, list[Contract]] = {name: [] for name in self._index}
        for contract in self.population.contracts:
            signed[contract.provider].append(contract)
            signed[contract.consumer].append(contract)
        for member, endowment in enumerate(self.population.members):
            mind = self._minds[member]
            for contract in signed[endowment.name]:
                mind.sign(0, contract)
            for partner in self.population.graph.partners[member]:
                mind.partner(0, self.population.members[partner].name, reachable=True)
            mind.measured(0, self.books.running_at(member))
        for member in range(len(self._minds)):
            self._perform(member)
            if self.setup.change_s:
                self._change_later(member)
        if self.setup.change_s:
            self._at(WARM_US, self._begin_peaks)
        self._sample()

    def _begin_peaks(self) -> None:
        for seat in self.books.seats:
            seat.begin_peaks()

    def _at(self, when_us: int, action: Callable[..., None], *about: object) -> None:
        heapq.heappush(self._heap, (when_us, self._order, action, about))
        self._order += 1

    def _wake(self, member: int, when_us: int) -> None:
        if self._alarm[member] == when_us:
            self._alarm[member] = None
            self._minds[member].tick(self.now_us)
            self._perform(member)

    def _deliver(self, member: int, source: int, message: LoadMessage) -> None:
        if type(message) is LoadAgreed:
            self._agreed[member, message.negotiation] = message
            if self._lies(member, "load"):
                message = self._as_expected(message)
        if type(message) is LoadRequest and self._lies(member, "refuse"):
            no = LoadEnded(
                contract=message.contract,
                version=message.version,
                negotiation=message.negotiation,
                code="market.refused",
            )
            self._say(member, source, no)
            return
        try:
            self._minds[member].receive(self.now_us, self.population.members[source].name, message)
        except RemoteProtocolError as error:
            self.rule_breaks += 1
            self.lines.append((self.now_us / 1e6, self.population.members[member].name, error.message))
        self._perform(member)

    def _perform(self, member: int) -> None:
        """Do what a mind wants done, and note when it wants to be woken."""
        for effect in self._effects[member].take():
            kind = type(effect)
            if kind is Say:
                self._say(member, self._index[effect.partner], effect.message)  # type: ignore[union-attr]
            elif kind is TradeLine:
                name = self.population.members[member].name
                self.lines.append((self.now_us / 1e6, name, effect.text))  # type: ignore[union-attr]
            elif isinstance(effect, HandOver):
                self._moving.add(effect.task)
                self._at(self.now_us + self._move_us, self._handed_over, member, effect)
            elif isinstance(effect, HandBack):
                self._moving.add(effect.task)
                self._returning.add((member, effect.task))
                self._at(self.now_us + self._move_us, self._handed_back, member, effect)
        wake_us = self._minds[member].wake_at_us()
        if wake_us is not None:
            wake_us = max(wake_us, self.now_us)
            alarm = self._alarm[member]
            if alarm is None or wake_us < alarm:
                self._alarm[member] = wake_us
                self._at(wake_us, self._wake, member, wake_us)

    @property
    def _move_us(self) -> int:
        return round(self.setup.move_s * 1e6)

    def _say(self, source: int, target: int, message: LoadMessage) -> None:
        if source in self.liars:
            message = self._lie(source, message)
        self.messages[type(message).__name__] += 1
        encoded = _ENCODER.encode(message)
        self.message_bytes += len(encoded)
        self._hash.update(encoded)
        if self._keep_trace and type(message) is not PriceSaid:  # or most of a trace would be prices
            self._note(source, f"-> {target} {message}")
        if self.setup.loss and self._dice.random() < self.setup.loss:
            self.lost += 1
            return
        least = round(self.setup.delay_ms * 1e3)
        arrives = self.now_us + least + (self._dice.randrange(least) if least else 0)
        # A link keeps its order.
        arrives = max(arrives, self._arrives.get((source, target), 0))
        self._arrives[source, target] = arrives
        self._at(arrives, self._deliver, target, source, message)

    def _handed_over(self, member: int, effect: HandOver) -> None:
        self._moving.discard(effect.task)
        target = self._index[effect.partner]
        why = self._hand_over(member, target, effect)
        if why:
            self.refused_moves += 1
        mind = self._minds[member]
        mind.handed_over(self.now_us, effect.negotiation, effect.task, why=why)
        if not why:
            mind.measured(self.now_us, self.books.running_at(member))
            self._minds[target].measured(self.now_us, self.books.running_at(target))
            self._perform(target)
        self._perform(member)

    def _hand_over(self, member: int, target: int, effect: HandOver) -> str:
        """Move the task; why it can't be."""
        contract = self._contracts.get(effect.contract)
        parties = effect.partner, self.population.members[member].name
        if contract is None:
            return "the contract has ended"
        if (contract.provider, contract.consumer) != parties:
            raise SimulationError(
                f"{effect.task} goes from {parties[1]} to {parties[0]} by contract {contract.id}"
            )
        agreed = self._agreed.get((member, effect.negotiation))
        if agreed is None or effect.task not in agreed.tasks or agreed.contract != effect.contract:
            raise SimulationError(
                f"{parties[1]} hands {effect.task} to {parties[0]}, who hasn't agreed to it"
            )
        if not contract.least_micro <= agreed.price_micro <= contract.price_micro:
            raise SimulationError(
                f"{contract.id}: {agreed.price_micro} for a unit is outside"
                f" {contract.least_micro} to {contract.price_micro}"
            )
        placed = self.books.tasks[effect.task]
        if placed.host != member:
            return "it doesn't run here"
        if (member, effect.task) in self._returning:  # called home while it was on its way: that goes before
            return "it goes back to its owner"
        if target == placed.owner or any(target == hop.host for hop in placed.hops):
            return "it has been there"
        refused = self._minds[target].admits(self.now_us, parties[1], effect.negotiation, effect.task)
        if refused is not None:
            return str(refused)
        per_row = agreed.nano_units_per_row[agreed.tasks.index(effect.task)]
        hop = Hop(target, agreed.price_micro, per_row)
        self.books.hand_over(self.now_us, effect.task, member, hop, idle=self._lies(target, "idle"))
        self.prices.append((self.now_us / 1e6, agreed.price_micro / contract.price_micro))
        self.last_move_us = self.now_us
        self._note(member, f"=> {target} {effect.task} for {agreed.price_micro}")
        if self._lies(target, "bill") or self._lies(member, "receipts"):
            # Nothing is receipted: two intervals are worked for nothing, then the contract ends.
            self.books.stop_paying(self.now_us, effect.task, target)
            self._at(self.now_us + EXPOSURE_US, self.revoke, contract.id)
        return ""

    def _handed_back(self, member: int, effect: HandBack) -> None:
        self._moving.discard(effect.task)
        self._returning.discard((member, effect.task))
        placed = self.books.tasks[effect.task]
        if placed.host == member and placed.hops:
            recalled = effect.code == TradeReason.RECALLED.value
            back = self.books.hand_back(self.now_us, effect.task, member, recalled=recalled)
            self.last_move_us = self.now_us
            self._note(member, f"<= {back} {effect.task}: {effect.code}")
            self._minds[back].measured(self.now_us, self.books.running_at(back))
            self._perform(back)
        self._minds[member].handed_back(self.now_us, effect.task)
        self._minds[member].measured(self.now_us, self.books.running_at(member))
        self._perform(member)

    def _change_later(self, member: int) -> None:
        wait_us = round(self._changes.expovariate(1 / self.setup.change_s) * 1e6)
        self._at(self.now_us + wait_us, self._change, member)

    def _change(self, member: int) -> None:
        self.change_load(member, redrawn_factor(self._changes))
        self._change_later(member)

    def _sample(self) -> None:
        loads = tuple(seat.load for seat in self.books.seats)
        moves = self.books.moves + self.books.returns
        self.samples.append(MarketMoment(self.now_us / 1e6, loads, moves))
        self._watch(self.now_us / 1e6)
        self._at(self.now_us + SAMPLE_US, self._sample)

    # --- what is random, what is a lie, what is noted ---------------------------------------

    def _random(self, purpose: str) -> Random:
        return Random(f"market {self.setup.seed} {purpose}")

    def _mind(self, member: int, make: MakeMind) -> TradingMind:
        endowment = self.population.members[member]
        curve, dice = endowment.curve, self._random(f"trader {member}")
        if member in self.liars:
            factor = {"low-cost": 0.5, "high-cost": 2.0}.get(self.setup.lie, 1.0)
            curve = CostCurve(curve.cores, curve.scale_micro * factor)
        return make(endowment.name, curve.function(), self._effects[member], dice.randrange)

    def _lies(self, member: int, lie: str) -> bool:
        return member in self.liars and self.setup.lie == lie

    def _lie(self, member: int, message: LoadMessage) -> LoadMessage:
        if isinstance(message, LoadRequest) and self.setup.lie == "load":
            less = tuple(
                msgspec.structs.replace(task, cpu_ns_per_row=task.cpu_ns_per_row // 2)
                for task in message.tasks
            )
            return msgspec.structs.replace(message, tasks=less)
        if isinstance(message, PriceSaid) and self.setup.lie == "refuse":
            return msgspec.structs.replace(message, units_per_s_milli=0)
        return message

    def _as_expected(self, message: LoadAgreed) -> LoadAgreed:
        """The agreement as a liar's own trader expects it, which knows what its tasks take and nothing of the
        lie: else it would refuse it."""
        contract = self._contracts.get(message.contract)
        if contract is None:
            return message
        tasks = [self.books.tasks[name].task for name in message.tasks]
        nano = [
            nano_units_per_row(task.cpu_ns_per_row, task.bytes_per_row, contract.bytes_per_unit)
            for task in tasks
        ]
        return msgspec.structs.replace(message, nano_units_per_row=tuple(nano))

    def _note(self, member: int, text: str) -> None:
        line = f"{self.now_us / 1e6:.6f} {member} {text}"
        self._hash.update(line.encode() + b"\n")
        if self._keep_trace:
            self.trace.append(line)


def _liars(population: Population, dice: Random) -> list[int]:
    size = len(population.members)
    count = round(population.setup.liars * size)
    return sorted(dice.sample(range(size), max(count, 1))) if population.setup.liars else []
