"""The versions of one contract that both have signed: which one counts when.

A version counts from its begin until the next one begins, it ends, or it is revoked, whichever is first. The
register, the negotiation and the ledger all ask here, so that they never differ about it.
"""

from __future__ import annotations

from collections.abc import Iterable

from medusa.errors import ContractError
from medusa.market.contract.checks import check_successor
from medusa.market.contract.terms import Contract

__all__ = ["ContractVersions"]


class ContractVersions:
    """Of one contract between two parties.

    Args:
        first: the lowest version; ``later``, ``ended_us``: as ``all`` and ``ended_us`` of another one were.
    """

    def __init__(self, first: Contract, *later: Contract, ended_us: Iterable[tuple[int, int]] = ()) -> None:
        self._versions = {each.version: each for each in (first, *later)}
        self._ended_us = dict(ended_us)
        self._periods: dict[int, tuple[int, int]] = {}
        self._changed()

    def _changed(self) -> None:
        """Work out when each counts: it is asked for far more often than it changes."""
        next_us = None
        for version in sorted(self._versions, reverse=True):
            begins_us, ends_us = self._versions[version].begins_us, self.ends_us(version)
            ends_us = ends_us if next_us is None else min(ends_us, next_us)
            self._periods[version] = begins_us, max(ends_us, begins_us)
            next_us = begins_us if next_us is None else min(next_us, begins_us)

    @property
    def newest(self) -> Contract:
        return self._versions[max(self._versions)]

    @property
    def all(self) -> tuple[Contract, ...]:
        """Ascending."""
        return tuple(self._versions.values())

    @property
    def ended_us(self) -> tuple[tuple[int, int], ...]:
        """(Version, from when on it and those below it are revoked)."""
        return tuple(self._ended_us.items())

    def get(self, version: int) -> Contract | None:
        return self._versions.get(version)

    def add(self, contract: Contract) -> bool:
        """Take in the next version. False: it is known.

        Raises:
            ContractError: other terms are known as this version, or it can't follow (``check_successor``);
                nothing changed.
        """
        if self._versions.get(contract.version) == contract:
            return False
        if contract.id != self.newest.id:
            raise ContractError(
                f"id: {contract.id!r}, and {self.newest.id!r} in the version before",
                code="contract.version",
            )
        check_successor(self.newest, contract)
        self._versions[contract.version] = contract
        self._changed()
        return True

    def withdraw(self, version: int) -> bool:
        """Forget a version that never counted; False: it is the only one, and stays."""
        if len(self._versions) == 1:
            return version not in self._versions
        self._versions.pop(version, None)
        self._changed()
        return True

    def end(self, version: int, at_us: int) -> None:
        """It and all below it are over from then on, at the latest."""
        self._ended_us[version] = min(at_us, self._ended_us.get(version, at_us))
        self._changed()

    def postpone(self, version: int, at_us: int) -> None:
        """Move the end of a version that was revoked to a later time."""
        if version in self._ended_us:
            self._ended_us[version] = max(at_us, self._ended_us[version])
            self._changed()

    def ends_us(self, version: int) -> int:
        """When a version ends by itself: as signed, or as revoked before that."""
        revoked = (at_us for each, at_us in self._ended_us.items() if each >= version)
        return min((self._versions[version].ends_us, *revoked))

    def period(self, contract: Contract) -> tuple[int, int]:
        """From when to before when a version counts."""
        return self._periods[contract.version]

    def in_force(self, now_us: int) -> Contract | None:
        """The version that counts now: one that was replaced never comes back."""
        for version, contract in self._versions.items():
            begins_us, ends_us = self._periods[version]
            if begins_us <= now_us < ends_us:
                return contract
        return None
