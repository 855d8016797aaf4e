"""The contracts of one participant, by partner: what is in force, and what each allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.errors import ContractError
from medusa.market.contract.terms import ANY, Contract
from medusa.market.work import TradedTask

__all__ = ["ContractBook", "SignedContract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedContract:
    """A contract as one party of it sees it.

    Attributes:
        consumes: whether we are the consumer.
    """

    contract: Contract
    partner: str
    consumes: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.partner, self.contract.id

    def allows(self, task: TradedTask) -> bool:
        """Whether its terms have the task by name. Streams, boxes and columns are checked by those who move
        it, since nothing is known of them here."""
        names = self.contract.tasks.definitions
        return ANY in names or (bool(task.kind) and task.kind in names)

    def units_per_s(self, task: TradedTask) -> float:
        return task.units_per_s(self.contract.bytes_per_unit)

    def may_follow(self, came_by: SignedContract) -> bool:
        """Whether a task that came by the other contract may go on by this one: its owner's contract allows
        resale to this partner, and to all to whom this partner might hand it on in turn."""
        owners, next_ones = came_by.contract, self.contract.resale
        return owners.may_resell_to(self.partner) and (
            ANY in owners.resale or all(each in owners.resale for each in next_ones)
        )


class ContractBook:
    """By partner and id; only the newest version of each.

    Args:
        name: whose book it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._contracts: dict[tuple[str, str], SignedContract] = {}
        self._revoked: dict[tuple[str, str], int] = {}

    def sign(self, contract: Contract) -> SignedContract | None:
        """Take a contract in; None: it is there already.

        Raises:
            ContractError: it isn't ours, contradicts itself, or is older than what is in force.
        """
        consumes = contract.consumer == self._name
        partner = contract.provider if consumes else contract.consumer
        if self._name not in (contract.consumer, contract.provider) or partner == self._name:
            raise ContractError(
                f"contract {contract.id!r} is between {contract.provider!r} and {contract.consumer!r}:"
                f" {self._name!r} has to be one of two",
                code="contract.party",
            )
        if contract.range_micro > contract.price_micro:
            raise ContractError(
                f"contract {contract.id!r} has a range of {contract.range_micro} below a price of"
                f" {contract.price_micro}: no price is below 0",
                code="contract.price",
            )
        if contract.ends_us <= contract.begins_us:
            raise ContractError(
                f"contract {contract.id!r} ends at {contract.ends_us}, not after it begins"
                f" ({contract.begins_us})",
                code="contract.period",
            )
        signed = SignedContract(contract=contract, partner=partner, consumes=consumes)
        known = self._contracts.get(signed.key)
        if known is not None and known.contract == contract:
            return None
        least = max(known.contract.version if known is not None else 0, self._revoked.get(signed.key, 0))
        if contract.version <= least:
            raise ContractError(
                f"contract {contract.id!r} with {partner!r} has version {contract.version}: {least} is known",
                code="contract.version",
                hint="what changes a contract has a higher version",
            )
        self._contracts[signed.key] = signed
        return signed

    def revoke(self, partner: str, contract_id: str) -> SignedContract | None:
        """Take it out; None: there was none. That version of it never counts again."""
        gone = self._contracts.pop((partner, contract_id), None)
        if gone is not None:
            self._revoked[gone.key] = gone.contract.version
        return gone

    def find(self, partner: str, contract_id: str) -> SignedContract | None:
        return self._contracts.get((partner, contract_id))

    def in_force(self, now_us: int, partner: str, contract_id: str) -> SignedContract | None:
        signed = self._contracts.get((partner, contract_id))
        return signed if signed is not None and signed.contract.counts_at(now_us) else None

    def still_holds(self, now_us: int, signed: SignedContract) -> bool:
        """Whether this very version is in force."""
        return self.in_force(now_us, *signed.key) is signed or (
            (found := self.in_force(now_us, *signed.key)) is not None and found.contract == signed.contract
        )

    def all(self) -> Iterator[SignedContract]:
        yield from self._contracts.values()

    def consuming(self, now_us: int) -> Iterator[SignedContract]:
        """Those in force under which we may give load away."""
        for signed in self._contracts.values():
            if signed.consumes and signed.contract.counts_at(now_us):
                yield signed

    def providing(self, now_us: int) -> Iterator[SignedContract]:
        """Those in force under which we may take load."""
        for signed in self._contracts.values():
            if not signed.consumes and signed.contract.counts_at(now_us):
                yield signed

    def changes_at_us(self, now_us: int) -> int | None:
        """When the next one begins or ends."""
        times = [
            at_us
            for signed in self._contracts.values()
            for at_us in (signed.contract.begins_us, signed.contract.ends_us)
            if at_us > now_us
        ]
        return min(times, default=None)
