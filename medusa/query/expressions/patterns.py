"""Patterns of LIKE and regular expressions (RE2), as the engine wants them."""

from __future__ import annotations

import re

__all__ = ["LikeKind", "check_regex", "group_names", "like_parts", "like_regex", "whole_group"]

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
    prefix = "group_"
    while prefix in pattern:
        prefix += "_"

    def name(found: re.Match[str]) -> str:
        if found[0] != "(":
            return found[0]
        after = pattern[found.end() :]
        given = re.match(r"\?P?<(\w+)>", after)
        if given:
            names.append(given[1])
        elif not after.startswith("?"):
            names.append(f"{prefix}{len(names) + 1}")
            return f"(?P<{names[-1]}>"
        return "("

    return _OPENS.sub(name, pattern), names


def whole_group(pattern: str) -> tuple[str, list[str]]:
    """As ``group_names``, with a group around all of it before the others."""
    named, names = group_names(pattern)
    whole = "whole_"
    while whole in named:
        whole += "_"
    return f"(?P<{whole}>{named})", [whole, *names]


def check_regex(pattern: str, replacement: str | None = None, group: int | None = None) -> str:
    """What RE2 has against a pattern, a replacement (``\\1``) or a group number; empty: nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sample = pa.array([""], pa.string())
    try:
        pc.match_substring_regex(sample, pattern)
        if replacement is not None:
            pc.replace_substring_regex(sample, pattern=pattern, replacement=replacement)
        if group is not None:
            extracted, names = whole_group(pattern)
            found = pc.extract_regex(sample, extracted)
            if found.type.num_fields != len(names) or group >= len(names):
                return f"there is no group {group}: the pattern has {found.type.num_fields - 1}"
    except pa.ArrowInvalid as error:
        return str(error)
    return ""
