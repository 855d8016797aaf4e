"""``python -m bench.seep NAME``: one experiment by its name, its figures, its table and its plot."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.recovery.command import Command, Plan, parser_of
from bench.recovery.sheet import Sheet, troubles
from bench.seep import allocation, overhead, parallel, recovery, threshold
from medusa.errors import MedusaError
from medusa.units import duration_us

__all__ = ["EXPERIMENTS", "Experiment", "main"]

EXAMPLES = """examples:
  python -m bench.seep recovery --quick
  python -m bench.seep recovery --rates 100,1000 --intervals 5s,30s --rounds 1 --budget 20min
  python -m bench.seep parallel --keys 1000000 --intervals 1s --rounds 20
  python -m bench.seep threshold --docs
"""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What one name stands for.

    Attributes:
        plan: what the command line asks of it; raises ValueError or MedusaError where that can't be.
        takes: of the options that not all take.
    """

    name: str
    text: str
    plan: Callable[[argparse.Namespace], Plan]
    table: Callable[[dict[str, Any]], str]
    plot: Callable[..., None]
    takes: Sequence[str]

    @property
    def command(self) -> Command:
        """Its files are ``seep-NAME.json``, ``.md`` and ``.svg``."""
        return Command(f"seep-{self.name}", self.table, self.plot)


EXPERIMENTS: Mapping[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            recovery.NAME,
            recovery.TEXT,
            partial(recovery.plan, of_words=False),
            recovery.table,
            recovery.plot,
            ("rates", "intervals", "schemes"),
        ),
        Experiment(
            recovery.WORDCOUNT,
            recovery.WORDCOUNT_TEXT,
            partial(recovery.plan, of_words=True),
            partial(recovery.table, text=recovery.WORDCOUNT_TEXT),
            recovery.plot,
            ("rates", "intervals", "schemes"),
        ),
        Experiment(
            parallel.NAME,
            parallel.TEXT,
            parallel.plan,
            parallel.table,
            parallel.plot,
            ("rates", "intervals", "keys"),
        ),
        Experiment(
            overhead.NAME,
            overhead.TEXT,
            overhead.plan,
            overhead.table,
            overhead.plot,
            ("rates", "intervals", "keys"),
        ),
        Experiment(
            threshold.NAME,
            threshold.TEXT,
            threshold.plan,
            threshold.table,
            threshold.plot,
            ("thresholds", "seconds"),
        ),
        Experiment(
            allocation.NAME,
            allocation.TEXT,
            allocation.plan,
            allocation.table,
            allocation.plot,
            ("thresholds", "seconds"),
        ),
    )
}


def parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {each.name:12} {each.text}" for each in EXPERIMENTS.values())
    made = parser_of("The experiments of SEEP (SIGMOD 2013), over real processes; docs/recovery.md.")
    made.prog = "python -m bench.seep"
    made.epilog = f"experiments:\n{names}\n\n{EXAMPLES}"
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("name", metavar="NAME", help="which experiment; below", choices=[*EXPERIMENTS])
    made.add_argument("--rounds", type=int, help="runs of each setting")
    made.add_argument("--rates", help="published rows a second, by commas (of parallel and overhead: one)")
    made.add_argument("--intervals", help="of checkpoints, by commas: 1s,5s; the first comes first")
    made.add_argument(
        "--schemes", help="state_backup,upstream_backup,source_replay: of recovery and wordcount"
    )
    made.add_argument("--keys", help="of parallel and overhead: sizes of the state, by commas")
    made.add_argument("--thresholds", help="of threshold and allocation: percent, by commas")
    made.add_argument("--seconds", type=float, help="of threshold and allocation: of the load")
    return made


NARROWED = ("rates", "intervals", "schemes", "keys", "thresholds", "seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where a row wasn't right; what can't be asked ends with 2."""
    made = parser()
    options = made.parse_args(arguments)
    experiment = EXPERIMENTS[options.name]
    command = experiment.command
    if options.docs:
        return command.show(options.out)
    try:
        for each in NARROWED:
            if getattr(options, each) is not None and each not in experiment.takes:
                raise ValueError(f"{experiment.name} takes no --{each}")
        asked, measure = experiment.plan(options)
        budget_s = None if options.budget is None else duration_us(options.budget, what="--budget") / 1e6
        sheet = Sheet(command.name, options.out, asked, resume=options.resume, budget_s=budget_s)
    except (ValueError, MedusaError) as error:
        made.error(str(error))
    found = measure(sheet)
    sys.stdout.write(command.write(found, options.out))
    return 1 if troubles(found) else 0
