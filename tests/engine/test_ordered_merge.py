"""A merge in order of arrival, fed as links feed it: boundaries go missing, rows stay in their order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.elements import END_US, Boundary, Element, Train
from medusa.engine.core.rows import as_times
from medusa.engine.operators import ordered_merge
from medusa.engine.operators.ordered_merge import OrderedMergeBox
from medusa.query.boxes import OrderedMerge
from medusa.query.structs import Field, Input

Arc = list[Element]
SCHEMA = (Field("n", "int64"), Field("_position", "int64"))
NUMBERED = pa.schema([("n", pa.int64()), ("_position", pa.int64())])


def train(*rows: tuple[int, int]) -> Train:
    """Rows as (number, time)."""
    numbers = pa.array([n for n, _ in rows], pa.int64())
    return Train(
        batch=pa.RecordBatch.from_arrays([numbers, numbers], schema=NUMBERED),
        times=as_times(pa.array([us for _, us in rows], pa.int64()).to_numpy()),
    )


def box_of(parts: int) -> tuple[OrderedMergeBox, list[tuple[int, Element]]]:
    """A merge, and what leaves it."""
    inputs = tuple(Input(f"part{n}") for n in range(parts))
    spec = OrderedMerge(id="merge", inputs=inputs, positions=("_position",), arrival=True)
    box = OrderedMergeBox(spec, input=SCHEMA, output=SCHEMA[:1])
    out: list[tuple[int, Element]] = []
    box.connect("", out, 0)
    return box, out


def checked(out: list[tuple[int, Element]]) -> list[int]:
    """The numbers that left; no row lies below a boundary that left before it."""
    numbers: list[int] = []
    promised_us = -1
    for _, element in out:
        if isinstance(element, Boundary):
            promised_us = element.time_us
        else:
            assert isinstance(element, Train)
            assert element.times is not None
            assert min(element.times.cast(pa.int64()).to_pylist()) >= promised_us
            numbers += element.batch.column(0).to_pylist()
    return numbers


@st.composite
def arcs(draw: Any) -> tuple[int, list[Arc]]:
    """How many rows there are, and what each part sends of them: its rows and, of all boundaries, some."""
    parts = draw(st.integers(2, 3))
    sent: list[Arc] = [[] for _ in range(parts)]
    number, now_us = 0, 0
    for _ in range(draw(st.integers(1, 8))):
        for _ in range(draw(st.integers(0, 4))):
            sent[draw(st.integers(0, parts - 1))].append(train((number, now_us + draw(st.integers(0, 9)))))
            number += 1
        now_us += draw(st.integers(1, 9))
        for arc in sent:
            # A link leaves out any that another one follows.
            if draw(st.integers(0, 2)):
                arc.append(Boundary(now_us))
    for arc in sent:
        arc.append(Boundary(END_US))
    return number, [gathered(arc, draw) for arc in sent]


def gathered(arc: Arc, draw: Any) -> Arc:
    """The same, some trains that stand together as one."""
    found: Arc = []
    for element in arc:
        last = found[-1] if found else None
        if isinstance(element, Train) and isinstance(last, Train) and draw(st.booleans()):
            batch = pa.concat_batches([last.batch, element.batch])
            found[-1] = Train(batch=batch, times=pa.concat_arrays([last.times, element.times]))
        else:
            found.append(element)
    return found


@given(sent=arcs(), data=st.data())
def test_rows_leave_by_their_numbers_whichever_boundaries_are_missing(
    sent: tuple[int, list[Arc]], data: st.DataObject
) -> None:
    count, waiting = sent
    box, out = box_of(len(waiting))
    while any(waiting):
        input = data.draw(st.sampled_from([n for n, arc in enumerate(waiting) if arc]))
        box.receive(input, waiting[input].pop(0))
        if data.draw(st.integers(0, 5)) == 0:  # a checkpoint, and a start from it
            again, _ = box_of(len(waiting))
            again.load(box.save())
            again.connect("", out, 0)
            box = again
    assert checked(out) == list(range(count))


def test_a_part_that_caught_up_in_one_train_doesnt_overtake_another() -> None:
    """Seen in CI: the rows of a part that was taken over came as one train, and left before older ones."""
    box, out = box_of(2)
    box.receive(0, train((0, 1), (3, 11), (4, 21)))
    box.receive(0, Boundary(30))
    box.receive(1, train((1, 2)))
    box.receive(1, Boundary(10))
    assert checked(out) == []
    box.receive(1, train((2, 12)))
    box.receive(1, Boundary(30))
    assert checked(out) == [0, 1, 2, 3, 4]
    assert out[-1][1] == Boundary(30)


@pytest.mark.parametrize("parts", [2, 3])
def test_a_row_leaves_at_the_boundary_behind_it(parts: int) -> None:
    box, out = box_of(parts)
    box.receive(0, train((0, 1)))
    for part in range(parts):
        assert checked(out) == []
        box.receive(part, Boundary(10))
    assert checked(out) == [0]
    assert out[-1][1] == Boundary(10)


def test_a_boundary_costs_the_same_however_much_waits_for_a_part_that_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looked at all that waited: a part that fell behind once never caught up."""
    looked = []
    waits_at = ordered_merge._Came.waits_at
    monkeypatch.setattr(
        ordered_merge._Came, "waits_at", lambda each, us: (looked.append(us), waits_at(each, us))[1]
    )
    box, out = box_of(2)
    count = 500
    for number in range(0, 2 * count, 2):
        box.receive(0, train((number, number)))
        box.receive(0, Boundary(number + 1))
        assert box.queue_bytes() == (number // 2 + 1) * 16
    for number in range(1, 2 * count, 2):
        box.receive(1, train((number, number)))
        box.receive(1, Boundary(number + 1))
    box.receive(0, Boundary(END_US))
    box.receive(1, Boundary(END_US))
    assert checked(out) == list(range(2 * count))
    assert len(looked) < 8 * count, "a few for each boundary and each train"
