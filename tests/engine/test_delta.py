"""Checkpoints as deltas: any tables come back, chains hold together, and crashes leave one that does."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.state import delta
from medusa.engine.state.checkpoint import DELTAS_MAX, Checkpoints, read_chain
from medusa.engine.state.readable_json import json_text, readable
from medusa.errors import StateError
from medusa.sim.world.disk import Disk

SECRET = (3, 5)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr("medusa.engine.state.checkpoint.FULL_BYTES_MIN", 0)


def table(values: list[Any]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(values, pa.int64()),
            "text": pa.array([None if v % 3 == 0 else str(v) for v in values], pa.string()),
            "set": pa.array([[v, None] for v in values], pa.list_(pa.int64())),
        }
    )


def plain(files: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: delta.read_table(data).to_pylist() for name, data in files.items()}


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_row_of_tables_comes_back(tables: list[list[int]], slices: bool) -> None:
    before: delta.Tables = {}
    parts: dict[str, delta.Part] = {}
    for values in tables:
        files = {"x.arrow": delta.write_table(table(values)), "y.json": b"{}"}
        made = delta.cut(files, before, SECRET)
        if before:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(delta, "SLICES_MAX", 64 if slices else 0)
                parts = delta.patch(parts, made.plan(), made.files, "here")
        else:
            parts = dict(made.files)
        before = made.rows
        found = parts["x.arrow"]
        assert (found if isinstance(found, pa.Table) else delta.read_table(found)).equals(table(values))
        assert set(parts) == set(files)


def test_what_moves_up_and_what_changes_costs_little() -> None:
    rows = np.arange(20_000)
    full = {"x.arrow": delta.write_table(pa.table({"k": rows, "v": rows * 7}))}
    base = delta.cut(full, {}, SECRET)
    again = delta.cut(full, base.rows, SECRET)
    assert again.same == ["x.arrow"]
    assert not again.files
    values = rows * 7
    values[::500] = 1
    after = {"x.arrow": delta.write_table(pa.table({"k": rows, "v": values}).slice(3_000))}
    made = delta.cut(after, base.rows, SECRET)
    assert made.changed == {"x.arrow": 17_000}
    assert made.nbytes < made.whole_bytes / 20
    assert plain(delta.as_files(delta.patch(full, made.plan(), made.files, ""))) == plain(after)
    other = {"x.arrow": delta.write_table(pa.table({"k": rows, "v": rows + 1}))}
    assert set(delta.cut(other, base.rows, SECRET).files) == {"x.arrow"}  # nothing in common: whole


def state(values: list[int]) -> dict[str, Any]:
    return {"x.arrow": delta.write_table(table(values)), "fragment.json": b"{}"}


def grown(turn: int) -> list[int]:
    return [*range(2000), *range(5000, 5000 + turn)]


def test_chains_end_and_old_ones_go_as_a_whole() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    kinds = []
    for turn in range(2 * DELTAS_MAX + 4):
        name = checkpoints.save(state(grown(turn)), {"turn": turn})
        kinds.append("manifest.json" in disk.read(name) and "x.arrow" in disk.read(name))
        for each in checkpoints.names()[:: 1 if turn > 2 * DELTAS_MAX else 9]:  # all can be read
            manifest, files = Checkpoints(disk).load(each)
            assert plain({"x.arrow": files["x.arrow"]}) == {
                "x.arrow": table(grown(manifest["turn"])).to_pylist()
            }
        bases = [each for each in checkpoints.names() if "x.arrow" in disk.read(each)]
        assert turn == 0 or turn <= DELTAS_MAX or len(bases) == 2
    assert kinds.index(True, 1) == DELTAS_MAX + 1
    assert len(checkpoints.names()) <= 2 * (DELTAS_MAX + 1)


def test_deltas_that_have_grown_give_way_to_a_whole_one() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    whole = []
    for turn in range(10):
        name = checkpoints.save(
            state([v + (turn if v % 1000 == 0 else 0) for v in range(0, 300_000, 100)]), {}
        )
        whole.append("x.arrow" in disk.read(name))
    assert True in whole[1:]
    assert not all(whole)


def test_a_write_that_fails_leaves_the_chain_as_it_was() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    draw = random.Random(4)
    last = -1
    for turn in range(40):
        if draw.random() < 0.4:
            disk.fail_next = 1
            with pytest.raises(StateError):
                checkpoints.save(state(grown(turn)), {"turn": turn})
        else:
            checkpoints.save(state(grown(turn)), {"turn": turn})
            last = turn
        if draw.random() < 0.3:  # the process dies and comes back
            checkpoints = Checkpoints(disk, secret=SECRET)
        if last >= 0:
            manifest, files = checkpoints.load() if draw.random() < 0.2 else Checkpoints(disk).load()
            assert manifest["turn"] == last
            assert delta.read_table(files["x.arrow"]).equals(table(grown(last)))


def test_the_next_delta_is_on_what_lies_there_not_on_what_failed() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    checkpoints.save(state(grown(0)), {})
    disk.fail_next = 1
    with pytest.raises(StateError):
        checkpoints.save(state(grown(5)), {})
    name = checkpoints.save(state(grown(6)), {})
    assert "x.fresh.arrow" in disk.read(name)
    assert delta.read_table(Checkpoints(disk).load()[1]["x.arrow"]).equals(table(grown(6)))


def chain(step: int = 3) -> tuple[Disk, list[str]]:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    for turn in range(4):
        checkpoints.save(state(grown(turn * step)), {})
    return disk, checkpoints.names()


def test_a_missing_or_swapped_link_is_named() -> None:
    disk, names = chain()
    del disk._groups[names[1]]
    with pytest.raises(StateError, match=names[1]):
        Checkpoints(disk).load()
    disk, names = chain()
    other, others = chain()
    disk._groups[names[1]] = other._groups[others[2]]
    with pytest.raises(StateError, match=f"{names[1]}/manifest.json was written as {names[2]!r}"):
        Checkpoints(disk).load()
    disk, names = chain()
    disk._groups[names[1]] = chain(step=4)[0]._groups[names[1]]  # of another run, as backups may mix them
    with pytest.raises(StateError, match=f"{names[1]} is not the one that .*{names[2]} was written after"):
        Checkpoints(disk).load()
    disk, names = chain()
    disk._groups[names[0]]["x.arrow"] = disk._groups[names[0]]["x.arrow"][:-1]
    with pytest.raises(StateError, match=rf"{names[0]}/x\.arrow is damaged"):
        Checkpoints(disk).load()


def test_damage_to_a_base_leaves_the_chain_before() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk, secret=SECRET)
    for turn in range(DELTAS_MAX + 4):
        checkpoints.save(state(grown(turn)), {})
    base = read_chain(checkpoints.names()[-1], disk.read, disk.where)[2][0]
    disk._groups[base]["x.arrow"] = b"gone"
    with pytest.raises(StateError, match="is damaged") as error:
        Checkpoints(disk).load()
    assert "is whole" in str(error.value.hint)


PLANS: list[dict[str, Any]] = [
    {"same": ["z.arrow"], "changed": {}},
    {"same": ["x.arrow"], "changed": {"x.arrow": 3}},
    {"same": [], "changed": {"x.arrow": 4}},
    {"same": [], "changed": {"z.arrow": 3}},
]


@pytest.mark.parametrize("plan", PLANS)
def test_plans_that_dont_fit_are_refused(plan: dict[str, Any]) -> None:
    with pytest.raises(StateError, match=r"here/[xz]\.arrow"):
        delta.patch(state([1, 2]), plan, pieces([0, 2], [2, 1], [9]), "here")


def pieces(starts: list[Any], lengths: list[Any], fresh: list[int]) -> dict[str, Any]:
    return {
        "x.runs.arrow": delta.write_table(
            pa.table({"start": pa.array(starts, pa.int64()), "length": pa.array(lengths, pa.int64())})
        ),
        "x.fresh.arrow": delta.write_table(table(fresh)),
    }


BIG = (1 << 63) - 1


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ([-1], [3]),
        ([0], [4]),
        ([1], [3]),
        ([0, None], [2, 1]),
        ([0, 1], [BIG, 4]),
        ([BIG], [3]),
        ([0, 0], [0, 3]),
        ([0, 0], [-1, 4]),
    ],
)
def test_runs_that_leave_the_tables_are_refused(starts: list[Any], lengths: list[Any]) -> None:
    good = pieces([0, 2], [2, 1], [9])
    plan = {"same": [], "changed": {"x.arrow": 3}}
    made = delta.as_files(delta.patch(state([1, 2]), plan, good, ""))
    assert [row["n"] for row in plain({"x": made["x.arrow"]})["x"]] == [1, 2, 9]
    with pytest.raises(StateError, match="can't be put together"):
        delta.patch(state([1, 2]), plan, pieces(starts, lengths, [9]), "here")


def test_a_table_without_digests_is_written_whole() -> None:
    text = pa.array(["a", "b", "a"]).dictionary_encode()
    files = {"x.arrow": delta.write_table(pa.table({"t": text}))}
    made = delta.cut(files, {}, SECRET)
    assert made.rows == {}
    assert set(made.files) == {"x.arrow"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=300, deadline=None)
def test_documents_are_to_the_byte_what_json_makes_of_them(values: Any) -> None:
    assert readable(json_text(values)) == json.dumps(values, indent=1).encode()


@given(st.lists(st.lists(st.integers(0, 9), max_size=400), min_size=1, max_size=4), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_table_in_pieces_is_the_same_file(chunks: list[list[int]], cut: int) -> None:
    held = pa.concat_tables([table(values).slice(cut) for values in chunks])
    pieces = delta.table_pieces(held)
    assert b"".join(pieces) == bytes(delta.write_table(held))
    assert delta.size_of(pieces) == delta.size_of(delta.write_table(held))


def test_columns_of_a_table_in_pieces_are_its_own_memory() -> None:
    held = pa.table({"n": np.arange(1 << 16)})
    (buffer,) = (each for each in held["n"].chunk(0).buffers() if each is not None)
    at = [np.frombuffer(piece, np.uint8).ctypes.data for piece in delta.table_pieces(held) if len(piece)]
    assert buffer.address in at
