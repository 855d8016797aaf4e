"""A file of the Open Data Contract Standard: its header, and the columns of what it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from medusa.errors import ContractError, QueryError
from medusa.query.odcs.columns import checked_name, column_type, property_of
from medusa.query.odcs.fields import TIME_PROPERTY, UNIT_PROPERTY, misplaced_properties, unknown_fields
from medusa.query.odcs.yaml_text import BYTES_MAX, YamlText
from medusa.query.structs import Field, Schema
from medusa.query.suggest import did_you_mean
from medusa.query.types import COLUMNS_MAX

__all__ = [
    "API_VERSION",
    "OdcsFile",
    "SourceColumns",
    "columns_for",
    "odcs_text",
]

API_VERSION = "v3.2.0"
"""That our files say."""

API_VERSIONS = ("v3.0.0", "v3.0.1", "v3.0.2", "v3.1.0", "v3.2.0")


class SourceColumns(NamedTuple):
    """What a source of a query takes from a file; ``time`` and ``unit`` where it says so."""

    schema: Schema
    time: str | None
    unit: str | None


class OdcsFile:
    """One reading of one file.

    Args:
        text: YAML or JSON.
        where: what to call it in messages.

    Raises:
        ContractError: no such file, or none of a version that is read; says the line and the field.
    """

    def __init__(self, text: str, where: str) -> None:
        self.yaml = YamlText(text, where)
        root = self.yaml.root
        for path, fields in unknown_fields(root):
            hint = did_you_mean(str(path[-1]), fields)
            raise self.yaml.error(path, "the standard has no such field", hint=hint)
        for path, hint in misplaced_properties(root):
            name = self.at(*path)["property"]
            raise self.yaml.error(path, f"there is no custom property {name!r} of Medusa's here", hint=hint)
        version = self.text("apiVersion")
        if version not in API_VERSIONS:
            hint = f"read are {API_VERSIONS[0]} to {API_VERSIONS[-1]}"
            raise self.yaml.error(("apiVersion",), f"{version!r} can't be read", hint=hint)
        if self.text("kind") != "DataContract":
            raise self.yaml.error(("kind",), f"expected DataContract, got {self.text('kind')!r}")
        self.id, self.version = self.text("id"), self.text("version")

    def text(self, key: str) -> str:
        """A field that must be there and is text.

        Raises:
            ContractError: it isn't; so of all methods.
        """
        value = self.yaml.root.get(key)
        if not isinstance(value, str) or not value:
            came = "nothing" if key not in self.yaml.root else repr(value)
            hint = f'write {key}: "{value}"' if isinstance(value, int | float) else f"add a line: {key}: ..."
            raise self.yaml.error((key,), f"expected text, got {came}", hint=hint)
        return value

    def at(self, *path: str | int) -> Any:
        """What stands at a place; None: nothing."""
        value: Any = self.yaml.root
        for step in path:
            value = value[step] if isinstance(step, int) else value.get(step)
            if value is None:
                break
        return value

    def items(self, *path: str | int) -> list[dict[str, Any]]:
        """A list of fields, such as ``("schema", 0, "properties")``; empty where there is none."""
        value = self.at(*path)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.yaml.error(path, f"expected a list of fields, got {value!r:.80}")
        return value

    def custom(self, *path: str | int) -> dict[str, Any]:
        """Custom properties there, by name; the first of a name counts."""
        found: dict[str, Any] = {}
        for each in self.items(*path, "customProperties"):
            found.setdefault(str(each.get("property")), each.get("value"))
        return found

    @property
    def objects(self) -> list[str]:
        """Names of what the file describes: tables, topics, streams."""
        return [str(each.get("name")) for each in self.items("schema")]

    def object_for(self, name: str) -> int:
        """Where the object stands of which rows are: the only one there is, or the one of this name."""
        names = self.objects
        if not names:
            raise self.yaml.error(("schema",), "it describes nothing: there is no schema")
        if len(names) == 1:
            return 0
        if names.count(name) != 1:
            raise self.yaml.error(
                ("schema",),
                f"it describes {len(names)}, and {names.count(name) or 'none'} of them is {name!r}",
                hint=did_you_mean(name, names) if name not in names else "give each a name of its own",
            )
        return names.index(name)

    def columns(self, at: int) -> SourceColumns:
        """The columns of an object."""
        path = ("schema", at)
        properties = self.items(*path, "properties")
        if not 1 <= len(properties) <= COLUMNS_MAX:
            raise self.yaml.error(path, f"expected 1 to {COLUMNS_MAX:,} properties, got {len(properties):,}")
        fields: list[Field] = []
        seen: dict[str, int] = {}
        for number, each in enumerate(properties):
            place = (*path, "properties", number)
            try:
                name = checked_name(each.get("name"), f"property {number + 1}")
                type = column_type(each)
            except QueryError as error:
                about = f"{each.get('name')!r:.80}: {error.message}"
                raise self.yaml.error(place, about, hint=error.hint) from None
            if name in seen:
                raise self.yaml.error(place, f"{name!r} stands there twice")
            seen[name] = number
            fields.append(Field(name, type))
        custom = self.custom(*path)
        time, unit = custom.get(TIME_PROPERTY), custom.get(UNIT_PROPERTY)
        for key, value in ((TIME_PROPERTY, time), (UNIT_PROPERTY, unit)):
            if not isinstance(value, str | None):
                raise self.yaml.error((*path, "customProperties"), f"{key}: expected text, got {value!r:.80}")
        return SourceColumns(tuple(fields), time, unit)


def columns_for(file: str | PathLike[str], source: str) -> SourceColumns:
    """The columns that a file gives to a source of this name.

    Raises:
        ContractError: it can't be read, or has no columns that a stream could have.
    """
    path = FilePath(file)
    try:
        with path.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise ContractError(f"{path} has more than {BYTES_MAX:,} bytes", code="contract.size")
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ContractError(f"{path} can't be read: {reason}", code="contract.file") from None
    found = OdcsFile(text, str(path))
    return found.columns(found.object_for(source))


def odcs_text(
    *,
    id: str,
    version: str,
    stream: str,
    schema: Schema,
    time: str | None = None,
    unit: str | None = None,
    promises: Sequence[Mapping[str, Any]] = (),
    price: Mapping[str, Any] | None = None,
    custom: Mapping[str, Any] | None = None,
) -> str:
    """A file of ours: YAML that the official schema of version 3.2 takes.

    Args:
        stream: what the columns are of.
        time, unit: of its rows.
        promises: its ``slaProperties``.
        custom: name -> value.

    Raises:
        ContractError: the package PyYAML isn't installed.
    """
    described: dict[str, Any] = {
        "name": stream,
        "logicalType": "object",
        "physicalType": "stream",
        "properties": [property_of(field) for field in schema],
    }
    said = {TIME_PROPERTY: time, UNIT_PROPERTY: unit}
    if any(said.values()):
        described["customProperties"] = _custom({key: value for key, value in said.items() if value})
    plain: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": id,
        "name": stream,
        "version": version,
        "status": "draft",
        "schema": [described],
    }
    if promises:
        plain["slaProperties"] = [dict(each) for each in promises]
    if price is not None:
        plain["price"] = dict(price)
    if custom:
        plain["customProperties"] = _custom(custom)
    return yaml_of(plain)


def _custom(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"property": name, "value": value} for name, value in values.items()]


def yaml_of(plain: Mapping[str, Any]) -> str:
    """Plain values as YAML, in their order.

    Raises:
        ContractError: the package PyYAML isn't installed.
    """
    try:
        import yaml
    except ImportError:
        raise ContractError(
            "files of the Open Data Contract Standard need the package PyYAML",
            hint="pip install 'medusa-streams[contracts]'",
            code="contract.extra",
        ) from None
    return str(yaml.safe_dump(dict(plain), sort_keys=False, allow_unicode=True, width=100))
