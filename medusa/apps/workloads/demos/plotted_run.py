"""How a demonstration that draws is run and shown: progress, report and plot, or one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.plots import check_kind

__all__ = ["DemoOutcome", "run_plotted"]


class DemoOutcome(Protocol):
    """What came of a demonstration."""

    @property
    def fine(self) -> bool:
        """Whether all is held that must be."""
        ...

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        ...


T = TypeVar("T", bound=DemoOutcome)


def run_plotted(
    run: Callable[[DemoScreen], T],
    *,
    show: Callable[[DemoScreen, T], None],
    draw: Callable[[T, Path], str],
    plot: Path,
    as_json: bool,
    drawn_as: str = "plot",
) -> bool:
    """Run a demonstration and show it on standard output.

    Args:
        draw: into the file, and says in words what became of it; in JSON that is ``drawn_as``.

    Returns:
        Whether the outcome is fine.

    Raises:
        MedusaError: it could not be carried out, or not drawn there.
    """
    from rich.console import Console

    check_kind(plot)
    screen = DemoScreen(None if as_json else Console())
    outcome = run(screen)
    drawn = draw(outcome, plot)
    if as_json:
        print(json.dumps({**outcome.to_json(), drawn_as: drawn}))
    else:
        show(screen, outcome)
        screen.say(drawn)
    return outcome.fine
