"""What a node's catalog keeps of what may run where for whom, by contracts between participants."""

from __future__ import annotations

import msgspec

__all__ = ["Allowance", "KeptPermits", "PermitIn", "PermitOut"]


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a contract lets a fragment be.

    Attributes:
        boxes: kinds of boxes; sources and sinks belong to each fragment.
        streams: patterns of the streams that it may read and put out.
        columns: patterns of the columns that it may read.
        spec_bytes: of its spec at most.
    """

    boxes: tuple[str, ...]
    streams: tuple[str, ...] = ("*",)
    columns: tuple[str, ...] = ("*",)
    spec_bytes: int = 1 << 20


class PermitOut(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment of ours may run at a node of a partner.

    Attributes:
        until_us: its end, since the Unix epoch; 0: none is known.
        ended: it is over: the fragment is on its way home.
    """

    fragment: str
    participant: str
    node: str
    until_us: int = 0
    ended: bool = False


class PermitIn(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment of a partner may run here.

    Attributes:
        allows: what it may be.
        keep_us: once the permit is over its state and rows are kept for the owner for so long at most.
        until_us, ended: as of ``PermitOut``.
        checkpoint_every_us: a checkpoint goes home at least so often, since rows that it has there are rows
            that are paid; 0: as our own fragments take them.
    """

    fragment: str
    participant: str
    allows: Allowance
    keep_us: int
    until_us: int = 0
    ended: bool = False
    checkpoint_every_us: int = 0


class KeptPermits(msgspec.Struct, kw_only=True):
    """By fragment: a node has one of a name.

    Attributes:
        lent: fragments of ours that are abroad, or go there -> what they are (``guest_spec.digest_of``): a
            host sends back nothing else.
    """

    out: dict[str, PermitOut] = {}
    into: dict[str, PermitIn] = {}
    lent: dict[str, str] = {}

    def lends(self, fragment: str, digest: str) -> bool:
        """A fragment of ours may be abroad from now on; whether that is news."""
        before, self.lent[fragment] = self.lent.get(fragment), digest
        return before != digest

    def is_home(self, fragment: str) -> bool:
        """It isn't any more; whether that is news."""
        return self.lent.pop(fragment, None) is not None

    @property
    def empty(self) -> bool:
        """Nothing of ours goes abroad, and nothing of others comes here."""
        return not (self.out or self.into or self.lent)

    def put(self, permit: PermitOut | PermitIn) -> None:
        """In place of one that there was."""
        if isinstance(permit, PermitOut):
            self.out[permit.fragment] = permit
        else:
            self.into[permit.fragment] = permit

    def drop(self, permit: PermitOut | PermitIn) -> None:
        """It is over, and nothing of the fragment is left there."""
        known: dict[str, PermitOut] | dict[str, PermitIn]
        known = self.out if isinstance(permit, PermitOut) else self.into
        known.pop(permit.fragment, None)
