"""Contracts about streams: which of them sells what just now, and by which a stream is read.

Both sides choose by one rule. A reader takes the first by name that counts at its node and sells just the
columns that it reads, and says so as it begins to pay; the provider goes by that word as long as that
contract counts there too. Until then it goes by the first one that counts at its own node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.errors import ContractError
from medusa.market.contract.checks import check_successor
from medusa.market.contract.terms import Contract
from medusa.nodes.market.content_terms import ContentTerms
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.spec.fragment_spec import SoldStream

__all__ = ["ContentContracts", "StreamTerms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTerms:
    """A version of a contract; ``billing``: by what the ledger bills it."""

    content: ContentTerms
    billing: Contract

    def columns(self, stream: str) -> tuple[str, ...]:
        """Of a stream that it sells, those that it sells."""
        return tuple(each.name for each in self.content.streams[stream])


class ContentContracts:
    """Those of one node.

    Args:
        own: our participant.
        paid: the ledger, which says what counts.
    """

    def __init__(self, own: str, paid: PaidTasks) -> None:
        self._own, self._paid = own, paid
        self._versions: dict[tuple[str, str], dict[int, StreamTerms]] = {}

    def signed(self, terms: ContentTerms, billing: Contract) -> None:
        """Both have signed it; the ledger has its own word for that."""
        partner = terms.provider if terms.consumer == self._own else terms.consumer
        made = StreamTerms(content=terms, billing=billing)
        self._versions.setdefault((partner, terms.id), {})[terms.version] = made

    @property
    def all(self) -> tuple[tuple[str, str], ...]:
        """Partner and name of each, by these."""
        return tuple(sorted(self._versions))

    def named(self, partner: str) -> list[str]:
        """Those with a partner, by name."""
        return [name for whose, name in self.all if whose == partner]

    def has(self, partner: str, contract: str) -> bool:
        """Whether there is such a contract."""
        return (partner, contract) in self._versions

    def selling(
        self, time_us: int, participant: str, stream: str, columns: tuple[str, ...]
    ) -> tuple[SoldStream | None, str]:
        """By which contract another participant may read a stream of ours: the first one, by name, that
        counts and sells just these columns, else that counts. None: none does, and why not, or empty: no
        contract names the stream."""
        first, why = None, ""
        for terms, not_now in self._naming(time_us, participant, stream, provider=self._own):
            if not_now:
                why = why or not_now
                continue
            sold = SoldStream(partner=participant, contract=terms.content.id, columns=terms.columns(stream))
            if sold.columns == columns:
                return sold, ""
            first = first or sold
        return first, "" if first is not None else why

    def sells_by(
        self, time_us: int, participant: str, contract: str, stream: str, columns: tuple[str, ...]
    ) -> bool:
        """Whether another participant may read just these columns of a stream of ours by this contract."""
        return any(
            not not_now and terms.content.id == contract and terms.columns(stream) == columns
            for terms, not_now in self._naming(time_us, participant, stream, provider=self._own)
        )

    def buying(self, time_us: int, partner: str, stream: str, columns: tuple[str, ...]) -> str:
        """The first contract in force, by name, by which we may read just these columns at a partner; empty:
        none."""
        for terms, not_now in self._naming(time_us, partner, stream, provider=partner):
            if not not_now and terms.columns(stream) == columns:
                return terms.content.id
        return ""

    def _naming(
        self, time_us: int, partner: str, stream: str, *, provider: str
    ) -> Iterator[tuple[StreamTerms, str]]:
        """Contracts about a stream, by name: what counts, or counts next, or counted last; and why nothing is
        sold by it now, or empty."""
        for name in self.named(partner):
            terms, why = self._counting(time_us, partner, name)
            versions = self._versions[partner, name]
            named = terms if terms is not None else versions[max(versions)]
            if named.content.provider == provider and stream in named.content.streams:
                yield named, why

    def _counting(self, time_us: int, partner: str, contract: str) -> tuple[StreamTerms | None, str]:
        """What counts of a contract now, and why nothing is sold by it, or empty."""
        counts = self._paid.versions(contract, partner)
        slot = None if counts is None else counts.at(time_us)
        terms = None if slot is None else self._versions[partner, contract].get(slot.version)
        if stopped := self._paid.stopped(contract, partner):
            return terms, f"by contract {contract!r}: {stopped}"
        if terms is None:
            return None, f"contract {contract!r} doesn't count now"
        due = self.due(time_us, partner, contract, terms)
        if due is not terms:
            version = due.content.version
            return due, f"version {version} of contract {contract!r} waits for what is read by the one before"
        return terms, ""

    def due(self, time_us: int, partner: str, contract: str, terms: StreamTerms) -> StreamTerms:
        """The version that should count now: the ledger takes none as long as something runs at a price that
        it doesn't allow."""
        for version, newer in sorted(self._versions[partner, contract].items(), reverse=True):
            if version <= terms.content.version:
                break
            if newer.content.begins_us <= time_us and _may_follow(terms.billing, newer.billing):
                return newer
        return terms

    def newest(self, time_us: int, partner: str, contract: str) -> StreamTerms | None:
        """What counts of it now; of one that is over, what counted last; None: there is none such."""
        versions = self._versions.get((partner, contract))
        counts = self._paid.versions(contract, partner)
        if not versions or counts is None:
            return None
        slot = counts.at(time_us)
        return versions.get(slot.version if slot is not None else max(versions))


def _may_follow(old: Contract, new: Contract) -> bool:
    try:
        check_successor(old, new)
    except ContractError:
        return False
    return True
