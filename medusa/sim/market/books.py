"""Where each task runs, who pays whom for it, and what each participant has earned against staying alone.

This is the truth of the simulation: real costs and real loads, whatever anybody says. Loads and amounts are
whole numbers (rows/s x 1,000 x nano-units: trillionths of a core, or of a micro-unit a second), so that
nothing is left over after a million moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from medusa.market.work import NANO, TradedTask
from medusa.sim.market.optimum import CostCurve
from medusa.sim.market.population import Endowment
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["PICO", "Hop", "MarketBooks", "PlacedTask", "Seat"]

PICO = NANO * 1_000
"""Of the whole numbers in a core, or in a micro-unit a second."""

US_PER_S = 1_000_000


@dataclass(slots=True)
class Hop:
    """One step of a task away from its owner.

    Attributes:
        host: who took it.
        price_micro, nano_units_per_row: as agreed.
        paid: whether what is billed is paid.
    """

    host: int
    price_micro: int
    nano_units_per_row: int
    paid: bool = True


@dataclass(slots=True)
class PlacedTask:
    """A task and its way: it runs at the last hop's host, or at its owner."""

    task: TradedTask
    owner: int
    hops: list[Hop] = field(default_factory=list)
    idle: bool = False

    @property
    def host(self) -> int:
        return self.hops[-1].host if self.hops else self.owner

    @property
    def from_whom(self) -> int:
        """Who handed it to its host; the owner itself, where it is at home."""
        return self.hops[-2].host if len(self.hops) > 1 else self.owner

    @property
    def load_pico(self) -> int:
        """What it takes where it runs."""
        return 0 if self.idle else self.task.rows_per_s_milli * self.task.cpu_ns_per_row


class Seat:
    """The account of one participant.

    Attributes:
        own_pico, load_pico: what its own tasks take, wherever they are; and all that runs here.
        income, spending: a second, in trillionths of a micro-unit.
        earned_micro, paid_micro, cost_micro, alone_micro: so far: from guests, to partners, what the load
            here cost, and what its own would have cost alone.
        profit_micro: so far, against what staying alone would have cost.
        worst_micro: the lowest that ever was.
        loss_micro: of all moments in which it did worse than alone, without those in which it did better.
        late_loss_micro: of those, what came longer than the reaction time after anything had changed for it.
        peak_pico, own_peak_pico: the most of each load since ``begin_peaks``.
    """

    __slots__ = (
        "_changed_us",
        "_cost",
        "_cost_alone",
        "_curve",
        "_rate",
        "_reaction_us",
        "_then_us",
        "alone_micro",
        "cost_micro",
        "earned_micro",
        "income",
        "late_loss_micro",
        "load_pico",
        "loss_micro",
        "own_peak_pico",
        "own_pico",
        "paid_micro",
        "peak_pico",
        "profit_micro",
        "spending",
        "tasks",
        "worst_micro",
    )

    def __init__(self, curve: CostCurve, tasks: Sequence[PlacedTask], reaction_us: int) -> None:
        self._curve, self._reaction_us = curve, reaction_us
        self.tasks = {each.task.name: each for each in tasks}
        self.own_pico = self.load_pico = sum(each.load_pico for each in tasks)
        self.income = self.spending = 0
        self.profit_micro = self.worst_micro = self.loss_micro = self.late_loss_micro = 0.0
        self.earned_micro = self.paid_micro = self.cost_micro = self.alone_micro = 0.0
        self._then_us = self._changed_us = 0
        self._rate = 0.0
        self._cost = self._cost_alone = curve.cost(self.own_pico / PICO)
        self.begin_peaks()

    @property
    def load(self) -> float:
        """Cores in use here."""
        return self.load_pico / PICO

    @property
    def own_load(self) -> float:
        """Cores that its own tasks take, wherever they are."""
        return self.own_pico / PICO

    @property
    def cost(self) -> float:
        """Micro-units a second of what runs here."""
        return self._cost

    @property
    def rate_micro(self) -> float:
        """By so much a second it does better now than alone."""
        return self._rate

    def begin_peaks(self) -> None:
        self.peak_pico, self.own_peak_pico = self.load_pico, self.own_pico

    def until(self, now_us: int) -> None:
        """Count what was earned since the last change."""
        if now_us == self._then_us:
            return
        seconds = (now_us - self._then_us) / US_PER_S
        gained = self._rate * seconds
        self.earned_micro += self.income / PICO * seconds
        self.paid_micro += self.spending / PICO * seconds
        self.cost_micro += self._cost * seconds
        self.alone_micro += self._cost_alone * seconds
        self.profit_micro += gained
        if gained < 0:
            self.worst_micro = min(self.worst_micro, self.profit_micro)
            self.loss_micro -= gained
            late_us = now_us - max(self._then_us, self._changed_us + self._reaction_us)
            if late_us > 0:
                self.late_loss_micro -= self._rate * late_us / US_PER_S
        self._then_us = now_us

    def count(
        self,
        now_us: int,
        *,
        own: int = 0,
        load: int = 0,
        income: int = 0,
        spending: int = 0,
        new: bool = False,
    ) -> None:
        """Something changes by so much. ``new``: by no decision of its own, so that it has to react."""
        self.until(now_us)
        self.load_pico += load
        self.income += income
        self.spending += spending
        if own:
            self.own_pico += own
            self._cost_alone = self._curve.cost(self.own_pico / PICO)
        if new:
            self._changed_us = now_us
        self.peak_pico = max(self.peak_pico, self.load_pico)
        self.own_peak_pico = max(self.own_peak_pico, self.own_pico)
        self._cost = self._curve.cost(self.load)
        self._rate = (self.income - self.spending) / PICO - self._cost + self._cost_alone


class MarketBooks:
    """All tasks and all accounts.

    Args:
        reaction_us: what a participant is given after a change before a loss counts as late.

    Attributes:
        handed: so many tasks each participant has handed over so far, its own and those of others.
    """

    def __init__(self, members: Sequence[Endowment], *, reaction_us: int = 0) -> None:
        self.tasks: dict[str, PlacedTask] = {}
        self.seats: list[Seat] = []
        self._owned: list[list[PlacedTask]] = []
        self.moves = self.returns = 0
        self.handed = [0] * len(members)
        for number, member in enumerate(members):
            placed = [PlacedTask(task, number) for task in member.tasks]
            self.tasks.update((each.task.name, each) for each in placed)
            self._owned.append(placed)
            self.seats.append(Seat(member.curve, placed, reaction_us))

    def running_at(self, member: int) -> list[TradedTask]:
        """What its trader measures."""
        return [each.task for each in self.seats[member].tasks.values()]

    def hand_over(self, now_us: int, name: str, source: int, hop: Hop, *, idle: bool = False) -> None:
        """A task goes one hop further.

        Raises:
            SimulationError: it doesn't run at ``source``, or has been at that host before.
        """
        placed = self.tasks.get(name)
        if placed is None or placed.host != source:
            raise SimulationError(f"{name} is handed over by {source}, where it doesn't run")
        if hop.host == placed.owner or any(hop.host == each.host for each in placed.hops):
            raise SimulationError(f"{name} comes to {hop.host} a second time: it goes round in a circle")
        self._leave(now_us, placed, source)
        placed.hops.append(hop)
        placed.idle = idle
        self._enter(now_us, placed, hop.host)
        self._bill(now_us, placed, source, hop, 1)
        self.moves += 1
        self.handed[source] += 1

    def hand_back(self, now_us: int, name: str, source: int, *, recalled: bool = False) -> int:
        """A task goes one hop back; to whom. Who didn't decide that has to react to it: its host, if it was
        ``recalled``, else who gets it.

        Raises:
            SimulationError: it isn't there as a guest.
        """
        placed = self.tasks.get(name)
        if placed is None or placed.host != source or not placed.hops:
            raise SimulationError(f"{name} is handed back by {source}, where it is no guest")
        self._leave(now_us, placed, source)
        hop, back = placed.hops[-1], placed.from_whom
        self._bill(now_us, placed, back, hop, -1)
        placed.hops.pop()
        placed.idle = False
        self._enter(now_us, placed, back)
        self.seats[source if recalled else back].count(now_us, new=True)
        self.returns += 1
        return back

    def stop_paying(self, now_us: int, name: str, host: int) -> None:
        """What this host is owed from now on for this task isn't paid. It must have it."""
        placed = self.tasks[name]
        for hop, payer in _payers(placed):
            if hop.host == host and hop.paid:
                self._bill(now_us, placed, payer, hop, -1)
                hop.paid = False

    def change(self, now_us: int, owner: int, new_rows: Callable[[TradedTask], int]) -> set[int]:
        """The rows of all tasks of an owner change; who runs some of them."""
        hosts = set()
        for placed in self._owned[owner]:
            hosts.add(placed.host)
            before = placed.load_pico
            for hop, payer in _payers(placed):
                self._bill(now_us, placed, payer, hop, -1)
            own_before = placed.task.rows_per_s_milli * placed.task.cpu_ns_per_row
            placed.task = msgspec.structs.replace(placed.task, rows_per_s_milli=new_rows(placed.task))
            own = placed.task.rows_per_s_milli * placed.task.cpu_ns_per_row
            self.seats[owner].count(now_us, own=own - own_before, new=True)
            self.seats[placed.host].count(now_us, load=placed.load_pico - before, new=True)
            for hop, payer in _payers(placed):
                self._bill(now_us, placed, payer, hop, 1, new=True)
        return hosts

    def close(self, now_us: int) -> None:
        """Count everything up to now."""
        for seat in self.seats:
            seat.until(now_us)

    def _leave(self, now_us: int, placed: PlacedTask, host: int) -> None:
        seat = self.seats[host]
        del seat.tasks[placed.task.name]
        seat.count(now_us, load=-placed.load_pico)

    def _enter(self, now_us: int, placed: PlacedTask, host: int) -> None:
        seat = self.seats[host]
        seat.tasks[placed.task.name] = placed
        seat.count(now_us, load=placed.load_pico)

    def _bill(
        self, now_us: int, placed: PlacedTask, payer: int, hop: Hop, sign: int, *, new: bool = False
    ) -> None:
        if not hop.paid or placed.idle:
            return
        rate = sign * placed.task.rows_per_s_milli * hop.nano_units_per_row * hop.price_micro
        self.seats[hop.host].count(now_us, income=rate, new=new)
        self.seats[payer].count(now_us, spending=rate, new=new)


def _payers(placed: PlacedTask) -> list[tuple[Hop, int]]:
    """Each hop, and who pays for it."""
    return list(zip(placed.hops, [placed.owner, *(hop.host for hop in placed.hops)], strict=False))
