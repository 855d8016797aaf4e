"""A box with keys whose state may lie on disk: partitioned state, as of a hybrid hash join.

It begins as the box that it is without a budget. When its state must shrink it is saved, split by a hash
of the keys and given to parts (DeWitt et al., SIGMOD 1984; the four functions over state of SEEP, SIGMOD
2013): each is a box of the same kind over disjoint keys, in memory or on disk. A part on disk gathers its
rows, and comes into memory, one at a time, when it has something to answer. What the parts give is merged
by what the kind's order is, so rows, order and bits are those of one box; so is the saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from medusa.elements import Train
from medusa.engine.core.box import BoxState, Now, Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.memory_bounds import Room
from medusa.engine.operators.spill.spill_kind import PartLetters, SpillKind
from medusa.engine.operators.spill.spill_part import Form
from medusa.engine.operators.spill.spill_parts import Out, SpillParts
from medusa.errors import StateError

__all__ = ["SpillBox"]


class SpillBox(Operator):
    """Whole, or in parts.

    Args:
        make: gives an empty box as the query has it.
        kind_of: how that kind of box is kept in parts.
        room: where to go, and how much of memory there is.
    """

    def __init__(
        self,
        make: Callable[[], Operator],
        kind_of: Callable[[Operator], SpillKind],
        room: Room,
        letters: DeadLetters,
    ) -> None:
        box = make()
        super().__init__(box.id, inputs=len(box.inputs_us))
        self._make = make
        self._kind_of = kind_of
        self._room = room
        self._letters = letters
        self._parts: SpillParts | None = None
        self._adopt(box)

    def _adopt(self, box: Operator) -> None:
        """Work by a box: what it emits leaves from here."""
        self._box = box
        self.kind, self.boundary_ports = box.kind, box.boundary_ports
        self.state_format = box.state_format
        box.stand_in_for(self)

    def take_place(self, now: Now, *, interleaves_freely: bool) -> None:
        super().take_place(now, interleaves_freely=interleaves_freely)
        self._box.take_place(now, interleaves_freely=interleaves_freely)

    def _count(self) -> None:
        left, late, dead = self._box.hand_over_counts()
        self.passed(0, left)
        self.count(late=late, dead=dead)

    # Elements

    def on_train(self, input: int, train: Train) -> None:
        if self._parts is None:
            self._box.on_train(input, train)
            self._count()
            return
        whole, keys = self._how.take(input, train)
        self._count()
        if len(whole):
            self._send(self._parts.take(input, whole, keys))

    def on_boundary(self, time_us: int) -> None:
        if self._parts is None:
            box = self._box
            box.on_boundary(time_us)
            self.boundary_us, self.moved_us = box.boundary_us, box.moved_us
            self._count()
            return
        self._send(self._parts.advance(time_us), time_us)

    def _send(self, out: Out, time_us: int | None = None) -> None:
        assert self._parts is not None
        late, dead = self._parts.counted()
        self.count(late=late, dead=dead)
        self._part_letters.hand_on()
        self.leave(self._leave(out, time_us))

    def _leave(self, out: Out, time_us: int | None) -> Iterator[None]:
        for port, (form, batches) in out.items():
            for batch in batches:
                train = _train(batch, form)
                if self._how.leaves(port):
                    self.rows_out += len(train)
                self.emit(train, port)
                yield
        if time_us is not None and self._parts is not None:
            self.advance(self._how.boundary_us(time_us, self._parts.hot(), self._parts.wake_us()))

    # Memory

    def state_bytes(self) -> int:
        return self._box.state_bytes() if self._parts is None else self._parts.nbytes()

    def queue_bytes(self) -> int:
        return self._box.queue_bytes() if self._parts is None else 0

    def queue_rows(self) -> int:
        return self._box.queue_rows() if self._parts is None else 0

    def spill(self, nbytes: int) -> int:
        """Move state to disk until so many bytes of memory are free; how many that were."""
        if self._parts is not None:
            return self._parts.spill(nbytes)
        before = self.state_bytes() + self.queue_bytes()
        state = self.save()
        self._adopt(self._make())
        try:
            self._split(state)
        except StateError as error:
            self._box.load_more(state)
            self._room.failed_write(error)
            return 0
        return before - self.state_bytes()

    def _split(self, state: BoxState) -> None:
        self._how = self._kind_of(self._box)
        self._part_letters = PartLetters(self._letters)
        ports = self._how.ports
        self._parts = SpillParts(
            self._how,
            self._room,
            self._part_letters,
            lambda: [port for port in ports if self.has_readers(port)],
            state,
        )

    def waits_open(self, names: Sequence[str]) -> str:
        if self._parts is None:
            return self._box.waits_open(names)
        return f"{self.held(names, waits=True)}; {self._parts.cold} parts of its state are on disk"

    def waits_for(self, names: Sequence[str]) -> str:
        return self._box.waits_for(names) if self._parts is None else super().waits_for(names)

    # State

    def save_more(self, state: BoxState) -> None:
        if self._parts is None:
            self._box.save_more(state)
        else:
            self._parts.save(state)

    def upgrade(self, state: BoxState, format: int) -> None:
        self._box.upgrade(state, format)

    def load(self, state: BoxState) -> None:
        super().load(state)
        self._box.stand_in_for(self)

    def load_more(self, state: BoxState) -> None:
        held = sum(int(table.nbytes) for table in state.tables.values())
        if held > self._room.budget_bytes // 2:
            self._split(state)
        else:
            self._box.load_more(state)


def _train(batch: pa.RecordBatch, form: Form) -> Train:
    schema, timed, marked = form
    columns = batch.columns
    late = columns.pop() if marked else None
    times = columns.pop() if timed else None
    return Train(batch=pa.RecordBatch.from_arrays(columns, schema=schema), times=times, late=late)
