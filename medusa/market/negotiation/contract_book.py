"""The contracts of one participant, by partner: what is in force, and what each allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from medusa.errors import ContractError
from medusa.market.contract.checks import SECOND_US, check_terms
from medusa.market.contract.terms import ANY, Contract
from medusa.market.contract.versions import ContractVersions
from medusa.market.work import TradedTask

__all__ = ["ContractBook", "SignedContract"]

_NEVER_US = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedContract:
    """A contract as one party of it sees it.

    Attributes:
        consumes: whether we are the consumer.
        key: partner and id, by which it is found.
    """

    contract: Contract
    partner: str
    consumes: bool
    key: tuple[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.partner, self.contract.id))

    def allows(self, task: TradedTask) -> bool:
        """Whether its terms have the task by name. Streams, boxes and columns are checked by those who move
        it, since nothing is known of them here."""
        names = self.contract.tasks.definitions
        return ANY in names or (bool(task.kind) and task.kind in names)

    def planned_micro(self, task: TradedTask) -> int | None:
        """For what it goes at a signal; None: its terms don't plan it."""
        return self.contract.planned_micro(task.name)

    def units_per_s(self, task: TradedTask) -> float:
        return task.units_per_s(self.contract.bytes_per_unit)

    def may_follow(self, came_by: SignedContract) -> bool:
        """Whether a task that came by the other contract may go on by this one: its owner's contract allows
        resale to this partner, and to all to whom this partner might hand it on in turn."""
        owners, next_ones = came_by.contract, self.contract.resale
        return owners.may_resell_to(self.partner) and (
            ANY in owners.resale or all(each in owners.resale for each in next_ones)
        )


@dataclass(frozen=True, slots=True)
class _Counting:
    """Those in force from one moment until the next one begins or ends."""

    from_us: int
    until_us: int
    by_key: dict[tuple[str, str], SignedContract]
    consuming: tuple[SignedContract, ...]
    providing: tuple[SignedContract, ...]


class ContractBook:
    """By partner and id, with all versions of each.

    Args:
        name: whose book it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._contracts: dict[tuple[str, str], ContractVersions] = {}
        self._signed: dict[tuple[str, str, int], SignedContract] = {}
        self._counting: _Counting | None = None

    def sign(self, contract: Contract) -> SignedContract | None:
        """Take a contract in; None: it is there already. A version counts until the next one begins.

        Raises:
            ContractError: it isn't ours, contradicts itself, or can't follow the version that is known.
        """
        if self._name not in (contract.consumer, contract.provider):
            raise ContractError(
                f"contract {contract.id!r} is between {contract.provider!r} and {contract.consumer!r}:"
                f" {self._name!r} has to be one of two",
                code="contract.party",
            )
        check_terms(contract)
        consumes = contract.consumer == self._name
        partner = contract.provider if consumes else contract.consumer
        signed = SignedContract(contract=contract, partner=partner, consumes=consumes)
        known = self._contracts.get(signed.key)
        if known is None:
            self._contracts[signed.key] = ContractVersions(contract)
        elif not known.add(contract):
            return None
        self._signed[(*signed.key, contract.version)] = signed
        self._counting = None
        return signed

    def revoke(
        self, now_us: int, partner: str, contract_id: str, ends_us: int | None = None
    ) -> SignedContract | None:
        """End all versions that there are; None: nothing of it would count from then on anyway.

        Args:
            ends_us: when, as the revocation says; None: after the notice that was agreed.
        """
        known = self._contracts.get((partner, contract_id))
        if known is None:
            return None
        newest = known.newest
        if ends_us is None:
            ends_us = now_us + (known.in_force(now_us) or newest).notice_s * SECOND_US
        if known.ends_us(newest.version) <= ends_us:
            return None
        known.end(newest.version, ends_us)
        self._counting = None
        return self._signed[partner, contract_id, newest.version]

    def find(self, partner: str, contract_id: str) -> SignedContract | None:
        """Its newest version, whether it counts or not."""
        known = self._contracts.get((partner, contract_id))
        return self._signed[partner, contract_id, known.newest.version] if known is not None else None

    def in_force(self, now_us: int, partner: str, contract_id: str) -> SignedContract | None:
        return self._at(now_us).by_key.get((partner, contract_id))

    def still_holds(self, now_us: int, signed: SignedContract) -> bool:
        """Whether this very version is in force."""
        return self.in_force(now_us, *signed.key) == signed

    def all(self, now_us: int) -> Iterator[SignedContract]:
        """Of each the version that counts, and those that are to begin; where there is none, the newest."""
        for key, known in self._contracts.items():
            left = [each for each in known.all if known.period(each)[1] > now_us]
            for contract in left or [known.newest]:
                yield self._signed[(*key, contract.version)]

    def counting(self, now_us: int) -> Iterator[SignedContract]:
        """Those in force."""
        yield from self._at(now_us).by_key.values()

    def consuming(self, now_us: int) -> tuple[SignedContract, ...]:
        """Those in force under which we may give load away."""
        return self._at(now_us).consuming

    def providing(self, now_us: int) -> tuple[SignedContract, ...]:
        """Those in force under which we may take load."""
        return self._at(now_us).providing

    def _at(self, now_us: int) -> _Counting:
        """Worked out when one begins, ends or is signed: it is asked for far more often."""
        found = self._counting
        if found is None or not found.from_us <= now_us < found.until_us:
            self._counting = found = self._work_out(now_us)
        return found

    def _work_out(self, now_us: int) -> _Counting:
        by_key: dict[tuple[str, str], SignedContract] = {}
        for key, known in self._contracts.items():
            contract = known.in_force(now_us)
            if contract is not None:
                by_key[key] = self._signed[(*key, contract.version)]
        changes_us = self.changes_at_us(now_us)
        return _Counting(
            from_us=now_us,
            until_us=_NEVER_US if changes_us is None else changes_us,
            by_key=by_key,
            consuming=tuple(signed for signed in by_key.values() if signed.consumes),
            providing=tuple(signed for signed in by_key.values() if not signed.consumes),
        )

    def changes_at_us(self, now_us: int) -> int | None:
        """When the next one begins or ends."""
        times = (
            at_us
            for known in self._contracts.values()
            for contract in known.all
            for at_us in known.period(contract)
            if at_us > now_us
        )
        return min(times, default=None)
