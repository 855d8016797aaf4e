"""The native window against brute force: any types, any cuts, any moment of closing, saving, loading."""

from __future__ import annotations

import itertools
import math
import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa import _native as native
from tests.oracle.windows import Row, windows

ARROW = {
    "l": pa.int64(),
    "L": pa.uint64(),
    "g": pa.float64(),
    "u": pa.utf8(),
    "z": pa.binary(),
    "b": pa.bool_(),
}
POOL: dict[str, list[Any]] = {
    "l": [0, 1, -1, 7, 2**63 - 1, -(2**63)],
    "L": [0, 1, 7, 2**64 - 1, 2**63],
    "g": [0.0, -0.0, 1.5, math.nan, -math.inf, 0.1, 0.2, 1e300],
    "u": ["", "a", "ab", "é", "a longer text than sixteen bytes"],
    "z": [b"", b"a", b"\x00", b"\xff" * 17],
    "b": [False, True],
}
FINITE: dict[str, list[Any]] = {**POOL, "g": [0.0, -0.0, 1.5, 0.1, 0.2, -0.7, 1e10, math.nan]}
NUMERIC = ["count", "sum", "min", "max", "avg", "variance", "count_distinct"]


def batch(types: str, rows: list[Row], *, shift: int = 0) -> pa.RecordBatch:
    """Rows as a batch; ``shift``: sliced out of a longer one, so that offsets aren't 0."""
    columns = list(zip(*[(t, *k, *v) for t, k, v in rows], strict=True)) or [()] * (1 + len(types))
    arrays = []
    for kind, values in zip("l" + types, columns, strict=True):
        padding = [POOL[kind][0]] * shift
        arrays.append(pa.array([*padding, *values], type=ARROW[kind]).slice(shift))
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


def bits(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def unpack(batches: list[Any]) -> list[tuple[Any, ...]]:
    """Rows of native batches as tuples; timestamps as microseconds."""
    out: list[tuple[Any, ...]] = []
    for one in batches:
        record = pa.record_batch(one)
        record.validate(full=True)
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in record.columns]
        out += zip(*[c.to_pylist() for c in columns], strict=True)
    return out


def exact(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(map(bits, row)) for row in rows]


def assert_equal(got: list[tuple[Any, ...]], want: list[tuple[Any, ...]], inexact: set[int]) -> None:
    """Equal bits, but for the columns ``inexact`` (numbers from the end), which are within 1e-9."""
    assert len(got) == len(want), (got, want)
    for a, b in zip(got, want, strict=True):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if i - len(a) in inexact and x is not None and y is not None and math.isfinite(y):
                assert math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9), (a, b)
            elif i - len(a) in inexact and x is not None and y is not None:
                assert not math.isfinite(x), (a, b)
            elif x == 0 and y == 0:
                pass  # min and max of 0.0 and -0.0 may be either
            else:
                assert bits(x) == bits(y), (a, b)


class Case:
    """A random configuration and its rows, drawn from a seed so that a failure is one number."""

    def __init__(self, seed: int, *, overflow: bool = False) -> None:
        r = random.Random(seed)
        self.random = r
        self.size = r.randint(1, 14)
        self.advance = self.size if r.random() < 0.4 else r.randint(1, self.size)
        self.keys = "".join(r.choice("lLguzb") for _ in range(r.choice([0, 1, 1, 1, 2, 3])))
        self.inputs = "".join(r.choice("lLgbu" if r.random() < 0.8 else "z") for _ in range(r.randint(0, 2)))
        self.aggregates: list[tuple[str, int]] = [("count", -1)] if r.random() < 0.7 else []
        for i, kind in enumerate(self.inputs):
            functions = ["count", "count_distinct"] if kind in "uz" else NUMERIC
            for function in r.sample(functions, r.randint(1, len(functions))):
                if overflow or function != "sum" or kind not in "lL":
                    self.aggregates.append((function, i))
        if not self.aggregates:
            self.aggregates = [("count", -1)]
        nulls = r.choice([0.0, 0.0, 0.2, 0.9])
        n = r.choice([0, 1, 5, 30, 120])
        base = r.choice([0, 1000, -50, 10**15])
        drift = r.choice([0.0, 0.3, 1.0])
        pools = [r.sample(POOL[k], r.randint(1, len(POOL[k]))) for k in self.keys]
        self.rows: list[Row] = [
            (
                base + int(i * drift) + r.randint(0, 12),
                tuple(None if r.random() < nulls / 2 else r.choice(pool) for pool in pools),
                tuple(None if r.random() < nulls else r.choice(FINITE[k]) for k in self.inputs),
            )
            for i in range(n)
        ]

    @property
    def inexact(self) -> set[int]:
        n = len(self.aggregates)
        return {i - n for i, (function, _) in enumerate(self.aggregates) if function == "variance"}

    def window(self, stage: str = "whole", seed: int = 0) -> native.Window:
        return native.Window(
            size_us=self.size, advance_us=self.advance, keys=self.keys, inputs=self.inputs,
            aggregates=self.aggregates, stage=stage, seed=seed,
        )  # fmt: skip

    def pieces(self, rows: list[Row]) -> list[list[Row]]:
        cuts = sorted(self.random.randint(0, len(rows)) for _ in range(self.random.randint(0, 6)))
        return [rows[a:b] for a, b in itertools.pairwise([0, *cuts, len(rows)])]

    def feed(self, window: native.Window, rows: list[Row], *, save: bool = False) -> list[Any]:
        """Rows in random pieces, with closings as early as later rows allow and reloads in between."""
        out = []
        done = 0
        for piece in self.pieces(rows):
            window.add(batch(self.keys + self.inputs, piece, shift=self.random.choice([0, 0, 1, 9])))
            done += len(piece)
            left = [t for t, _, _ in rows[done:]]
            if self.random.random() < 0.7 and left:
                out += window.close(min(left) - self.random.choice([0, 0, 3]))
            if save and self.random.random() < 0.5:
                state = window.state()
                position = window.position()
                window = self.window(seed=self.random.randint(0, 2**60))
                window.load(state, *position)
        out += window.close(2**62)
        assert window.rows_open() == 0
        assert window.oldest_open_us() is None
        self.failed = window.failed()
        return out


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_equals_brute_force(seed: int) -> None:
    case = Case(seed)
    want, _ = windows(case.rows, case.size, case.advance, case.aggregates)
    got = unpack(case.feed(case.window(), case.rows))
    assert_equal(got, want, case.inexact)
    assert case.failed is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_cuts_seeds_and_reloads_change_no_bit(seed: int) -> None:
    case = Case(seed)
    whole = case.window()
    whole.add(batch(case.keys + case.inputs, case.rows))
    want = exact(unpack(whole.close(2**62)))
    assert exact(unpack(case.feed(case.window(seed=seed), case.rows))) == want
    assert exact(unpack(case.feed(case.window(), case.rows, save=True))) == want


def by_key(case: Case, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Null first, then value order, NaN greatest."""
    parts: list[Any] = [row[1], row[0]]
    for value in row[2 : 2 + len(case.keys)]:
        nan = isinstance(value, float) and math.isnan(value)
        text = value.encode() if isinstance(value, str) else value
        parts.append((0,) if value is None else (2,) if nan else (1, text))
    return tuple(parts)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_partials_combine_to_the_whole(seed: int) -> None:
    case = Case(seed)
    finite = [
        (t, k, v) for t, k, v in case.rows if not any(isinstance(x, float) and math.isnan(x) for x in v)
    ]
    want, _ = windows(finite, case.size, case.advance, case.aggregates)
    want.sort(key=lambda row: by_key(case, row))
    combine = case.window("combine")
    parts: list[list[Row]] = [[], [], []]
    for row in finite:
        case.random.choice(parts).append(row)
    for part in parts:
        for one in case.feed(case.window("partial"), part):
            combine.add(pa.record_batch(one))
        if case.random.random() < 0.5:
            state, position = combine.state(), combine.position()
            combine = case.window("combine")
            combine.load(state, *position)
    got = unpack(combine.close(2**62))
    floats = {
        i - len(case.aggregates)
        for i, (f, x) in enumerate(case.aggregates)
        if f in ("sum", "avg", "variance") and case.inputs[x] == "g"
    }
    assert_equal(got, want, case.inexact | floats)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_sum_that_does_not_fit_fails_its_group_only(seed: int) -> None:
    case = Case(seed, overflow=True)
    want, failed = windows(case.rows, case.size, case.advance, case.aggregates)
    got = unpack(case.feed(case.window(), case.rows))
    assert_equal(got, want, case.inexact)
    groups = unpack([case.failed]) if case.failed is not None else []
    assert sorted(map(repr, exact(groups))) == sorted(map(repr, exact(failed)))


def simple(**changes: Any) -> native.Window:
    options: dict[str, Any] = {
        "size_us": 10, "advance_us": 10, "keys": "l", "inputs": "g",
        "aggregates": [("count", -1), ("sum", 0)],
    }  # fmt: skip
    return native.Window(**(options | changes))


def rows(*times: int, key: int = 1) -> pa.RecordBatch:
    return batch("lg", [(t, (key,), (1.0,)) for t in times])


def test_windows_align_to_the_epoch_below_zero_too() -> None:
    window = simple()
    window.add(rows(-1, -10, -11, 0))
    assert [row[:2] for row in unpack(window.close(100))] == [(-20, -10), (-10, 0), (0, 10)]


def test_empty_windows_are_not_emitted_and_boundaries_close() -> None:
    window = simple()
    assert window.next_end_us() == -(2**63)
    window.add(rows(5, 95))
    assert window.oldest_open_us() == 0
    assert window.close(9) == []
    assert window.next_end_us() == 10
    assert [row[:2] for row in unpack(window.close(99))] == [(0, 10)]
    assert window.next_end_us() == 100
    assert window.oldest_open_us() == 90
    assert window.rows_open() == 1
    assert window.position() == (99, 2)
    assert [row[:2] for row in unpack(window.close(2**63 - 1))] == [(90, 100)]
    assert window.next_end_us() == 2**63 - 1


def test_output_has_names_and_types() -> None:
    window = simple()
    window.add(rows(1))
    schema = pa.record_batch(window.close(10)[0]).schema
    assert schema.names == ["window_start", "window_end", "k0", "a0", "a1"]
    utc = pa.timestamp("us", "UTC")
    assert schema.types == [utc, utc, pa.int64(), pa.int64(), pa.float64()]


def test_large_windows_leave_in_batches_of_their_own() -> None:
    n = 20_000
    window = simple(
        aggregates=[("count", -1), ("sum", 0), ("min", 0), ("max", 0), ("avg", 0), ("count", 0), ("sum", 0)]
    )
    for start in (0, 10, 20):
        keys = [key * 1_000_003 % n for key in range(n)]
        for copy in range(2):
            window.add(batch("lg", [(start + copy, (key,), (key / 7 + copy,)) for key in keys]))
        window.add(batch("lg", [(start + 5, (None,), (None,))] if start == 10 else []))
        out = window.close(start + 10)
        assert [pa.record_batch(one).num_rows for one in unpack_sizes(out)] == [n + (start == 10)]
    assert window.nbytes() < 64 << 20


def unpack_sizes(batches: list[Any]) -> list[pa.RecordBatch]:
    return [pa.record_batch(one) for one in batches]


@pytest.mark.parametrize("kind", ["l", "u", "g", "b"])
def test_large_windows_are_right(kind: str) -> None:
    n = 12_000
    r = random.Random(1)
    data: list[Row] = []
    for i in range(3 * n):
        number = r.randrange(n * 2)
        key = {"l": number, "u": f"key {number}", "g": number / 3, "b": number % 2 == 0}[kind]
        data.append(
            (
                i * 10 // n,
                (key, None if number == 5 else number),
                (None if number % 97 == 0 else number / 9, i),
            )
        )
    aggregates = [
        ("count", -1), ("sum", 0), ("min", 0), ("max", 1), ("avg", 1), ("count", 0), ("variance", 0),
        ("count_distinct", 1),
    ]  # fmt: skip
    window = native.Window(size_us=10, advance_us=10, keys=kind + "l", inputs="gl", aggregates=aggregates)
    for at in range(0, len(data), 5000):
        window.add(batch(kind + "lgl", data[at : at + 5000]))
    want, _ = windows(data, 10, 10, aggregates)
    assert_equal(unpack(window.close(10**6)), want, {-2})


@pytest.mark.parametrize(("size", "advance"), [(1000, 1000), (1000, 300), (900, 300)])
def test_chunks_of_many_rows_that_lie_in_several_panes(size: int, advance: int) -> None:
    r = random.Random(size + advance)
    data: list[Row] = [
        (i // 3 - r.randrange(200) * (r.random() < 0.1), (r.randrange(50),), (r.random(), r.randrange(9)))
        for i in range(15_000)
    ]
    aggregates = [("count", -1), ("sum", 0), ("max", 0), ("count_distinct", 1)]
    window = native.Window(size_us=size, advance_us=advance, keys="l", inputs="gl", aggregates=aggregates)
    out = []
    for at in range(0, len(data), 6000):
        window.add(batch("lgl", data[at : at + 6000]))
        out += window.close((at + 6000) // 3 - 200)
    want, _ = windows(data, size, advance, aggregates)
    assert_equal(unpack(out + window.close(2**62)), want, set())


@pytest.mark.parametrize(
    "bad",
    [
        batch("lg", [(4, (1,), (1.0,))]),  # below the boundary
        batch("lg", [(6, (1,), (1.0,)), (2**61, (1,), (1.0,))]),
        batch("lg", [(6, (1,), (1.0,)), (-(2**63), (1,), (1.0,))]),
        batch("ll", [(6, (1,), (1,))]),
        batch("l", [(6, (1,), ())]),
        pa.record_batch([pa.array([None], pa.int64()), pa.array([1]), pa.array([1.0])], names="abc"),
        pa.record_batch([pa.array([7], pa.int64()), pa.array([1], pa.int16()), pa.array([1.0])], names="abc"),
        pa.record_batch([pa.array([7]), pa.array([1]).dictionary_encode(), pa.array([1.0])], names="abc"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(bad: pa.RecordBatch) -> None:
    window = simple()
    window.close(5)
    window.add(rows(7))
    before = (window.position(), exact(unpack([window.state()])))
    with pytest.raises(ValueError, match=r"\w"):
        window.add(bad)
    assert (window.position(), exact(unpack([window.state()]))) == before
    window.add(rows(8))
    assert [row[3] for row in unpack(window.close(10))] == [2]


@pytest.mark.parametrize(
    "bad",
    [
        {"size_us": 0}, {"advance_us": 11}, {"advance_us": 0}, {"size_us": 2**62, "advance_us": 1},
        {"keys": "i"}, {"keys": "q"}, {"inputs": "u"}, {"aggregates": [("sum", 1)]},
        {"aggregates": [("sum", -1)]},
        {"aggregates": [("median", 0)]}, {"stage": "half"}, {"keys": "l" * 65},
    ],
)  # fmt: skip
def test_bad_configurations_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        simple(**bad)


def test_rows_must_speak_arrow() -> None:
    with pytest.raises(TypeError, match="PyCapsule"):
        simple().add([1, 2])


def test_a_batch_is_handed_over_once() -> None:
    window = simple()
    window.add(rows(1))
    one = window.close(10)[0]
    assert one.num_rows == 1
    pa.record_batch(one)
    with pytest.raises(ValueError, match="handed over"):
        pa.record_batch(one)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_a_damaged_state_is_refused_or_loads_but_never_crashes(seed: int) -> None:
    case = Case(seed)
    window = case.window(case.random.choice(["whole", "partial"]))
    window.add(batch(case.keys + case.inputs, case.rows))
    state = pa.record_batch(window.state())
    if state.num_rows == 0:
        return
    r = case.random
    columns = [column.to_pylist() for column in state.columns]
    for _ in range(r.randint(1, 3)):
        column = r.randrange(len(columns))
        row = r.randrange(state.num_rows)
        other = r.randrange(state.num_rows)
        kind = state.schema.types[column]
        if r.random() < 0.3:
            columns[column][row] = None
        elif r.random() < 0.4 or not (pa.types.is_int64(kind) or pa.types.is_binary(kind)):
            columns[column][row], columns[column][other] = columns[column][other], columns[column][row]
        elif pa.types.is_binary(kind):
            columns[column][row] = (columns[column][row] or b"")[:-1] + bytes(
                r.randrange(256) for _ in range(3)
            )
        else:
            columns[column][row] = r.choice([-1, 0, 2**63 - 1, -(2**63), (columns[column][row] or 0) ^ 1])
    damaged = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, state.schema, strict=True)], names=state.schema.names
    )
    fresh = case.window()
    try:
        fresh.load(damaged, *window.position())
    except ValueError:
        assert fresh.position() == (-(2**63), 0)
        fresh.load(state, *window.position())
    unpack(fresh.close(2**62))


def test_loading_into_a_used_window_is_refused() -> None:
    window = simple()
    window.add(rows(1))
    with pytest.raises(ValueError, match="never took"):
        window.load(window.state(), *window.position())


def test_closed_panes_in_a_state_are_refused() -> None:
    window = simple()
    window.add(rows(1))
    with pytest.raises(ValueError, match="closed already"):
        simple().load(window.state(), 10, 1)


@pytest.mark.parametrize("shift", range(8))
def test_buffers_may_start_anywhere(shift: int) -> None:
    """Arrays at addresses that aren't multiples of 8, as a received frame may hold them."""
    n = 1000
    times, keys, values = range(n), [k % 17 for k in range(n)], [k / 3 for k in range(n)]
    arrays = []
    for fmt, column, kind in (("q", times, pa.int64()), ("q", keys, pa.int64()), ("d", values, pa.float64())):
        raw = bytes(shift) + struct.pack(f"<{n}{fmt}", *column)
        arrays.append(pa.Array.from_buffers(kind, n, [None, pa.py_buffer(raw).slice(shift)]))
    window = simple(size_us=100, advance_us=100)
    window.add(pa.record_batch(arrays, names=["t", "k", "v"]))
    data: list[Row] = list(zip(times, [(k,) for k in keys], [(v,) for v in values], strict=True))
    want, _ = windows(data, 100, 100, [("count", -1), ("sum", 0)])
    assert_equal(unpack(window.close(10**6)), want, set())


class Nosy:
    """Arrow rows that call something while they are handed over."""

    def __init__(self, rows: Any, calls: list[Any]) -> None:
        self.rows, self.calls, self.refused = rows, calls, 0

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        for call in self.calls:
            with pytest.raises(RuntimeError, match="at work already"):
                call()
            self.refused += 1
        return self.rows.__arrow_c_array__()


@pytest.mark.parametrize("count", [1, 300])
def test_a_window_at_work_refuses_every_other_call(count: int) -> None:
    """As it does a second thread, which could only enter while native code runs without the GIL."""
    window = native.Window(size_us=10, advance_us=10, keys="l", inputs="", aggregates=[("count", -1)])
    rows = batch("l", [(i % 5, (1,), ()) for i in range(count)])
    state = window.state()
    calls: list[Any] = [
        lambda: window.add(rows),
        lambda: window.close(10),
        lambda: window.load(state, 0, 0),
        window.failed,
        window.next_end_us,
        window.oldest_open_us,
        window.rows_open,
        window.nbytes,
        window.state,
        window.position,
    ]
    nosy = Nosy(rows, calls)
    window.add(nosy)
    assert nosy.refused == len(calls)
    assert window.rows_open() == count
    with pytest.raises(TypeError):
        window.add(1)
    window.add(rows)  # neither a call nor a failed one leaves it marked
    assert window.rows_open() == 2 * count
    fresh = native.Window(size_us=10, advance_us=10, keys="l", inputs="", aggregates=[("count", -1)])
    fresh.load(Nosy(pa.record_batch(window.state()), [fresh.rows_open]), *window.position())
    assert unpack(fresh.close(10)) == unpack(window.close(10)) == [(0, 10, 1, 2 * count)]
