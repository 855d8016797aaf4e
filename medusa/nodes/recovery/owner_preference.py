"""Which node is to have a guarded fragment while its owner doesn't hear a sender: a table.

``unheard_senders`` asks and looks it up here, the tests walk over it, and docs/dpc.md shows it. Who stands by
has all that the owner was fed, so it is as far as the owner: only what it hears tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

__all__ = ["PREFERENCE", "Candidate", "Hears", "preferred"]


class Candidate(Enum):
    """What a node is to the fragment."""

    OWNER = "the owner"
    SECONDARY = "a secondary that hears all readers that the owner hears"


class Hears(Enum):
    """Which of the nodes a candidate hears whose streams the fragment reads, and what follows for its own."""

    ALL = "all senders"
    SOME = "some senders"
    NONE = "no sender"


SAID = {Hears.ALL: "stable", Hears.SOME: "up_failure", Hears.NONE: "failure"}
"""How the streams of the fragment are, or would be, at such a candidate."""

PREFERENCE: tuple[tuple[Candidate, Hears], ...] = (
    (Candidate.OWNER, Hears.ALL),
    (Candidate.SECONDARY, Hears.ALL),
    (Candidate.OWNER, Hears.SOME),
    (Candidate.SECONDARY, Hears.SOME),
    (Candidate.OWNER, Hears.NONE),
)
"""The first that is there has the fragment: what moves it has to gain something. A secondary that hears
nobody is never preferred."""


def preferred(owner: Hears, secondaries: Iterable[tuple[str, Hears]]) -> str:
    """The secondary that is to have the fragment; empty: it stays.

    Args:
        secondaries: node and what it hears, in the order in which they would succeed: of equals it is the
            first.
    """
    there = list(secondaries)
    for candidate, hears in PREFERENCE:
        if candidate is Candidate.OWNER:
            if hears is owner:
                return ""
        elif found := next((node for node, of in there if of is hears), ""):
            return found
    return ""
