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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.query.suggest import did_you_mean
from medusa.units import byte_count, duration_text, duration_us, size_text

__all__ = [
    "DescribedField",
    "bytes_from",
    "choice",
    "described",
    "duration",
    "flag",
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


class FieldKind(ABC):
    """What values a field takes.

    Attributes:
        unit: the end of the attribute's name, which the file leaves out.
    """

    unit = ""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """For people: ``1 MiB to 64 GiB``."""

    @abstractmethod
    def read(self, key: str, value: Any) -> Any:
        """The value, checked.

        Raises:
            _Slip: it is not allowed.
        """

    def shown(self, value: Any) -> str:
        """As one writes it in the file; empty: nothing."""
        return f'"{value}"' if isinstance(value, str) else f"{value:,}" if type(value) is int else str(value)


class MeasureField(FieldKind):
    """An amount with a unit, written as text.

    Args:
        unit: of the attribute.
        parsed: ``byte_count`` or ``duration_us``.
        text: the other way round.
        example: what one may write.
        bare: whether a number without a unit will do.
    """

    def __init__(
        self,
        unit: str,
        parsed: Callable[..., int],
        text: Callable[[int], str],
        least: str,
        most: str,
        example: str,
        *,
        bare: bool,
    ) -> None:
        self.unit = unit
        self.parsed = parsed
        self._text = text
        self._least = parsed(least)
        self._most = parsed(most)
        self._example = example
        self._bare = bare

    @property
    def allowed(self) -> str:
        return f"{self._text(self._least)} to {self._text(self._most)}"

    def shown(self, value: Any) -> str:
        return f'"{self._text(value)}"'

    def read(self, key: str, value: Any) -> int:
        if not self._bare and not isinstance(value, str):
            written = f"{value}s" if type(value) is int else self._example
            hint = f'write {key} = "{written}"; allowed: {self.allowed}'
            raise _Slip(f"{value!r:.80} has no unit", hint)
        try:
            found = self.parsed(value, what=key, error=ConfigError)
        except ConfigError as error:
            why = error.message.removeprefix(f"{key}: ")
            raise _Slip(why, f'write "{self._example}"; allowed: {self.allowed}') from None
        if not self._least <= found <= self._most:
            raise _Slip(f"{value!r:.80} is out of range", f"allowed: {self.allowed}")
        return found


def bytes_from(least: str, most: str, example: str = "64 MiB") -> MeasureField:
    """Numbers of bytes."""
    return MeasureField("_bytes", byte_count, size_text, least, most, example, bare=True)


class _Number(FieldKind):
    def __init__(self, least: float, most: float, noun: str, allowed: str, kinds: tuple[type, ...]) -> None:
        self._least = least
        self._most = most
        self._noun = noun
        self._allowed = allowed
        self._kinds = kinds

    @property
    def allowed(self) -> str:
        return self._allowed

    def read(self, key: str, value: Any) -> float:
        if type(value) not in self._kinds or not self._least <= value <= self._most:
            raise _Slip(f"{value!r:.80} is no {self._noun}", f"allowed: {self._allowed}")
        found: float = self._kinds[0](value)
        return found


class _Choice(FieldKind):
    def __init__(self, options: tuple[str, ...]) -> None:
        self._options = options

    @property
    def allowed(self) -> str:
        return ", ".join(f'"{each}"' for each in self._options)

    def read(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self._options:
            near = did_you_mean(value, self._options) if isinstance(value, str) else ""
            raise _Slip(f"there is no {value!r:.80}", near or f"allowed: {self.allowed}")
        return value


class _Text(FieldKind):
    def __init__(self, form: str, example: str) -> None:
        self._form = re.compile(form)
        self._example = example

    @property
    def allowed(self) -> str:
        return self._example

    def read(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not self._form.fullmatch(value):
            raise _Slip(f"{value!r:.80} can't be", f"write {key} = {self._example}")
        return value


class _Flag(FieldKind):
    @property
    def allowed(self) -> str:
        return "true or false"

    def shown(self, value: Any) -> str:
        return str(value).lower()

    def read(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _Slip(f"expected true or false, got {value!r:.80}", f"write {key} = true")
        return value


class _Names(FieldKind):
    def __init__(self, example: str, noun: str, of: tuple[str, ...]) -> None:
        self._example = example
        self._noun = noun
        self._of = of

    @property
    def allowed(self) -> str:
        return f"{self._noun}, such as {self._example}"

    def shown(self, value: Any) -> str:
        return ""

    def read(self, key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(map(_is_name, value)):
            raise _Slip(f"expected a list of names, got {value!r:.80}", f"write {key} = {self._example}")
        if len(value) > NAMES_MAX:
            raise _Slip(f"{len(value):,} {self._noun}", f"at most {NAMES_MAX:,}")
        if self._of and (wrong := [each for each in value if each not in self._of]):
            hint = did_you_mean(wrong[0], self._of) or f"write {key} = {self._example}"
            raise _Slip(f"{wrong[0]!r:.80} is no {self._noun}", hint)
        return tuple(value)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= NAME_CHARS_MAX and value.isprintable()


# --- declaring ------------------------------------------------------------------------------------


def _field(kind: FieldKind, default: Any, keyed: bool = False) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "keyed": keyed})


def size(default: str | None, least: str, most: str) -> Any:
    """A number of bytes, ``"64 MiB"``."""
    kind = bytes_from(least, most)
    return _field(kind, None if default is None else kind.parsed(default))


def duration(default: str, least: str, most: str) -> Any:
    """A duration, ``"1s"``."""
    kind = MeasureField("_us", duration_us, duration_text, least, most, "1s", bare=False)
    return _field(kind, kind.parsed(default))


def number(
    default: int | None, least: int, most: int, *, noun: str = "such number", keyed: bool = False
) -> Any:
    """A whole number.

    Args:
        keyed: it says nothing where the node has no keys.
    """
    shown = f"{most:,}" if most >= 10_000 else str(most)
    return _field(_Number(least, most, noun, f"{least} to {shown}", (int,)), default, keyed)


def share(default: float, least: float, most: float) -> Any:
    """A part of a whole."""
    allowed = f"a share: {least:g} to {most:g}"
    return _field(_Number(least, most, "such share", allowed, (float, int)), default)


def choice(default: str, options: Iterable[str]) -> Any:
    """One of several words."""
    return _field(_Choice(tuple(options)), default)


def text(default: str, form: str, example: str) -> Any:
    """Text of a form, a regular expression."""
    return _field(_Text(form, example), default)


def flag(default: bool) -> Any:
    """True or false."""
    return _field(_Flag(), default)


def names(example: str, *, noun: str = "patterns", of: Iterable[str] = ()) -> Any:
    """A list of names or patterns, empty where nothing is said.

    Args:
        of: all that there are; nothing: any.
    """
    return _field(_Names(example, noun, tuple(of)), ())


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
    """A field for people.

    Attributes:
        key: its name in the file.
        attribute: where it is kept.
        default: as one writes it; empty: none.
        allowed: in words.
    """

    key: str
    attribute: str
    default: str
    allowed: str


def described(rules: type) -> list[DescribedField]:
    """The fields that a dataclass declares."""
    return [
        DescribedField(
            key,
            field.name,
            "" if field.default is None else field.metadata["kind"].shown(field.default),
            field.metadata["kind"].allowed,
        )
        for key, field in _declared(rules).items()
    ]
