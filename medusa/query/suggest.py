"""Hints for names that weren't found."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["JOINS_ELSEWHERE", "did_you_mean", "join_called"]

LISTED_MAX = 8

# What other libraries and SQL dialects call it -> what it is here.
JOINS_ELSEWHERE = {
    "outer": "full",
    "fullouter": "full",
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
}


def join_called(how: str) -> str:
    """What a kind of join is called here: ``left_semi`` and ``anti join`` are ``semi`` and ``anti``."""
    plain = how.casefold().replace("_", "").replace("-", "").replace(" ", "").removesuffix("join")
    return JOINS_ELSEWHERE.get(plain, plain)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A hint for ``name``, which is none of ``candidates``.

    Returns:
        ``did you mean 'x'?`` where something is close, else ``there is: a, b, c`` (at most 8 of
        them), or an empty text where there are no candidates. Candidates keep their order.
    """
    import difflib

    known = list(dict.fromkeys(candidates))
    if not known:
        return ""
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    # Names are case-sensitive, so a name in the wrong case is the likeliest slip.
    close = difflib.get_close_matches(name.casefold()[:100], list(folded), n=1, cutoff=0.6)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    listed = ", ".join(known[:LISTED_MAX])
    return f"there is: {listed}{', ...' if len(known) > LISTED_MAX else ''}"
