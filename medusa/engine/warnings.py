"""Warnings, with the place in the user's code that called us."""

from __future__ import annotations

import sys
import warnings

from medusa.engine.core.dead_letters import DeadRow
from medusa.engine.operators.source import SourceBox
from medusa.errors import DeadRowWarning, LateWarning
from medusa.units import duration_text

__all__ = ["warn_dead", "warn_late", "warn_user"]

_PACKAGE = __file__.rpartition("engine")[0]


def warn_late(source: SourceBox) -> None:
    """The first late row of a source."""
    late, slack = duration_text(source.worst_late_us), duration_text(source.slack_that_keeps_us())
    text = (
        f"source {source.id!r}: a row came {late} too late for its windows and joins;"
        f" slack={slack!r} would have kept it (stats() counts all such rows, .late has them)"
    )
    warn_user(LateWarning(text, source=source.id, slack=slack), LateWarning)


def warn_dead(dead: DeadRow) -> None:
    """The first row on which an expression failed."""
    warn_user(
        f"box {dead.box!r}: a row failed and was left out: {dead.error}"
        " (stats() counts all such rows, dead() has the first of each box)",
        DeadRowWarning,
    )


def warn_user(text: str | Warning, category: type[Warning]) -> None:
    """Warn at the innermost caller outside of this package."""
    depth, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, category, stacklevel=depth)
