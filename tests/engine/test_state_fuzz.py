"""Damaged state of every kind of box: refused with the name of a file, or harmless; never a crash.

Under the manifest's sums no byte can change unseen. Here the sums are made right again, so what is
left are the checks of values: a state that is taken must be one that runs on to its end.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import Checkpoints, seal, unseal
from medusa.engine.state.delta import read_table, write_table
from medusa.errors import StateError
from medusa.sim.world.disk import Disk
from tests.engine import kinds

KINDS = list(kinds.BUILDS)
LONGS = [-1, 0, 1, 1 << 31, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)]
NUMBERS: list[Any] = [*LONGS, 1 << 80, 1.5, None, "7"]
NAMES = re.compile(r"(fragment\.json|[A-Za-z0-9_-]+\.[a-z0-9-]+\.arrow)")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def state(kind: str) -> tuple[Any, dict[str, bytes]]:
    graph = kinds.query(kind).graph
    fragment = Fragment(graph)
    kinds.push(fragment, 0, 40)
    return graph, kinds.state_of(fragment)


def bytes_changed(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    name = draw.choice(list(files))
    data = bytearray(files[name])
    match draw.randrange(4):
        case 0:
            del data[draw.randrange(len(data)) :]
        case 1:
            data += draw.randbytes(draw.randint(1, 64))
        case 2:
            place = draw.randrange(len(data))
            data[place : place + 8] = draw.randbytes(8)
        case _:
            for _ in range(draw.randint(1, 3)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return {**files, name: bytes(data)}


def swapped(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    one, other = draw.choice(list(files)), draw.choice(list(files))
    return {**files, one: files[other], other: files[one]}


def table_changed(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """Other values, nulls, types, rows: tables that Arrow itself finds nothing wrong with."""
    tables = [name for name in files if name.endswith(".arrow") and read_table(files[name]).num_rows]
    if not tables:
        return bytes_changed(files, draw)
    name = draw.choice(tables)
    table = read_table(files[name])
    place = draw.randrange(table.num_columns)
    field = table.schema.field(place)
    row = draw.randrange(table.num_rows)
    match draw.randrange(6):
        case 0:
            table = table.drop_columns([field.name])
        case 1:
            table = pa.concat_tables([table, table.slice(row)])
        case 2:
            table = table.take(pa.array(draw.sample(range(table.num_rows), table.num_rows)))
        case 3:
            table = table.set_column(place, field.name, pa.array(["?"] * table.num_rows))
        case _:
            values = table.column(place).to_pylist()
            values[row] = None
            if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type):
                numbers = table.column(place).cast(pa.int64(), safe=False).to_pylist()
                numbers[row] = draw.choice(LONGS)
                try:
                    column = pa.array(numbers, pa.int64()).cast(field.type)
                except pa.ArrowException:
                    column = pa.array(values, field.type)
            else:
                column = pa.array(values, field.type)
            table = table.set_column(place, field, column)
    return {**files, name: bytes(write_table(table))}


def index_changed(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    document = json.loads(files["fragment.json"])
    holder: Any = document["boxes"][draw.choice(list(document["boxes"]))]
    key: Any = draw.choice(list(holder))
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.85:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    holder[key] = draw.choice([*NUMBERS, [], {}, "x", True])
    return {**files, "fragment.json": json.dumps(document).encode()}


CHANGES = (bytes_changed, swapped, table_changed, table_changed, index_changed)


def check(kind: str, seed: int) -> bool:
    """Whether changed state was refused; where it was taken it runs to its end."""
    draw = random.Random(f"{kind} {seed}")
    graph, files = state(kind)
    changed = CHANGES[seed % len(CHANGES)](files, draw)
    try:
        fragment = Fragment.restore(graph, changed)
    except StateError as error:
        told = error.message
    else:
        with contextlib.suppress(md.DataError):  # rows that the changed boundary of a source refuses
            kinds.push(fragment, 40, 10)
            fragment.finish()
        return False
    assert NAMES.search(told), told
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_state_is_refused_or_harmless(kind: str) -> None:
    refused = sum(check(kind, seed) for seed in range(15))
    assert refused >= 4


@pytest.mark.full
@pytest.mark.issue(3)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_state_is_refused_or_harmless_at_length(kind: str) -> None:
    for seed in range(15, 315):
        check(kind, seed)


def group(kind: str) -> tuple[Disk, str]:
    disk = Disk("here")
    _, files = state(kind)
    name = Checkpoints(disk).save(files, {"positions": {}})
    return disk, name


@pytest.mark.parametrize("kind", KINDS)
def test_under_the_sums_no_change_at_all_is_taken(kind: str) -> None:
    draw = random.Random(kind)
    disk, name = group(kind)
    good = disk.read(name)
    for turn in range(12):
        group_now = {file: bytes(data) for file, data in good.items()}
        changed = (swapped if turn % 4 == 3 else bytes_changed)(group_now, draw)
        if changed == group_now:
            continue
        with pytest.raises(StateError, match=r"here:/checkpoint-000000001/[a-z]"):
            unseal(changed, disk.where(name))


@pytest.mark.parametrize("value", [None, 7, [], {}, {"base": 7}, {"base": "checkpoint-000000001"}])
def test_manifests_that_lie_about_their_base_are_refused(value: Any) -> None:
    disk, name = group("filter")
    manifest, files = unseal(disk.read(name))
    facts = {"positions": manifest["positions"], "delta": value}
    disk.write("checkpoint-000000002", seal(files, facts))
    if value is None:
        assert Checkpoints(disk).load()[1] == files
        return
    with pytest.raises(StateError, match="manifest"):
        Checkpoints(disk).load()


def test_a_delta_on_itself_is_refused() -> None:
    disk, name = group("filter")
    _, files = unseal(disk.read(name))
    delta = {"base": name, "base_crc32c": "00000000", "same": [], "changed": {}}
    disk._groups[name] = {file: bytes(data) for file, data in seal(files, {"delta": delta}).items()}
    with pytest.raises(StateError, match="a delta on a later one"):
        Checkpoints(disk).load()


def test_offsets_that_lead_out_of_a_column_are_refused() -> None:
    """What only a full check of a table's values finds, before anything reads them."""
    graph, files = state("filter")
    held = read_table(files["o.held.arrow"])
    rows = held.num_rows
    place = held.schema.get_field_index("s")
    text = pa.array(["abcdefg", *[""] * (rows - 1)])
    data = bytes(write_table(held.set_column(place, held.schema.field(place), text)))
    good, bad = ((end.to_bytes(4, "little")) * rows for end in (7, 1 << 20))
    assert data.count(good) == 1
    with pytest.raises(StateError, match=r"o\.held\.arrow"):
        Fragment.restore(graph, {**files, "o.held.arrow": data.replace(good, bad)})
