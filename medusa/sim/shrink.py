"""From a failing run to the smallest one that fails in the same way: faults dropped, input halved."""

from __future__ import annotations

from collections.abc import Callable

from medusa.sim.trials.trial import Outcome

__all__ = ["RUNS_MAX", "shrink"]

RUNS_MAX = 100

Again = Callable[[list[int], int | None], Outcome]


def shrink(failed: Outcome, again: Again, *, rows: int, runs_max: int = RUNS_MAX) -> Outcome:
    """Leave out what the failure doesn't need.

    Faults are left out one by one until none can be, then the input is halved while the same
    invariant is violated; then once more the faults.

    Args:
        failed: a run that violated an invariant.
        again: runs the same seed with these faults only and so many rows (None: as many as it had).
        rows: how many rows the failed run had at most.
        runs_max: give up after so many runs, with what was found.

    Returns:
        the smallest failing run; ``failed`` where nothing can be left out.
    """
    best, fewer, runs = failed, None, 0

    def fails(numbers: list[int], count: int | None) -> bool:
        nonlocal best, runs
        runs += 1
        outcome = again(numbers, count)
        if outcome.ok or outcome.kind != failed.kind:
            return False
        best = outcome
        return True

    def drop() -> None:
        for number in [fault.number for fault in best.faults]:
            left = [fault.number for fault in best.faults if fault.number != number]
            if runs < runs_max and len(left) < len(best.faults):
                fails(left, fewer)

    drop()
    count = rows
    while count > 1 and runs < runs_max:
        half = count // 2
        if not fails([fault.number for fault in best.faults], half):
            break
        count = fewer = half
    drop()
    return best
