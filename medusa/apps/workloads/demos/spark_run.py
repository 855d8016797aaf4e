"""Network monitoring with Spark beside it: the trace made there, answered live on two nodes and for a while
on Spark, archived as it flows, computed again in batch; each step with its checks.

Spark is handed in: ``jobs`` are the functions of ``medusa.spark``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.crew import Crew
from medusa.apps.workloads.demos.spark_outcome import Check, Progress, Step
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.screens import Screen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

__all__ = ["NODES", "Run"]

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
TIMEOUT_S = 120.0
"""For each thing that is waited for, from when nothing more is published."""


class Run:
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
        screen: Screen,
        interruption: Interruption,
    ) -> None:
        self.steps: list[Step] = []
        self._spark, self._jobs = spark, jobs
        self._addresses, self._folder = addresses, folder
        self._speed = speed
        self._screen, self._interruption = screen, interruption
        self._progress = Progress()
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
    def _step(self, what: str) -> Iterator[list[Check]]:
        """Checks are added inside; then the step is told."""
        self._interruption.check()
        began = time.perf_counter()
        checks: list[Check] = []
        yield checks
        step = Step(what, time.perf_counter() - began, tuple(checks))
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
            checks.append(Check("row by row the shipped trace", _same(flows, shipped), figures))
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
                checks.append(Check("it runs there", came > 0, f"{came:,} rows since"))
                with self._moving(stack, CLUSTER, CORE, checks):
                    self._publish(edge, sent, 3 * part, half, began)
            rows = self._jobs.open_archive(self._folder / "archive").manifest.rows
            figures = f"{rows:,} of {half:,} rows by then"
            checks.append(Check("half way the archive is ended, and goes on", 0 < rows <= half, figures))
            with self._archiving(gateway, to_the_end=True) as archive:
                self._publish(edge, sent, half, len(sent), began)
                edge.finish(SOURCE)
                seconds = time.perf_counter() - began
                self._wait([*takers, archive])
            rate = f"{len(sent):,} flows in {seconds:.1f} s"
            checks.append(Check("all results came to their end", len(self._results) == len(takers), rate))

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
    def _moving(self, stack: contextlib.ExitStack, here: str, to: str, checks: list[Check]) -> Iterator[None]:
        """The fragment goes to another node; inside, rows flow. Behind it has gone, and a check is added."""
        from medusa.runtime.client.client import connect

        client = stack.enter_context(connect(self._addresses[here]))
        answers: list[dict[str, Any]] = []
        began = time.perf_counter()
        took: list[float] = []

        def work() -> None:
            answers.append(client.move(COUNTED, to=to, timeout=MOVE_TIMEOUT))
            took.append(time.perf_counter() - began)

        thread = self._crew.start(work)
        yield
        self._wait([thread])
        what = "a fragment goes to Spark" if to == CLUSTER else "it comes back"
        figures = f"{COUNTED} to {answers[0]['node']} in {took[0]:.1f} s, while rows flow"
        checks.append(Check(what, answers[0]["node"] == to, figures))

    def _taker(self, stack: contextlib.ExitStack, sink: str) -> threading.Thread:
        from medusa.runtime.client.client import connect

        client = stack.enter_context(connect(self._addresses[CORE]))
        trains = stack.enter_context(client.subscribe(f"netmon.{sink}", from_="oldest"))

        def take() -> None:
            import pyarrow as pa

            batches = [train.batch for train in trains]
            self._results[sink] = pa.Table.from_batches(batches, trains.schema)

        return self._crew.start(take)

    @contextlib.contextmanager
    def _archiving(self, gateway: Any, *, to_the_end: bool = False) -> Iterator[threading.Thread]:
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

        thread = self._crew.start(work)
        try:
            yield thread
            if not to_the_end:  # an archive that was begun has rows to go on behind
                self._until(lambda: self._progress.rows > 0, "no row came into the archive")
        finally:
            stop.set()
            thread.join(TIMEOUT_S)

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
            while (left := due - time.perf_counter()) > 0:
                time.sleep(min(left, LOOK_EVERY_S))
                self._crew.look()
            edge.publish(SOURCE, sent.slice(at, until - at))
            self._progress.published = at = until
            self._crew.look()

    def _wait(self, threads: list[threading.Thread]) -> None:
        self._until(lambda: not any(thread.is_alive() for thread in threads), "the end didn't come")

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
                checks.append(Check(each.name, each.equal, figures))

    def _archived(self, sent: pa.Table, late: npt.NDArray[np.bool_]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._step("the archive beside what was published") as checks:
            stored = self._jobs.open_archive(self._folder / "archive")
            files = [pq.read_table(file) for file in stored.files]
            table = pa.concat_tables(files).sort_by("_seq")
            figures = f"{len(table):,} rows in {len(files)} files of {stored.manifest.epoch + 1} epochs"
            checks.append(Check("it is complete", stored.manifest.complete, figures))
            once = table["_seq"].to_pylist() == list(range(len(sent)))
            checks.append(Check("each row is there once", once, f"{len(sent):,} were published"))
            same = _same(table.drop_columns(["_seq", "_late"]), sent)
            checks.append(Check("rows are what was published", same, "in order, column by column"))
            marks = table["_late"].to_numpy()
            right = len(marks) == len(late) and bool((marks == late).all())
            checks.append(Check("late rows are marked", right, f"{int(late.sum())} of them"))

    def _validated(self) -> None:
        with self._step("Spark computes the answers again, from the archive, in batch") as checks:
            report = self._jobs.validate(
                netmon.query(), self._spark, archive=self._folder / "archive", answers=dict(self._results)
            )
            for sink in report.sinks:
                wrong = sink.missing + sink.extra + sink.different
                figures = f"{sink.expected:,} rows, {wrong} differ"
                checks.append(Check(sink.sink, sink.equal, figures))


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
