"""``medusa demo ha``: one query under each method of recovery; all primaries are killed at once, for good.

One thread publishes, one reads each result. The main thread measures and kills; there an interruption is
noticed some times a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos import ha_query as of
from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.ha_outcome import HaEvent, HaOutcome, HaResult, HaWindow
from medusa.apps.workloads.demos.ha_query import HaMethod, HaShape
from medusa.apps.workloads.demos.ha_screen import HaLane, HaProgress, draw, show_outcome
from medusa.apps.workloads.demos.plotted_run import run_plotted
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.network.tcp_bytes import sent_bytes

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation
    from medusa.runtime.client.subscription import Subscription

__all__ = ["HaOptions", "compared", "run_demo"]

TICK_S = 0.02
LOOK_EVERY_S = 0.1
WARM_S = 1.0
TIMEOUT_S = 60.0
"""For each thing that is waited for."""

CPU_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class HaOptions:
    """What the command was told; see its help."""

    rate: int
    rest: float
    checkpoint_every: str
    plot: Path
    keep: bool


def run_demo(options: HaOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether all that must be exact is held.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    return run_plotted(
        partial(ran, options),
        show=show_outcome,
        draw=draw,
        plot=options.plot,
        as_json=as_json,
        drawn_as="plots",
    )


def ran(options: HaOptions, screen: DemoScreen) -> HaOutcome:
    """Every method that this release has."""
    shape = HaShape(rate=options.rate, checkpoint_every=options.checkpoint_every)
    return compared(of.known_methods(), shape, screen, rest_s=options.rest, keep=options.keep)


def compared(
    methods: Sequence[HaMethod],
    shape: HaShape,
    screen: DemoScreen,
    *,
    rest_s: float,
    keep: bool = False,
    kills: bool = True,
) -> HaOutcome:
    """Nodes, one query by each method, the whole run, the checks.

    Args:
        rest_s: for so long rows flow, and are measured, before the kill; and after the last takeover.
        kills: False: nothing fails.
    """
    names = (of.ENTRY, of.WITNESS, *(node for each in methods for node in each.nodes))

    def nodes_in(folder: Path, interruption: Interruption) -> LocalNodes:
        return LocalNodes(names, folder, interruption)

    with (
        started(nodes_in, screen, prefix="medusa-ha-", keep=keep) as (nodes, _, interruption),
        screen,
    ):
        run = _HaRun(nodes, methods, shape, rest_s=rest_s, screen=screen, interruption=interruption)
        run.run(kills=kills)
    return run.outcome()


@dataclass(frozen=True, slots=True)
class _Spent:
    """What processes have used so far, at a moment."""

    rows: int
    cpu_s: dict[str, float]
    sent: dict[str, int | None]


class _Lane:
    """One query of the run."""

    def __init__(self, method: HaMethod) -> None:
        self.of = method
        self.shown = HaLane(method)
        self.windows: list[HaWindow] = []
        self.cpu_us: dict[str, float] = {}
        self.sent_bytes: float | None = None
        self.owner = ""
        self.told_lost = 0
        self.told_lost_by: dict[str, int] = {}
        self.told_unknown = False
        self.fed_rows: int | None = None

    def take(self, trains: Subscription, start_s: float) -> None:
        """Until the end of the result."""
        for train in trains:
            at_s = time.monotonic() - start_s
            for row in train.batch.to_pylist():
                window = HaWindow(
                    at_s,
                    row["rows"],
                    row["first"],
                    row["last"],
                    row["total"],
                    row["sent"] / 1e9 - start_s,
                )
                self.windows.append(window)
            if train.batch.num_rows:
                newest = self.windows[-1]
                self.shown.came(train.batch.num_rows, newest.last, at_s - newest.sent_s)

    def spent(self, before: _Spent, after: _Spent) -> None:
        """What its nodes used between two moments, for each row."""
        rows = max(after.rows - before.rows, 1)
        for node in self.of.nodes:
            self.cpu_us[node] = (after.cpu_s[node] - before.cpu_s[node]) / rows * 1e6
        first, last = before.sent.get(self.of.letter), after.sent.get(self.of.letter)
        if first is not None and last is not None and last >= first:
            self.sent_bytes = (last - first) / rows

    def end(self, owner: str, status: Mapping[str, Any]) -> None:
        """Who has its fragment at the end, and what that node says of it."""
        self.owner = owner
        for each in status["fragments"]:
            if each["fragment"] == self.of.fragment:
                self.told_lost, self.told_unknown = each["lost_rows"], each["lost_unknown"]
                self.told_lost_by = each["lost_by"]
                self.fed_rows = each["rows_in"]

    def has_after(self, killed_s: float) -> bool:
        """Whether a window came with a row that was published later than this."""
        return bool(self.windows) and self.windows[-1].sent_s > killed_s


class _HaRun:
    """One run over nodes that listen."""

    def __init__(
        self,
        nodes: LocalNodes,
        methods: Sequence[HaMethod],
        shape: HaShape,
        *,
        rest_s: float,
        screen: DemoScreen,
        interruption: Interruption,
    ) -> None:
        self._nodes, self._shape, self._rest_s = nodes, shape, rest_s
        self._lanes = [_Lane(method) for method in methods]
        self._progress = HaProgress([each.shown for each in self._lanes])
        self._screen = screen
        self._crew = Crew(screen, self._progress, interruption)
        self._events: list[HaEvent] = []
        self._published = 0
        self._killed_s: float | None = None
        self._killed_rows = 0
        self._seconds = 0.0
        self._start = time.monotonic()

    def run(self, *, kills: bool) -> None:
        """Deploy, publish, measure, kill, wait for the end of the results.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self._crew.at_work() as stack:
            self._run(stack, kills=kills)

    def outcome(self) -> HaOutcome:
        """What was found."""
        results = [
            HaResult(
                of=each.of,
                shape=self._shape,
                published=self._published,
                windows=each.windows,
                killed_s=self._killed_s,
                primary_cpu_us=each.cpu_us[each.of.primary],
                secondary_cpu_us=each.cpu_us.get(each.of.secondary, 0.0),
                sent_bytes=each.sent_bytes,
                told_lost=each.told_lost,
                told_lost_by=each.told_lost_by,
                told_unknown=each.told_unknown,
                owner=each.owner,
                killed_rows=self._killed_rows,
                fed_rows=each.fed_rows,
            )
            for each in self._lanes
        ]
        return HaOutcome(results=results, events=self._events, seconds=self._seconds)

    # --- what is done -------------------------------------------------------------------------------

    def _run(self, stack: contextlib.ExitStack, *, kills: bool) -> None:
        orders, publisher, reader = (
            stack.enter_context(contextlib.closing(self._connect(node)))
            for node in (of.WITNESS, of.ENTRY, of.WITNESS)
        )
        self._deploy(orders)
        trains = [
            stack.enter_context(reader.subscribe(f"{each.of.query}.out", from_="oldest"))
            for each in self._lanes
        ]
        self._start = time.monotonic()
        reads = [
            self._crew.start(each.take, of_it, self._start)
            for each, of_it in zip(self._lanes, trains, strict=True)
        ]
        publishes = self._crew.start(self._publish, publisher)
        self._say(f"rows flow: {self._shape.rate:,} a second into each query")
        self._until(lambda: all(each.windows for each in self._lanes), "no rows")
        self._rest(WARM_S)
        before = self._spent()
        self._rest(self._rest_s)
        self._measure(before, self._spent())
        if kills:
            self._kill()
            self._rest(self._rest_s)
        self._crew.end()
        self._crew.result(publishes, "no answer to all that was published", TIMEOUT_S)
        for read, each in zip(reads, self._lanes, strict=True):
            self._crew.result(read, f"no end of the result of {each.of.letter}", TIMEOUT_S)
        self._seconds = self._since()
        for each in self._lanes:
            self._crew.result(self._crew.start(self._ask, orders, each), "no status", TIMEOUT_S)
        self._say("the end of all results")

    def _connect(self, node: str) -> Federation:
        from medusa.runtime.client.client import connect

        return connect(self._nodes.addresses[node], timeout="60s")

    def _deploy(self, orders: Federation) -> None:
        met = partial(self._until_answered, lambda: set(orders.status()["peers"].values()) == {"up"})
        self._crew.result(self._crew.start(met), "the nodes don't hear each other", TIMEOUT_S)
        for each in self._lanes:
            made = of.query(each.of, self._shape)
            guard: dict[str, Any] = {}
            if each.of.method is not None:
                guard = {"standby": {of.ENTRY: [of.WITNESS], each.of.primary: [each.of.secondary]}}
                guard["checkpoint_every"] = {"*": self._shape.checkpoint_every}
            deploys = partial(orders.deploy, made, at=of.placed(each.of, made), **guard)
            self._crew.result(self._crew.start(deploys), "no answer", TIMEOUT_S)
        for each in self._lanes:
            if each.of.method is None:
                continue
            follows = partial(self._until_answered, partial(self._all_follow, orders, each.of))
            missing = f"{each.of.secondary} doesn't follow"
            self._crew.result(self._crew.start(follows), missing, TIMEOUT_S)
            self._screen.say(
                f"{each.of.letter}: {each.of.primary} runs it, {each.of.secondary} stands by: "
                f"{each.of.recovery} by {each.of.title}"
            )

    def _until_answered(self, done: Any) -> None:
        while not done():
            if self._crew.pause(LOOK_EVERY_S):
                return

    def _all_follow(self, orders: Federation, method: HaMethod) -> bool:
        fragments = orders.status()["queries"][method.query]["configuration"]["fragments"]
        states = [each["state"] for of_it in fragments.values() for each in of_it["secondaries"].values()]
        return len(states) >= 2 and set(states) == {"following"}

    def _kill(self) -> None:
        """All primaries at once, and wait until rows come again of each query."""
        primaries = [each.of.primary for each in self._lanes]
        for name in primaries:
            os.kill(self._nodes.pids[name], signal.SIGKILL)
        killed_s = self._killed_s = self._since()
        self._killed_rows = self._published
        for each in self._lanes:
            each.shown.primary_is("killed")
        self._say(f"{', '.join(primaries)} are killed (SIGKILL), and never started again")
        left = list(self._lanes)

        def back() -> bool:
            for each in [each for each in left if each.has_after(killed_s)]:
                left.remove(each)
                each.shown.primary_is("taken over")
                after_s = next(w.at_s for w in each.windows if w.sent_s > killed_s) - killed_s
                self._say(f"{each.of.letter}: the first new row, {after_s * 1e3:,.0f} ms after the kill")
            return not left

        def missing() -> str:
            return f"no new row of {', '.join(each.of.letter for each in left)}"

        self._crew.wait(back, missing, TIMEOUT_S)

    def _ask(self, orders: Federation, lane: _Lane) -> None:
        """Who has its fragment at the end, and what that node says is lost."""
        name = lane.of.primary
        if lane.of.method is not None:
            fragments = orders.status()["queries"][lane.of.query]["configuration"]["fragments"]
            name = fragments[lane.of.fragment]["owner"]
        with contextlib.closing(self._connect(name)) as owner:
            lane.end(name, owner.status())

    # --- measuring ----------------------------------------------------------------------------------

    def _spent(self) -> _Spent:
        pids = self._nodes.pids
        nodes = [node for each in self._lanes for node in each.of.nodes]
        sent = {
            each.of.letter: sent_bytes(pids[each.of.primary], pids[each.of.secondary])
            for each in self._lanes
            if each.of.method is not None
        }
        return _Spent(self._published, {node: _cpu_s(pids[node]) for node in nodes}, sent)

    def _measure(self, before: _Spent, after: _Spent) -> None:
        for each in self._lanes:
            each.spent(before, after)

    # --- waiting ------------------------------------------------------------------------------------

    def _since(self) -> float:
        return time.monotonic() - self._start

    def _say(self, what: str) -> None:
        event = HaEvent(self._since(), what)
        self._events.append(event)
        self._screen.say(f"{event.at_s:6.2f} s  {what}")

    def _until(self, done: Any, missing: str) -> None:
        self._crew.wait(done, lambda: missing, TIMEOUT_S)

    def _rest(self, seconds: float) -> None:
        """Let rows flow."""
        self._crew.sleep_until(time.perf_counter() + seconds, LOOK_EVERY_S)

    # --- threads ------------------------------------------------------------------------------------

    def _publish(self, publisher: Federation) -> None:
        begin = time.monotonic()
        while True:
            # As many as the clock says, so that a publisher that was late catches up.
            due = int((time.monotonic() - begin) * self._shape.rate)
            if due > self._published:
                sent_ns = time.monotonic_ns()
                rows = of.traffic(self._published, due, self._shape, sent_ns)
                for each in self._lanes:
                    publisher.publish(f"{each.of.query}.rows", rows)
                self._published = due
                self._progress.sent(due)
            if self._crew.pause(TICK_S):
                break
        if not self._crew.cancelled:
            for each in self._lanes:
                publisher.finish(f"{each.of.query}.rows")
            publisher.flush()


def _cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * CPU_TICK_S
