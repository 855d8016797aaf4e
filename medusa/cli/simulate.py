"""``medusa sim``: seeds of the scenarios, replayed and shrunk."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.options.command_options import example
from medusa.cli.sim_market import market

if TYPE_CHECKING:
    from medusa.sim.trials.trial import Outcome

__all__ = ["sim"]


class _Simulations(click.Command):
    """Scenarios under faults; ``market`` is another simulation, with options of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["market"]:
            return market.make_context(f"{info_name} market", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    cls=_Simulations,
    epilog=example(
        "medusa sim crash --seed 42",
        "medusa sim crash --seed 42 --only 0,3 --rows 40",
        "medusa sim market --help",
    ),
)
@click.argument("scenario", required=False)
@click.option("--seed", type=int, help="run this seed only")
@click.option("--seeds", type=click.IntRange(min=1), help="how many  [default: 20]")
@click.option(
    "--start", type=click.IntRange(min=0), default=0, show_default=True, help="the first of --seeds"
)
@click.option("--only", metavar="3,7", help="only these faults of the seed; none: no fault")
@click.option("--rows", type=click.IntRange(min=1), help="so many rows of input, not the seed's")
@click.option("--trace", is_flag=True, help="print the whole trace of the seed, not its end")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="look for a smaller failure")
@click.option("--list", "listed", is_flag=True, help="say what the scenarios are")
@click.option("--coverage", is_flag=True, help="of --seeds over all scenarios: the events that none met")
@click.option("--every-event", is_flag=True, help="with --coverage: how many met each event, and how often")
@click.option("--json", "as_json", is_flag=True, help="one JSON document a seed, for scripts")
def sim(
    scenario: str | None,
    seed: int | None,
    seeds: int | None,
    start: int,
    only: str | None,
    rows: int | None,
    trace: bool,
    shrink: bool,
    listed: bool,
    coverage: bool,
    every_event: bool,
    as_json: bool,
) -> None:
    """Run federations in virtual time, with faults drawn from a seed, and check every step.

    ``medusa sim market`` simulates a market of load instead, and has options of its own.

    Without SCENARIO all are run; with --coverage so many seeds in all, shared among them. Exit code 1: an
    invariant did not hold. Then the seed, its options
    and faults, the invariant, the last events and the command that replays it are printed, and what
    is left of it once everything that isn't needed is left out.
    """
    from medusa.sim.scenarios import SCENARIOS, run_scenario

    if listed:
        for name, each in SCENARIOS.items():
            click.echo(f"{name:<11} {each.about}")
        return
    _check(scenario, seed, seeds, only, rows, trace, SCENARIOS)
    if coverage:
        _cover(scenario, seed, seeds or 1000, start, every_event, as_json)
        return
    if every_event:
        raise click.UsageError("--every-event says more of --coverage: give that too")
    chosen = _numbers(only)
    failed = 0
    for name in [scenario] if scenario else SCENARIOS:
        began, count = time.perf_counter(), seeds or 20
        for number in range(start, start + count) if seed is None else [seed]:
            outcome = run_scenario(name, number, only=chosen, rows=rows, keep_trace=trace)
            failed += not outcome.ok
            if as_json:
                click.echo(json.dumps({"ok": outcome.ok, **asdict(outcome)}))
                continue
            if trace:
                click.echo("\n".join(outcome.last))
            if seed is not None and outcome.ok:
                click.echo(outcome.drawn)
            if seed is not None or not outcome.ok:
                click.echo(str(outcome))
            if shrink and not outcome.ok:
                _shrunk(outcome)
        if not as_json and seed is None:
            rate = count / (time.perf_counter() - began)
            click.echo(f"{name}: {count} seeds, {rate:.1f} a second, {failed} violations so far")
    sys.exit(1 if failed else 0)


def _cover(
    scenario: str | None, seed: int | None, seeds: int, start: int, every_event: bool, as_json: bool
) -> None:
    from medusa.sim.coverage_run import cover, report, summary, table

    if seed is not None:
        raise click.UsageError("--coverage is of many seeds: give --seeds, and --start, not --seed")
    failed: list[str] = []
    found = cover(
        seeds,
        start=start,
        scenarios=[scenario] if scenario else [],
        failed=lambda outcome: failed.append(f"{outcome.replay}: {outcome.violation}"),
    )
    if as_json:
        click.echo(json.dumps({**report(found), "violations": failed}))
    else:
        click.echo("\n".join([*(table if every_event else summary)(found), *failed]))
    sys.exit(1 if failed else 0)


def _check(
    scenario: str | None,
    seed: int | None,
    seeds: int | None,
    only: str | None,
    rows: int | None,
    trace: bool,
    scenarios: Collection[str],
) -> None:
    from medusa.query.suggest import did_you_mean

    if scenario is not None and scenario not in scenarios:
        raise click.BadParameter(f"{scenario!r}; {did_you_mean(scenario, scenarios)}", param_hint="SCENARIO")
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed is one seed, --seeds how many: give one of them")
    if seed is None and (only is not None or rows is not None or trace):
        raise click.UsageError("--only, --rows and --trace are for one seed: give --seed too")
    if seed is not None and scenario is None:
        raise click.UsageError("a seed is one of a scenario: give its name")


def _numbers(only: str | None) -> list[int] | None:
    if only is None:
        return None
    if only == "none":
        return []
    try:
        return [int(number) for number in only.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{only!r}; numbers with commas between, or none", param_hint="--only"
        ) from None


def _shrunk(outcome: Outcome) -> None:
    from medusa.sim.scenarios import smallest

    small = smallest(outcome)
    if small is outcome:
        click.echo("nothing of it can be left out")
        return
    click.echo(f"smaller, with the same violation ({len(small.faults)} of {len(outcome.faults)} faults):")
    click.echo(str(small))
