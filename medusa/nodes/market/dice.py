"""Numbers that look random and are the same in each run: minds throw no dice."""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["Dice"]


class Dice:
    """A row of numbers that follows from a text.

    Args:
        seed: another one in each life of a node, so that nodes don't act in step.
    """

    def __init__(self, seed: str) -> None:
        self._seed, self._thrown = seed.encode(), 0

    def pick(self, below: int) -> int:
        """A number in [0, below)."""
        self._thrown += 1
        data = blake2b(self._seed + self._thrown.to_bytes(8, "big"), digest_size=8).digest()
        return int.from_bytes(data, "big") % below
