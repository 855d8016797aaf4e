"""Medians of runs, curves through them, and the page of one experiment: what its tables and plots share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.recovery.sheet import good, markdown, preface, troubles, values
from bench.seep.published import Claim, Sketch, draw_sketch, lines_of

__all__ = ["Row", "curve", "drawn", "middle", "page", "pick", "rises"]

Row = Mapping[str, Any]


def pick(found: Mapping[str, Any], **wanted: Any) -> list[Row]:
    """Rows that have figures and these settings."""
    return [
        row
        for row in found["rows"]
        if good(row) and all(row.get(key) == value for key, value in wanted.items())
    ]


def middle(rows: Sequence[Row], key: str) -> float | None:
    """The median over all runs of these rows; None: none knows it."""
    known = [each for row in rows for each in values(row, key)]
    return float(np.median(known)) if known else None


def rises(low: float | None, high: float | None) -> bool | None:
    """Whether the second is larger; None: one isn't known."""
    return None if low is None or high is None else high > low


def page(
    found: Mapping[str, Any],
    text: str,
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    claims: Sequence[Claim],
) -> str:
    """Markdown: what was asked, a line for each setting, what the authors say, what wasn't held."""
    parts = [text, "", preface(found), "", *markdown(heads, lines), *lines_of(claims), *troubles(found)]
    return "\n".join(parts) + "\n"


def curve(
    axis: Any,
    rows: Sequence[Row],
    across: Callable[[Row], float],
    key: str,
    label: str,
    *,
    factor: float = 1.0,
    **style: Any,
) -> None:
    """Medians over what is across, with the smallest and the largest of the runs."""
    points = sorted((across(row), np.array(values(row, key)) * factor) for row in rows if values(row, key))
    if not points:
        return
    xs = [x for x, _ in points]
    mids = [float(np.median(each)) for _, each in points]
    low = [mid - float(each.min()) for mid, (_, each) in zip(mids, points, strict=True)]
    high = [float(each.max()) - mid for mid, (_, each) in zip(mids, points, strict=True)]
    axis.errorbar(xs, mids, yerr=[low, high], marker="o", ms=4, capsize=2, lw=1.2, label=label, **style)


def drawn(path: Path, panels: Sequence[Callable[[Any], None]], sketches: Sequence[Sketch]) -> None:
    """Ours, and beside them the published shapes."""
    plots = report.pyplot()
    count = len(panels) + len(sketches)
    figure, axes = plots.subplots(1, count, figsize=(4.4 * count, 3.9), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=False):
        panel(axis)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False, fontsize=8)
    for axis, sketch in zip(axes[0][len(panels) :], sketches, strict=True):
        draw_sketch(axis, sketch)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
