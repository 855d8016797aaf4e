"""One run of a scenario: a seed decides the options and the faults; the checkers decide whether it passed.

Two phases. *Safety*: faults happen, and the invariants hold after every event. *Liveness*: once the last has
begun all faults end, the dead are started again, and then everything must arrive by a deadline.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from medusa.sim.trials.coverage import Coverage
from medusa.sim.world.fault_kinds import Fault, FaultStage, Scene, draw, inject
from medusa.sim.world.virtual_time import SimulationError, World

__all__ = ["Outcome", "Scenario", "Trial", "faults_of", "run_trial"]

EVENTS_MAX = 300_000
SAFETY_US = 3_000_000
LIVENESS_US = 30_000_000


class Trial(FaultStage, Protocol):
    """One world under test, not yet started."""

    @property
    def options(self) -> object:
        """Everything the seed decided beside the faults; printed when it fails."""

    @property
    def scene(self) -> Scene:
        """For the dice of the faults."""

    @property
    def ended(self) -> bool:
        """Everything arrived and is at rest."""

    @property
    def rows_in(self) -> int:
        """Rows that go in."""

    @property
    def rows(self) -> int:
        """Rows that arrived."""

    @property
    def lost(self) -> int:
        """Rows reported lost."""

    @property
    def may_lose(self) -> bool:
        """Rows may never come, if somebody says so: ``check_end`` looks at that."""

    @property
    def input_us(self) -> int:
        """When all input has come at the latest, if nothing holds it up."""

    def start(self) -> None:
        """Everybody comes to life."""

    def heal(self) -> None:
        """All faults end."""

    def crash_all(self) -> bool:
        """In the end all machines die at the same moment; whether that is done in this run."""

    def check_end(self) -> None:
        """What must hold in the end.

        Raises:
            SimulationError: it doesn't.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        faults: what went wrong, by number.
        violation: the first invariant that didn't hold; empty where all did.
        last: the last lines of the trace (all of them where asked for).
        replay: the command that does exactly this again.
    """

    scenario: str
    seed: int
    options: str
    faults: tuple[Fault, ...]
    violation: str
    events: int
    virtual_us: int
    delivered: int
    lost: int
    trace_hash: str
    last: tuple[str, ...]
    replay: str

    @property
    def ok(self) -> bool:
        return not self.violation

    @property
    def kind(self) -> str:
        """The invariant that didn't hold, without the numbers."""
        return ":".join(self.violation.split(":")[:2])

    def __str__(self) -> str:
        head = f"{self.scenario} --seed {self.seed}: "
        if self.ok:
            return (
                f"{head}ok, {self.delivered:,} rows delivered, {self.lost:,} reported lost, "
                f"{self.events:,} events in {self.virtual_us / 1e6:.1f} virtual s, trace {self.trace_hash}"
            )
        lines = [f"{head}VIOLATED {self.violation}", self.drawn, *self.last, f"replay: {self.replay}"]
        return "\n".join(lines)

    @property
    def drawn(self) -> str:
        """What the seed decided."""
        faults = ["faults:", *(f"  {fault}" for fault in self.faults)] if self.faults else ["faults: none"]
        return "\n".join([f"options: {self.options}", *faults])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a seed is thrown for.

    Attributes:
        about: one line for people.
        build: (world, rows or None for as many as the seed says, classes under test) -> a trial.
        kinds: faults that can be drawn (``medusa.sim.world.fault_kinds.KINDS``).
        count: the most of them, the weather not counted.
        more: kinds of which most seeds have one to three, drawn apart from the others.
        swarm: each seed lacks some kinds.
        safety_us: how long faults may last, or until the last of the seed's has begun.
        liveness_us: then, and when the input has ended, everything must arrive within this.
    """

    about: str
    build: Callable[[World, int | None, Any], Trial]
    kinds: Sequence[str]
    count: int = 8
    more: Sequence[str] = ()
    swarm: bool = True
    safety_us: int = SAFETY_US
    liveness_us: int = LIVENESS_US
    events_max: int = EVENTS_MAX


def run_trial(
    name: str,
    scenario: Scenario,
    seed: int,
    *,
    only: Iterable[int] | None = None,
    rows: int | None = None,
    parts: Any = None,
    keep_trace: bool = False,
    coverage: Coverage | None = None,
) -> Outcome:
    """Run one seed of a scenario.

    Args:
        name: for the report, and part of what the dice are thrown for.
        seed: any integer; the same one gives the same run.
        only: numbers of the faults that happen; None: all that the seed has.
        rows: rows of input instead of as many as the seed says.
        parts: classes with a mistake planted, in tests of the checkers.
        keep_trace: the outcome holds the whole trace, not only its end.
        coverage: takes what the run meets.
    """
    collects = gc.isenabled()
    gc.disable()  # A run is short, and cycles are few: looking for them takes a third of the time.
    try:
        return _outcome(name, scenario, seed, only, rows, parts, keep_trace, coverage)
    finally:
        if collects:
            gc.enable()  # The trial is garbage by now: it is looked at once.


def _outcome(
    name: str,
    scenario: Scenario,
    seed: int,
    only: Iterable[int] | None,
    rows: int | None,
    parts: Any,
    keep_trace: bool,
    coverage: Coverage | None,
) -> Outcome:
    world = World(seed, name=name, keep_trace=keep_trace)
    trial = scenario.build(world, rows, parts)
    faults = faults_of(world, scenario, trial)
    # Also those that are left out, so that the others end when they did.
    safety_us = max((scenario.safety_us, *(fault.at_us for fault in faults)))
    command = f"medusa sim {name} --seed {seed}"
    if only is not None:
        chosen = set(only)
        faults = tuple(fault for fault in faults if fault.number in chosen)
        command += f" --only {','.join(str(fault.number) for fault in faults) or 'none'}"
    if rows is not None:
        command += f" --rows {rows}"
    if coverage is None:
        violation = _run(world, scenario, trial, faults, safety_us)
    else:
        with coverage.run(trial):
            violation = _run(world, scenario, trial, faults, safety_us)
    return Outcome(
        scenario=name,
        seed=seed,
        options=str(trial.options),
        faults=faults,
        violation=violation,
        events=world.events,
        virtual_us=world.now_us,
        delivered=trial.rows,
        lost=trial.lost,
        trace_hash=world.trace_hash,
        last=tuple(world.lines),
        replay=command,
    )


def faults_of(world: World, scenario: Scenario, trial: Trial) -> tuple[Fault, ...]:
    """Everything that a seed lets go wrong."""
    dice = world.dice("faults")
    count = dice.randrange(1, scenario.count + 1) if scenario.count else 0
    faults = draw(dice, trial.scene, scenario.kinds, count, swarm=scenario.swarm)
    dice = world.dice("more faults")
    if not scenario.more or dice.random() < 0.3:
        return faults
    more = draw(dice, trial.scene, scenario.more, dice.randrange(1, 4), swarm=False)
    return faults + tuple(replace(each, number=len(faults) + each.number) for each in more)


def _run(world: World, scenario: Scenario, trial: Trial, faults: Sequence[Fault], safety_us: int) -> str:
    """The violation, or nothing."""
    try:
        inject(trial, faults)
        trial.start()
        world.run(until_us=safety_us, events_max=scenario.events_max)
        trial.heal()
        _come_to_rest(world, scenario, trial)
        if trial.crash_all():
            _come_to_rest(world, scenario, trial)
    except Exception as error:  # whatever a mind raises is a finding
        return f"{type(error).__name__}: {error}"
    return ""


def _come_to_rest(world: World, scenario: Scenario, trial: Trial) -> None:
    """Until everything has arrived; then what must hold in the end does.

    Raises:
        SimulationError: it takes too long, or doesn't.
    """
    deadline_us = max(world.now_us, trial.input_us) + scenario.liveness_us
    ended = world.run(until_us=deadline_us, events_max=scenario.events_max, done=lambda: trial.ended)
    if not ended and not trial.may_lose:
        raise SimulationError(
            f"liveness: {trial.rows} rows delivered, not all is at rest "
            f"{scenario.liveness_us // 1_000_000} s after the faults and the input ended"
        )
    trial.check_end()
