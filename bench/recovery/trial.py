"""Node processes with a query, rows at their pace, readers: what each question is tried on."""

from __future__ import annotations

import bisect
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from bench.watched_thread import WatchedThread
from bench.worker import memory
from tests.ports import free_ports
from tests.system.nodes import ForkedNodes, until

__all__ = ["ENTRY", "WITNESS", "Arrivals", "Setup", "TcpNodes", "Traffic", "Trial", "flowing"]

ENTRY, WITNESS = "a", "w"
"""Nodes that nothing happens to. Rows are published at the first; readers and who gives orders are clients of
the second, which votes and stands by for what runs at the first."""

FILL = 65_536
DEADLINE_S = 120.0
CPU_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Rows = Callable[[int, int, int], pa.Table]
"""The rows of these numbers (from, up to), published at this time (ns)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What runs, and where.

    Attributes:
        nodes: besides ``ENTRY`` and ``WITNESS``.
        standby, checkpoint_every: as ``Federation.deploy`` has them; without ``standby`` nobody stands by.
        rows: of the source ``rows``.
        fill: so many rows are published at once, before those at their pace.
        tick_s: between two trains of those.
        sinks: that are read.
        limits: of each node, as in its configuration.
        one_holds: of those that may take a fragment over one at a time follows it.
        restore_parts: in so many a node restores a fragment whose state it held.
    """

    query: md.Query
    nodes: Sequence[str]
    at: Mapping[str, Sequence[str]]
    standby: Mapping[str, Sequence[str]]
    rows: Rows
    rate: int
    checkpoint_every: Mapping[str, str]
    fill: int = 0
    tick_s: float = 0.01
    sinks: Sequence[str] = ("out",)
    wait: str = "2s"
    limits: str = ""
    one_holds: bool = False
    restore_parts: int = 1

    @property
    def shown(self) -> str:
        """The sink whose rows have to come before anything is measured."""
        return self.sinks[0]


class TcpNodes(ForkedNodes):
    """Over TCP: there the kernel counts the bytes between two processes."""

    def __init__(self, folder: Path, names: list[str], *, limits: str = "") -> None:
        super().__init__(folder, names, limits=limits)
        before = self.addresses
        ports = free_ports(len(names))
        self.addresses = {name: f"tcp://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        for name in names:
            text = self.config(name).read_text()
            for each in names:
                text = text.replace(f'"{before[each]}"', f'"{self.addresses[each]}"')
            self.config(name).write_text(text)

    def pid(self, name: str) -> int:
        return self.processes[name].pid


class Traffic:
    """Rows 0, 1, 2, ... of one source, as many as the clock says."""

    def __init__(self, fed: md.Federation, stream: str, setup: Setup) -> None:
        self._fed, self._stream, self._rows = fed, stream, setup.rows
        self._rate, self._fill, self._tick_s = setup.rate, setup.fill, setup.tick_s
        self._over = threading.Event()
        self._at_ns: list[int] = []
        self._upto: list[int] = []
        self.published = 0
        self.began_ns = 0
        """When row 0 was due, by the rows' own times."""

        self.job = WatchedThread(self._run)

    def before(self, at_ns: int) -> int:
        """How many rows had been published by then."""
        index = bisect.bisect_right(self._at_ns, at_ns)
        return self._upto[index - 1] if index else 0

    def end(self) -> None:
        """The last rows, and the end of the stream, are durable."""
        self._over.set()
        self.job.join("no answer to all that was published")

    def _run(self) -> None:
        while self.published < self._fill:
            self._publish(min(self.published + FILL, self._fill))
        self.began_ns = time.monotonic_ns() - self._fill * 1_000_000_000 // self._rate
        while not self._over.wait(self._tick_s):
            # As many as the clock says, so that a publisher that was late catches up.
            due = (time.monotonic_ns() - self.began_ns) * self._rate // 1_000_000_000
            while self.published < due:
                self._publish(min(due, self.published + FILL))
        self._fed.finish(self._stream)
        self._fed.flush(f"{DEADLINE_S:.0f}s")

    def _publish(self, upto: int) -> None:
        sent_ns = time.monotonic_ns()
        self._fed.publish(self._stream, self._rows(self.published, upto, sent_ns))
        self._at_ns.append(sent_ns)
        self._upto.append(upto)
        self.published = upto


class Arrivals:
    """What came of one output, and when (``time.monotonic_ns``)."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription
        self.came: list[tuple[int, pa.RecordBatch]] = []
        self.job = WatchedThread(self._read)

    def _read(self) -> None:
        for train in self._subscription:
            if train.batch.num_rows:
                self.came.append((time.monotonic_ns(), train.batch))

    @property
    def times_ns(self) -> list[int]:
        return [at_ns for at_ns, _ in self.came]


@dataclass(frozen=True, slots=True)
class Spent:
    """What processes have used up to a moment."""

    at_ns: int
    rows: int
    cpu_s: Mapping[str, float]
    memory_bytes: Mapping[str, int]


@dataclass(slots=True)
class Trial:
    """Rows flow.

    Attributes:
        orders: a client of ``WITNESS``.
        arrivals: by sink.
        before: what the processes had used before the query was there.
    """

    setup: Setup
    nodes: TcpNodes
    orders: md.Federation
    traffic: Traffic
    arrivals: Mapping[str, Arrivals]
    before: Spent
    start_ns: int = field(default_factory=time.monotonic_ns)

    def look(self) -> None:
        """Raises what a thread has failed with."""
        for each in (self.traffic, *self.arrivals.values()):
            each.job.look()

    def until(self, done: Callable[[], Any], what: str) -> None:
        def looked() -> Any:
            self.look()
            return done()

        until(looked, what=what, deadline_s=DEADLINE_S)

    def rest(self, seconds: float) -> None:
        """Let rows flow."""
        time.sleep(seconds)
        self.look()

    def until_shown(self, since_ns: int) -> None:
        """Until a row has come since then: on a busy machine that takes its time."""
        came = self.arrivals[self.setup.shown].came
        self.until(lambda: came[-1:] and came[-1][0] > since_ns, "rows come")

    def fragments(self) -> dict[str, Any]:
        """Who has what, as was decided."""
        return replicas(self.orders)

    def follow(self, *fragments: str) -> bool:
        """Whether somebody could take each of these over; without any: all."""
        return all_follow(self.fragments(), fragments, one_holds=self.setup.one_holds)

    def told(self, node: str, fragment: str) -> dict[str, Any]:
        """What a node says of a fragment that it has."""
        with contextlib.closing(md.connect(self.nodes.addresses[node], timeout="60s")) as fed:
            found = {each["fragment"]: each for each in fed.status()["fragments"]}
        assert fragment in found, f"{node} has {', '.join(found) or 'nothing'}, and not {fragment}"
        return found[fragment]

    def spent(self, *names: str) -> Spent:
        return spent(self.nodes, names, self.traffic.published)

    def end(self) -> None:
        """Nothing more is published, and all has come; again: nothing.

        Raises:
            AssertionError: an output doesn't end.
        """
        self.traffic.end()
        for name, each in self.arrivals.items():
            each.job.join(f"no end of {name}")


def replicas(orders: md.Federation) -> dict[str, Any]:
    found: dict[str, Any] = orders.status()["queries"]["q"]["configuration"]["fragments"]
    return found


def all_follow(fragments: Mapping[str, Any], names: Sequence[str] = (), *, one_holds: bool = False) -> bool:
    wanted = [each for name, each in fragments.items() if not names or name in names]
    states = [[of["state"] for of in each["secondaries"].values()] for each in wanted]
    if one_holds:
        return bool(states) and all(each.count("following") == 1 for each in states)
    return bool(states) and all(each and set(each) == {"following"} for each in states)


def spent(nodes: TcpNodes, names: Sequence[str], rows: int) -> Spent:
    pids = {name: nodes.pid(name) for name in names}
    return Spent(
        time.monotonic_ns(),
        rows,
        {name: cpu_s(pid) for name, pid in pids.items()},
        {name: memory("VmRSS", pid) for name, pid in pids.items()},
    )


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * CPU_TICK_S


@contextlib.contextmanager
def flowing(setup: Setup) -> Iterator[Trial]:
    """Nodes with the query, followed by who stands by, and rows that flow; in the end all has come."""
    names = [ENTRY, WITNESS, *setup.nodes]
    with (
        tempfile.TemporaryDirectory(prefix="md") as folder,
        contextlib.ExitStack() as held,
    ):
        recovery = f'[recovery]\nwait = "{setup.wait}"\nrestore_parts = {setup.restore_parts}'
        limits = f"{setup.limits}\n{recovery}"
        nodes = held.enter_context(contextlib.closing(TcpNodes(Path(folder), names, limits=limits)))
        nodes.start()
        orders, publishes, reads = (
            held.enter_context(contextlib.closing(md.connect(nodes.addresses[name], timeout="60s")))
            for name in (WITNESS, ENTRY, WITNESS)
        )
        until(lambda: set(orders.status()["peers"].values()) == {"up"}, what="the nodes hear each other")
        before = spent(nodes, names, 0)
        _deploy(setup, orders)
        arrivals = {}
        for name in setup.sinks:
            read = reads.subscribe(f"q.{name}", from_="oldest")
            arrivals[name] = Arrivals(held.enter_context(contextlib.closing(read)))
        traffic = Traffic(publishes, "q.rows", setup)
        trial = Trial(setup, nodes, orders, traffic, arrivals, before)
        trial.until(lambda: traffic.published > setup.fill, "the state is filled")
        trial.until(lambda: arrivals[setup.shown].came, "rows come")
        yield trial
        trial.end()


def _deploy(setup: Setup, orders: md.Federation) -> None:
    if not setup.standby:
        orders.deploy(setup.query, at=setup.at)
        return
    orders.deploy(setup.query, at=setup.at, standby=setup.standby, checkpoint_every=setup.checkpoint_every)
    until(
        lambda: all_follow(replicas(orders), one_holds=setup.one_holds),
        what="who stands by follows",
        deadline_s=DEADLINE_S,
    )
