"""How busy boxes are, for a drawing: a colour for each, marks, and a legend.

The colours are a sequence in which lightness falls all the way (YlOrBr of ColorBrewer, C. Brewer 2003), so
who sees no red or green, or a print in grey, reads it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = [
    "LEGEND_HEIGHT",
    "LEGEND_WIDTH",
    "OUTLINE",
    "BoxLoad",
    "DiagramLoads",
    "colours",
    "legend",
    "luminance",
    "outline",
]

STOPS = ("#ffffe5", "#fff7bc", "#fee391", "#fec44f", "#fe9929", "#ec7014", "#cc4c02", "#993404", "#662506")
DARK_INK, LIGHT_INK = "#000000", "#ffffff"
OUTLINE, HELD_OUTLINE = "#6b5b45", "#1f4e9c"
LEGEND_HEIGHT, LEGEND_WIDTH = 56.0, 470.0
SWATCHES = 40


@dataclass(frozen=True, slots=True)
class BoxLoad:
    """What a drawing says of one box.

    Attributes:
        share: of the time that all boxes were busy, 0 to 1.
        marks: lines of text below the parameters: its share, what waits, who holds it back.
        held: an input holds it back while another is further on.
        tip: more, for who points at it.
    """

    share: float
    marks: tuple[str, ...] = ()
    held: bool = False
    tip: str = ""


@dataclass(frozen=True, slots=True)
class DiagramLoads:
    """Of all boxes, by id; ``over``: which time it is about, as in ``over the last 5s``."""

    boxes: Mapping[str, BoxLoad]
    over: str


def colours(share: float) -> tuple[str, str]:
    """(fill, ink) of a share of 0 to 1: the larger, the darker."""
    place = min(max(share, 0.0), 1.0) * (len(STOPS) - 1)
    low = min(int(place), len(STOPS) - 2)
    mixed = [
        round(a + (b - a) * (place - low))
        for a, b in zip(_parts(STOPS[low]), _parts(STOPS[low + 1]), strict=True)
    ]
    fill = "#" + "".join(f"{part:02x}" for part in mixed)
    # The ink that contrasts more (WCAG 2.1, relative luminance): always more than 4.5.
    return fill, DARK_INK if luminance(fill) > 0.179 else LIGHT_INK


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG 2.1 defines it: 0 black, 1 white."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (each / 255 for each in _parts(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def legend(over: str, y: float) -> list[str]:
    """SVG of the scale and the marks, ``LEGEND_WIDTH`` by ``LEGEND_HEIGHT``, at a height."""
    wide = 200 / SWATCHES
    lines = ['<g class="legend">']
    for index in range(SWATCHES):
        fill, _ = colours(index / (SWATCHES - 1))
        lines.append(
            f'<rect x="{index * wide:.1f}" y="{y + 16:.1f}" width="{wide + 0.3:.1f}" height="10"'
            f' fill="{fill}"/>'
        )
    text = f"share of the time that boxes were busy, {over}"
    small = f'font-size="10" fill="{DARK_INK}"'
    return [
        *lines,
        f'<rect x="0" y="{y + 16:.1f}" width="200" height="10" fill="none" stroke="{OUTLINE}"/>',
        f'<text x="0" y="{y + 10:.1f}" {small}>{escape(text)}</text>',
        f'<text x="0" y="{y + 38:.1f}" {small}>0%</text>',
        f'<text x="88" y="{y + 38:.1f}" {small}>50%</text>',
        f'<text x="176" y="{y + 38:.1f}" {small}>100%</text>',
        f'<rect x="228" y="{y + 15:.1f}" width="22" height="12" rx="3" fill="none" {outline(held=True)}/>',
        f'<text x="256" y="{y + 25:.1f}" {small}>held back by one of its inputs</text>',
        "</g>",
    ]


def outline(*, held: bool) -> str:
    """The outline of a box, as attributes."""
    if held:
        return f'stroke="{HELD_OUTLINE}" stroke-width="2.6" stroke-dasharray="6 3"'
    return f'stroke="{OUTLINE}" stroke-width="1.3"'
