"""``python -m bench.delay``: experiments by name, their figures, tables and plots."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.delay import baseline, costs, cuts, experiments, shown
from bench.delay.experiments import EXPERIMENTS, FEWER_S, Case, Experiment
from bench.delay.policies import policies_of
from bench.delay.rig import CUTS
from bench.moves import RESULTS
from bench.recovery.sheet import Sheet
from medusa.errors import MedusaError
from medusa.units import duration_us

__all__ = ["NAMES", "Bench", "benches", "main"]


@dataclass(frozen=True, slots=True)
class Bench:
    """Something that can be asked for by name.

    Attributes:
        asked: what holds for all of its runs.
        measure: makes them; all that was found.
    """

    name: str
    text: str
    asked: Mapping[str, Any]
    measure: Callable[[Sheet], dict[str, Any]]
    table: Callable[[Mapping[str, Any]], str]
    plot: Callable[[Mapping[str, Any], Path], None]
    broken: Callable[[Mapping[str, Any]], bool] = shown.broken

    @property
    def file(self) -> str:
        return f"delay-{self.name}"

    def write(self, found: Mapping[str, Any], folder: Path) -> str:
        """Table and plot beside the figures; the table."""
        text = self.table(found)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.file}.md").write_text(text)
        self.plot(found, folder / f"{self.file}.svg")
        return text


NAMES = (*EXPERIMENTS, cuts.NAME, costs.NAME, baseline.NAME)


def benches(options: argparse.Namespace) -> list[Bench]:
    """What the command line asks for, in its order.

    Raises:
        ValueError: that can't be.
    """
    named = options.experiments or list(NAMES)
    if unknown := [each for each in named if each not in NAMES]:
        raise ValueError(f"there is no experiment {unknown[0]!r}: they are {', '.join(NAMES)}")
    made = []
    for name in named:
        if name == cuts.NAME:
            made.append(_of_cuts(options))
        elif name == costs.NAME:
            made.append(_of_costs(options))
        elif name == baseline.NAME:
            made.append(_of_baseline(options))
        else:
            made.append(_of_experiment(EXPERIMENTS[name], options))
    return made


def _of_experiment(experiment: Experiment, options: argparse.Namespace) -> Bench:
    cases = list(experiment.quick if options.quick else experiment.cases)
    if experiment.swept and not options.quick and not options.long:
        cases = [each for each in cases if each.failures[-1].end_s in FEWER_S or each.none]
    if options.policies is not None:
        policies = policies_of(options.policies)
        kept = [each for each in cases if each.policy in policies]
        if not kept:
            raise ValueError(f"--policies: {experiment.name} has none of {options.policies}")
        cases = kept

    def measure(sheet: Sheet) -> dict[str, Any]:
        by_setting = {json.dumps(each.setting): each for each in cases}

        def do(setting: Mapping[str, Any]) -> dict[str, Any]:
            wanted = {"case": setting["case"], "policy": setting["policy"]}
            return experiments.run(by_setting[json.dumps(wanted)], options.cut)

        return sheet.run([each.setting for each in cases], options.rounds, do, told)

    shown_by = replace(experiment, cases=cases, quick=())
    return Bench(
        experiment.name,
        experiment.text,
        asked_of(cases, options),
        measure,
        lambda found: shown.table(shown_by, found),
        lambda found, path: shown.plot(shown_by, found, path),
    )


def asked_of(cases: Sequence[Case], options: argparse.Namespace) -> dict[str, Any]:
    """What holds for all runs of an experiment."""
    shape = cases[0].shape
    return {
        "X": shape.within,
        "rows/s": len(shape.at) * shape.rate,
        "bucket": f"{shape.bucket_ms} ms",
        "trains": f"{shape.tick_ms} ms",
        "cut": options.cut,
    }


def _of_cuts(options: argparse.Namespace) -> Bench:
    sizes = cuts.QUICK if options.quick else cuts.FULL if options.long else cuts.SHORT
    return Bench(
        cuts.NAME,
        cuts.TEXT,
        cuts.asked_of(sizes, options.cut),
        lambda sheet: cuts.measure(sizes, options.cut, sheet),
        cuts.table,
        cuts.plot,
    )


def _of_costs(options: argparse.Namespace) -> Bench:
    sizes = costs.QUICK if options.quick else costs.FULL if options.long else costs.SHORT
    return Bench(
        costs.NAME,
        costs.TEXT,
        costs.asked_of(sizes),
        lambda sheet: costs.measure(sizes, sheet),
        costs.table,
        costs.plot,
        costs.broken,
    )


def _of_baseline(options: argparse.Namespace) -> Bench:
    sizes = baseline.QUICK if options.quick else baseline.FULL
    return Bench(
        baseline.NAME,
        baseline.TEXT,
        baseline.asked_of(sizes),
        lambda sheet: baseline.measure(sizes, sheet),
        baseline.table,
        baseline.plot,
    )


def told(made: Mapping[str, Any]) -> str:
    """A run, for who watches."""
    faults = [check["fault"] for check in made["checks"] if check["fault"]]
    verdict = f"NOT HELD: {'; '.join(faults)}" if faults else "all held"
    return f"latest new row {made['latest_s']:.2f} s, {made['tentative_rows']:,} tentative rows; {verdict}"


def parser() -> argparse.ArgumentParser:
    what = "\n".join(
        [
            *(f"  {each.name:14} {each.text}" for each in EXPERIMENTS.values()),
            f"  {cuts.NAME:14} {cuts.TEXT}",
            f"  {costs.NAME:14} {costs.TEXT}",
            f"  {baseline.NAME:14} {baseline.TEXT}",
        ]
    )
    made = argparse.ArgumentParser(
        prog="python -m bench.delay",
        description="The experiments on delay, process and correct, over real processes; docs/dpc.md.",
        epilog=f"experiments:\n{what}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="all, if none is named")
    made.add_argument("--quick", action="store_true", help="small: does it work, no figures to keep")
    made.add_argument("--long", action="store_true", help="all lengths of the sweeps, and all cuts")
    made.add_argument("--rounds", type=int, default=1, help="runs of each case (%(default)s)")
    made.add_argument("--policies", help="of the sweep and the chain: 'process&process,delay&delay,...'")
    made.add_argument(
        "--cut",
        choices=CUTS,
        default="stop",
        help="how a node fails: stopped (SIGSTOP), cut off by a router between network namespaces (root), "
        "or by relays below its connections (%(default)s)",
    )
    made.add_argument("--budget", help="15min: no run begins that would end later")
    made.add_argument("--resume", action="store_true", help="go on with what --out has of this commit")
    made.add_argument("--docs", action="store_true", help="run nothing; print the tables of what --out has")
    made.add_argument("--out", type=Path, default=RESULTS, help="folder for figures, tables and plots")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where something isn't held, 2 where what is asked for can't be."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        asked = benches(options)
        budget_s = None if options.budget is None else duration_us(options.budget, what="--budget") / 1e6
    except (ValueError, MedusaError) as error:
        made.error(str(error))
    begun = time.monotonic()
    fine = True
    for bench in asked:
        if options.docs:
            path = options.out / f"{bench.file}.json"
            if not path.exists():
                print(f"{path} isn't there: run it without --docs first", file=sys.stderr)
                return 2
            found = json.loads(path.read_text())
        else:
            left_s = None if budget_s is None else max(0.0, budget_s - (time.monotonic() - begun))
            try:
                sheet = Sheet(bench.file, options.out, bench.asked, resume=options.resume, budget_s=left_s)
            except ValueError as error:
                made.error(str(error))
            found = bench.measure(sheet)
        sys.stdout.write(f"## {bench.name}\n\n{bench.write(found, options.out)}\n")
        sys.stdout.flush()
        fine &= not bench.broken(found)
    return 0 if fine else 1
