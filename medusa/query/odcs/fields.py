"""Which fields a file may have, place by place: the standard allows no others, so another one is a slip.

What stands at a place is a part. Its fields are those of version 3.2: those of 3.0 and 3.1, and more.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "PARTS",
    "ROOT",
    "TIME_PROPERTY",
    "TERMS_PROPERTY",
    "UNIT_PROPERTY",
    "OdcsPart",
    "misplaced_properties",
    "unknown_fields",
]

ROOT = "contract"

TERMS_PROPERTY = "medusa"
"""Custom property of the file: what the two parties agree on beside the standard."""

TIME_PROPERTY, UNIT_PROPERTY = "medusaTime", "medusaUnit"
"""Custom properties of an object of a schema: the column that holds the time of a row, and its unit."""

OURS = {TERMS_PROPERTY: "customProperties", TIME_PROPERTY: "schema", UNIT_PROPERTY: "schema"}
"""Custom properties that mean something here, and the field of the file in which they stand."""

Path = tuple[str | int, ...]


class OdcsPart(NamedTuple):
    """What may stand at a place.

    Attributes:
        fields: its fields; empty: any.
        within: field -> the part, or the list of parts, that it holds.
    """

    fields: tuple[str, ...]
    within: Mapping[str, str]


_EVERYWHERE = {"customProperties": "customProperty", "authoritativeDefinitions": "definition"}


def _part(fields: str, **within: str) -> OdcsPart:
    names = tuple(fields.split())
    return OdcsPart(names, {name: part for name, part in _EVERYWHERE.items() if name in names} | within)


_ELEMENT = (
    "id name physicalType description businessName deprecated synonyms authoritativeDefinitions tags"
    " customProperties"
)

PARTS: Mapping[str, OdcsPart] = {
    ROOT: _part(
        "apiVersion kind id name version status tenant tags servers dataProduct description domain context"
        " schema support price team roles slaDefaultElement slaProperties authoritativeDefinitions"
        " customProperties contractCreatedTs",
        description="description",
        context="context",
        servers="server",
        schema="object",
        support="support",
        price="price",
        team="team",
        roles="role",
        slaProperties="promise",
    ),
    "description": OdcsPart((), _EVERYWHERE),
    "context": _part(
        "instructions verifiedStatements constraints",
        verifiedStatements="statement",
        constraints="constraint",
    ),
    "statement": _part("id question answer tags authoritativeDefinitions customProperties"),
    "constraint": _part("id constraint tags authoritativeDefinitions customProperties"),
    # Each type of server has fields of its own, and none is kept: see runtime/contracts.
    "server": OdcsPart((), {"customProperties": "customProperty", "roles": "role"}),
    "object": _part(
        f"{_ELEMENT} logicalType physicalName dataGranularityDescription properties relationships quality"
        " context",
        synonyms="synonym",
        properties="property",
        relationships="relationship",
        quality="quality",
        context="context",
    ),
    "property": _part(
        f"{_ELEMENT} primaryKey primaryKeyPosition logicalType logicalTypeOptions physicalName required"
        " unique semanticType partitioned partitionKeyPosition classification encryptedName"
        " transformSourceObjects transformLogic transformDescription examples criticalDataElement"
        " relationships quality enum properties items map",
        synonyms="synonym",
        relationships="relationship",
        quality="quality",
        enum="enumValue",
        properties="property",
        items="property",
        map="map",
    ),
    "map": _part("key value", key="property", value="property"),
    "quality": _part(
        "id authoritativeDefinitions businessImpact customProperties description dimension method name"
        " schedule scheduler severity tags type unit metric rule arguments query engine implementation"
        " mustBe mustNotBe mustBeGreaterThan mustBeGreaterOrEqualTo mustBeLessThan mustBeLessOrEqualTo"
        " mustBeBetween mustNotBeBetween"
    ),
    "relationship": _part("id type from to customProperties"),
    "support": _part("id channel url description tool scope invitationUrl customProperties"),
    "price": _part("id priceAmount priceCurrency priceUnit"),
    # A list of members up to version 3.0.
    "team": _part(
        "id name description members tags customProperties authoritativeDefinitions", members="member"
    ),
    "member": _part(
        "id username name description role dateIn dateOut replacedByUsername tags customProperties"
        " authoritativeDefinitions"
    ),
    "role": _part("id role description access firstLevelApprovers secondLevelApprovers customProperties"),
    "promise": _part(
        "id property value valueExt unit element driver description scheduler schedule"
        " authoritativeDefinitions customProperties"
    ),
    "customProperty": _part("id property value description vendor"),
    "definition": _part("id type url description"),
    "enumValue": _part("id value label description tags authoritativeDefinitions customProperties"),
    "synonym": _part("id synonym description locale source status customProperties"),
    "options of string": _part("minLength maxLength pattern format"),
    "options of date": _part("format exclusiveMaximum maximum exclusiveMinimum minimum"),
    "options of timestamp": _part(
        "format exclusiveMaximum maximum exclusiveMinimum minimum timezone defaultTimezone"
    ),
    "options of integer": _part("multipleOf maximum exclusiveMaximum minimum exclusiveMinimum format"),
    "options of number": _part("multipleOf maximum exclusiveMaximum minimum exclusiveMinimum format"),
}


def unknown_fields(root: Mapping[str, Any]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Each field that the standard doesn't have: where it stands, and which there are."""
    return _unknown(root, ROOT, ())


def _unknown(value: object, part: str, path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if isinstance(value, list):
        listed = "member" if part == "team" else part
        for at, each in enumerate(value):
            yield from _unknown(each, listed, (*path, at))
    if not isinstance(value, dict):
        return
    fields, within = PARTS[part]
    for key, inner in value.items():
        if fields and key not in fields:
            yield (*path, key), fields
        elif key in within:
            yield from _unknown(inner, within[key], (*path, key))
        elif key == "logicalTypeOptions" and (name := f"options of {value.get('logicalType')}") in PARTS:
            yield from _unknown(inner, name, (*path, key))


def misplaced_properties(root: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Each custom property with a name of ours that says nothing where it stands, or with nearly one: where,
    and what to do."""
    for path, name in _custom_properties(root, ()):
        if name not in OURS:
            if near := _near(name):
                yield path, f"did you mean {near!r}?"
        elif not (path[0] == OURS[name] and len(path) == (2 if name == TERMS_PROPERTY else 4)):
            place = "of the file" if name == TERMS_PROPERTY else "of the object of the schema"
            yield path, f"it belongs into the customProperties {place}"


def _near(name: str) -> str:
    """A name of ours that is written slightly otherwise; empty: it is another's."""
    folded = {each.casefold(): each for each in OURS}
    close = difflib.get_close_matches(name.casefold()[:100], folded, n=1, cutoff=0.85)
    if not close and name.casefold().startswith(TERMS_PROPERTY):
        close = difflib.get_close_matches(name.casefold()[:100], folded, n=1, cutoff=0)
    return folded[close[0]] if close else ""


def _custom_properties(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, list):
        for at, each in enumerate(value):
            yield from _custom_properties(each, (*path, at))
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key != "customProperties":
            yield from _custom_properties(inner, (*path, key))
        elif isinstance(inner, list):
            for at, each in enumerate(inner):
                if isinstance(each, dict) and isinstance(each.get("property"), str):
                    yield (*path, key, at), each["property"]
