"""How a node's catalog began: what came before that, this node can't know by its own disk."""

from __future__ import annotations

import msgspec

__all__ = ["Birth"]


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """Of a catalog that began with nothing on disk.

    Attributes:
        life: the number of the first life that had it; 0: an earlier version didn't keep that.
        lost: peers know earlier lives of this node: their disk is lost, and with it what they promised.
        rebuilt: an operator says so (``medusa node --rebuild``), and that what peers know is to be fetched.
    """

    life: int = 0
    lost: bool = False
    rebuilt: bool = False

    @property
    def forgot(self) -> bool:
        """Whether this node may have promised what it doesn't know any more."""
        return self.lost or self.rebuilt
