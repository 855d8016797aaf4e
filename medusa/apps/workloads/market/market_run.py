"""One run of a market: owners whose nodes trade load by contract while a real trace flows, phase by phase.

One thread publishes for each owner, one reads each result, one asks the nodes. The main thread goes through
the phases; there an interruption is noticed some times a second.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.crew import Crew
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.market.market_outcome import (
    AgreedPrice,
    ContractBalance,
    MarketMove,
    MarketOutcome,
    MarketPhase,
    Sample,
    TaskResult,
)
from medusa.apps.workloads.market.market_owners import LATE, MarketNodes
from medusa.apps.workloads.market.market_query import RepeatedTrace, TaskQuery
from medusa.apps.workloads.market.market_screen import MarketProgress, OwnerNow
from medusa.errors import LinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.runtime.client.federation import Federation

__all__ = ["DemoMarketRun", "MarketNow", "PlannedPhase"]

TICK_S = 0.2
LOOK_EVERY_S = 0.1
ASK_EVERY_S = 1.0
"""A node is asked what it does. That takes it some milliseconds, which it counts as load."""

CHECKPOINT_EVERY = "5s"
TIMEOUT_S = 60.0
"""For each thing that is waited for."""

BOOKED_S = 11.0
"""Beyond two intervals, until what was done last is signed by both."""


PACED_S = 2.0
"""So often the pace of the trace is changed where that is to reach a load: loads are told as means of some
seconds, and a move takes one."""

PACE_MIN, PACE_MAX = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class MarketNow:
    """What the nodes have said last.

    Attributes:
        where: task -> the owner at whose node it runs; one that has never moved isn't named.
        used, thresholds: cores of each owner.
    """

    where: Mapping[str, str]
    used: Mapping[str, float]
    thresholds: Mapping[str, float]

    def above(self, owner: str) -> bool:
        return self.used.get(owner, 0.0) > self.thresholds[owner]

    def away(self) -> list[tuple[str, str]]:
        """Tasks that aren't at home: owner, and at whose node."""
        pairs = ((task.partition("/")[0], at) for task, at in self.where.items())
        return [(owner, at) for owner, at in pairs if owner != at]


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """A phase to come.

    Attributes:
        paces: owner -> seconds of the trace a second, from now on; who isn't named goes on as before.
        starts: whether the late node starts.
        until: it goes on, for ``more_s`` at most, until this is so.
        paced: owner -> so much faster the trace goes by, every ``PACED_S`` until then.
    """

    name: str
    seconds: float
    paces: Mapping[str, float]
    starts: bool = False
    until: Callable[[MarketNow], bool] = lambda now: True
    more_s: float = 0.0
    paced: Callable[[MarketNow], Mapping[str, float]] = lambda now: {}


class _Owner:
    """What one owner publishes and receives."""

    def __init__(self, name: str, nodes: MarketNodes, query: TaskQuery) -> None:
        self.name, self._nodes, self._query = name, nodes, query
        self.of = nodes.traders[name]
        self.pace = 0.0
        self.rows: list[pa.Table] = []
        self.ticks_us: list[int] = []
        self.ticks_s: list[float] = []
        self.got: dict[int, list[tuple[float, pa.RecordBatch]]] = {n: [] for n in range(self.of.tasks)}
        self.schemas: dict[int, pa.Schema] = {}

    def connect(self) -> Federation:
        return self._nodes.connect(self.of.home)

    def goes_at(self, pace: float) -> None:
        """So many seconds of the trace a second, from now on."""
        self.pace = pace

    def publish(self, run: DemoMarketRun) -> None:
        """Until the run is over."""
        trace, stream = RepeatedTrace(self.of.tasks, self._query.parts), f"{self.name}.flows"
        at_us = 0
        with contextlib.closing(self.connect()) as client:
            last_s, next_us = time.monotonic(), 1_000_000
            while True:
                table = trace.until(at_us, next_us)
                at_us = next_us
                if table.num_rows:
                    client.publish(stream, table)
                    self.rows.append(table)
                    self.ticks_us.append(table["ts_us"][-1].as_py())
                    self.ticks_s.append(run.since())
                    run.progress.sent(table.num_rows)
                if run.is_over(TICK_S):
                    break
                now_s = time.monotonic()
                next_us, last_s = at_us + round((now_s - last_s) * self.pace * 1e6), now_s
            if not run.crew.cancelled:
                client.finish(stream)
                client.flush()

    def read(self, run: DemoMarketRun, number: int) -> None:
        """One result, until its end."""
        with contextlib.closing(self.connect()) as client:
            trains = client.subscribe(f"{self.name}.out-{number}", from_="oldest")
            self.schemas[number] = trains.schema
            for train in trains:
                self.got[number].append((run.since(), train.batch))

    def results(self) -> list[TaskResult]:
        """Beside those of the query in one program."""
        import pyarrow as pa

        rows = pa.concat_tables(self.rows)
        wanted = self._query.unmoved(self.name, self.of.tasks, rows)
        found = []
        for number, came in self.got.items():
            want = wanted[f"out-{number}"]
            have = pa.Table.from_batches([batch for _, batch in came], self.schemas[number])
            found.append(
                TaskResult(
                    task=self._query.fragment(self.name, number),
                    rows=have.num_rows,
                    equal=have.num_rows > 0 and have.combine_chunks().equals(want.combine_chunks()),
                    arrivals=[
                        (at_s, batch.num_rows, self._latency_s(at_s, batch))
                        for at_s, batch in came
                        if batch.num_rows
                    ],
                )
            )
        return found

    def _latency_s(self, at_s: float, batch: pa.RecordBatch) -> float:
        """Since the row was published that let its newest row leave."""
        place = bisect.bisect_left(self.ticks_us, self._query.due_us(batch))
        return at_s - self.ticks_s[min(place, len(self.ticks_s) - 1)]


class DemoMarketRun:
    """One run over nodes that listen.

    Attributes:
        crew, progress: what its threads look at.
    """

    def __init__(
        self, nodes: MarketNodes, query: TaskQuery, screen: DemoScreen, interruption: Interruption
    ) -> None:
        self._nodes, self._query, self._screen = nodes, query, screen
        thresholds = {name: trader.threshold for name, trader in nodes.traders.items()}
        self.progress = MarketProgress(thresholds)
        self.crew = Crew(screen, self.progress, interruption)
        self._owners = {
            name: _Owner(name, nodes, query) for name, each in nodes.traders.items() if each.tasks
        }
        self._samples: list[Sample] = []
        self._moves: list[MarketMove] = []
        self._phases: list[MarketPhase] = []
        self._markets: dict[str, Mapping[str, Any]] = {}
        self._where: dict[str, str] = {}
        self._recalled: dict[str, str] = {}
        self._prices: dict[AgreedPrice, None] = {}
        self._late_up = False
        self._over = threading.Event()
        self._seconds = 0.0
        self._results: list[TaskResult] = []
        self._start = time.monotonic()

    def run(self, phases: list[PlannedPhase]) -> None:
        """Deploy, publish, go through the phases, wait for the end of results and bills.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self.crew.at_work():
            self._run(phases)
        self._results = [result for owner in self._owners.values() for result in owner.results()]

    def _run(self, phases: list[PlannedPhase]) -> None:
        deploys = [self.crew.start(self._deploy, owner) for owner in self._owners.values()]
        for each in deploys:
            self.crew.result(each, "no answer", TIMEOUT_S)
        self._start = time.monotonic()
        self.crew.start(self._look)
        reads = [
            self.crew.start(owner.read, self, number)
            for owner in self._owners.values()
            for number in range(owner.of.tasks)
        ]
        self._begin(phases[0])
        publishes = [self.crew.start(owner.publish, self) for owner in self._owners.values()]
        for place, phase in enumerate(phases):
            if place:
                self._begin(phase)
            begin_s = self.since()
            if phase.starts:
                late = self.crew.start(partial(self._nodes.start, self._nodes.traders[LATE].node))
                self.crew.result(late, f"the node of {LATE} doesn't start", TIMEOUT_S)
                self._late_up = True
            self.crew.sleep_until(time.perf_counter() + phase.seconds, LOOK_EVERY_S)
            self._go_on(phase)
            self._phases.append(MarketPhase(phase.name, begin_s, self.since()))
        self._seconds = self.since()
        self._over.set()
        for each in publishes:
            self.crew.result(each, "no answer to all that was published", TIMEOUT_S)
        for each in reads:
            self.crew.result(each, "no end of a result", TIMEOUT_S)
        self._say("the end of all results")
        booked_s = BOOKED_S + 2 * max(deal.interval_s for deal in self._nodes.deals)
        deadline = time.monotonic() + booked_s
        self.crew.wait(lambda: self._booked() or time.monotonic() > deadline, lambda: "", 2 * booked_s)

    def _go_on(self, phase: PlannedPhase) -> None:
        """Until what it waits for has come."""
        now_s = time.perf_counter()
        until_s, paced_s = now_s + phase.more_s, now_s
        while now_s < until_s and not phase.until(now := self._now()):
            if now_s >= paced_s:
                paced_s += PACED_S
                for name, factor in phase.paced(now).items():
                    owner = self._owners[name]
                    owner.goes_at(max(min(owner.pace * factor, PACE_MAX), PACE_MIN))
            self.crew.sleep_until(min(now_s + LOOK_EVERY_S, until_s), LOOK_EVERY_S)
            now_s = time.perf_counter()
        if phase.more_s:
            paces = ", ".join(f"{name} {owner.pace:.3g}" for name, owner in self._owners.items())
            self._say(f"seconds of the trace a second: {paces}")

    def _now(self) -> MarketNow:
        used = {name: each.used for name, each in self.progress.owners.items()}
        return MarketNow(dict(self._where), used, self.progress.thresholds)

    def outcome(self) -> MarketOutcome:
        """What was found."""
        late = LATE if self._late_up else ""
        return MarketOutcome(
            thresholds=self.progress.thresholds,
            late=late,
            phases=self._phases,
            samples=self._samples,
            moves=self._moves,
            results=self._results,
            balances=self._balances(),
            published=self.progress.published,
            seconds=self._seconds,
            prices=list(self._prices),
        )

    def since(self) -> float:
        """Seconds since rows began to flow."""
        return time.monotonic() - self._start

    def is_over(self, seconds: float) -> bool:
        """Let time pass, in a thread; whether nothing more is to be published."""
        return self._over.wait(seconds) or self.crew.cancelled

    # --- what is done -------------------------------------------------------------------------------

    def _say(self, what: str) -> None:
        self._screen.say(f"{self.since():6.2f} s  {what}")

    def _begin(self, phase: PlannedPhase) -> None:
        self.progress.begins(phase.name)
        paces = ", ".join(f"{name} {pace:g}" for name, pace in phase.paces.items())
        self._say(f"{phase.name}" + (f"; seconds of the trace a second: {paces}" if paces else ""))
        for name, pace in phase.paces.items():
            self._owners[name].goes_at(pace)

    def _deploy(self, owner: _Owner) -> None:
        trader = owner.of
        with contextlib.closing(owner.connect()) as client:
            while client.status()["peers"].get(trader.node) != "up":
                if self.crew.pause(LOOK_EVERY_S):
                    return
            client.deploy(
                self._query.query(owner.name, trader.tasks),
                self._query.placed(trader.home, trader.node, trader.tasks),
                standby={trader.node: [trader.home]},
                checkpoint_every=CHECKPOINT_EVERY,
            )
        self._screen.say(f"{owner.name}: {trader.tasks} tasks at {trader.node}, {trader.home} stands by")

    # --- what is seen -------------------------------------------------------------------------------

    def _look(self) -> None:
        with contextlib.ExitStack() as stack:
            clients: dict[str, Federation] = {}
            while True:
                for name, trader in self._nodes.traders.items():
                    if trader.late and not self._late_up:
                        continue
                    if name not in clients:
                        clients[name] = stack.enter_context(
                            contextlib.closing(self._nodes.connect(trader.node))
                        )
                    with contextlib.suppress(LinkError):  # It is asked again in a moment.
                        self._saw(name, clients[name].status())
                if self.crew.pause(ASK_EVERY_S):
                    return

    def _saw(self, name: str, status: Mapping[str, Any]) -> None:
        market, load = status["market"], status["load"]
        self._markets[name] = market
        away = {each["task"].partition("/")[2]: each["partner"] for each in market["away"]}
        for each in market["decisions"]:
            if each["step"] == "home":
                self._recalled |= {task.partition("/")[2]: each["code"] for task in each["tasks"]}
        for each in market["away"]:
            task = each["task"].partition("/")[2]
            self._prices[AgreedPrice(task, each["partner"], each["price_micro"])] = None
        guests = [each["task"].partition("/")[2] for each in market["guests"]]
        balance = sum(_booked_micro(each) * _sign(each) for each in market["contracts"])
        cpu = (load["cpu_share"] or 0.0) * load["cores"]
        at_s = self.since()
        self._samples.append(Sample(at_s, name, market["used"], cpu, balance, away))
        self.progress.look(name, OwnerNow(market["used"], list(away), guests, balance, market["why_still"]))
        if name in self._owners and not self._over.is_set():  # Without rows a task is none, and comes home.
            for number in range(self._owners[name].of.tasks):
                task = self._query.fragment(name, number)
                self._is_at(at_s, task, away.get(task, name))

    def _is_at(self, at_s: float, task: str, where: str) -> None:
        before = self._where.get(task, task.partition("/")[0])
        self._where[task] = where
        if before != where:
            why = self._recalled.get(task, "") if task.startswith(f"{where}/") else ""
            self._moves.append(MarketMove(at_s, task, before, where, why))
            self.progress.moved(len(self._moves))
            self._say(f"{task} from {before} to {where}" + (f" ({why})" if why else ""))

    def _booked(self) -> bool:
        """Whether all that was done is signed by both ends."""
        known = {name: dict(market) for name, market in self._markets.items()}
        idle = all(not each["exposure_micro"] for of_it in known.values() for each in of_it["contracts"])
        return idle and all(each.by_consumer_micro == each.by_provider_micro for each in self._balances())

    def _balances(self) -> list[ContractBalance]:
        found = []
        for deal in self._nodes.deals:
            ends = [
                next(
                    (_booked_micro(each) for each in market["contracts"] if each["id"] == deal.id),
                    0,
                )
                for market in (
                    self._markets.get(who, {"contracts": ()}) for who in (deal.consumer, deal.provider)
                )
            ]
            found.append(ContractBalance(deal.id, deal.consumer, deal.provider, *ends))
        return found


def _booked_micro(contract: Mapping[str, Any]) -> int:
    return int(contract["owed_micro"] + contract["settled_micro"])


def _sign(contract: Mapping[str, Any]) -> int:
    return 1 if contract["role"] == "provider" else -1
