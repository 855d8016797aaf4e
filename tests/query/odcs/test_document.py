"""Files of the Open Data Contract Standard: ours pass the official schema, those of others are read."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.errors import ContractError, QueryError
from medusa.query.odcs.document import OdcsFile, columns_for, odcs_text
from medusa.query.odcs.yaml_text import BYTES_MAX
from medusa.query.structs import Field
from medusa.query.types import TYPES

OFFICIAL = jsonschema.Draft201909Validator(
    json.loads((Path(__file__).resolve().parents[2] / "data" / "odcs-3.2.0.schema.json").read_text("utf-8"))
)
"""The schema of the standard, as ``datacontract lint`` has it."""

HEAD = "apiVersion: v3.1.0\nkind: DataContract\nid: c1\nversion: 1.0.0\nstatus: active\n"


def checked(text: str) -> dict:
    """The file, where the official schema takes it."""
    plain = yaml.safe_load(text)
    OFFICIAL.validate(plain)
    return plain


def read(text: str) -> OdcsFile:
    return OdcsFile(text, "x.odcs.yaml")


def test_a_file_that_is_too_long_is_not_read_as_a_whole(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(HEAD + "#" * (16 * BYTES_MAX))
    tracemalloc.start()
    try:
        with pytest.raises(ContractError, match="more than 1,048,576 bytes") as caught:
            columns_for(path, "clicks")
        assert tracemalloc.get_traced_memory()[1] < 4 * BYTES_MAX
    finally:
        tracemalloc.stop()
    assert caught.value.code == "contract.size"


types = st.sampled_from(TYPES) | st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: f"decimal128({p}, {s})")
)
names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
schemas = st.lists(st.builds(Field, names, types), min_size=1, max_size=8, unique_by=lambda f: f.name).map(
    tuple
)


@given(schemas, st.booleans())
@settings(deadline=None, max_examples=60)
def test_what_we_write_is_of_the_standard_and_reads_back(schema, timed):
    time = schema[0].name if timed else None
    text = odcs_text(id="c1", version="1.0.0", stream="clicks", schema=schema, time=time)
    checked(text)
    found = read(text)
    assert found.objects == ["clicks"]
    assert found.columns(0) == (schema, time, None)


def test_all_parts_are_written():
    text = odcs_text(
        id="c1",
        version="1.0.0",
        stream="clicks",
        schema=(Field("ts", "int64"),),
        time="ts",
        unit="ms",
        promises=[{"property": "latency", "value": 5, "unit": "s"}],
        price={"priceAmount": 0.02, "priceCurrency": "EUR", "priceUnit": "row"},
        custom={"medusa": {"provider": "acme"}},
    )
    plain = checked(text)
    assert plain["apiVersion"] == "v3.2.0"
    assert plain["slaProperties"] == [{"property": "latency", "value": 5, "unit": "s"}]
    assert plain["price"]["priceAmount"] == 0.02
    assert read(text).custom() == {"medusa": {"provider": "acme"}}
    assert read(text).columns(0).unit == "ms"


# What others write: columns as in the examples of the standard and of tools that export from databases.
OTHERS = [
    ("logicalType: string", "utf8"),
    ("logicalType: string, physicalType: varchar(18)", "utf8"),
    ("logicalType: string, physicalType: nvarchar2(5)", "utf8"),
    ("logicalType: string, physicalType: json", "utf8"),
    ("logicalType: string, logicalTypeOptions: {format: binary}", "binary"),
    ("logicalType: string, physicalType: bytes", "binary"),
    ("logicalType: string, physicalType: bigint", "utf8"),
    ("logicalType: integer", "int64"),
    ("logicalType: integer, physicalType: int", "int32"),
    ("logicalType: integer, physicalType: NUMBER(38)", "int64"),
    ("logicalType: integer, logicalTypeOptions: {format: u8}", "uint8"),
    ("logicalType: integer, logicalTypeOptions: {minimum: 18, exclusiveMaximum: 100}", "int64"),
    ("logicalType: number", "float64"),
    ("logicalType: number, logicalTypeOptions: {minimum: 0, format: f32}", "float32"),
    ("logicalType: number, physicalType: 'decimal(10, 2)'", "decimal128(10, 2)"),
    ("logicalType: number, physicalType: 'numeric(10,2)'", "decimal128(10, 2)"),
    ("logicalType: number, physicalType: int", "int32"),
    ("logicalType: integer, physicalType: int, logicalTypeOptions: {format: i64}", "int64"),
    ("logicalType: integer, physicalType: bigint, logicalTypeOptions: {format: i8}", "int64"),
    ("logicalType: number, physicalType: double, logicalTypeOptions: {format: f32}", "float64"),
    (
        "logicalType: number, physicalType: 'decimal(9, 2)', logicalTypeOptions: {format: f64}",
        "decimal128(9, 2)",
    ),
    ("logicalType: boolean, physicalType: bool", "bool"),
    ("logicalType: date", "date32"),
    ("logicalType: date, physicalType: timestamp", "timestamp[us, UTC]"),
    ("logicalType: timestamp", "timestamp[us, UTC]"),
    ("logicalType: timestamp, physicalType: timestamp_tz", "timestamp[us, UTC]"),
    ("physicalType: double", "float64"),
    ("physicalType: VARCHAR(30)", "utf8"),
]


@pytest.mark.parametrize(("given_as", "type"), OTHERS)
def test_columns_of_others(given_as, type):
    text = f"{HEAD}schema:\n- name: t\n  properties:\n  - {{name: a, {given_as}}}\n"
    checked(text)
    assert read(text).columns(0).schema == (Field("a", type),)


@pytest.mark.parametrize(
    ("given_as", "says"),
    [
        ("logicalType: array, items: {logicalType: string}", "the logicalType 'array'"),
        ("logicalType: object", "the logicalType 'object'"),
        ("logicalType: time", "the logicalType 'time'"),
        ("logicalType: map, map: {key: {logicalType: string}, value: {logicalType: string}}", "'map'"),
        ("logicalType: vector, logicalTypeOptions: {dimensions: 3}", "'vector'"),
        (
            "physicalType: geography",
            "no logicalType, and no column of a stream has the physicalType 'geography'",
        ),
        ("businessName: A", "no logicalType"),
        ("logicalType: integer, logicalTypeOptions: {format: i128}", "the format 'i128'"),
    ],
)
def test_a_column_that_no_stream_has_is_refused_by_name_and_line(given_as, says):
    text = f"{HEAD}schema:\n- name: t\n  properties:\n  - name: ok\n    logicalType: string\n"
    text += f"  - {{name: a, {given_as}}}\n"
    checked(text)
    with pytest.raises(ContractError) as caught:
        read(text).columns(0)
    assert caught.value.message.startswith("x.odcs.yaml line 11: schema[0].properties[1]: 'a': no ")
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: DataContract", "kind: DataProduct", "line 2: kind: expected DataContract, got 'DataProduct'"),
        ("id: c1\n", "", "id: expected text, got nothing"),
        ("version: 1.0.0", "version: 1.0", 'line 4: version: expected text, got 1.0 (write version: "1.0")'),
        ("apiVersion: v3.1.0", "apiVersion: v2.2.2", "line 1: apiVersion: 'v2.2.2' can't be read"),
        ("status: active", "state: active", "line 5: state: the standard has no such field (did you mean"),
        ("status: active", "schema: tables", "line 5: schema: expected a list of fields, got 'tables'"),
        ("status: active", "status: active", "schema: it describes nothing"),
        (
            "status: active",
            "schema: [{name: t}]",
            "line 5: schema[0]: expected 1 to 10,000 properties, got 0",
        ),
        (
            "status: active",
            "schema: [{name: t, properties: [{name: a, logicalType: date}, {name: a, logicalType: date}]}]",
            "schema[0].properties[1]: 'a' stands there twice",
        ),
        (
            "status: active",
            "schema: [{name: t, properties: [{logicalType: date}]}]",
            "schema[0].properties[0]: None: property 1: None can't be a column name",
        ),
        (
            "status: active",
            "schema: [{name: t, customProperties: [{property: medusaTime, value: 3}],"
            " properties: [{name: a, logicalType: date}]}]",
            "medusaTime: expected text, got 3",
        ),
    ],
)
def test_what_is_no_such_file(old, new, says):
    def columns():
        found = read(HEAD.replace(old, new))
        return found.columns(found.object_for("t"))

    with pytest.raises(ContractError) as caught:
        columns()
    assert says in str(caught.value)


SEVERAL = """\
schema:
- name: clicks
  customProperties: [{property: medusaTime, value: at}, {property: medusaUnit, value: ms}]
  properties:
  - {name: at, logicalType: integer}
  - {name: user, logicalType: string}
- name: views
  properties: [{name: ts, logicalType: timestamp}]
"""


@pytest.fixture
def several(tmp_path):
    path = tmp_path / "x.odcs.yaml"
    path.write_text(HEAD + SEVERAL)
    checked(path.read_text())
    return path


def test_a_source_takes_the_columns_of_the_object_of_its_name(several):
    q = md.Query("q")
    clicks = q.source("clicks", contract=several)
    views = q.source("views", contract=str(several))
    assert clicks.schema == {"at": "int64", "user": "utf8"}
    assert views.schema == {"ts": "timestamp[us, UTC]"}
    source = q.graph.boxes[0]
    assert (source.time, source.unit) == ("at", "ms")
    assert q.source("untimed", {"ts": "timestamp"}).timed
    with pytest.raises(ContractError, match="it describes 2, and none of them is 'other'") as caught:
        q.source("other", contract=several)
    assert "clicks" in caught.value.hint


def test_what_is_said_in_the_program_counts_before_the_file(several):
    q = md.Query("q")
    assert not q.source("clicks", contract=several, time=None).timed
    assert q.graph.boxes[0].time is None


def test_a_file_that_describes_one_thing_may_call_it_anything(tmp_path):
    path = tmp_path / "one.json"
    text = odcs_text(id="c", version="1.0.0", stream="a.b", schema=(Field("ts", "timestamp[us, UTC]"),))
    path.write_text(json.dumps(yaml.safe_load(text)))
    assert md.Query("q").source("mine", contract=path).schema == {"ts": "timestamp[us, UTC]"}


def test_a_query_keeps_the_columns_and_not_the_file(several):
    q = md.Query("q")
    q.sink("out", q.source("views", contract=several))
    several.unlink()
    assert md.Query.from_json(q.to_json()).graph == q.graph


def test_what_a_source_can_not_take(several, tmp_path):
    q = md.Query("q")
    with pytest.raises(QueryError, match="schema= beside contract="):
        q.source("clicks", {"ts": "timestamp"}, contract=several)
    with pytest.raises(ContractError, match="can't be read: No such file"):
        q.source("clicks", contract=tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ContractError, match="no UTF-8"):
        columns_for(tmp_path / "bytes.yaml", "clicks")
    several.write_text(HEAD + SEVERAL.replace("medusaTime", "other"))
    with pytest.raises(QueryError, match="time column 'ts' is not in the schema"):
        q.source("clicks", contract=several)
    assert q.graph.boxes == ()
