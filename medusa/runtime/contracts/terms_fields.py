"""The fields of a contract about load, as its document has them: where, in which form, and what it is here.

One table, which reading, writing and docs/contracts.md go through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from medusa.errors import ContractError
from medusa.market.contract.terms import PlannedTask
from medusa.market.money import amount_text, micro_of
from medusa.units import byte_count, duration_text, duration_us

__all__ = ["FIELDS", "TermsField", "date_or_time", "time_text", "time_us", "toml_text"]

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class TermsField:
    """A field of a document.

    Attributes:
        path: table and key; the key alone stands above all tables.
        attribute: of ``Contract``, with a dot of ``Contract.tasks``.
        read: of what stands in the document makes the value, or raises ``ContractError`` without the place.
        written: the value as TOML.
        example: for messages.
        says: for people.
        required: the document must have it.
    """

    path: tuple[str, ...]
    attribute: str
    read: Callable[[Any], Any]
    written: Callable[[Any], str]
    example: str
    says: str
    required: bool = False


def _wrong(value: object, expected: str) -> ContractError:
    return ContractError(f"expected {expected}, got {value!r:.80}", code="contract.value")


# --- text -----------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "text")
    return value


def toml_text(value: str) -> str:
    """A basic string of TOML."""
    return '"' + "".join(_escaped(char) for char in value) + '"'


def _escaped(char: str) -> str:
    """No terminal does anything but print it."""
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(value, "a list of names")
    return tuple(value)


def _written_names(values: tuple[str, ...]) -> str:
    return f"[{', '.join(map(toml_text, values))}]"


# --- numbers --------------------------------------------------------------------------------------


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise _wrong(value, "a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def _written_flag(value: bool) -> str:
    return str(value).lower()


def _amount(value: Any) -> int:
    if not isinstance(value, str):
        raise _wrong(value, "an amount as text: a float has no exact one")
    return micro_of(value)


def _written_amount(micro: int) -> str:
    return f'"{amount_text(micro)}"'


_PLAN = re.compile(r"\s*(\S+)\s+for\s+(\S+)\s*")


def _planned(value: Any) -> tuple[PlannedTask, ...]:
    if not isinstance(value, list):
        raise _wrong(value, "a list")
    found = []
    for each in value:
        parts = _PLAN.fullmatch(each) if isinstance(each, str) else None
        if parts is None:
            raise _wrong(each, "a fragment and its price, such as 'clicks/filter for 0.02'")
        found.append(PlannedTask(task=parts[1], price_micro=max(micro_of(parts[2]), 0)))
    return tuple(found)


def _written_planned(planned: tuple[PlannedTask, ...]) -> str:
    texts = (f"{each.task} for {amount_text(each.price_micro)}" for each in planned)
    return f"[{', '.join(map(toml_text, texts))}]"


_SHARE = re.compile(r"\s*(\d{1,3}(?:\.\d{1,4})?)\s*%\s*\Z")


def _share(value: Any) -> int:
    found = _SHARE.match(value) if isinstance(value, str) else None
    if found is None or Decimal(found[1]) > 100:
        raise _wrong(value, "a share of 0 % to 100 %, with at most 4 digits behind the point")
    return int(Decimal(found[1]) * 10_000)


def _written_share(ppm: int) -> str:
    return f'"{_decimal(Decimal(ppm) / 10_000)} %"'


def _decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_LOAD = re.compile(r"\s*(\d{1,12}(?:\.\d{1,3})?)\s*units?/s\s*\Z")


def _load(value: Any) -> int:
    found = _LOAD.match(value) if isinstance(value, str) else None
    if found is None:
        raise _wrong(value, "units a second, with at most 3 digits behind the point")
    return int(Decimal(found[1]) * 1_000)


def _written_load(milli: int) -> str:
    return f'"{_decimal(Decimal(milli) / 1_000)} unit{"" if milli == 1_000 else "s"}/s"'


# --- measures -------------------------------------------------------------------------------------


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise _wrong(value, "a number of bytes as text")
    return byte_count(value, error=ContractError)


def _written_size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count and count % scale == 0:
            return f'"{count // scale} {unit}"'
    return f'"{count} B"'


def _duration_us(value: Any) -> int:
    if not isinstance(value, str):
        raise _wrong(value, "a duration as text, with its unit")
    return duration_us(value, error=ContractError)


def _duration_s(value: Any) -> int:
    us = _duration_us(value)
    if us % SECOND_US:
        raise _wrong(value, "whole seconds")
    return us // SECOND_US


def _written_us(us: int) -> str:
    return f'"{duration_text(us)}"'


def _written_s(seconds: int) -> str:
    return _written_us(seconds * SECOND_US)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_us(value: Any) -> int:
    """Microseconds since the Unix epoch of a date (its midnight, UTC) or a time with its zone.

    Raises:
        ContractError: it is neither, or before the epoch.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise _wrong(value.isoformat(), "a time with its zone, such as 2026-12-01T00:00:00Z")
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day, tzinfo=UTC)
    else:
        raise _wrong(value, "a date or time, without quotes")
    since = moment - _EPOCH
    us = (since.days * 86_400 + since.seconds) * SECOND_US + since.microseconds
    if us < 0:
        raise _wrong(moment.isoformat(), "a time after 1970")
    return us


def date_or_time(text: str) -> date:
    """What a text such as ``2026-12-01`` or ``2026-12-01T08:00:00Z`` says, for ``time_us``.

    Raises:
        ValueError: it is neither.
    """
    return datetime.fromisoformat(text) if len(text) > 10 else date.fromisoformat(text)


def time_text(us: int) -> str:
    """A moment as a document has it: ``2026-12-01T00:00:00Z``."""
    seconds, micros = divmod(us, SECOND_US)
    days, second = divmod(seconds, 86_400)
    moment = datetime.fromordinal(_EPOCH.toordinal() + days)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{moment:%Y-%m-%d}T{clock}{f'.{micros:06}' if micros else ''}Z"


# --- the table ------------------------------------------------------------------------------------

_WHOLE: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_whole, str, "1")
_NAME: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_text, toml_text, '"acme"')
_TIME: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (time_us, time_text, "2026-12-01T00:00:00Z")
_MONEY: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_amount, _written_amount, '"0.02"')
_SECONDS: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_duration_s, _written_s, '"10s"')
_PART: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_share, _written_share, '"99.9 %"')
_LIST: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_names, _written_names, '["clicks"]')
_PLANS: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (
    _planned,
    _written_planned,
    '["clicks/filter for 0.02"]',
)
_BOOL: tuple[Callable[[Any], Any], Callable[[Any], str], str] = (_flag, _written_flag, "true")

FIELDS: tuple[TermsField, ...] = (
    TermsField(("contract",), "id", *_NAME, "its name between the two", required=True),
    TermsField(("version",), "version", *_WHOLE, "a higher one takes the place of a lower one"),
    TermsField(("provider",), "provider", *_NAME, "runs tasks, and is paid", required=True),
    TermsField(("consumer",), "consumer", *_NAME, "has tasks, and pays", required=True),
    TermsField(("begins",), "begins_us", *_TIME, "it counts from then on", required=True),
    TermsField(("ends",), "ends_us", *_TIME, "until before then", required=True),
    TermsField(("notice",), "notice_s", *_SECONDS, "who revokes it says so this long before"),
    TermsField(("shadow",), "shadow", *_BOOL, "nothing is moved: both only write down what would have been"),
    TermsField(("price", "currency"), "currency", _text, toml_text, '"EUR"', "of all amounts"),
    TermsField(("price", "amount"), "price_micro", *_MONEY, "of a unit, at most", required=True),
    TermsField(("price", "range"), "range_micro", *_MONEY, "so much less a unit may cost; 0: fixed"),
    TermsField(
        ("price", "bytes_per_unit"),
        "bytes_per_unit",
        _size,
        _written_size,
        '"100 MB"',
        "so much over the network counts as one unit; a core-second is one, too",
    ),
    TermsField(("price", "cap"), "cap_micro", *_MONEY, "most that one settlement may come to; 0: no cap"),
    TermsField(
        ("load", "most"),
        "units_per_s_max_milli",
        _load,
        _written_load,
        '"4 units/s"',
        "of all tasks that run under it at once",
        required=True,
    ),
    TermsField(("billing", "interval"), "interval_s", *_SECONDS, "each is receipted by itself"),
    TermsField(("billing", "settlement"), "settlement_s", *_SECONDS, "what is owed is settled so often"),
    TermsField(
        ("billing", "tolerance"), "tolerance_ppm", *_PART, "readings may differ by so much without a dispute"
    ),
    TermsField(
        ("promise", "availability"), "availability_ppm", *_PART, "tasks run for this share of the time"
    ),
    TermsField(
        ("promise", "latency"), "latency_us", _duration_us, _written_us, '"500ms"', "rows leave within this"
    ),
    TermsField(("promise", "breach"), "breach_micro", *_MONEY, "paid back for each interval in breach"),
    TermsField(("tasks", "streams"), "tasks.streams", *_LIST, "that may come in"),
    TermsField(("tasks", "boxes"), "tasks.boxes", *_LIST, "kinds that may be in it"),
    TermsField(("tasks", "columns"), "tasks.columns", *_LIST, "that rows may have"),
    TermsField(("tasks", "definitions"), "tasks.definitions", *_LIST, "remote definitions, by name"),
    TermsField(("tasks", "planned"), "planned", *_PLANS, "that go and come at a signal of the consumer"),
    TermsField(("tasks", "resale"), "resale", *_LIST, "to whom the provider may hand one on"),
    TermsField(("sold", "standby"), "standby", *_BOOL, "standbys may be bought under it"),
    TermsField(("sold", "backup"), "backup", *_BOOL, "backups may be bought under it"),
)
