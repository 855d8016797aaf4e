"""Tables and plots of the experiments: ours beside what the authors logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.delay.experiments import Case, Experiment
from bench.recovery.sheet import good, markdown, preface, spread, troubles, values

__all__ = ["broken", "plot", "table"]

STABLE_COLOUR, TENTATIVE_COLOUR = "#2b6cb0", "#c2410c"

HEADS = (
    "failure",
    "policy",
    "latest new row before, s",
    "theirs",
    "first tentative",
    "theirs",
    "latest from then on",
    "theirs",
    "added, of X",
    "tentative rows",
    "corrections begin after, s",
    "theirs",
    "end after",
    "x rate",
    "latest afterwards",
    "theirs",
)


def table(experiment: Experiment, found: Mapping[str, Any]) -> str:
    """Markdown: a line for each case, then what had to be so of each."""
    lines = []
    for row in found["rows"]:
        if not good(row):
            continue
        case = case_of(experiment, row)
        lines.append(
            [
                row["case"],
                row["policy"],
                _figure(row, "calm_s"),
                case.logged.calm or "-",
                _figure(row, "first_tentative_s"),
                case.logged.first or "-",
                _figure(row, "latest_s"),
                case.logged.latest or "-",
                f"{_figure(row, 'added_s')} of {case.within_s:g}",
                spread(values(row, "tentative_rows")),
                _figure(row, "begun_s"),
                case.logged.begun or "-",
                _figure(row, "corrected_s"),
                _figure(row, "speed", 1),
                _figure(row, "after_s"),
                case.logged.after or "-",
            ]
        )
    how = sorted({made["cut"] for row in found["rows"] for made in good(row)})
    text = [
        f"{experiment.text}. A failure: {', '.join(HOW[each] for each in how) or 'none'}.",
        "",
        preface(found),
        "",
        *markdown(HEADS, lines),
        "",
        *_verdicts(found),
        *troubles(found),
    ]
    return "\n".join(text) + "\n"


HOW = {
    "stop": "the node of an input is stopped (SIGSTOP) and goes on (SIGCONT)",
    "namespaces": "the router between network namespaces drops all packets of the node of an input",
    "relays": "relays hold back all bytes to and from the node of an input",
}


def case_of(experiment: Experiment, row: Mapping[str, Any]) -> Case:
    wanted = {key: row[key] for key in ("case", "policy")}
    return next(each for each in (*experiment.cases, *experiment.quick) if each.setting == wanted)


def _figure(row: Mapping[str, Any], key: str, digits: int = 2) -> str:
    return spread(values(row, key), digits=digits)


def _verdicts(found: Mapping[str, Any]) -> list[str]:
    """Each check once, and of which runs it isn't so."""
    faults: dict[str, list[str]] = {}
    count: dict[str, int] = {}
    for row in found["rows"]:
        for made in good(row):
            for check in made["checks"]:
                count[check["what"]] = count.get(check["what"], 0) + 1
                faults.setdefault(check["what"], [])
                if check["fault"]:
                    faults[check["what"]].append(f"{row['case']}, {row['policy']}: {check['fault']}")
    return [
        f"- {what}: "
        + (f"**not held** ({'; '.join(of)})" if (of := faults[what]) else "held")
        + f", {count[what]} runs"
        for what in faults
    ]


def broken(found: Mapping[str, Any]) -> bool:
    """Something that had to be so isn't."""
    return bool(troubles(found)) or any(
        check["fault"] for row in found["rows"] for made in good(row) for check in made["checks"]
    )


# --- plots ----------------------------------------------------------------------------------------------


def plot(experiment: Experiment, found: Mapping[str, Any], path: Path) -> None:
    """Number against time, stable and tentative in two colours; of a sweep what the papers have instead."""
    rows = [row for row in found["rows"] if good(row)]
    if not rows:
        return
    if experiment.swept:
        _plot_sweep(experiment, rows, path)
    else:
        _plot_numbers(rows, path)


def _plot_numbers(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    plots = report.pyplot()
    figure, axes = plots.subplots(1, len(rows), figsize=(6.5 * len(rows), 4.2), squeeze=False)
    for axis, row in zip(axes[0], rows, strict=True):
        made = good(row)[0]
        for tentative, colour, label in (
            (True, TENTATIVE_COLOUR, "tentative"),
            (False, STABLE_COLOUR, "stable"),
        ):
            points = [each for curve in made["curves"].values() for each in curve if each[2] == tentative]
            axis.plot([each[0] for each in points], [each[1] for each in points], ".", ms=3, color=colour)
            axis.plot([], [], "o", color=colour, label=label)
        for node, begin_s, end_s in made["outages"]:
            axis.axvspan(begin_s, end_s, color="#999", alpha=0.15, lw=0)
            axis.annotate(node, (begin_s, 0), ha="left", va="bottom", fontsize=8)
        axis.set(xlabel="seconds; grey: a failure", ylabel="number of the row", ylim=(0, None))
        axis.set_title(f"{row['case']}, {row['policy']}", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def _plot_sweep(experiment: Experiment, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    plots = report.pyplot()
    figure, (left, right) = plots.subplots(1, 2, figsize=(12, 4.2))
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = [row for row in rows if row["policy"] == policy]
        lengths = [good(row)[0]["backlog_s"] for row in mine]
        left.plot(lengths, [max(values(row, "latest_s")) for row in mine], ".-", label=policy, lw=1)
        right.plot(lengths, [max(values(row, "tentative_rows")) for row in mine], ".-", lw=1)
    within_s = case_of(experiment, rows[0]).within_s
    left.axhline(within_s, color="#777", lw=0.8, ls="--")
    left.annotate("X", (1, within_s), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    left.set(xlabel="failure, s", ylabel="latest new row, s", ylim=(0, None))
    right.set(xlabel="failure, s", ylabel="tentative rows", ylim=(0, None))
    left.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)
