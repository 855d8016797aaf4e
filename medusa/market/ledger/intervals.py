"""Which interval of which version of a contract a moment is in: by the documents alone, so both know it."""

from __future__ import annotations

from typing import NamedTuple

from medusa.errors import ContractError
from medusa.market.contract.terms import Contract
from medusa.market.contract.versions import ContractVersions

__all__ = ["ContractIntervals", "Slot", "promise_kept"]


class Slot(NamedTuple):
    """An interval of a version."""

    version: int
    interval: int


class ContractIntervals(ContractVersions):
    """The versions of one contract, cut into intervals.

    Those of a version are counted from its own ``begins_us``; the last one may be cut short. *Ordinals* count
    intervals through all versions.
    """

    @property
    def last_us(self) -> int:
        """When its newest version ends."""
        return self.ends_us(self.newest.version)

    def at(self, now_us: int) -> Slot | None:
        """The interval that runs; None: none does."""
        for contract in reversed(self.all):
            begins_us, ends_us = self.period(contract)
            if begins_us <= now_us < ends_us:
                return Slot(contract.version, (now_us - begins_us) // (contract.interval_s * 1_000_000))
        return None

    def last_ended(self, now_us: int) -> Slot | None:
        """The newest interval that is over; None: none is yet."""
        for contract in reversed(self.all):
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

    def next_at_us(self, now_us: int) -> int | None:
        """When the interval that runs is over; where none does, when the next one begins. None: none will."""
        slot = self.at(now_us)
        if slot is not None:
            return self.ends_at_us(slot)
        periods = map(self.period, self.all)
        return min((begins for begins, ends in periods if now_us < begins < ends), default=None)

    def has(self, slot: Slot) -> bool:
        """Whether there is such an interval: its version is known, and it begins before that ends."""
        contract = self.get(slot.version)
        return contract is not None and 0 <= slot.interval < self._count(contract)

    def ordinal(self, slot: Slot) -> int:
        """How many intervals are before it, of all versions. The interval before the first one is -1."""
        contract = self._known(slot)
        before = sum(self._count(each) for each in self.all if each.version < contract.version)
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
