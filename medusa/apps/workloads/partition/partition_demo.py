"""``medusa demo partition``: a, which b follows, is cut off; c reads on from b, and r notices but a pause.
Then both are cut off, and what is left answers within a bound (``tentative_demo``).

One thread publishes from host p, one reads at host r, one asks c how it is. The main thread cuts and heals;
there an interruption is noticed some times a second.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.federation_outcome import compare
from medusa.apps.workloads.demos.plotted_run import run_plotted
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.network.hosts import Hosts, made_hosts
from medusa.apps.workloads.partition import partition_query as of
from medusa.apps.workloads.partition import tentative_query
from medusa.apps.workloads.partition.partition_check import PartitionEvent
from medusa.apps.workloads.partition.partition_outcome import (
    PartitionArrival,
    PartitionOutcome,
    Sighting,
)
from medusa.apps.workloads.partition.partition_screen import PartitionProgress, draw, show_outcome
from medusa.apps.workloads.partition.tentative_demo import TentativeRun, followed_by, following

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.runtime.client.federation import Federation
    from medusa.runtime.client.subscription import Subscription

__all__ = ["PartitionOptions", "run_demo"]

TICK_S = 0.01
LOOK_EVERY_S = 0.05
TIMEOUT_S = 60.0
"""For each thing that is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOptions:
    """What the command was told; see its help."""

    network: str | None
    rate: int
    rest: float
    delay: str
    plot: Path
    keep: bool


def run_demo(options: PartitionOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether every check is passed.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    tentative_query.query(options.delay)  # What is no duration is refused before anything starts.
    run = partial(ran, options)
    return run_plotted(run, show=show_outcome, draw=draw, plot=options.plot, as_json=as_json)


def ran(options: PartitionOptions, screen: DemoScreen) -> PartitionOutcome:
    """Three nodes and their clients on hosts of their own, the whole run, the checks."""
    with (
        Interruption() as held,  # Hosts are made whole, and gone in the end.
        made_hosts(of.NODES, (*of.CLIENTS, tentative_query.SUPPLIER), options.network) as hosts,
    ):
        held.check()
        screen.say(f"{hosts.kind}: {hosts.told}")

        def nodes_in(folder: Path, interruption: Interruption) -> _KeyedNodes:
            return _KeyedNodes(hosts, folder, interruption)

        with (
            started(nodes_in, screen, prefix="medusa-partition-", keep=options.keep) as (
                nodes,
                _,
                interruption,
            ),
            screen,
        ):
            how: dict[str, Any] = {
                "rows_per_tick": max(1, round(options.rate * TICK_S)),
                "rest_s": options.rest,
                "screen": screen,
                "interruption": interruption,
            }
            run = PartitionRun(nodes, hosts, **how)
            run.run()
            after = TentativeRun(nodes, hosts, delay=options.delay, **how)
            after.run()
        return replace(run.outcome(), tentative=after.outcome())


class _KeyedNodes(LocalNodes):
    """Nodes on these hosts that know each other, and one client who may do everything."""

    def __init__(self, hosts: Hosts, folder: Path, interruption: Interruption) -> None:
        from medusa.runtime.keys.key_files import CurveKey, write_key

        self._hosts, self._keys = hosts, folder
        self._public: dict[str, str] = {}
        for name in (*of.NODES, "client"):
            key = CurveKey.new()
            write_key(folder / f"{name}.key", "client" if name == "client" else "node", key)
            self._public[name] = key.public
        super().__init__(
            of.NODES,
            folder,
            interruption,
            config=self._with_keys,
            addresses={name: hosts.listens(name) for name in of.NODES},
            words=hosts.words,
        )
        hosts.run(lambda: self.pids)

    def connect(self, host: str, *nodes: str) -> Federation:
        """A client on a host, of one of these nodes."""
        from medusa.runtime.client.client import connect

        with self._hosts.on(host):
            return connect(
                [self._hosts.call(node) for node in nodes],
                timeout="30s",
                key=self._keys / "client.key",
                server_key=[self._public[node] for node in nodes],
            )

    def _with_keys(self, node: str, addresses: Mapping[str, str]) -> str:
        """TOML of a node; JSON's quoting of text is TOML's too."""
        lines = [
            f'name = "{node}"',
            f"listen = {json.dumps(addresses[node])}",
            f'data = "{node}.data"',
            'federation = "demo"',
            f'\n[keys]\nnode = "{node}.key"',
        ]
        for peer in of.NODES:
            if peer != node:
                lines.append(f"\n[peers.{peer}]\naddress = {json.dumps(self._hosts.call(peer))}")
                lines.append(f'key = "{self._public[peer]}"')
        lines.append(f'\n[clients.demo]\nkey = "{self._public["client"]}"')
        lines.append('deploy = ["*"]\npublish = ["*"]\nsubscribe = ["*"]\nstatus = true')
        return "\n".join(lines) + "\n"


class PartitionRun:
    """One run over nodes that listen.

    Args:
        rest_s: rows flow for so long before the cut, at least so long while it lasts, and after it.
    """

    def __init__(
        self,
        nodes: _KeyedNodes,
        hosts: Hosts,
        *,
        rows_per_tick: int,
        rest_s: float,
        screen: DemoScreen,
        interruption: Interruption,
    ) -> None:
        self._nodes, self._hosts = nodes, hosts
        self._rows_per_tick, self._rest_s = rows_per_tick, rest_s
        self._screen = screen
        self._progress = PartitionProgress()
        self._crew = Crew(screen, self._progress, interruption)
        self._events: list[PartitionEvent] = []
        self._arrivals: list[PartitionArrival] = []
        self._batches: list[pa.RecordBatch] = []
        self._schema: pa.Schema | None = None
        self._sightings: list[Sighting] = []
        self._fragment = ""
        self._published = 0
        self._received = 0
        self._lost_rows = 0
        self._versions = 0, 0
        self._cut_s = self._healed_s = self._seconds = 0.0
        self._start = time.monotonic()

    def run(self) -> None:
        """Deploy, publish, cut, heal, wait for the end of the result.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self._crew.at_work() as stack:
            self._run(stack)

    def outcome(self) -> PartitionOutcome:
        """What was found; the undisturbed run is made here."""
        import pyarrow as pa

        rows = pa.Table.from_batches(self._batches, self._schema)
        return PartitionOutcome(
            network=self._hosts.kind,
            network_text=self._hosts.told,
            guarded=of.GUARDED,
            secondary=of.SECONDARY,
            events=self._events,
            arrivals=self._arrivals,
            sightings=self._sightings,
            cut_s=self._cut_s,
            healed_s=self._healed_s,
            published=self._published,
            lost_rows=self._lost_rows,
            reader_versions=self._versions,
            comparison=compare(rows, of.expected(self._published)),
            seconds=self._seconds,
        )

    # --- what is done -------------------------------------------------------------------------------

    def _run(self, stack: contextlib.ExitStack) -> None:
        coordinator, publisher, reader = (
            stack.enter_context(contextlib.closing(self._nodes.connect(*whom)))
            for whom in (
                (of.COORDINATOR, of.COORDINATOR),
                (of.PUBLISHER, *of.NODES),
                (of.READER, of.COORDINATOR),
            )
        )
        self._deploy(coordinator)
        trains = stack.enter_context(reader.subscribe(of.OUT, from_="oldest"))
        self._schema = trains.schema
        self._start = time.monotonic()
        self._crew.start(self._look, coordinator)
        reads, publishes = self._crew.start(self._read, trains), self._crew.start(self._publish, publisher)
        self._say(f"rows flow: p publishes at {of.GUARDED}, c reads from there, r reads {of.OUT} at c")
        self._until_seen(lambda each: each.origin == of.GUARDED, f"c doesn't read from {of.GUARDED}")
        self._rest()
        before = trains.stream_version
        self._cut()
        self._heal()
        self._crew.end()
        self._crew.result(publishes, "no answer to all that was published", TIMEOUT_S)
        self._crew.result(reads, "no end of the result", TIMEOUT_S)
        self._lost_rows, self._versions = trains.lost_rows, (before, trains.stream_version)
        self._seconds = self._since()
        self._say(f"the end: {self._received:,} rows at r")

    def _deploy(self, coordinator: Federation) -> None:
        meeting = self._crew.start(self._until_met, coordinator)
        self._crew.result(meeting, f"{of.COORDINATOR} doesn't hear the others", TIMEOUT_S)
        deploys = partial(coordinator.deploy, of.query(), at=of.AT, standby=of.STANDBY)
        self._crew.result(self._crew.start(deploys), "no answer", TIMEOUT_S)
        follows = self._crew.start(followed_by, self._crew, coordinator, of.QUERY, of.SECONDARY)
        fragment = self._crew.result(follows, f"{of.SECONDARY} doesn't follow", TIMEOUT_S)
        self._fragment = fragment
        self._screen.say(f"{of.GUARDED} runs {fragment}, {of.SECONDARY} stands by for it and follows")

    def _until_met(self, coordinator: Federation) -> None:
        """The node that deploys hears the others: on a busy machine they start seconds apart."""
        while not self._crew.pause(LOOK_EVERY_S):
            if set(coordinator.status()["peers"].values()) == {"up"}:
                return

    def _cut(self) -> None:
        """Until rows come by the other way, and a while more."""
        self._hosts.isolate(of.GUARDED)
        self._cut_s = self._since()
        self._progress.link_is("cut")
        self._say(f"the link of {of.GUARDED} is cut: nothing comes from it or gets there")
        seen = self._until_seen(lambda each: each.origin == of.SECONDARY, "c doesn't read from another node")
        last = next(each for each in reversed(self._sightings) if each.origin == of.GUARDED)
        row, later = last.next_row, "" if last.asked_s >= self._cut_s else " or a later one"
        self._say(
            f"by configuration {seen.configuration} {seen.owner} has {self._fragment}; "
            f"c reads on from {seen.origin} at row {row:,}{later}"
        )
        count = self._received
        self._crew.wait(lambda: self._received > max(row, count), lambda: "no new row at r", TIMEOUT_S)
        first = next(each for each in self._arrivals if len(each.numbers) and each.numbers[-1] >= row)
        after_s = first.at_s - self._cut_s
        self._say(f"r has had row {row:,} since {first.at_s:.2f} s, {after_s:.2f} s after the cut")
        self._rest()

    def _heal(self) -> None:
        """Until the node that was cut off knows, and follows; and a while more."""
        self._hosts.heal()
        self._healed_s = self._since()
        self._progress.link_is("healed")
        self._say(f"the link of {of.GUARDED} is whole again")
        seen = self._until_seen(
            lambda each: of.GUARDED in each.following, f"{of.GUARDED} doesn't stand by for {of.SECONDARY}"
        )
        self._say(
            f"{of.GUARDED} has stepped down, and stands by for {seen.owner} "
            f"(configuration {seen.configuration}); c reads from {seen.origin}"
        )
        self._rest()

    # --- waiting ------------------------------------------------------------------------------------

    def _since(self) -> float:
        return time.monotonic() - self._start

    def _say(self, what: str) -> None:
        event = PartitionEvent(self._since(), what)
        self._events.append(event)
        self._screen.say(f"{event.at_s:6.2f} s  {what}")

    def _until_seen(self, condition: Callable[[Sighting], bool], missing: str) -> Sighting:
        """The newest sighting of c, once it is so."""

        def seen() -> bool:
            return bool(self._sightings) and condition(self._sightings[-1])

        self._crew.wait(seen, lambda: missing, TIMEOUT_S)
        return self._sightings[-1]

    def _rest(self) -> None:
        """Let rows flow, and come, and look at c."""
        until, received, seen = time.monotonic() + self._rest_s, self._received, len(self._sightings)

        def came() -> bool:
            flows = self._received > received and len(self._sightings) > seen
            return flows and time.monotonic() > until

        self._crew.wait(came, lambda: "no rows", TIMEOUT_S)

    # --- threads ------------------------------------------------------------------------------------

    def _publish(self, publisher: Federation) -> None:
        due = time.monotonic()
        while not self._crew.pause(max(0.0, due - time.monotonic())):
            due = max(due + TICK_S, time.monotonic() - TICK_S)
            end = self._published + self._rows_per_tick
            publisher.publish(of.SOURCE, of.traffic(self._published, end))
            self._published = end
            self._progress.sent(end)
        if not self._crew.cancelled:
            publisher.finish(of.SOURCE)
            publisher.flush()

    def _read(self, trains: Subscription) -> None:
        for train in trains:
            numbers = train.batch.column("n").to_pylist()
            self._arrivals.append(PartitionArrival(self._since(), train.first_seq, numbers))
            self._batches.append(train.batch)
            self._received += len(numbers)
            self._progress.came(len(numbers))

    def _look(self, coordinator: Federation) -> None:
        while not self._crew.pause(LOOK_EVERY_S):
            asked_s = self._since()
            sighting = _sighting(asked_s, coordinator.status(), self._fragment)
            if sighting is not None:
                self._sightings.append(sighting)
                self._progress.saw(sighting)


def _sighting(asked_s: float, status: Mapping[str, Any], guarded: str) -> Sighting | None:
    """What c says of itself; None: it reads from nobody just now."""
    found = status["queries"][of.QUERY]["configuration"]
    replicas = found["fragments"][guarded]
    for fragment in status["fragments"]:
        for input, output in zip(fragment["inputs"], fragment["outputs"], strict=False):
            return Sighting(
                asked_s=asked_s,
                origin=input["from"],
                next_row=input["next_row"],
                configuration=found["number"],
                owner=replicas["owner"],
                following=following(replicas),
                read_version=input["stream_version"],
                own_version=output["stream_version"],
            )
    return None
