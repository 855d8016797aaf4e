"""What terms have to hold together: a contract that contradicts itself is signed by nobody.

Types and bounds of single fields are those of ``terms``; here is what one field says of another. A reader
of documents asks for ``contradictions``, and adds the line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from medusa.decoders import converter
from medusa.errors import ContractError
from medusa.market.contract.terms import ANY, Contract
from medusa.market.money import MONEY_MAX, money_text
from medusa.units import duration_text

__all__ = [
    "ENDS_US_MAX",
    "Contradiction",
    "check_counter",
    "check_not_ended",
    "check_notice",
    "check_successor",
    "check_terms",
    "contradictions",
]

ENDS_US_MAX = 253_402_300_799_000_000
"""The end of the year 9999: later than that no calendar writes."""

SECOND_US = 1_000_000

_NAME = "1 to 64 characters of a-z, 0-9, _ and -"
_FORMS = {"id": _NAME, "provider": _NAME, "consumer": _NAME, "currency": "three capital letters, such as EUR"}

_contract = converter(Contract)


class Contradiction(NamedTuple):
    """What is wrong with a contract.

    Attributes:
        field: the attribute of ``Contract``; of what tasks it names ``tasks.streams`` and so on.
        text: what was expected, and what came.
        hint: what to do.
    """

    field: str
    text: str
    hint: str


def check_terms(contract: Contract) -> None:
    """Whether two parties can keep this.

    Raises:
        ContractError: the first contradiction, with the field, or a field out of its bounds.
    """
    found = next(contradictions(contract), None)
    if found is not None:
        raise ContractError(f"{found.field}: {found.text}", hint=found.hint, code="contract.terms")


def check_not_ended(contract: Contract, now_us: int) -> None:
    """Whether it can still count.

    Raises:
        ContractError: it has ended.
    """
    if now_us >= contract.ends_us:
        ago = duration_text((now_us - contract.ends_us) // SECOND_US * SECOND_US)
        raise ContractError(
            f"ends_us: contract {contract.id!r} ended {ago} ago",
            hint="agree on a higher version with a later end",
            code="contract.ended",
        )


def check_successor(old: Contract, new: Contract) -> None:
    """Whether a contract may take the place of a signed one of its id, once it begins.

    Raises:
        ContractError: the version isn't higher, what has to stay has changed, or it doesn't begin after the
            other: what was done until then is billed by that one.
    """
    check_counter(old, new)
    if new.begins_us <= old.begins_us:
        before_us = old.begins_us - new.begins_us
        when = f"{duration_text(before_us)} before" if before_us else "together with"
        raise ContractError(
            f"begins_us: version {new.version} of contract {new.id!r} begins {when} version {old.version},"
            " which is signed",
            hint="let it begin later",
            code="contract.version",
        )


def check_counter(old: Contract, new: Contract) -> None:
    """Whether terms may be proposed in place of others of their id, which nobody has accepted.

    Raises:
        ContractError: the version isn't higher, or what has to stay has changed.
    """
    if new.version <= old.version:
        raise ContractError(
            f"version: {new.version} of contract {new.id!r}, and {old.version} is signed already",
            hint=f"write version {old.version + 1}: what is signed never changes",
            code="contract.version",
        )
    for field in ("provider", "consumer", "currency"):
        was, comes = getattr(old, field), getattr(new, field)
        if was != comes:
            raise ContractError(
                f"{field}: {comes!r} in version {new.version} of contract {new.id!r}, {was!r} in version"
                f" {old.version}",
                hint=f"another {field} is another contract: give it an id of its own",
                code="contract.version",
            )


def contradictions(contract: Contract) -> Iterator[Contradiction]:
    """All of them, those that others follow from first."""
    yield from _bounds(contract)
    yield from _parties(contract)
    yield from _times(contract)
    yield from _amounts(contract)
    yield from _names(contract)
    yield from _plans(contract)


def _bounds(contract: Contract) -> Iterator[Contradiction]:
    if contract.price_micro < 0:
        yield Contradiction(
            "price_micro",
            f"expected a price of 0 or more, got {money_text(contract.price_micro, contract.currency)}",
            "who is paid is the provider: to have it the other way round, swap the parties",
        )
        return
    try:
        _contract(msgspec.to_builtins(contract))
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        came = getattr(contract, field, None)
        told = f", got {came!r:.80}" if came is not None else ""
        if field in _FORMS and isinstance(came, str):
            yield Contradiction(field, f"expected {_FORMS[field]}{told}", "write another one")
        else:
            bound = reason.partition(", got ")[0]
            yield Contradiction(field or "contract", f"{bound[:1].lower()}{bound[1:]}{told}", "change it")


def _parties(contract: Contract) -> Iterator[Contradiction]:
    if contract.provider == contract.consumer:
        yield Contradiction(
            "consumer",
            f"expected another party than the provider, got {contract.consumer!r} for both",
            "a contract has two parties",
        )
    for party, what in ((contract.consumer, "the consumer itself"), (contract.provider, "the provider")):
        if party in contract.resale:
            yield Contradiction(
                "resale",
                f"expected others than the two parties, got {party!r}, which is {what}",
                "leave it out: a task can always go home",
            )


def _times(contract: Contract) -> Iterator[Contradiction]:
    period_us = contract.ends_us - contract.begins_us
    if period_us <= 0:
        yield Contradiction(
            "ends_us", "expected an end after the begin, got one that isn't", "write a later end"
        )
        return
    if contract.ends_us > ENDS_US_MAX:
        yield Contradiction("ends_us", "expected an end before the year 10000, got a later one", "shorten it")
    if period_us < contract.interval_s * SECOND_US:
        yield Contradiction(
            "interval_s",
            f"expected an interval within the contract, got {contract.interval_s}s of"
            f" {duration_text(period_us)}",
            "a contract lasts one interval at least, else nothing is ever receipted",
        )
    if contract.settlement_s % contract.interval_s:
        yield Contradiction(
            "settlement_s",
            f"expected whole intervals of {contract.interval_s}s, got {contract.settlement_s}s",
            "an interval is settled as a whole: write a multiple",
        )
    if contract.notice_s * SECOND_US > period_us:
        yield Contradiction(
            "notice_s",
            f"expected a notice within the contract, got {duration_text(contract.notice_s * SECOND_US)} of"
            f" {duration_text(period_us)}",
            "nobody could ever revoke it: shorten the notice",
        )


def _amounts(contract: Contract) -> Iterator[Contradiction]:
    price, currency = contract.price_micro, contract.currency
    if contract.range_micro > price:
        yield Contradiction(
            "range_micro",
            f"expected at most the price of {money_text(price, currency)}, got"
            f" {money_text(contract.range_micro, currency)}: a unit could cost less than nothing",
            "lower the range; 0 is a fixed price",
        )
        return
    if not contract.units_per_s_max_milli:
        yield Contradiction(
            "units_per_s_max_milli",
            "expected some load, got none: nothing could ever be moved",
            "write how many units a second may run at once",
        )
    if price * contract.units_per_s_max_milli * contract.settlement_s // 1_000 > MONEY_MAX:
        yield Contradiction(
            "settlement_s",
            f"expected amounts below {money_text(MONEY_MAX, currency)}, got more in one settlement",
            "settle more often, or lower the price or the load",
        )
    least = contract.least_micro * contract.units_per_s_max_milli * contract.interval_s // 1_000
    if 0 < contract.cap_micro < least:
        yield Contradiction(
            "cap_micro",
            f"expected at least {money_text(least, currency)}, what one interval at full load costs at the"
            f" lowest price, got {money_text(contract.cap_micro, currency)}",
            "raise the cap, or lower the load; 0 is no cap",
        )
    if contract.breach_micro and not contract.availability_ppm and not contract.latency_us:
        yield Contradiction(
            "breach_micro",
            f"expected nothing, got {money_text(contract.breach_micro, currency)}: neither availability nor"
            " latency is promised, so nothing can be breached",
            "promise one of them, or leave it out",
        )
    if contract.tolerance_ppm >= 1_000_000:
        yield Contradiction(
            "tolerance_ppm",
            "expected less than 100 %, got 100 %: every reading would pass",
            "one per cent is much: both sides count the same rows",
        )


def _plans(contract: Contract) -> Iterator[Contradiction]:
    names = [each.task for each in contract.planned]
    for at, each in enumerate(contract.planned):
        if not contract.least_micro <= each.price_micro <= contract.price_micro:
            allowed = (
                money_text(micro, contract.currency) for micro in (contract.least_micro, contract.price_micro)
            )
            yield Contradiction(
                "planned",
                f"expected prices from {' to '.join(allowed)}, got"
                f" {money_text(each.price_micro, contract.currency)} for {each.task!r}",
                "write another one, or change the range of the price",
            )
        if "/" not in each.task or each.task in names[:at]:
            why = "twice" if each.task in names[:at] else "which is no name of a fragment"
            yield Contradiction(
                "planned",
                f"expected fragments, each once, got {each.task!r}, {why}",
                'write "query/box for 0.02"',
            )


def _names(contract: Contract) -> Iterator[Contradiction]:
    tasks = contract.tasks
    lists = {
        "tasks.streams": tasks.streams,
        "tasks.boxes": tasks.boxes,
        "tasks.columns": tasks.columns,
        "tasks.definitions": tasks.definitions,
    }
    for field, names in lists.items():
        if not names:
            yield Contradiction(
                field, "expected names, got none: no task would be allowed", f'name some, or write "{ANY}"'
            )
    for field, names in (*lists.items(), ("resale", contract.resale)):
        if ANY in names and len(names) > 1:
            yield Contradiction(
                field, f"expected names or {ANY!r}, got both", f"{ANY!r} is all of them: leave one out"
            )
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            yield Contradiction(field, f"expected each name once, got {twice!r} twice", "leave one out")


def check_notice(notice_s: int, said_us: int, ends_us: int) -> None:
    """Whether a revocation that was said at one time may end a contract at another.

    Raises:
        ContractError: the notice is shorter than was agreed.
    """
    least_us = notice_s * SECOND_US
    if ends_us - said_us < least_us:
        raise ContractError(
            f"ends_us: expected a notice of {duration_text(least_us)} at least, got"
            f" {duration_text(max(ends_us - said_us, 0))}",
            hint="let the contract end later",
            code="contract.notice",
        )
