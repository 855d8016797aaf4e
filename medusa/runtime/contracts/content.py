"""A contract about the rows of a stream: a file of the Open Data Contract Standard that two parties sign.

The standard says what the rows are (``schema``, ``quality``), what is promised of them (``slaProperties``)
and what they cost (``price``). Who the two are and how long it counts stands in one custom property:

    customProperties:
      - property: medusa
        value: {contract: clicks, version: 1, provider: acme, consumer: bigco, begins: 2026-12-01,
          ends: 2027-12-01, notice: 30d, interval: 10s, settlement: 30d, breach: "0.50"}

A promise is kept that either party can look at row by row, or measure. Any other is refused by name before
somebody signs it. What promises nothing (team, support, tags, descriptions) is signed as it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from medusa.errors import ContractError, MedusaError
from medusa.market.contract.signed import DOCUMENT_BYTES_MAX, ContentDocument
from medusa.market.money import amount_text, micro_of, money_text
from medusa.nodes.market.content_terms import PERIODS_S, ContentTerms, billing_contract
from medusa.query.odcs.document import OdcsFile, odcs_text
from medusa.query.odcs.fields import TERMS_PROPERTY
from medusa.query.odcs.yaml_text import shown
from medusa.query.suggest import did_you_mean
from medusa.runtime.contracts.terms_fields import date_or_time, time_text, time_us
from medusa.units import TIME_UNITS_US, duration_text, duration_us

__all__ = ["ContentTerms", "check_content", "content_document", "content_text", "not_kept", "read_content"]

FIELDS = (
    *("contract", "version", "provider", "consumer", "begins", "ends", "notice"),
    *("interval", "settlement", "breach", "most", "cap"),
)
PRICE_UNITS = ("row", "query", "unit", "megabyte", "gigabyte", *PERIODS_S)
"""What is counted: rows, answers to queries, units of the market, bytes, time."""

MOST = re.compile(r"([1-9][0-9]{0,8}) rows/s")

NAME = re.compile(r"[a-z0-9_-]{1,64}")
NAME_RULE = "1 to 64 characters of a-z, 0-9, _ and -"

VERSION_MAX = 1 << 31

INFORMATION = ("generalAvailability", "endOfSupport", "endOfLife")
"""Properties of an SLA that say what will be, and promise nothing that could be measured."""

ROW_METRICS = ("nullValues", "missingValues", "invalidValues")
"""Of the standard's library: those that a row breaks by itself, so that each row shows it."""


def read_content(text: str, where: str) -> tuple[OdcsFile, ContentTerms]:
    """What a file says that two parties keep.

    Args:
        where: what to call it in messages.

    Raises:
        ContractError: no such file, terms that are missing or contradict themselves, or a promise that can't
            be kept; says the line and the field.
    """
    file = OdcsFile(text, where)
    for path, why in not_kept(file):
        raise file.yaml.error(
            path,
            f"can't be kept: {why}",
            hint="take it out of the file that is signed",
            code="contract.not_kept",
        )
    given, path = _own_terms(file)

    def part(key: str, kind: type, expected: str, default: Any = None) -> Any:
        value = given.get(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            came = "nothing" if value is None else repr(value)
            raise file.yaml.error((*path, key), f"expected {expected}, got {came}")
        return value

    def moment(key: str) -> int:
        try:
            return time_us(date_or_time(part(key, str, "a date, such as 2026-12-01")))
        except (ContractError, ValueError) as error:
            reason = error.message if isinstance(error, MedusaError) else str(error)
            raise file.yaml.error((*path, key), reason, hint=f"write {key}: 2026-12-01T00:00:00Z") from None

    begins_us, ends_us = moment("begins"), moment("ends")
    if ends_us <= begins_us:
        raise file.yaml.error((*path, "ends"), "expected an end after the begin, got one that isn't")

    def name(key: str, default: str | None = None) -> str:
        text: str = part(key, str, "a name", default)
        if not NAME.fullmatch(text):
            raise file.yaml.error((*path, key), f"expected {NAME_RULE}, got {text!r:.80}")
        return text

    id, provider, consumer = name("contract", file.id), name("provider"), name("consumer")
    if provider == consumer:
        raise file.yaml.error((*path, "consumer"), f"expected another than the provider, got {consumer!r}")

    def seconds(key: str, default: str, least_s: int) -> int:
        try:
            us = duration_us(
                part(key, str, "a duration", default),
                what=key,
                minimum_us=least_s * 1_000_000,
                error=ContractError,
            )
        except ContractError as error:
            reason = error.message.removeprefix(f"{key}: ")
            raise file.yaml.error((*path, key), reason, hint=error.hint) from None
        if us % 1_000_000:
            raise file.yaml.error((*path, key), f"expected whole seconds, got {given[key]!r:.80}")
        return us // 1_000_000

    def amount(key: str) -> int:
        try:
            return micro_of(part(key, str, 'an amount such as "0.50"', "0"), what=key)
        except ContractError as error:
            reason = error.message.removeprefix(f"{key}: ")
            raise file.yaml.error((*path, key), reason, hint=error.hint) from None

    def most() -> int | None:
        if "most" not in given:
            return None
        text: str = part("most", str, "rows a second")
        found = MOST.fullmatch(text)
        if found is None:
            hint = 'write most: "1000 rows/s"'
            raise file.yaml.error((*path, "most"), f"expected rows a second, got {text!r:.80}", hint=hint)
        return int(found[1])

    version = part("version", int, "a whole number", 1)
    if not 1 <= version <= VERSION_MAX:
        raise file.yaml.error((*path, "version"), f"expected 1 to {VERSION_MAX:,}, got {version}")
    price = _price(file)
    return file, ContentTerms(
        id=id,
        version=version,
        provider=provider,
        consumer=consumer,
        begins_us=begins_us,
        ends_us=ends_us,
        notice_s=seconds("notice", "0s", 0),
        streams={name: file.columns(at).schema for at, name in enumerate(file.objects)},
        price_micro=price[0],
        price_unit=price[1],
        currency=price[2],
        latency_us=sum(_latency_us(file, at) for at in _promised(file, "latency")),
        availability_ppm=sum(_availability_ppm(file, at) for at in _promised(file, "availability")),
        breach_micro=amount("breach"),
        interval_s=seconds("interval", "10s", 1),
        settlement_s=seconds("settlement", "1d", 1),
        rows_per_s=most(),
        cap_micro=amount("cap"),
    )


def content_document(text: str, where: str, *, federation: str, until_us: int) -> ContentDocument:
    """What two parties sign of a file: all that it says, in one form.

    Raises:
        ContractError: as ``read_content``; or it is too long.
    """
    file, terms = read_content(text, where)
    if terms.price_micro is None or terms.price_unit in ("row", *PERIODS_S):
        billing_contract(terms)  # It can't contradict itself where nodes bill by it.
    content = json.dumps(file.yaml.root, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if len(content.encode()) > DOCUMENT_BYTES_MAX - 1_024:
        raise ContractError(
            f"{where}: {len(content.encode()):,} bytes of content, at most {DOCUMENT_BYTES_MAX - 1_024:,}"
            " can be signed",
            hint="leave out what promises nothing: examples, descriptions",
            code="contract.size",
        )
    document = ContentDocument(
        federation=federation,
        until_us=until_us,
        id=terms.id,
        version=terms.version,
        provider=terms.provider,
        consumer=terms.consumer,
        begins_us=terms.begins_us,
        ends_us=terms.ends_us,
        content=content,
    )
    check_content(document)
    return document


def check_content(document: ContentDocument) -> ContentTerms:
    """The terms of a signed file, of which some stand beside it too, for who doesn't read it.

    Raises:
        ContractError: the two say different things, or it can't be read.
    """
    _, terms = read_content(document.content, f"contract {document.id!r}")
    for field in ("id", "version", "provider", "consumer", "begins_us", "ends_us"):
        beside, within = getattr(document, field), getattr(terms, field)
        if beside != within:
            raise ContractError(
                f"{field}: {within!r} in the file that is signed, {beside!r} beside it",
                hint="don't sign it",
                code="contract.document",
            )
    return terms


# --- what can be kept -----------------------------------------------------------------------------


def not_kept(file: OdcsFile) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each promise in a file that Medusa can't keep: where, and why not.

    Raises:
        ContractError: a list that is none.
    """
    if file.yaml.root.get("servers"):
        yield ("servers",), "rows come over the nodes of the two parties, not from there"
    if file.yaml.root.get("roles"):
        yield ("roles",), "who may read is said in the configuration of the provider's node"
    for at, each in enumerate(file.items("slaProperties")):
        name = str(each.get("property"))
        if name not in ("latency", "availability", *INFORMATION):
            yield ("slaProperties", at), f"{name!r} isn't measured (latency and availability are)"
    for at, described in enumerate(file.items("schema")):
        yield from _not_kept_of(file, ("schema", at), described)
        for number, each in enumerate(file.items("schema", at, "properties")):
            path = ("schema", at, "properties", number)
            yield from _not_kept_of(file, path, each)
            for promise in ("unique", "primaryKey"):
                if each.get(promise):
                    text = f"that no value of {each.get('name')!r} comes twice is seen in no single row"
                    yield (*path, promise), text
    price = file.yaml.root.get("price")
    unit = price.get("priceUnit") if isinstance(price, dict) else None
    if price is not None and unit not in PRICE_UNITS:
        yield ("price", "priceUnit"), f"{unit!r} isn't counted (these are: {', '.join(PRICE_UNITS)})"


def _not_kept_of(
    file: OdcsFile, path: tuple[str | int, ...], described: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if described.get("relationships"):
        yield (*path, "relationships"), "rows of one stream aren't compared with those of another"
    for at, rule in enumerate(file.items(*path, "quality")):
        kind, metric = rule.get("type", "library"), rule.get("metric", rule.get("rule"))
        if kind == "text":
            continue
        name = f"{kind} {metric or rule.get('name') or rule.get('engine') or ''}".strip()
        if kind != "library" or metric not in ROW_METRICS:
            yield (
                (*path, "quality", at),
                f"quality rule {name!r} isn't one of single rows ({', '.join(ROW_METRICS)})",
            )
        elif rule.get("mustBe") != 0 or isinstance(rule.get("mustBe"), bool):
            yield (
                (*path, "quality", at),
                f"of {metric} it can only be promised that there is none (mustBe: 0)",
            )


# --- reading the parts ----------------------------------------------------------------------------


def _own_terms(file: OdcsFile) -> tuple[dict[str, Any], tuple[str | int, ...]]:
    given = file.items("customProperties")
    at = next((at for at, each in enumerate(given) if each.get("property") == TERMS_PROPERTY), None)
    value = None if at is None else given[at].get("value")
    if at is None or not isinstance(value, dict):
        raise file.yaml.error(
            ("customProperties",),
            f"expected a property {TERMS_PROPERTY!r} with the terms of the two parties, got none",
            hint="medusa contract draft --query writes one",
            code="contract.missing",
        )
    path = ("customProperties", at, "value")
    for key in value:
        if key not in FIELDS:
            raise file.yaml.error((*path, key), "there is no such field", hint=did_you_mean(key, FIELDS))
    return value, path


def _price(file: OdcsFile) -> tuple[int | None, str, str]:
    price = file.yaml.root.get("price")
    if price is None:
        return None, "", ""
    if not isinstance(price, dict):
        raise file.yaml.error(("price",), f"expected fields, got {price!r:.80}")
    amount = price.get("priceAmount")
    if not isinstance(amount, int | float) or isinstance(amount, bool):
        raise file.yaml.error(("price", "priceAmount"), f"expected a number, got {amount!r:.80}")
    currency = price.get("priceCurrency")
    if not isinstance(currency, str) or not (
        len(currency) == 3 and currency.isascii() and currency.isupper()
    ):
        raise file.yaml.error(
            ("price", "priceCurrency"), f"expected a currency such as EUR, got {currency!r:.80}"
        )
    try:
        micro = micro_of(f"{Decimal(repr(amount)):f}")
    except ContractError as error:
        raise file.yaml.error(("price", "priceAmount"), error.message) from None
    if micro < 0:
        raise file.yaml.error(
            ("price", "priceAmount"), f"expected a price of 0 or more, got {money_text(micro, currency)}"
        )
    return micro, str(price["priceUnit"]), currency


def _promised(file: OdcsFile, name: str) -> list[int]:
    """Where a promise of the SLA stands: once, or not at all."""
    places = [at for at, each in enumerate(file.items("slaProperties")) if each.get("property") == name]
    if len(places) > 1:
        raise file.yaml.error(("slaProperties", places[1]), f"{name} is promised twice")
    return places


def _latency_us(file: OdcsFile, at: int) -> int:
    given = file.items("slaProperties")[at]
    value, unit = given.get("value"), given.get("unit", "")
    path = ("slaProperties", at, "value")
    unit = "d" if unit in ("day", "days") else unit
    if unit != "" and unit not in tuple(TIME_UNITS_US):
        raise file.yaml.error(
            (*path[:2], "unit"), f"{unit!r} is no unit", hint=f"units: {' '.join(TIME_UNITS_US)}"
        )
    try:
        return duration_us(
            str(value) if isinstance(value, str) or not unit else f"{value}{unit}",
            what=shown(path),
            minimum_us=1,
            error=ContractError,
        )
    except ContractError as error:
        raise file.yaml.error(path, error.message.removeprefix(f"{shown(path)}: "), hint=error.hint) from None


def _availability_ppm(file: OdcsFile, at: int) -> int:
    given = file.items("slaProperties")[at]
    value, unit = given.get("value"), given.get("unit", "percent")
    text = value.removesuffix("%").strip()[:20] if isinstance(value, str) else repr(value)
    exact = Decimal(text) * 10_000 if text.replace(".", "", 1).isdecimal() else Decimal(-1)
    if unit not in ("percent", "%") or not 0 < exact <= 1_000_000 or exact != int(exact):
        raise file.yaml.error(
            ("slaProperties", at, "value"),
            "expected a share of time in percent, with at most 4 digits behind the point, got"
            f" {value!r} {unit}",
            hint='write value: 99.9 and unit: "percent"',
        )
    return int(exact)


# --- writing --------------------------------------------------------------------------------------


def content_text(terms: ContentTerms, *, time: str | None = None) -> str:
    """A file that says this of one stream: YAML.

    Args:
        time: the column of it that holds the time of a row.

    Raises:
        ContractError: the package PyYAML isn't installed.
    """
    ((stream, schema),) = terms.streams.items()
    promises: list[dict[str, Any]] = []
    if terms.availability_ppm:
        share = _number(Decimal(terms.availability_ppm) / 10_000)
        promises.append({"property": "availability", "value": share, "unit": "percent"})
    if terms.latency_us:
        value, unit = _largest_unit(terms.latency_us)
        promises.append({"property": "latency", "value": value, "unit": unit})
    price = None
    if terms.price_micro is not None:
        amount = _number(Decimal(terms.price_micro) / 1_000_000)
        price = {"priceAmount": amount, "priceCurrency": terms.currency, "priceUnit": terms.price_unit}
    own: dict[str, Any] = {
        "contract": terms.id,
        "version": terms.version,
        "provider": terms.provider,
        "consumer": terms.consumer,
        "begins": time_text(terms.begins_us),
        "ends": time_text(terms.ends_us),
    }
    for key, value, default in (
        ("notice", terms.notice_s, 0),
        ("interval", terms.interval_s, 10),
        ("settlement", terms.settlement_s, 86_400),
    ):
        if value != default:
            own[key] = duration_text(value * 1_000_000)
    for key, micro in (("breach", terms.breach_micro), ("cap", terms.cap_micro)):
        if micro:
            own[key] = amount_text(micro)
    if terms.rows_per_s is not None:
        own["most"] = f"{terms.rows_per_s} rows/s"
    return odcs_text(
        id=terms.id,
        version=f"{terms.version}.0.0",
        stream=stream,
        schema=schema,
        time=time,
        promises=promises,
        price=price,
        custom={TERMS_PROPERTY: own},
    )


def _number(value: Decimal) -> int | float:
    """As YAML has it: the shortest text of a float is the decimal that it was made of, up to 15 digits."""
    return int(value) if value == int(value) else float(value)


def _largest_unit(us: int) -> tuple[int, str]:
    return next((us // scale, unit) for unit, scale in reversed(TIME_UNITS_US.items()) if us % scale == 0)
