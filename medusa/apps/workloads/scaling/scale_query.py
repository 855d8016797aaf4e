"""Tolls of road segments, at a cost for each car: the query of ``medusa demo scale``, and where it runs.

    gate cars ── toll tolls ── gate out        spare1, spare2, spare3: nothing, until the box is split

The cost is artificial: for each car the function waits, as for a service that it asks, or computes hashes
that nobody wants. The answer doesn't depend on it, so the same query without it says what has to come.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count, user
from medusa.query.user_registry import register

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "AT",
    "BOX",
    "GATE",
    "OUT",
    "QUERY",
    "SOURCE",
    "SPARES",
    "TOLL",
    "RowCost",
    "SegmentToll",
    "expected",
    "query",
]

GATE, TOLL = "gate", "toll"
SPARES = ("spare1", "spare2", "spare3")
AT: Mapping[str, Sequence[str]] = {GATE: ["cars", "out"], TOLL: ["tolls"]}
QUERY, BOX = "segments", "tolls"
SOURCE, OUT = f"{QUERY}.cars", f"{QUERY}.out"
WINDOW = "200ms"

SLOW, FEW = 40, 3
"""A toll is due where cars are slower than that, and more than so many."""

BLOCK = bytes(1 << 15)
"""What is hashed: while it is others of the process may run Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """What the function takes for each car: CPU time of its thread, and time in which that waits."""

    cpu_us: int = 0
    wait_us: int = 0

    @property
    def us(self) -> int:
        """The thread has no time for another car for so long."""
        return self.cpu_us + self.wait_us

    @property
    def text(self) -> str:
        """In words."""
        said = [f"{self.cpu_us:,} us of CPU time" if self.cpu_us else ""]
        said += [f"{self.wait_us:,} us of waiting" if self.wait_us else ""]
        return " and ".join(filter(None, said)) or "nothing"


@register("demo.segment_toll", version=1)
class SegmentToll:
    """An aggregate: the toll of a segment, in cents, by how many cars there are and how slow they are.

    Its arguments are a car's speed, and what it costs to look at it: us of CPU time, us of waiting.
    """

    inputs: ClassVar[Sequence[str]] = ("int64", "int64", "int64")
    state: ClassVar[Mapping[str, str]] = {"cars": "int64", "speed": "int64"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        import numpy as np

        return {"cars": np.zeros(groups, np.int64), "speed": np.zeros(groups, np.int64)}

    def add(
        self, state: dict[str, Any], groups: Any, speeds: Any, cpu_us: Any, wait_us: Any
    ) -> dict[str, Any]:
        import numpy as np

        np.add.at(state["cars"], groups, 1)
        np.add.at(state["speed"], groups, speeds)
        _compute(int(np.sum(cpu_us)))
        if waits_us := int(np.sum(wait_us)):
            time.sleep(waits_us / 1e6)
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any], groups: Any) -> dict[str, Any]:
        for name in self.state:
            state[name][groups] += other[name]
        return state

    def finish(self, state: dict[str, Any]) -> Any:
        import numpy as np

        cars, speed = state["cars"], state["speed"]
        return np.where((speed < SLOW * cars) & (cars > FEW), 2 * (cars - FEW) ** 2, 0)


def _compute(cpu_us: int) -> None:
    """Hash until this thread has used so much CPU time: on a slow machine no longer than on a fast one."""
    end_ns = time.thread_time_ns() + cpu_us * 1_000
    while time.thread_time_ns() < end_ns:
        hashlib.sha256(BLOCK)


def query(cost: RowCost) -> Query:
    """The toll of each segment in each window; and how many cars it is of, and which.

    Args:
        cost: of each car.
    """
    q = Query(QUERY)
    schema = {"ts": "timestamp[us, UTC]", "n": "int64", "segment": "int64", "speed": "int64"}
    cars = q.source("cars", schema, time="ts", slack="0s")
    tolls = cars.window(WINDOW).group_by("segment")
    q.sink(
        "out",
        tolls.aggregate(
            toll=user(SegmentToll, "speed", str(cost.cpu_us), str(cost.wait_us)),
            cars=count(),
            first="min(n)",
            last="max(n)",
            total="sum(n)",
            name=BOX,
        ),
    )
    return q


def expected(cars: pa.Table) -> pa.Table:
    """What has to come of these cars: of the same query in this process, whose cars cost nothing."""
    from medusa.runtime.embedded.embedded_run import collect

    return collect(query(RowCost()), cars=cars)["out"]
