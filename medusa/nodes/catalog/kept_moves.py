"""What a node's catalog keeps of moves, so that each is settled whoever dies."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["FIRST_EPOCH", "KeptMove", "Ownership"]

REPLACED_MAX = 1000
"""Who took whose place is remembered of so many: for clients that ask again, since the answer was lost."""

FIRST_EPOCH = 1
"""Of a fragment where it was deployed."""


class KeptMove(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment of ours that somebody wants elsewhere.

    Attributes:
        attempt: its number.
        to: the target.
        epoch: of the fragment, if the target takes it.
        handing: it is the target's if that has it; else what was begun is to be undone.
    """

    attempt: int
    to: str
    epoch: int
    handing: bool = False


class Ownership(msgspec.Struct, kw_only=True):
    """What is known of who owns what.

    Attributes:
        moves: of our fragments, by name.
        epochs: of our fragments that have moved, by name.
        taken: fragment -> from whom we took it -> by which attempt; also where it has gone since.
        unplaced: those that we took -> their coordinator, which hasn't said yet that it knows.
        replaced: fragment of which a box was split or merged -> that with its router, or with all of it, now.
        stood_by: fragment that this node stood by for, and hasn't owned since -> its epoch at that owner.
    """

    moves: dict[str, KeptMove] = {}
    epochs: dict[str, int] = {}
    taken: dict[str, dict[str, int]] = {}
    unplaced: dict[str, str] = {}
    replaced: dict[str, str] = {}
    stood_by: dict[str, int] = {}

    def epoch(self, fragment: str) -> int:
        """Of a fragment of ours."""
        return self.epochs.get(fragment, FIRST_EPOCH)

    def surely(self, fragment: str) -> int:
        """The epoch in which a fragment of ours is that, or ``FIRST_EPOCH`` once it was handed over: who has
        it now may let us have it again before we know that it was taken."""
        moving = self.moves.get(fragment)
        return FIRST_EPOCH if moving is not None and moving.handing else self.epoch(fragment)

    def begins_with(self, fragment: str) -> None:
        """It is this node's."""
        self.stood_by.pop(fragment, None)

    def forget(self, fragment: str) -> None:
        """Its query is no more."""
        for known in (self.moves, self.epochs, self.taken, self.unplaced, self.stood_by):
            known.pop(fragment, None)
        query, _, _ = fragment.partition("/")
        for name in [each for each in self.replaced if each.partition("/")[0] == query]:
            del self.replaced[name]

    def forget_standing_by(self, query: str) -> None:
        """A query's configuration is no more."""
        for name in [each for each in self.stood_by if each.partition("/")[0] == query]:
            del self.stood_by[name]

    def replace(self, gone: Sequence[str], made: Sequence[str]) -> None:
        """These have taken the place of those."""
        self.replaced = self.replaced_by(gone, made)

    def end_move(self, fragment: str) -> None:
        """It isn't moved from here any more."""
        self.moves.pop(fragment, None)

    def is_elsewhere(self, fragment: str) -> None:
        """It is another node's."""
        for known in (self.moves, self.epochs, self.unplaced):
            known.pop(fragment, None)

    def replaced_by(self, gone: Sequence[str], made: Sequence[str]) -> dict[str, str]:
        """What ``replaced`` is once these have taken the place of those, the first of them foremost."""
        known = {name: by for name, by in self.replaced.items() if name not in made}
        return dict([*known.items(), *((name, made[0]) for name in gone)][-REPLACED_MAX:])
