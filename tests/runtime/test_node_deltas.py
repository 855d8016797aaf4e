"""Checkpoints of nodes as deltas: what is read back is the state of that moment, whatever failed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.engine.state import background_copy, checkpoint, delta
from medusa.engine.state.checkpoint import DELTAS_MAX
from medusa.engine.state.delta import read_table, together
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord
from medusa.nodes.reports import Persisted
from medusa.ports import Buffer
from medusa.runtime.engine_host.group_names import GroupName, group_name
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.repair.folder_contents import newest_checkpoint
from medusa.runtime.store.checkpoint_copy import CheckpointCopy, read_copy, read_state
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Persist
from tests.runtime.engine_by_hand import Ticking
from tests.runtime.test_host import AtOnce

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "int64", "v": "int64"}
NAME = "f"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 8)
    monkeypatch.setattr(checkpoint, "FULL_BYTES_MIN", 0)


CALLS: dict[str, Any] = {"n": md.count(), "total": "sum(v)"}
SHAPES: dict[str, Callable[[Any], Any]] = {
    "window": lambda s: s.window("40 us", "20 us").group_by("k").aggregate(**CALLS),
    "sessions": lambda s: s.session("30 us").group_by("k").aggregate(**CALLS),  # compared, at least in part
    "join": lambda s: s.join(s.select("k", w="v"), on="k", within="10 us"),
}


def query(shape: str) -> md.Query:
    q = md.Query(NAME)
    q.sink("out", SHAPES[shape](q.source("rows", SCHEMA, time="ts", slack="20 us")))
    return q


class Node:
    """A host with one fragment, and its disk."""

    def __init__(self, disk: Disk | None = None, worker: Any = AtOnce, shape: str = "window") -> None:
        self.shape = shape
        self.disk = disk or Disk("d")
        self.host = EngineHost(self.disk, Ticking(), wake=lambda: None, worker=worker)
        self.graph = query(shape).graph
        self.token = 0
        self.now = 0

    def begin(self) -> Node:
        self.host.open(NAME, self.graph)
        return self

    def again(self) -> Node:
        """The node starts anew, from what lies there."""
        found = self.newest()
        other = Node(self.disk, shape=self.shape)
        other.token, other.now = self.token, self.now
        needed = {found.record.token: (*found.record.tokens(), *found.stands_on)}
        other.host.resume(NAME, found.fragment, needed)
        return other

    def newest(self, warn: Any = None) -> Any:
        spec: Any = SimpleNamespace(name=NAME, graph=self.graph)
        return newest_checkpoint(self.disk, self.disk.names(), spec, Ticking(), warn or pytest.fail)

    @property
    def fragment(self) -> Fragment:
        found = self.host._running[NAME].fragment
        assert found is not None
        return found

    def feed(self, seed: int, rows: int, keys: int, passed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self.now += passed
        times = pa.array(self.now + np.sort(draw.integers(0, 10, rows)), pa.timestamp("us", "UTC"))
        k = draw.integers(0, keys, rows)
        batch = pa.record_batch({"ts": times, "k": k, "v": k + seed})
        for element in (Train(batch=batch), Boundary(self.now)):
            self.fragment.feed("rows", element)
        self.fragment.drain("out")

    def persist(self) -> bool:
        """Write a checkpoint; whether it is durable."""
        self.begin_write()
        (told,) = (each for each in self.host.finished() if isinstance(each, Persisted))
        assert told.token == self.token
        return told.ok

    def begin_write(self) -> None:
        self.token += 1
        record = FragmentRecord(
            token=self.token, fragment=NAME, mixed=False, inputs=(), outputs=(), fed_us={}, decided=0
        )
        files = {RECORD: record.to_bytes(), LOG: b"output" * 100}
        self.host.persist(Persist(token=self.token, fragment=NAME, files=files))

    def deltas(self) -> list[int]:
        """Tokens of the groups there that hold only what changed."""
        groups = self.disk.groups()
        return sorted(
            GroupName.of(name).number
            for name, files in groups.items()
            if any(file.endswith(".fresh.arrow") for file in files)
        )

    def tokens(self) -> list[int]:
        groups = map(GroupName.of, self.disk.names())
        return sorted(group.number for group in groups if group.kind == "checkpoint")

    def state(self, token: int) -> dict[str, Buffer]:
        files = read_state(self.disk, group_name(NAME, token))[1]
        return {name: data for name, data in files.items() if name not in (RECORD, LOG)}


def same(found: dict[str, Buffer], wanted: dict[str, Buffer]) -> bool:
    return found.keys() == wanted.keys() and all(
        read_table(found[name]).equals(read_table(data), check_metadata=True)
        for name, data in wanted.items()
        if name.endswith(".arrow")
    )


STEPS = st.tuples(
    st.integers(0, 50),
    st.sampled_from([1, 9, 300]),
    st.integers(0, 25),
    st.sampled_from(["nothing", "write", "write", "write", "fail", "restart"]),
)


@pytest.mark.parametrize("shape", SHAPES)
@given(steps=st.lists(STEPS, min_size=5, max_size=30))
@settings(max_examples=12, deadline=None)
def test_every_checkpoint_is_the_state_of_its_moment(
    shape: str, steps: list[tuple[int, int, int, str]]
) -> None:
    node = Node(shape=shape).begin()
    wanted: dict[int, dict[str, Buffer]] = {}
    node.feed(1, 400, 300)
    for step, (rows, keys, passed, what) in enumerate(steps):
        node.feed(step, rows, keys, passed)
        if what == "restart" and wanted:
            node = node.again()
            continue
        node.disk.fail_next = what == "fail"
        if what in ("write", "fail"):
            state = node.fragment.snapshot()
            if node.persist():
                wanted[node.token] = state
        node.disk.fail_next = 0
        # The last two can be read; so can every other that lies there and isn't a part of one.
        last = sorted(wanted)[-2:]
        assert set(last) <= set(node.tokens())
        for token in set(wanted) & set(node.tokens()):
            assert same(node.state(token), wanted[token])


def test_a_delta_holds_what_changed_and_chains_end() -> None:
    node = Node().begin()
    node.feed(1, 30_000, 20_000)
    sizes = []
    for turn in range(2 * DELTAS_MAX + 4):
        assert node.persist()
        files = node.disk.groups()[group_name(NAME, node.token)]
        sizes.append(sum(len(data) for name, data in files.items() if name.endswith(".arrow")))
        node.feed(turn, 2, 20_000)
        assert len(node.tokens()) <= 2 * (DELTAS_MAX + 1)
    wholes = [turn for turn, size in enumerate(sizes) if size > sizes[0] // 2]
    assert wholes == [0, DELTAS_MAX + 1, 2 * (DELTAS_MAX + 1)]
    assert max(size for turn, size in enumerate(sizes) if turn not in wholes) < sizes[0] / 50


def test_a_damaged_base_leaves_the_chain_before_and_a_wrong_one_is_refused() -> None:
    node = Node().begin()
    node.feed(1, 3000, 1000)
    states = {}
    for turn in range(DELTAS_MAX + 6):
        states[node.token + 1] = node.fragment.snapshot()
        assert node.persist()
        node.feed(turn, 2, 1000)
    newest = group_name(NAME, node.token)
    chain = read_state(node.disk, newest)[2]
    assert len(chain) > 2
    groups = node.disk._groups
    honest = dict(groups)
    groups[chain[0]] = {**groups[chain[0]], "fragment.json": b"{}"}
    told: list[str] = []
    found = node.newest(told.append)
    assert found is not None
    assert len(told) >= 2
    assert same(found.fragment.snapshot(), states[found.record.token])
    # Another checkpoint of the same fragment in the place of a link.
    groups.update(honest)
    other = Node().begin()
    other.feed(2, 3000, 1000)
    for _ in range(DELTAS_MAX + 6):
        assert other.persist()
        other.feed(3, 2, 1000)
    groups[chain[-2]] = other.disk._groups[chain[-2]]
    with pytest.raises(StateError, match="is not the one that .* was written after"):
        node.state(node.token)


def test_what_it_restarted_from_stays_with_all_that_it_stands_on() -> None:
    node = Node().begin()
    node.feed(1, 3000, 1000)
    for turn in range(5):
        assert node.persist()
        node.feed(turn, 2, 1000)
    before = node.newest()
    assert len(before.stands_on) > 1
    node = node.again()
    assert node.persist()
    assert {*before.stands_on, node.token} <= set(node.tokens())
    assert same(node.state(before.record.token), before.fragment.snapshot())


class Slow(AtOnce):
    """The disk does its jobs when the test says so."""

    jobs: ClassVar[list[Callable[[], None]]] = []

    def give(self, job: Callable[[], None]) -> None:
        if self.name == "medusa-disk":
            self.jobs.append(job)
        else:
            job()


@pytest.mark.parametrize("fails", [(), (0,), (1,), (0, 1)])
def test_state_is_taken_again_before_the_last_is_on_disk(fails: tuple[int, ...]) -> None:
    node = Node(worker=Slow).begin()
    node.feed(1, 3000, 1000)
    states: dict[int, dict[str, Buffer]] = {}

    def begin(count: int) -> None:
        for _ in range(count):
            states[node.token + 1] = node.fragment.snapshot()
            node.begin_write()
            node.feed(node.token, 2, 1000)

    def write(fails: tuple[int, ...] = ()) -> list[bool]:
        for at in range(len(Slow.jobs)):
            node.disk.fail_next = at in fails
            Slow.jobs.pop(0)()
        node.disk.fail_next = 0
        return [each.ok for each in node.host.finished() if isinstance(each, Persisted)]

    write()
    begin(2)
    assert write() == [True, True]
    for count in (2, 1, 2):
        begin(count)
        found = write(fails if count == 2 else ())
        assert found == [count != 2 or at not in fails for at in range(count)]
        for token in node.tokens()[-2:]:
            assert same(node.state(token), states[token])
    # One too late: what it would stand on is gone by then. It fails as a write does; the next goes on.
    begin(3)
    assert write() == [True, True, False]
    begin(1)
    assert write() == [True]
    assert same(node.state(node.token), states[node.token])


def copy_of(node: Node, base: int = 0, base_sum: str = "") -> CheckpointCopy:
    def name_of(token: int, segment: bool) -> str:
        return group_name(NAME, token)

    return read_copy(node.disk, NAME, node.token, name_of, base=base, base_sum=base_sum)


def state_of(files: dict[str, Buffer]) -> dict[str, Buffer]:
    return {name: data for name, data in files.items() if name not in (RECORD, LOG)}


def test_a_copy_for_another_node_is_whole() -> None:
    node = Node().begin()
    node.feed(1, 3000, 1000)
    for turn in range(4):
        wanted = node.fragment.snapshot()
        assert node.persist()
        node.feed(turn, 2, 1000)
    assert node.token in node.deltas()
    copy = copy_of(node)
    assert (copy.base, copy.deltas) == (0, ())
    assert same(state_of(copy.files), wanted)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("since", range(1, 6))
def test_a_copy_on_a_base_has_all_deltas_since(since: int, shape: str) -> None:
    node = Node(shape=shape).begin()
    node.feed(1, 3000, 1000)
    copies, wanted = {}, {}
    for turn in range(6):
        assert node.persist()
        copies[node.token], wanted = copy_of(node), node.fragment.snapshot()
        node.feed(turn, 2, 1000)
    before = copies[since]
    copy = copy_of(node, since, before.sum)
    assert copy.base == since
    assert [(each.base, each.token) for each in copy.deltas] == [(n, n + 1) for n in range(since, 6)]
    assert not state_of(copy.files)
    made = together(state_of(before.files), copy.deltas, "made")
    assert same(made, wanted)


def test_a_copy_on_what_it_does_not_stand_on_is_whole() -> None:
    node = Node().begin()
    node.feed(1, 3000, 1000)
    sums = {}
    for turn in range(DELTAS_MAX + 3):  # A new chain has begun.
        assert node.persist()
        sums[node.token] = copy_of(node).sum
        wanted = node.fragment.snapshot()
        node.feed(turn, 2, 1000)
    for base, base_sum in ((5, sums[5]), (node.token - 1, sums[5]), (node.token - 1, ""), (99, sums[5])):
        copy = copy_of(node, base, base_sum)
        assert (copy.base, copy.deltas) == (0, ())
        assert same(state_of(copy.files), wanted)
    assert copy_of(node, node.token - 1, sums[node.token - 1]).base == node.token - 1


def test_tables_that_are_compared_cost_what_changed_too() -> None:
    node = Node(shape="sessions").begin()
    node.feed(1, 30_000, 20_000)
    sizes = []
    for turn in range(4):
        wanted = node.fragment.snapshot()
        assert node.persist()
        assert same(node.state(node.token), wanted)
        files = node.disk.groups()[group_name(NAME, node.token)]
        sizes.append(sum(len(data) for name, data in files.items() if name.endswith(".arrow")))
        node.feed(turn, 2, 20_000)
    assert max(sizes[1:]) < sizes[0] / 50


def test_little_state_is_written_whole_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FULL_BYTES_MIN", 1 << 16)
    node = Node().begin()
    node.feed(1, 300, 100)
    for turn in range(5):
        assert node.persist()
        node.feed(turn, 2, 100)
    assert not node.deltas()
    assert node.tokens() == [4, 5]
    assert all(b'"version": 2' in files["manifest.json"] for files in node.disk.groups().values())
