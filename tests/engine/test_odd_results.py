"""Whatever Arrow functions of users return is taken as the values it stands for, or refused; the run goes on.

The values are drawn first, and then written down in an odd form: so what is expected is known without reading
the form again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md

ROWS = 3
SCHEMA = {"ts": "timestamp", "g": "int64"}
OUT = {"k": "utf8", "n": "int64"}
WORDS = st.sampled_from(["", "a", "é", "漢字", "longer than twelve bytes", "\x00"])
NUMBERS = st.integers(-(2**31), 2**31 - 1)
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


class Celsius(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.odd.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Celsius:
        return cls()


class Foreign:
    """What others than pyarrow give: an array, or the rows of a batch."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._data.__arrow_c_array__()


class Streamed:
    """The same as a stream."""

    def __init__(self, data: Any, fails: bool = False) -> None:
        self._data, self._fails = data, fails

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        if self._fails:
            raise OSError("planted")
        return self._data.__arrow_c_stream__()


def unaligned(array: pa.Array) -> pa.Array:
    """Its buffers begin one byte behind where they should."""
    buffers = []
    for buffer in array.buffers():
        moved = None if buffer is None else pa.py_buffer(b"\x00" + buffer.to_pybytes())
        buffers.append(None if moved is None else moved.slice(1))
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)


def sliced(array: pa.Array) -> pa.Array:
    """A part of a longer one, so that it begins amid bytes of masks and offsets."""
    before = pa.array([None, None, None], array.type)
    return pa.concat_arrays([before, array, before]).slice(3, len(array))


def chunked(array: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([array.slice(0, 1), array.slice(0, 0), array.slice(1)], array.type)


PLAIN: list[Callable[[pa.Array], Any]] = [lambda array: array, sliced, chunked]
FORMS: list[Callable[[pa.Array], Any]] = [
    *PLAIN,
    lambda array: sliced(sliced(array)),
    lambda array: Foreign(sliced(array)),
    lambda array: Streamed(chunked(array)),
    lambda array: array.to_pylist(),
    lambda array: pl.Series(
        array.to_pylist(), dtype=pl.String if pa.types.is_string(array.type) else pl.Int64
    ),
]
REFUSED: dict[str, Callable[[pa.Array], Any]] = {
    "structs": lambda array: pa.StructArray.from_arrays([array], ["k"]),
    "lists": lambda array: pa.array([[each] for each in array.to_pylist()]),
    "a table": lambda array: pa.table({"k": array}),
    "a stream of rows": lambda array: Streamed(pa.table({"k": array})),
    "a stream that fails": lambda array: Streamed(chunked(array), fails=True),
    "another length": lambda array: pa.concat_arrays([array, array]),
    "none": lambda array: None,
    "one value": lambda array: pa.scalar(7),
    "a text": lambda array: "abc",
    "a set": lambda array: {1, 2, 3},
    "bytes": lambda array: pa.array([b"\xff"] * len(array)),
    "a matrix": lambda array: np.zeros((len(array), 2)),
    "a union": lambda array: pa.UnionArray.from_sparse(pa.array([0] * len(array), pa.int8()), [array]),
}
TABLES: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "batch": lambda batch: batch,
    "table": lambda batch: pa.Table.from_batches([batch]),
    "cut": lambda batch: pa.Table.from_batches([batch.slice(0, 1), batch.slice(0, 0), batch.slice(1)]),
    "part": lambda batch: pa.concat_batches([batch, batch]).slice(batch.num_rows),
    "reader": lambda batch: pa.Table.from_batches([batch]).to_reader(),
    "foreign": Foreign,
    "streamed": lambda batch: Streamed(pa.Table.from_batches([batch])),
    "other order": lambda batch: batch.select(list(reversed(batch.schema.names))),
}


@st.composite
def texts(draw: st.DrawFn) -> tuple[list[Any], Any]:
    """Values, and an odd form of them."""
    values = draw(st.lists(st.none() | WORDS, min_size=ROWS, max_size=ROWS))
    array = pa.array(values, pa.string())
    made = draw(st.sampled_from(["typed", "unaligned", "any"]))
    if made == "unaligned":
        return values, unaligned(array)
    if made == "any":
        return values, draw(st.sampled_from(FORMS))(array)
    return values, draw(st.sampled_from(PLAIN))(array.cast(draw(st.sampled_from(TEXTS))))


@st.composite
def numbers(draw: st.DrawFn) -> tuple[list[Any], Any]:
    values = draw(st.lists(st.none() | NUMBERS, min_size=ROWS, max_size=ROWS))
    array = pa.array(values, pa.int64())
    made = draw(st.sampled_from(["narrow", "unaligned", "extension", "any"]))
    if made == "unaligned":
        return values, unaligned(array)
    if made == "extension":
        return values, pa.ExtensionArray.from_storage(Celsius(), array)
    if made == "narrow":
        return values, draw(st.sampled_from(PLAIN))(array.cast(pa.int32()))
    return values, draw(st.sampled_from(FORMS))(array)


def rows(start: int) -> dict[str, Any]:
    return {"ts": pa.array(range(start, start + ROWS), pa.timestamp("us", "UTC")), "g": [1] * ROWS}


GOOD = {"k": ["x", "y", "z"], "n": [1, 2, 3]}


def answers(kind: str, result: Callable[[int], Any]) -> tuple[list[Any], list[str]]:
    """What a function's result for so many rows becomes, and why rows died; then the run must take what is
    right."""
    given = result

    def answer(batch: pa.RecordBatch) -> Any:
        return given(batch.num_rows)  # apply repeats a call that failed on parts of its rows

    class Keyed:
        def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> Any:
            return answer(batch)

    q = md.Query("q")
    s = q.source("s", SCHEMA, time="ts", slack=9)
    q.sink("o", s.apply(answer, OUT) if kind == "apply" else s.process(Keyed, OUT, by="g"))
    with warnings.catch_warnings(), md.start(q) as run:
        warnings.simplefilter("ignore", md.DeadRowWarning)
        run.push("s", rows(1))
        run.boundary("s", 5)
        table = run.take("o")
        table.validate(full=True)
        found = [(row["k"], row["n"]) for row in table.to_pylist()]
        errors = [row.error for row in run.dead()]
        given = lambda rows: GOOD  # noqa: E731
        run.push("s", rows(10))
        run.finish()
        assert run.take("o").select(["k", "n"]).to_pydict() == GOOD
    return found, errors


KINDS = pytest.mark.parametrize("kind", ["apply", "process"])
FEW = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@KINDS
@FEW
@given(k=texts(), n=numbers())
def test_columns_in_any_form(kind: str, k: tuple[list[Any], Any], n: tuple[list[Any], Any]) -> None:
    found, errors = answers(kind, lambda rows: {"k": k[1], "n": n[1]})
    assert (found, errors) == (list(zip(k[0], n[0], strict=True)), [])


@KINDS
@FEW
@given(
    k=st.lists(st.none() | WORDS, min_size=ROWS, max_size=ROWS),
    n=st.lists(st.none() | NUMBERS, min_size=ROWS, max_size=ROWS),
    type=st.sampled_from(TEXTS),
    how=st.sampled_from(sorted(TABLES)),
)
def test_tables_in_any_form(kind: str, k: list[Any], n: list[Any], type: pa.DataType, how: str) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"k": pa.array(k, pa.string()).cast(type), "n": pa.array(n, pa.int64())}
    )
    assert answers(kind, lambda rows: TABLES[how](batch)) == (list(zip(k, n, strict=True)), [])


@KINDS
@pytest.mark.parametrize("column", ["k", "n"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_column_fails_the_call(kind: str, column: str, name: str) -> None:
    good = pa.RecordBatch.from_pydict(GOOD)

    def result(rows: int) -> Any:
        part = good.slice(0, rows)
        return {**dict(zip(OUT, part.columns, strict=True)), column: REFUSED[name](part.column(column))}

    found, errors = answers(kind, result)
    assert found == []
    assert len(errors) == ROWS
    assert all(f"column {column!r}" in each or name == "a stream that fails" for each in errors), errors


@md.register("test.odd.Said")
class Said:
    """Gives what ``form`` makes of a word for each group."""

    form: ClassVar[Callable[[pa.Array], Any]] = staticmethod(sliced)
    inputs: ClassVar = ["int64"]
    state: ClassVar = {"n": "int64"}
    result = "utf8"

    def init(self, groups: int) -> dict[str, Any]:
        return {"n": np.zeros(groups, np.int64)}

    def add(self, state: Any, groups: Any, values: Any) -> Any:
        return state

    def merge(self, state: Any, other: Any, groups: Any) -> Any:
        return state

    def finish(self, state: Any) -> Any:
        return Said.form(pa.array([f"word {group}" for group in range(len(state["n"]))]))


def said(form: Callable[[pa.Array], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(Said, "form", staticmethod(form))
    q = md.Query("q")
    s = q.source("s", SCHEMA, time="ts", slack=0)
    q.sink("o", s.window(9).group_by("g").aggregate(k=md.user(Said, "g")).select("k", up="upper(k)"))
    with md.start(q) as run:
        run.push("s", {**rows(0), "g": [1, 2, 3]})
        run.finish()
        table = run.take("o")
        table.validate(full=True)
        assert table["up"].to_pylist() == [each.upper() for each in table["k"].to_pylist()]
        return list(table["k"].to_pylist())


@pytest.mark.parametrize("form", [*FORMS, unaligned, *(lambda a, t=t: a.cast(t) for t in TEXTS)])
def test_results_of_an_aggregate_in_any_form(
    form: Callable[[pa.Array], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert said(form, monkeypatch) == ["word 0", "word 1", "word 2"]


@pytest.mark.parametrize("name", REFUSED)
def test_results_of_an_aggregate_that_are_no_column(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(md.DataError, match="finish|stream that failed"):
        said(REFUSED[name], monkeypatch)
