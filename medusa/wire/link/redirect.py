"""What a client does about a stream that its node refused: where to go on, by what the catalog says. Pure."""

from __future__ import annotations

from enum import Enum

__all__ = ["FOLLOWED", "MOVED_US", "RedirectStep", "ask_again_us", "next_step"]

FOLLOWED = ("E_MOVED", "E_STREAM")
"""Refusals after which the stream may be at another node."""

MOVED_US = 10_000_000
"""Of what was moved nobody may know for a moment: the word that it left is faster than the word that it
came. Unknown for so long, it was removed on its way."""


ASK_FIRST_US = 10_000
ASK_OFTEN_US = 20_000
ASK_LAST_US = 1_000_000


def ask_again_us(away_us: int) -> int:
    """How long a client rests before it asks again where a stream is whose node is away.

    Often at first, since another node takes a guarded stream over within some tens of milliseconds: what a
    client waits beyond that is half of it at most. More and more rarely later, since most nodes that are away
    come back with what they had.

    Args:
        away_us: for how long that node has been away.
    """
    soon_us = min(max(away_us // 2, ASK_FIRST_US), ASK_OFTEN_US)
    return min(max(away_us // 10, soon_us), ASK_LAST_US)


class RedirectStep(Enum):
    """What to do now."""

    STAY = "stay"
    MOVE = "move"
    GIVE_UP = "give up"


def next_step(
    code: str, *, here: str, epoch: int, place: tuple[str, int] | None, missing_us: int
) -> RedirectStep:
    """Where a stream goes on.

    Args:
        code: of the refusal; empty: its node is only away.
        here: the node by which it goes now.
        epoch: of the stream there, as the catalog said when we came.
        place: node and epoch as the catalog says now; None: nobody knows of it.
        missing_us: for how long nobody has known of it.
    """
    if place is None:
        if not code or (code == "E_MOVED" and missing_us < MOVED_US):
            return RedirectStep.STAY
        return RedirectStep.GIVE_UP
    node, newest = place
    # Elsewhere in no higher epoch it is another stream of that name; here in a higher one it has come back.
    if newest > epoch and (node != here or (code and code != "E_STREAM")):
        return RedirectStep.MOVE
    return RedirectStep.GIVE_UP if code == "E_STREAM" else RedirectStep.STAY
