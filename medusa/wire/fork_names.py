"""Names of forks: that of the fragment, and a number that no other fork of it has."""

from __future__ import annotations

__all__ = ["fork_name", "forked_of"]

MARK = "#"
"""No name of a fragment has it."""


def fork_name(fragment: str, number: int) -> str:
    """Of a fork of this fragment."""
    return f"{fragment}{MARK}{number}"


def forked_of(name: str) -> str | None:
    """The fragment of which this is a fork; None: it is a fragment itself."""
    fragment, mark, _ = name.rpartition(MARK)
    return fragment if mark else None
