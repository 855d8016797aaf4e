"""The parts of a box, some in memory and some on disk: rows in, and what all of them give in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.core.memory_bounds import Room
from medusa.engine.core.rows import take, take_array
from medusa.engine.core.sorted_runs import Run, merge_runs
from medusa.engine.operators.spill.spill_kind import POSITION, PartLetters, SpillKind
from medusa.engine.operators.spill.spill_part import Form, PartOutput, SpillPart
from medusa.engine.operators.spill.spill_state import Router, divide, merge
from medusa.errors import StateError

__all__ = ["PARTS_MAX", "SpillParts"]

PARTS_MAX = 64
"""Into so many parts the keys are split, at most: one of them at a time must fit in memory."""

PART_BYTES_MIN = 1 << 18
"""Of the budget for each part."""

CHUNK_BYTES_MIN = 1 << 15
CHUNK_BYTES_MAX = 1 << 18

Out = dict[str, tuple[Form, Iterator[pa.RecordBatch]]]
"""What leaves by each port, in order."""


class SpillParts:
    """Parts over disjoint keys.

    Args:
        ports: by which somebody reads rows; asked when a part comes into memory.
        state: of the whole, which the parts take; they are cold then.

    Raises:
        ValueError, KeyError, TypeError: the state isn't that of such a box.
        StateError: it couldn't be written.
    """

    def __init__(
        self,
        kind: SpillKind,
        room: Room,
        letters: PartLetters,
        ports: Callable[[], Sequence[str]],
        state: BoxState,
    ) -> None:
        budget_bytes = room.budget_bytes
        count = min(max(budget_bytes // PART_BYTES_MIN, 4), PARTS_MAX)
        self._chunk_bytes = min(max(budget_bytes // (4 * count), CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        self._kind = kind
        self._room = room
        self._letters = letters
        self._ports = ports
        self._router = Router(kind.key_types, count)
        self._parts = [SpillPart(kind, room.spool, letters, self._chunk_bytes) for _ in range(count)]
        self._turn = 0
        self.taken = kind.taken(state.meta)
        counts = divide(kind, state, self._parts, self._router, room.spool, self._chunk_bytes)
        self._next = [max(self.taken, *counts, 0)] * len(kind.plain.inputs_us)

    # Rows

    def take(self, input: int, whole: Train, keys: Sequence[pa.Array]) -> Out:
        """Rows that are in time and don't fail; what they give at once."""
        rows = len(whole)
        first = self._next[input]
        self._next[input] = first + rows
        self.taken += rows
        found = self._router.rows(keys)
        pieces = {}
        for number, places in enumerate(found):
            if len(places):
                pieces[number] = _picked(whole, places, first)
        if self._kind.at_once:
            return self._run(pieces, lambda part, number: part.add(input, pieces[number]))
        for number, piece in pieces.items():
            self._parts[number].add(input, piece)
        self._settle()
        return {}

    def _settle(self) -> None:
        """Write what stands beside cold parts, where it is much."""
        for part in self._parts:
            if part.beside_rows:
                self._try(partial(part.flush, self._chunk_bytes))
                if self._kind.folds and part.waits_too_much:
                    part.load()
                    self._try(part.evict)

    def advance(self, time_us: int) -> Out:
        """A boundary; what parts give of it."""
        ended = time_us >= END_US
        if self._kind.at_once:
            for part in self._parts:
                if part.box is not None:
                    part.answer(time_us)
            return {}
        woken = [
            number
            for number, part in enumerate(self._parts)
            if part.box is not None or part.wake_us <= time_us or (ended and part.cold_bytes)
        ]
        return self._run(woken, lambda part, number: part.answer(time_us), to_us=None if ended else time_us)

    def _run(
        self, numbers: Iterable[int], work: Callable[[SpillPart, int], None], *, to_us: int | None = 0
    ) -> Out:
        """Let parts work, those in memory first; the others come there one by one.

        Args:
            to_us: they are fed the rows beside them that are below; None: all, and hold nothing afterwards.
        """
        self._turn += 1
        limit = self.nbytes() + self._room.free() - self._room.budget_bytes // 8
        order = sorted(numbers, key=lambda number: self._parts[number].box is None)
        runs: dict[str, list[Run]] = {}
        forms: dict[str, Form] = {}
        for number in order:
            part = self._parts[number]
            part.needed(self._turn)
            was_cold = part.box is None
            if was_cold:
                self._make_room(limit - part.cold_bytes)
            box = part.load(to_us)
            given = {
                port: PartOutput(self._kind, port, self._room.spool, self._chunk_bytes)
                for port in self._ports()
            }
            for port, queue in given.items():
                box.connect(port, queue, 0)
            try:
                work(part, number)
            finally:
                box.disconnect()
            for port, each in given.items():
                run = each.run()
                if run is not None and each.form is not None:
                    runs.setdefault(port, []).append(run)
                    forms[port] = each.form
            if to_us is None:
                part.end()
            elif was_cold and self.nbytes() > limit:
                self._try(part.evict)
        return {
            port: (forms[port], self._merged(runs[port], forms[port]))
            for port in self._kind.ports
            if port in runs
        }

    def _merged(self, runs: list[Run], form: Form) -> Iterator[pa.RecordBatch]:
        schema, timed, marked = form
        width = len(schema) + timed + marked
        return merge_runs(runs, range(width, width + self._kind.order), width)

    def _make_room(self, floor: int) -> None:
        """Part with what was needed least lately, and isn't now."""
        if self.nbytes() <= floor:
            return
        idle = [part for part in self._parts if part.box is not None and part.used < self._turn]
        for part in sorted(idle, key=lambda part: part.used):
            if self.nbytes() <= floor or not self._try(part.evict):
                return

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except StateError as error:
            self._room.failed_write(error)
            return False
        return True

    # Memory

    @property
    def cold(self) -> int:
        """Parts that hold something, and not in memory."""
        return sum(part.box is None and part.cold_bytes > 0 for part in self._parts)

    def hot(self) -> list[Operator]:
        """The boxes in memory."""
        return [part.box for part in self._parts if part.box is not None]

    def counted(self) -> tuple[int, int]:
        """Late and dead rows of parts, since this was asked last."""
        counts = [part.hand_over_counts() for part in self._parts]
        return sum(late for late, _ in counts), sum(dead for _, dead in counts)

    def wake_us(self) -> int:
        """Of those on disk, the least."""
        return min((part.wake_us for part in self._parts if part.box is None), default=int(END_US))

    def nbytes(self) -> int:
        """In memory."""
        return sum(part.nbytes for part in self._parts)

    def spill(self, nbytes: int) -> int:
        """Write parts to disk, those that were needed least lately first; how many bytes are free then."""
        before = self.nbytes()
        floor = before - nbytes
        hot = [part for part in self._parts if part.box is not None]
        for part in sorted(hot, key=lambda part: (part.used, -part.nbytes)):
            if self.nbytes() <= floor or not self._try(part.evict):
                break
        if self.nbytes() > floor:
            for part in self._parts:
                self._try(part.flush)
        return before - self.nbytes()

    def save(self, state: BoxState) -> None:
        """As the box would save its whole state; it is written before anything else is called."""
        merge(self._kind, state, self._parts, self.taken, self._room.spool, self._chunk_bytes)


def _picked(train: Train, places: pa.Array, first: int) -> Train:
    """Some rows, with their positions."""
    batch = take(train.batch, places)
    positions = pa.array(np.asarray(places) + first)
    return Train(
        batch=batch.append_column(POSITION, positions),
        times=None if train.times is None else take_array(train.times, places),
        late=None if train.late is None else take_array(train.late, places),
    )
