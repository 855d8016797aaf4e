"""Histories: whatever is appended, trimmed, lost in a crash and opened again, they hold the rows of the
stream under their numbers, without a hole, and readers and views give what a list of all rows gives."""

from __future__ import annotations

import contextlib
import random
import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import START_US, Boundary, Train
from medusa.engine.core.rows import TIME
from medusa.engine.history import history as module
from medusa.engine.history.history import History
from medusa.engine.history.opening import prepare_history, read_history
from medusa.engine.history.records import ENTRY_BYTES, HEAD_BYTES
from medusa.engine.history.views import view_of_rows, view_of_times
from medusa.errors import StateError
from medusa.runtime.store.history_store import MemorySegments
from tests.engine.segments import Disk

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
EXAMPLES = 60


@dataclass
class Fact:
    """A row as the test knows it."""

    n: int
    time: int
    late: bool
    boundary: int


def open_history(history: History, next_seq: int, most_us: int) -> None:
    """As a restored box does."""
    prepare_history(history, next_seq, most_us)
    history.settle()


@dataclass
class World:
    """A history beside the list of all rows."""

    keep_us: int | None
    keep_bytes: int | None
    segments: Any = field(default_factory=Disk)
    facts: list[Fact] = field(default_factory=list)
    boundary: int = int(START_US)
    saved: tuple[int, int, int] = (0, int(START_US), int(START_US))
    trimmed_to: int = 0
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = self.fresh()

    def fresh(self) -> History:
        return History(self.segments, SCHEMA, timed=True, keep_us=self.keep_us, keep_bytes=self.keep_bytes)

    def append(self, rows: int, chance: random.Random) -> None:
        first = len(self.facts)
        floor = max(0, self.boundary)
        for n in range(first, first + rows):
            late = self.boundary > 0 and chance.random() < 0.1
            time = chance.randrange(self.boundary) if late else floor + chance.randrange(40)
            self.facts.append(Fact(n, time, late, self.boundary))
        new = self.facts[first:]
        late_marks = pa.array([fact.late for fact in new])
        self.history.append(
            Train(
                batch=pa.record_batch(
                    {"n": [fact.n for fact in new], "s": ["x" * (fact.n % 7) for fact in new]}, schema=SCHEMA
                ),
                times=pa.array([fact.time for fact in new], pa.int64()).cast(TIME),
                late=late_marks if late_marks.true_count else None,
            ),
            self.boundary,
        )

    def advance(self, by: int) -> None:
        self.boundary = max(0, self.boundary) + by
        self.history.trim(self.boundary)

    def checkpoint(self) -> None:
        self.history.sync()
        self.saved = (len(self.facts), self.history.most_us, self.boundary)

    def crash(self, chance: random.Random | None) -> None:
        self.segments.crash(chance)
        seq, most_us, self.boundary = self.saved
        oldest = self.history.oldest_seq
        del self.facts[seq:]
        self.history = self.fresh()
        open_history(self.history, seq, most_us)
        self.trimmed_to = 0 if oldest > seq else min(self.trimmed_to, oldest)

    def check(self) -> None:
        history = self.history
        oldest = history.oldest_seq
        assert history.next_seq == len(self.facts) == oldest + history.rows
        assert oldest >= self.trimmed_to
        self.trimmed_to = oldest
        if self.keep_bytes is None and self.keep_us is not None:
            gone = self.facts[:oldest]
            assert all(fact.time < self.boundary - self.keep_us for fact in gone), "trimmed too early"
        if self.keep_bytes is not None:
            assert history.nbytes <= self.keep_bytes
        kept = self.facts[oldest:]
        assert view_of_times(history)["n"].to_pylist() == [fact.n for fact in kept]


def rows_of(history: History, seq: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    told = int(START_US)
    for each in history.read(seq):
        if isinstance(each, Boundary):
            assert each.time_us > told
            told = each.time_us
            continue
        assert isinstance(each, Train)
        assert each.times is not None
        assert each.first_seq == seq + len(found)
        late = each.late.to_pylist() if each.late is not None else [False] * len(each)
        times = each.times.cast(pa.int64()).to_pylist()
        assert all(is_late or time >= told for time, is_late in zip(times, late, strict=True))
        found += zip(
            each.batch["n"].to_pylist(),
            each.batch["s"].to_pylist(),
            times,
            late,
            [told] * len(each),
            strict=True,
        )
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a few rows, segments of a few records."""
    monkeypatch.setattr(module, "RECORD_ROWS", 12)
    monkeypatch.setattr(module, "SEGMENT_BYTES", 2500)


ACTIONS = ("append", "append", "append", "advance", "advance", "sync", "checkpoint", "kill", "cut")


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from([(None, 1 << 16), (15, None), (200, None), (100, 1 << 16)]),
    st.lists(st.sampled_from(ACTIONS), max_size=30),
    st.integers(0, 1 << 32),
)
def test_it_holds_the_rows_of_the_stream(
    keep: tuple[int | None, int | None], actions: list[str], seed: int
) -> None:
    chance = random.Random(seed)
    world = World(*keep)
    for action in actions:
        match action:
            case "append":
                world.append(chance.choice([1, 1, 2, 5, 13, 200]), chance)
            case "advance":
                world.advance(chance.choice([1, 3, 20]))
            case "sync":
                world.history.sync()
                assert world.history.durable_seq == len(world.facts)
            case "checkpoint":
                world.checkpoint()
            case "kill":
                world.crash(None)
            case "cut":
                world.crash(chance)
        world.check()
    reads_as_the_list(world, chance)


def reads_as_the_list(world: World, chance: random.Random) -> None:
    history, facts = world.history, world.facts
    oldest = history.oldest_seq
    times = [fact.time for fact in facts]
    seq = chance.randint(oldest, history.next_seq)
    expected = [(fact.n, "x" * (fact.n % 7), fact.time, fact.late) for fact in facts[seq:]]
    found = rows_of(history, seq)
    assert [row[:4] for row in found] == expected
    assert all(row[4] <= facts[row[0]].boundary for row in found), "promised before the row came"
    time = chance.randint(0, max(times, default=0) + 1)
    assert history.seq_at(time) == next(
        (n for n in range(oldest, len(facts)) if times[n] >= time), len(facts)
    )
    for each in {seq, *(entry.first for _, entry in history.records()), history.next_seq}:
        since = history.complete_from(each)
        assert since == max((time + 1 for time in times[:each]), default=int(START_US))
    low, high = sorted((chance.randint(0, 300), chance.randint(0, 300)))
    kept = facts[oldest:]
    assert view_of_times(history, low, high)["n"].to_pylist() == [f.n for f in kept if low <= f.time < high]
    first, end = sorted((chance.randint(0, len(facts) + 2), chance.randint(0, len(facts) + 2)))
    assert view_of_rows(history, first, end)["n"].to_pylist() == [f.n for f in kept if first <= f.n < end]
    if kept:
        assert history.oldest_us == min(fact.time for fact in kept)
    if oldest:
        with pytest.raises(StateError, match=f"row {oldest - 1} was trimmed, the oldest kept is {oldest}"):
            next(history.read(oldest - 1))


@settings(max_examples=EXAMPLES // 2)
@given(st.lists(st.sampled_from(("append", "advance")), max_size=30), st.integers(0, 1 << 32))
def test_in_memory_too_and_within_its_bound(actions: list[str], seed: int) -> None:
    chance = random.Random(seed)
    world = World(None, 1 << 16, segments=MemorySegments())
    for action in actions:
        if action == "append":
            world.append(chance.choice([1, 13, 400]), chance)
        else:
            world.advance(3)
        world.check()
    reads_as_the_list(world, chance)


def test_a_reader_that_stops_goes_on_where_it_was_while_rows_come() -> None:
    chance = random.Random(4)
    world = World(None, 1 << 16)
    world.append(30, chance)
    reader = (each for each in world.history.read(0) if isinstance(each, Train))
    seen = next(reader).batch["n"].to_pylist()
    world.append(20, chance)
    seen += [n for train in reader for n in train.batch["n"].to_pylist()]
    assert seen == list(range(50))


def test_it_goes_back_into_the_middle_of_a_record() -> None:
    """As after a restore from a checkpoint of a history that was written in other pieces."""
    chance = random.Random(5)
    world = World(None, 1 << 16)
    world.append(40, chance)
    world.history.sync()
    before = rows_of(world.history, 0)
    for seq in (31, 17, 5):
        history = world.fresh()
        world.segments.crash()
        open_history(history, seq, 7)
        assert (history.next_seq, history.most_us) == (seq, max(7, history.most_us))
        assert [row[:4] for row in rows_of(history, 0)] == [row[:4] for row in before[:seq]]


def test_a_history_that_ends_before_the_checkpoint_is_refused() -> None:
    world = World(None, 1 << 16)
    world.append(40, random.Random(6))
    world.history.sync()
    with pytest.raises(StateError, match="ends before row 40, and the checkpoint stands at row 41") as told:
        open_history(world.fresh(), 41, 0)
    assert told.value.code == "state.history"


def test_a_checkpoint_before_all_that_is_kept_begins_an_empty_history() -> None:
    world = World(5, None)
    for _ in range(20):
        world.append(13, random.Random(7))
        world.advance(20)
    assert world.history.oldest_seq > 10
    world.history.sync()
    world.segments.crash()
    history = world.fresh()
    open_history(history, 10, 3)
    assert (history.oldest_seq, history.next_seq, history.rows) == (10, 10, 0)
    assert world.segments.names() == []


def test_the_end_of_the_stream_trims_nothing() -> None:
    world = World(5, None)
    world.append(30, random.Random(8))
    world.history.trim(1 << 62)
    assert world.history.rows == 30


def push_and_sync(world: World, chance: random.Random) -> None:
    for _ in range(12):
        world.append(13, chance)
        world.history.sync()


@pytest.mark.parametrize("fail_in", range(12))
def test_after_a_write_that_failed_nothing_more_is_written(fail_in: int) -> None:
    chance = random.Random(fail_in)
    world = World(None, 1 << 16)
    world.append(25, chance)
    world.checkpoint()
    world.segments.fail_in = fail_in
    with pytest.raises(StateError, match="no space"):
        push_and_sync(world, chance)
    world.segments.fail_in = None
    sizes = {key: len(data) for key, data in world.segments.files.items()}
    with pytest.raises(StateError, match="writing failed before"):
        world.history.sync()
    assert {key: len(data) for key, data in world.segments.files.items()} == sizes
    world.crash(None)
    world.check()
    reads_as_the_list(world, chance)


def test_a_boundary_behind_the_last_row_can_be_left_for_readers() -> None:
    world = World(None, 1 << 16)
    world.append(5, random.Random(9))
    world.history.mark(77)
    world.history.sync()
    history = world.fresh()
    read_history(history)
    assert history.segments[-1].entries[-1].boundary_us == 77
    assert [row[0] for row in rows_of(history, 0)] == list(range(5))
    history = world.fresh()
    world.segments.crash()
    open_history(history, 5, 0)
    assert [row[0] for row in rows_of(history, 0)] == list(range(5))


# -- damage


def written(seed: int = 1) -> World:
    chance = random.Random(seed)
    world = World(None, 1 << 16)
    for _ in range(12):
        world.append(30, chance)
        world.advance(5)
    world.history.sync()
    world.segments.crash()
    assert len(world.segments.names()) > 2
    return world


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_flipped_bytes_take_only_their_rows_and_are_named(data: st.DataObject) -> None:
    """Or the end of the last segment, which a crash may have left so; never a wrong row."""
    world = written()
    disk: Disk = world.segments
    names = disk.names()
    key = data.draw(st.sampled_from(sorted(disk.files)))
    content = disk.files[key]
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    history = world.fresh()
    read_history(history)
    good, bad = 0, 0
    seq = history.oldest_seq
    while seq < history.next_seq:
        try:
            for each in history.read(seq):
                if isinstance(each, Train):
                    rows = each.batch["n"].to_pylist()
                    assert rows == list(range(seq, seq + len(rows)))
                    seq, good = seq + len(rows), good + len(rows)
        except StateError as error:
            told = re.fullmatch(r"disk:/(\d+)\.(rows|index): rows (\d+) to (\d+) are damaged: .*", str(error))
            assert told is not None
            assert (int(told[1]), int(told[3])) == (key[0], seq)
            seq, bad = int(told[4]) + 1, bad + int(told[4]) + 1 - seq
    head = HEAD_BYTES if key[1] == "index" else 400
    following = next((name for name in names if name > key[0]), 360)
    assert bad <= (30 if at >= head else following - key[0])
    missing = 360 - history.next_seq
    assert good + bad + missing == 360
    assert not missing or key[0] == names[-1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 8))
def test_much_damage_never_gives_a_wrong_row(seed: int, many: int) -> None:
    """Also after the run went on behind it."""
    chance = random.Random(seed)
    world = written()
    disk: Disk = world.segments
    for _ in range(many):
        content = disk.files[chance.choice(sorted(disk.files))]
        if chance.random() < 0.2:
            del content[chance.randrange(len(content)) :]
        elif content:
            content[chance.randrange(len(content))] ^= chance.randint(1, 255)
    history = world.fresh()
    seq = chance.choice([200, 360])
    try:
        open_history(history, seq, 50)
    except StateError as error:  # the end of a file is gone
        if error.code == "state.history":
            return
        raise
    history.append(
        Train(batch=pa.record_batch({"n": [seq], "s": ["x"]}, SCHEMA), times=pa.array([60], TIME)), 5
    )
    history.sync()
    for _ in range(2):
        for first in range(history.oldest_seq, seq + 1):
            with contextlib.suppress(StateError):
                assert view_of_rows(history, first, first + 1)["n"].to_pylist() == [first]
        assert view_of_rows(history, seq, seq + 1)["n"].to_pylist() == [seq]
        history = world.fresh()
        read_history(history)
        assert history.next_seq == seq + 1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_with_their_sums_made_right_never_crash(data: st.DataObject) -> None:
    from medusa._native import crc32c

    world = written()
    disk: Disk = world.segments
    first = data.draw(st.sampled_from(disk.names()))
    rows, index = disk.files[first, "rows"], disk.files[first, "index"]
    slot = data.draw(st.integers(0, (len(index) - HEAD_BYTES) // ENTRY_BYTES - 1))
    at = HEAD_BYTES + slot * ENTRY_BYTES
    if data.draw(st.booleans()):
        field_at = at + data.draw(st.integers(0, ENTRY_BYTES - 5))
        index[field_at] ^= data.draw(st.integers(1, 255))
    else:
        start, length = (int.from_bytes(index[at + n : at + n + 8], "little") for n in (16, 24))
        for _ in range(data.draw(st.integers(1, 4))):
            rows[start + data.draw(st.integers(0, length - 1))] ^= data.draw(st.integers(1, 255))
        index[at + 64 : at + 68] = crc32c(bytes(rows[start : start + length])).to_bytes(4, "little")
    index[at + 68 : at + 72] = crc32c(bytes(index[at : at + 68])).to_bytes(4, "little")
    try:
        history = world.fresh()
        read_history(history)
        for seq in range(history.oldest_seq, history.next_seq, 7):
            for each in history.read(seq):
                assert isinstance(each, Boundary) or each.batch.to_pylist() is not None
        view_of_times(history, 3, 90)
        history.seq_at(20)
        open_history(world.fresh(), 200, 0)
    except StateError:
        pass


def test_files_of_other_columns_and_of_later_versions_are_refused() -> None:
    from medusa._native import crc32c

    world = written()
    other = History(world.segments, pa.schema([("n", pa.int32())]), timed=True, keep_us=None, keep_bytes=None)
    with pytest.raises(StateError, match="holds other columns than the stream has"):
        open_history(other, 5, 0)
    index = world.segments.files[world.segments.names()[0], "index"]
    index[8] = 9
    index[20:24] = crc32c(bytes(index[:20])).to_bytes(4, "little")
    with pytest.raises(StateError, match="has version 9, this program reads up to 1") as told:
        open_history(world.fresh(), 5, 0)
    assert told.value.code == "state.version"


def test_a_run_goes_on_behind_damage() -> None:
    """Also where the damaged segment is the last one after going back."""
    world = written()
    names = world.segments.names()
    for file in ("index", "copy"):
        world.segments.files[names[0], file][3] ^= 1
        world.segments.files[names[0], file][HEAD_BYTES + 5] ^= 1
        world.segments.files[names[1], file][HEAD_BYTES + 5] ^= 1
    for seq in (360, names[2], names[1]):
        history = world.fresh()
        world.segments.crash()
        open_history(history, seq, 50)
        history.append(
            Train(batch=pa.record_batch({"n": [seq], "s": ["x"]}, SCHEMA), times=pa.array([60], TIME)), 5
        )
        history.sync()
        assert view_of_rows(history, seq, seq + 1)["n"].to_pylist() == [seq]
        again = world.fresh()
        read_history(again)
        assert again.next_seq == seq + 1
        assert view_of_rows(again, seq, seq + 1)["n"].to_pylist() == [seq]
        with pytest.raises(StateError, match="rows 0 to "):
            view_of_times(again)


def test_a_missing_segment_is_named() -> None:
    world = written()
    middle = world.segments.names()[1]
    for file in ("rows", "index", "copy"):
        del world.segments.files[middle, file]
    history = world.fresh()
    read_history(history)
    with pytest.raises(StateError, match=f"rows {middle} to "):
        list(history.read(middle))
