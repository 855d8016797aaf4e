"""A thread of a node in virtual time: it does its jobs one after the other, and each takes a little."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from medusa.sim.world.virtual_time import World

__all__ = ["Worker"]


class _Place(Protocol):
    """The machine that it runs on."""

    world: World
    slowness: int

    def in_this_life(self, call: Callable[[], None]) -> Callable[[], None]:
        """As ``Machine`` says."""


class Worker:
    """Of one life of a machine, with which its jobs die.

    Args:
        job_us: what a job takes, about.

    Attributes:
        free_us: when it has done all.
    """

    idle = True

    def __init__(self, place: _Place, job_us: int, dice: Random) -> None:
        self._place = place
        self._job_us = job_us
        self._dice = dice
        self.free_us = self._took_us = 0
        self._jobs: deque[tuple[Callable[[], None], int, int]] = deque()
        """Each with when it begins and when it is done."""
        self._paced = 0
        """So often the times of what waits have changed."""

    def give(self, job: Callable[[], None]) -> None:
        """Do it after those before."""
        self._put(job, self._dice.randrange(1, 2 * self._job_us) * self._place.slowness)

    def _put(self, job: Callable[[], None], took_us: int) -> None:
        world, paced = self._place.world, self._paced
        begin_us = max(self.free_us, world.now_us)
        self.free_us = begin_us + took_us
        self._took_us += took_us
        self._jobs.append((job, begin_us, self.free_us))
        world.at(self.free_us, self._place.in_this_life(lambda: self._do(paced)))

    def _do(self, paced: int) -> None:
        if paced == self._paced:
            self._jobs.popleft()[0]()

    def slows_down(self, before: int, times: int) -> None:
        """The machine is so many times as slow from now on, and was so many times: that goes for what waits
        too, and for the rest of what is being done."""
        if before == times:
            return
        now_us, jobs = self._place.world.now_us, [*self._jobs]
        self._jobs.clear()
        self._paced += 1
        self.free_us = min(self.free_us, now_us)
        for job, begin_us, end_us in jobs:
            rest_us = max(end_us - max(begin_us, now_us), 0)
            self._took_us -= rest_us
            self._put(job, rest_us * times // before)

    def cpu_us(self) -> int:
        """What it has done so far takes; not what it was given and hasn't begun with."""
        return self._took_us - max(self.free_us - self._place.world.now_us, 0)

    def hurry(self, most: int | None) -> None:
        """Do at once what was given."""
        for _ in range(len(self._jobs) if most is None else min(most, len(self._jobs))):
            self._do(self._paced)

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        """Nothing runs beside us."""
        return True
