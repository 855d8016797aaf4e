"""Which line of a TOML text a field, or a mistake, stands in. ``tomllib`` says so of mistakes only."""

from __future__ import annotations

import tomllib
from typing import Any

__all__ = ["toml_fault", "toml_lines"]

Path = tuple[str, ...]


def toml_fault(text: str, error: tomllib.TOMLDecodeError) -> str:
    """``line 3: why``: what the parser says of a text that it can't read."""
    reason, _, place = str(error).partition(" (at line ")
    line = place.split(",")[0] or max(len(text.splitlines()), 1)  # Else it is the end of the document.
    return f"line {line}: {reason}"


def toml_lines(text: str) -> dict[Path, int]:
    """The line in which each table and field of a TOML text begins, by its path from the root.

    The parser itself says where a statement ends: at the first line with which the lines since the last one
    are a document of their own. So no comment, text over several lines or dotted key is ever taken for
    something else. What stands within brackets has the line of its field.

    Args:
        text: a whole document.

    Raises:
        tomllib.TOMLDecodeError: it isn't.
    """
    tomllib.loads(text)
    found: dict[Path, int] = {}
    table: Path = ()
    statement: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        statement.append(line.removesuffix("\r"))
        try:
            plain = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue
        first = number - len(statement) + 1
        if statement[0].lstrip().startswith("["):
            table = _path_of(plain)
            for end in range(1, len(table) + 1):
                found.setdefault(table[:end], first)
        else:
            _note(found, table, plain, first)
        statement = []
    return found


def _path_of(plain: dict[str, Any]) -> Path:
    """The name of a table: it has one key at each level."""
    names: list[str] = []
    inner: Any = plain
    while inner:
        if isinstance(inner, list):
            inner = inner[0]
            continue
        ((name, inner),) = inner.items()
        names.append(name)
    return tuple(names)


def _note(found: dict[Path, int], table: Path, plain: dict[str, Any], line: int) -> None:
    for key, value in plain.items():
        found.setdefault((*table, key), line)
        if isinstance(value, dict):
            _note(found, (*table, key), value, line)
