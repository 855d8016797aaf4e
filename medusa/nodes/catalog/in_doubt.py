"""What a node can't know after its disk lost something: fragments in doubt, as its catalog keeps them.

    whole catalog, all checkpoints of a fragment lost    that fragment waits
    newest catalog lost in both copies                   every fragment waits, named or found on disk

A fragment in doubt doesn't run, and nobody is told that its streams don't exist. ``nodes.repair.resolution``
ends the doubt, by what peers know or by what an operator decided.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from medusa.nodes.spec.fragment_spec import FragmentSpec

__all__ = ["Decision", "FragmentInDoubt", "InDoubt", "shared_box"]

Decision = Literal["", "adopt", "forget"]
"""Of an operator (``nodes.repair.operator_decisions``): run it here from the newest whole checkpoint, or from
nothing; or it isn't here."""


class FragmentInDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment that may or may not be this node's.

    Attributes:
        coordinator: the node that deployed its query.
        epoch: the last one in which it was surely this node's; 0: none is known.
        state: ``checkpoint``: a whole one is on disk; ``lost``: it had one, and none is whole;
            ``none``: it may never have had one.
        why: for operators.
        returned: who stood by for it had nothing of it in that epoch, and gave it back.
    """

    spec: FragmentSpec
    coordinator: str
    epoch: int
    state: Literal["checkpoint", "lost", "none"]
    why: str
    decision: Decision = ""
    returned: bool = False


class InDoubt(msgspec.Struct, kw_only=True):
    """All that a node can't know.

    Attributes:
        fragments: by name.
        unreadable: hash in the names of groups that no catalog names -> why they can't be read.
        newest: number of the newest catalog, which was lost; 0: the catalog is known.
        old: the catalog before that, as it was on disk.
        accepted: an operator decided that what the lost catalog named beyond this is no more.
        accepted_in: the life of the node in which that was done last; 0: never.
        ever: something was in doubt before and isn't any more: this node may have had what it doesn't name.
    """

    fragments: dict[str, FragmentInDoubt] = {}
    unreadable: dict[str, str] = {}
    newest: int = 0
    old: bytes = b""
    accepted: bool = False
    accepted_in: int = 0
    ever: bool = False

    def __bool__(self) -> bool:
        return bool(self.fragments or self.unreadable or self.newest)

    def hides(self, name: str) -> bool:
        """Whether a stream or source of this name may be here: then nobody is told that it isn't."""
        if self.newest:
            return True
        specs = (each.spec for each in self.fragments.values())
        return any(name in (*spec.streams.values(), *spec.entries.values()) for spec in specs)

    def keeps(self, fragment: str) -> bool:
        """Whether a whole checkpoint of it is here, be it an older one."""
        found = self.fragments.get(fragment)
        return found is not None and found.state == "checkpoint"

    def settle(self, fragment: str) -> FragmentInDoubt:
        """It is known whether it is here; what was known of it."""
        self.ever = True
        return self.fragments.pop(fragment)

    def begin(self) -> None:
        """There is no catalog at all."""
        self.newest = self.newest or 1

    def accept(self, life: int = 0) -> None:
        """The older catalog counts: an operator decided so, and in this life it is done; 0: all peers have
        said what they know."""
        self.newest, self.old, self.accepted, self.ever = 0, b"", False, True
        self.accepted_in = max(life, self.accepted_in)

    def query_of(self, query: str) -> bool:
        """Whether a fragment of this query is in doubt."""
        return any(each.spec.query == query for each in self.fragments.values())


def shared_box(one: FragmentSpec, other: FragmentSpec) -> str | None:
    """A box that both run, or that both read: then a split or a merge put one in the other's place, since no
    node has two of either. A box of the one that the other reads is none."""
    if one.query != other.query or one.name == other.name:
        return None
    for mine, theirs in zip(_boxes(one), _boxes(other), strict=True):
        if (shared := next((box for box in mine if box in theirs), None)) is not None:
            return shared
    return None


def _boxes(spec: FragmentSpec) -> tuple[list[str], list[str]]:
    """Those that run in it, and those elsewhere that it reads."""
    read = [feed.source for feed in spec.feeds]
    return [box.id for box in spec.graph.boxes if box.id not in read], read
