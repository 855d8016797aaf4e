"""The parts of a run that does the work of a push itself, and of one with an input queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from medusa.elements import Element
from medusa.engine.input.intake import InputQueue
from medusa.engine.overload.qos_scheduler import Ordering
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.direct_intake import DirectIntake, RunIntake
from medusa.engine.run.gate import RunGate
from medusa.engine.run.idle_clock import IdleClock
from medusa.engine.run.output import RunOutput
from medusa.engine.run.run_warnings import RunWarnings
from medusa.ports import Clock
from medusa.runtime.embedded.fork_guard import ForkGuard
from medusa.runtime.embedded.ordered_worker import OrderedWorker
from medusa.runtime.embedded.queue_state import Belt
from medusa.runtime.embedded.queued_intake import QueuedIntake
from medusa.runtime.embedded.shedding import Shedding
from medusa.runtime.embedded.thread_reports import ThreadReports
from medusa.runtime.embedded.worker import Worker, silent_until

__all__ = ["QueueOptions", "RunParts", "direct_parts", "queued_parts"]

MakeCheckpoints = Callable[[RunWarnings], RunCheckpoints]


class QueueOptions(NamedTuple):
    """Of a run with an input queue.

    Attributes:
        threads: how many work.
        ordering: orders the work between outputs; None: it is done in the order in which it came.
    """

    nbytes: int
    threads: int
    ordering: Ordering | None


class RunParts(NamedTuple):
    """What a run consists of. No part knows the run: one that is lost ends at once."""

    gate: RunGate
    clock: Clock
    intake: RunIntake
    output: RunOutput
    rest: AtRest
    time: IdleClock
    warnings: RunWarnings
    checkpoints: RunCheckpoints
    shedding: Shedding
    fork_guard: ForkGuard


def direct_parts(gate: RunGate, clock: Clock, make_checkpoints: MakeCheckpoints) -> RunParts:
    """Those of a run whose callers do its work."""
    fragment, warnings = gate.fragment, RunWarnings(gate.fragment)
    time = IdleClock(fragment, clock.monotonic_us)
    checkpoints = make_checkpoints(warnings)
    output = RunOutput(gate, time, warnings, checkpoints.sync)
    rest = AtRest(fragment, time, output, checkpoints)
    intake = DirectIntake(gate, clock, warnings, rest)
    shedding, guard = Shedding(gate, checkpoints.sync), ForkGuard(gate, checkpoints)
    return RunParts(gate, clock, intake, output, rest, time, warnings, checkpoints, shedding, guard)


def queued_parts(
    gate: RunGate, clock: Clock, make_checkpoints: MakeCheckpoints, options: QueueOptions
) -> RunParts:
    """Those of a run with an input queue; its thread begins."""
    fragment = gate.fragment
    belt = Belt(InputQueue(options.nbytes, fragment.positions()))
    reports = ThreadReports(gate, belt)
    time = IdleClock(fragment, partial(silent_until, clock, belt))
    checkpoints = make_checkpoints(reports)

    def took(elements: list[Element]) -> None:
        belt.note_take()

    output = RunOutput(gate, time, reports, checkpoints.sync, before=reports.hear, took=took)
    shedding = Shedding(gate, checkpoints.sync)
    shedding.begin()
    rest = AtRest(fragment, time, output, checkpoints, before=shedding.tell)
    made: Any = Worker
    if options.ordering is not None:
        made = partial(OrderedWorker, ordering=options.ordering)
    worker: Worker = made(gate, clock, belt, reports, rest, shedding)
    finalizer = worker.finalizer

    def leave() -> None:
        belt.forked()
        finalizer.detach()

    waits = options.threads > 1
    intake = QueuedIntake(gate, clock, belt, reports, rest, shedding, worker, waits=waits)
    guard = ForkGuard(gate, checkpoints, leave)
    return RunParts(gate, clock, intake, output, rest, time, reports, checkpoints, shedding, guard)
