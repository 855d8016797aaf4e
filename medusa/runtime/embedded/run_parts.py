"""The parts of a run that does the work of a push itself, and of one with an input queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from medusa.engine.input.intake import IntakeQueue
from medusa.engine.overload.qos_scheduler import Ordering
from medusa.engine.run.at_rest import AtRest
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.direct_intake import DirectIntake
from medusa.engine.run.gate import RunGate
from medusa.engine.run.idle_clock import IdleClock
from medusa.engine.run.intake import RunIntake
from medusa.engine.run.output import RunOutput
from medusa.engine.run.run_warnings import RunWarnings
from medusa.ports import Clock
from medusa.runtime.embedded.fork_guard import ForkGuard
from medusa.runtime.embedded.ordered_worker import worker_of
from medusa.runtime.embedded.queue_state import QueueState
from medusa.runtime.embedded.queue_worker import leave_to_parent, silent_until
from medusa.runtime.embedded.queued_intake import QueuedIntake
from medusa.runtime.embedded.shedding import Shedding
from medusa.runtime.embedded.thread_reports import ThreadReports

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

    intake: RunIntake
    output: RunOutput
    rest: AtRest
    time: IdleClock
    warnings: RunWarnings
    checkpoints: RunCheckpoints
    shedding: Shedding
    forks: ForkGuard


def direct_parts(gate: RunGate, clock: Clock, saves_of: MakeCheckpoints) -> RunParts:
    """Those of a run whose callers do its work."""
    warnings, time = RunWarnings(gate.fragment), IdleClock(gate.fragment, clock.monotonic_us)
    saves = saves_of(warnings)
    output = RunOutput(gate, time, warnings, saves.sync)
    rest = AtRest(gate.fragment, time, output, saves)
    intake = DirectIntake(gate, clock, warnings, rest)
    shedding = Shedding(gate, saves.sync)
    return RunParts(intake, output, rest, time, warnings, saves, shedding, ForkGuard(gate, saves))


def queued_parts(gate: RunGate, clock: Clock, saves_of: MakeCheckpoints, options: QueueOptions) -> RunParts:
    """Those of a run with an input queue; its thread begins."""
    fragment = gate.fragment
    belt = QueueState(IntakeQueue(options.nbytes, fragment.positions()))
    reports, time = ThreadReports(gate, belt), IdleClock(fragment, partial(silent_until, clock, belt))
    saves = saves_of(reports)
    output = RunOutput(gate, time, reports, saves.sync, before=reports.hear, took=belt.note_take)
    shedding = Shedding(gate, saves.sync)
    shedding.begin()
    rest = AtRest(fragment, time, output, saves, before=shedding.tell)
    worker = worker_of(options.ordering, gate, clock, belt, reports, rest, shedding)
    intake = QueuedIntake(gate, clock, belt, reports, rest, shedding, worker, waits=options.threads > 1)
    forks = ForkGuard(gate, saves, partial(leave_to_parent, belt, worker.finalizer))
    return RunParts(intake, output, rest, time, reports, saves, shedding, forks)
