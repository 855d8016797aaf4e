"""A query over files: read in batches, merged by time, written as rows come out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from medusa.engine.bounded_run import SourcePart, measured_slack_us, merged, with_slack
from medusa.engine.input.ingest import normalise, times_of
from medusa.io.lines import wait_for
from medusa.io.places import FilePlace
from medusa.io.progress import RunProgress
from medusa.io.readers import RowReader, open_reader
from medusa.io.writers import RowWriter, open_writer
from medusa.query.boxes import Aggregate, Graph, Source
from medusa.query.builder import Query
from medusa.query.shape import types_of
from medusa.runtime.embedded.embedded_run import start
from medusa.runtime.embedded.run import Run
from medusa.runtime.machine.interrupts import INTERRUPTS

__all__ = ["SourceInput", "FileJob"]


@dataclass(frozen=True, slots=True)
class SourceInput:
    """Where the rows of a source come from.

    Attributes:
        types: of columns, as the user said.
    """

    place: FilePlace
    reader: RowReader
    types: Mapping[str, str]


class FileJob:
    """One run of a query over files.

    Args:
        inputs: by source.
        outputs: by sink.
        follow: go on reading as files grow.
        on_error: as ``md.start``.
    """

    def __init__(
        self,
        query: Query,
        inputs: Mapping[str, SourceInput],
        outputs: Mapping[str, FilePlace],
        *,
        follow: bool,
        on_error: str,
    ) -> None:
        self._query = query
        self._inputs = inputs
        self._outputs = outputs
        self._follow = follow
        self._on_error = on_error
        self._writers: dict[str, RowWriter] = {}
        self._specs = {box.id: box for box in query.graph.boxes if isinstance(box, Source)}
        for name, spec in self._specs.items():
            if spec.time is not None:
                inputs[name].reader.require(spec.time)

    def run(self, *, progress: bool) -> dict[str, Any]:
        """To the end of all inputs, or with ``follow`` until Ctrl-C.

        Returns:
            What there is to tell: rows, seconds, late and failed rows.

        Raises:
            DataError: a file or row that can't be read; no output file is left behind.
            KeyboardInterrupt: Ctrl-C, where inputs are bounded.
        """
        began = time.monotonic()
        graph = (
            self._query.graph if self._follow else _bounded(with_slack(self._query.graph, self._measured()))
        )
        run = start(Query.from_graph(graph), on_error=self._on_error)
        try:
            for sink, place in self._outputs.items():
                self._writers[sink] = open_writer(place, run.take(sink).schema, live=self._follow)
            with RunProgress(self._fraction, wanted=progress) as bar:
                if self._follow:
                    self._live(run, bar)
                else:
                    self._bounded(run, bar)
        except BaseException:
            for writer in self._writers.values():
                writer.discard()
            raise
        for writer in self._writers.values():
            writer.close()
        return self._told(run, time.monotonic() - began)

    # -- bounded --

    def _measured(self) -> dict[str, int]:
        """The slack of sources that declare none: a pass over their time column.

        Standard input can't be read twice; its slack is 0.
        """
        found = {}
        for name, spec in self._specs.items():
            place = self._inputs[name].place
            if spec.time is not None and spec.slack_us is None and not place.standard:
                found[name] = measured_slack_us(self._times(name, spec))
        return found

    def _times(self, name: str, spec: Source) -> Iterator[pa.Array]:
        given = self._inputs[name]
        only = msgspec.structs.replace(
            spec, schema=tuple(field for field in spec.schema if field.name == spec.time)
        )
        columns = [str(spec.time)]
        reader = open_reader(given.place, types=given.types, known=types_of(spec.schema))
        reader.require(str(spec.time))
        try:
            for batch in reader.batches(columns if spec.time in reader.schema.names else None):
                for part in normalise(batch, only.schema, extra="ignore", source=name):
                    yield times_of(part, only)
        finally:
            reader.close()

    def _parts(self, name: str, spec: Source) -> Iterator[SourcePart]:
        for batch in self._inputs[name].reader.batches():
            for part in normalise(batch, spec.schema, extra="ignore", source=name):
                yield SourcePart(part, times_of(part, spec))

    def _bounded(self, run: Run, bar: RunProgress) -> None:
        parts = {name: self._parts(name, spec) for name, spec in self._specs.items()}
        for name, part in merged(parts):
            run.push(name, part.batch)
            self._write(run)
            bar.rows(part.batch.num_rows)
        run.finish()
        self._write(run)

    # -- live --

    def _live(self, run: Run, bar: RunProgress) -> None:
        """Until all inputs end, or Ctrl-C: then open windows stay unwritten.

        What was read is pushed, and what came of it is written, before Ctrl-C is heard: no line is cut off.
        """
        readers = {name: given.reader for name, given in self._inputs.items()}
        try:
            while growing := [each.lines for each in readers.values() if each.lines and not each.lines.ended]:
                rows = 0
                with INTERRUPTS:
                    for name, reader in readers.items():
                        for batch in reader.batches():
                            run.push(name, batch, extra="ignore")
                            rows += batch.num_rows
                    self._write(run)
                bar.rows(rows)
                if not rows:
                    wait_for(growing)
        except KeyboardInterrupt:
            self._write(run)
            return
        run.finish()
        self._write(run)

    # -- both --

    def _write(self, run: Run) -> None:
        for sink, writer in self._writers.items():
            writer.write(run.take(sink))

    def _fraction(self) -> float | None:
        parts = [given.reader.fraction for given in self._inputs.values()]
        known = [part for part in parts if part is not None]
        return sum(known) / len(known) if known and len(known) == len(parts) and not self._follow else None

    def _told(self, run: Run, seconds: float) -> dict[str, Any]:
        boxes = {row["box"]: row for row in run.stats().to_pylist()}
        return {
            "query": self._query.name,
            "seconds": round(seconds, 6),
            "inputs": {
                name: {
                    "from": given.place.path,
                    "rows": run.positions()[name],
                    "late": boxes[name]["late"],
                }
                for name, given in self._inputs.items()
            },
            "outputs": {
                sink: {"to": place.path, "rows": self._writers[sink].rows}
                for sink, place in self._outputs.items()
            },
            "failed_rows": sum(row["dead"] for row in boxes.values()),
        }


def _bounded(graph: Graph) -> Graph:
    """Without what is for live input: the clock of this machine has no say in files."""
    boxes = []
    for box in graph.boxes:
        if isinstance(box, Source):
            box = msgspec.structs.replace(box, idle_us=None)
        elif isinstance(box, Aggregate):
            box = msgspec.structs.replace(box, early_us=None)
        boxes.append(box)
    return msgspec.structs.replace(graph, boxes=tuple(boxes))
