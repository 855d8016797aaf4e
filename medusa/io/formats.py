"""The formats of ``medusa run``, a row each. ``readers`` and ``writers`` have what reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FORMATS", "FORMATS_IN_WORDS", "FORMATS_OF_LINES", "Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """What a format is like.

    Attributes:
        endings: of the files that have it.
        lines: it is text, a row a line: it is read through gzip, and can be followed as it grows.
        durations: it has them; without, they are whole microseconds.
        quoted: a value in quotes may go over several lines.
        about: what its name doesn't say.
    """

    endings: tuple[str, ...]
    lines: bool = False
    durations: bool = False
    quoted: bool = False
    about: str = ""


FORMATS = {
    "csv": Format((".csv",), lines=True, quoted=True),
    "jsonl": Format((".jsonl", ".ndjson", ".json"), lines=True),
    "parquet": Format((".parquet", ".pq")),
    "arrow": Format((".arrow", ".feather", ".ipc"), durations=True, about="IPC file"),
    "arrows": Format((".arrows",), durations=True, about="IPC stream"),
}
FORMATS_OF_LINES = " and ".join(name for name, each in FORMATS.items() if each.lines)
"""In words."""

FORMATS_IN_WORDS = ", ".join(
    f"{name} ({each.about})" if each.about else name for name, each in FORMATS.items()
)
"""All of them, as help texts list them."""
