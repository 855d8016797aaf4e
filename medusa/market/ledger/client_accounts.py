"""Clients from outside pay too: an account for each key, paid beforehand.

A client pays for a query as it starts, for each message that it gets or sends, and for work; a price of 0 is
none. An account that is empty starts no query. What runs goes on for a stated grace, and the
client is told; then it is stopped, and it is told that too.

What it used is said in totals since the query began, so a report that comes again costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.errors import ContractError
from medusa.market.contract.terms import Money
from medusa.market.ledger.accounts import Account, AccountEntry, Accounts, Posting
from medusa.market.money import MONEY_MAX, money_text
from medusa.market.work import price_of_work

__all__ = [
    "ClientAccountState",
    "ClientAccounts",
    "ClientNotice",
    "ClientPrices",
    "ClientStop",
    "QueryUse",
]

Number = Annotated[int, Meta(ge=0, le=1 << 62)]
Balance = Annotated[int, Meta(ge=-MONEY_MAX, le=MONEY_MAX)]
Text = Annotated[str, Meta(min_length=1, max_length=256)]


class ClientPrices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What clients pay, in micro-units.

    Attributes:
        query_micro: for each query, as it starts.
        message_micro: for each message.
        unit_micro: for each unit of work (``medusa.market.work``).
        grace_s: what runs goes on for so long once the account is empty.
    """

    currency: Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")] = "EUR"
    query_micro: Money = 0
    message_micro: Money = 0
    unit_micro: Money = 0
    grace_s: Annotated[int, Meta(ge=0, le=366 * 86_400)] = 3_600


class QueryUse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What a query has used since it began: totals.

    Attributes:
        rest: what rounding left over of its work, in nano-units times micro-units.
    """

    query: Text
    messages: Number = 0
    nano_units: Number = 0
    rest: Number = 0


class ClientAccountState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One account, as it is kept.

    Attributes:
        paid_in: payments so far: the next one has this number.
        empty_since_us: of the account; 0: it isn't.
    """

    client: Text
    balance_micro: Balance = 0
    paid_in: Number = 0
    charged: Number = 0
    empty_since_us: Number = 0
    queries: tuple[QueryUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientNotice:
    """Tell the client: its account is empty, and when its queries stop unless it pays."""

    client: str
    stops_at_us: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStop:
    """Stop these queries of the client, and tell it why."""

    client: str
    queries: tuple[str, ...]
    text: str


ClientEffect: TypeAlias = ClientNotice | ClientStop


class ClientAccounts:
    """The accounts of all clients of a party.

    Args:
        party: whose clients they are; it earns what they pay.
        states: as ``state`` gave them, after a start.
    """

    def __init__(self, party: str, prices: ClientPrices, states: Iterable[ClientAccountState] = ()) -> None:
        self.accounts = Accounts()
        self._party, self._prices = party, prices
        self._clients: dict[str, _Client] = {}
        self._effects: list[ClientEffect] = []
        for state in states:
            client = self._clients[state.client] = _Client(state)
            if state.paid_in:
                self.accounts.begin_at(_series("paid", state.client), state.paid_in - 1)
                self._post("paid", state.client, state.paid_in - 1, state.balance_micro, "cash")
            client.series = state.charged
            self.accounts.begin_at(_series("charged", state.client), state.charged)

    # --- money -------------------------------------------------------------------------------------

    def pay_in(self, client: str, number: int, micro: int) -> bool:
        """A payment has come. False: it came before, nothing changed.

        Args:
            number: of the client's payments: 0, 1, 2.

        Raises:
            ContractError: it isn't above 0, one before it is missing, or the account would hold too much.
        """
        if micro <= 0:
            raise ContractError(
                f"a payment of {micro:,} micro-units by {client!r}: it is above 0", code="contract.amount"
            )
        if not self._post("paid", client, number, micro, "cash"):
            return False
        self._clients.setdefault(client, _Client(ClientAccountState(client=client))).pay(micro)
        return True

    def balance_micro(self, client: str) -> int:
        """What a client has left; below 0: what it used in its grace."""
        found = self._clients.get(client)
        return found.balance if found else 0

    # --- use ---------------------------------------------------------------------------------------

    def start(self, client: str, query: str) -> None:
        """A query starts, and is charged. One that runs already is charged nothing.

        Raises:
            ContractError: the account is empty, or hasn't as much (``client.empty``); nothing changed.
        """
        found, prices = self._clients.get(client), self._prices
        if found is not None and query in found.queries:
            return
        balance = found.balance if found else 0
        if found is None or balance <= 0 or balance < prices.query_micro:
            raise ContractError(
                f"query {query!r} of client {client!r} isn't started: its account has"
                f" {money_text(balance, prices.currency)}, a query costs"
                f" {money_text(prices.query_micro, prices.currency)}",
                hint="pay in first",
                code="client.empty",
            )
        found.begin(query)
        self._charge(client, found, prices.query_micro)

    def used(self, now_us: int, client: str, use: QueryUse) -> None:
        """What a query has used since it began. Totals lower than the last ones are old, and cost nothing.

        Raises:
            ContractError: the client has no such query.
        """
        found = self._clients.get(client)
        if found is None or use.query not in found.queries:
            raise ContractError(f"client {client!r} runs no query {use.query!r}", code="client.query")
        self._charge(client, found, found.use(use, self._prices))
        self.tick(now_us)

    def stopped(self, client: str, query: str) -> None:
        """A query has ended; one that isn't there is no error."""
        found = self._clients.get(client)
        if found is not None:
            found.end(query)

    def tick(self, now_us: int) -> None:
        """Time has passed: call it at ``wake_at_us`` at the latest."""
        grace_us = self._prices.grace_s * 1_000_000
        for name, client in self._clients.items():
            if client.balance > 0 or not client.queries:
                client.fill()
            elif not client.empty_since_us:
                client.empty(now_us)
                stops_at_us = client.empty_since_us + grace_us
                self._effects.append(
                    ClientNotice(
                        client=name,
                        stops_at_us=stops_at_us,
                        text=f"the account of {name!r} is empty: {len(client.queries)} queries stop in"
                        f" {self._prices.grace_s:,} s unless it is paid in",
                    )
                )
            if client.empty_since_us and now_us >= client.empty_since_us + grace_us and not client.told:
                client.tell()
                self._effects.append(
                    ClientStop(
                        client=name,
                        queries=tuple(client.queries),
                        text=f"the account of {name!r} has been empty for {self._prices.grace_s:,} s",
                    )
                )

    def wake_at_us(self) -> int | None:
        """When something stops; None: nothing does."""
        grace_us = self._prices.grace_s * 1_000_000
        times = [
            client.empty_since_us + grace_us
            for client in self._clients.values()
            if client.empty_since_us and not client.told
        ]
        return min(times, default=None)

    def take(self) -> Iterator[ClientEffect]:
        """What is to be done, oldest first."""
        effects, self._effects = self._effects, []
        return iter(effects)

    def state(self) -> tuple[ClientAccountState, ...]:
        """All accounts, to be kept: make it durable before an answer goes out."""
        return tuple(client.state(name) for name, client in sorted(self._clients.items()))

    def _charge(self, name: str, client: _Client, micro: int) -> None:
        if micro:
            self._post("charged", name, client.series, -micro, "earned")
            client.charge(micro)

    def _post(self, kind: str, client: str, number: int, micro: int, other: str) -> bool:
        """Enter what a client has more, which the other account has less."""
        currency = self._prices.currency
        return self.accounts.post(
            AccountEntry(
                series=_series(kind, client),
                number=number,
                postings=(
                    Posting(Account(client, self._party, currency, "prepaid"), micro),
                    Posting(Account(self._party, client, currency, other), -micro),
                ),
            )
        )


class _Client:
    """One account."""

    def __init__(self, state: ClientAccountState) -> None:
        self.balance, self.paid_in = state.balance_micro, state.paid_in
        self.series = state.charged
        self.empty_since_us, self.told = state.empty_since_us, False
        self.queries = {use.query: use for use in state.queries}

    def pay(self, micro: int) -> None:
        self.balance, self.paid_in = self.balance + micro, self.paid_in + 1

    def charge(self, micro: int) -> None:
        self.balance, self.series = self.balance - micro, self.series + 1

    def begin(self, query: str) -> None:
        self.queries[query] = QueryUse(query=query)

    def end(self, query: str) -> None:
        self.queries.pop(query, None)

    def use(self, use: QueryUse, prices: ClientPrices) -> int:
        """What was used since the last totals costs so much."""
        last = self.queries[use.query]
        messages, nano = max(use.messages, last.messages), max(use.nano_units, last.nano_units)
        work, rest = price_of_work(nano - last.nano_units, prices.unit_micro, last.rest)
        self.queries[use.query] = QueryUse(query=use.query, messages=messages, nano_units=nano, rest=rest)
        return (messages - last.messages) * prices.message_micro + work

    def empty(self, now_us: int) -> None:
        self.empty_since_us = now_us

    def tell(self) -> None:
        self.told = True

    def fill(self) -> None:
        self.empty_since_us, self.told = 0, False

    def state(self, name: str) -> ClientAccountState:
        return ClientAccountState(
            client=name,
            balance_micro=self.balance,
            paid_in=self.paid_in,
            charged=self.series,
            empty_since_us=self.empty_since_us,
            queries=tuple(self.queries[query] for query in sorted(self.queries)),
        )


def _series(kind: str, client: str) -> str:
    return f"{kind}/{client}"
