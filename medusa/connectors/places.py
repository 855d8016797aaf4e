"""Where rows come from and go to, as the command line names it: ``name=path:format``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from medusa.errors import DataError
from medusa.query.suggest import did_you_mean

__all__ = ["FORMATS", "Place", "place_of", "split_named"]

FORMATS = ("csv", "jsonl", "parquet", "arrow", "arrows")
"""``arrow`` is the IPC file format, ``arrows`` the IPC stream format."""

_ENDINGS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrows",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or standard input or output (``-``).

    Attributes:
        name: of the source or sink; empty: not said.
    """

    name: str
    path: str
    format: str

    @property
    def standard(self) -> bool:
        return self.path == "-"

    @property
    def label(self) -> str:
        """How messages name it."""
        return "standard input" if self.standard else self.path


def split_named(text: str) -> tuple[str, str]:
    """``name=value`` in two; the name is empty where there is none."""
    name, equals, value = text.partition("=")
    if equals and name.isidentifier():
        return name, value
    return "", text


def place_of(text: str, *, format: str | None = None) -> Place:
    """A place as written: ``cars=cars.csv``, ``-:jsonl``, ``data.bin:parquet``.

    Args:
        format: of a place that doesn't say.

    Raises:
        DataError: an unknown format, or one that can't be told.
    """
    name, path = split_named(text)
    head, colon, ending = path.rpartition(":")
    said = None
    if colon and head and os.sep not in ending and not Path(path).exists():
        path, said = head, ending
    made = said or _ENDINGS.get(Path(path).suffix.lower()) or format
    if said is None and format is not None and path == "-":
        made = format
    if made is None:
        raise DataError(
            f"{path}: which format is it?",
            hint=f"write {path}:csv, or --format csv; there is: {', '.join(FORMATS)}",
            code="data.format",
        )
    if made not in FORMATS:
        raise DataError(
            f"{path}: there is no format {made[:40]!r}", hint=did_you_mean(made, FORMATS), code="data.format"
        )
    return Place(name, path, made)
