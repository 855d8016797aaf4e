"""Seeds of all scenarios, and what they met of everything that there is to meet."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from medusa.sim.scenarios import SCENARIOS, run_scenario
from medusa.sim.trials.coverage import Coverage, events
from medusa.sim.trials.trial import Outcome

__all__ = ["LEFT_OUT", "cover", "report", "summary", "table"]

LEFT_OUT = ("federation",)
"""1,000 nodes a seed; what they meet others do."""


def cover(
    seeds: int, *, start: int = 0, scenarios: Sequence[str] = (), failed: Callable[[Outcome], None]
) -> Coverage:
    """Run so many seeds, of one scenario after the other, and record what they meet.

    Args:
        start: the first seed of each.
        scenarios: keys of ``SCENARIOS``; empty: all but ``LEFT_OUT``.
        failed: called with each run in which an invariant didn't hold.
    """
    names = list(scenarios) or [name for name in SCENARIOS if name not in LEFT_OUT]
    coverage = Coverage()
    for number in range(seeds):
        name, seed = names[number % len(names)], start + number // len(names)
        outcome = run_scenario(name, seed, coverage=coverage)
        gc.collect(0)  # Nothing is allocated here between two runs, so that nothing else would do it.
        if not outcome.ok:
            failed(outcome)
    return coverage


def report(coverage: Coverage) -> dict[str, Any]:
    """As JSON has it: of each event how many runs met it, and how often; those that none did."""
    return {
        "runs": coverage.runs,
        "events": {e: {"runs": coverage.in_runs[e], "times": coverage.times[e]} for e in events()},
        "unmet": list(coverage.unmet),
    }


def table(coverage: Coverage) -> Iterator[str]:
    """All events for people, line by line, and the summary behind them."""
    for event in events():
        yield f"{coverage.in_runs[event]:>6,} runs {coverage.times[event]:>11,} times  {event}"
    yield from summary(coverage)


def summary(coverage: Coverage) -> Iterator[str]:
    """For people: what no run met, one line for each automaton or kind of fault, and how much was met of each
    part. What one run in a hundred at most met is counted: a run of as many other seeds may miss it.
    """
    rare = [event for event in events() if 0 < coverage.in_runs[event] <= max(1, coverage.runs // 100)]
    unmet: dict[str, list[str]] = {}
    for event in coverage.unmet:
        part, name = _placed(event)
        unmet.setdefault(part, []).append(name)
    for part, names in unmet.items():
        yield f"not met  {part}: {'; '.join(names)}"
    for part in dict.fromkeys(event.partition(": ")[0] for event in events()):
        mine = [event for event in events() if event.startswith(f"{part}: ")]
        met = sum(1 for event in mine if coverage.times[event])
        seldom = sum(1 for event in rare if event in mine)
        yield f"{part}: {met} of {len(mine)} met" + (
            f", {seldom} of them in 1 % of the runs at most" if seldom else ""
        )
    met = len(events()) - len(coverage.unmet)
    yield f"{coverage.runs:,} runs met {met} of {len(events())} events"


def _placed(event: str) -> tuple[str, str]:
    """Under what an event stands, and what it is called there: faults stand under their kind."""
    part, _, name = event.partition(": ")
    kind, comma, condition = name.partition(", ")
    return (f"{part} {kind}", condition) if part == "fault" and comma else (part, name)
