"""Money in whole micro-units: a millionth of a currency unit. Nothing that is owed is ever a float."""

from __future__ import annotations

import re
from decimal import Decimal

from medusa.errors import ContractError

__all__ = ["MICRO", "MONEY_MAX", "amount_text", "micro_of", "money_text"]

MICRO = 1_000_000
"""Micro-units of one unit of a currency."""

MONEY_MAX = 1 << 62
"""No amount is beyond this, so that sums of two fit 64 bits."""

_AMOUNT = re.compile(r"\A-?[0-9]{1,12}(\.[0-9]{1,6})?\Z")


def micro_of(text: str | int, *, what: str = "amount") -> int:
    """Micro-units of an amount, such as ``"0.02"``.

    Args:
        text: at most 12 digits before and 6 behind the point; or whole units.
        what: for the error.

    Raises:
        ContractError: it is no such amount.
    """
    if isinstance(text, bool) or not isinstance(text, str | int) or not _AMOUNT.match(str(text)):
        raise ContractError(
            f"{what} is {text!r}: an amount has at most 12 digits before and 6 behind the point",
            code="contract.amount",
            hint='write it as text, as in "0.02": a float has no exact amount',
        )
    return int(Decimal(str(text)) * MICRO)


def money_text(micro: int, currency: str = "") -> str:
    """As a person writes it: ``0.02 EUR``; no more digits than there are, and two at least."""
    sign, (whole, part) = "-" if micro < 0 else "", divmod(abs(micro), MICRO)
    digits = f"{part:06}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole:,}.{digits} {currency}".rstrip()


def amount_text(micro: int) -> str:
    """As a document has it, for ``micro_of``: ``0.02``."""
    return money_text(micro).replace(",", "")
