"""The contracts that one participant has: with whom, which version counts when, what was revoked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from medusa.errors import ContractError
from medusa.market.contract.checks import check_terms
from medusa.market.contract.records import VersionsKept
from medusa.market.contract.terms import Contract
from medusa.market.contract.versions import ContractVersions

__all__ = ["ContractRegister"]


class ContractRegister:
    """What is in it is signed by both; whoever adds something has checked that (``signed``).

    A higher version takes the place of the lower ones once it begins. Ids are unique between two parties, so
    a contract is named by its partner and its id.

    Args:
        own: the participant whose register it is.
    """

    def __init__(self, own: str) -> None:
        self._own = own
        self._held: dict[tuple[str, str], ContractVersions] = {}

    def add(self, contract: Contract) -> bool:
        """Take in a contract; False: it is there already.

        Raises:
            ContractError: this participant is no party of it, its terms contradict themselves, other terms
                are signed under this version, or it can't take the place of the last one.
        """
        partner = self._partner(contract)
        check_terms(contract)
        versions = self._held.get((partner, contract.id))
        if versions is not None:
            return versions.add(contract)
        self._held[partner, contract.id] = ContractVersions(contract)
        return True

    def _partner(self, contract: Contract) -> str:
        if self._own not in (contract.provider, contract.consumer):
            raise ContractError(
                f"contract {contract.id!r} is between {contract.provider!r} and {contract.consumer!r}:"
                f" {self._own!r} is no party of it",
                code="contract.party",
            )
        return contract.consumer if contract.provider == self._own else contract.provider

    def revoke(self, partner: str, id: str, version: int, ends_us: int) -> bool:
        """End a contract, all versions up to this one, at a time; False: it ended by then anyway.

        Raises:
            ContractError: there is no such contract.
        """
        versions = self._held.get((partner, id))
        if versions is None or versions.get(version) is None:
            raise ContractError(
                f"there is no version {version} of a contract {id!r} with {partner!r}",
                hint="medusa contract show says what there is",
                code="contract.unknown",
            )
        before_us = versions.ends_us(version)
        versions.end(version, ends_us)
        return versions.ends_us(version) < before_us

    def postpone(self, partner: str, id: str, version: int, ends_us: int) -> None:
        """Move the end of a version that was revoked to a later time, at most to the one that was signed."""
        versions = self._held.get((partner, id))
        if versions is not None:
            versions.postpone(version, ends_us)

    def withdraw(self, partner: str, id: str, version: int) -> None:
        """Forget a version that the other party doesn't know as signed: it never counted."""
        versions = self._held.get((partner, id))
        if versions is not None and not versions.withdraw(version):
            del self._held[partner, id]

    def in_force(self, now_us: int, partner: str = "", *, shadow: bool | None = None) -> tuple[Contract, ...]:
        """Those that count now, by partner and id.

        Args:
            partner: only those with it; empty: all.
            shadow: only those that are, or are not, only watched; None: both.
        """
        found = (
            versions.in_force(now_us)
            for (other, _), versions in sorted(self._held.items())
            if partner in ("", other)
        )
        return tuple(each for each in found if each is not None and shadow in (None, each.shadow))

    def get(self, partner: str, id: str, now_us: int) -> Contract:
        """The version of a contract that counts now.

        Raises:
            ContractError: there is none, it hasn't begun, or it is over; says which and when.
        """
        versions = self._held.get((partner, id))
        if versions is None:
            raise ContractError(f"there is no contract {id!r} with {partner!r}", code="contract.unknown")
        found = versions.in_force(now_us)
        if found is None:
            begun = [each for each in versions.all if each.begins_us <= now_us]
            text = "has ended" if begun else "hasn't begun"
            raise ContractError(
                f"contract {id!r} with {partner!r} {text}", code=f"contract.{'ended' if begun else 'early'}"
            )
        return found

    def newest(self, partner: str, id: str) -> Contract | None:
        """The highest version that both signed, whether it counts or not."""
        versions = self._held.get((partner, id))
        return versions.newest if versions is not None else None

    def get_version(self, partner: str, id: str, version: int) -> Contract | None:
        """One version, whether it counts or not."""
        versions = self._held.get((partner, id))
        return versions.get(version) if versions is not None else None

    def ends_us(self, partner: str, id: str, version: int) -> int | None:
        """When a version ends, as signed or as revoked; None: there is none."""
        versions = self._held.get((partner, id))
        if versions is None or versions.get(version) is None:
            return None
        return versions.ends_us(version)

    def partners(self, now_us: int) -> tuple[str, ...]:
        """With whom a contract counts now, by name."""
        return tuple(
            dict.fromkeys(
                other for (other, _), versions in sorted(self._held.items()) if versions.in_force(now_us)
            )
        )

    def changes_at_us(self, now_us: int) -> int | None:
        """When next a contract begins or ends, after now; None: never."""
        return min((at for at in self._times() if at > now_us), default=None)

    def _times(self) -> Iterator[int]:
        for versions in self._held.values():
            for contract in versions.all:
                yield contract.begins_us
                yield versions.ends_us(contract.version)

    def kept(self) -> tuple[VersionsKept, ...]:
        """All of it, for ``restore``."""
        return tuple(
            VersionsKept(
                partner=partner,
                contracts=versions.all,
                ended_us=versions.ended_us,
            )
            for (partner, _), versions in self._held.items()
        )

    def restore(self, kept: Iterable[VersionsKept]) -> None:
        """Be as the register that gave this."""
        self._held = {
            (each.partner, each.contracts[0].id): ContractVersions(*each.contracts, ended_us=each.ended_us)
            for each in kept
            if each.contracts
        }

    def forget(self, before_us: int) -> int:
        """Drop contracts of which every version ended before a time; how many versions those were."""
        over = {
            key: versions
            for key, versions in self._held.items()
            if all(versions.ends_us(each.version) < before_us for each in versions.all)
        }
        self._held = {key: versions for key, versions in self._held.items() if key not in over}
        return sum(len(versions.all) for versions in over.values())
