"""All scenarios by name, and how a failure of one is made smaller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from medusa.sim.lending.abroad import ABROAD
from medusa.sim.lending.trading import TRADING
from medusa.sim.scaling.scale_trial import SCALE
from medusa.sim.shrink import RUNS_MAX, shrink
from medusa.sim.trials.amnesia import AMNESIA
from medusa.sim.trials.chains import CHAINS
from medusa.sim.trials.colocated import TOGETHER
from medusa.sim.trials.coverage import Coverage
from medusa.sim.trials.delay import DELAY
from medusa.sim.trials.deployments import DEPLOYS
from medusa.sim.trials.federations import FEDERATIONS
from medusa.sim.trials.handovers import HANDOVERS
from medusa.sim.trials.moves import MOVES
from medusa.sim.trials.owners import OWNERS
from medusa.sim.trials.precise import PRECISE
from medusa.sim.trials.publisher_restarts import COMEBACKS
from medusa.sim.trials.rebuilds import REBUILDS
from medusa.sim.trials.regroupings import REGROUPINGS
from medusa.sim.trials.seams import SEAMS
from medusa.sim.trials.splits import SPLITS
from medusa.sim.trials.standby import STANDBY
from medusa.sim.trials.trial import Outcome, Scenario, run_trial
from medusa.sim.trials.upstream import UPSTREAM_BACKUP
from medusa.sim.trials.wishes import WISHES
from medusa.sim.world.virtual_time import World

__all__ = ["SCENARIOS", "run_scenario", "smallest"]

SCENARIOS: dict[str, Scenario] = {
    **CHAINS,
    **FEDERATIONS,
    **DEPLOYS,
    **TOGETHER,
    **MOVES,
    **SPLITS,
    **COMEBACKS,
    **OWNERS,
    **SEAMS,
    **STANDBY,
    **HANDOVERS,
    **AMNESIA,
    **REGROUPINGS,
    **REBUILDS,
    **WISHES,
    **UPSTREAM_BACKUP,
    **PRECISE,
    **DELAY,
    **ABROAD,
    **TRADING,
    **SCALE,
}


def run_scenario(
    name: str,
    seed: int,
    *,
    only: Iterable[int] | None = None,
    rows: int | None = None,
    parts: Any = None,
    keep_trace: bool = False,
    coverage: Coverage | None = None,
) -> Outcome:
    """``run_trial`` of a key of ``SCENARIOS``."""
    return run_trial(
        name,
        SCENARIOS[name],
        seed,
        only=only,
        rows=rows,
        parts=parts,
        keep_trace=keep_trace,
        coverage=coverage,
    )


def smallest(failed: Outcome, *, parts: Any = None, runs_max: int = RUNS_MAX) -> Outcome:
    """The smallest run that fails as this one; ``failed`` itself where nothing can be left out.

    Args:
        parts: those of the failed run.
        runs_max: so many runs at most are spent on it.
    """
    name, seed = failed.scenario, failed.seed
    rows = SCENARIOS[name].build(World(seed, name=name), None, parts).rows_in

    def again(numbers: list[int], fewer: int | None) -> Outcome:
        return run_scenario(name, seed, only=numbers, rows=fewer, parts=parts)

    return shrink(failed, again, rows=rows, runs_max=runs_max)
