"""A query as a drawing: SVG of our own making, and Mermaid text."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

from medusa.errors import QueryError
from medusa.query.boxes import Box, Graph
from medusa.query.boxes.text import columns_text
from medusa.query.graph import check_graph, label_of
from medusa.query.ids import kind_of
from medusa.query.render.diagram_load import (
    LEGEND_HEIGHT,
    LEGEND_WIDTH,
    OUTLINE,
    BoxLoad,
    DiagramLoads,
    colours,
    legend,
    outline,
)
from medusa.query.render.layout import Layout, LayoutNode, layered

if TYPE_CHECKING:
    import os

__all__ = ["Diagram"]

MARGIN = 16.0
PADDING = 12.0
TEXT_MAX = 38
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
SIZES = {"kind": 10, "name": 13, "parameters": 11, "mark": 11}
CHARACTER = 0.62
"""Width of a monospaced character in ems, with some room."""

# fill, outline
COLOURS = {
    "source": ("#e3f4e8", "#3c8d5a"),
    "sink": ("#e8ebef", "#56606e"),
    "aggregate": ("#fdf0d9", "#b7791f"),
    "session": ("#fdf0d9", "#b7791f"),
    "window_rows": ("#fdf0d9", "#b7791f"),
    "window_values": ("#fdf0d9", "#b7791f"),
    "running": ("#fdf0d9", "#b7791f"),
    "top": ("#fdf0d9", "#b7791f"),
    "connection_point": ("#f9e4e4", "#a84f4f"),
    "join": ("#f0e6fa", "#7d4fa8"),
    "window_join": ("#f0e6fa", "#7d4fa8"),
    "asof_join": ("#f0e6fa", "#7d4fa8"),
}
PLAIN = ("#e6f0fb", "#3a72b0")


class Diagram:
    """The drawing of a query. Notebooks show it; ``save`` writes it."""

    def __init__(self, graph: Graph, loads: DiagramLoads | None = None) -> None:
        """Draw a graph.

        Args:
            loads: how busy its boxes are, which then gives them their colours.

        Raises:
            QueryError: the graph doesn't hold.
        """
        self._checked = check_graph(graph)
        self._graph = graph
        self._loads = loads

    @cached_property
    def svg(self) -> str:
        """The drawing as an SVG document."""
        boxes = self._graph.boxes
        places = {box.id: index for index, box in enumerate(boxes)}
        arcs = [(places[arc.box], index) for index, box in enumerate(boxes) for arc in box.inputs]
        layout = layered([_size(self._texts(box)) for box in boxes], arcs)
        width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
        below: list[str] = []
        if self._loads is not None:
            below = legend(self._loads.over, layout.height + MARGIN)
            width, height = max(width, LEGEND_WIDTH + 2 * MARGIN), height + LEGEND_HEIGHT
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family={quoteattr(FONT)}>',
            f"<title>query {escape(self._graph.name)}</title>",
            '<defs><marker id="medusa-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
            ' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#56606e"/></marker></defs>',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
            *self._arrows(layout),
            *(line for box, node in zip(boxes, layout.nodes, strict=False) for line in self._box(box, node)),
            *below,
            "</g>",
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    @cached_property
    def mermaid(self) -> str:
        """The drawing as Mermaid text, as Markdown renderers show it."""
        boxes = self._graph.boxes
        places = {box.id: index for index, box in enumerate(boxes)}
        lines = ["flowchart LR"]
        for index, box in enumerate(boxes):
            text = "<br/>".join(_mermaid_text(text) for _, text in self._texts(box))
            left, right = ("([", "])") if kind_of(box) in ("source", "sink") else ("[", "]")
            lines.append(f'    b{index}{left}"{text}"{right}')
            if (load := self._load(box)) is not None:
                fill, ink = colours(load.share)
                dashes = ",stroke-width:3px,stroke-dasharray:6 3" if load.held else ""
                lines.append(f"    style b{index} fill:{fill},color:{ink},stroke:{OUTLINE}{dashes}")
        for index, box in enumerate(boxes):
            for arc in box.inputs:
                port = f"|{arc.port}|" if arc.port else ""
                lines.append(f"    b{places[arc.box]} -->{port} b{index}")
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the drawing to a file: ``.svg``, or Mermaid text to ``.mmd``.

        Raises:
            QueryError: another ending, or the file can't be written.
        """
        target = Path(path)
        forms = {".svg": lambda: self.svg, ".mmd": lambda: self.mermaid}
        form = forms.get(target.suffix.lower())
        if form is None:
            raise QueryError(
                f"diagram: can't write {target.name!r}",
                hint="the name ends in .svg or .mmd",
                code="query.diagram",
            )
        drawn = form()
        try:
            target.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise QueryError(
                f"diagram: can't write {str(target)!r}: {error.strerror or error}",
                hint="the folder must be there, and one that you may write to",
                code="query.diagram",
            ) from error

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Diagram of query {self._graph.name!r}: .svg, .mermaid, .save(path)>"

    def _box(self, box: Box, node: LayoutNode) -> list[str]:
        fill, accent = COLOURS.get(kind_of(box), PLAIN)
        inks = {"kind": accent, "name": "#1c2430"}
        other, border, data = "#3b4554", f'stroke="{accent}" stroke-width="1.3"', ""
        load = self._load(box)
        if load is not None:
            fill, other = colours(load.share)
            inks, border, data = {}, outline(held=load.held), f' data-load="{load.share:.4f}"'
        rounded = 16 if kind_of(box) in ("source", "sink") else 6
        arc = next(arc for arc in self._checked.shapes if arc.box == box.id)
        tip = f"{label_of(box)}: {box.describe()}\n{columns_text(self._checked.shapes[arc].schema)}"
        tip += f"\n{load.tip}" if load is not None and load.tip else ""
        lines = [
            f'<g class="box" data-id={quoteattr(box.id)}{data}>',
            f"<title>{escape(tip)}</title>",
            f'<rect x="{node.x:.1f}" y="{node.y:.1f}" width="{node.width:.1f}" height="{node.height:.1f}"'
            f' rx="{rounded}" fill="{fill}" {border}/>',
        ]
        y = node.y + 6.0
        for role, text in self._texts(box):
            size = SIZES[role]
            y += size + 4
            weight = 'font-weight="bold" ' if role in ("name", "mark") else ""
            style = f'{weight}fill="{inks.get(role, other)}"'
            place = f'x="{node.x + PADDING:.1f}" y="{y:.1f}"'
            lines.append(f'<text {place} font-size="{size}" {style}>{escape(text)}</text>')
        return [*lines, "</g>"]

    def _load(self, box: Box) -> BoxLoad | None:
        return None if self._loads is None else self._loads.boxes.get(box.id)

    def _texts(self, box: Box) -> list[tuple[str, str]]:
        lines = [("parameters", _clipped(line)) for line in box.brief()]
        load = self._load(box)
        marks = [("mark", _clipped(line)) for line in load.marks] if load is not None else []
        return [("kind", kind_of(box)), ("name", _clipped(box.id)), *lines, *marks]

    def _arrows(self, layout: Layout) -> list[str]:
        lines = []
        ways = iter(layout.ways)
        for index, box in enumerate(self._graph.boxes):
            mine = [(arc, next(ways)) for arc in box.inputs]
            entries = _entries(layout, index, [way for _, way in mine])
            for (arc, way), entry in zip(mine, entries, strict=True):
                path = _path([layout.nodes[place] for place in way], entry)
                lines.append(
                    f'<path class="arc" data-from={quoteattr(arc.box)} data-to={quoteattr(box.id)} d="{path}"'
                    ' fill="none" stroke="#56606e" stroke-width="1.3" marker-end="url(#medusa-arrow)"/>'
                )
                if arc.port:
                    start = layout.nodes[way[0]]
                    lines.append(
                        f'<text x="{start.x + start.width + 6:.1f}" y="{start.middle - 5:.1f}" font-size="10"'
                        f' fill="#56606e">{escape(arc.port)}</text>'
                    )
        return lines


def _size(texts: list[tuple[str, str]]) -> tuple[float, float]:
    width = max(_columns_of(text) * SIZES[role] * CHARACTER for role, text in texts)
    height = sum(SIZES[role] + 4 for role, _ in texts)
    return max(84.0, width + 2 * PADDING), height + 16.0


def _columns_of(text: str) -> int:
    """Width in characters; East Asian wide ones count two."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _clipped(text: str) -> str:
    if _columns_of(text) <= TEXT_MAX:
        return text
    while _columns_of(text) > TEXT_MAX - 3:
        text = text[: min(len(text) - 1, TEXT_MAX)]
    return text.rstrip() + "..."


def _entries(layout: Layout, box: int, ways: list[list[int]]) -> list[float]:
    """Where each arc enters the box: spread over its left side, in the order they come from."""
    node = layout.nodes[box]
    order = sorted(range(len(ways)), key=lambda place: layout.nodes[ways[place][-2]].middle)
    entries = [0.0] * len(ways)
    for rank, place in enumerate(order):
        entries[place] = node.y + node.height * (rank + 1) / (len(ways) + 1)
    return entries


def _path(nodes: list[LayoutNode], entry: float) -> str:
    """From the right side of the first to the left side of the last, straight through every bend."""
    x, y = nodes[0].x + nodes[0].width, nodes[0].middle
    parts = [f"M{x:.1f} {y:.1f}"]
    for node in nodes[1:]:
        end = entry if node is nodes[-1] else node.middle
        middle = (x + node.x) / 2
        parts.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {end:.1f} {node.x:.1f} {end:.1f}")
        x, y = node.x, end
        if node is not nodes[-1]:
            x = node.x + node.width
            parts.append(f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _mermaid_text(text: str) -> str:
    """Characters that mean something to Mermaid or HTML, as entities."""
    special = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "\\": "#92;", "`": "#96;"}
    return "".join(special.get(char, char) for char in text)
