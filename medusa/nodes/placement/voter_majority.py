"""What it means for a query that some of its voters are away, or don't vote, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["away_text", "majority_of", "no_majority"]


def majority_of(voters: int) -> int:
    """So many decide: more than half."""
    return voters // 2 + 1


def no_majority(voters: int, away: Collection[str], not_voting: Collection[str] = ()) -> str:
    """Why nothing can be decided, and whom that waits for; empty: more than half of the voters vote.

    Args:
        voters: how many there are, those that are away included.
        away: those of them that aren't heard.
        not_voting: those of them that are heard, and have lost what they had said: they don't vote yet.
    """
    missing = len(away) + len(not_voting)
    wanted = majority_of(voters) - (voters - missing)
    if not missing or wanted <= 0:
        return ""
    who = "all of them are"
    if missing == 1:
        who = "it is"
    elif wanted == 1:
        who = "one of them is"
    elif wanted < missing:
        who = f"{wanted} of them are"
    back = "back and voting" if away and not_voting else "voting again" if not_voting else "back"
    return f"{away_text(voters, away, not_voting)}: nothing is taken over until {who} {back}"


def away_text(voters: int, away: Collection[str], not_voting: Collection[str] = ()) -> str:
    """``2 of 4 voters are away (c, b), 1 of 4 voters doesn't vote yet (d)``."""
    found = [(away, "is away", "are away"), (not_voting, "doesn't vote yet", "don't vote yet")]
    return ", ".join(
        f"{len(of)} of {voters} voters {one if len(of) == 1 else more} ({', '.join(of)})"
        for of, one, more in found
        if of
    )
