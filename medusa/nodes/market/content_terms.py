"""What two participants have agreed on about rows of streams, and how the ledger bills that.

A stream that is sold is to the ledger as a task that is lent: its rows have numbers that both know, a reading
says up to which one they were delivered, and receipts, breaches and settlements are the same. A *unit* is
what the price is of: a row, or a period of time in which a query reads, whether rows come or not: where none
do for too long, that is a breach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from medusa.errors import ContractError
from medusa.market.contract.checks import check_terms
from medusa.market.contract.terms import Contract
from medusa.market.money import MONEY_MAX
from medusa.market.work import NANO
from medusa.query.structs import Schema

__all__ = ["PERIODS_S", "ROWS_PER_S_MOST", "ContentTerms", "billing_contract", "nano_per_step"]

PERIODS_S: Mapping[str, int] = {"minute": 60, "hour": 3_600, "day": 86_400}
"""Units of price that are time, in seconds."""

ROWS_PER_S_MOST = 100_000
"""Rows a second of all readers together that are billed at most, where nothing else is agreed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentTerms:
    """What a file says that two parties keep.

    Attributes:
        streams: name -> columns.
        price_micro: of one ``price_unit``; None: nothing is paid.
        latency_us, availability_ppm: 0: not promised.
        breach_micro: what the provider pays for each interval in which it kept one of those two not.
        interval_s, settlement_s: it is receipted, and settled, so often.
        rows_per_s: at most so many are billed; None: nothing is agreed.
        cap_micro: most that may be owed in one settlement; 0: no cap.
    """

    id: str
    version: int
    provider: str
    consumer: str
    begins_us: int
    ends_us: int
    notice_s: int
    streams: Mapping[str, Schema] = field(default_factory=dict)
    price_micro: int | None
    price_unit: str
    currency: str
    latency_us: int
    availability_ppm: int
    breach_micro: int = 0
    interval_s: int = 10
    settlement_s: int = 86_400
    rows_per_s: int | None = None
    cap_micro: int = 0

    @property
    def by_time(self) -> bool:
        """Whether time is paid for, and not rows."""
        return self.price_unit in PERIODS_S

    @property
    def quiet_us(self) -> int:
        """So long nothing may come of a stream: the latency, else an interval."""
        return self.latency_us or self.interval_s * 1_000_000


def _units_milli(terms: ContentTerms) -> int:
    """Units a second at most, times 1,000. If nothing is agreed, no more than a settlement has room for."""
    if terms.by_time:
        return 1_000
    if terms.rows_per_s is not None:
        return terms.rows_per_s * 1_000
    most = ROWS_PER_S_MOST * 1_000
    if terms.price_micro:
        most = min(most, MONEY_MAX * 1_000 // (terms.price_micro * terms.settlement_s))
    return most


def nano_per_step(terms: ContentTerms) -> int:
    """Nano-units of a row, or of an interval where time is paid for: rounded down."""
    return NANO * terms.interval_s // PERIODS_S[terms.price_unit] if terms.by_time else NANO


def billing_contract(terms: ContentTerms) -> Contract:
    """The terms by which the ledger bills it; both sides make the same of the same file.

    Raises:
        ContractError: nodes don't count what the price is of, or the terms contradict themselves.
    """
    if terms.price_micro and terms.price_unit != "row" and not terms.by_time:
        raise ContractError(
            f"price.priceUnit: nodes don't count {terms.price_unit!r} of a stream",
            hint=f"price it by: row, {', '.join(PERIODS_S)}",
            code="contract.not_kept",
        )
    promised = terms.availability_ppm
    if terms.latency_us and not promised:
        promised = 1_000_000  # What is promised of each row holds all the time.
    found = Contract(
        id=terms.id,
        version=terms.version,
        provider=terms.provider,
        consumer=terms.consumer,
        begins_us=terms.begins_us,
        ends_us=terms.ends_us,
        currency=terms.currency or "EUR",
        price_micro=terms.price_micro or 0,
        units_per_s_max_milli=_units_milli(terms),
        cap_micro=terms.cap_micro,
        interval_s=terms.interval_s,
        settlement_s=terms.settlement_s,
        availability_ppm=promised,
        breach_micro=terms.breach_micro,
        notice_s=terms.notice_s,
    )
    check_terms(found)
    return found
