"""Histories at their exact bounds: what is kept by age and by bytes, and times at the edges of records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from medusa.elements import START_US, Boundary, Train
from medusa.engine.core.rows import TIME
from medusa.engine.history import history as module
from medusa.engine.history.history import History
from medusa.engine.history.views import view_of_rows, view_of_times
from medusa.runtime.store.history_store import MemorySegments
from tests.engine.segments import Disk

SCHEMA = pa.schema([("n", pa.int64())])


def train(*times: int) -> Train:
    batch = pa.record_batch({"n": list(times)}, schema=SCHEMA)
    return Train(batch=batch, times=pa.array(times, pa.int64()).cast(TIME))


def history(keep_us: int | None = None, keep_bytes: int | None = None, segments: Any = None) -> History:
    return History(segments or Disk(), SCHEMA, timed=True, keep_us=keep_us, keep_bytes=keep_bytes)


def record(made: History, *times: int, boundary_us: int = int(START_US)) -> None:
    """Rows that are one record."""
    made.append(train(*times), boundary_us)
    made.write()


def kept(made: History, **given: int) -> list[int]:
    return [int(n) for n in view_of_times(made, **given)["n"].to_pylist()]


def test_a_row_goes_when_it_is_older_than_keep_and_not_before() -> None:
    made = history(keep_us=80)
    record(made, 100)
    made.trim(180)
    assert kept(made) == [100]
    made.trim(181)
    assert (kept(made), made.trimmed, made.oldest_seq) == ([], 1, 1)


def test_a_segment_ends_when_it_spans_more_than_an_eighth_of_keep() -> None:
    made = history(keep_us=80)
    record(made, 100)
    made.trim(110)
    record(made, 110)
    assert len(made.segments) == 1
    made.trim(111)
    record(made, 111)
    assert [each.first for each in made.segments] == [0, 2]


def test_a_row_with_a_large_time_keeps_its_segment_until_the_boundary_has_passed_it() -> None:
    made = history(keep_us=80)
    record(made, 100, 500, 101)
    made.trim(400)
    assert kept(made) == [100, 500, 101]
    made.trim(580)
    assert kept(made) == [100, 500, 101]
    made.trim(581)
    assert kept(made) == []


def test_of_several_records_the_largest_time_counts() -> None:
    made = history(keep_us=800)
    record(made, 500)
    record(made, 100)
    assert len(made.segments) == 1
    made.trim(1300)
    assert kept(made) == [500, 100]
    made.trim(1301)
    assert kept(made) == []


@pytest.mark.parametrize("segments", [Disk, MemorySegments])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_rows_that_wait_are_within_the_bytes_too(segments: Any, rows: int) -> None:
    """At every moment, and with little room lost: the oldest goes as late as it can."""
    bound = 1 << 16
    made = history(keep_bytes=bound, segments=segments())
    most = 0
    for first in range(0, 9_000, rows):
        made.append(train(*range(first, first + rows)), int(START_US))
        assert made.nbytes <= bound
        most = max(most, made.nbytes)
    assert made.trimmed
    assert most > bound * 3 // 4


def test_exactly_as_many_bytes_as_allowed_stay() -> None:
    """A segment goes when what is written and two records more are above the bound, not when they are it."""
    probe = history(keep_bytes=1 << 16)
    while len(probe.segments) < 4:
        record(probe, *range(50))
    record(probe, *range(50))
    written = probe.nbytes
    for bound, stay in ((0, 4), (-1, 3)):
        made = history(keep_bytes=1 << 16)
        made._keep_bytes = written + 2 * made._record_bytes + bound
        while made.next_seq < probe.next_seq:
            record(made, *range(50))
        made.trim(0)
        assert len(made.segments) == stay


def test_the_last_segment_stays_whatever_it_takes() -> None:
    made = history(keep_bytes=1 << 16)
    made._keep_bytes = 1
    record(made, 1, 2)
    record(made, 3)
    made.trim(0)
    assert kept(made) == [1, 2, 3]


def test_views_by_time_at_the_edges_of_records() -> None:
    """Records of (least, most): a start is in, an end is out, whether a record is taken whole or in part."""
    made = history(keep_us=1 << 40)
    rows = [[10, 12], [20, 25, 20], [25, 30], [26]]
    for each in rows:
        record(made, *each)
    made.append(train(30, 31), int(START_US))  # and some that wait
    flat = [n for each in [*rows, [30, 31]] for n in each]
    edges = sorted({n + by for n in flat for by in (-1, 0, 1)})
    for start in edges:
        for end in edges:
            assert kept(made, start_us=start, end_us=end) == [n for n in flat if start <= n < end]


def test_views_by_number_at_the_edges_of_records() -> None:
    made = history(keep_us=1 << 40)
    for each in ([0, 1], [2, 3, 4], [5]):
        record(made, *each)
    for first in range(7):
        for end in range(8):
            assert view_of_rows(made, first, end)["n"].to_pylist() == list(range(6))[first:end]


def test_the_first_row_of_a_time_and_the_time_from_which_rows_are_whole() -> None:
    made = history(keep_us=1 << 40)
    flat = [10, 12, 20, 25, 20, 25, 30, 26]
    for first in range(0, 8, 2):
        record(made, *flat[first : first + 2])
    for time in range(9, 33):
        expected = next((seq for seq, n in enumerate(flat) if n >= time), 8)
        assert made.seq_at(time) == expected
    for seq in range(9):
        before = max(flat[:seq], default=None)
        assert made.complete_from(seq) == (int(START_US) if before is None else before + 1)


def test_what_was_promised_before_rows_that_wait_is_read_before_them() -> None:
    made = history(keep_us=1 << 40)
    made.append(train(7, 8), 5)
    made.append(train(9), 6)
    assert made._waiting
    waiting = list(made.read(0))
    assert waiting[0] == Boundary(5)
    assert [type(each) for each in waiting] == [Boundary, Train, Train]
    made.write()
    record(made, 12, boundary_us=11)
    made.append(train(14), 13)
    assert [each.time_us for each in made.read(0) if isinstance(each, Boundary)] == [5, 11, 13]
    assert next(iter(made.read(4))) == Boundary(13)


def test_rows_that_wait_begin_a_record_when_they_span_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a slow stream would keep what waits in one record, and trim it as one."""
    monkeypatch.setattr(module, "RECORD_ROWS", 1 << 20)
    made = history(keep_us=80)
    made.append(train(100), 100)
    made.trim(110)
    assert made._waiting
    made.trim(111)
    assert not made._waiting
