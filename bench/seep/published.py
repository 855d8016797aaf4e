"""What the text of SEEP (SIGMOD 2013) says of its figures, to be held against ours.

Its absolute numbers couldn't be read: what stands here is which curve lies above which, and which way it
goes.
``Sketch`` draws that in units of nothing; ``Claim`` says whether it is so of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Claim", "Sketch", "draw_sketch", "lines_of", "spoken"]


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that they say.

    Attributes:
        held: whether it is so of our figures; None: these can't tell.
        shown: the figures that it is about.
    """

    what: str
    held: bool | None
    shown: str


@dataclass(frozen=True, slots=True)
class Sketch:
    """The shape of one of their figures.

    Attributes:
        across, up: what its axes are.
        curves: (its name, points from 0 to 1).
        says: what the shape is drawn from, in a few words.
    """

    across: str
    up: str
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]]
    says: str


def spoken(claim: Claim) -> str:
    held = "can't be told" if claim.held is None else "so" if claim.held else "**not so**"
    return f"{held} ({claim.shown})" if claim.shown else held


def lines_of(claims: Sequence[Claim]) -> list[str]:
    """Markdown: each with what was found."""
    return ["", "What the authors say, of these figures:", "", *(f"- {c.what}: {spoken(c)}" for c in claims)]


def draw_sketch(axis: Any, sketch: Sketch) -> None:
    """Their shape, without numbers."""
    for name, points in sketch.curves:
        axis.plot([x for x, _ in points], [y for _, y in points], "--", label=name, lw=1.2)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set(xlabel=sketch.across, ylabel=sketch.up, xlim=(0, 1.05), ylim=(0, 1.1))
    axis.set_title(f"published: the shape alone,\n{sketch.says}", fontsize=9)
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
