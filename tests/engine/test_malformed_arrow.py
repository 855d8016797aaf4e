"""Malformed Arrow is refused whole, names its column, and never crashes; the run goes on."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa._native import invalid, structs_checked
from tests.engine.malformed import ArrowArray, Foreign, Streamed

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {"ts": "timestamp", "k": "utf8", "d": "decimal(5,2)"}


def fuzzed(seed: int, cases: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.engine.malformed", str(seed), str(cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"seed {seed} ended with {done.returncode}\n{done.stderr[-3000:]}"
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def test_damaged_buffers() -> None:
    counts = fuzzed(11, 600)
    assert counts["refused"] > 60
    assert counts["taken"] > 60


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_many_damaged_buffers(seed: int) -> None:
    fuzzed(1000 + seed, 2000)


def text(offsets: list[int], data: bytes = b"abcdef") -> pa.Array:
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def view(*words: tuple[int, bytes, int, int]) -> pa.Array:
    """Views by size, first four bytes, buffer and offset."""
    views = b"".join(
        size.to_bytes(4, "little") + head + buffer.to_bytes(4, "little") + offset.to_bytes(4, "little")
        for size, head, buffer, offset in words
    )
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"longer than twelve bytes")]
    return pa.Array.from_buffers(pa.string_view(), len(words), buffers)


def decimals(*values: int) -> pa.Array:
    content = b"".join(each.to_bytes(16, "little", signed=True) for each in values)
    return pa.Array.from_buffers(pa.decimal128(5, 2), len(values), [None, pa.py_buffer(content)])


BAD = {
    "jump": (text([0, 3, 1 << 30, 6]), "column 'k': expected offsets that ascend, came others from row 2 on"),
    "back": (text([0, 5, 2, 6]), "offsets that ascend, came others from row 1 on"),
    "negative": (text([0, -5, 2, 6]), "offsets that ascend, came others from row 0 on"),
    "utf8": (text([0, 1, 2, 3], b"a\xffc"), "column 'k': expected UTF-8, row 1 holds other bytes"),
    "half a character": (text([0, 1, 2, 3], "aé".encode()), "expected UTF-8, row 1 holds other bytes"),
    "view": (
        view((1, b"a\0\0\0", 0, 0), (24, b"long", 7, 0), (1, b"c\0\0\0", 0, 0)),
        "column 'k': expected a valid string_view, came: View at slot 1 references buffer 7",
    ),
    "view beyond": (
        view((1, b"a\0\0\0", 0, 0), (24, b"long", 0, 999), (1, b"c\0\0\0", 0, 0)),
        "column 'k': expected a valid string_view",
    ),
    "index": (
        pa.DictionaryArray.from_arrays(pa.array([0, 9, 1], pa.int8()), pa.array(["a", "b"]), safe=False),
        "column 'k': expected a valid dictionary<values=string, indices=int8",
    ),
    "dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), text([0, 5, 2, 6]), safe=False),
        "column 'k': expected a valid dictionary",
    ),
}


def started(**options: Any) -> Any:
    q = md.Query("q")
    s = q.source("s", SCHEMA, time="ts", slack=0)
    q.sink("up", s.select("d", up="upper(k)"))
    q.sink("windows", s.window(2).group_by("k").aggregate(total=md.sum("d")))
    return md.start(q, **options)


def columns(k: pa.Array, d: pa.Array) -> dict[str, pa.Array]:
    return {"ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "k": k, "d": d}


@pytest.mark.parametrize("how", ["dict", "batch", "table", "foreign", "stream", "queue"])
@pytest.mark.parametrize("name", [*BAD, "decimal"])
def test_it_is_refused_and_the_run_goes_on(name: str, how: str) -> None:
    good = columns(pa.array(["a", None, "é"]), decimals(1, -99999, 99999))
    bad, words = (good["k"], "column 'd': expected decimal128") if name == "decimal" else BAD[name]
    data: Any = columns(bad, decimals(1, 100000, 3) if name == "decimal" else good["d"])
    if how != "dict":
        data = pa.RecordBatch.from_pydict(data)
    if how == "table":
        data = pa.Table.from_batches([data])
    if how == "foreign":
        data = Foreign(data)
    if how == "stream":
        data = Streamed([data])
    with started(**({"queue": "1 MiB"} if how == "queue" else {})) as run:
        run.push("s", good)
        with pytest.raises(md.DataError) as refused:
            run.push("s", data)
        assert words in str(refused.value)
        assert refused.value.code == "data.arrow"
        assert run.positions() == {"s": 3}
        run.push("s", {**good, "ts": pa.array([4, 5, 6], pa.timestamp("us", "UTC"))})
        run.flush()
        assert run.take("up")["up"].to_pylist() == ["A", None, "É"] * 2


def test_what_stands_under_a_null_does_not_matter() -> None:
    offsets = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    k = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"a\xffc")])
    d = pa.Array.from_buffers(
        pa.decimal128(5, 2), 3, [pa.py_buffer(b"\x06"), decimals(1 << 90, 2, 3).buffers()[1]]
    )
    with started() as run:
        run.push("s", pa.RecordBatch.from_pydict(columns(k, d)))
        assert run.take("up")["up"].to_pylist() == ["A", None, "C"]


def test_rows_are_counted_over_batches() -> None:
    good = pa.RecordBatch.from_pydict(columns(pa.array(["a", "b", "c"]), decimals(1, 2, 3)))
    bad = pa.RecordBatch.from_pydict(columns(BAD["back"][0], decimals(1, 2, 3)))
    with started() as run:
        with pytest.raises(md.DataError, match="column 'k': expected offsets that ascend, .* row 7 on"):
            run.push("s", pa.Table.from_batches([good, good, bad]))
        assert run.positions() == {"s": 0}


def harming(column: int, **fields: Any) -> Any:
    def harm(whole: ArrowArray) -> None:
        for name, value in fields.items() if whole.length else ():
            setattr(whole.children[column].contents, name, value)

    return harm


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"length": -1}, "'k': length -1 in a batch of 3 rows"),
        ({"offset": -(1 << 40)}, "'k': length 3, offset -1099511627776"),
        ({"offset": (1 << 63) - 1}, "'k': length 3, offset 9223372036854775807"),
        ({"null_count": 4}, "'k': 4 nulls in 3 rows"),
        ({"n_buffers": 1}, "'k': no buffer of values for 3 rows"),
        ({"n_buffers": 2}, "'k': 2 buffers"),
        ({"null_count": 2}, "column 'k': expected as many nulls as its bitmap has"),
        ({"length": 1 << 40}, "'k': length 1099511627776 in a batch of 3 rows"),
        ({"n_children": 3}, "'k': 3 children, the schema has 0"),
        ({"buffers": ctypes.POINTER(ctypes.c_void_p)()}, "'k': 3 buffers"),
        ({"dictionary": ctypes.pointer(ArrowArray())}, "'k': a dictionary in the array or in the schema"),
    ],
)
@pytest.mark.parametrize("how", ["array", "stream", "later in a stream"])
def test_structs_that_can_not_be(fields: dict[str, Any], words: str, how: str) -> None:
    good = pa.RecordBatch.from_pydict(columns(pa.array(["a", None, "é"]), decimals(1, 2, 3)))
    with started() as run:
        harm, count = harming(1, **fields), itertools.count()
        data: Any = Foreign(good, harm)
        if how == "stream":
            data = Streamed([good], harm)
        elif how == "later in a stream":
            data = Streamed([good] * 5, lambda whole: next(count) == 3 and harm(whole))
        with pytest.raises(md.DataError) as refused:
            run.push("s", data)
        assert words in str(refused.value)
        assert refused.value.code == "data.arrow"
        assert run.positions() == {"s": 0}
        run.push("s", Foreign(good))
        assert len(run.take("up")) == 3


@pytest.mark.filterwarnings("ignore::medusa.LateWarning")
def test_a_stream_gives_all_of_its_batches() -> None:
    columns_of = columns(pa.array(["a", None, "é"]), decimals(1, 2, 3))
    good = pa.RecordBatch.from_pydict(columns_of)
    with started() as run:
        run.push("s", Streamed([good, good.slice(1, 1), good.slice(0, 0), good]))
        run.push("s", Streamed(pa.Table.from_batches([], good.schema)))
        assert run.take("up")["up"].to_pylist() == ["A", None, "É", None, "A", None, "É"]
        chunks = {name: Streamed(pa.chunked_array([each, each])) for name, each in columns_of.items()}
        run.push("s", chunks)  # type: ignore[arg-type]
        assert run.take("up")["up"].to_pylist() == ["A", None, "É"] * 2


@pytest.mark.parametrize("at", [0, 2])
def test_a_stream_that_fails_enters_nothing(at: int) -> None:
    good = pa.RecordBatch.from_pydict(columns(pa.array(["a", None, "é"]), decimals(1, 2, 3)))
    with started() as run:
        with pytest.raises(md.DataError, match="source 's': an Arrow stream that failed") as refused:
            run.push("s", Streamed([good] * 3, fails_at=at))
        assert refused.value.code == "data.table"
        assert run.positions() == {"s": 0}


def test_a_stream_of_a_column_is_no_table() -> None:
    with started() as run, pytest.raises(md.DataError, match="isn't a table") as refused:
        run.push("s", Streamed(pa.chunked_array([["a", "b"]])))
    assert refused.value.code == "data.table"


@pytest.mark.parametrize("how", ["stream", "reader", "table"])
def test_a_table_is_no_column(how: str) -> None:
    """What to do is said, and the run goes on."""
    good: dict[str, Any] = columns(pa.array(["a", "b", "c"]), decimals(1, 2, 3))
    table = pa.table({"word": good["k"]})
    odd = {"stream": Streamed(table), "reader": table.to_reader(), "table": table}[how]
    with started() as run:
        with pytest.raises(md.DataError, match="column 'k': expected utf8, came struct") as refused:
            run.push("s", {**good, "k": odd})
        assert refused.value.code == "data.type"
        assert "push a table by itself, or one of its columns ('word')" in refused.value.hint
        assert run.positions() == {"s": 0}
        run.push("s", {**good, "k": Streamed(pa.chunked_array([table["word"].chunk(0)]))})
        assert run.take("up")["up"].to_pylist() == ["A", "B", "C"]


def test_columns_that_stream_are_looked_at_too() -> None:
    def harm(column: ArrowArray) -> None:
        column.offset = -7

    good: dict[str, Any] = columns(pa.array(["a", "b", "c"]), decimals(1, 2, 3))
    with started() as run, pytest.raises(md.DataError, match="length 3, offset -7") as refused:
        run.push("s", {**good, "k": Streamed(pa.chunked_array([good["k"]]), harm)})
    assert refused.value.code == "data.arrow"


def test_a_column_alone_is_looked_at_too() -> None:
    class Column:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            schema, array = pa.array(["a", "b", "c"]).__arrow_c_array__()
            ArrowArray.from_address(_pointer(array)).offset = -7
            return schema, array

    def _pointer(capsule: Any) -> int:
        import ctypes

        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        found: int = get(capsule, b"arrow_array")
        return found

    with started() as run, pytest.raises(md.DataError, match="length 3, offset -7"):
        run.push("s", columns(Column(), decimals(1, 2, 3)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "type",
    [pa.string(), pa.large_string(), pa.binary(), pa.int64(), pa.bool_(), pa.decimal128(9, 2), pa.date32()],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_what_is_valid_is_found_so(type: pa.DataType, nulls: bool) -> None:
    values = pa.array([None if nulls and i % 7 == 0 else str(i) for i in range(5000)])
    if pa.types.is_date(type):
        values = pa.array([None if nulls and i % 7 == 0 else i for i in range(5000)], pa.int32())
    elif pa.types.is_boolean(type):
        values = pa.array([None if nulls and i % 7 == 0 else i % 2 == 0 for i in range(5000)])
    array = values.cast(type)
    for start, rows in [(0, 5000), (1, 4999), (3, 61), (4999, 1), (9, 0)]:
        assert invalid(array.slice(start, rows)) is None
        structs_checked(array.slice(start, rows))
