"""Between the types of columns and the six that native code knows (``medusa._native``).

A decimal goes as 16 bytes that compare as the numbers do: big-endian, the sign bit flipped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.query.types import is_decimal, is_float, to_arrow

__all__ = ["native_type", "narrow", "widen"]

_INT64 = pa.int64()
_NATIVE = {"uint64": "L", "float32": "g", "float64": "g", "utf8": "u", "binary": "z", "bool": "b"}
_VIEWED = ("timestamp[us, UTC]", "duration[us]")
_ARROW = {
    "l": _INT64,
    "L": pa.uint64(),
    "g": pa.float64(),
    "u": pa.string(),
    "z": pa.binary(),
    "b": pa.bool_(),
}
# Every cast here is known to fit, so it is not checked again.
_CASTS = {kind: pc.CastOptions.unsafe(type) for kind, type in _ARROW.items()}
_CAST = pc.get_function("cast")


_arrow_type = lru_cache(maxsize=256)(to_arrow)


def native_type(type: str) -> str:
    """The native type that holds every value of a column type: integers, dates, times are ``l``."""
    if is_decimal(type):
        return "z"
    return _NATIVE.get(type, "l")


def native_arrow(type: str) -> pa.DataType:
    """The Arrow type of what ``widen`` gives."""
    return _ARROW[native_type(type)]


def widen(array: pa.Array, type: str) -> pa.Array:
    """A column as native code takes it; not copied where the type is native already."""
    native = native_type(type)
    wide = _ARROW[native]
    if array.type == wide:
        return array
    if type in _VIEWED:
        return array.view(_INT64)
    if type == "date32":
        array = array.view(pa.int32())
    if is_decimal(type):
        return _ordered_bytes(array)
    return _CAST.call([array], _CASTS[native])


def narrow(array: pa.Array, type: str) -> pa.Array:
    """Back from native: values that came from ``type`` (or, for sums and counts, are of it)."""
    wanted = _arrow_type(type)
    if array.type == wanted:
        return array
    if type in _VIEWED:
        return array.view(wanted)
    if type == "date32":
        return array.cast(pa.int32()).view(wanted)
    if is_decimal(type):
        return _decimals(array, wanted)
    # A float64 that was widened from float32 goes back exactly; so do all integers.
    return array.cast(wanted, safe=not is_float(type))


def _ordered_bytes(array: pa.Array) -> pa.Array:
    words: Any = (
        np.frombuffer(array.buffers()[1], "<u8", 2 * len(array), 16 * array.offset) if len(array) else []
    )
    halves = np.array(words, "<u8").reshape(-1, 2)[:, ::-1].byteswap()
    halves[:, 0] ^= 0x80  # the sign, now in the first byte
    offsets = np.arange(len(array) + 1, dtype=np.int32) * 16
    validity = None if not array.null_count else array.is_valid().buffers()[1]
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(halves.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers, array.null_count)


def _decimals(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Of binary values of 16 bytes, or null."""
    fixed = array.fill_null(b"\0" * 16) if array.null_count else array
    start = int(np.frombuffer(fixed.buffers()[1], "<i4", 1, 4 * fixed.offset)[0]) if len(fixed) else 0
    words: Any = np.frombuffer(fixed.buffers()[2], "<u8", 2 * len(fixed), start) if len(fixed) else []
    halves = np.array(words, "<u8").reshape(-1, 2)
    halves[:, 0] ^= 0x80
    halves = halves.byteswap()[:, ::-1]
    validity = None if not array.null_count else array.is_valid().buffers()[1]
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(halves).tobytes())]
    return pa.Array.from_buffers(wanted, len(array), buffers, array.null_count)
