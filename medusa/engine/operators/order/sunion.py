"""SUnion: the rows of several streams merged by time, bucket by bucket: the same order in every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from medusa.elements import END_US, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.row_buffer import Timed, TimedRowBuffer, concat_timed
from medusa.engine.core.sorting import order_in_pieces
from medusa.query.boxes import Schema, SUnion
from medusa.query.types import schema_to_arrow

__all__ = ["SUnionBox"]


class SUnionBox(Operator):
    """Rows leave by (bucket, time, input, position) once all inputs have passed the end of their bucket.

    Buckets are aligned to the epoch, so (time, input, position) is the same order; the bucket says
    how much is sorted at once, and how far the output stays behind.
    """

    kind = "sunion"

    def __init__(self, spec: SUnion, *, schema: Schema) -> None:
        super().__init__(spec.id, inputs=len(spec.inputs))
        self._bucket_us = spec.bucket_us
        self._waiting = [TimedRowBuffer(schema_to_arrow(schema)) for _ in spec.inputs]

    def on_train(self, input: int, train: Train) -> None:
        kept = self.on_time(train)
        self._waiting[input].add(Timed.of(kept))

    def on_boundary(self, time_us: int) -> None:
        end_us = time_us if time_us >= END_US else time_us // self._bucket_us * self._bucket_us
        if end_us <= self.boundary_us:
            return
        self.leave(self._results(end_us))

    def _results(self, end_us: int) -> Iterator[None]:
        """The rows below a boundary, piece by piece, and then the boundary."""
        ready = [rows for waiting in self._waiting if (rows := waiting.ready(end_us)) is not None]
        # Each is in order of time and the sort is stable, so ties stay by (input, position).
        if sum(map(len, ready)) > output_pieces.ROWS_MAX:
            yield
            rows = concat_timed(ready)
            yield
            order = yield from order_in_pieces([rows.times])
            for first, end in output_pieces.row_cuts(len(order)):
                yield
                self.emit_train(rows.pick(order[first:end]).train())
        elif ready:
            self.emit_train(concat_timed(ready).sorted().train())
        self.advance(end_us)

    def queue_bytes(self) -> int:
        return sum(waiting.nbytes() for waiting in self._waiting)

    def queue_rows(self) -> int:
        return sum(map(len, self._waiting))

    def waits_open(self, names: Sequence[str]) -> str:
        waiting = sum(map(len, self._waiting))
        return f"{self.held(names, waits=True)}; {waiting} rows wait for it"

    def save_more(self, state: BoxState) -> None:
        for input, waiting in enumerate(self._waiting):
            waiting.save(state, f"input-{input}")

    def load_more(self, state: BoxState) -> None:
        for input, waiting in enumerate(self._waiting):
            waiting.load(state, f"input-{input}")
