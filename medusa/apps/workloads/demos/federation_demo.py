"""``medusa demo federation``: two owners, one query over their nodes, changed while rows flow.

One thread publishes at a steady pace, one reads, one looks at the nodes; each has a client of its own. Orders
run in a thread too, so that an interruption is noticed some times a second.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medusa.apps.workloads.demos import federation_query
from medusa.apps.workloads.demos.crew import Crew, started
from medusa.apps.workloads.demos.federation_outcome import (
    FederationOutcome,
    FederationStep,
    LookUps,
    compare,
    gaps_us,
)
from medusa.apps.workloads.demos.federation_screen import FederationProgress, show_outcome
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.owned_nodes import OwnedNodes
from medusa.errors import LinkError

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.runtime.client.federation import Federation

__all__ = ["FederationOptions", "run_demo"]

LOOK_EVERY_S = 0.2
TIMEOUT_S = 60.0
"""For each thing that is waited for."""

LATER = ("E_BUSY", "E_TIMEOUT", "E_BROKEN")
"""Orders that are refused so may be given again in a moment."""

SETTLE_S = 0.5
"""A gap that begins so long after a step still counts as of it."""

NAME = f"alice/{federation_query.OUT}"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationOptions:
    """What the command was told; see its help."""

    rate: int
    rest: float
    seed: int
    keep: bool


def run_demo(options: FederationOptions, *, as_json: bool = False) -> bool:
    """Run the demonstration and show it on standard output.

    Returns:
        Whether nothing differs: results from the embedded run, look-ups from the truth.

    Raises:
        MedusaError: it could not be carried out. Whatever happens, no node is left running.
    """
    from rich.console import Console

    screen = DemoScreen(None if as_json else Console())
    outcome = ran(options, screen)
    if as_json:
        print(json.dumps(outcome.to_json()))
    else:
        show_outcome(screen, outcome)
    return outcome.fine


def ran(options: FederationOptions, screen: DemoScreen) -> FederationOutcome:
    """Five nodes of two owners, the whole run, the comparison."""
    owners = federation_query.OWNERS
    owner_of = {node: name for name, owner in owners.items() for node in owner.nodes}

    def nodes_in(folder: Path, interruption: Interruption) -> OwnedNodes:
        return OwnedNodes(owners, folder, interruption)

    with (
        started(
            nodes_in,
            screen,
            prefix="medusa-federation-",
            keep=options.keep,
            title=lambda node: f"{node} of {owner_of[node]}",
        ) as (nodes, _, interruption),
        screen,
    ):
        run = FederationRun(
            nodes,
            rate=options.rate,
            rest_s=options.rest,
            seed=options.seed,
            screen=screen,
            interruption=interruption,
        )
        run.run()
    wanted = federation_query.expected(options.seed, run.ticks, run.rows_per_tick)
    return FederationOutcome(
        comparison=compare(run.rows(), wanted),
        steps=run.steps,
        lookups=run.lookups,
        lost_rows=run.lost_rows,
        cars=run.ticks * run.rows_per_tick,
        seconds=run.seconds,
        seed=options.seed,
        refused=run.refused,
    )


class FederationRun:
    """One run over nodes that listen.

    In the main thread an interruption ends it between two steps, some times a second.

    Args:
        rate: cars a second.
        rest_s: rows flow undisturbed for so long between two steps.

    Attributes:
        steps, lookups, seconds, refused: what was measured.
        ticks: how many were published.
        lost_rows: that the subscriber didn't get.
    """

    def __init__(
        self,
        nodes: OwnedNodes,
        *,
        rate: int,
        rest_s: float,
        seed: int,
        screen: DemoScreen,
        interruption: Interruption,
    ) -> None:
        self.steps: list[FederationStep] = []
        self.lookups: list[LookUps] = []
        self.ticks = 0
        self.lost_rows = 0
        self.seconds = 0.0
        self.refused = ""
        self.rows_per_tick = max(1, round(rate * federation_query.TICK_US / 1e6))
        self._nodes = nodes
        self._rest_s = rest_s
        self._seed = seed
        self._screen = screen
        self._progress = FederationProgress(federation_query.OWNERS)
        self._crew = Crew(screen, self._progress, interruption)
        self._batches: list[pa.RecordBatch] = []
        self._schema: pa.Schema | None = None
        self._arrivals: list[float] = []
        self._been: list[str] = []
        self._start = 0.0

    def run(self) -> None:
        """Deploy, publish, change, wait for the end of the result.

        Raises:
            LinkError: a node refused, or something didn't come in time.
            KeyboardInterrupt: it was interrupted.
        """
        with self._crew.at_work() as stack:
            self._run(stack)

    def _run(self, stack: contextlib.ExitStack) -> None:
        clients = {
            node: stack.enter_context(contextlib.closing(self._nodes.connect(node)))
            for node in ("a1", *federation_query.OWNERS["bob"].nodes)
        }
        alice = clients.pop("a1")
        self._deploy(alice)
        self._look_up("deployment", clients, "a3")
        trains = stack.enter_context(clients["b1"].subscribe(NAME, from_="oldest"))
        self._schema = trains.schema
        self._screen.say(f"{NAME} is read by its name, asked for at b1, sent by {trains.loop.node}")
        self._start = time.monotonic()
        reader, publisher = self._crew.start(self._read, trains), self._crew.start(self._publish)
        self._crew.start(self._look)
        self._rest()
        self._change(alice, clients, stack)
        self._crew.end()
        self._join(publisher, "answer to all that was published")
        self._join(reader, "end of the result")
        self.lost_rows = trains.lost_rows
        self.seconds = time.monotonic() - self._start

    def rows(self) -> pa.Table:
        """What came, in order."""
        import pyarrow as pa

        return pa.Table.from_batches(self._batches, self._schema)

    # --- what is done -----------------------------------------------------------------------------

    def _deploy(self, alice: Federation) -> None:
        q = federation_query.query()
        for name, node in federation_query.DEFINED.items():
            self._do(partial(alice.define_remote, name, q, federation_query.AT, node=node))
            self._screen.say(f"{node} keeps {name!r} for alice, within what bob offers her")
        self.refused = self._do(lambda: self._not_offered(alice))
        self._screen.say(
            f"a window at b1, which bob doesn't offer, is refused: {self.refused or 'it was not'}"
        )
        self._do(lambda: alice.deploy(q, at=federation_query.AT))
        self._screen.say("the query is deployed over five nodes, all or nothing")

    @staticmethod
    def _not_offered(alice: Federation) -> str:
        at = {"a1": ["cars"], "b1": ["per_road"], "a3": ["totals"]}
        try:
            alice.define_remote("windows", federation_query.query(), at, node="b1")
        except LinkError as error:
            return error.code
        return ""

    def _change(self, alice: Federation, bobs: Mapping[str, Federation], stack: contextlib.ExitStack) -> None:
        """Everything that is done while rows flow."""
        began = self._since()
        self._rest()
        self._note("nothing", "calm", began, self._since())
        self._move(alice, bobs, "a2")
        self._split(alice)
        self._move(alice, bobs, "a1")
        began = self._since()
        code = self._do(lambda: self._nodes.stop("a3"))
        self._screen.say(f"a3 has left: exit code {code}")
        self._look_up("a3 left", bobs, "a1")
        self._done("a3 leaves", "leave", began)
        began = self._since()
        self._do(lambda: self._nodes.start("b3"))
        third = stack.enter_context(contextlib.closing(self._nodes.connect("b3")))
        self._look_up("b3 joined", {**bobs, "b3": third}, "a1")
        self._done("b3 joins", "join", began)

    def _move(self, alice: Federation, bobs: Mapping[str, Federation], to: str) -> None:
        told, began, took = self._order(lambda: alice.move("traffic/totals", to=to))
        self._screen.say(f"traffic/totals is at {told['node']}, after {took - began:.2f} s")
        self._look_up(f"move to {to}", bobs, to)
        self._done(f"totals {self._been[-2]} -> {to}", "move", began, took, **_sent(told))

    def _split(self, alice: Federation) -> None:
        """In two, on two nodes; and one again."""
        told, began, took = self._order(lambda: alice.split("traffic/per_road", 2, at=["a2", "a3"]))
        parts = ", ".join(f"{name} at {node}" for name, node in told["parts"].items())
        self._screen.say(f"traffic/per_road runs as {parts}, after {took - began:.2f} s")
        self._done("per_road in two", "split", began, took, **_sent(told))
        told, began, took = self._order(lambda: alice.merge("traffic/per_road"))
        self._screen.say(f"traffic/per_road is one again, at {told['node']}, after {took - began:.2f} s")
        self._done("per_road in one", "merge", began, took, **_sent(told))

    def _order(self, order: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float, float]:
        """Give an order: its answer, when it was given, and when it was carried out."""
        began = self._since()
        told = self._do(lambda: self._ordered(order))
        return told, began, self._since()

    def _ordered(self, order: Callable[[], _T]) -> _T:
        """What a busy node refuses is ordered again in a second; what was done isn't done twice."""
        deadline = time.monotonic() + TIMEOUT_S / 2
        while True:
            try:
                return order()
            except LinkError as error:
                if error.code not in LATER or time.monotonic() > deadline:
                    raise
                self._screen.say(f"{error.code}: {error.message}; once more")
            if self._crew.pause(1.0):
                raise LinkError("the run is over", code="link.closed")

    # --- waiting ----------------------------------------------------------------------------------

    def _since(self) -> float:
        return time.monotonic() - self._start

    def _do(self, action: Callable[[], _T]) -> _T:
        """In a thread of its own, while progress is shown."""
        return self._join(self._crew.start(action), "answer")

    def _join(self, future: Future[_T], what: str) -> _T:
        return self._crew.result(future, f"no {what}", TIMEOUT_S)

    def _rest(self) -> None:
        """Let rows flow, and come."""
        until, seen = time.monotonic() + self._rest_s, len(self._arrivals)

        def came() -> bool:
            return time.monotonic() > until and len(self._arrivals) > seen

        self._crew.wait(came, lambda: "no rows", TIMEOUT_S)

    def _done(self, what: str, kind: str, began_s: float, ended_s: float | None = None, **told: int) -> None:
        ended = self._since() if ended_s is None else ended_s
        self._rest()
        self._note(what, kind, began_s, ended, **told)

    def _note(self, what: str, kind: str, began_s: float, ended_s: float, **told: int) -> None:
        gaps = gaps_us(self._arrivals, began_s, ended_s + SETTLE_S)
        self.steps.append(
            FederationStep(what=what, kind=kind, seconds=ended_s - began_s, gaps_us=gaps, **told)
        )

    # --- threads ----------------------------------------------------------------------------------

    def _publish(self) -> None:
        with contextlib.closing(self._nodes.connect("a1")) as alice:
            due = time.monotonic()
            while not self._crew.pause(max(0.0, due - time.monotonic())):
                due += federation_query.TICK_US / 1e6
                alice.publish(
                    federation_query.SOURCE,
                    federation_query.traffic(self._seed, self.ticks, self.rows_per_tick),
                )
                self.ticks += 1
                self._progress.published(self.ticks * self.rows_per_tick)
            if not self._crew.cancelled:
                alice.finish(federation_query.SOURCE)
                alice.flush()

    def _read(self, trains: Any) -> None:
        window = None
        for train in trains:
            newest = train.batch.column("window_start")[-1]
            if newest != window:  # Not another train of the same window.
                self._arrivals.append(self._since())
                window = newest
            self._batches.append(train.batch)
            self._progress.received(len(train), trains.loop.node)

    def _look(self) -> None:
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(contextlib.closing(self._nodes.connect(node))) for node in ("a1", "b1")
            ]
            while not self._crew.pause(LOOK_EVERY_S):
                for client in clients:
                    with contextlib.suppress(LinkError):  # One that leaves doesn't answer.
                        for status in client.statuses(all=True):
                            self._progress.look(time.monotonic(), status)

    # --- names ------------------------------------------------------------------------------------

    def _look_up(self, after: str, asked: Mapping[str, Federation], truth: str) -> None:
        """Ask where the result is until all say the truth, and once more."""
        before = set(self._been)
        self._been.append(truth)
        answers = {"right": 0, "nothing": 0, "older": 0, "wrong": 0}
        began = time.monotonic()
        left = dict(asked)
        while left and time.monotonic() - began < TIMEOUT_S:
            for node, client in list(left.items()):
                found = self._do(lambda client=client: _found(client))  # type: ignore[misc]
                other = "older" if found in before else "wrong" if found else "nothing"
                kind = "right" if found == truth else other
                answers[kind] += 1
                if kind == "right":
                    del left[node]
        seconds = None if left else time.monotonic() - began
        made = LookUps(after=after, asked=list(asked), truth=truth, seconds=seconds, **answers)
        self.lookups.append(made)
        said = f"after {seconds:.2f} s" if seconds is not None else "NOT"
        self._screen.say(f"asked at {', '.join(asked)}: {NAME} is at {truth}, said by all {said}")


def _found(client: Federation) -> str:
    """The node that the result is at, as a node says; empty: it finds nothing."""
    try:
        return str(client.find(NAME)["node"])
    except LinkError as error:
        if error.code != "E_STREAM":
            raise
        return ""


def _sent(told: Mapping[str, Any]) -> dict[str, int]:
    """What an order cost, as its answer says."""
    return {"stopped_us": told["pause_us"], "sent_bytes": told["bytes"]}
