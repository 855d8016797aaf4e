"""Nodes in virtual time whose engines take time for rows: the function ``costs`` says how long.

In other virtual worlds a job of the engine takes about as long as any other. Here its processor is busy for
what a function of the query spends, and what comes meanwhile waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.runtime.engine_host.host import EngineHost
from medusa.sim.actors.federation import Federation
from medusa.sim.actors.follower import Follower
from medusa.sim.actors.node import NodeMachine
from medusa.wire.outbox import ReportLine

ROW_US = 1_000
"""What a row takes: a thousand of them a second are all that an engine can do."""

SECOND_US = 1_000_000
SCHEMA = {"ts": "timestamp", "road": "int64", "speed": "int64"}

_spent: list[int] = [0]


@md.register("test.costly")
def costs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, and ``ROW_US`` for each is spent."""
    spend(batch.num_rows)
    return batch


def spend(rows: int) -> None:
    """So many rows are paid for."""
    _spent[0] += ROW_US * rows


class Processor:
    """An engine's thread: does one job after the other, each when those before have been paid for. It is its
    clock too: within a job time goes on by what is spent."""

    def __init__(self, node: NodeMachine) -> None:
        self._node = node
        self._jobs: deque[Callable[[], None]] = deque()
        self._free_us = self._took_us = self._begun = 0
        self._at_work = False

    @property
    def idle(self) -> bool:
        return not self._jobs

    def give(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if len(self._jobs) == 1 and not self._at_work:
            self._next()

    def _next(self) -> None:
        world = self._node.world
        world.at(max(self._free_us, world.now_us + 1), self._node.in_this_life(self._do))

    def _do(self) -> None:
        self._at_work, self._begun = True, _spent[0]
        self._jobs.popleft()()
        took_us = _spent[0] - self._begun + 20
        self._at_work, self._begun = False, -1
        self._took_us += took_us
        self._free_us = self._node.world.now_us + took_us
        if self._jobs:
            self._next()

    def monotonic_us(self) -> int:
        inside = _spent[0] - self._begun if self._at_work else 0
        return self._node.clock.monotonic_us() + inside

    now_us = monotonic_us

    def cpu_us(self) -> int:
        return self._took_us

    def stop(self, timeout_s: float | None = None, *, last: Any = None) -> bool:
        return True


def make_costly(node: NodeMachine) -> None:
    """From its next start on the engine of a node takes time for rows."""

    def made(store: Any, clock: Any, *, worker: Callable[[str], Any], **more: Any) -> EngineHost:
        processor = Processor(node)
        return EngineHost(
            store,
            processor,
            worker=lambda name: processor if name == "medusa-engine" else worker(name),
            **more,
        )

    node.make_host = made


class CostlyRun:
    """A query over nodes, a publisher whose rate changes, and readers of its sinks.

    Attributes:
        told: (virtual second, node, text) of what nodes said of what is left out.
    """

    def __init__(
        self,
        q: md.Query,
        at: Mapping[str, Sequence[str]],
        *,
        seed: int = 1,
        costly: Sequence[str] = (),
        limits: Limits | None = None,
        names: Sequence[str] = (),
        roads: int = 3,
        load: LoadRules | None = None,
        scale: ScaleSettings | None = None,
        coordinator: str = "",
        **wishes: Any,
    ) -> None:
        self.q = q
        self.told: list[tuple[float, str, str]] = []
        self._seen: dict[int, ReportLine] = {}
        limits = limits or Limits(checkpoint_every_us=500_000)
        self._roads = roads
        self.fed = Federation(
            seed, names or list(at), limits=limits, watch=self._watch, load=load, scale=scale
        )
        for name in costly or at:
            make_costly(self.fed.nodes[name])
        self.fed.start()
        self.client = self.fed.client("client", next(iter(at)))
        asks = self.fed.client("deployer", coordinator) if coordinator else self.client
        deploy = asks.deploy_guarded if wishes else asks.deploy
        reply, _ = self.fed.answer(asks, deploy(q, at, **wishes))
        assert not reply.code, reply
        self.rows: list[pa.Table] = []
        self.count = 0

    def _watch(self, node: NodeMachine) -> None:
        for report in node.reports:
            if "left out" in report.what and id(report) not in self._seen:
                self._seen[id(report)] = report
                self.told.append((self.fed.world.now_us / SECOND_US, node.name, report.what))

    def reads(self, sink: str, node: str) -> None:
        """A client of this node reads a sink; ``got`` has what came."""
        made = self.fed.client(f"reader-{sink}", node)
        made.read(f"{self.q.graph.name}.{sink}")

    def follows(self, sink: str, node: str) -> None:
        """The same, and it goes after the sink where that moves to."""
        made = Follower(self.fed.world, self.fed.network, f"reader-{sink}", node, self.fed.nodes)
        self.fed.clients[made.name] = made
        made.read(f"{self.q.graph.name}.{sink}")

    def publishes(self, rate: int, seconds: float, *, source: str = "cars", client: Any = None) -> None:
        """So many rows a second, five times a second, for so long. Times are those of the world."""
        schema = next(box.schema for box in self.q.graph.boxes if box.id == source)
        world, client = self.fed.world, client or self.client
        for _ in range(round(seconds * 5)):
            numbers = range(self.count, self.count + rate // 5)
            begin_us = world.now_us
            times = [begin_us + place * 200_000 // max(len(numbers), 1) for place in range(len(numbers))]
            table = pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "road": pa.array([n % self._roads for n in numbers], pa.int64()),
                    "speed": pa.array([n * 37 % 101 for n in numbers], pa.int64()),
                }
            )
            self.count += len(numbers)
            self.rows.append(table)
            client.publish(f"{self.q.graph.name}.{source}", table, schema)
            self.fed.run(for_us=200_000)

    def ends(self, *, source: str = "cars") -> None:
        """The publisher has no more."""
        schema = next(box.schema for box in self.q.graph.boxes if box.id == source)
        self.client.finish(f"{self.q.graph.name}.{source}", schema)

    def got(self, sink: str) -> pa.Table:
        """What has come of a sink."""
        came = self.fed.clients[f"reader-{sink}"].rows
        return pa.Table.from_batches(came[f"{self.q.graph.name}.{sink}"])

    def published(self) -> pa.Table:
        return pa.concat_tables(self.rows)

    def hosted(self, fragment: str) -> Any:
        """The fragment where it runs."""
        for node in self.fed.nodes.values():
            if node.alive and (found := node.brain.fragments.get(fragment)) is not None and not found.frozen:
                return found
        raise AssertionError(f"{fragment} runs nowhere")
