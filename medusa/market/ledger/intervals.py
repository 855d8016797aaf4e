"""Which interval of which version of a contract a moment is in: by the documents alone, so both know it."""

from __future__ import annotations

from typing import NamedTuple

from medusa.errors import ContractError
from medusa.market.contract.terms import Contract

__all__ = ["ContractVersions", "Slot", "promise_kept"]


class Slot(NamedTuple):
    """An interval of a version."""

    version: int
    interval: int


class ContractVersions:
    """The versions of one contract that both have signed.

    A version counts until the next one begins, or it ends. Its intervals are counted from its own
    ``begins_us``; the last one may be cut short. *Ordinals* count intervals through all versions.
    """

    def __init__(self, first: Contract) -> None:
        self._versions = [first]
        self._ends_us: int | None = None

    @property
    def newest(self) -> Contract:
        return self._versions[-1]

    @property
    def all(self) -> tuple[Contract, ...]:
        return tuple(self._versions)

    @property
    def ends_us(self) -> int:
        return self.newest.ends_us if self._ends_us is None else min(self._ends_us, self.newest.ends_us)

    def add(self, contract: Contract) -> bool:
        """A newer version. False: it is known.

        Raises:
            ContractError: it is older, another than the one of its version, of others, or doesn't begin
                after the one before; nothing changed.
        """
        for known in self._versions:
            if known.version == contract.version:
                if known != contract:
                    raise ContractError(
                        f"version {contract.version} of contract {contract.id!r} is another than the one that"
                        " counts",
                        hint="give it the next version",
                        code="contract.version",
                    )
                return False
        newest = self.newest
        same = ("id", "provider", "consumer", "currency")
        differs = next((name for name in same if getattr(newest, name) != getattr(contract, name)), "")
        if contract.version < newest.version or differs:
            raise ContractError(
                f"version {contract.version} of contract {contract.id!r} doesn't follow version"
                f" {newest.version}" + (f": its {differs} is another" if differs else ""),
                code="contract.version",
            )
        if contract.begins_us <= newest.begins_us:
            raise ContractError(
                f"version {contract.version} of contract {contract.id!r} begins at {contract.begins_us} us,"
                f" and version {newest.version} at {newest.begins_us} us",
                hint="let it begin later",
                code="contract.version",
            )
        self._versions.append(contract)
        return True

    def end(self, at_us: int) -> None:
        """It is over from then on, at the latest."""
        self._ends_us = at_us if self._ends_us is None else min(self._ends_us, at_us)

    def get(self, version: int) -> Contract | None:
        return next((each for each in self._versions if each.version == version), None)

    def period(self, contract: Contract) -> tuple[int, int]:
        """From when to before when a version counts."""
        later = [each.begins_us for each in self._versions if each.version > contract.version]
        ends_us = min([contract.ends_us, *later, *([] if self._ends_us is None else [self._ends_us])])
        return contract.begins_us, max(ends_us, contract.begins_us)

    def at(self, now_us: int) -> Slot | None:
        """The interval that runs; None: none does."""
        for contract in reversed(self._versions):
            begins_us, ends_us = self.period(contract)
            if begins_us <= now_us < ends_us:
                return Slot(contract.version, (now_us - begins_us) // (contract.interval_s * 1_000_000))
        return None

    def last_ended(self, now_us: int) -> Slot | None:
        """The newest interval that is over; None: none is yet."""
        for contract in reversed(self._versions):
            begins_us, ends_us = self.period(contract)
            if begins_us >= now_us or begins_us == ends_us:
                continue
            length_us = contract.interval_s * 1_000_000
            count = self._count(contract) if now_us >= ends_us else (now_us - begins_us) // length_us
            if count:
                return Slot(contract.version, count - 1)
        return None

    def ends_at_us(self, slot: Slot) -> int:
        """When an interval is over."""
        contract = self._known(slot)
        begins_us, ends_us = self.period(contract)
        return min(begins_us + (slot.interval + 1) * contract.interval_s * 1_000_000, ends_us)

    def has(self, slot: Slot) -> bool:
        """Whether there is such an interval: its version is known, and it begins before that ends."""
        contract = self.get(slot.version)
        return contract is not None and 0 <= slot.interval < self._count(contract)

    def ordinal(self, slot: Slot) -> int:
        """How many intervals are before it, of all versions. The interval before the first one is -1."""
        contract = self._known(slot)
        before = sum(self._count(each) for each in self._versions if each.version < contract.version)
        return before + slot.interval

    def payment_period(self, slot: Slot) -> Slot:
        """Which ``settlement_s`` of its version it is in."""
        contract = self._known(slot)
        return Slot(slot.version, slot.interval * contract.interval_s // contract.settlement_s)

    def payment_period_ends_us(self, slot: Slot) -> int:
        """When that one is over."""
        contract, index = self._known(slot), self.payment_period(slot).interval
        begins_us, ends_us = self.period(contract)
        return min(begins_us + (index + 1) * contract.settlement_s * 1_000_000, ends_us)

    def _count(self, contract: Contract) -> int:
        begins_us, ends_us = self.period(contract)
        return -(-(ends_us - begins_us) // (contract.interval_s * 1_000_000))

    def _known(self, slot: Slot) -> Contract:
        contract = self.get(slot.version)
        if contract is None:
            raise ContractError(f"version {slot.version} is not known", code="contract.version")
        return contract


def promise_kept(contract: Contract, missed_us: int, latency_us: int) -> bool:
    """Whether an interval was as a contract promises.

    Args:
        missed_us: of it, so long tasks should have run and didn't.
        latency_us: the longest that a row was under way.
    """
    may_miss_us = contract.interval_s * (1_000_000 - contract.availability_ppm)
    available = not contract.availability_ppm or missed_us <= may_miss_us
    return available and (not contract.latency_us or latency_us <= contract.latency_us)
