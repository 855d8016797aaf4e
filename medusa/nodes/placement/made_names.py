"""Ids for the sources and sinks that a plan adds to a query. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["MadeNames"]

NAME_CHARS_MAX = 64


class MadeNames:
    """Ids for what cutting adds: readable, unique, and legal names of boxes."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._meaning: dict[str, tuple[str, ...]] = dict.fromkeys(taken, ())

    def made(self, *parts: str) -> str:
        """The same parts give the same id, others another."""
        readable = "-".join(part for part in parts if part)
        digest = blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()
        for name in (readable, f"{readable[: NAME_CHARS_MAX - 13]}-{digest}"):
            if len(name) <= NAME_CHARS_MAX and self._meaning.setdefault(name, parts) == parts:
                return name
        raise AssertionError(f"two boxes would be called {readable!r}")
