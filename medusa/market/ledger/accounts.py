"""Accounts in double entry: what one has another owes, so that all of them together are always zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from medusa.errors import ContractError
from medusa.market.money import MONEY_MAX

__all__ = ["Account", "Accounts", "AccountEntry", "Posting"]


class Account(NamedTuple):
    """Attributes:
    party: whose.
    about: the contract between which two, or the client.
    kind: ``owed``: open; ``settled``: both have signed that it is to be paid; of a contract that is only a
        shadow ``shadow owed`` and ``shadow settled``; others as the user says.
    """

    party: str
    about: str
    currency: str
    kind: str = "owed"


class Posting(NamedTuple):
    """Attributes:
    micro: above 0 the party is to get it, below 0 to give it.
    """

    account: Account
    micro: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountEntry:
    """Attributes:
    series, number: what makes it one: entries of a series are numbered 0, 1, 2.
    postings: whole micro-units, which are zero together in each currency.
    why: to a person.
    """

    series: str
    number: int
    postings: tuple[Posting, ...]
    why: str = ""


class Accounts:
    """Balances in whole micro-units.

    An entry counts once, however often it comes. Of each series only the last entry is held: entries come in
    their order, so that anything before it is known, and memory doesn't grow with time.
    """

    def __init__(self) -> None:
        self._balances: dict[Account, int] = {}
        self._last: dict[str, AccountEntry] = {}
        self._next: dict[str, int] = {}

    def post(self, entry: AccountEntry) -> bool:
        """Enter it. False: it was there already, nothing changed.

        Raises:
            ContractError: it isn't zero in a currency, comes before the one before it, is another than the
                one of its number, or an amount or balance is beyond ``MONEY_MAX``; nothing changed.
        """
        after = self.expected(entry.series)
        if entry.number < after:
            last = self._last.get(entry.series)
            if last is not None and entry.number == last.number and entry.postings != last.postings:
                raise ContractError(
                    f"entry {entry.number} of {entry.series!r} is another than the one that was entered",
                    code="contract.entry",
                )
            return False
        if entry.number > after:
            raise ContractError(
                f"entry {entry.number} of {entry.series!r}, the next is {after}",
                hint="enter those between first",
                code="contract.entry",
            )
        sums: dict[str, int] = {}
        balances: dict[Account, int] = {}
        for account, micro in entry.postings:
            sums[account.currency] = sums.get(account.currency, 0) + micro
            balances[account] = balances.get(account, self._balances.get(account, 0)) + micro
            if max(abs(micro), abs(balances[account])) > MONEY_MAX:
                raise ContractError(
                    f"{micro:,} micro-units to {account.party!r}: no amount or balance is beyond"
                    f" {MONEY_MAX:,}",
                    code="contract.amount",
                )
        if any(sums.values()):
            raise ContractError(
                f"entry {entry.number} of {entry.series!r} is not zero in {_first_unequal(sums)}",
                code="contract.entry",
            )
        self._balances.update(balances)
        self._last[entry.series], self._next[entry.series] = entry, after + 1
        return True

    def begin_at(self, series: str, number: int) -> None:
        """The first entry of a series is this one: those before are summed up in it.

        Raises:
            ContractError: it has begun.
        """
        if series in self._next:
            raise ContractError(f"series {series!r} has begun", code="contract.entry")
        self._next[series] = number

    def expected(self, series: str) -> int:
        """The number of the next entry of a series."""
        return self._next.get(series, 0)

    def balance(self, account: Account) -> int:
        return self._balances.get(account, 0)

    def balances(self) -> Mapping[Account, int]:
        """All accounts that were ever posted to."""
        return dict(self._balances)

    def sums(self) -> Mapping[str, int]:
        """Currency -> the sum of all balances in it: 0."""
        found: dict[str, int] = {}
        for account, micro in self._balances.items():
            found[account.currency] = found.get(account.currency, 0) + micro
        return found


def _first_unequal(sums: Mapping[str, int]) -> str:
    return next(f"{currency}: {micro:+,} micro-units" for currency, micro in sums.items() if micro)
