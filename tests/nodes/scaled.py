"""Nodes in virtual time that split and merge a box by themselves, whose rows take time (``costly``): the
source at ``e``, which coordinates it, the box at ``m``, the end at ``c``; ``s1`` to ``s3`` are idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

import medusa as md
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.query.boxes import Aggregate
from medusa.runtime.embedded.embedded_run import collect
from medusa.sim.actors.node import NodeMachine
from medusa.wire.outbox import ReportLine
from medusa.wire.status_and_metrics import plain, status_of
from tests.nodes.costly import SCHEMA, SECOND_US, CostlyRun, spend

NODES = ("e", "m", "c", "s1", "s2", "s3", "d")
AT = {"e": ["cars"], "m": ["per_road"], "c": ["out"]}
SCALE = ScaleSettings(every_us=SECOND_US, cooldown_us=3 * SECOND_US, nodes=("m", "s1", "s2", "s3"))
LOAD = LoadRules(half_life_us=SECOND_US)
PATIENCE_US = 240 * SECOND_US


@md.register("test.costly_sum", version=1)
class CostlySum:
    """A sum; each row that is added is paid for."""

    inputs = ("int64",)
    state: ClassVar[dict[str, str]] = {"total": "int64"}
    result = "int64"

    def init(self, groups: int) -> dict[str, Any]:
        return {"total": np.zeros(groups, np.int64)}

    def add(self, state: dict[str, Any], groups: Any, values: Any) -> dict[str, Any]:
        spend(len(values))
        np.add.at(state["total"], groups, values)
        return state

    def merge(self, state: dict[str, Any], other: dict[str, Any], groups: Any) -> dict[str, Any]:
        state["total"][groups] += other["total"]
        return state

    def finish(self, state: dict[str, Any]) -> Any:
        return state["total"]


def roads() -> md.Query:
    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    sums = cars.window("2s").group_by("road")
    q.sink("out", sums.aggregate(t=md.user(CostlySum, "speed"), n=md.count(), name="per_road"))
    return q


class ScaledRun:
    """One run.

    Attributes:
        orders: (virtual second, node that ordered, what): all orders that nodes gave by themselves.
        most: parts of the box that ran at once, and nodes that had some.
    """

    def __init__(self, *, scale: ScaleSettings | None = SCALE, seed: int = 1, **wishes: Any) -> None:
        self.q = roads()
        self.run = CostlyRun(
            self.q,
            AT,
            seed=seed,
            names=NODES,
            costly=[node for node in NODES if node not in ("e", "c", "d")],
            roads=97,
            load=LOAD,
            scale=scale,
            **wishes,
        )
        self.fed = self.run.fed
        self.orders: list[tuple[float, str, str]] = []
        self.most = [1, 1]
        self._seen: dict[int, ReportLine] = {}
        self._hooks: list[tuple[str, Callable[[], None]]] = []
        for node in self.fed.nodes.values():
            node.observe(self._watch)
        self.run.follows("out", "c")

    def when(self, order: str, then: Callable[[], None]) -> None:
        """The first time that an order begins so, a moment later."""
        self._hooks.append((order, then))

    def _watch(self, node: NodeMachine) -> None:
        for report in list(node.reports):
            if report.what == "scaling" and id(report) not in self._seen:
                self._seen[id(report)] = report
                what = str(report.fields["order"])
                self.orders.append((self.fed.world.now_us / SECOND_US, node.name, what))
                for hook in [each for each in self._hooks if what.startswith(each[0])]:
                    self._hooks.remove(hook)
                    self.fed.world.after(1_000, hook[1])
        parts = self.parts
        self.most = [max(self.most[0], len(parts)), max(self.most[1], len({*parts.values()}))]

    @property
    def parts(self) -> dict[str, str]:
        """Fragment that does the work of the box -> its node."""
        return {
            name: node.name
            for node in self.fed.nodes.values()
            if node.alive
            for name, hosted in node.brain.fragments.items()
            if not hosted.frozen and any(isinstance(box, Aggregate) for box in hosted.spec.graph.boxes)
        }

    def publishes(self, *rates: tuple[int, float]) -> None:
        """(rows a second, for so many seconds), one after the other."""
        for rate, seconds in rates:
            self.run.publishes(rate, seconds)

    def dies(self, name: str, *, back_us: int = 500_000) -> None:
        node = self.fed.nodes[name]
        node.crash("lost")
        self.fed.world.after(back_us, node.restart)

    def status(self, node: str = "e") -> dict[str, Any]:
        """What a node says of the query that it coordinates."""
        machine = self.fed.nodes[node]
        told: dict[str, Any] = machine.brain.status(machine.clock.monotonic_us())
        assert plain(status_of(told))["queries"] == told["queries"], "what shows it reads the same"
        query: dict[str, Any] = told["queries"]["q"]
        return query

    @property
    def whats(self) -> Sequence[str]:
        """The first word of each order."""
        return [what.split()[0] for _, _, what in self.orders]

    def check(self, *, within_us: int = PATIENCE_US) -> None:
        """All ends, and the reader has the sequence of one program: each row once, in its order."""
        self.run.ends()
        reader = self.fed.clients["reader-out"]
        assert self.fed.run(lambda: "q.out" in reader.ended, for_us=within_us), self.fed.last()[-3000:]
        want = collect(self.q, cars=self.run.published())["out"]
        assert self.run.got("out").to_pylist() == want.to_pylist()
