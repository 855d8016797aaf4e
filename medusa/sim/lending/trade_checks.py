"""What must hold of nodes that trade: reckoned anew, from what they run, hold and say to each other.

It knows the contracts, what load costs each, and which fragments each contract is about, from the trial.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from medusa.market.contract.terms import Contract
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.negotiation.messages import LoadAgreed
from medusa.nodes.catalog.kept_market import TaskMark
from medusa.nodes.market.market_words import read_traded
from medusa.ports import Buffer
from medusa.sim.world.clock import EPOCH_US
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.codec import decode_frame
from medusa.wire.messages.market import Traded

if TYPE_CHECKING:
    from medusa.sim.actors.node import NodeMachine

__all__ = ["TradeChecks", "TradedContract"]

TRADED = b"\xa6traded"
"""How the header of a ``Traded`` goes on after its first byte."""

LOOK_US = 100_000
PAST_US = 4_000_000
"""A figure by which something was agreed is at most so old: nodes measure each second, and answer in two."""

LATE_US = 3_000_000
"""By so much what is agreed just before the end of a contract may begin after it: clocks run apart too."""

UNPAID_INTERVALS = 2
"""What isn't receipted is of so many at most when a host asks for a guest to be taken home: one that nobody
pays for after one, any other after two. What comes in between that and its going home may be unpaid too:
hosts don't have guests rest (docs/market.md)."""

LINES = 20
"""So many of the last lines that a node said are looked at."""

SHORT = "has rows up to"
"""So goes on what is said of a reading whose rows died with the host, or are cut off: what came is paid."""

ROUNDING = 1.02
UNIT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TradedContract:
    """A contract, and what the trial knows of it.

    Attributes:
        fragments: that may run under it.
        ends_us: when it really ends, by the clock of the wall.
    """

    terms: Contract
    fragments: frozenset[str]
    ends_us: int


@dataclass(slots=True)
class _Stay:
    """One time that a fragment was at a host: rows that had come in when it began, and have by now.

    Attributes:
        last_us: when it was last looked at there.
        busiest: most rows that came in during ``window_us``, before its host asked for it to be taken home.
        asked: the row at which that was; None: it hasn't.
        life: of the host, when it began.
    """

    host: str
    begin: int
    end: int
    window_us: int
    last_us: int = 0
    busiest: int = 0
    asked: int | None = None
    life: int = 0
    _lately: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, now_us: int, row: int, *, asks: bool) -> None:
        self.last_us = now_us
        self.end = max(self.end, row)
        if self.asked is not None:
            return
        if not self._lately or self.end > self._lately[-1][1]:
            self._lately.append((now_us, self.end))
        while len(self._lately) > 1 and self._lately[1][0] <= now_us - self.window_us:
            self._lately.popleft()
        self.busiest = max(self.busiest, self.end - self._lately[0][1])
        self.asked = self.end if asks else None

    @property
    def due(self) -> int:
        """Rows that have to be paid at least."""
        until = self.end if self.asked is None else self.asked
        return max(until - self.begin - self.busiest, 0)


@dataclass(slots=True)
class _Past:
    """What load a node had lately: (when, cores that its fragments take, and all that it has)."""

    loads: list[tuple[int, float, float]] = field(default_factory=list)

    def note(self, now_us: int, fragments: float, followed: float, process: float) -> None:
        self.loads = [each for each in self.loads if each[0] >= now_us - PAST_US]
        self.loads.append((now_us, fragments, max(fragments + followed, process)))

    @property
    def most(self) -> float:
        """With what the node follows, and what its process takes beside its fragments: an owner pays to be
        rid of load whatever makes it."""
        return max((together for *_, together in self.loads), default=0.0)

    @property
    def least(self) -> float:
        return min((fragments for _, fragments, _ in self.loads), default=0.0)


class TradeChecks:
    """After each turn of a node that trades, and for each word that arrives.

    Nothing runs at a host but under a contract that was in force when it began, of the fragments that it is
    about, and no more than it allows at a time. What is agreed costs its owner more than the price, and the
    host less, and the price is in the range. Whose fragments they are pays for rows that came in at a host,
    and for each once.

    Args:
        costs: node -> points of what load costs its owner.
        traders: participant -> the node that trades for it.
        nano_per_row: what a row of any fragment takes.
    """

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, NodeMachine],
        contracts: Sequence[TradedContract],
        costs: Mapping[str, Sequence[tuple[float, int]]],
        traders: Mapping[str, str],
        nano_per_row: int,
    ) -> None:
        self._nano = nano_per_row
        self._world, self._nodes = world, nodes
        self._contracts, self._costs, self._traders = contracts, costs, traders
        self._past = {node: _Past() for node in costs}
        self._looked_us = dict.fromkeys(costs, -LOOK_US)
        self._agreed: set[tuple[str, int]] = set()
        self.stays: dict[tuple[str, int], _Stay] = {}
        """By fragment and epoch."""
        self.handed_over: list[tuple[int, str]] = []
        """When, and what."""

    # --- turns --------------------------------------------------------------------------------------

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn.

        Raises:
            SimulationError: something doesn't hold.
        """
        if node.name not in self._costs or not node.alive:
            return
        self._look_at_guests(node)
        if self._world.now_us >= self._looked_us[node.name] + LOOK_US:
            self._looked_us[node.name] = self._world.now_us
            followed = node.brain.loads.followed_cores()
            self._past[node.name].note(self._world.now_us, self._load(node), followed, _process_cores(node))
            self._look_at_limits(node)
            self._look_at_words(node)

    def _load(self, node: NodeMachine) -> float:
        """Cores that its fragments take, as measured."""
        brain = node.brain
        runs = (name for name, hosted in brain.fragments.items() if not hosted.frozen)
        return sum(load.busy_share for name in runs if (load := brain.loads.fragment(name)) is not None)

    def _look_at_guests(self, node: NodeMachine) -> None:
        for name, hosted in node.brain.fragments.items():
            if hosted.frozen or node.brain.permits.into(name) is None:
                continue
            row = sum(each.fed_seq for each in hosted.inputs.values())
            about = name, node.brain.catalog.ownership.epoch(name)
            if about not in self.stays:
                longest_s = max(each.terms.interval_s for each in self._contracts)
                window_us = UNPAID_INTERVALS * longest_s * 1_000_000
                self.stays[about] = _Stay(node.name, row, row, window_us, life=node.brain.incarnation)
                self.handed_over.append((self._world.now_us, name))
                self._check_begins(node.name, name)
            asks = name in node.brain.abroad.giving_back()
            self.stays[about].note(self._world.now_us, row, asks=asks)

    def _check_begins(self, host: str, fragment: str) -> None:
        wall_us = EPOCH_US + self._world.now_us
        may = [each for each in self._of_host(host) if fragment in each.fragments]
        if not may:
            raise SimulationError(f"contract: {fragment} runs at {host}, and no contract is about it")
        if not any(each.terms.begins_us <= wall_us < each.ends_us + LATE_US for each in may):
            late_s = (wall_us - max(each.ends_us for each in may)) / 1e6
            raise SimulationError(f"contract: {fragment} begins at {host} {late_s:.1f} s after its end")

    def _of_host(self, host: str) -> list[TradedContract]:
        return [each for each in self._contracts if self._traders[each.terms.provider] == host]

    def _look_at_limits(self, node: NodeMachine) -> None:
        """By what was agreed on."""
        deals = node.brain.catalog.market.trades.deals
        for known in self._contracts:
            units = sum(
                _units(each)
                for each in deals
                if each.contract.id == known.terms.id and each.part in ("moving", "away", "room", "guest")
            )
            most = known.terms.units_per_s_max_milli / 1_000
            if units > most * ROUNDING:
                raise SimulationError(f"limit: {units:.2f} at {node.name} by {known.terms.id}, of {most:.2f}")
        for each in deals:
            terms = each.contract
            if not terms.price_micro - terms.range_micro <= each.price_micro <= terms.price_micro:
                raise SimulationError(f"price: {each.task.name} for {each.price_micro} by {terms.id}")

    def _look_at_words(self, node: NodeMachine) -> None:
        """Nobody lies here: nothing is wrong with what is billed or signed."""
        wrong = {"E_BILLING", "E_IDENTITY", "E_AUDIENCE", "E_PRICE", "E_TASK_NOT_ALLOWED"}
        if codes := wrong.intersection(node.brain.refusals):
            raise SimulationError(f"words: {node.name} has refused {sorted(codes)}")
        for line in islice(reversed(node.reports), LINES):
            if "disputes" in line.fields and SHORT not in line.what:
                raise SimulationError(f"dispute: {node.name}: {line.what}")

    # --- words --------------------------------------------------------------------------------------

    def delivered(self, source: str, target: str, frames: list[Buffer]) -> None:
        """A frame arrives.

        Raises:
            SimulationError: it agrees to what somebody loses by.
        """
        if source not in self._costs or target not in self._costs or bytes(frames[0][1:8]) != TRADED:
            return
        message, payload = decode_frame(frames)
        if not isinstance(message, Traded):
            return
        word = read_traded(source, payload)
        about = source, getattr(word, "negotiation", -1)
        if isinstance(word, LoadAgreed) and about not in self._agreed:
            self._agreed.add(about)
            self._check_agreed(source, target, word)

    def _check_agreed(self, host: str, owner: str, word: LoadAgreed) -> None:
        if not self._nodes[host].alive:
            return
        deals = self._nodes[host].brain.catalog.market.trades.deals
        rooms = [each for each in deals if each.part == "room" and each.negotiation == word.negotiation]
        units = sum(map(_units, rooms))
        if not units:
            return
        price = word.price_micro
        before = self._past[host].least
        costs = (self._cost(host, before + units) - self._cost(host, before)) / units
        if costs > price * ROUNDING:
            raise SimulationError(f"cost: {host} takes {word.tasks} for {price}, which costs it {costs:.0f}")
        load = max(self._past[owner].most, units)
        saves = (self._cost(owner, load) - self._cost(owner, load - units)) / units
        if saves * ROUNDING < price:
            raise SimulationError(f"cost: {owner} pays {price} for {word.tasks}, which saves it {saves:.0f}")

    def _cost(self, node: str, cores: float) -> float:
        """By the points, on straight lines; the last one goes on."""
        points = self._costs[node]
        for (x, y), (x_next, y_next) in pairwise(points):
            if cores <= x_next or (x_next, y_next) == tuple(points[-1]):
                return y + (cores - x) * (y_next - y) / (x_next - x)
        return 0.0

    # --- the end ------------------------------------------------------------------------------------

    def moves_between(self, from_us: int, until_us: int) -> list[tuple[int, str]]:
        """When which fragment began at a host."""
        return [each for each in self.handed_over if from_us <= each[0] < until_us]

    def unequal(self, lost: set[str]) -> str:
        """What two parties don't book alike; empty: all is. Of those that are lost for good nobody asks."""
        for known in self._contracts:
            parties = [self._traders[each] for each in (known.terms.consumer, known.terms.provider)]
            if lost.intersection(parties):
                continue
            books = [self._book(node, known.terms.id) for node in parties]
            if books[0] != books[1]:
                return f"{known.terms.id}: {parties[0]} books {books[0]}, {parties[1]} {books[1]}"
        return ""

    def left(self, lost: set[str]) -> str:
        """What somebody still takes for away, a guest or untold; empty: nothing, of who isn't lost."""
        for node in [name for name in self._costs if name not in lost]:
            kept = self._nodes[node].brain.catalog.market
            held: list[KeptDeal | TaskMark] = [*kept.trades.deals, *kept.marks]
            for each in held:
                if self._traders[each.partner] not in lost:
                    return f"{node} still has {each}"
        return ""

    def check_bills(self, lost: set[str]) -> None:
        """What is owed is for rows that were there, and for all of them but those of two intervals a stay,
        and what came in once its host wanted it taken home.

        Raises:
            SimulationError: more is, or less, or one denies what the other says.
        """
        if why := self.unequal(lost):
            raise SimulationError(f"books: {why}")
        for known in self._contracts:
            owner, host = (self._traders[each] for each in (known.terms.consumer, known.terms.provider))
            _, owed = self._book(owner, known.terms.id)
            rows = sum(each.end - each.begin for each in self.stays.values() if each.host == host)
            most = int(rows * self._nano * ROUNDING * known.terms.price_micro) // UNIT
            if owed > most:
                raise SimulationError(f"bill: {owed} for {rows} rows, at most {most} by {known.terms.id}")
            if not lost and owed < (least := self._least_owed(known, host)):
                raise SimulationError(f"bill: {owed} for {rows} rows, at least {least} by {known.terms.id}")

    def _least_owed(self, known: TradedContract, host: str) -> int:
        """At the lowest price, of stays at hosts that lived: what came after the end isn't paid, nor what
        died there."""
        stays = [each for each in self.stays.values() if each.host == host]
        if any(EPOCH_US + each.last_us >= known.ends_us for each in stays):
            return 0
        whole = [each for each in stays if each.life == self._nodes[host].brain.incarnation]
        rows = sum(each.due for each in whole)
        price_micro = known.terms.price_micro - known.terms.range_micro
        return int(rows * self._nano * price_micro / ROUNDING) // UNIT

    def _book(self, node: str, contract: str) -> tuple[int, int]:
        """Receipts, and what they come to."""
        machine = self._nodes[node]
        market = machine.brain.market
        assert market is not None
        [found] = [
            each for each in market.status(machine.clock.monotonic_us()).contracts if each.id == contract
        ]
        return found.receipts, found.owed_micro + found.settled_micro


def _process_cores(node: NodeMachine) -> float:
    """Cores that all of it takes, as measured."""
    share, usage = node.brain.loads.cpu_share, node.brain.loads.usage
    return 0.0 if share is None or usage is None else share * usage.cores


def _units(deal: KeptDeal) -> float:
    return deal.task.rows_per_s_milli / 1_000 * deal.nano / UNIT
