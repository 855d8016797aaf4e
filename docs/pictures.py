"""The pictures of the guide, drawn from what its examples gave: docs/pictures/*.svg.

Usage: python docs/pictures.py    (``make test`` fails when a file isn't what this draws)
"""

from __future__ import annotations

import contextlib
import datetime
import html
import io
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
WIDTH, LEFT, LINE = 720, 96, 26
COLOURS = ("#1769aa", "#b3541e", "#2e7d32", "#7b3fa0")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Dot = tuple[float, str, int]
Bar = tuple[float, float, str, int]


def run_page(page: str) -> dict[str, Any]:
    """What the examples of a page define."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for number, block in enumerate(FENCE.findall((DOCS / page).read_text(encoding="utf-8"))):
            exec(compile(block, f"{page}, example {number}", "exec"), names)
    return names


class Drawing:
    """Lanes below each other on one axis: dots, bars, and lines between dots."""

    def __init__(self, low: float, high: float, unit: str, step: float) -> None:
        self.low, self.high = low, high
        self.parts: list[str] = []
        self.y = 18.0
        self.ticks = (unit, step)
        self.where: dict[tuple[str, float], tuple[float, float]] = {}

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(LEFT + share * (WIDTH - LEFT - 20), 1)

    def text(self, x: float, y: float, text: str, anchor: str = "middle", colour: str = "#1b1f24") -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
        )

    def lane(self, label: str, dots: Sequence[Dot], *, below: bool = False) -> None:
        """Dots with a text above (or below) each: (place, text, colour)."""
        self.y += 16
        self.text(LEFT - 14, self.y + 4, label, "end")
        self.parts.append(f'<path d="M{LEFT - 6} {self.y:g}H{WIDTH - 14}" stroke="#c9ced6"/>')
        for place, text, colour in dots:
            x = self.x(place)
            self.where[label, place] = (x, self.y)
            self.parts.append(f'<circle cx="{x:g}" cy="{self.y:g}" r="4.5" fill="{COLOURS[colour]}"/>')
            self.text(x, self.y + (18 if below else -9), text, colour=COLOURS[colour])
        self.y += LINE - 8

    def bars(self, label: str, bars: Sequence[Bar]) -> None:
        """Half-open stretches, in as many lines as they need: (start, end, text, colour)."""
        self.text(LEFT - 14, self.y + 15, label, "end")
        ends: list[float] = []
        top = self.y
        for start, end, text, colour in bars:
            line = next((n for n, used in enumerate(ends) if used <= start), len(ends))
            ends[line : line + 1] = [end]
            left, right = self.x(start), self.x(end)
            y = top + line * LINE
            self.parts.append(
                f'<rect x="{left:g}" y="{y:g}" width="{max(right - left - 2, 1):.1f}" height="{LINE - 5}"'
                f' rx="3" fill="{COLOURS[colour]}" fill-opacity="0.14" stroke="{COLOURS[colour]}"/>'
            )
            self.text((left + right) / 2, y + 15, text, colour=COLOURS[colour])
        self.y = top + max(1, len(ends)) * LINE + 4

    def link(self, one: tuple[str, float], other: tuple[str, float]) -> None:
        """A line between two dots: (lane, place) each."""
        (x1, y1), (x2, y2) = self.where[one], self.where[other]
        self.parts.insert(
            0, f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="#1b1f24" stroke-dasharray="3 3"/>'
        )

    def svg(self, title: str) -> str:
        unit, step = self.ticks
        self.y += 12
        place = self.low
        while place <= self.high:
            x = self.x(place)
            self.parts.insert(0, f'<path d="M{x:g} 14V{self.y:g}" stroke="#eceff3"/>')
            self.text(x, self.y + 10, f"{place:g}{unit}", colour="#66707d")
            place += step
        height = self.y + 20
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}"'
            f' height="{height:g}" role="img" font-family="system-ui,sans-serif" font-size="12">\n'
            f"<title>{html.escape(title)}</title>\n"
            f'<rect width="{WIDTH}" height="{height:g}" fill="#fff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def seconds(value: object) -> float:
    """A place on the axis of seconds."""
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)).total_seconds()
    return float(value)  # type: ignore[arg-type]


def colour_of(row: dict[str, Any]) -> int:
    return "abcd".index(row["vid"]) if "vid" in row else 0


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def windows(
    names: dict[str, Any], result: str, low: float, high: float, text: Callable[[dict[str, Any]], str]
) -> Drawing:
    """The rows of the windows page, and the windows of one of its results."""
    drawing = Drawing(low, high, " s", 10)
    rows = rows_of(names["ROWS"])
    drawing.lane("rows", [(row["t"], f"{row['speed']:g}", colour_of(row)) for row in rows])
    keyed = "vid" in names[result].column_names
    made = names[result].to_pylist()
    for key in sorted({row["vid"] for row in made}) if keyed else [None]:
        own = [row for row in made if key is None or row["vid"] == key]
        own.sort(key=lambda row: row["window_start"])
        bars = [
            (seconds(row["window_start"]), seconds(row["window_end"]), text(row), colour_of(row))
            for row in own
        ]
        drawing.bars("windows" if key is None else f"windows of {key}", bars)
    return drawing


def tops(names: dict[str, Any]) -> Drawing:
    """The rows, and those that a top-N took, over their windows."""
    drawing = windows({**names, "fastest": names["tumbling"]}, "fastest", 0, 60, lambda row: "")
    drawing.y -= LINE + 4
    for row in names["fastest"].to_pylist():
        x = drawing.x(row["t"])
        drawing.text(x, drawing.y + 15, f"{row['rank']}.", colour=COLOURS[colour_of(row)])
        drawing.parts.append(
            f'<path d="M{x:g} 40V{drawing.y + 3:g}" stroke="#c9ced6" stroke-dasharray="2 3"/>'
        )
    drawing.y += LINE + 4
    return drawing


def by_place(
    names: dict[str, Any], result: str, place: Callable[[dict[str, Any], int], float], high: float, unit: str
) -> Drawing:
    """Each car's rows by number or kilometre, over its windows."""
    drawing = Drawing(0, high, unit, 1)
    for vid in ("a", "b"):
        own = [row for row in rows_of(names["ROWS"]) if row["vid"] == vid]
        dots = [(place(row, n), f"{row['speed']:g}", colour_of(row)) for n, row in enumerate(own)]
        drawing.lane(f"rows of {vid}", dots)
        made = [row for row in names[result].to_pylist() if row["vid"] == vid]
        drawing.bars(
            f"windows of {vid}",
            [(row["window_start"], row["window_end"], f"v {row['v']:.3g}", colour_of(row)) for row in made],
        )
    return drawing


def pair(names: dict[str, Any], one: str, two: str, result: str, labels: tuple[str, str]) -> Drawing:
    """Two streams, and a line for each pair that a join gave; rows without a pair have none."""
    drawing = Drawing(0, 60, " s", 10)
    for name, label in ((one, labels[0]), (two, labels[1])):
        drawing.lane(
            name,
            [(row["t"], f"{row[label]:g}", colour_of(row)) for row in rows_of(names[name.upper()])],
            below=name == two,
        )
        drawing.y += 8
    for row in names[result].to_pylist():
        if row["t"] is not None and row["t_right"] is not None:
            drawing.link((one, row["t"]), (two, row["t_right"]))
    return drawing


def grid(names: dict[str, Any]) -> Drawing:
    """Rows at any time, and those at regular times that resample made of them."""
    drawing = Drawing(0, 60, " s", 10)
    a = [row for row in rows_of(names["CARS"]) if row["vid"] == "a"]
    drawing.lane("rows of a", [(row["t"], f"{row['speed']:g}", 0) for row in a])
    made = [row for row in names["regular"].to_pylist() if row["vid"] == "a"]
    drawing.lane(
        "every 5 s",
        [
            (seconds(row["at"]), "gap" if row["gap"] else f"{row['speed']:.3g}", 1 if row["gap"] else 0)
            for row in made
        ],
    )
    return drawing


class Graphs(Drawing):
    """Piecewise linear graphs in panels beside each other, utility upwards from 0 to 1."""

    def __init__(self, panels: int) -> None:
        super().__init__(0, 1, "", 1)
        self.wide = (WIDTH - 40) / panels
        self.count = 0

    def panel(self, title: str, low: float, high: float, ticks: Sequence[tuple[float, str]]) -> None:
        """The next panel: its axis from ``low`` to ``high``, with these marks."""
        self.at = 40 + self.count * self.wide
        self.low, self.high = low, high
        self.count += 1
        self.text(round(self.at + (self.wide - 40) / 2, 1), 18, title)
        self.parts.append(
            f'<path d="M{self.at:g} 30V130H{self.at + self.wide - 40:g}" stroke="#66707d" fill="none"/>'
        )
        for utility, text in ((0, "0"), (1, "1")):
            self.text(self.at - 8, self.up(utility) + 4, text, "end", "#66707d")
        for place, text in ticks:
            self.text(self.x(place), 146, text, colour="#66707d")

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.at + share * (self.wide - 40), 1)

    def up(self, utility: float) -> float:
        return round(130 - utility * 90, 1)

    def line(self, points: Sequence[tuple[float, float]], colour: int, *, dashed: bool = False) -> None:
        """Through the points that lie on the axis, and flat beyond them."""
        inside = [(self.low, value_at(points, self.low)), *((x, y) for x, y in points if x > self.low)]
        inside.append((self.high, points[-1][1]))
        path = "L".join(f"{self.x(x):g} {self.up(y):g}" for x, y in inside)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}" stroke="{COLOURS[colour]}" stroke-width="2" fill="none"{dashes}/>'
        )

    def svg(self, title: str) -> str:
        self.y, self.ticks, self.low, self.high = 120, ("", 1), 0, -1
        return super().svg(title)


def value_at(points: Sequence[tuple[float, float]], x: float) -> float:
    """Of a piecewise linear graph, flat outside its points."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[0][1] if x < points[0][0] else points[-1][1]


def quality(names: dict[str, Any]) -> Drawing:
    """The three graphs of an output; dashed: the first one before 2 s of work."""
    qos = names["ALARMS"]
    drawing = Graphs(3)
    latency = [(us / 1e6, utility) for us, utility in qos.latency]
    drawing.panel("worth by delay", 0, 6, [(0, "0 s"), (2, "2 s"), (5, "5 s")])
    drawing.line(latency, 0)
    drawing.line([(delay - 2, utility) for delay, utility in latency], 1, dashed=True)
    drawing.panel("by rows delivered", 0, 100, [(0, "0 %"), (50, "50 %"), (100, "100 %")])
    drawing.line(qos.loss, 0)
    drawing.panel(f"importance by {qos.value[0]}", 0, 60, [(0, "0"), (50, "50")])
    drawing.line(qos.value[1], 0)
    return drawing


def terminal(table: Any, address: str) -> str:
    """``medusa top`` on these statistics, in a window."""
    import msgspec
    from rich.console import Console

    from medusa.cli.screens.top_read import Box
    from medusa.cli.screens.top_screen import screen

    place = table.schema.get_field_index("boundary")
    rows = table.set_column(place, "boundary", table["boundary"].cast("int64")).to_pylist()
    # How much memory the same rows take is no matter of this picture.
    boxes = msgspec.convert([{"query": "tolls", **row, "state_bytes": 1 << 18} for row in rows], list[Box])
    console = Console(width=120, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(screen(boxes, address=address, by="load", keys=True))
    lines = captured.get().rstrip().splitlines()
    width, height = 28 + 7.3 * max(map(len, lines)), 46 + 18 * len(lines)
    shown = [
        f'<text x="14" y="{44 + 18 * number}" fill="#e6edf3" xml:space="preserve">{html.escape(line)}</text>'
        for number, line in enumerate(lines)
        if line.strip()
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" width="{width:g}"'
        f' height="{height}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">\n'
        f"<title>medusa top {address}</title>\n"
        f'<rect width="{width:g}" height="{height}" rx="8" fill="#161b22"/>\n'
        f'<text x="14" y="20" fill="#9aa4b2">medusa top {address}</text>\n' + "\n".join(shown) + "\n</svg>\n"
    )


def pictures() -> dict[str, str]:
    """File name -> SVG, all of them."""
    page = run_page("guide-windows.md")
    meets = run_page("guide-streams.md")
    n = lambda row: f"n {row['n']}"  # noqa: E731
    drawings = {
        "tumbling": (
            windows(page, "tumbling", 0, 60, lambda row: f"n {row['n']}, v {row['v']:g}"),
            "Tumbling windows of 20 s",
        ),
        "sliding": (windows(page, "sliding", -10, 70, n), "Windows of 20 s that begin every 10 s"),
        "sessions": (windows(page, "sessions", 0, 70, n), "Sessions with gaps of 10 s"),
        "rows": (
            by_place(page, "counted", lambda row, number: number + 0.5, 6, ""),
            "Windows of two rows of a car",
        ),
        "values": (
            by_place(page, "valued", lambda row, number: row["km"], 3, " km"),
            "Windows of one kilometre",
        ),
        "top": (tops(page), "The two fastest rows of each window"),
        "join": (pair(meets, "cars", "tolls", "pairs", ("speed", "fee")), "Pairs of rows at most 10 s apart"),
        "asof": (
            pair(meets, "cars", "tolls", "latest", ("speed", "fee")),
            "Each car with the latest toll before it",
        ),
        "qos": (quality(run_page("qos.md")), "Quality of service: three graphs of an output"),
        "resample": (grid(meets), "Resampled every 5 s; gaps are marked"),
    }
    watched = run_page("metrics.md")
    return {
        **{f"{name}.svg": drawing.svg(title) for name, (drawing, title) in drawings.items()},
        "load.svg": watched["drawn"].svg,
        "split.svg": run_page("splitting.md")["drawn"].svg,
        "medusa-top.svg": terminal(watched["stats"], "http://127.0.0.1:9100"),
    }


if __name__ == "__main__":
    (DOCS / "pictures").mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (DOCS / "pictures" / name).write_text(svg, encoding="utf-8")
