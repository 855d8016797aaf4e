"""What a read of a spool goes through, and what it gives: the same as of a list."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from medusa.elements import START_US, Train
from medusa.errors import StateError
from medusa.spark.exchange.reader_log import ReaderLog
from tests.engine.segments import Disk

SCHEMA = pa.schema([("v", pa.int64())])


class Counted(list[Any]):
    """A list that counts what is asked of it."""

    asked = 0

    def __getitem__(self, place: Any) -> Any:
        Counted.asked += 1
        return super().__getitem__(place)

    def __iter__(self) -> Any:
        for each in super().__iter__():
            Counted.asked += 1
            yield each


def spool(records: list[range], *, bytes_max: int = 1 << 30) -> ReaderLog:
    made = ReaderLog(Disk(), SCHEMA, bytes_max=bytes_max)
    for numbers in records:
        batch = pa.record_batch({"v": pa.array(numbers, pa.int64())})
        made.append(Train(batch=batch, first_seq=numbers.start), int(START_US))
        made.sync()
    return made


def test_a_read_goes_to_its_rows_and_not_through_all_others() -> None:
    made = spool([range(number, number + 1) for number in range(2000)])
    [segment] = made._segments
    segment.entries = Counted(segment.entries)
    for lo, hi in ((0, 1), (1000, 1003), (1999, 2000)):
        Counted.asked = 0
        piece = made.read(lo, hi)
        assert piece.train is not None
        assert piece.train.batch["v"].to_pylist() == list(range(lo, hi))
        assert Counted.asked < 40
        Counted.asked = 0
        assert made.cuts(lo, hi, 1) == list(range(lo + 1, hi))
        assert Counted.asked < 40


def test_parts_of_all_that_is_there() -> None:
    records = [range(0, 3), range(3, 4), range(4, 9), range(9, 12), range(12, 13)]
    for bytes_max in (1, 1 << 30):  # A segment for each record, and one for all.
        made = spool(records, bytes_max=bytes_max)
        for lo, hi in itertools.combinations(range(14), 2):
            got: list[int] = []
            at = lo
            while at < hi:
                piece = made.read(at, hi, nbytes=400)
                assert piece.train is not None
                assert piece.train.first_seq == at
                got += piece.train.batch["v"].to_pylist()
                at = piece.next
            assert got == list(range(lo, hi))
            assert made.cuts(lo, hi, 1) == [each.start for each in records if lo < each.start < hi]


@pytest.mark.parametrize("bytes_max", [1, 1 << 30])
def test_rows_whose_index_was_lost_are_found_by_its_copy_and_never_removed(bytes_max: int) -> None:
    """The last segment too: it doesn't count as one that was just being begun."""
    made = spool([range(0, 3), range(3, 9)], bytes_max=bytes_max)
    disk: Any = made._port
    disk.crash()
    last = disk.names()[-1]
    before = {key: bytes(data) for key, data in disk.files.items()}
    del disk.files[last, "index"]
    again = ReaderLog(disk, SCHEMA, bytes_max=bytes_max)
    values: list[int] = []
    while len(values) < 9:
        piece = again.read(len(values), 9)
        assert piece.train is not None
        values += piece.train.batch["v"].to_pylist()
    assert values == list(range(9)) == list(range(again.next_seq))
    assert {key: bytes(data) for key, data in disk.files.items()} == before
    del disk.files[last, "index"], disk.files[last, "copy"]
    left = {key: bytes(data) for key, data in disk.files.items()}
    with pytest.raises(StateError, match="is damaged"):
        ReaderLog(disk, SCHEMA, bytes_max=bytes_max)
    assert {key: bytes(data) for key, data in disk.files.items()} == left
