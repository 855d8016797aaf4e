"""What travels on an arc: trains of rows, and the control elements between them.

A stream is a sequence of these. Per-row metadata is never materialised when the header of a
train can carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NewType, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "END_US",
    "START_US",
    "WHOLE_PPM",
    "Boundary",
    "Element",
    "Kind",
    "Micros",
    "RecDone",
    "Shed",
    "Silent",
    "Train",
    "Undo",
]

Micros = NewType("Micros", int)
"""A point of stream time, or a length of it, in whole microseconds (points: since the Unix epoch)."""

START_US = Micros(-(1 << 62))
"""A boundary that promises nothing: where every stream begins."""

END_US = Micros(1 << 62)
"""The boundary that ends a stream: no row comes after it."""


class Kind(Enum):
    """Whether the rows of a train are final."""

    STABLE = "stable"
    TENTATIVE = "tentative"


class Train(Struct, frozen=True, kw_only=True, gc=False):
    """A record batch and its header.

    Attributes:
        batch: the rows; its schema is the schema of the stream.
        times: one ``timestamp[us, UTC]`` per row, without nulls: the hidden time column. None in
            a stream without time.
        first_seq: the position of the first row in its stream, counted from 0.
        kind: stable or tentative.
        late: one bool per row, true where the source judged the row late; None where no row is.
            Only trains that carry arrival order have it; time-dependent boxes drop those rows.
        extent: the least and largest of ``times`` in microseconds, where somebody has looked: it saves
            another look, and says nothing that ``times`` doesn't. Who changes rows leaves it out.
        arrival_us: when rows of a publisher came to their node, by its clock; None: nobody asks. Only
            trains that enter a source have it.
    """

    batch: pa.RecordBatch
    times: pa.Array | None = None
    first_seq: int = 0
    kind: Kind = Kind.STABLE
    late: pa.Array | None = None
    extent: tuple[int, int] | None = None
    arrival_us: int | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def part(self, start: int, rows: int) -> Train:
        """So many of its rows, from ``start`` on, which share its memory; itself where those are all."""
        if rows == len(self):
            return self
        late = None if self.late is None else self.late.slice(start, rows)
        return Train(
            batch=self.batch.slice(start, rows),
            times=None if self.times is None else self.times.slice(start, rows),
            first_seq=self.first_seq + start,
            kind=self.kind,
            late=late if late is not None and late.true_count else None,
            arrival_us=self.arrival_us,
        )

    @property
    def native(self) -> tuple[Any, Any]:
        """The batch and the times as native code takes them."""
        return self.batch, self.times


class Boundary(Struct, frozen=True, gc=False):
    """A promise: no later row of this stream has a time below ``time_us``."""

    time_us: int


@dataclass(frozen=True, slots=True)
class Undo:
    """Everything of this stream from ``seq`` on is withdrawn (Borealis DPC)."""

    seq: int


@dataclass(frozen=True, slots=True)
class RecDone:
    """The corrections that followed an ``Undo`` are complete (Borealis DPC)."""


@dataclass(frozen=True, slots=True)
class Silent:
    """No rows come from these sources: how far do they hold boxes back? It changes nothing and is on no arc.

    The answer is a boundary for each that does.
    """

    sources: tuple[str, ...]


WHOLE_PPM = 1_000_000
"""A share that is all of it, in millionths."""


@dataclass(frozen=True, slots=True)
class Shed:
    """From now on this share of what comes to a source is left out right behind it. It is on no arc."""

    share_ppm: int
    """In millionths, so that a log repeats it to the bit."""


Element: TypeAlias = Train | Boundary | Undo | RecDone
