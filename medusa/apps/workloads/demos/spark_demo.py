"""``medusa demo spark``: network monitoring with Spark beside it.

The trace is made there, answered live on two nodes and for a while on Spark, archived as it flows, computed
again in batch; each step with its checks.

Spark is handed in: ``jobs`` are the functions of ``medusa.spark``.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from rich.console import RenderableType

__all__ = ["SparkCheck", "SparkDemoOptions", "SparkProgress", "SparkRun", "SparkStep", "run_demo"]

NODES = EDGE, CORE = "edge", "core"
CLUSTER = "spark"
"""The node whose fragments run on Spark; it is in this program, with its session."""

AT = {EDGE: ["flows"], CORE: ["per_src"]}
SOURCE, TAKEN = "netmon.flows", "netmon.taken"
COUNTED = "netmon/per_src"
"""The fragment that goes to Spark and comes back: all that is counted, and what is told of it."""

HELD_BACK = 1000
"""Every so manieth flow comes late."""

HELD_US = 10_000_000
"""So long behind its time: five times the slack of the source."""

SLICE_US = 1_000_000
"""Trace time that is published at once."""

TRIGGER = "1s"
LOOK_EVERY_S = 0.1
MOVE_TIMEOUT = "120s"
LATE = "the end didn't come"
TIMEOUT_S = 120.0
"""For each thing that is waited for, from when nothing more is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkDemoOptions:
    """What the command was told; see its help."""

    speed: float = 60.0
    keep: bool = False


def run_demo(
    options: SparkDemoOptions,
    spark: Any,
    jobs: Any,
    *,
    as_json: bool = False,
) -> bool:
    """Run the demonstration and show it on standard output.

    Args:
        spark: a session.
        jobs: ``medusa.spark``.

    Returns:
        Whether every check was passed.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    screen = DemoScreen(None if as_json else Console(), repeats=False)
    screen.say(f"data: {netmon.CITATION}")

    def nodes_in(folder: Path, interruption: Interruption) -> LocalNodes:
        return LocalNodes(NODES, folder, interruption, later=(CLUSTER,))

    with (
        started(nodes_in, screen, prefix="medusa-spark-", keep=options.keep) as (nodes, folder, interruption),
        screen,
    ):
        run = SparkRun(
            spark,
            jobs,
            nodes.addresses,
            folder,
            speed=options.speed,
            screen=screen,
            interruption=interruption,
        )
        run.run()
    fine = all(step.fine for step in run.steps)
    if as_json:
        print(json.dumps({"fine": fine, "steps": [step.to_json() for step in run.steps]}))
    else:
        checks = [check for step in run.steps for check in step.checks]
        passed = sum(check.fine for check in checks)
        seconds = sum(step.seconds for step in run.steps)
        screen.say(f"{passed} of {len(checks)} checks passed, in {seconds:.0f} s")
    return fine


@dataclass(frozen=True, slots=True)
class SparkCheck:
    """What was looked at, whether it is as it should be, and the figures."""

    what: str
    fine: bool
    figures: str = ""


@dataclass(frozen=True, slots=True)
class SparkStep:
    """A step that was done.

    Attributes:
        seconds: how long it took, with its checks.
    """

    what: str
    seconds: float
    checks: tuple[SparkCheck, ...]

    @property
    def fine(self) -> bool:
        return all(check.fine for check in self.checks)

    def lines(self, number: int) -> Iterator[str]:
        """For people."""
        yield f"{number}. {self.what} ({self.seconds:.1f} s)"
        for check in self.checks:
            verdict = "ok  " if check.fine else "NOT "
            yield f"   {verdict} {check.what}: {check.figures}"

    def to_json(self) -> dict[str, Any]:
        checks = [asdict(each) for each in self.checks]
        return {"step": self.what, "seconds": round(self.seconds, 3), "checks": checks}


@dataclass
class SparkProgress:
    """What the screens show; the run's threads replace whole values in it.

    Attributes:
        rows: of the archive.
    """

    flows: int = 0
    published: int = 0
    rows: int = 0

    def line(self) -> str:
        """In one line, for logs and pipes."""
        return f"   {self.published:,} of {self.flows:,} flows are published, {self.rows:,} archived"

    def drawn(self) -> RenderableType:
        """For a terminal."""
        from rich.text import Text

        return Text(self.line())


class SparkRun:
    """One run; in the main thread an interruption ends it between two steps.

    Attributes:
        steps: those that were done, in order.
    """

    def __init__(
        self,
        spark: Any,
        jobs: Any,
        addresses: Mapping[str, str],
        folder: Path,
        *,
        speed: float,
        screen: DemoScreen,
        interruption: Interruption,
    ) -> None:
        self.steps: list[SparkStep] = []
        self._spark, self._jobs = spark, jobs
        self._addresses, self._folder = addresses, folder
        self._speed = speed
        self._screen, self._interruption = screen, interruption
        self._progress = SparkProgress()
        self._crew = Crew(screen, self._progress, interruption)
        self._results: dict[str, pa.Table] = {}

    def run(self) -> None:
        """All steps, each with its checks, which are told as they are done.

        Raises:
            MedusaError: a step couldn't be carried out.
        """
        flows = self._prepared()
        order = _late_order(flows)
        sent = flows.take(order)
        late = _judged(sent["ts_us"].to_numpy())
        self._answered(sent)
        self._checked(sent, late)
        self._archived(sent, late)
        self._validated()

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[list[SparkCheck]]:
        """Checks are added inside; then the step is told."""
        self._interruption.check()
        began = time.perf_counter()
        checks: list[SparkCheck] = []
        yield checks
        step = SparkStep(what, time.perf_counter() - began, tuple(checks))
        self.steps.append(step)
        for line in step.lines(len(self.steps)):
            self._screen.say(line)

    # --- Spark makes the input ------------------------------------------------------------------

    def _prepared(self) -> pa.Table:
        import pyarrow as pa

        from medusa.apps.workloads.scaled import Netmon

        with self._step("Spark prepares the trace") as checks:
            stored = self._jobs.prepare(Netmon(), self._spark, self._folder / "prepared")
            batches: list[pa.RecordBatch] = []
            self._jobs.replay(stored, batches.append)
            flows = pa.Table.from_batches(batches).combine_chunks()
            shipped = netmon.load_trace().drop_columns("file_row")
            files = len(stored.manifest.files)
            figures = f"{len(flows):,} flows in {files} files, each with a minute"
            checks.append(SparkCheck("row by row the shipped trace", _same(flows, shipped), figures))
        return flows

    # --- Medusa answers, Spark archives ---------------------------------------------------------

    def _answered(self, sent: pa.Table) -> None:
        from medusa.runtime.client.client import connect

        with (
            self._step("two nodes answer live, Spark archives the stream") as checks,
            contextlib.ExitStack() as stack,
        ):
            cluster = stack.enter_context(self._jobs.participant(self._cluster(), self._spark))
            core = stack.enter_context(connect(self._addresses[CORE]))
            core.deploy(netmon.query(taken=True), at=AT)
            gateway = stack.enter_context(self._jobs.gateway(self._addresses[EDGE], self._folder / "gateway"))
            takers = [self._taker(stack, sink) for sink in netmon.SINKS]
            edge = stack.enter_context(connect(self._addresses[EDGE]))
            half, part = len(sent) // 2, len(sent) // 8
            began = time.perf_counter()
            with self._archiving(gateway):
                self._publish(edge, sent, 0, part, began)
                with self._moving(stack, CORE, CLUSTER, checks):
                    self._publish(edge, sent, part, 2 * part, began)
                before = cluster.status()["rows_in"]
                self._publish(edge, sent, 2 * part, 3 * part, began)
                came = self._came(cluster, before)
                checks.append(SparkCheck("it runs there", came > 0, f"{came:,} rows since"))
                with self._moving(stack, CLUSTER, CORE, checks):
                    self._publish(edge, sent, 3 * part, half, began)
            rows = self._jobs.open_archive(self._folder / "archive").manifest.rows
            figures = f"{rows:,} of {half:,} rows by then"
            checks.append(SparkCheck("half way the archive is ended, and goes on", 0 < rows <= half, figures))
            with self._archiving(gateway, to_the_end=True) as archive:
                self._publish(edge, sent, half, len(sent), began)
                edge.finish(SOURCE)
                seconds = time.perf_counter() - began
                for each in (*takers, archive):
                    self._crew.result(each, LATE, TIMEOUT_S)
            rate = f"{len(sent):,} flows in {seconds:.1f} s"
            checks.append(
                SparkCheck("all results came to their end", len(self._results) == len(takers), rate)
            )

    def _cluster(self) -> dict[str, Any]:
        return {
            "name": CLUSTER,
            "listen": self._addresses[CLUSTER],
            "data": str(self._folder / CLUSTER),
            "peers": {name: self._addresses[name] for name in NODES},
            "spark": {"shards": 2},
        }

    def _came(self, cluster: Any, before: int) -> int:
        """Rows that the node on Spark took since; waits until there are some."""
        self._until(lambda: cluster.status()["rows_in"] > before, "no row came to Spark")
        return int(cluster.status()["rows_in"]) - before

    @contextlib.contextmanager
    def _moving(
        self, stack: contextlib.ExitStack, here: str, to: str, checks: list[SparkCheck]
    ) -> Iterator[None]:
        """The fragment goes to another node; inside, rows flow. Behind it has gone, and a check is added."""
        from medusa.runtime.client.client import connect

        client = stack.enter_context(connect(self._addresses[here]))
        began = time.perf_counter()

        def work() -> tuple[str, float]:
            node = client.move(COUNTED, to=to, timeout=MOVE_TIMEOUT)["node"]
            return node, time.perf_counter() - began

        moved = self._crew.start(work)
        yield
        node, took_s = self._crew.result(moved, LATE, TIMEOUT_S)
        what = "a fragment goes to Spark" if to == CLUSTER else "it comes back"
        figures = f"{COUNTED} to {node} in {took_s:.1f} s, while rows flow"
        checks.append(SparkCheck(what, node == to, figures))

    def _taker(self, stack: contextlib.ExitStack, sink: str) -> Future[None]:
        from medusa.runtime.client.client import connect

        client = stack.enter_context(connect(self._addresses[CORE]))
        trains = stack.enter_context(client.subscribe(f"netmon.{sink}", from_="oldest"))

        def take() -> None:
            import pyarrow as pa

            batches = [train.batch for train in trains]
            self._results[sink] = pa.Table.from_batches(batches, trains.schema)

        return self._crew.start(take)

    @contextlib.contextmanager
    def _archiving(self, gateway: Any, *, to_the_end: bool = False) -> Iterator[Future[None]]:
        """Inside, Spark archives; behind it is told to stop, unless it has come to the end."""
        stop = threading.Event()

        def work() -> None:
            self._jobs.archive(
                TAKEN,
                self._spark,
                self._folder / "archive",
                gateway=gateway,
                trigger=TRIGGER,
                time="ts_us",
                unit="us",
                stop=stop,
                progress=self._archive_told,
            )

        archive = self._crew.start(work)
        try:
            yield archive
            if not to_the_end:  # an archive that was begun has rows to go on behind
                self._until(lambda: self._progress.rows > 0, "no row came into the archive")
        finally:
            stop.set()
            wait([archive], TIMEOUT_S)

    def _archive_told(self, _: str, rows: int, __: int) -> None:
        self._progress.rows = rows

    def _publish(self, edge: Any, sent: pa.Table, first: int, behind: int, began: float) -> None:
        """Rows of these places, at the pace of the trace."""
        import numpy as np

        self._progress.flows = len(sent)
        times = np.maximum.accumulate(sent["ts_us"].to_numpy())
        start_us = int(times[0])
        at = first
        while at < behind:
            until = min(int(np.searchsorted(times, times[at] + SLICE_US)), behind)
            due = began + (int(times[at]) - start_us) / 1e6 / self._speed if self._speed else 0.0
            self._crew.sleep_until(due, LOOK_EVERY_S)
            edge.publish(SOURCE, sent.slice(at, until - at))
            self._progress.published = at = until
            self._crew.look()

    def _until(self, there: Callable[[], bool], missing: str) -> None:
        self._crew.wait(there, lambda: missing, TIMEOUT_S)

    # --- Checks ---------------------------------------------------------------------------------

    def _checked(self, sent: pa.Table, late: npt.NDArray[np.bool_]) -> None:
        import pyarrow as pa

        with self._step("the answers beside an independent computation") as checks:
            by, wanted = netmon_check.expected(sent.filter(pa.array(~late)))
            got = {sink: netmon_check.rows_of(sink, table) for sink, table in self._results.items()}
            for each in netmon_check.compare(got, wanted):
                figures = f"{each.rows:,} rows, by {by} {each.expected:,}"
                checks.append(SparkCheck(each.name, each.equal, figures))

    def _archived(self, sent: pa.Table, late: npt.NDArray[np.bool_]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._step("the archive beside what was published") as checks:
            stored = self._jobs.open_archive(self._folder / "archive")
            files = [pq.read_table(file) for file in stored.files]
            table = pa.concat_tables(files).sort_by("_seq")
            figures = f"{len(table):,} rows in {len(files)} files of {stored.manifest.epoch + 1} epochs"
            checks.append(SparkCheck("it is complete", stored.manifest.complete, figures))
            once = table["_seq"].to_pylist() == list(range(len(sent)))
            checks.append(SparkCheck("each row is there once", once, f"{len(sent):,} were published"))
            same = _same(table.drop_columns(["_seq", "_late"]), sent)
            checks.append(SparkCheck("rows are what was published", same, "in order, column by column"))
            marks = table["_late"].to_numpy()
            right = len(marks) == len(late) and bool((marks == late).all())
            checks.append(SparkCheck("late rows are marked", right, f"{int(late.sum())} of them"))

    def _validated(self) -> None:
        with self._step("Spark computes the answers again, from the archive, in batch") as checks:
            report = self._jobs.validate(
                netmon.query(), self._spark, archive=self._folder / "archive", answers=dict(self._results)
            )
            for sink in report.sinks:
                wrong = sink.missing + sink.extra + sink.different
                figures = f"{sink.expected:,} rows, {wrong} differ"
                checks.append(SparkCheck(sink.sink, sink.equal, figures))


def _same(one: pa.Table, other: pa.Table) -> bool:
    """The same rows, in the same order and types."""
    return bool(one.combine_chunks().equals(other.combine_chunks()))


def _late_order(flows: pa.Table) -> npt.NDArray[np.int64]:
    """In which order the rows come: by time, some of them long behind it."""
    import numpy as np

    at_us = flows["ts_us"].to_numpy().copy()
    at_us[HELD_BACK - 1 :: HELD_BACK] += HELD_US
    return np.argsort(at_us, kind="stable")


def _judged(times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows are late: below the largest time before them less the slack."""
    import numpy as np

    late = np.zeros(len(times), bool)
    late[1:] = times[1:] < np.maximum.accumulate(times)[:-1] - netmon.SLACK_US
    return late
