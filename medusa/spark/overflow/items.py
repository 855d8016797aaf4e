"""Elements on their way to a group and back: each with the number of what it came of, and its end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.elements import Boundary, Element, Kind, Train
from medusa.errors import DataError

__all__ = ["Item", "decode", "encode", "unfit"]

Item = tuple[int, str, Element]
"""The number of an element of this trigger, a source or sink, and what enters or left there."""


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Of a boundary there are only ``number``, ``end`` and ``at``; of a train ``at`` is its first row."""

    number: int
    end: str
    at: int
    rows: bytes | None = None
    timed: bool = False
    marked: bool = False
    tentative: bool = False
    arrival_us: int | None = None


_ITEMS = msgpack_decoder(list[_Packed])


def unfit(item: Item) -> str:
    """Why an item can't be encoded; empty: it can."""
    _, end, element = item
    if isinstance(element, Boundary | Train):
        return ""
    return f"source {end!r}: {type(element).__name__} doesn't enter a fragment"


def encode(items: Iterable[Item]) -> bytes:
    """As msgpack, with rows as Arrow streams.

    Raises:
        DataError: neither a train nor a boundary.
    """
    return msgspec.msgpack.encode([_packed(*item) for item in items])


def decode(data: bytes) -> list[Item]:
    """What ``encode`` wrote.

    Raises:
        DataError: it isn't that.
    """
    try:
        return [(each.number, each.end, _element(each)) for each in _ITEMS.decode(data)]
    except (msgspec.MsgspecError, pa.ArrowException, OSError) as error:
        raise DataError(f"elements can't be read: {error}"[:300], code="data.packed") from None


def _packed(number: int, end: str, element: Element) -> _Packed:
    if isinstance(element, Boundary):
        return _Packed(number, end, element.time_us)
    if not isinstance(element, Train):
        raise DataError(unfit((number, end, element)), code="data.element")
    columns, names = list(element.batch.columns), list(element.batch.schema.names)
    for name, hidden in (("times", element.times), ("late", element.late)):
        if hidden is not None:
            columns.append(hidden)
            names.append(name)
    rows = pa.RecordBatch.from_arrays(columns, names=names) if columns else element.batch
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return _Packed(
        number=number,
        end=end,
        at=element.first_seq,
        rows=sink.getvalue().to_pybytes(),
        timed=element.times is not None,
        marked=element.late is not None,
        tentative=element.kind is Kind.TENTATIVE,
        arrival_us=element.arrival_us,
    )


def _element(packed: _Packed) -> Element:
    if packed.rows is None:
        return Boundary(packed.at)
    with pa.ipc.open_stream(packed.rows) as reader:
        rows = reader.read_next_batch()
    shown = rows.num_columns - packed.timed - packed.marked
    schema = pa.schema([rows.schema.field(place) for place in range(shown)])
    return Train(
        batch=pa.RecordBatch.from_arrays(rows.columns[:shown], schema=schema),
        times=rows.column(shown) if packed.timed else None,
        late=rows.column(rows.num_columns - 1) if packed.marked else None,
        first_seq=packed.at,
        kind=Kind.TENTATIVE if packed.tentative else Kind.STABLE,
        arrival_us=packed.arrival_us,
    )
