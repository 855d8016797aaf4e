"""Lines of JSON with objects and lists inside: which columns hold them, and the lines without these."""

from __future__ import annotations

import contextlib
import json
from typing import Any

__all__ = ["first_unknown", "without_nested"]


def without_nested(sample: bytes, kept: set[str]) -> tuple[bytes, frozenset[str]]:
    """The lines without the columns that hold objects or lists anywhere in them, and which those are.

    Lines stay lines, also those that are no JSON: the parser says what is wrong with them.

    Args:
        kept: columns that stay, whatever they hold.

    Raises:
        RecursionError: they are too deep.
    """
    lines = sample.split(b"\n")
    if b"[" not in sample and sample.count(b"{") == sum(bool(line.strip()) for line in lines):
        return sample, frozenset()
    rows: list[Any] = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            rows.append(None)
    nested = {
        name
        for row in rows
        if isinstance(row, dict)
        for name, value in row.items()
        if isinstance(value, dict | list) and name not in kept
    }
    if not nested:
        return sample, frozenset()
    for place, row in enumerate(rows):
        if isinstance(row, dict) and not nested.isdisjoint(row):
            lines[place] = json.dumps({name: row[name] for name in row if name not in nested}).encode()
    return b"\n".join(lines), frozenset(nested)


def first_unknown(block: bytes, known: set[str]) -> tuple[int, str]:
    """The first row (from 0) with a column that isn't known, and which."""
    for row, line in enumerate(filter(bytes.strip, block.split(b"\n"))):
        found: Any = None
        with contextlib.suppress(ValueError, RecursionError):  # what this parser can't read
            found = json.loads(line)
        new = [name for name in found if name not in known] if isinstance(found, dict) else []
        if new:
            return row, new[0][:80]
    return 0, "?"
