"""Columns without what lies beside their values: for what leaves for another owner.

An Arrow buffer holds bytes that belong to no value: under nulls, after the last row, before the first
of a slice. Whatever the memory held before is still there, and a record batch message carries some of
it: what lies under nulls, and up to eight bytes at the end of each buffer. Here these become zero, in
buffers of our own; those that came are never written to. Buffers in which nothing else lies are shared.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["clean"]

Bools = npt.NDArray[np.bool_]


def clean(array: pa.Array) -> pa.Array:
    """An equal array whose message holds nothing but its values.

    Args:
        array: of a schema type of ours (semantics 1).
    """
    valid = _bits(array.buffers()[0], array.offset, len(array)) if array.null_count else None
    head = None if valid is None else _packed(valid)
    type = array.type
    if pa.types.is_boolean(type):
        bits = _bits(array.buffers()[1], array.offset, len(array))
        return pa.Array.from_buffers(
            type, len(array), [head, _packed(bits if valid is None else bits & valid)]
        )
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _texts(array, head, valid)
    width = type.bit_width // 8
    data = array.buffers()[1].slice(array.offset * width, len(array) * width)
    if valid is not None:
        words = np.frombuffer(data, f"u{min(width, 8)}").reshape(len(array), -1)
        data = pa.py_buffer(words * valid.astype(words.dtype)[:, None])
    return pa.Array.from_buffers(type, len(array), [head, data])


def _texts(array: pa.Array, head: pa.Buffer | None, valid: Bools | None) -> pa.Array:
    """Text or bytes; what a null slot points to is left out."""
    count = len(array)
    if valid is not None:
        whole = _offsets(array)
        if np.any((whole[1:] > whole[:-1]) & ~valid):
            array = array.fill_null("" if pa.types.is_string(array.type) else b"")
    offsets = _offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.buffers()[2]
    data = pa.py_buffer(b"") if values is None else values.slice(first, last - first)
    places = pa.py_buffer(offsets - np.int32(first) if first else offsets)
    return pa.Array.from_buffers(array.type, count, [head, places, data])


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def _bits(buffer: pa.Buffer, start: int, count: int) -> Bools:
    """Some bits of a bitmap, one by one."""
    data = np.frombuffer(buffer, np.uint8, -(-(start + count) // 8) - start // 8, start // 8)
    bits = np.unpackbits(data, bitorder="little")[start % 8 : start % 8 + count]
    return bits.view(np.bool_)


def _packed(bits: Bools) -> pa.Buffer:
    """A bitmap of these bits alone."""
    return pa.py_buffer(np.packbits(bits, bitorder="little"))
