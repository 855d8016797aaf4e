"""All that one party owes and is owed, of all its contracts: the one door of the ledger.

What its driver reports and what partners say come in; what is to be done is in the effects, in order. Time is
an argument. After a death ``PartyLedger.restored`` makes the same ledger of the records that were kept, and
the driver reports anew how many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from medusa.errors import ContractError, RemoteProtocolError, StateError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.accounts import Accounts
from medusa.market.ledger.book import LedgerIdentity, LedgerSettings
from medusa.market.ledger.chain import exposure_most_micro
from medusa.market.ledger.consumer_book import ConsumerBook
from medusa.market.ledger.effects import LedgerEffects
from medusa.market.ledger.messages import LedgerMessage
from medusa.market.ledger.provider_book import ProviderBook
from medusa.market.ledger.records import ContractCounts, encode_record, read_record
from medusa.ports import Signer, Verify

__all__ = ["LedgerStanding", "PartyLedger"]


class LedgerStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one contract stands, in micro-units of its currency.

    Attributes:
        owed_micro: by receipts that aren't settled, from the consumer to the provider.
        settled_micro: what was settled so far, alike.
        exposure_micro: work that was done and isn't receipted, as this party counts it.
        written_off_micro: of it the consumer said that it never came, in this settlement period.
        exposure_most_micro: it never is more.
        disputes: since the last settlement; ``disputes_beyond``: more than are tolerated.
        stopped: why no task runs; empty: they may.
    """

    contract: str
    partner: str
    role: str
    currency: str
    version: int
    tasks: int
    receipts: int
    owed_micro: int
    settled_micro: int
    exposure_micro: int
    exposure_most_micro: int
    written_off_micro: int
    disputes: int
    disputes_beyond: bool
    stopped: str


class PartyLedger:
    """The ledger of one party.

    Args:
        federation: in which it counts: signatures say so.
        signer, verify: of ``medusa.ports``.
        keys: party -> its public key; a party that isn't there signs nothing.
        effects: where what is to be done is put.
    """

    def __init__(
        self,
        party: str,
        federation: str,
        *,
        signer: Signer,
        verify: Verify,
        keys: Mapping[str, str],
        effects: LedgerEffects,
        settings: LedgerSettings | None = None,
    ) -> None:
        self.party = party
        self.accounts = Accounts()
        self._identity = LedgerIdentity(
            federation=federation, party=party, signer=signer, verify=verify, keys=keys
        )
        self._effects = effects
        self._settings = LedgerSettings() if settings is None else settings
        self._books: dict[tuple[str, str], ProviderBook | ConsumerBook] = {}

    @classmethod
    def restored(
        cls,
        records: Iterable[bytes],
        party: str,
        federation: str,
        *,
        signer: Signer,
        verify: Verify,
        keys: Mapping[str, str],
        effects: LedgerEffects,
        settings: LedgerSettings | None = None,
    ) -> PartyLedger:
        """The ledger that kept these records.

        Raises:
            StateError: a record is none, or those before it are missing.
        """
        made = cls(
            party, federation, signer=signer, verify=verify, keys=keys, effects=effects, settings=settings
        )
        for data in records:
            record = read_record(data)
            place = record.contract, record.partner
            if isinstance(record, ContractCounts) and place not in made._books:
                made._add(record.terms)
            elif place in made._books:
                made._books[place].restore(record)
            else:
                raise StateError(
                    f"a record of contract {place[0]!r} with {place[1]!r} before the contract itself",
                    hint="give all records, in the order in which they were kept",
                    code="state.ledger",
                )
        return made

    # --- contracts and tasks -----------------------------------------------------------------------

    def sign(self, now_us: int, contract: Contract) -> None:
        """A contract of which this party is one, and that both have signed: a new one, or a new version.

        Raises:
            ContractError: it is another party's, or the version doesn't follow; nothing changed.
        """
        if self.party not in (contract.provider, contract.consumer) or contract.provider == contract.consumer:
            raise ContractError(
                f"contract {contract.id!r} is between {contract.provider!r} and {contract.consumer!r}, this"
                f" is the ledger of {self.party!r}",
                code="contract.party",
            )
        partner = contract.consumer if self.party == contract.provider else contract.provider
        book = self._books.get((contract.id, partner))
        if book is not None:
            book.add_version(now_us, contract)
            return
        self._add(contract)
        record = ContractCounts(contract=contract.id, partner=partner, terms=contract)
        self._books[contract.id, partner].keep(record)

    def end(self, contract: str, partner: str, ends_us: int) -> None:
        """A contract is revoked, as of then: see ``Contract.notice_s``."""
        self._book(contract, partner).end(ends_us)

    def began(
        self,
        now_us: int,
        contract: str,
        partner: str,
        *,
        negotiation: int,
        task: str,
        begin_row: int,
        nano_units_per_row: int,
        price_micro: int,
    ) -> None:
        """A task was handed over: rows of it are paid from this one on.

        Raises:
            ContractError: see ``LedgerBook.began``; nothing changed.
        """
        self._book(contract, partner).began(
            now_us, negotiation, task, begin_row, nano_units_per_row, price_micro
        )

    def counted(
        self, now_us: int, contract: str, partner: str, negotiation: int, task: str, end_row: int
    ) -> None:
        """Rows of a task before this one: at the provider those that it put out, at the consumer those that
        it has, durably. A lower number than the last changes nothing."""
        self._book(contract, partner).counted(now_us, negotiation, task, end_row)

    def ended(
        self, now_us: int, contract: str, partner: str, negotiation: int, task: str, end_row: int
    ) -> None:
        """A task is home: it was handed back with rows before this one, a number that both know."""
        self._book(contract, partner).ended(now_us, negotiation, task, end_row)

    def measured(self, now_us: int, contract: str, partner: str, *, missed_us: int, latency_us: int) -> None:
        """What a contract promises, as it was in the interval that runs. The provider says it of each one."""
        self._book(contract, partner).measured(now_us, missed_us, latency_us)

    def may_work(self, now_us: int, contract: str, partner: str) -> bool:
        """Whether this party, which is the provider, may run tasks under it now."""
        book = self._book(contract, partner)
        return isinstance(book, ProviderBook) and book.may_work(now_us)

    def room_nano(self, now_us: int, contract: str, partner: str) -> int:
        """See ``ProviderBook.room_nano``."""
        book = self._book(contract, partner)
        return book.room_nano(now_us) if isinstance(book, ProviderBook) else 0

    # --- time and messages -------------------------------------------------------------------------

    def receive(self, now_us: int, partner: str, message: LedgerMessage) -> None:
        """Take what a partner says, whose identity the transport knows.

        Raises:
            RemoteProtocolError: there is no such contract with it (``E_NO_CONTRACT``), or it breaks a rule;
                nothing changed.
        """
        book = self._books.get((message.contract, partner))
        if book is None:
            raise RemoteProtocolError(
                f"no contract {message.contract!r} with it", peer=partner, code="E_NO_CONTRACT"
            )
        book.receive(now_us, message)

    def tick(self, now_us: int) -> None:
        """Time has passed: call it at ``wake_at_us`` at the latest."""
        for book in self._books.values():
            book.tick(now_us)

    def wake_at_us(self, now_us: int) -> int | None:
        """When something is to be done; None: not before something else comes."""
        times = [book.wake_at_us(now_us) for book in self._books.values()]
        return min((each for each in times if each is not None), default=None)

    # --- what is seen ------------------------------------------------------------------------------

    def status(self) -> tuple[LedgerStanding, ...]:
        """Of each contract, by name."""
        found = []
        for (name, partner), book in sorted(self._books.items()):
            newest = book.versions.newest
            found.append(
                LedgerStanding(
                    contract=name,
                    partner=partner,
                    role="provider" if isinstance(book, ProviderBook) else "consumer",
                    currency=newest.currency,
                    version=newest.version,
                    tasks=sum(not task.home for task in book.tasks.values()),
                    receipts=book.chain.number,
                    owed_micro=book.owed_micro,
                    settled_micro=book.settled_due_micro,
                    exposure_micro=book.exposure_micro(),
                    exposure_most_micro=max(exposure_most_micro(each) for each in book.versions.all),
                    written_off_micro=book.written_off_micro,
                    disputes=book.disputes,
                    disputes_beyond=book.disputes > self._settings.disputes_max,
                    stopped=book.stopped,
                )
            )
        return tuple(found)

    def book(self, contract: str, partner: str) -> ProviderBook | ConsumerBook:
        """One contract.

        Raises:
            ContractError: there is none such.
        """
        return self._book(contract, partner)

    def snapshot(self) -> list[bytes]:
        """Records in place of all that were kept so far: ``restored`` makes the same ledger of them.

        Keep the receipts: they alone say who owes whom and why.
        """
        return [encode_record(record) for book in self._books.values() for record in book.snapshot()]

    def _add(self, contract: Contract) -> None:
        provides = self.party == contract.provider
        partner = contract.consumer if provides else contract.provider
        kind: type[ProviderBook] | type[ConsumerBook] = ProviderBook if provides else ConsumerBook
        self._books[contract.id, partner] = kind(
            self._identity, contract, self.accounts, self._effects, self._settings
        )

    def _book(self, contract: str, partner: str) -> ProviderBook | ConsumerBook:
        book = self._books.get((contract, partner))
        if book is None:
            raise ContractError(
                f"no contract {contract!r} with {partner!r}",
                hint="sign it first",
                code="contract.unknown",
            )
        return book
