"""The document of a contract about load: TOML, read with the line in every error, and written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from medusa.errors import ContractError
from medusa.market.contract.checks import contradictions
from medusa.market.contract.signed import DOCUMENT_BYTES_MAX
from medusa.market.contract.terms import Contract, TaskTerms
from medusa.nodes.config.toml_lines import toml_fault, toml_lines
from medusa.query.suggest import did_you_mean
from medusa.runtime.contracts.terms_fields import FIELDS, TermsField

__all__ = ["read_terms", "terms_text"]

_BY_PATH = {field.path: field for field in FIELDS}
_BY_ATTRIBUTE = {field.attribute: field for field in FIELDS}
_TABLES = tuple(dict.fromkeys(field.path[0] for field in FIELDS if len(field.path) == 2))


class _Text:
    """A document, and where its fields stand."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        try:
            self.root: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ContractError(
                f"{where} {toml_fault(text, error)}", hint="see docs/contracts.md", code="contract.toml"
            ) from None
        self._text = text

    def error(self, path: tuple[str, ...], text: str, hint: str, code: str) -> ContractError:
        """What to raise about a field; one that isn't there has the line of its table."""
        lines = toml_lines(self._text)
        line = next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 0)
        where = f"{self._where} line {line}" if line else self._where
        return ContractError(f"{where}: {'.'.join(path)}: {text}", hint=hint, code=code)


def read_terms(text: str, where: str) -> Contract:
    """The contract that a document describes.

    Args:
        where: what to call it in messages.

    Raises:
        ContractError: no TOML, a field that there isn't, that is missing or that isn't as it must be, or
            terms that contradict themselves; says the line, the field, what was expected, what came, and
            what to do.
    """
    if len(text.encode(errors="replace")) > DOCUMENT_BYTES_MAX:
        raise ContractError(
            f"{where}: a document has at most {DOCUMENT_BYTES_MAX:,} bytes", code="contract.size"
        )
    document = _Text(text, where)
    given = _given(document)
    values: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    for path, value in given.items():
        field = _BY_PATH[path]
        try:
            read = field.read(value)
        except ContractError as error:
            reason = (
                error.message.removeprefix("amount is ").removeprefix("duration: ").removeprefix("size: ")
            )
            hint = error.hint or f"write {path[-1]} = {field.example}"
            raise document.error(path, reason, hint, error.code) from None
        table, _, name = field.attribute.rpartition(".")
        (tasks if table else values)[name] = read
    for field in FIELDS:
        if field.required and field.path not in given:
            place = f" below [{field.path[0]}]" if len(field.path) == 2 else ""
            hint = f"add a line{place}: {field.path[-1]} = {field.example}"
            raise document.error(field.path, f"missing: {field.says}", hint, "contract.missing")
    contract = Contract(**values, tasks=TaskTerms(**tasks))
    wrong = next(contradictions(contract), None)
    if wrong is not None:
        path = _path_of(wrong.field)
        if path not in given and (other := _cause(wrong.field, given)):
            path = other
        raise document.error(path, wrong.text, wrong.hint, "contract.terms")
    return contract


def _given(document: _Text) -> Mapping[tuple[str, ...], Any]:
    """What stands in the document, by path."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in document.root.items():
        if key in _TABLES:
            if not isinstance(value, dict):
                raise document.error(
                    (key,),
                    f"expected a table, got {value!r:.80}",
                    f"write [{key}], its fields below",
                    "contract.value",
                )
            found.update({(key, inner): each for inner, each in value.items()})
        else:
            found[key,] = value
    for path in found:
        if path not in _BY_PATH:
            raise document.error(path, "there is no such field", _place_of(path), "contract.field")
    return found


def _place_of(path: tuple[str, ...]) -> str:
    """Where a field belongs that stands at the wrong place, or one of nearly that name."""
    homes = [field.path for field in FIELDS if field.path[-1] == path[-1]]
    if homes:
        table = f"below [{homes[0][0]}]" if len(homes[0]) == 2 else "above all tables"
        return f"it belongs {table}"
    beside = [field.path[-1] for field in FIELDS if field.path[:-1] == path[:-1]]
    return did_you_mean(path[-1], beside if len(path) == 2 else (*beside, *_TABLES))


def _path_of(attribute: str) -> tuple[str, ...]:
    field = _BY_ATTRIBUTE.get(attribute.split("[")[0])
    return field.path if field is not None else ()


def _cause(attribute: str, given: Mapping[tuple[str, ...], Any]) -> tuple[str, ...]:
    """Where a field isn't there, whose default contradicts another: that other one, if it is."""
    others = {"interval_s": "ends_us", "settlement_s": "interval_s", "units_per_s_max_milli": "price_micro"}
    path = _path_of(others.get(attribute, ""))
    return path if path in given else ()


def terms_text(contract: Contract) -> str:
    """A contract as a document, which reads back as the same: what it must say, and what isn't usual."""
    lines: list[str] = []
    table: tuple[str, ...] = ()
    for field in FIELDS:
        value, usual = _value(contract, field), _usual(field)
        if value == usual and not field.required:
            continue
        if field.path[:-1] != table:
            table = field.path[:-1]
            lines += ["", f"[{table[0]}]"]
        lines.append(f"{field.path[-1]} = {field.written(value)}".ljust(44) + f"  # {field.says}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _value(contract: Contract, field: TermsField) -> Any:
    table, _, name = field.attribute.rpartition(".")
    return getattr(contract.tasks if table else contract, name)


def _usual(field: TermsField) -> Any:
    """Its default; no value where there is none."""
    table, _, name = field.attribute.rpartition(".")
    return next(
        each.default for each in structs.fields(TaskTerms if table else Contract) if each.name == name
    )
