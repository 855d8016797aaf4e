"""Runs by setting, on disk as soon as they are made: what was stopped goes on, and time is bounded."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine, report
from medusa.errors import MedusaError

__all__ = ["Sheet", "good", "markdown", "milliseconds", "preface", "spread", "troubles", "values"]

Setting = Mapping[str, Any]
"""What was asked of a run: names and plain values, for JSON."""


class Sheet:
    """The figures of one benchmark, in ``NAME.json``.

    Args:
        asked: what holds for all runs. A file of other runs, or of another commit, isn't gone on with.
        resume: go on with what the file has.
        budget_s: no run begins that would end later, by what runs took so far; None: all are made.

    Raises:
        ValueError: the file can't be gone on with.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        asked: Mapping[str, Any],
        *,
        resume: bool = False,
        budget_s: float | None = None,
    ) -> None:
        self._path = folder / f"{name}.json"
        self._budget_s = budget_s
        self._begun = time.monotonic()
        self._took: list[float] = []
        self.found: dict[str, Any] = {
            **machine.describe(),
            "asked": json.loads(json.dumps(asked)),
            "rows": [],
            "stopped": "",
        }
        if resume and self._path.exists():
            self._go_on(json.loads(self._path.read_text()))

    def _go_on(self, before: dict[str, Any]) -> None:
        for what in ("commit", "asked"):
            if before.get(what) != self.found[what]:
                shown = f"{before.get(what)}, and this would be of {self.found[what]}"
                raise ValueError(f"--resume: {self._path} is of {what} {shown}: begin anew without --resume")
        self.found = {**before, "stopped": ""}

    def run(
        self,
        settings: Sequence[Setting],
        rounds: int,
        do: Callable[[Setting], dict[str, Any]],
        told: Callable[[dict[str, Any]], str],
    ) -> dict[str, Any]:
        """Make each of the settings so often, in turns; all that was found.

        A run that breaks a promise has ``trouble`` instead of figures, and the others go on.

        Args:
            told: a run's figures in few words, for who watches.
        """
        rows = [self._row(each) for each in settings]
        left = [(n, row) for n in range(rounds) for row in rows if len(row["runs"]) <= n]
        try:
            for done, (number, row) in enumerate(left):
                if (why := self._over()) is not None:
                    self.found["stopped"] = f"{why}: {len(left) - done} of {len(left)} runs weren't made"
                    break
                self._one(row, do, told, f"[{done + 1}/{len(left)}] round {number + 1}")
        except KeyboardInterrupt:
            self.found["stopped"] = "an interruption"
        self.found["load"] = os.getloadavg()[2]
        self._save()
        return self.found

    def _row(self, setting: Setting) -> dict[str, Any]:
        plain = json.loads(json.dumps(setting))
        for row in self.found["rows"]:
            if {**row, "runs": None} == {**plain, "runs": None}:
                return row  # type: ignore[no-any-return]
        self.found["rows"].append({**plain, "runs": []})
        return self.found["rows"][-1]  # type: ignore[no-any-return]

    def _over(self) -> str | None:
        """Why no further run begins; None: it does."""
        if self._budget_s is None:
            return None
        spent_s = time.monotonic() - self._begun
        usual_s = float(np.mean(self._took)) if self._took else 0.0
        return f"the budget of {self._budget_s:.0f} s" if spent_s + usual_s > self._budget_s else None

    def _one(
        self,
        row: dict[str, Any],
        do: Callable[[Setting], dict[str, Any]],
        told: Callable[[dict[str, Any]], str],
        where: str,
    ) -> None:
        setting = {key: value for key, value in row.items() if key != "runs"}
        begun = time.monotonic()
        try:
            made = do(setting)
            words = told(made)
        except (AssertionError, MedusaError) as error:
            made = {"trouble": str(error) or type(error).__name__}
            words = f"NOT HELD: {made['trouble']}"
        self._took.append(time.monotonic() - begun)
        row["runs"].append(made)
        self._save()
        spent_s = time.monotonic() - self._begun
        bound = "" if self._budget_s is None else f" of {self._budget_s:.0f}"
        print(f"{where}, {words_of(row)}: {words} ({spent_s:.0f}{bound} s)", file=sys.stderr, flush=True)

    def _save(self) -> None:
        """Whole or not at all: a run may be stopped here too."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".json.new")
        fresh.write_text(json.dumps(self.found, indent=1) + "\n")
        fresh.replace(self._path)


# --- what a table shows of it ---------------------------------------------------------------------------


def words_of(row: Mapping[str, Any]) -> str:
    """What was asked of it."""
    return ", ".join(f"{key} {value}" for key, value in row.items() if key != "runs" and value is not None)


def good(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of a row that have figures."""
    return [each for each in row["runs"] if "trouble" not in each]


def values(row: Mapping[str, Any], key: str) -> list[float]:
    """Of its runs that know it."""
    return [each[key] for each in good(row) if each.get(key) is not None]


def spread(found: Sequence[float], factor: float = 1.0, digits: int = 0) -> str:
    """Median, and smallest to largest where they differ as shown."""
    if not found:
        return "-"
    low, middle, high = (f"{each * factor:,.{digits}f}" for each in np.percentile(found, [0, 50, 100]))
    return middle if low == high else f"{middle} ({low} to {high})"


def milliseconds(row: Mapping[str, Any], key: str) -> str:
    return spread(values(row, key), 1e3)


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
        *(f"| {' | '.join(line)} |" for line in lines),
    ]


def preface(found: Mapping[str, Any]) -> str:
    """On what, when, and how much of it."""
    runs = [len(row["runs"]) for row in found["rows"] if row["runs"]] or [0]
    many = f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"
    stopped = f" Stopped by {found['stopped']}." if found["stopped"] else ""
    asked = ", ".join(f"{key} {value}" for key, value in found["asked"].items())
    return (
        f"{report.machine_line(found)} Load while it ran: {found['load']:.1f}. {asked}; runs of each line: "
        f"{many}; medians, in brackets the smallest to the largest.{stopped}"
    )


def troubles(found: Mapping[str, Any]) -> list[str]:
    """Lines about runs that have no figures: what was promised wasn't kept."""
    lines = []
    for row in found["rows"]:
        what = words_of(row)
        lines += [f"- not held ({what}): {each['trouble']}" for each in row["runs"] if "trouble" in each]
    return ["", *lines] if lines else []
