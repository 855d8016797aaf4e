"""What all kernels share: how they are made and called, and how they say which rows failed.

A kernel gets values of equal length, as arrays or (for constants) scalars with at least one array
among them. It answers with an array, or with ``Faulty`` where some rows failed; a failed row is
null there and never disturbs its neighbours.

pyarrow's registered functions are called directly: its Python wrappers cost twenty times as much
on a small batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.query.types import TIMESTAMP, to_arrow

__all__ = [
    "AWARE",
    "NAIVE",
    "Faulty",
    "Kernel",
    "KernelSite",
    "Maker",
    "Mask",
    "Value",
    "as_array",
    "as_integers",
    "build",
    "by_row",
    "call",
    "function",
    "narrow",
    "on_integers",
    "raw",
    "show_value",
    "strike",
    "true_rows",
    "valid_rows",
]

NAIVE = pa.timestamp("us")
"""A time without its zone, as calendar kernels want it."""

AWARE = pa.timestamp("us", tz="UTC")

Value: TypeAlias = Any
"""A ``pyarrow.Array`` or, for a constant, a ``pyarrow.Scalar``."""

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class Faulty(NamedTuple):
    """Values of which some rows failed.

    Attributes:
        mask: one bool per row, true where it failed.
        error: what went wrong in a row for which the mask is true.
    """

    values: pa.Array
    mask: Mask
    error: Callable[[int], str]


Kernel: TypeAlias = Callable[[int, Sequence[Value]], "pa.Array | Faulty"]
"""Takes the number of rows and the arguments."""


@dataclass(frozen=True, slots=True)
class KernelSite:
    """Where a kernel will stand: the types around it and the arguments known beforehand."""

    type: str
    types: tuple[str, ...]
    constants: tuple[pa.Scalar | None, ...]

    def text(self, index: int) -> str:
        """The constant text that is argument ``index``."""
        scalar = self.constants[index]
        assert scalar is not None
        return str(scalar.as_py())

    def integer(self, index: int) -> int:
        """The constant integer that is argument ``index``."""
        scalar = self.constants[index]
        assert scalar is not None
        return int(scalar.as_py())


Maker: TypeAlias = Callable[[KernelSite], Kernel]


def function(name: str) -> Callable[..., Any]:
    """A registered function of pyarrow: ``f(arguments, options=None)``."""
    bound: Callable[..., Any] = pc.get_function(name).call
    return bound


def call(name: str, options: Any = None) -> Kernel:
    """The kernel that a function of pyarrow is, with fixed options."""
    run = function(name)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        return run(args, options)

    return kernel


def as_array(value: Value, rows: int) -> pa.Array:
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


_DTYPES: dict[int, np.dtype[Any]] = {
    **{
        getattr(pa, f"{u}int{bits}")().id: np.dtype(f"{u}int{bits}")
        for u in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    pa.float32().id: np.dtype(np.float32),
    pa.float64().id: np.dtype(np.float64),
    pa.date32().id: np.dtype(np.int32),
    NAIVE.id: np.dtype(np.int64),
    pa.duration("us").id: np.dtype(np.int64),
}


def raw(array: pa.Array) -> np.ndarray[Any, Any]:
    """The values of a fixed-width array without a copy; arbitrary where it is null. Not for bools.

    Times and durations are viewed as the integers they are.
    """
    dtype = _DTYPES[array.type.id]
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.empty(0, dtype)
    values: np.ndarray[Any, Any] = np.frombuffer(
        buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize
    )
    return values


def valid_rows(array: pa.Array) -> Mask:
    """True where not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


_or_false = function("coalesce")
_FALSE = pa.scalar(False)


def true_rows(value: Value, rows: int) -> Mask:
    """True where a bool value is true (not null)."""
    if isinstance(value, pa.Scalar):
        return np.full(rows, value.as_py() is True)
    if value.null_count:
        value = _or_false([value, _FALSE])
    mask: Mask = value.to_numpy(zero_copy_only=False)
    return mask


_if_else = function("if_else")


def strike(array: pa.Array, mask: Mask) -> pa.Array:
    """The array with null where the mask is true."""
    return _if_else([pa.array(mask), pa.scalar(None, array.type), array])


def build(values: np.ndarray[Any, Any], like: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """An array over numpy values, null where any of ``like`` is null. The values are not copied."""
    validity = None
    nulls = [array for array in like if array.null_count]
    if nulls:
        valid = nulls[0].is_valid()
        for array in nulls[1:]:
            valid = _and([valid, array.is_valid()])
        validity = valid.buffers()[1]
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(type, len(values), [validity, pa.py_buffer(values)])


_and = function("and")


def as_integers(value: Value) -> Value:
    """A time or duration as the int64 it is."""
    if isinstance(value, pa.Scalar):
        return pa.scalar(value.value, pa.int64())
    return value.view(pa.int64())


def on_integers(kernel: Kernel, type: str) -> Kernel:
    """The kernel on times and durations as int64, its result viewed as ``type``.

    Arrow's own kernels for them don't check every overflow, and do look at what lies under nulls.
    """
    arrow = to_arrow(type)

    def run(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        made = kernel(rows, [arg if arg.type == _INT64 else as_integers(arg) for arg in args])
        if isinstance(made, Faulty):
            return made._replace(values=made.values.view(arrow))
        return made.view(arrow)

    return run


_INT64 = pa.int64()


def narrow(values: Sequence[int | float | None], type: str) -> pa.Array:
    """Python values in the form of literals as an array of the type."""
    arrow = to_arrow(type)
    if type == TIMESTAMP:
        return pa.array(values, pa.int64()).view(arrow)
    if type == "date32":
        return pa.array(values, pa.int32()).view(arrow)
    return pa.array(values, arrow)


def by_row(array: pa.Array, one: Callable[[Any], Any], type: str, complaint: str) -> pa.Array | Faulty:
    """The slow and certain way: a Python function on each value that isn't null.

    Args:
        one: gives None where the row fails.
        complaint: follows the value in the error, e.g. ``is no int64``.
    """
    mask = np.zeros(len(array), np.bool_)
    out: list[Any] = []
    for row, value in enumerate(array.to_pylist()):
        made = None if value is None else one(value)
        mask[row] = made is None and value is not None
        out.append(made)
    values = narrow(out, type)
    if not mask.any():
        return values
    return Faulty(values, mask, lambda row: f"{show_value(array, row)} {complaint}")


def show_value(array: pa.Array, row: int) -> str:
    """One value for a message, short."""
    try:
        value = array[row].as_py()
    except (ValueError, OverflowError):
        value = raw(array)[row]
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
