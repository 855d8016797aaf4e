"""What runs where, as one participant knows it: its load, tasks of its that are away, guests, room kept.

``virtual`` is what shadow contracts would have moved. It never was, so that it is in a view of its own:

    real load     what is measured here, and room that is kept for what was agreed
    virtual load  that, without what is virtually away, with virtual guests
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from medusa.market.cost import CostFunction, unit_marginal_cost
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.kept import KeptDeal, Part
from medusa.market.negotiation.messages import LoadEnded
from medusa.market.negotiation.reasons import reason_text
from medusa.market.work import NANO, ResourceUse, TradedTask

__all__ = ["AwayTask", "GuestTask", "LoadBooks", "TakenFigures", "kept_deal"]

_ROUNDING = 1e-9

NOTICED = 0.005
"""By so much of itself load has to change before a trader looks whether that changes what it wants. What is
measured is never twice the same; each look costs time."""


@dataclass(slots=True, kw_only=True)
class TakenFigures:
    """What a task that was moved is billed by.

    Attributes:
        task: as it was said when it was agreed.
        signed: by which contract it went.
        number: the consumer's, of the negotiation.
        nano: nano-units of a row.
        since_us: it is there.
        spent, rest: for a virtual one what it would have cost so far, in micro-units; and what is left over.
        reckoned_us: up to when that is.
    """

    task: TradedTask
    signed: SignedContract
    number: int
    price_micro: int
    nano: int
    since_us: int
    spent: int = 0
    rest: int = 0
    reckoned_us: int = 0

    @property
    def partner(self) -> str:
        return self.signed.partner

    @property
    def virtual(self) -> bool:
        return self.signed.contract.shadow

    @property
    def planned(self) -> bool:
        """It went at a signal, and stays until the next one: what it costs now changes nothing."""
        return self.signed.planned_micro(self.task) == self.price_micro

    @property
    def units_per_s(self) -> float:
        return self.signed.units_per_s(self.task)

    def allowed_by(self, signed: SignedContract | None) -> bool:
        """Whether a newer version of its contract allows it at its price."""
        return (
            signed is not None
            and signed.allows(self.task)
            and signed.contract.least_micro <= self.price_micro <= signed.contract.price_micro
        )

    def ended(self, code: str, text: str = "") -> LoadEnded:
        """That this task goes back, as it is told to the partner."""
        return LoadEnded(
            contract=self.signed.contract.id,
            version=self.signed.contract.version,
            negotiation=self.number,
            code=code,
            tasks=(self.task.name,),
            text=text or reason_text(code),
        )

    def reckon(self, now_us: int, rows_per_s_milli: int) -> None:
        """Count what it would have cost since the last time, at this rate."""
        elapsed_us = now_us - max(self.reckoned_us, self.since_us)
        self.reckoned_us = now_us
        work = rows_per_s_milli * max(elapsed_us, 0) * self.nano * self.price_micro + self.rest
        self.spent, self.rest = self.spent + work // (NANO * 10**9), work % (NANO * 10**9)


@dataclass(slots=True, kw_only=True)
class AwayTask(TakenFigures):
    """A task that runs at a provider: our own, or a guest that was passed on.

    Attributes:
        makes_room: it went so that another could come.
        recalled: the code, once it is to come back.
        coming: the provider has said that it gives it back.
        say_at_us, delay_us: when the recall is said again, and how long after the last time.
        seen: as it is now, by the rows that come; None: nobody has counted them.
    """

    makes_room: bool = False
    recalled: str = ""
    coming: bool = False
    say_at_us: int = 0
    delay_us: int = 0
    seen: TradedTask | None = None

    @property
    def now(self) -> TradedTask:
        return self.seen if self.seen is not None else self.task

    def comes_in(self, rows_per_s_milli: int) -> bool:
        """So many rows come now; whether that is so different that a decision may be."""
        before = self.now.rows_per_s_milli
        self.seen = msgspec.structs.replace(self.now, rows_per_s_milli=rows_per_s_milli)
        return abs(rows_per_s_milli - before) > NOTICED * before

    def recall(self, now_us: int, code: str, delay_us: int, most_us: int) -> None:
        """It was called back, for the first time or again."""
        self.recalled = self.recalled or code
        self.delay_us = min(max(self.delay_us * 2, delay_us), most_us)
        self.say_at_us = now_us + self.delay_us

    def comes(self, now_us: int, code: str, most_us: int) -> None:
        """Its provider says so. If nothing comes it is called back again, late."""
        self.recalled, self.coming = self.recalled or code, True
        self.say_at_us, self.delay_us = now_us + most_us, most_us


@dataclass(slots=True, kw_only=True)
class GuestTask(TakenFigures):
    """A task that runs here for a consumer.

    Attributes:
        seen: as it was measured here last; None: not yet.
        seen_us: when that was.
        settled: it was measured for long enough; until then it counts for no less than was said.
        leaving: the code, once it goes back.
        text: and the reason.
        handed: its driver was told to give it back; it may still wait for its return from who has it.
        loss_since_us: it costs more than it earns since then; -1: it doesn't.
    """

    seen: TradedTask | None = None
    seen_us: int = 0
    settled: bool = False
    leaving: str = ""
    text: str = ""
    handed: bool = False
    loss_since_us: int = -1

    @property
    def now(self) -> TradedTask:
        return self.seen if self.seen is not None else self.task

    @property
    def units_now(self) -> float:
        """Units a second for which it pays: the rows that come, each as was agreed."""
        return self.now.rows_per_s_milli / 1e3 * self.nano / NANO

    def measured(self, now_us: int, task: TradedTask, settle_us: int) -> None:
        self.seen, self.seen_us = task, now_us
        self.settled = now_us - self.since_us >= settle_us

    def leave(self, code: str, text: str) -> None:
        self.leaving, self.text = code, text

    def given(self) -> None:
        self.handed = True

    def loses(self, now_us: int, *, so: bool) -> int:
        """For how long it has cost more than it earns."""
        if not so:
            self.loss_since_us = -1
            return 0
        if self.loss_since_us < 0:
            self.loss_since_us = now_us
        return now_us - self.loss_since_us


@dataclass(slots=True)
class _Room:
    """Kept for what was offered or agreed."""

    signed: SignedContract
    price_micro: int
    tasks: dict[str, TradedTask] = field(default_factory=dict)

    @property
    def units_per_s(self) -> float:
        return sum(self.signed.units_per_s(task) for task in self.tasks.values())


class LoadBooks:
    """All of that, and the cost of it.

    Args:
        cost: private.
        capacity: which may not be exceeded; None: none.
    """

    def __init__(self, cost: CostFunction, capacity: ResourceUse | None) -> None:
        self._cost, self._capacity = cost, capacity
        self.known = False  # whether anything was measured yet
        self._tasks: dict[str, TradedTask] = {}
        self._use = ResourceUse()
        self._idle = ResourceUse()
        self._looked_at = (0.0, 0.0, 0.0)
        self._came_us: dict[str, int] = {}
        self._moving: dict[str, int] = {}
        self._rooms: dict[tuple[str, int], _Room] = {}
        self._virtual: dict[tuple[str, str], int] = {}
        self.away: dict[tuple[str, bool], AwayTask] = {}
        self.guests: dict[tuple[str, bool], GuestTask] = {}

    # --- what is measured -----------------------------------------------------------------------

    def measured(self, tasks: Sequence[TradedTask], idle: ResourceUse) -> bool:
        """All that runs here; whether it differs so much from when this was said last that a decision may:
        by a task, or by half a percent of the load or of its cost."""
        found = {task.name: task for task in tasks}
        others = not self.known or found.keys() != self._tasks.keys()
        self.known = True
        if found == self._tasks and idle == self._idle and not others:
            return False
        self._tasks, self._idle = found, idle
        self._came_us = {name: at_us for name, at_us in self._came_us.items() if name in found}
        self._sum()
        figures = self._use.cpu_cores, self._use.bytes_per_s, self._cost.cost(self._use)
        apart = any(abs(new - old) > NOTICED * old for new, old in zip(figures, self._looked_at, strict=True))
        if others or apart:
            self._looked_at = figures
        return others or apart

    def measured_away(self, rows_per_s_milli: Mapping[str, int]) -> bool:
        """How many rows come to tasks that are away; whether that differs so much that a decision may."""
        differs = False
        for (name, _), away in self.away.items():
            if rate := rows_per_s_milli.get(name, 0):
                differs |= away.comes_in(rate)
        return differs

    def reckon(self, now_us: int) -> None:
        """Count what shadow contracts would have moved, up to now, by what was measured last."""
        for book in (self.away, self.guests):
            for (name, virtual), taken in book.items():
                if virtual:
                    taken.reckon(now_us, (self._tasks.get(name) or taken.task).rows_per_s_milli)

    def virtual_over(self, taken: TakenFigures) -> None:
        """It would be over; its money is remembered under its contract."""
        self._virtual[taken.signed.key] = self._virtual.get(taken.signed.key, 0) + taken.spent

    def virtual_micro(self, signed: SignedContract) -> int:
        """What would have been paid under a shadow contract so far."""
        deals = (*self.away.values(), *self.guests.values())
        standing = sum(each.spent for each in deals if each.virtual and each.signed.key == signed.key)
        return self._virtual.get(signed.key, 0) + standing

    def _sum(self) -> None:
        cores, nbytes = self._idle.cpu_cores, self._idle.bytes_per_s
        for task in self._tasks.values():
            use = task.use
            cores, nbytes = cores + use.cpu_cores, nbytes + use.bytes_per_s
        self._use = ResourceUse(cpu_cores=cores, bytes_per_s=nbytes)

    def here(self) -> Iterator[TradedTask]:
        yield from self._tasks.values()

    def task(self, name: str) -> TradedTask | None:
        return self._tasks.get(name)

    def came(self, now_us: int, name: str) -> None:
        self._came_us[name] = now_us

    def came_us(self, name: str) -> int | None:
        """When it came here from a partner; None: it always was here."""
        return self._came_us.get(name)

    def arrivals(self) -> Iterator[int]:
        """When each of those came that did."""
        return (at_us for name, at_us in self._came_us.items() if name in self._tasks)

    def drop_away(self, key: tuple[str, bool]) -> AwayTask:
        return self.away.pop(key)

    # --- what is on its way ---------------------------------------------------------------------

    def moves(self, name: str, number: int) -> None:
        """Its driver hands it over."""
        self._moving[name] = number

    def moving(self, name: str) -> bool:
        return name in self._moving

    def all_moving(self) -> Iterator[str]:
        """Names of all that are on their way."""
        return iter(self._moving)

    def stays(self, name: str) -> None:
        """That is over, one way or the other."""
        self._moving.pop(name, None)

    def left(self, name: str) -> None:
        """It runs here no more, whatever was measured last."""
        self._moving.pop(name, None)
        if self._tasks.pop(name, None) is not None:
            self._sum()

    def keep_room(
        self, key: tuple[str, int], signed: SignedContract, price_micro: int, tasks: Sequence[TradedTask]
    ) -> None:
        """For tasks of a partner's negotiation at this price, in place of what was kept for it."""
        self._rooms[key] = _Room(signed, price_micro, {task.name: task for task in tasks})

    def free_room(self, key: tuple[str, int]) -> None:
        self._rooms.pop(key, None)

    def kept(self, key: tuple[str, int]) -> ResourceUse:
        room = self._rooms.get(key)
        return _sum_of(room.tasks.values()) if room is not None else ResourceUse()

    # --- load -----------------------------------------------------------------------------------

    def load(self, *, virtual: bool = False) -> ResourceUse:
        """What is surely here: what a consumer reckons with. What moves away counts no more."""
        use = self._use
        for name in self._moving:
            if (task := self._tasks.get(name)) is not None:
                use = use.minus(task.use)
        return self._virtually(use) if virtual else use

    def load_promised(self, *, virtual: bool = False) -> ResourceUse:
        """With all that may come: what a provider reckons with. What moves away still counts."""
        use = self._use
        for room in self._rooms.values():
            if room.signed.contract.shadow == virtual or not room.signed.contract.shadow:
                use = use.plus(_sum_of(task for name, task in room.tasks.items() if name not in self._tasks))
        for guest in self.guests.values():
            name = guest.task.name
            here = self._tasks.get(name)
            if not guest.virtual and here is None and (name, False) not in self.away:
                use = use.plus(guest.task.use)
            elif not guest.virtual and here is not None and not guest.settled:
                use = use.plus(_beyond(guest.task.use, here.use))
        for (name, shadow), away in self.away.items():
            if not shadow and away.recalled and name not in self._tasks:
                use = use.plus(away.now.use)
        return self._virtually(use) if virtual else use

    def _virtually(self, use: ResourceUse) -> ResourceUse:
        for (name, shadow), away in self.away.items():
            if shadow and (task := self._tasks.get(name)) is not None:
                use = use.minus(task.use)
            elif shadow:
                use = use.minus(away.task.use)
        for guest in self.guests.values():
            if guest.virtual:
                use = use.plus(guest.task.use)
        return use

    def fits(self, use: ResourceUse) -> bool:
        """Whether so much is within what was declared."""
        most = self._capacity
        return most is None or (
            (not most.cpu_cores or use.cpu_cores <= most.cpu_cores * (1 + _ROUNDING))
            and (not most.bytes_per_s or use.bytes_per_s <= most.bytes_per_s * (1 + _ROUNDING))
        )

    @property
    def overloaded(self) -> bool:
        return not self.fits(self._use)

    # --- cost -----------------------------------------------------------------------------------

    def saved(self, load: ResourceUse, task: TradedTask, units_per_s: float) -> float:
        """By how much a unit of this task less lowers the cost, of a load that has it."""
        return unit_marginal_cost(self._cost, load.minus(task.use), task.use, units_per_s)

    def added(self, load: ResourceUse, task: TradedTask, units_per_s: float) -> float:
        """By how much a unit of this task more raises it."""
        return unit_marginal_cost(self._cost, load, task.use, units_per_s)

    def cost_of(self, load: ResourceUse) -> float:
        return self._cost.cost(load)

    # --- contracts ------------------------------------------------------------------------------

    def units_away(self, signed: SignedContract) -> float:
        """What runs at the partner by this contract."""
        return sum(each.units_per_s for each in self.away.values() if each.signed.key == signed.key)

    def units_taken(self, signed: SignedContract) -> float:
        """What runs here by this contract, or has room here."""
        rooms = (room for room in self._rooms.values() if room.signed.key == signed.key)
        units = sum(room.units_per_s for room in rooms)
        guests = (each for each in self.guests.values() if each.signed.key == signed.key)
        return units + sum(each.units_now for each in guests)

    def all_units_taken(self) -> dict[tuple[str, str], float]:
        """The same of all contracts by which something runs here, or has room here."""
        found: dict[tuple[str, str], float] = {}
        for room in self._rooms.values():
            found[room.signed.key] = found.get(room.signed.key, 0.0) + room.units_per_s
        for guest in self.guests.values():
            found[guest.signed.key] = found.get(guest.signed.key, 0.0) + guest.units_now
        return found

    def owed_micro_per_s(self, signed: SignedContract, *, taken: bool) -> float:
        """Money a second for what runs by this contract, and has room here where it is taken."""
        if taken:
            guests = (each for each in self.guests.values() if each.signed.key == signed.key)
            rooms = (room for room in self._rooms.values() if room.signed.key == signed.key)
            kept = sum(room.price_micro * room.units_per_s for room in rooms)
            return kept + sum(each.price_micro * each.units_now for each in guests)
        away = (each for each in self.away.values() if each.signed.key == signed.key)
        return sum(each.price_micro * each.units_per_s for each in away)

    def knows(self, name: str, *, virtual: bool) -> bool:
        """Whether a task of this name is here, is a guest, is away, or has room."""
        return (
            (name in self._tasks)
            or (name, virtual) in self.guests
            or (name, virtual) in self.away
            or any(name in room.tasks for room in self._rooms.values())
        )


def kept_deal(part: Part, taken: TakenFigures, back: str) -> KeptDeal:
    """As it outlives a restart."""
    return KeptDeal(
        part=part,
        partner=taken.partner,
        task=taken.task,
        contract=taken.signed.contract,
        negotiation=taken.number,
        price_micro=taken.price_micro,
        nano=taken.nano,
        since_us=taken.since_us,
        back=back,
    )


def _beyond(said: ResourceUse, measured: ResourceUse) -> ResourceUse:
    """What was said and isn't measured."""
    return ResourceUse(
        cpu_cores=max(said.cpu_cores - measured.cpu_cores, 0.0),
        bytes_per_s=max(said.bytes_per_s - measured.bytes_per_s, 0.0),
    )


def _sum_of(tasks: Iterable[TradedTask]) -> ResourceUse:
    cores = nbytes = 0.0
    for task in tasks:
        cores, nbytes = cores + task.use.cpu_cores, nbytes + task.use.bytes_per_s
    return ResourceUse(cpu_cores=cores, bytes_per_s=nbytes)
