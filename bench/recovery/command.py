"""What the commands of this folder share: their options, their runs, and the table and plot beside them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from bench.moves import RESULTS
from bench.recovery.sheet import Sheet, troubles
from medusa.errors import MedusaError
from medusa.units import duration_us

__all__ = ["Command", "Plan", "numbers_of", "parser_of"]

Plan = tuple[Mapping[str, Any], Callable[[Sheet], dict[str, Any]]]
"""What holds for all runs, and what makes them: it gives all that was found."""


@dataclass(frozen=True, slots=True)
class Command:
    """One of the benchmarks.

    Attributes:
        name: of its files: ``NAME.json`` has the figures, ``NAME.md`` the table, ``NAME.svg`` the plot.
        table: Markdown of what was found.
        plot: draws what was found into a file.
    """

    name: str
    table: Callable[[dict[str, Any]], str]
    plot: Callable[[dict[str, Any], Path], None]

    def main(self, parser: argparse.ArgumentParser, plan: Callable[[argparse.Namespace], Plan]) -> NoReturn:
        """Run it as the command line says. The exit code is 1 where a promise wasn't kept.

        Args:
            parser: what ``parser_of`` gave, with the options of this command.
            plan: what they ask for; raises ValueError where that can't be.
        """
        options = parser.parse_args()
        if options.docs:
            sys.exit(self.show(options.out))
        try:
            asked, measure = plan(options)
            budget_s = None if options.budget is None else duration_us(options.budget, what="--budget") / 1e6
            sheet = Sheet(self.name, options.out, asked, resume=options.resume, budget_s=budget_s)
        except (ValueError, MedusaError) as error:
            parser.error(str(error))
        found = measure(sheet)
        sys.stdout.write(self.write(found, options.out))
        sys.exit(1 if troubles(found) else 0)

    def show(self, folder: Path) -> int:
        """Print what a folder has of it, and draw it; the exit code."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            print(f"{path} isn't there: run it without --docs first", file=sys.stderr)
            return 2
        found = json.loads(path.read_text())
        sys.stdout.write(self.write(found, folder))
        return 1 if troubles(found) else 0

    def write(self, found: dict[str, Any], folder: Path) -> str:
        """Table and plot beside the figures; the table."""
        text = self.table(found)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(text)
        self.plot(found, folder / f"{self.name}.svg")
        return text


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """What all these commands take."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small: does it work, no figures to keep")
    parser.add_argument(
        "--budget", help="10min: no run begins that would end later; the most telling come first"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what --out has of this commit")
    parser.add_argument("--docs", action="store_true", help="run nothing; print the table of what --out has")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for figures, table and plot")
    return parser


def numbers_of(text: str | None) -> tuple[int, ...]:
    """Of an option that takes some, by commas; none where it isn't given.

    Raises:
        ValueError: something else is there.
    """
    given = [each for each in (text or "").split(",") if each]
    if wrong := [each for each in given if not each.strip().isdecimal()]:
        raise ValueError(f"{wrong[0]!r} is no number")
    return tuple(map(int, given))
