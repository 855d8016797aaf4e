"""The formats of ``medusa run``, a row each. ``readers`` and ``writers`` have what reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FORMATS", "FORMATS_OF_LINES", "Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """What a format is like.

    Attributes:
        endings: of the files that have it.
        lines: it is text, a row a line: it is read through gzip, and can be followed as it grows.
        durations: it has them; without, they are whole microseconds.
    """

    endings: tuple[str, ...]
    lines: bool = False
    durations: bool = False


FORMATS = {
    "csv": Format((".csv",), lines=True),
    "jsonl": Format((".jsonl", ".ndjson", ".json"), lines=True),
    "parquet": Format((".parquet", ".pq")),
    "arrow": Format((".arrow", ".feather", ".ipc"), durations=True),
    "arrows": Format((".arrows",), durations=True),
}
"""``arrow`` is the IPC file format, ``arrows`` the IPC stream format."""

FORMATS_OF_LINES = " and ".join(name for name, each in FORMATS.items() if each.lines)
"""In words."""
