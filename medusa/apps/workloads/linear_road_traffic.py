"""Made traffic for Linear Road: seeded, dense enough to be charged, with accidents and re-entries.

Each car reports every 30 s. Its speed is drawn anew for each report: free, slow where the road is
congested, slower before an accident. A share of the cars comes back for a second trip; a share of the
reports brings a request for an account balance. Times and order are those of the benchmark's files:
sorted by second, and within a second by vehicle.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from medusa.apps.workloads.linear_road import FIELDS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Traffic", "traffic"]

EVERY_S = 30
FEET_PER_MPH = 44
"""How far a car comes in 30 s at 1 mph; at 100 mph less than a segment, so none is skipped."""
SEGMENT_FEET = 5280
SEGMENTS = 100


@dataclass(frozen=True)
class Traffic:
    """What to make.

    Attributes:
        seconds: until when cars report.
        cars: trips that begin, spread evenly over the first 2/3 of the time.
        xways: expressways, each with both directions.
        jam: segments in which cars crawl, and where most trips lead through.
        accidents: how many crashes of two or three cars, at most; some clear before they count.
        comes_back: share of the cars that enter again 61 to 240 s after their exit.
        asks: share of the reports with a request for the balance.
    """

    seconds: int = 900
    cars: int = 900
    xways: int = 1
    jam: range = range(40, 44)
    accidents: int = 6
    comes_back: float = 0.2
    asks: float = 0.02


@dataclass
class _Car:
    vid: int
    xway: int
    dir: int
    pos: int
    exit_seg: int
    speed: int = 0
    lane: int = 0
    trips: int = 1
    stopped_until: int = 0

    @property
    def segment(self) -> int:
        return self.pos // SEGMENT_FEET

    def stop(self, lane: int, pos: int, until: int) -> None:
        self.lane, self.pos, self.speed, self.stopped_until = lane, pos, 0, until

    def change_lane(self, lane: int) -> None:
        self.lane = lane

    def drive(self, speed: int) -> None:
        """For the time between two reports."""
        self.speed = speed
        way = -1 if self.dir else 1
        self.pos = min(SEGMENTS * SEGMENT_FEET - 1, max(0, self.pos + way * speed * FEET_PER_MPH))


@dataclass
class _Crash:
    """Cars that report in its cell from ``begin`` on stop at one place until ``end``."""

    begin: int
    end: int
    cell: tuple[int, int, int]
    wanted: int
    place: tuple[int, int] | None = None
    cars: int = 0

    def take(self, car: _Car) -> None:
        """The first car says the place."""
        self.place = self.place or (car.lane, car.pos)
        self.cars += 1
        car.stop(*self.place, until=self.end)


def traffic(plan: Traffic | None = None, *, seed: int = 0) -> pa.Table:
    """Position reports and balance requests as the query's source wants them.

    The same plan and seed give the same rows.
    """
    import pyarrow as pa

    rows = sorted(_Road(plan or Traffic(), random.Random(seed)).rows(), key=lambda row: row[1:3])
    columns = zip(*rows, strict=True) if rows else [() for _ in FIELDS]
    return pa.table({name: pa.array(c, pa.int32()) for name, c in zip(FIELDS, columns, strict=True)})


class _Road:
    def __init__(self, plan: Traffic, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._crashes = [self._crash() for _ in range(plan.accidents)]
        self._queries = 0

    def rows(self) -> list[tuple[int, ...]]:
        """One tuple for each report and request, in the order of ``FIELDS``."""
        found: list[tuple[int, ...]] = []
        due = [(at, vid, self._enter(vid)) for vid, at in enumerate(self._starts(), 100)]
        heapq.heapify(due)
        while due:
            now, vid, car = heapq.heappop(due)
            if now >= self._plan.seconds:
                continue
            found.append(self._report(now, car))
            if self._chance.random() < self._plan.asks:
                self._queries += 1
                found.append((2, now, vid, *(-1,) * 6, self._queries, *(-1,) * 5))
            if car.lane != 4:
                self._move(now, car)
                heapq.heappush(due, (now + EVERY_S, vid, car))
            elif car.trips < 3 and self._chance.random() < self._plan.comes_back:
                again = replace(self._enter(vid), trips=car.trips + 1)
                heapq.heappush(due, (now + self._chance.randint(61, 240), vid, again))
        return found

    def _starts(self) -> list[int]:
        last = max(1, self._plan.seconds * 2 // 3)
        return [self._chance.randrange(last) for _ in range(self._plan.cars)]

    def _enter(self, vid: int) -> _Car:
        """A car at an entrance ramp some segments before, or in, the jam, that leaves after it or in it."""
        direction = self._chance.randrange(2)
        low, high = self._plan.jam.start, self._plan.jam.stop - 1
        start, goal = low - self._chance.randint(-1, 2), high + self._chance.randint(-2, 2)
        if direction:
            start, goal = low + high - start, low + high - goal
        start, goal = (min(SEGMENTS - 1, max(0, segment)) for segment in (start, goal))
        pos = start * SEGMENT_FEET + self._chance.randrange(SEGMENT_FEET)
        return _Car(vid, self._chance.randrange(self._plan.xways), direction, pos, goal, speed=20)

    def _report(self, now: int, car: _Car) -> tuple[int, ...]:
        return (0, now, car.vid, car.speed, car.xway, car.lane, car.dir, car.segment, car.pos, *(-1,) * 6)

    def _move(self, now: int, car: _Car) -> None:
        """To where the car's next report is, 30 s later."""
        if car.stopped_until > now:
            return
        crash = self._crash_at(now, car) if car.lane in (1, 2, 3) else None
        if crash is not None:
            crash.take(car)
            return
        car.drive(self._speed(now, car))
        over = (car.segment - car.exit_seg) * (-1 if car.dir else 1)
        # Some leave by the ramp of the segment in which they were seen, most on coming to it.
        leaves = over > 0 or (over == 0 and self._chance.random() < 0.6) or car.segment in (0, SEGMENTS - 1)
        car.change_lane(4 if leaves else self._chance.randint(1, 3))

    def _speed(self, now: int, car: _Car) -> int:
        for crash in self._crashes:
            xway, direction, where = crash.cell
            before = (where - car.segment) * (-1 if car.dir else 1)
            if (
                (xway, direction) == (car.xway, car.dir)
                and 0 <= before <= 2
                and crash.begin <= now < crash.end
            ):
                return self._chance.randint(5, 20)
        return self._chance.randint(15, 50) if car.segment in self._plan.jam else self._chance.randint(45, 90)

    def _crash(self) -> _Crash:
        begin = self._chance.randrange(self._plan.seconds // 4, max(2, self._plan.seconds * 3 // 4))
        segment = self._chance.choice(list(self._plan.jam))
        cell = (self._chance.randrange(self._plan.xways), self._chance.randrange(2), segment)
        return _Crash(
            begin, begin + self._chance.choice((60, 95, 150, 240)), cell, self._chance.choice((2, 2, 3))
        )

    def _crash_at(self, now: int, car: _Car) -> _Crash | None:
        cell = (car.xway, car.dir, car.segment)
        for crash in self._crashes:
            if crash.cell == cell and crash.begin <= now < crash.end and crash.cars < crash.wanted:
                return crash
        return None
