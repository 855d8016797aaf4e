"""Why a stream's answers can't be judged by an archive: rows it doesn't have, or an order nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from medusa.apps.pipeline.folder import Manifest, Stored
from medusa.errors import DataError
from medusa.query.boxes import Graph, Schema, Sink, Source, Union
from medusa.query.graph import label_of
from medusa.spark import support
from medusa.spark.dataframes.source import SEQ

__all__ = ["gaps", "shed_by", "unmarked", "why_unordered"]


def gaps(what: str, stored: Mapping[str, Stored], until_us: int | None = None) -> Iterator[str]:
    """Rows that a stream gave, or may give, and its archive doesn't have: its numbers have no gaps there.

    Args:
        what: ``source`` or ``sink``.
        until_us: only windows that ended by this time count.
    """
    for name, each in stored.items():
        manifest = each.manifest
        if not manifest.of_stream:
            continue  # What was made of a trace may have any numbers.
        if first := manifest.from_row:
            yield f"{what} {name}: its archive begins with row {first:,} of the stream"
        if lacking := manifest.missing_rows:
            yield (
                f"{what} {name}: its archive lacks {lacking:,} rows of the stream, which the node had let go "
                "before they were read"
            )
        if not (manifest.complete or (until_us is not None and _reaches(what, manifest, until_us))):
            yield f"{what} {name}: its archive isn't complete: more rows of the stream may come"


def _reaches(what: str, manifest: Manifest, until_us: int) -> bool:
    """Of a sink's nobody knows: its rows come when their windows end."""
    if what == "sink" or manifest.time is None:
        return True
    return manifest.to_us is not None and manifest.to_us >= until_us


def shed_by(stats: Any) -> dict[str, int]:
    """How many rows a run left out, by box: of ``run.stats()``, or of a Parquet file of that.

    Raises:
        DataError: it is something else.
    """
    if isinstance(stats, str | Path):
        try:
            stats = pq.read_table(stats)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"stats: {stats} can't be read: {error}", code="data.argument") from None
    if not isinstance(stats, pa.Table) or not {"box", "shed"} <= set(stats.column_names):
        raise DataError(
            f"stats: expected what run.stats() gives, came {type(stats).__name__}",
            hint="stats=run.stats(), or a Parquet file of that table",
            code="data.argument",
        )
    rows = stats.select(["box", "shed"]).to_pylist()
    return {row["box"]: row["shed"] for row in rows if row["shed"]}


def unmarked(graph: Graph, shed: Mapping[str, int], marked: Mapping[str, int | None]) -> Iterator[str]:
    """Rows that the run left out and no archive names.

    Args:
        shed: by box, as the run counted.
        marked: by source, as its archive says.
    """
    for box in graph.boxes:
        rows = shed.get(box.id, 0)
        if isinstance(box, Source):
            if rows > (held := marked.get(box.id) or 0):
                yield f"source {box.id}: {rows:,} rows were shed behind it, and the archive marks {held:,}"
        elif rows and not isinstance(box, Sink):
            yield f"{label_of(box)}: {rows:,} rows were shed before it, which no archive of a source marks"


def why_unordered(
    graph: Graph, sink: str, schema: Schema, *, has: Mapping[str, bool], numbered: bool, floats: float
) -> str:
    """Why the order of a sink's rows can't be compared; empty: it can.

    Args:
        has: source -> whether its rows have ``_seq``.
        numbered: whether the answers have.
    """
    reached = support.above(graph, {sink})
    if floats:
        return "a tolerance was given, which is for combined partials: they leave by key"
    if not numbered:
        return f"the answers have no column {SEQ}"
    if not all(has.values()):
        return f"a source has no column {SEQ}"
    if any(isinstance(box, Union) and box.id in reached for box in graph.boxes):
        return "a union takes rows as they arrive"
    if any(field.name == SEQ for field in schema):
        return f"it has a column {SEQ} of its own"
    return ""
