"""Pushes batches whose buffers were damaged; a program of its own, since what it looks for is a crash.

``python -m tests.engine.malformed SEED CASES`` prints one JSON object at the end: how many were taken and
refused. Before each case its number goes to standard error, so that of a crash is the last one there.
"""

from __future__ import annotations

import ctypes
import errno
import json
import random
import sys
import warnings
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa

import medusa as md

SCHEMA = {"ts": "timestamp", "k": "utf8", "b": "binary", "d": "decimal(9,2)", "v": "int64", "t": "bool"}
WORDS = ["", "a", "é", "漢字", "😀", "longer than twelve bytes", "\x00", "ß" * 20]


def query(*, timed: bool) -> md.Query:
    """Kernels of Arrow and native boxes, all of which read texts, and sinks that rows go to as they came."""
    q = md.Query("malformed")
    s = q.source("s", SCHEMA, time="ts" if timed else None, slack=1000 if timed else None)
    q.sink("raw", s)
    q.sink("filtered", s.filter("length(k) > 1 AND k LIKE '%a%' OR v > 3"))
    q.sink("selected", s.select("v", up="upper(k)", two="concat(k, '-', k)", part="substring(k, 1, 2)"))
    q.sink("running", s.group_by("k").running(n=md.count(), total=md.sum("d")))
    if timed:
        window = s.window(8).group_by("k", "t")
        q.sink(
            "windows",
            window.aggregate(n=md.count(), total=md.sum("d"), u=md.count_distinct("b"), m=md.max("k")),
        )
        q.sink("joined", s.join(s.filter("v > 2"), on="k", within=2))
        q.sink("distinct", s.distinct("b", within=4))
    return q


def text_of(rng: random.Random, type: pa.DataType, rows: int) -> pa.Array:
    values = [None if rng.random() < 0.1 else rng.choice(WORDS) for _ in range(rows)]
    if pa.types.is_dictionary(type):
        return pa.array(values).dictionary_encode().cast(type)
    if pa.types.is_binary(type) or pa.types.is_large_binary(type) or pa.types.is_binary_view(type):
        return pa.array([None if each is None else each.encode() for each in values]).cast(type)
    return pa.array(values).cast(type)


TEXTS = [
    *(pa.string(), pa.string(), pa.large_string(), pa.string_view()),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())),
]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def batch_of(rng: random.Random, start: int, rows: int) -> list[pa.Array]:
    plain = rng.random() < 0.4
    return [
        pa.array(range(start, start + rows), pa.timestamp("us", "UTC")),
        text_of(rng, pa.string() if plain else rng.choice(TEXTS), rows),
        text_of(rng, pa.binary() if plain else rng.choice(BINARIES), rows),
        pa.array(
            [Decimal(rng.randrange(-(10**9) + 1, 10**9)) / 100 for _ in range(rows)], pa.decimal128(9, 2)
        ),
        pa.array([rng.randrange(9) for _ in range(rows)], pa.int64()),
        pa.array([rng.random() < 0.5 for _ in range(rows)]),
    ]


def damaged(rng: random.Random, array: pa.Array) -> pa.Array:
    """The same array with one of its buffers, its length or its count of nulls not what they were."""
    if pa.types.is_dictionary(array.type):
        if rng.random() < 0.5:
            indices = damaged(rng, array.indices)
            return pa.DictionaryArray.from_arrays(indices, array.dictionary, safe=False)
        return pa.DictionaryArray.from_arrays(array.indices, damaged(rng, array.dictionary), safe=False)
    buffers = array.buffers()
    length, offset, nulls = len(array), array.offset, array.null_count
    place = rng.randrange(len(buffers))
    how = rng.choice(
        ["word", "word", "word", "byte", "byte", "swap", "short", "none", "length", "offset", "nulls"]
    )
    if how == "length":
        length += rng.choice([1, 9, 1000, 1 << 40])
    elif how == "offset":
        offset += rng.choice([1, 9, 1000])
    elif how == "nulls":
        nulls = rng.choice([0, 1, length, length + 1])
    elif how == "none":
        buffers[0] = None  # pyarrow crashes itself where others are missing; see ``harm_of``
    elif buffers[place] is not None and buffers[place].size:
        content = bytearray(buffers[place].to_pybytes())
        at = rng.randrange(len(content))
        if how == "byte":
            content[at] = rng.randrange(256)
        elif how == "short":
            del content[at:]
        elif len(content) >= 8:
            step = 4 if rng.random() < 0.8 else 8
            at -= at % step
            if how == "swap":
                other = rng.randrange(len(content) // step) * step
                content[at : at + step], content[other : other + step] = (
                    content[other : other + step],
                    content[at : at + step],
                )
            else:
                value = rng.choice([-1, 0, 1, 7, 200, 1 << 20, (1 << 31) - 1, -(1 << 31), rng.randrange(64)])
                content[at : at + step] = value.to_bytes(step, "little", signed=True)
        buffers[place] = pa.py_buffer(bytes(content))
    return pa.Array.from_buffers(array.type, length, buffers, nulls, offset)


class ArrowArray(ctypes.Structure):
    pass


ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class ArrowArrayStream(ctypes.Structure):
    pass


_Next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowArrayStream), ctypes.POINTER(ArrowArray))

ArrowArrayStream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", _Next),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Foreign:
    """Another library's batch, by the PyCapsule interface alone.

    Args:
        harm: changes the structs before they are handed over.
    """

    def __init__(self, batch: pa.RecordBatch, harm: Any = None) -> None:
        self._batch, self._harm = batch, harm

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = self._batch.__arrow_c_array__()
        if self._harm is not None:
            self._harm(ArrowArray.from_address(_pointer(array, b"arrow_array")))
        return schema, array


class _Stream(ctypes.Structure):
    pass


_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(ArrowArray))
_Stream._fields_ = [
    ("get_schema", ctypes.c_void_p),
    ("get_next", _NEXT),
    ("get_last_error", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class Streamed:
    """Another library's table, by the stream of the PyCapsule interface alone.

    Args:
        data: batches, or a chunked array.
        harm: changes the structs of each array before they are handed over.
        fails_at: of so many arrays; the next one is refused with EIO.
    """

    def __init__(self, data: Any, harm: Any = None, fails_at: int | None = None) -> None:
        self._data, self._harm, self._fails_at = data, harm, fails_at
        self._kept: list[Any] = []

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        data = self._data
        if isinstance(data, list):
            data = pa.RecordBatchReader.from_batches(data[0].schema, data)
        capsule: object = data.__arrow_c_stream__()
        stream = _Stream.from_address(_pointer(capsule, b"arrow_array_stream"))
        whole = _NEXT(ctypes.cast(stream.get_next, ctypes.c_void_p).value)
        count = 0

        def following(given: Any, array: Any) -> int:
            nonlocal count
            if count == self._fails_at:
                return errno.EIO
            count += 1
            code: int = whole(given, array)
            if code == 0 and array.contents.release and self._harm is not None:
                self._harm(array.contents)
            return code

        stream.get_next = _NEXT(following)
        self._kept.append((stream.get_next, whole))
        return capsule


def harm_of(rng: random.Random) -> Any:
    """What an importer can see to be wrong: it can't know how long buffers are."""
    seed = rng.randrange(1 << 30)

    def harm(whole: ArrowArray) -> None:
        inner = random.Random(seed)
        array = whole.children[inner.randrange(whole.n_children)].contents
        how = inner.choice(["length", "offset", "buffer", "buffers", "nulls", "children", "none", "more"])
        if how == "length":
            array.length = inner.choice([-1, 0, array.length - 1, -(1 << 62), 1 << 40])
        elif how == "offset":
            array.offset = inner.choice([-1, -(1 << 40)])
        elif how == "buffer":
            array.buffers[inner.randrange(array.n_buffers)] = None
        elif how == "buffers":
            array.n_buffers = inner.choice([0, 1, 2])
        elif how == "nulls":
            array.null_count = inner.choice([-2, array.length + 1])
        elif how == "none":
            array.buffers = ctypes.POINTER(ctypes.c_void_p)()
        elif how == "more":
            array.n_children = 3
        else:
            whole.n_children -= 1

    return harm


def flaw_of(arrays: list[pa.Array]) -> str:
    """What Arrow's own full validation finds, of the values too; empty: nothing."""
    if any(len(each) != len(arrays[0]) for each in arrays):
        return "lengths differ"
    for each in arrays:
        try:
            each.validate(full=True)
        except pa.ArrowException as error:
            return str(error)
    return ""


def fuzz(seed: int, cases: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    runs = {timed: md.start(query(timed=timed), memory="1 GiB") for timed in (True, False)}
    for case in range(cases):
        print(f"case {case}", file=sys.stderr, flush=True)
        rng = random.Random(f"{seed} {case}")
        run = runs[rng.random() < 0.7]
        before = run.positions()["s"]
        rows = rng.choice([1, 2, 9, 64])
        arrays = batch_of(rng, before, rows)
        harm = None
        how = rng.random()
        if how < 0.7:
            place = rng.choice([1, 1, 1, 2, 2, 3, 4, 5, 0])
            try:
                arrays[place] = damaged(rng, arrays[place])
            except (pa.ArrowException, ValueError):
                counts["never made"] += 1  # pyarrow saw to it
        elif how < 0.9:
            harm = harm_of(rng)
        flaw = flaw_of(arrays)
        valid = not flaw
        data: Any = dict(zip(SCHEMA, arrays, strict=True))
        if valid or (rng.random() < 0.7 and all(len(each) == len(arrays[0]) for each in arrays)):
            data = pa.RecordBatch.from_arrays(arrays, names=list(SCHEMA))
        if harm is not None:
            data = Foreign(data, harm) if rng.random() < 0.5 else Streamed([data], harm)
        elif rng.random() < 0.4 and isinstance(data, pa.RecordBatch):
            data = Foreign(data) if rng.random() < 0.5 else Streamed([data])
        refused: md.DataError | None = None
        try:
            run.push("s", data)
        except md.DataError as error:
            refused = error
        counts["taken" if refused is None else "refused"] += 1
        if refused is None:
            assert valid or harm is not None, f"taken, though it is invalid: {flaw}"
        else:
            assert run.positions()["s"] == before, "refused, and something entered"
            assert "source 's'" in str(refused), refused
            excused = harm is not None or not valid or refused.code == "data.time"
            assert excused, f"refused what is valid: {refused}"
        for name in run.stats().filter(pa.compute.field("kind") == "sink")["box"].to_pylist():
            table = run.take(name)
            table.validate(full=True)
            for column in table.columns:
                if pa.types.is_string(column.type):
                    column.to_pylist()
    for run in runs.values():
        run.finish()
        run.close()
    return dict(counts)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]))))
