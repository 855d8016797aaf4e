"""Elements on their way to a group and back: each with the number of what it came of, and its end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from medusa.decoders import msgpack_decoder
from medusa.elements import Boundary, Element, Kind, Shed, Train
from medusa.errors import DataError

__all__ = ["FedItem", "Item", "decode", "decode_outputs", "encode", "unfit"]

Item = tuple[int, str, Element]
"""The number of an element of this trigger, a sink, and what left there."""

FedItem = tuple[int, str, Element | Shed]
"""The number of an element of this trigger, a source, and what enters there."""


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Of a boundary there are only ``number``, ``end`` and ``at``; of a train ``at`` is its first row; of a
    share that is left out there is ``share_ppm``."""

    number: int
    end: str
    at: int
    rows: bytes | None = None
    timed: bool = False
    marked: bool = False
    tentative: bool = False
    arrival_us: int | None = None
    share_ppm: int | None = None


_ITEMS = msgpack_decoder(list[_Packed])


def unfit(item: FedItem) -> str:
    """Why an item can't be encoded; empty: it can."""
    _, end, element = item
    if isinstance(element, Boundary | Train | Shed):
        return ""
    return f"source {end!r}: {type(element).__name__} doesn't enter a fragment"


def encode(items: Iterable[FedItem]) -> bytes:
    """As msgpack, with rows as Arrow streams.

    Raises:
        DataError: neither a train nor a boundary nor a share.
    """
    return msgspec.msgpack.encode([_packed(*item) for item in items])


def decode(data: bytes) -> list[FedItem]:
    """What ``encode`` wrote.

    Raises:
        DataError: it isn't that.
    """
    try:
        return [(each.number, each.end, _element(each)) for each in _ITEMS.decode(data)]
    except (msgspec.MsgspecError, pa.ArrowException, OSError) as error:
        raise DataError(f"elements can't be read: {error}"[:300], code="data.packed") from None


def decode_outputs(data: bytes) -> list[Item]:
    """What ``encode`` wrote of what left. Raises as ``decode``, and for a share: none leaves a fragment."""
    found: list[Item] = []
    for number, sink, element in decode(data):
        if isinstance(element, Shed):
            raise DataError(f"sink {sink!r}: a share that is left out came out of it", code="data.packed")
        found.append((number, sink, element))
    return found


def _packed(number: int, end: str, element: Element | Shed) -> _Packed:
    if isinstance(element, Shed):
        return _Packed(number, end, 0, share_ppm=element.share_ppm)
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


def _element(packed: _Packed) -> Element | Shed:
    if packed.share_ppm is not None:
        return Shed(packed.share_ppm)
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
