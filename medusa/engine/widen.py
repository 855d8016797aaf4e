"""Between the types of columns and the six that native code knows (``medusa._native``)."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from medusa.query.types import is_float, to_arrow

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
    if type.startswith("decimal"):
        raise ValueError(f"{type} has no native type")
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
    # A float64 that was widened from float32 goes back exactly; so do all integers.
    return array.cast(wanted, safe=not is_float(type))
