"""Fields that the standard doesn't have are refused by name, at the places where its schema forbids them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from medusa.errors import ContractError
from medusa.query.odcs.document import OdcsFile
from medusa.query.odcs.fields import PARTS, ROOT, unknown_fields
from tests.query.odcs.test_document import HEAD, OFFICIAL
from tests.runtime.contracts.test_content import TEXT

SCHEMA = OFFICIAL.schema
DEFINED = {
    "object": "SchemaObject",
    "quality": "DataQuality",
    "support": "SupportItem",
    "price": "Pricing",
    "team": "Team",
    "member": "TeamMember",
    "role": "Role",
    "promise": "ServiceLevelAgreementProperty",
    "customProperty": "CustomProperty",
    "enumValue": "EnumValue",
    "synonym": "Synonym",
    "relationship": "RelationshipBase",
    "property": "SchemaBaseProperty",
}


def fields_of(node: dict[str, Any]) -> set[str]:
    """All that a part of the schema knows, in whichever branch."""
    if "$ref" in node:
        target: Any = SCHEMA
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    found = set(node.get("properties", {}))
    for each in (*node.get("allOf", ()), *node.get("oneOf", ()), *node.get("anyOf", ())):
        found |= fields_of(each)
    return found | (fields_of(node["then"]) if "then" in node else set())


def options_of(kind: str) -> set[str]:
    """Of a logical type, as the branch for it has them."""
    for branch in SCHEMA["$defs"]["SchemaBaseProperty"]["allOf"]:
        when = branch.get("if", {})
        kinds = [
            each["properties"]["logicalType"]["const"] for each in when.get("anyOf", [when] if when else [])
        ]
        if kind in kinds:
            return set(branch["then"]["properties"]["logicalTypeOptions"]["properties"])
    raise AssertionError(kind)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_fields_are_those_of_the_official_schema(part):
    fields = set(PARTS[part].fields)
    assert set(PARTS[part].within) <= fields or not fields
    context = SCHEMA["$defs"]["Context"]["oneOf"][1]
    if part == ROOT:
        assert fields == fields_of(SCHEMA)
    elif part in DEFINED:
        assert fields == fields_of(SCHEMA["$defs"][DEFINED[part]])
    elif part.startswith("options of "):
        assert fields == options_of(part.removeprefix("options of "))
    elif part == "definition":
        assert fields == fields_of(SCHEMA["$defs"]["AuthoritativeDefinitions"]["items"])
    elif part == "context":
        assert fields == fields_of(context)
    elif part in ("statement", "constraint"):
        name = "verifiedStatements" if part == "statement" else "constraints"
        assert fields == fields_of(context["properties"][name]["items"])
    elif part == "map":
        assert fields == {"key", "value"}
    else:
        assert part in ("server", "description")
        assert not fields


WHOLE = yaml.safe_load(
    TEXT
    + """
team: {name: we, members: [{username: ann}]}
support: [{channel: mail}]
roles: [{role: reader}]
tags: [a]
authoritativeDefinitions: [{url: 'https://example.org', type: definition}]
context: {verifiedStatements: [{question: why, answer: so}], constraints: [{constraint: none}]}
"""
)
WHOLE["schema"][0]["quality"] = [{"metric": "rowCount", "mustBe": 3}]
WHOLE["schema"][0]["properties"][1] |= {
    "enum": [{"value": 1}],
    "synonyms": [{"synonym": "count"}],
    "relationships": [{"to": "views.n"}],
    "quality": [{"metric": "nullValues", "mustBe": 0}],
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where fields stand. What a custom property has for a value is anybody's."""
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        if not (key == "value" and "customProperties" in path):
            yield from places(each, (*path, key))


@pytest.mark.parametrize("path", list(places(WHOLE)), ids=lambda path: ".".join(map(str, path)) or "root")
def test_a_field_too_many_is_found_where_the_official_schema_forbids_it(path):
    OFFICIAL.validate(WHOLE)
    assert not list(unknown_fields(WHOLE))
    plain = yaml.safe_load(yaml.safe_dump(WHOLE))
    inner = plain
    for step in path:
        inner = inner[step]
    inner["nonsense"] = 1
    found = [where for where, _ in unknown_fields(plain)]
    assert found == [(*path, "nonsense")]
    assert not OFFICIAL.is_valid(plain)


def refused(text: str) -> tuple[str, str]:
    with pytest.raises(ContractError) as caught:
        OdcsFile(text, "x.yaml")
    assert caught.value.code == "contract.odcs"
    return caught.value.message, caught.value.hint


def line_of(text: str, word: str) -> int:
    return text[: text.index(word)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "field", "hint"),
    [
        (
            "  physicalType: stream\n",
            "  physicalTyp: stream\n",
            "schema[0].physicalTyp",
            "did you mean 'physicalType'?",
        ),
        (
            "    logicalType: integer\n",
            "    logicalType: integer\n    requierd: true\n",
            "schema[0].properties[1].requierd",
            "did you mean 'required'?",
        ),
        (
            "format: i64",
            "fromat: i64",
            "schema[0].properties[1].logicalTypeOptions.fromat",
            "did you mean 'format'?",
        ),
        ("priceUnit: row", "priceunit: row", "price.priceunit", "did you mean 'priceUnit'?"),
        (
            "property: latency\n  value",
            "property: latency\n  vlaue",
            "slaProperties[1].vlaue",
            "did you mean 'value'?",
        ),
    ],
)
def test_a_slip_is_told_with_its_line_and_what_was_meant(old, new, field, hint):
    assert old in TEXT
    text = TEXT.replace(old, new)
    word = field.rpartition(".")[2]
    assert refused(text) == (
        f"x.yaml line {line_of(text, word)}: {field}: the standard has no such field",
        hint,
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("medusatime", "did you mean 'medusaTime'?"),
        ("medusaTimes", "did you mean 'medusaTime'?"),
        ("meduasTime", "did you mean 'medusaTime'?"),
        ("medusaUnits", "did you mean 'medusaUnit'?"),
        ("medusa", "it belongs into the customProperties of the file"),
    ],
)
def test_a_custom_property_of_ours_that_is_none_is_refused(name, hint):
    text = TEXT.replace("property: medusaTime", f"property: {name}")
    message, said = refused(text)
    assert said == hint
    line = line_of(text, f"property: {name}")
    assert message.startswith(
        f"x.yaml line {line}: schema[0].customProperties[0]: there is no custom property"
    )


def test_a_custom_property_at_another_place_says_nothing_and_is_refused():
    text = TEXT + "- {property: medusaTime, value: ts}\n"
    assert refused(text)[1] == "it belongs into the customProperties of the object of the schema"
    custom = "customProperties: [{property: medusaUnit, value: s}]"
    column = f"{{name: ts, logicalType: timestamp, {custom}}}"
    text = HEAD + f"schema: [{{name: t, properties: [{column}]}}]\n"
    assert refused(text)[1] == "it belongs into the customProperties of the object of the schema"


def test_custom_properties_of_others_are_theirs():
    for name in ("medium", "dataSteward", "time", "unit", "mds"):
        OdcsFile(TEXT.replace("property: medusaTime", f"property: {name}"), "x.yaml")


def test_files_of_older_versions_are_read():
    """A team was a list of members, and rules of quality had a ``rule``."""
    text = HEAD.replace("v3.1.0", "v3.0.0") + (
        "team: [{username: ann, role: owner}]\n"
        "schema: [{name: t, properties: [{name: a, logicalType: string, quality: [{rule: nullCheck}]}]}]\n"
    )
    assert OdcsFile(text, "x.yaml").objects == ["t"]
    wrong = text.replace("username", "user_name")
    assert refused(wrong)[1] == "did you mean 'username'?"
