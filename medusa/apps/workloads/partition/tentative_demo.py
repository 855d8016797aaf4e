"""The second part of ``medusa demo partition``: all replicas of an input are cut off, and results come.

One thread publishes from each of the hosts p and s, one reads at host r. The main thread cuts and heals.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from medusa.apps.workloads.demos.crew import Crew
from medusa.apps.workloads.demos.federation_outcome import compare
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.network.hosts import Hosts
from medusa.apps.workloads.partition import partition_query as line
from medusa.apps.workloads.partition import tentative_query as of
from medusa.apps.workloads.partition.partition_check import PartitionEvent
from medusa.apps.workloads.partition.tentative_outcome import TentativeOutcome, WindowArrival
from medusa.apps.workloads.partition.tentative_screen import TentativeProgress
from medusa.elements import Kind
from medusa.units import duration_us

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.runtime.client.federation import Federation
    from medusa.runtime.client.subscription import Subscription

__all__ = ["Connects", "TentativeRun", "followed_by", "following"]

TICK_S = 0.01
LOOK_EVERY_S = 0.05
TIMEOUT_S = 60.0
"""For each thing that is waited for."""


class Connects(Protocol):
    """Nodes on hosts."""

    def connect(self, host: str, *nodes: str) -> Federation:
        """A client on a host, of one of these nodes."""


def followed_by(crew: Crew, coordinator: Federation, query: str, secondary: str) -> str:
    """The fragment that this node could take over, once there is one; empty: the run is over."""
    while not crew.pause(LOOK_EVERY_S):
        fragments = coordinator.status()["queries"][query]["configuration"]["fragments"]
        for name, replicas in fragments.items():
            if secondary in following(replicas):
                return str(name)
    return ""


def following(replicas: Mapping[str, Any]) -> list[str]:
    """Who could take a fragment over now."""
    return [name for name, each in replicas["secondaries"].items() if each["state"] == "following"]


class TentativeRun:
    """One run over nodes that listen.

    Args:
        rest_s: rows flow for so long before the cut, at least so long while windows are tentative, and once
            all is corrected.
        delay: X of the output.
    """

    def __init__(
        self,
        nodes: Connects,
        hosts: Hosts,
        *,
        rows_per_tick: int,
        rest_s: float,
        delay: str,
        screen: DemoScreen,
        interruption: Interruption,
    ) -> None:
        self._nodes, self._hosts = nodes, hosts
        self._rows_per_tick, self._rest_s, self._delay = rows_per_tick, rest_s, delay
        self._screen = screen
        self._progress = TentativeProgress()
        self._crew = Crew(screen, self._progress, interruption)
        self._events: list[PartitionEvent] = []
        self._arrivals: list[WindowArrival] = []
        self._states: list[tuple[float, str]] = []
        self._batches: list[pa.RecordBatch] = []
        self._published: dict[str, list[pa.Table]] = {of.LEFT: [], of.RIGHT: []}
        self._schema: pa.Schema | None = None
        self._table: pa.Table | None = None
        self._tentative_left = self._missed_rows = 0
        self._cut_s = self._healed_s = self._seconds = 0.0
        self._start = time.monotonic()

    def run(self) -> None:
        """Deploy, publish, cut, heal, wait until all is corrected, and for the end of the result.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self._crew.at_work() as stack:
            self._run(stack)

    def outcome(self) -> TentativeOutcome:
        """What was found; the undisturbed run is made here."""
        import pyarrow as pa

        stable = pa.Table.from_batches(self._batches, self._schema)
        left, right = (pa.concat_tables(self._published[name]) for name in (of.LEFT, of.RIGHT))
        assert self._table is not None
        return TentativeOutcome(
            delay_s=duration_us(self._delay) / 1e6,
            window_s=of.WINDOW_US / 1e6,
            events=self._events,
            arrivals=self._arrivals,
            states=self._states,
            cut_s=self._cut_s,
            healed_s=self._healed_s,
            comparison=compare(stable, of.expected(self._delay, left, right)),
            table=compare(self._table.sort_by("window_start"), stable),
            tentative_left=self._tentative_left,
            missed_rows=self._missed_rows,
            seconds=self._seconds,
        )

    # --- what is done -------------------------------------------------------------------------------

    def _run(self, stack: contextlib.ExitStack) -> None:
        coordinator, left, right, reader, follower = (
            stack.enter_context(contextlib.closing(self._nodes.connect(*whom)))
            for whom in (
                (line.COORDINATOR, line.COORDINATOR),
                (line.PUBLISHER, *line.NODES),
                (of.SUPPLIER, line.COORDINATOR),
                (line.READER, line.COORDINATOR),
                (line.READER, line.COORDINATOR),
            )
        )
        self._deploy(coordinator)
        trains = stack.enter_context(reader.subscribe(of.OUT, from_="oldest", tentative=True))
        followed = stack.enter_context(follower.subscribe(of.OUT, from_="oldest", tentative=True))
        trains.on_state(self._told)
        self._schema = trains.schema
        self._start = time.monotonic()
        reads = self._crew.start(self._read, trains)
        follows = self._crew.start(self._follow, followed)
        publishes = [
            self._crew.start(self._publish, publisher, source)
            for publisher, source in ((left, of.LEFT), (right, of.RIGHT))
        ]
        self._say(f"rows flow: p publishes at a, s at c, where both meet; r reads {of.OUT}")
        self._rest(tentative=False)
        self._cut()
        self._heal(trains)
        self._crew.end()
        for each in publishes:
            self._crew.result(each, "no answer to all that was published", TIMEOUT_S)
        self._crew.result(reads, "no end of the result", TIMEOUT_S)
        self._table, self._tentative_left = self._crew.result(follows, "no end of the table", TIMEOUT_S)
        self._missed_rows = trains.missed_rows
        self._seconds = self._since()
        stable = sum(len(each.numbers) for each in self._arrivals if not each.tentative)
        self._say(f"the end: {stable:,} stable windows at r")

    def _deploy(self, coordinator: Federation) -> None:
        deploys = partial(coordinator.deploy, of.query(self._delay), at=of.AT, standby=of.STANDBY)
        self._crew.result(self._crew.start(deploys), "no answer", TIMEOUT_S)
        following = self._crew.start(followed_by, self._crew, coordinator, of.QUERY, line.SECONDARY)
        self._crew.result(following, f"{line.SECONDARY} doesn't follow", TIMEOUT_S)
        self._screen.say(f"{of.OUT} has delay={self._delay}; {line.SECONDARY} stands by for {line.GUARDED}")

    def _cut(self) -> None:
        """Until tentative windows come, and a while more."""
        self._hosts.isolate(line.GUARDED, line.SECONDARY)
        self._cut_s = self._since()
        self._progress.link_is("cut")
        self._say(f"the links of {line.GUARDED} and {line.SECONDARY} are cut: nobody gets what p publishes")
        self._crew.wait(lambda: self._count(tentative=True) > 0, lambda: "no tentative window", TIMEOUT_S)
        first = next(each for each in self._arrivals if each.tentative)
        after_s = first.at_s - self._cut_s
        self._say(f"tentative windows come since {first.at_s:.2f} s, {after_s:.2f} s after the cut")
        self._rest(tentative=True)

    def _heal(self, trains: Subscription) -> None:
        """Until all is corrected, and a while more."""
        had = self._count(tentative=False)
        self._hosts.heal()
        self._healed_s = self._since()
        self._progress.link_is("healed")
        self._say(f"the links of {line.GUARDED} and {line.SECONDARY} are whole again")
        self._crew.wait(lambda: self._count(tentative=False) > had, lambda: "no correction", TIMEOUT_S)
        begun = next(each for each in self._arrivals if not each.tentative and each.at_s > self._healed_s)
        self._say(f"corrections come since {begun.at_s:.2f} s, {begun.at_s - self._healed_s:.2f} s after it")
        self._crew.wait(lambda: trains.state == "stable", lambda: f"stream {trains.state}", TIMEOUT_S)
        self._say("all is corrected: the stream is stable")
        self._rest(tentative=False)

    # --- waiting ------------------------------------------------------------------------------------

    def _since(self) -> float:
        return time.monotonic() - self._start

    def _say(self, what: str) -> None:
        event = PartitionEvent(self._since(), what)
        self._events.append(event)
        self._screen.say(f"{event.at_s:6.2f} s  {what}")

    def _count(self, *, tentative: bool) -> int:
        return sum(len(each.numbers) for each in self._arrivals if each.tentative == tentative)

    def _rest(self, *, tentative: bool) -> None:
        """Let rows flow, and windows come."""
        until, had = time.monotonic() + self._rest_s, self._count(tentative=tentative)

        def came() -> bool:
            return self._count(tentative=tentative) > had and time.monotonic() > until

        self._crew.wait(came, lambda: "no windows", TIMEOUT_S)

    # --- threads ------------------------------------------------------------------------------------

    def _told(self, state: str) -> None:
        self._states.append((self._since(), state))
        self._progress.stream_is(state)

    def _publish(self, publisher: Federation, source: str) -> None:
        due, end = time.monotonic(), 0
        while not self._crew.pause(max(0.0, due - time.monotonic())):
            due = max(due + TICK_S, time.monotonic() - TICK_S)
            begin, end = end, end + self._rows_per_tick
            rows = of.traffic(begin, end, int(self._since() * 1e6), left=source == of.LEFT)
            publisher.publish(source, rows)
            self._published[source].append(rows)
            self._progress.sent(self._rows_per_tick)
        if not self._crew.cancelled:
            publisher.finish(source)
            publisher.flush()

    def _follow(self, trains: Subscription) -> tuple[pa.Table, int]:
        """The table of the windows as it is in the end, and how much of it is tentative then."""
        table = trains.table(key="window_start")
        while table.wait():
            pass
        return table.arrow(), table.tentative_rows

    def _read(self, trains: Subscription) -> None:
        for train in trains:
            starts = train.batch.column("window_start").cast("int64").to_pylist()
            tentative = train.kind is Kind.TENTATIVE
            numbers = [at_us // of.WINDOW_US for at_us in starts]
            self._arrivals.append(WindowArrival(self._since(), tentative, numbers))
            if not tentative:
                self._batches.append(train.batch)
            self._progress.came(len(numbers), tentative=tentative)
