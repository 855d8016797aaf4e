"""What it means for a query that some of its voters are away, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["away_text", "majority_of", "no_majority"]


def majority_of(voters: int) -> int:
    """So many decide: more than half."""
    return voters // 2 + 1


def no_majority(voters: int, away: Sequence[str]) -> str:
    """Why nothing can be decided, and whom that waits for; empty: more than half of the voters are there.

    Args:
        voters: how many vote, those that are away included.
        away: those of them that aren't heard.
    """
    wanted = majority_of(voters) - (voters - len(away))
    if not away or wanted <= 0:
        return ""
    back = "all of them are back"
    if len(away) == 1:
        back = "it is back"
    elif wanted == 1:
        back = "one of them is back"
    elif wanted < len(away):
        back = f"{wanted} of them are back"
    return f"{away_text(voters, away)}: nothing is taken over until {back}"


def away_text(voters: int, away: Collection[str]) -> str:
    """``2 of 4 voters are away (c, b)``."""
    return f"{len(away)} of {voters} voters {'is' if len(away) == 1 else 'are'} away ({', '.join(away)})"
