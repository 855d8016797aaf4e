"""Drawing with matplotlib, without its words."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medusa.errors import QueryError

__all__ = ["check_kind", "new_figure", "quietly", "save", "why_not_drawn"]


@contextmanager
def quietly() -> Iterator[None]:
    """Inside, matplotlib logs errors only: which font stands for another one, or that it looks for fonts for
    the first time on this machine, is nothing to a reader of ours. Its import belongs inside too."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def why_not_drawn() -> str:
    """What is said where no plot can be drawn; empty: one can be."""
    if importlib.util.find_spec("matplotlib") is None:
        return "not drawn: plots are drawn by matplotlib: pip install 'medusa-streams[plot]'"
    return ""


def check_kind(path: Path) -> None:
    """A plot is a PNG or an SVG.

    Raises:
        QueryError: this one is neither.
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise QueryError(f"--plot {path}: a plot is a .png or a .svg", code="query.plot")


def new_figure(path: Path, size: tuple[float, float]) -> Any:
    """An empty figure for this file.

    Args:
        size: width and height, in inches.

    Raises:
        QueryError: no matplotlib, or no such kind of file.
    """
    check_kind(path)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise QueryError(
            "--plot takes matplotlib", hint="pip install medusa-streams[plot]", code="query.plot"
        ) from None
    return Figure(figsize=size, layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a figure.

    Raises:
        QueryError: the file can't be written.
    """
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise QueryError(f"{path} can't be written: {error}", code="query.plot") from error
