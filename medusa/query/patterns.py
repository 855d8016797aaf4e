"""Patterns of LIKE and regular expressions (RE2), as the engine wants them."""

from __future__ import annotations

import re

__all__ = ["LikeKind", "check_regex", "group_names", "like_parts", "like_regex"]

LikeKind = str
"""How a LIKE pattern can be matched: ``equal``, ``prefix``, ``suffix``, ``infix`` or ``regex``."""

_OPENS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]])*\]|\(", re.DOTALL)


def like_parts(pattern: str) -> tuple[LikeKind, str]:
    """How to match a LIKE pattern, and the text (or regular expression) to match with.

    ``%`` is any text, ``_`` any one character; there is no escape character.
    """
    middle = pattern.strip("%")
    if "_" in pattern or "%" in middle:
        return "regex", like_regex(pattern)
    opens, closes = pattern.startswith("%"), pattern.endswith("%")
    if opens and closes:
        return "infix", middle
    if not opens and not closes:
        return "equal", middle
    return ("suffix", middle) if opens else ("prefix", middle)


def like_regex(pattern: str) -> str:
    """A LIKE pattern as a regular expression for the whole text."""
    parts = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(parts.get(char) or re.escape(char) for char in pattern) + r"\z"


def group_names(pattern: str) -> tuple[str, list[str]]:
    """The pattern with every group named, and the names in order.

    The engine's kernel extracts named groups only. Groups that have a name keep it.
    """
    names: list[str] = []

    def name(found: re.Match[str]) -> str:
        if found[0] != "(":
            return found[0]
        after = pattern[found.end() :]
        given = re.match(r"\?P?<(\w+)>", after)
        if given:
            names.append(given[1])
        elif not after.startswith("?"):
            names.append(f"g{len(names) + 1}_")
            return f"(?P<{names[-1]}>"
        return "("

    return _OPENS.sub(name, pattern), names


def check_regex(pattern: str, replacement: str | None = None) -> str:
    """What RE2 has against a pattern or a replacement (``\\1`` ...); empty where nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sample = pa.array([""], pa.string())
    try:
        pc.match_substring_regex(sample, pattern)
        if replacement is not None:
            pc.replace_substring_regex(sample, pattern=pattern, replacement=replacement)
    except pa.ArrowInvalid as error:
        return str(error)
    return ""
