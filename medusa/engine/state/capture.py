"""What the state of a fragment is taken for: a checkpoint that may be a delta on an earlier one.

Boxes that note what changes give only what changed since the capture that the delta stands on
(``native/state/changes.h``). A capture of which no file came to be costs nothing: the next one stands on the
same as it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from itertools import count

__all__ = ["Capture", "Known", "next_number"]

_NUMBERS = count(1)


def next_number() -> int:
    """Larger than all before in this process, so that no two runs mean different states by the same one."""
    return next(_NUMBERS)


@dataclass(frozen=True, slots=True)
class Capture:
    """One taking of state.

    Attributes:
        number: by which later ones refer to it.
        base: the one that is on disk, and that this one may be a delta on; 0: all is wanted.
    """

    number: int
    base: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What boxes said of their changes themselves, so that nothing need be compared to find them.

    Attributes:
        number: of the capture; 0: none, and nothing is known.
        whole: files that are there whole, and of which later captures say what changed.
        changed: files in whose place ``.fresh`` and ``.runs`` are there: how many rows they have.
        same: files that are left out, since nothing in them changed.
    """

    number: int = 0
    whole: Set[str] = frozenset()
    changed: Mapping[str, int] = field(default_factory=dict)
    same: Set[str] = frozenset()

    @property
    def partial(self) -> bool:
        """Without the capture it stands on it is nothing."""
        return bool(self.changed or self.same)
