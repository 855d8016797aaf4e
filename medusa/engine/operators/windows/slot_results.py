"""Windows that have closed group by group, as the rows of a box; those whose sum doesn't fit are dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.box import Operator
from medusa.engine.core.dead_letters import DeadLetters, DeadRow
from medusa.engine.core.native_types import narrow
from medusa.engine.core.rows import as_times, empty_batch
from medusa.query.boxes import AggregateCall, Schema
from medusa.query.types import is_decimal, schema_to_arrow

__all__ = ["Finished", "Numbers", "SlotResults"]

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Finished:
    """Results of some windows: ``index`` are those that didn't fail, ``columns`` their aggregates."""

    index: Numbers
    columns: list[pa.Array]
    failed: list[tuple[int, int]]


class SlotResults:
    """Finished windows as trains of a box."""

    def __init__(
        self, box: Operator, output: Schema, letters: DeadLetters, calls: Sequence[AggregateCall]
    ) -> None:
        self._box = box
        self._types = [field.type for field in output]
        self._schema = schema_to_arrow(output)
        self._letters = letters
        self._calls = calls

    def train(
        self,
        finished: Finished,
        bounds: Sequence[npt.NDArray[Any]],
        keys: list[pa.Array],
        times: Numbers | None,
    ) -> Train:
        """Rows in order; those that failed go to the dead letters.

        Args:
            bounds: starts and ends of all windows, failed ones too; so are keys and times.
        """
        head = [*map(pa.array, bounds), *keys]
        if finished.failed:
            self._bury(finished, head)
            at = pa.array(finished.index)
            head = [column.take(at) for column in head]
            times = None if times is None else times[finished.index]
        if not len(finished.index):
            return Train(batch=empty_batch(self._schema))
        columns = [*head, *finished.columns[: len(self._calls)]]
        narrowed = [narrow(c, t) for c, t in zip(columns, self._types, strict=True)]
        batch = pa.RecordBatch.from_arrays(narrowed, schema=self._schema)
        return Train(batch=batch, times=None if times is None else as_times(times))

    def _bury(self, finished: Finished, head: list[pa.Array]) -> None:
        names = self._schema.names[: len(head)]
        narrowed = [narrow(c, t) for c, t in zip(head, self._types, strict=False)]
        before = -1
        for number, call in finished.failed:
            if number == before:
                continue
            before = number
            self._box.count(dead=1)
            row = {name: column[number].as_py() for name, column in zip(names, narrowed, strict=True)}
            decimal = is_decimal(self._types[len(head) + call])
            text = "its sum has more than 38 digits" if decimal else "its sum doesn't fit int64"
            text = f"aggregate {self._calls[call].name!r}: {text}"
            self._letters.add(DeadRow(self._box.id, text, row))
