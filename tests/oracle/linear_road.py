"""Linear Road by a loop over the seconds, written from the benchmark's text alone.

Where the public versions differ: velocities aren't rounded; a segment without cars has none; leaving by
the exit of a segment isn't charged for it; an accident is felt through the minute in which it clears.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

TRAVEL = (1, 2, 3)
EXIT = 4
Cell = tuple[int, int, int]
Place = tuple[int, int, int, int]


@dataclass
class Vehicle:
    seen: int | None = None
    segment: Cell | None = None
    owed: int = 0
    place: Place | None = None
    reports_there: int = 0
    balance: int = 0


@dataclass
class Accident:
    found: int
    cleared: int | None = None

    def felt(self, minute: int) -> bool:
        return self.found < minute and (self.cleared is None or minute <= self.cleared)


@dataclass
class Oracle:
    vehicles: dict[int, Vehicle] = field(default_factory=lambda: defaultdict(Vehicle))
    speeds: dict[tuple[Cell, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    means: dict[tuple[Cell, int], Fraction | None] = field(default_factory=dict)
    stopped: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    live: dict[Place, Accident] = field(default_factory=dict)
    accidents: dict[Cell, list[Accident]] = field(default_factory=lambda: defaultdict(list))
    out: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))

    def second(self, rows: Iterable[Mapping[str, int]]) -> None:
        rows = list(rows)
        for row in rows:
            if row["type"] == 0:
                self.report(row)
        for row in rows:
            if row["type"] == 2:
                balance = self.vehicles[row["vid"]].balance
                self.out["balances"].append((row["time"], row["vid"], row["qid"], balance))

    def report(self, row: Mapping[str, int]) -> None:
        time, vid, minute = row["time"], row["vid"], row["time"] // 60 + 1
        car = self.vehicles[vid]
        cell = (row["xway"], row["dir"], row["seg"])
        self.watch_place(car, row, minute)
        if car.seen is None or time - car.seen > 60:
            car.segment, car.owed = None, 0
        car.seen = time
        if cell != car.segment:
            if car.owed:
                car.balance += car.owed
                self.out["charges"].append((vid, car.balance))
            car.owed = self.enter(row, cell, minute) if row["lane"] != EXIT else 0
        car.segment = cell
        self.speeds[cell, minute][vid].append(row["spd"])

    def enter(self, row: Mapping[str, int], cell: Cell, minute: int) -> int:
        cars, velocity = len(self.speeds.get((cell, minute - 1), ())), self.velocity(cell, minute)
        near = self.nearest(cell, minute)
        if near is not None:
            self.out["accidents"].append((row["time"], row["vid"], row["xway"], row["dir"], near))
        charged = cars > 50 and velocity is not None and velocity < 40 and near is None
        toll = 2 * (cars - 50) ** 2 if charged else 0
        self.out["tolls"].append((row["time"], row["vid"], velocity and float(velocity), toll))
        return toll

    def velocity(self, cell: Cell, minute: int) -> Fraction | None:
        minutes = (self.mean(cell, each) for each in range(minute - 5, minute))
        means = [mean for mean in minutes if mean is not None]
        return sum(means, Fraction(0)) / len(means) if means else None

    def mean(self, cell: Cell, minute: int) -> Fraction | None:
        """Of a minute that is over, so it never changes."""
        if (cell, minute) not in self.means:
            cars = self.speeds.get((cell, minute), {}).values()
            total = sum((Fraction(sum(speeds), len(speeds)) for speeds in cars), Fraction(0))
            self.means[cell, minute] = total / len(cars) if cars else None
        return self.means[cell, minute]

    def nearest(self, cell: Cell, minute: int) -> int | None:
        xway, direction, segment = cell
        for step in range(5):
            there = segment + step if direction == 0 else segment - step
            if any(each.felt(minute) for each in self.accidents.get((xway, direction, there), ())):
                return there
        return None

    def watch_place(self, car: Vehicle, row: Mapping[str, int], minute: int) -> None:
        place = (row["xway"], row["dir"], row["lane"], row["pos"])
        if place != car.place:
            if car.place is not None and row["vid"] in self.stopped[car.place]:
                self.stopped[car.place].discard(row["vid"])
                if len(self.stopped[car.place]) < 2 and car.place in self.live:
                    self.live.pop(car.place).cleared = minute
            car.place, car.reports_there = place, 0
        car.reports_there += 1
        if car.reports_there >= 4 and row["lane"] in TRAVEL:
            self.stopped[place].add(row["vid"])
            if len(self.stopped[place]) >= 2 and place not in self.live:
                self.live[place] = Accident(minute)
                self.accidents[row["xway"], row["dir"], row["pos"] // 5280].append(self.live[place])


def linear_road(rows: Iterable[Mapping[str, int]]) -> tuple[dict[str, list[tuple[Any, ...]]], Oracle]:
    """Rows of each sink in order, and what the oracle knows at the end; input in order of time."""
    oracle = Oracle()
    for _, second in groupby(rows, key=lambda row: row["time"]):
        oracle.second(second)
    return oracle.out, oracle
