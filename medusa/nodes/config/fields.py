"""Fields of a table of the configuration, declared where they are kept: default, least, most.

    class StreamRule:
        weight: int = number(1, 1, 1000)
        retention_bytes: int | None = size(None, "1 MiB", "64 GiB")

Reading, errors and docs/configuration.md follow from that. In the file names have no unit:
``retention = "16 MiB"``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.query.suggest import did_you_mean
from medusa.units import byte_count, duration_text, duration_us, size_text

__all__ = [
    "DescribedField",
    "bytes_kind",
    "choice",
    "described",
    "duration",
    "flag",
    "matches",
    "names",
    "number",
    "read_fields",
    "read_value",
    "share",
    "size",
    "text",
]

NAMES_MAX = 1000
NAME_CHARS_MAX = 255


class _Slip(Exception):
    """What is wrong with a value, and what would be right."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What values a field takes.

    Attributes:
        read: of a key and what stands in the file makes the value, or raises ``_Slip``.
        allowed: for people: ``1 MiB to 64 GiB``.
        unit: the end of the attribute's name, which the file leaves out.
    """

    read: Callable[[str, Any], Any]
    allowed: str
    unit: str = ""


# --- declaring ------------------------------------------------------------------------------------


def _field(kind: FieldKind, default: Any, shown: str, keyed: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "shown": shown, "keyed": keyed})


def size(default: str | None, least: str, most: str) -> Any:
    """A number of bytes, ``"64 MiB"``."""
    value = None if default is None else byte_count(default)
    return _field(bytes_kind(least, most), value, "" if default is None else f'"{default}"')


def bytes_kind(least: str, most: str, example: str = "64 MiB") -> FieldKind:
    """Numbers of bytes."""
    return _measure("_bytes", byte_count, size_text, least, most, example)


def duration(default: str, least: str, most: str) -> Any:
    """A duration, ``"1s"``."""
    kind = _measure("_us", duration_us, duration_text, least, most, "1s")

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, str):
            hint = f'write {key} = "{f"{value}s" if type(value) is int else "1s"}"; allowed: {kind.allowed}'
            raise _Slip(f"{value!r:.80} has no unit", hint)
        return kind.read(key, value)

    return _field(dataclasses.replace(kind, read=read), duration_us(default), f'"{default}"')


def _measure(
    unit: str, parsed: Callable[..., int], shown: Callable[[int], str], least: str, most: str, example: str
) -> FieldKind:
    low, high = parsed(least), parsed(most)
    allowed = f"{shown(low)} to {shown(high)}"

    def read(key: str, value: Any) -> int:
        try:
            found = parsed(value, what=key, error=ConfigError)
        except ConfigError as error:
            why = error.message.removeprefix(f"{key}: ")
            raise _Slip(why, f'write "{example}"; allowed: {allowed}') from None
        if not low <= found <= high:
            raise _Slip(f"{value!r:.80} is out of range", f"allowed: {allowed}")
        return found

    return FieldKind(read, allowed, unit)


def number(
    default: int | None, least: int, most: int, *, noun: str = "such number", keyed: bool = False
) -> Any:
    """A whole number.

    Args:
        keyed: it says nothing where the node has no keys.
    """
    allowed = f"{least} to {most:,}" if most >= 10_000 else f"{least} to {most}"

    def read(key: str, value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _Slip(f"{value!r:.80} is no {noun}", f"allowed: {allowed}")
        return value

    return _field(FieldKind(read, allowed), default, "" if default is None else str(default), keyed)


def share(default: float, least: float, most: float) -> Any:
    """A part of a whole."""
    allowed = f"a share: {least:g} to {most:g}"

    def read(key: str, value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:
            raise _Slip(f"{value!r:.80} is no such share", f"allowed: {allowed}")
        return float(value)

    return _field(FieldKind(read, allowed), default, str(default))


def choice(default: str, options: tuple[str, ...]) -> Any:
    """One of several words."""
    allowed = ", ".join(f'"{each}"' for each in options)

    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in options:
            near = did_you_mean(value, options) if isinstance(value, str) else ""
            raise _Slip(f"there is no {value!r:.80}", near or f"allowed: {allowed}")
        return value

    return _field(FieldKind(read, allowed), default, f'"{default}"')


def text(default: str, form: str, example: str) -> Any:
    """Text of a form, a regular expression."""

    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(form, value):
            raise _Slip(f"{value!r:.80} can't be", f"write {key} = {example}")
        return value

    return _field(FieldKind(read, example), default, f'"{default}"')


def flag(default: bool) -> Any:
    """True or false."""

    def read(key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _Slip(f"expected true or false, got {value!r:.80}", f"write {key} = true")
        return value

    return _field(FieldKind(read, "true or false"), default, str(default).lower())


def names(example: str, *, noun: str = "patterns", of: tuple[str, ...] = ()) -> Any:
    """A list of names or patterns, empty where nothing is said.

    Args:
        of: all that there are; nothing: any.
    """

    def read(key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(map(_is_name, value)):
            raise _Slip(f"expected a list of names, got {value!r:.80}", f"write {key} = {example}")
        if len(value) > NAMES_MAX:
            raise _Slip(f"{len(value):,} {noun}", f"at most {NAMES_MAX:,}")
        if wrong := next((each for each in value if of and each not in of), ""):
            raise _Slip(f"{wrong!r:.80} is no {noun}", did_you_mean(wrong, of) or f"write {key} = {example}")
        return tuple(value)

    return _field(FieldKind(read, f"{noun}, such as {example}"), (), "")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= NAME_CHARS_MAX and value.isprintable()


@lru_cache(maxsize=10_000)
def matches(pattern: str, name: str) -> bool:
    """Whether a name is as the pattern says; ``*`` stands for any text. Linear in the name."""
    first, *middle = pattern.split("*")
    if not middle:
        return name == pattern
    last = middle.pop()
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


# --- reading --------------------------------------------------------------------------------------


def _declared(rules: type) -> dict[str, dataclasses.Field[Any]]:
    """By the name in the file."""
    fields = [field for field in dataclasses.fields(rules) if "kind" in field.metadata]
    return {field.name.removesuffix(field.metadata["kind"].unit): field for field in fields}


def read_fields(
    file: ConfigFile, table: str, given: Mapping[str, Any], rules: type, more: Iterable[str] = ()
) -> dict[str, Any]:
    """The fields of a table that the file has, by attribute.

    Args:
        table: its name, for messages.
        rules: the dataclass that declares them.
        more: fields that the caller reads.

    Raises:
        ConfigError: a field that there isn't, or a value that isn't allowed; says the line, the field and
            what is allowed.
    """
    fields = _declared(rules)
    file.known(table, given, (*fields, *more))
    found: dict[str, Any] = {}
    for key in (key for key in given if key in fields):
        field = fields[key]
        if field.metadata["keyed"] and "keys" not in file.root:
            hint = "without keys only this machine reaches the node: leave it out, or add [keys]"
            raise file.error(table, "says nothing without keys", hint=hint, within=key, code="config.keys")
        found[field.name] = read_value(file, table, key, given[key], field.metadata["kind"])
    return found


def read_value(file: ConfigFile, table: str, key: str, value: Any, kind: FieldKind) -> Any:
    """One value.

    Raises:
        ConfigError: see ``read_fields``.
    """
    try:
        return kind.read(key, value)
    except _Slip as slip:
        raise file.error(table, slip.why, hint=slip.hint, within=key) from None


class DescribedField(NamedTuple):
    """A field for people: its name in the file, the attribute, the default (empty: none), what is allowed."""

    key: str
    attribute: str
    default: str
    allowed: str


def described(rules: type) -> list[DescribedField]:
    """The fields that a dataclass declares."""
    return [
        DescribedField(key, field.name, field.metadata["shown"], field.metadata["kind"].allowed)
        for key, field in _declared(rules).items()
    ]
