"""The picture of a run that scales: load and results, how late these are, nodes, and when what was done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medusa.apps.workloads.plots import new_figure, quietly, save, why_not_drawn
from medusa.apps.workloads.scaling.scale_acts import ScaleAct
from medusa.apps.workloads.scaling.scale_outcome import AIM_S, ScaleOutcome, ScaleSecond

__all__ = ["draw"]

OFFERED, CAME, LATE, LATEST = "#777", "#2b6cb0", "#1b7f4b", "#b7472a"
TICKS_MS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ACTS = {"split": "#b7472a", "move": "#8a5a00", "merge": "#1b7f4b"}


def draw(outcome: ScaleOutcome, path: Path) -> str:
    """Draw it.

    Returns:
        What became of it, in words.

    Raises:
        QueryError: it can't be written.
    """
    if why := why_not_drawn():
        return why
    with quietly():
        lines = max(len(outcome.acts), 1)
        figure = new_figure(path, (9, 7 + lines / 6))
        *axes, words = figure.subplots(4, 1, height_ratios=(3, 3, 2, lines / 5))
        seconds = outcome.by_second()
        _rates(axes[0], seconds)
        _lateness(axes[1], seconds)
        _nodes(axes[2], outcome)
        for axis in axes:
            _marks(axis, outcome.acts, numbers=axis is axes[0])
            axis.set(xlim=(0, outcome.seconds))
            axis.spines[["top", "right"]].set_visible(False)
        _words(words, outcome.acts)
        save(figure, path)
    return f"drawn: {path}"


def _marks(axis: Any, acts: Sequence[ScaleAct], *, numbers: bool) -> None:
    """A line for each act, and its number above."""
    for number, act in enumerate(acts, 1):
        axis.axvline(act.began_s, color=ACTS[act.kind], lw=0.8, ls="--" if act.done else ":")
        if numbers:
            above = (act.began_s, 1.02 + 0.08 * (number % 2))  # Else those close together cover each other.
            axis.annotate(
                str(number), above, xycoords=("data", "axes fraction"), color=ACTS[act.kind], ha="center"
            )


def _words(axis: Any, acts: Sequence[ScaleAct]) -> None:
    """What each number is."""
    axis.set_axis_off()
    why = ""
    for number, act in enumerate(acts, 1):
        said = f"{number}  at {act.began_s:.1f} s: {act.what}" + ("" if act.done else ": not done")
        said += f"  ({act.why})" if act.why != why else ""
        why = act.why
        place = (0, 1 - (number - 0.5) / len(acts))
        axis.text(*place, said, color=ACTS[act.kind], fontsize=8, va="center", transform=axis.transAxes)
    if not acts:
        axis.text(0, 0.5, "nothing was split, moved or merged", fontsize=8, transform=axis.transAxes)


def _rates(axis: Any, seconds: Sequence[ScaleSecond]) -> None:
    at_s = [each.second + 0.5 for each in seconds]
    axis.plot(at_s, [each.offered for each in seconds], color=OFFERED, label="cars that are due")
    axis.plot(at_s, [each.counted for each in seconds], color=CAME, lw=1, label="cars in results that came")
    axis.set(ylabel="a second", ylim=(0, None))
    axis.legend(frameon=False, loc="best")


def _lateness(axis: Any, seconds: Sequence[ScaleSecond]) -> None:
    known = [each for each in seconds if each.p50_s is not None and each.p99_s is not None]
    at_s = [each.second + 0.5 for each in known]
    axis.plot(at_s, [(each.p50_s or 0.0) * 1e3 for each in known], color=LATE, label="p50")
    axis.plot(at_s, [(each.p99_s or 0.0) * 1e3 for each in known], color=LATEST, label="p99")
    axis.axhline(AIM_S * 1e3, color="#bbb", lw=0.8, ls="--", label=f"{AIM_S * 1e3:.0f} ms")
    for each in seconds:
        if each.scales:
            axis.axvspan(each.second, each.second + 1, color="#f2e8d5", lw=0)
    lates = [each.p50_s * 1e3 for each in known if each.p50_s] or [AIM_S * 1e3]
    latest = [each.p99_s * 1e3 for each in known if each.p99_s] or [AIM_S * 1e3]
    axis.set(ylabel="ms late; shaded: it scales", yscale="log")
    axis.set_yticks(TICKS_MS, labels=[f"{each:,}" for each in TICKS_MS])
    axis.minorticks_off()
    axis.set_ylim(min(lates) / 1.5, max(*latest, AIM_S * 1e3) * 2)
    axis.legend(frameon=False, loc="best", ncols=3)


def _nodes(axis: Any, outcome: ScaleOutcome) -> None:
    at_s = [each.at_s for each in outcome.parts]
    parts = [sum(each.parts.values()) for each in outcome.parts]
    axis.step(at_s, parts, where="post", color=OFFERED, ls=":", label="parts")
    axis.step(at_s, [len(each.parts) for each in outcome.parts], where="post", color=CAME, label="nodes")
    axis.set(xlabel="seconds", ylabel="nodes with parts", ylim=(0, max(parts, default=1) + 1))
    axis.yaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False, loc="best", ncols=2)
