"""``medusa demo netmon``: the trace is replayed into three nodes; what comes out is checked and shown.

One thread publishes; one thread for each sink takes results; one looks at the nodes some times a second. Each
has its own client.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.netmon_outcome import Latency, NetmonOutcome
from medusa.apps.workloads.demos.netmon_screen import NetmonProgress, show_outcome
from medusa.apps.workloads.demos.screens import DemoScreen, NodeSample
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.netmon import AT, CORE, EDGES, SINKS, SLACK_US, WINDOW_US, Delivery, query
from medusa.apps.workloads.netmon_check import Row, rows_of
from medusa.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NetmonOptions", "NetmonReplay", "run_demo"]

SLICE_US = 5_000_000
"""Trace time that is published at once, per edge, when there is no pace to keep."""

PACED_SLICE_US = 100_000
"""The same at a pace, at speed 1: how far rows may come together that the trace has apart."""

LOOK_EVERY_S = 0.2
DRAIN_TIMEOUT_S = 60.0
SOURCE = "netmon.flows"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetmonOptions:
    """What the command was told; see its help."""

    speed: float = 60.0
    seed: int = 0
    report: Path = Path("netmon-report.html")
    trace: Path | None = None
    check: Path | None = None
    keep: bool = False


def run_demo(options: NetmonOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether the results equal those of the independent computation.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    from medusa.apps.workloads.demos.netmon_report import html_report

    screen = DemoScreen(None if as_json else Console())
    screen.say(f"data: {netmon.CITATION}")
    _writable(options.report)
    trace = netmon.load_trace(options.trace)
    outcome = replay(trace, options, screen)
    options.report.write_text(html_report(outcome, netmon.query()))
    if as_json:
        print(json.dumps({**outcome.to_json(), "report": str(options.report)}))
    else:
        show_outcome(screen, outcome)
        screen.say(f"report: {options.report}")
    return outcome.equal


def _writable(report: Path) -> None:
    """Whether the report can be written is known before the minute, not after it."""
    try:
        with report.open("a"):
            pass
    except OSError as error:
        raise DataError(
            f"the report {str(report)!r} can't be written: {error.strerror}",
            hint="give another place: --report PATH",
            code="data.report",
        ) from error


def replay(trace: pa.Table, options: NetmonOptions, screen: DemoScreen) -> NetmonOutcome:
    """Three nodes, the whole trace, the check."""
    deliveries = netmon.deliveries(trace, options.seed)

    def nodes_in(folder: Path, interruption: Interruption) -> LocalNodes:
        return LocalNodes((*EDGES, CORE), folder, interruption)

    with (
        started(nodes_in, screen, prefix="medusa-netmon-", keep=options.keep) as (nodes, _, interruption),
        screen,
    ):
        run = NetmonReplay(nodes.addresses, deliveries, options.speed, screen, interruption)
        run.run()
    rows = run.rows()
    checked = trace if options.check is None else netmon.load_trace(options.check)
    checked_by, expected = netmon_check.expected(checked)
    times = trace["ts_us"].to_numpy()
    return NetmonOutcome(
        results=run.results,
        rows=rows,
        comparisons=netmon_check.compare(rows, expected),
        checked_by=checked_by,
        flows=len(trace),
        late=run.late,
        span_us=int(times.max() - times.min()),
        seconds=run.seconds,
        speed=options.speed,
        seed=options.seed,
        latencies=run.latencies,
        samples=run.samples,
        bots=netmon.labelled_bots(options.trace),
    )


class NetmonReplay:
    """One run of the query over nodes that listen at ``addresses``.

    In the main thread an interruption ends it between two steps, some times a second.

    Attributes:
        results: sink -> what came, in order.
        latencies, samples, seconds: what was measured.
        late: rows that came too late.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        deliveries: Sequence[Delivery],
        speed: float,
        screen: DemoScreen,
        interruption: Interruption | None = None,
    ) -> None:
        self.results: dict[str, pa.Table] = {}
        self.latencies: list[Latency] = []
        self.samples: list[NodeSample] = []
        self.seconds = 0.0
        self.late = 0
        self._addresses = addresses
        self._deliveries = deliveries
        self._speed = speed
        self._interruption = interruption or Interruption()
        self._progress = NetmonProgress(sum(len(delivery.rows) for delivery in deliveries))
        self._crew = Crew(screen, self._progress, self._interruption)
        self._closable = _Closable()
        self._done = threading.Event()
        self._start = 0.0

    def run(self) -> None:
        """Deploy, replay, wait for the ends of all results.

        Raises:
            LinkError: a node refused, or results stopped coming.
            KeyboardInterrupt: it was interrupted.
        """
        from medusa.runtime.client.client import connect

        with self._interruption, contextlib.ExitStack() as stack:
            core = stack.enter_context(connect(self._addresses[CORE]))
            core.deploy(query(), at=AT)
            sinks = {sink: self._subscribe(stack, sink) for sink in SINKS}
            self._start = time.perf_counter()
            takers = [self._crew.start(self._take, sink, trains) for sink, trains in sinks.items()]
            looker = self._crew.start(self._look, self._addresses)
            try:
                edges = {edge: stack.enter_context(connect(self._addresses[edge])) for edge in EDGES}
                self._publish(edges)
                self._wait(takers)
            finally:
                self._done.set()
                wait([looker])
            self.seconds = time.perf_counter() - self._start

    def _subscribe(self, stack: contextlib.ExitStack, sink: str) -> Any:
        from medusa.runtime.client.client import connect

        client = stack.enter_context(connect(self._addresses[CORE]))
        return stack.enter_context(client.subscribe(f"netmon.{sink}", from_="oldest"))

    # --- in ------------------------------------------------------------------------------------

    def _publish(self, edges: Mapping[str, Any]) -> None:
        for begin_us, end_us in self._slices():
            self._keep_pace(end_us)
            for delivery in self._deliveries:
                rows = delivery.between(begin_us, end_us)
                if len(rows):
                    self._closable.publishing(delivery.edge, rows["ts_us"])
                    edges[delivery.edge].publish(SOURCE, rows)
                    self._progress.published += len(rows)
            self._progress.time_us = end_us
            self._crew.look()
        self._closable.ending()
        for edge in EDGES:
            edges[edge].finish(SOURCE)

    def _slices(self) -> Iterator[tuple[int, int]]:
        """Of trace time; begins and ends at multiples of the step."""
        step = max(1, int(PACED_SLICE_US * self._speed)) if self._speed else SLICE_US
        first = min(int(delivery.at_us[0]) for delivery in self._deliveries if len(delivery.at_us))
        last = max(int(delivery.at_us[-1]) for delivery in self._deliveries if len(delivery.at_us))
        self._begin_us = first // step * step
        for begin in range(self._begin_us, last + 1, step):
            yield begin, begin + step

    def _keep_pace(self, time_us: int) -> None:
        if self._speed:
            due = self._start + (time_us - self._begin_us) / 1e6 / self._speed
            self._crew.sleep_until(due, LOOK_EVERY_S)

    # --- out -----------------------------------------------------------------------------------

    def _take(self, sink: str, trains: Any) -> None:
        import pyarrow as pa

        batches: list[pa.RecordBatch] = []
        last: dict[int, float] = {}
        for train in trains:
            now = time.perf_counter()
            batches.append(train.batch)
            rows = rows_of(sink, pa.Table.from_batches([train.batch]))
            last.update((row[0], now) for row in rows)
            self._progress.take(sink, rows)
        self.results[sink] = pa.Table.from_batches(batches, trains.schema)
        self.latencies += [
            Latency(sink, window, round((at - self._closable.at(window)) * 1e6))
            for window, at in sorted(last.items())
        ]

    def _wait(self, takers: Sequence[Future[None]]) -> None:
        def missing() -> str:
            return f"no end of {', '.join(sink for sink in SINKS if sink not in self.results)}"

        def ended() -> bool:
            return all(taker.done() for taker in takers)

        self._crew.wait(ended, missing, DRAIN_TIMEOUT_S)

    def _look(self, addresses: Mapping[str, str]) -> None:
        from medusa.runtime.client.client import connect

        late: dict[str, int] = {}
        with contextlib.ExitStack() as stack:
            clients = {node: stack.enter_context(connect(at)) for node, at in addresses.items()}
            while True:
                last_round = self._done.is_set()
                for node, client in clients.items():
                    status = client.status()
                    late[node] = status["late"]
                    at_s = time.perf_counter() - self._start
                    self.samples.append(self._progress.look(at_s, status))
                self.late = sum(late.values())
                if last_round:
                    return
                self._done.wait(LOOK_EVERY_S)

    def rows(self) -> dict[str, list[Row]]:
        """Results as sorted rows; empty lists of what gave nothing."""
        return {sink: rows_of(sink, self.results[sink]) for sink in SINKS}


class _Closable:
    """When each window could have closed at the earliest: when the last edge published a row beyond
    its end plus the slack, or the end of its stream."""

    def __init__(self) -> None:
        self._boundary = dict.fromkeys(EDGES, -(1 << 62))
        self._moments: list[tuple[int, float]] = []

    def publishing(self, edge: str, times: pa.ChunkedArray) -> None:
        """Just before rows of these times (int64 us) are published."""
        import pyarrow.compute as pc

        self._boundary[edge] = max(self._boundary[edge], pc.max(times).as_py() - SLACK_US)
        self._moments.append((min(self._boundary.values()), time.perf_counter()))

    def ending(self) -> None:
        """Just before both edges end their streams."""
        self._moments.append((1 << 62, time.perf_counter()))

    def at(self, window_us: int) -> float:
        """Seconds of ``time.perf_counter``; of a window that some moment let close."""
        return next(at for boundary, at in self._moments if boundary >= window_us + WINDOW_US)
