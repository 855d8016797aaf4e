"""Fragments as tasks: how many rows come, and what a row takes, as whole numbers.

The name of a task is that of its fragment behind that of its owner: ``alice/clicks/filter``. So it is the
same at whoever runs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from medusa.market.work import ResourceUse, TradedTask
from medusa.nodes.market.tasks_port import HostedGuest
from medusa.wire.status_and_metrics import SmoothedLoad

__all__ = ["TASK_CHARS_MAX", "AwayRates", "KnownLoads", "MeasuredTasks", "fragment_of", "task_of"]

TASK_CHARS_MAX = 256

STEADY = 0.02
"""A figure counts as unchanged while it is within so much of the last one. Too small: all partners hear of
each flicker; too large: load is judged by old figures."""

RATE_US = 20_000_000
"""The rows of a fragment that is away are counted over so long. Too small: they come a checkpoint at a time;
too large: that there is room for it at home shows late."""

IDLE_STEP = 0.01
"""What the process takes beside its fragments is told in steps of so many cores."""


def task_of(owner: str, fragment: str) -> str:
    """The name of a fragment's task."""
    return f"{owner}/{fragment}"


def fragment_of(task: str) -> str:
    """The fragment of a task."""
    return task.partition("/")[2]


class KnownLoads(Protocol):
    """What is asked of ``NodeLoads``."""

    @property
    def on_processor(self) -> float: ...

    @property
    def beside_cores(self) -> float | None: ...

    def followed_cores(self, without: Collection[str] = ()) -> float: ...

    def cpu_cores(self, fragment: str) -> float | None: ...

    def fragment(self, name: str) -> SmoothedLoad | None: ...


class AwayRates:
    """How many rows come to fragments that are away: what is durable of them at home, over the last seconds.

    That grows by a checkpoint at a time, so of few seconds it says nothing.
    """

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[int, int]]] = {}

    def look(self, time_us: int, rows: Mapping[str, int]) -> dict[str, int]:
        """Rows a second, times 1,000, of those that are known for long enough.

        Args:
            rows: fragment -> up to which row it is here.
        """
        self._looks = {name: self._looks.get(name, deque()) for name in rows}
        found = {}
        for name, row in rows.items():
            looks = self._looks[name]
            looks.append((time_us, row))
            while looks[0][0] < time_us - RATE_US:
                looks.popleft()
            since_us, since_row = looks[0]
            if time_us - since_us >= RATE_US // 2:
                found[name] = (row - since_row) * 1_000_000_000 // (time_us - since_us)
        return found


class MeasuredTasks:
    """Measures what runs here: by CPU time, so that it's the same at an owner who has processors to himself
    and at one who shares them.

    Args:
        own: our participant.
        in_process: fragments run in the process of the node; else what that takes is no part of the capacity.
    """

    def __init__(self, own: str, loads: KnownLoads, *, in_process: bool = True) -> None:
        self._own, self._loads, self._in_process = own, loads, in_process
        self._last: dict[str, TradedTask] = {}

    def look(self, own: Iterable[str], guests: Mapping[str, HostedGuest]) -> list[TradedTask]:
        """All that runs here, our own fragments and guests, as they are now."""
        owners = {name: self._own for name in own if name not in guests}
        owners |= {name: each.participant for name, each in guests.items()}
        # A guest of which nothing is known yet is no load of 0: what was agreed counts until then.
        known = [name for name in owners if name not in guests or self._loads.fragment(name) is not None]
        tasks = [self._task(name, owners[name]) for name in known if _fits(owners[name], name)]
        self._last = {each.name: each for each in tasks}
        return tasks

    def idle(self, coming: Collection[str]) -> ResourceUse:
        """What the process takes beside all that runs here.

        Args:
            coming: guests that may come: one that is about to is followed here, and is in what was agreed.
        """
        beside = self._loads.beside_cores
        if beside is None or not self._in_process:
            return ResourceUse()
        beside += self._loads.followed_cores(coming)
        return ResourceUse(cpu_cores=round(beside / IDLE_STEP) * IDLE_STEP)

    @property
    def on_processor(self) -> float:
        """Of the time that tasks take, the share in which they have a processor; 1 for those that run
        elsewhere."""
        return self._loads.on_processor if self._in_process else 1.0

    def _task(self, fragment: str, owner: str) -> TradedTask:
        name, load = task_of(owner, fragment), self._loads.fragment(fragment)
        before = self._last.get(name)
        rows_milli = 0 if load is None else round(load.rows_in_per_s * 1_000)
        # Of one to which nothing comes just now it is known what a row took.
        cpu_ns = 0 if before is None else before.cpu_ns_per_row
        if load is not None and rows_milli:
            # What runs elsewhere says itself for how long it was at work.
            cores = self._loads.cpu_cores(fragment) if self._in_process else load.busy_share
            cpu_ns = round((cores or 0.0) * 1e12 / rows_milli)
        if before is not None:
            rows_milli = _steady(before.rows_per_s_milli, rows_milli)
            cpu_ns = _steady(before.cpu_ns_per_row, cpu_ns)
        return TradedTask(name=name, owner=owner, rows_per_s_milli=rows_milli, cpu_ns_per_row=cpu_ns)


def _fits(owner: str, fragment: str) -> bool:
    return len(task_of(owner, fragment)) <= TASK_CHARS_MAX


def _steady(before: int, now: int) -> int:
    return before if abs(now - before) <= STEADY * before else now
