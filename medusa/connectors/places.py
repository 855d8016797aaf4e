"""Where rows come from and go to, as the command line names it: ``name=path:format``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medusa.errors import DataError
from medusa.query.suggest import did_you_mean

__all__ = ["FORMATS", "Place", "check_apart", "place_of", "split_named"]

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


def check_apart(inputs: Mapping[str, Place], outputs: Mapping[str, Place]) -> None:
    """No output replaces an input or another output, by whatever name: links are followed.

    Devices and pipes may stand more than once.

    Raises:
        DataError: two are one file; nothing was opened or written.
    """
    files = [(f"--input {name}", place) for name, place in inputs.items() if _is_file(place)]
    for name, place in outputs.items():
        if not _is_file(place):
            continue
        for other, taken in files:
            if _same(place.path, taken.path):
                raise DataError(
                    f"--output {name}={place.path} is the same file as {other}={taken.path}",
                    hint="write to another file: one can't hold both",
                    code="data.file",
                )
        files.append((f"--output {name}", place))


def _is_file(place: Place) -> bool:
    """A regular file, or one that isn't there yet."""
    return not place.standard and (os.path.isfile(place.path) or not os.path.exists(place.path))


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        # One isn't there yet.
        return os.path.realpath(one) == os.path.realpath(other)
