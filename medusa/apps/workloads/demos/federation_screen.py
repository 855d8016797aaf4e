"""The end of the run over two owners: tables in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.apps.workloads.demos.federation_outcome import LookUps, Outcome
from medusa.apps.workloads.screens import table_of
from medusa.units import size_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_outcome"]


def show_outcome(console: Console, outcome: Outcome) -> None:
    """What was done, what the subscriber noticed, and whether all is as it should be."""

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    columns = ("while rows flow", "took", "gap p50", "longest", "stopped", "sent")
    steps = table_of(*columns, title="what the subscriber noticed")
    for step in outcome.steps:
        stopped = "-" if step.stopped_us is None else _ms(step.stopped_us)
        sent = "-" if step.sent_bytes is None else size_text(step.sent_bytes)
        steps.add_row(
            step.what, f"{step.seconds:.2f} s", _ms(step.p50_us), _ms(step.longest_us), stopped, sent
        )
    console.print(steps)
    say("gap: between the results of two windows, at the subscriber; stopped: by the clock of the node")
    names = ("after", "asked at", "truth", "right", "none", "older", "wrong", "in")
    lookups = table_of(*names, title="nodes of bob are asked where alice's result is")
    lookups.columns[1].justify = "left"
    for each in outcome.lookups:
        counts = (str(count) for count in (each.right, each.nothing, each.older, each.wrong))
        lookups.add_row(each.after, ", ".join(each.asked), each.truth, *counts, _when(each))
    console.print(lookups)
    compared = outcome.comparison
    rows = f"{compared.rows:,} results, {outcome.lost_rows} lost"
    say(f"{outcome.cars:,} cars in {outcome.seconds:.1f} s: {rows}")
    say(f"a box that bob doesn't offer: {outcome.refused or 'NOT REFUSED'}")
    verdict = "equal, row by row and bit for bit" if compared.equal else f"not equal: {compared.example}"
    say(f"beside the query in one process, {compared.expected:,} rows: {verdict}")


def _when(each: LookUps) -> str:
    return "never" if each.seconds is None else f"{each.seconds:.2f} s"


def _ms(us: int) -> str:
    return f"{us / 1e3:,.0f} ms"
