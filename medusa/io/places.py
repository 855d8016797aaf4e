"""Where rows come from and go to, as the command line names it: ``name=path:format``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medusa.errors import DataError
from medusa.io.formats import FORMATS, FORMATS_OF_LINES
from medusa.query.suggest import did_you_mean

__all__ = ["FilePlace", "check_apart", "delimiter_of", "place_of", "split_named"]

_ENDINGS = {ending: name for name, each in FORMATS.items() for ending in each.endings}


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file, or standard input or output (``-``).

    Attributes:
        name: of the source or sink; empty: not said.
        packed: it is compressed by gzip, as its name says.
        delimiter: what stands between the fields of CSV.
    """

    name: str
    path: str
    format: str
    packed: bool = False
    delimiter: str = ","

    @property
    def standard(self) -> bool:
        return self.path == "-"

    @property
    def label(self) -> str:
        """How messages name it."""
        return "standard input" if self.standard else self.path

    @property
    def stem(self) -> str:
        """The name of the file without its endings."""
        return Path(Path(self.path).stem if self.packed else self.path).stem


def split_named(text: str) -> tuple[str, str]:
    """``name=value`` in two; the name is empty where there is none."""
    name, equals, value = text.partition("=")
    if equals and name.isidentifier():
        return name, value
    return "", text


def place_of(text: str, *, format: str | None = None) -> FilePlace:
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
    packed = Path(path).suffix.lower() == ".gz"
    made = said or _ENDINGS.get(Path(Path(path).stem if packed else path).suffix.lower()) or format
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
    if packed and not FORMATS[made].lines:
        raise DataError(
            f"{path}: {made} isn't read through gzip",
            hint=f"{FORMATS_OF_LINES} are; the others have compression of their own",
            code="data.format",
        )
    return FilePlace(name, path, made, packed)


def delimiter_of(text: str) -> str:
    """What ``--delimiter`` says; ``\\t`` is a tab.

    Raises:
        DataError: it is no single character, or one that stands in values.
    """
    made = "\t" if text == "\\t" else text
    if len(made) != 1 or not made.isascii() or made.isalnum() or made in "\"'\r\n\0 +-.:":
        raise DataError(
            f"--delimiter: {text[:20]!r} is no single character that can stand between fields",
            hint="such as ';', '|' or '\\t': no letter, digit, blank, quote or sign of a number or time",
            code="data.format",
        )
    return made


def check_apart(inputs: Mapping[str, FilePlace], outputs: Mapping[str, FilePlace]) -> None:
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


def _is_file(place: FilePlace) -> bool:
    """A regular file, or one that isn't there yet."""
    return not place.standard and (os.path.isfile(place.path) or not os.path.exists(place.path))


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        # One isn't there yet.
        return os.path.realpath(one) == os.path.realpath(other)
