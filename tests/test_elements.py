"""A part of a train: some of its rows, and all that its header says of them."""

from __future__ import annotations

import pyarrow as pa

from medusa.elements import Kind, Train

TIME = pa.timestamp("us", "UTC")


def train(late: list[bool] | None = None) -> Train:
    return Train(
        batch=pa.record_batch({"n": [10, 11, 12, 13]}),
        times=pa.array([0, 1, 2, 3], TIME),
        first_seq=5,
        kind=Kind.TENTATIVE,
        late=None if late is None else pa.array(late),
        extent=(0, 3),
        arrival_us=77,
    )


def test_a_part_has_the_rows_their_numbers_and_their_times() -> None:
    part = train().part(1, 2)
    assert part.batch.to_pydict() == {"n": [11, 12]}
    assert part.times is not None
    assert part.times.equals(pa.array([1, 2], TIME))
    assert (part.first_seq, part.kind, part.arrival_us) == (6, Kind.TENTATIVE, 77)
    assert part.late is None
    assert part.extent is None  # That of all rows says nothing of these.


def test_a_part_says_that_rows_are_late_where_one_is() -> None:
    late = [False, False, True, False]
    assert train(late).part(0, 2).late is None
    found = train(late).part(1, 3).late
    assert found is not None
    assert found.to_pylist() == [False, True, False]


def test_a_part_shares_memory_and_all_of_a_train_is_the_train() -> None:
    whole = train()
    assert whole.part(0, 4) is whole
    [column] = whole.part(2, 1).batch.columns
    assert column.buffers()[1].address == whole.batch.columns[0].buffers()[1].address
