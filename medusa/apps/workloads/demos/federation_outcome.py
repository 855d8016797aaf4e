"""What a run over two owners found and measured: plain values for screen and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.netmon_outcome import percentile

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FederationOutcome", "FederationStep", "LookUps", "TableComparison", "compare", "gaps_us"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationStep:
    """Something that was done while rows flowed.

    Attributes:
        what: in words.
        kind: ``calm``, ``move``, ``split``, ``merge``, ``leave`` or ``join``.
        seconds: until it was done.
        gaps_us: between one window's results and the next one's at the subscriber, from the begin of the step
            until a while after its end.
        stopped_us: how long nothing of the fragment was fed, as its node says; None: nothing stops.
        sent_bytes: of state and what was fed meanwhile; None: nothing.
    """

    what: str
    kind: str
    seconds: float
    gaps_us: Sequence[int]
    stopped_us: int | None = None
    sent_bytes: int | None = None

    @property
    def p50_us(self) -> int:
        return percentile(list(self.gaps_us), 0.5)

    @property
    def longest_us(self) -> int:
        return max(self.gaps_us, default=0)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "what": self.what,
            "kind": self.kind,
            "seconds": round(self.seconds, 3),
            "gap_p50_us": self.p50_us,
            "gap_max_us": self.longest_us,
            "stopped_us": self.stopped_us,
            "sent_bytes": self.sent_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUps:
    """Where nodes of the other owner said that the result is, after something had changed.

    Attributes:
        after: what had changed.
        asked: the nodes that were asked, until all said the truth.
        truth: the node that has it.
        right, nothing, older: answers: the truth, nothing (yet), where it was before.
        wrong: answers that were never true.
        seconds: until all said the truth; None: they didn't in time.
    """

    after: str
    asked: Sequence[str]
    truth: str
    right: int
    nothing: int
    older: int
    wrong: int
    seconds: float | None

    @property
    def fine(self) -> bool:
        return self.seconds is not None and not self.wrong

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {**asdict(self), "seconds": None if self.seconds is None else round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """Two sequences of rows; ``example`` says where they differ first."""

    rows: int
    expected: int
    example: str = ""

    @property
    def equal(self) -> bool:
        return not self.example


def compare(rows: pa.Table, expected: pa.Table) -> TableComparison:
    """Row by row, in order, bit for bit (-0.0 is not 0.0, a NaN equals the same NaN): one instance owned each
    key, whatever moved or was split."""
    example = ""
    found, wanted = _bits(rows), _bits(expected)
    if not rows.schema.equals(expected.schema):
        example = f"columns {rows.schema.names}, expected {expected.schema.names}"
    elif not found.equals(wanted):
        pairs = enumerate(zip_longest(found.to_pylist(), wanted.to_pylist()))
        number = next(n for n, (one, other) in pairs if one != other)
        one, other = (
            _row(next(iter(table.slice(number, 1).to_pylist()), None)) for table in (rows, expected)
        )
        example = f"row {number:,}: {one}, expected {other}"
    return TableComparison(rows=len(rows), expected=len(expected), example=example)


def _bits(table: pa.Table) -> pa.Table:
    """With the bits of floats as integers."""
    import pyarrow as pa

    integers = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = []
    for column in table.columns:
        kind = integers.get(column.type, column.type)
        columns.append(pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind))
    return pa.table(columns, names=table.column_names)


def _row(row: dict[str, Any] | None) -> str:
    return "nothing" if row is None else ", ".join(f"{name}={value}" for name, value in row.items())


def gaps_us(arrivals: Sequence[float], begin_s: float, end_s: float) -> list[int]:
    """Times between arrivals that follow each other, where they have a part in that time."""
    return [round((after - at) * 1e6) for at, after in pairwise(arrivals) if after > begin_s and at < end_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationOutcome:
    """A finished run."""

    comparison: TableComparison
    steps: Sequence[FederationStep]
    lookups: Sequence[LookUps]
    lost_rows: int
    cars: int
    seconds: float
    seed: int
    refused: str
    """The code by which bob refused a box that he doesn't offer."""

    @property
    def fine(self) -> bool:
        """Nothing differs from what it should be."""
        looked = all(each.fine for each in self.lookups)
        return self.comparison.equal and looked and not self.lost_rows and self.refused == "E_OFFER"

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "fine": self.fine,
            "equal": self.comparison.equal,
            "example": self.comparison.example,
            "rows": self.comparison.rows,
            "expected": self.comparison.expected,
            "lost_rows": self.lost_rows,
            "cars": self.cars,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "refused": self.refused,
            "steps": [each.to_json() for each in self.steps],
            "lookups": [each.to_json() for each in self.lookups],
        }
