"""The demonstration as one HTML file that needs nothing else."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.netmon_outcome import NetmonOutcome
from medusa.apps.workloads.demos.netmon_screen import clock
from medusa.apps.workloads.netmon import CITATION
from medusa.apps.workloads.netmon_check import COLUMNS
from medusa.apps.workloads.plots import quietly

if TYPE_CHECKING:
    from medusa.query import Query

__all__ = ["html_report"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 64rem }
body { margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
td, th { padding: .15rem .8rem; text-align: right } tr:nth-child(even) { background: #f4f4f4 }
td:first-child, th:first-child, td:nth-child(2) { text-align: left }
th { border-bottom: 1px solid #888 } figure { margin: 1rem 0; overflow-x: auto } figcaption { color: #555 }
.good { color: #176d2c } .bad { color: #a11212 } svg { max-width: 100%; height: auto }
"""

ROWS_MAX = 60


def html_report(outcome: NetmonOutcome, query: Query) -> str:
    """A page: verdict, figures, the drawn query, plots, tables."""
    figures = outcome.figures()
    verdict = '<b class="good">equal</b>' if outcome.equal else '<b class="bad">not equal</b>'
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Medusa: network monitoring</title>",
        f"<style>{STYLE}</style>",
        "<h1>Network monitoring over three nodes</h1>",
        f"<p>{outcome.flows:,} flows ({outcome.span_us / 60e6:.1f} minutes) in {outcome.seconds:.2f} s: "
        f"{outcome.flows_per_s:,.0f} flows/s. Two edge nodes each saw every second flow, delayed by up to "
        f"2 s (seed {outcome.seed}), and sent partial counts and sets of ports; the third merged them and "
        f"decided. {outcome.late} flows were late.</p>",
        f"<p>Beside an independent computation by {escape(outcome.checked_by)}: {verdict}.</p>",
        _table(
            ["what", "how many"], [[name.replace("_", " "), f"{value:,}"] for name, value in figures.items()]
        ),
        "<h2>The query</h2>",
        f"<figure>{_svg_only(query.diagram()._repr_svg_())}</figure>",
        "<h2>Plots</h2>",
        _plots(outcome),
        *(_result(name, outcome) for name in ("both", "clusters", "heavy", "wide")),
        "<h2>The check, row by row</h2>",
        _table(
            ["result", "rows", "expected", "missing", "too many", "verdict"],
            [
                [
                    c.name,
                    f"{c.rows:,}",
                    f"{c.expected:,}",
                    c.missing,
                    c.extra,
                    "equal" if c.equal else "not equal",
                ]
                for c in outcome.comparisons
            ],
        ),
        f"<p>Data: {escape(CITATION)}.</p></html>",
    ]
    return "\n".join(parts)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _result(name: str, outcome: NetmonOutcome) -> str:
    rows = outcome.rows[name]
    cells = [[clock(row[0]), row[1], *(f"{value:,}" for value in row[2:])] for row in rows[:ROWS_MAX]]
    shown = f", the first {ROWS_MAX}" if len(rows) > ROWS_MAX else ""
    return f"<h2>{name}: {len(rows)} rows{shown}</h2>{_table(COLUMNS[name], cells)}"


def _plots(outcome: NetmonOutcome) -> str:
    if importlib.util.find_spec("matplotlib") is None:
        return "<p>Plots are drawn by matplotlib: <code>pip install 'medusa-streams[plot]'</code>.</p>"
    drawings: list[tuple[str, Callable[[Any, NetmonOutcome], None]]] = [
        (
            "Each source in each window; those right of and above the lines are heavy and wide.",
            _scatter,
        ),
        ("From the row that lets a window close to all its results.", _latencies),
        ("Rows that came into each node.", _rows),
        ("Bytes waiting in each node.", _queues),
    ]
    with quietly():
        return "\n".join(
            f"<figure>{_draw(draw, outcome)}<figcaption>{text}</figcaption></figure>"
            for text, draw in drawings
        )


def _draw(draw: Callable[[Any, NetmonOutcome], None], outcome: NetmonOutcome) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "medusa", "font.size": 9}):
        figure = Figure(figsize=(7.5, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        axis = figure.subplots()
        axis.spines[["top", "right"]].set_visible(False)
        draw(axis, outcome)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _svg_only(text.getvalue())


def _svg_only(text: str) -> str:
    """Without the XML prologue, which HTML doesn't take."""
    return text[text.index("<svg") :]


def _scatter(axis: Any, outcome: NetmonOutcome) -> None:
    for bot, colour, label in ((False, "#9aa5b1", "other sources"), (True, "#c0392b", "labelled as bots")):
        rows = [row for row in outcome.rows["groups"] if (row[1] in outcome.bots) is bot]
        if rows:
            axis.scatter(
                [r[2] for r in rows],
                [max(r[3], 0.7) for r in rows],
                s=8,
                c=colour,
                label=label,
                rasterized=not bot,
            )
    axis.axvline(100, color="#444", lw=0.8)
    axis.axhline(10, color="#444", lw=0.8)
    axis.set(xscale="log", yscale="log", xlabel="flows in the window (n)", ylabel="distinct ports (p)")
    axis.legend(frameon=False)


def _latencies(axis: Any, outcome: NetmonOutcome) -> None:
    first = min((latency.window_us for latency in outcome.latencies), default=0)
    for sink in dict.fromkeys(latency.sink for latency in outcome.latencies):
        mine = [latency for latency in outcome.latencies if latency.sink == sink]
        minutes = [(latency.window_us - first) / 60e6 for latency in mine]
        axis.plot(minutes, [latency.latency_us / 1e3 for latency in mine], "o-", ms=3, lw=0.8, label=sink)
    axis.set(xlabel="window (minutes of the trace)", ylabel="ms", ylim=(0, None))
    axis.legend(frameon=False, ncols=5)


def _rows(axis: Any, outcome: NetmonOutcome) -> None:
    _per_node(axis, outcome, lambda sample: sample.rows, "rows")


def _queues(axis: Any, outcome: NetmonOutcome) -> None:
    _per_node(axis, outcome, lambda sample: sample.queue_bytes / 1024, "KiB")


def _per_node(axis: Any, outcome: NetmonOutcome, value: Callable[[Any], float], unit: str) -> None:
    for node in dict.fromkeys(sample.node for sample in outcome.samples):
        mine = [sample for sample in outcome.samples if sample.node == node]
        axis.plot([sample.at_s for sample in mine], [value(sample) for sample in mine], lw=1.2, label=node)
    axis.set(xlabel="seconds", ylabel=unit, ylim=(0, None))
    axis.legend(frameon=False)
