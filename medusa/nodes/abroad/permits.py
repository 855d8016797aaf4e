"""Which fragment may run at which partner: put in by the market, for as long as a contract is in force.

    consumer   permits.permit_out(PermitOut(fragment="q/box", participant="bob", node="b1", until_us=...))
               permits.end_out("q/box")           # revoked: the fragment comes home
    provider   permits.permit_in(PermitIn(fragment="q/box", participant="alice", allows=Allowance(...),
                                          keep_us=60_000_000, until_us=...))
               permits.end_in("q/box")            # revoked: it is given back, and kept until then

Nothing of a fragment goes to another participant, or comes from one, without a permit on either side: the
table of messages asks here for each (``E_NO_CONTRACT``). A permit that is over lets a fragment come home and
nothing else; it is forgotten once nothing is left of it (``moves``). All of them are in the catalog, so they
are there again after a restart. A permit with an end counts only once the node knows the time. No IO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.kept_permits import Allowance, KeptPermits, PermitIn, PermitOut
from medusa.nodes.clock.wall_clock import WallClock

__all__ = ["Allowance", "PermitIn", "PermitOut", "Permits"]

PERMITS_MAX = 1_000
"""Of each side: the catalog is written whole."""

KEEP_US_MAX = 86_400_000_000
"""State of another is kept for a day at most after its contract."""

P = TypeVar("P", PermitOut, PermitIn)


class Permits:
    """Of one node.

    Args:
        kept: where they are.
        save: makes the catalog durable.
        whose: the participant of a peer; None: unknown.
    """

    def __init__(
        self,
        kept: KeptPermits,
        *,
        me: str,
        participant: str,
        wall: WallClock,
        save: Callable[[], int],
        whose: Callable[[str], str | None],
    ) -> None:
        self._kept = kept
        self._me, self._participant = me, participant
        self._wall = wall
        self._save = save
        self._whose = whose

    # --- what the market says -----------------------------------------------------------------------

    def permit_out(self, permit: PermitOut) -> None:
        """A fragment of ours may run at a partner's node.

        Raises:
            LinkError: the node is no peer of that participant (``E_PEER``), another partner may have it
                (``E_BUSY``), or there are too many (``E_LIMIT``). Nothing changed.
        """
        whose = self._whose(permit.node)
        if whose != permit.participant or whose == self._participant:
            text = f"node {permit.node!r} is no peer of {self._me!r} that belongs to {permit.participant!r}"
            raise LinkError(text, hint=f"add {permit.node} to [peers] of {self._me}", code="E_PEER")
        known = self._kept.out.get(permit.fragment)
        if known is not None and (known.participant, known.node) != (permit.participant, permit.node):
            text = f"fragment {permit.fragment!r} may run at {known.node!r} of {known.participant!r} already"
            raise LinkError(text, hint="end that permit, and wait until it is home", code="E_BUSY")
        self._check_room(permit.fragment in self._kept.out, len(self._kept.out))
        self._put(known, permit)

    def permit_in(self, permit: PermitIn) -> None:
        """A fragment of a partner may run here.

        Raises:
            LinkError: it is of our own participant (``E_ROLE``), one of that name is another's (``E_BUSY``),
                it would be kept for too long, or there are too many (``E_LIMIT``). Nothing changed.
        """
        if permit.participant == self._participant:
            raise LinkError("nodes of one participant need no permit", code="E_ROLE")
        known = self._kept.into.get(permit.fragment)
        if known is not None and known.participant != permit.participant:
            text = f"a fragment {permit.fragment!r} of {known.participant!r} may run at {self._me!r} already"
            raise LinkError(text, hint="a node has one fragment of a name", code="E_BUSY")
        if not 0 <= permit.keep_us <= KEEP_US_MAX:
            text = f"keep_us: 0 to {KEEP_US_MAX:,} was expected, and {permit.keep_us:,} came"
            raise LinkError(text, hint="say for how long its state is kept", code="E_LIMIT")
        self._check_room(permit.fragment in self._kept.into, len(self._kept.into))
        self._put(known, permit)

    def _check_room(self, known: bool, number: int) -> None:
        if not known and number >= PERMITS_MAX:
            text = f"node {self._me!r} has {PERMITS_MAX:,} permits already"
            raise LinkError(text, hint="end some of them", code="E_LIMIT")

    def _put(self, known: P | None, permit: P) -> None:
        if known != permit:
            self._kept.put(permit)
            self._save()

    def end_out(self, fragment: str) -> None:
        """The contract is over: the fragment comes home. Said twice it changes nothing more."""
        self._end(self._kept.out.get(fragment))

    def end_in(self, fragment: str) -> None:
        """The contract is over: the fragment is given back."""
        self._end(self._kept.into.get(fragment))

    def _end(self, permit: PermitOut | PermitIn | None) -> None:
        if permit is not None and not permit.ended:
            self._kept.put(msgspec.structs.replace(permit, ended=True))
            self._save()

    def forget(self, permit: PermitOut | PermitIn) -> None:
        """It is over, and nothing of its fragment is left with whom it was given."""
        self._kept.drop(permit)
        self._save()

    # --- what is asked ------------------------------------------------------------------------------

    def out(self, fragment: str) -> PermitOut | None:
        """By which a fragment of ours is at a partner's, or may be; also one that is over."""
        return self._kept.out.get(fragment)

    def into(self, fragment: str) -> PermitIn | None:
        """By which a fragment of a partner is here, or may be; also one that is over."""
        return self._kept.into.get(fragment)

    def all_out(self) -> tuple[PermitOut, ...]:
        """Also those that are over."""
        return tuple(self._kept.out.values())

    def all_into(self) -> tuple[PermitIn, ...]:
        """Also those that are over."""
        return tuple(self._kept.into.values())

    def in_force(self, now_us: int, permit: PermitOut | PermitIn) -> bool:
        """Whether it is, and isn't over."""
        if permit.ended or not permit.until_us:
            return not permit.ended
        wall_us = self._wall.at(now_us)
        return wall_us is not None and wall_us <= permit.until_us

    def is_over(self, now_us: int, permit: PermitOut | PermitIn) -> bool:
        """Whether it was ended, or its time has come for certain."""
        wall_us = self._wall.at(now_us)
        timed = permit.until_us > 0 and wall_us is not None and wall_us > permit.until_us
        return permit.ended or timed

    def wake_at_us(self, now_us: int) -> int | None:
        """When the next one is over by its time."""
        wall_us = self._wall.at(now_us)
        if wall_us is None:
            return None
        ends = [each.until_us for each in self.all_out() if not each.ended]
        ends += [each.until_us for each in self.all_into() if not each.ended]
        return min((now_us + at_us - wall_us + 1 for at_us in ends if at_us > wall_us), default=None)

    def goes_to(self, now_us: int, fragment: str, node: str) -> bool:
        """Whether a fragment of ours may go to this node now."""
        permit = self._kept.out.get(fragment)
        return permit is not None and permit.node == node and self.in_force(now_us, permit)

    def stays_with(self, participant: str, fragment: str) -> bool:
        """Whether a fragment of this participant may be here, or is on its way home."""
        permit = self._kept.into.get(fragment)
        return permit is not None and permit.participant == participant

    def fragments_of(self, participant: str, query: str) -> tuple[str, ...]:
        """Fragments of a query of this participant that may be here, or are on their way home."""
        return tuple(
            name
            for name, each in self._kept.into.items()
            if each.participant == participant and name.partition("/")[0] == query
        )
