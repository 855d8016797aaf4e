"""Node processes with a query, publishers at their pace, one reader of both lanes, failures in their time.

A node that is to fail carries nothing but a filter of its sources. It is stopped with SIGSTOP: it hears
nobody, answers nobody and sends nothing, and what is published to it stays with its publisher; SIGCONT ends
it. Or, in namespaces or behind relays, no byte passes between it and anybody
(``medusa.apps.workloads.network``).
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any, Protocol

import pyarrow as pa

import medusa as md
from bench.watched_thread import WatchedThread
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.network.hosts import Hosts, made_hosts
from medusa.elements import Kind
from tests.system.nodes import ForkedNodes, until

__all__ = ["CUTS", "Arrival", "Failure", "Feed", "Outage", "Run", "Setup", "made"]

CUTS = ("stop", "namespaces", "relays")
"""How a node fails."""

READER = "reader"
PUBLISHERS = "publishers"
DEADLINE_S = 120.0
TIMEOUT = "10min"
"""A publisher whose node stands still waits for room that long."""

MOST_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Feed:
    """One source, and who publishes into it.

    Attributes:
        source: its name in the query.
        node: at which its publisher is a client.
        rate: rows a second.
        rows: (first number, end, time since the start in microseconds) -> the rows of these numbers.
        first: so many rows are published at once, before those at their pace.
    """

    source: str
    node: str
    rate: int
    rows: Callable[[int, int, int], pa.Table]
    first: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that fails ``begin_s`` after the failures' own start, and is back at ``end_s``."""

    node: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Outage:
    """A failure as it was, since rows began to flow; ``end_s``: when it was over."""

    node: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came at once; ``at_s``: since rows began to flow."""

    at_s: float
    tentative: bool
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What runs, and where.

    Attributes:
        nodes: all of them; the first is asked to deploy, and what is read is read there.
        at, standby: as ``Federation.deploy`` has them.
        feeds: by none two the same source.
        tick_s: between two trains of a feed.
        cut: one of ``CUTS``.
    """

    query: md.Query
    nodes: Sequence[str]
    at: Mapping[str, Sequence[str]]
    standby: Mapping[str, Sequence[str]]
    feeds: Sequence[Feed]
    tick_s: float = 0.02
    cut: str = "stop"
    out: str = "q.out"


LIMITS = """
subscriber_timeout = "10min"
[streams."*"]
at_limit = "spill"
"""
"""What a sender keeps for who waits for a missing input goes to its disk, else it would be held back by it
once that is as much as its retention."""


class Place(Protocol):
    """Where the nodes are."""

    def connect(self, host: str, node: str) -> md.Federation:
        """A client on a host."""

    def on(self, host: str) -> AbstractContextManager[None]:
        """Inside, what this thread and those that it starts connect to is called from that host."""

    def fail(self, node: str) -> None:
        """Nothing comes from it or gets there."""

    def heal(self, node: str) -> None:
        """It is back."""


class _Stopped:
    """Processes of this machine."""

    def __init__(self, nodes: ForkedNodes) -> None:
        self._nodes = nodes

    def connect(self, host: str, node: str) -> md.Federation:
        return md.connect(self._nodes.addresses[node], timeout=TIMEOUT)

    def on(self, host: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def fail(self, node: str) -> None:
        self._nodes.processes[node].send_signal(SIGSTOP)

    def heal(self, node: str) -> None:
        self._nodes.processes[node].send_signal(SIGCONT)


class _Cut:
    """Hosts that can be cut off; those that are, are all cut off by one order."""

    def __init__(self, hosts: Hosts, folder: Path, names: Sequence[str]) -> None:
        from medusa.runtime.keys.key_files import CurveKey, write_key

        self._hosts, self._folder, self._names = hosts, folder, names
        self._away: set[str] = set()
        self._public: dict[str, str] = {}
        for name in (*names, "client"):
            key = CurveKey.new()
            write_key(folder / f"{name}.key", "client" if name == "client" else "node", key)
            self._public[name] = key.public

    def nodes(self) -> LocalNodes:
        made = LocalNodes(
            self._names,
            self._folder,
            config=self._config,
            addresses={name: self._hosts.listens(name) for name in self._names},
            words=self._hosts.words,
        )
        self._hosts.run(lambda: made.pids)
        return made

    def connect(self, host: str, node: str) -> md.Federation:
        with self._hosts.on(host):
            return md.connect(
                self._hosts.call(node),
                timeout=TIMEOUT,
                key=self._folder / "client.key",
                server_key=self._public[node],
            )

    def on(self, host: str) -> AbstractContextManager[None]:
        return self._hosts.on(host)

    def fail(self, node: str) -> None:
        self._away.add(node)
        self._hosts.isolate(*self._away)

    def heal(self, node: str) -> None:
        self._away.discard(node)
        self._hosts.heal()
        if self._away:
            self._hosts.isolate(*self._away)

    def _config(self, node: str, addresses: Mapping[str, str]) -> str:
        """TOML; JSON's quoting of text is TOML's too."""
        lines = [
            f"name = {json.dumps(node)}",
            f"listen = {json.dumps(addresses[node])}",
            f'data = "{node}.data"',
            'federation = "bench"',
            f'\n[keys]\nnode = "{node}.key"',
        ]
        for peer in self._names:
            if peer != node:
                lines.append(f"\n[peers.{peer}]\naddress = {json.dumps(self._hosts.call(peer))}")
                lines.append(f'key = "{self._public[peer]}"')
        lines.append(f'\n[clients.bench]\nkey = "{self._public["client"]}"')
        lines.append('deploy = ["*"]\npublish = ["*"]\nsubscribe = ["*"]\nstatus = true')
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _placed(setup: Setup) -> Iterator[Place]:
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="md")))
        if setup.cut == "stop":
            nodes = held.enter_context(
                contextlib.closing(ForkedNodes(folder, list(setup.nodes), limits=LIMITS))
            )
            nodes.start()
            yield _Stopped(nodes)
            return
        hosts = held.enter_context(made_hosts(setup.nodes, (PUBLISHERS, READER), setup.cut))
        place = _Cut(hosts, folder, setup.nodes)
        held.enter_context(place.nodes())
        yield place


class _Publisher:
    """As many rows as the clock says: one that was held up catches up."""

    def __init__(self, fed: md.Federation, feed: Feed, tick_s: float, start: float) -> None:
        self._fed, self._feed, self._tick_s, self._start = fed, feed, tick_s, start
        self._over = threading.Event()
        self.published = 0
        self.thread = WatchedThread(self._run)

    def end(self) -> None:
        self._over.set()
        self.thread.join(f"no answer to all that was published into {self._feed.source}")

    def _run(self) -> None:
        stream = f"q.{self._feed.source}"
        due = self._start
        while True:
            over = self._over.wait(max(0.0, due - time.monotonic()))
            now_s = time.monotonic() - self._start
            upto = self._feed.first + max(0, int(now_s * self._feed.rate))
            while self.published < upto:
                end = min(upto, self.published + MOST_ROWS)
                at_us = max(0, int((time.monotonic() - self._start) * 1e6))
                self._fed.publish(stream, self._feed.rows(self.published, end, at_us))
                self.published = end
            if over:
                break
            due = max(due + self._tick_s, time.monotonic() - self._tick_s)
        self._fed.finish(stream)
        self._fed.flush(f"{DEADLINE_S:.0f}s")


@dataclass(slots=True)
class Run:
    """Rows flow. All times are since they began to.

    Attributes:
        orders: a client of the first node.
        take: is given what comes; None: ``arrivals`` keep it.
        stable_s: when stable rows came last; None: none did yet.
        states: (when, state) of the stream, as the reader was told.
    """

    setup: Setup
    place: Place
    orders: md.Federation
    start: float
    reader: md.Subscription
    publishers: Mapping[str, _Publisher]
    take: Callable[[Arrival], None] | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    stable_s: float | None = None
    states: list[tuple[float, str]] = field(default_factory=list)
    reads: WatchedThread | None = None

    def now_s(self) -> float:
        return time.monotonic() - self.start

    def read(self) -> None:
        """In a thread of its own, until the stream ends."""
        self.reader.on_state(lambda state: self.states.append((self.now_s(), state)))

        def read() -> None:
            take = self.take or self.arrivals.append
            for train in self.reader:
                arrival = Arrival(self.now_s(), train.kind is Kind.TENTATIVE, train.batch)
                take(arrival)
                if not arrival.tentative and arrival.batch.num_rows:
                    self.stable_s = arrival.at_s

        self.reads = WatchedThread(read)

    def look(self) -> None:
        """Raises what a thread has failed with."""
        for each in self.publishers.values():
            each.thread.look()
        if self.reads is not None:
            self.reads.look()

    def rest(self, seconds: float) -> None:
        """Let rows flow."""
        self.rest_until(self.now_s() + seconds)

    def rest_until(self, at_s: float) -> None:
        while (left := at_s - self.now_s()) > 0:
            time.sleep(min(left, 0.5))
            self.look()

    def until(self, done: Callable[[], Any], what: str | Callable[[], str]) -> None:
        def looked() -> Any:
            self.look()
            return done()

        until(looked, what=what, deadline_s=DEADLINE_S, every_s=0.05)

    def fail(self, failures: Sequence[Failure]) -> list[Outage]:
        """Have nodes fail and come back, each in its time; all as it was, in the order of their ends."""
        start_s = self.now_s()
        steps = sorted(
            [(each.begin_s, 1, each) for each in failures] + [(each.end_s, 0, each) for each in failures],
            key=lambda step: step[:2],
        )
        begun: dict[int, float] = {}
        found = []
        for at_s, begins, failure in steps:
            self.rest_until(start_s + at_s)
            if begins:
                self.place.fail(failure.node)
                begun[id(failure)] = self.now_s()
                continue
            # What passes from here on is after the failure, however long the order takes.
            ends_s = self.now_s()
            self.place.heal(failure.node)
            found.append(Outage(failure.node, begun[id(failure)], ends_s))
        return found

    def until_stable(self, since_s: float) -> None:
        """Until the stream is said to be stable, and all of it from before then has come."""

        def stable() -> bool:
            return self.reader.state == "stable" and (self.stable_s or 0.0) > since_s

        self.until(stable, lambda: f"it is {self.reader.state} after {self.states}")

    def end(self) -> None:
        """Nothing more is published, and all has come."""
        ending = [WatchedThread(each.end) for each in self.publishers.values()]
        for each in ending:
            each.join("not all that was published is durable")
        if self.reads is not None:
            self.reads.join("no end of the output")

    def fragments(self) -> list[dict[str, Any]]:
        """What the nodes say of what they run."""
        found = []
        for status in self.orders.statuses(all=True):
            found += [{"node": status["node"], **each} for each in status["fragments"]]
        return found


@contextlib.contextmanager
def made(setup: Setup, take: Callable[[Arrival], None] | None = None) -> Iterator[Run]:
    """The query runs, is followed by who stands by, and rows flow; in the end all has come.

    Args:
        take: as of ``Run``.
    """
    with _placed(setup) as place, contextlib.ExitStack() as held:

        def client(host: str, node: str) -> md.Federation:
            return held.enter_context(contextlib.closing(place.connect(host, node)))

        first = setup.nodes[0]
        orders, reads = (client(READER, first) for _ in range(2))
        until(lambda: set(orders.status()["peers"].values()) <= {"up"}, what="the nodes hear each other")
        orders.deploy(setup.query, at=setup.at, standby=setup.standby or None)
        if setup.standby:
            until(lambda: _followed(orders), what="who stands by follows", deadline_s=DEADLINE_S)
        feds = [client(PUBLISHERS, feed.node) for feed in setup.feeds]
        with place.on(READER):
            reading = reads.subscribe(setup.out, from_="oldest", tentative=True)
            reader = held.enter_context(contextlib.closing(reading))
        start = time.monotonic() + setup.tick_s
        with place.on(PUBLISHERS):
            publishers = {
                feed.source: _Publisher(fed, feed, setup.tick_s, start)
                for fed, feed in zip(feds, setup.feeds, strict=True)
            }
        run = Run(setup, place, orders, start, reader, publishers, take)
        with place.on(READER):
            run.read()
        run.until(lambda: run.stable_s is not None, "rows come")
        yield run
        run.end()


def _followed(orders: md.Federation) -> bool:
    fragments = orders.status()["queries"]["q"]["configuration"]["fragments"].values()
    states = [[of["state"] for of in each["secondaries"].values()] for each in fragments]
    states = [each for each in states if each]
    return bool(states) and all(set(each) == {"following"} for each in states)
