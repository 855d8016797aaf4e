"""How much memory a run may take, and what goes to disk when it would take more.

What is needed last goes first:

- *Output that waits to be taken*: of the sink that holds most, the trains that came last, since they are
  taken last. So the oldest rows are in memory and what comes new goes straight to disk.
- *State of windows*: of the box that holds most, its largest part; all parts are needed at the same time,
  when a window closes.

Nothing here looks at single trains: it is asked when the boxes have come to rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from medusa.engine.core.box import Operator
from medusa.engine.core.spool import Spool
from medusa.errors import StateError
from medusa.units import size_text

__all__ = ["Memory", "Room", "Storage", "memory_of"]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a run holds, in bytes.

    Attributes:
        state: of rows, groups and indexes, in memory.
        queues: of rows that wait for a boundary or to be taken, in memory.
        spilled: on disk, of both.
        boxes: of each box that holds something: its part of ``state`` and ``queues``.
    """

    state: int
    queues: int
    spilled: int
    boxes: Mapping[str, int]

    @property
    def total(self) -> int:
        """In memory."""
        return self.state + self.queues


@dataclass(frozen=True, slots=True)
class Room:
    """What a box needs that moves state to disk.

    Attributes:
        budget_bytes: what all state may take: chunks and buffers are made to fit into a part of it.
        failed_write: is told when the disk takes nothing more; the rows then stay in memory.
        free: how much more state there may be now, of all boxes; negative where there is too much.
    """

    spool: Spool
    budget_bytes: int
    failed_write: Callable[[StateError], None]
    free: Callable[[], int] = lambda: 0


@runtime_checkable
class Spills(Protocol):
    """A box that can move some of its state to disk."""

    def spill(self, nbytes: int) -> int:
        """Free so many bytes of memory, or what it can; how many that were."""


@runtime_checkable
class SpillsOutput(Protocol):
    """A box whose waiting rows can move to disk."""

    def spill_output(self, spool: Spool, nbytes: int) -> int:
        """As ``Spills.spill``; StateError where the disk takes nothing."""


class Storage:
    """The bounds of one run.

    Args:
        spool: None: nothing goes to disk.
        memory_bytes: of output, beyond which some of it goes to disk.
        budget_bytes: of state; None: no bound.
        spills_state: beyond it state goes to disk.
        sheds_state: near it a ``OverloadController`` keeps rows away: nothing is refused.

    Attributes:
        room: for boxes that can move state to disk; None: they needn't.
        error: why the disk took nothing when it was asked last.
    """

    def __init__(
        self,
        *,
        spool: Spool | None = None,
        memory_bytes: int = 0,
        budget_bytes: int | None = None,
        spills_state: bool = False,
        sheds_state: bool = False,
    ) -> None:
        self.spool = spool
        self.memory_bytes = memory_bytes
        self.budget_bytes = budget_bytes
        self.spills_state = spills_state
        self.sheds_state = sheds_state
        self.room: Room | None = None
        if spool is not None and budget_bytes is not None and spills_state:
            self.room = Room(spool, budget_bytes, self.failed_write, self._free)
        self.error: StateError | None = None
        self._boxes: Sequence[Operator] = ()
        self._sinks: Sequence[Operator] = ()

    def adopt(self, boxes: Sequence[Operator]) -> None:
        """Look after the boxes of a fragment."""
        self._boxes = boxes
        self._sinks = [box for box in boxes if isinstance(box, SpillsOutput)]

    def _free(self) -> int:
        return (self.budget_bytes or 0) - sum(self._state().values())

    def failed_write(self, error: StateError) -> None:
        """The disk took nothing: it stays in memory."""
        self.error = error

    def settle(self) -> None:
        """The query has come to rest: give back what closed windows took, if the state is over its budget."""
        if self.budget_bytes is not None and sum(self._state().values()) > self.budget_bytes:
            for box in self._boxes:
                box.trim()

    def relieve(self) -> None:
        """Move to disk what is over the bounds, as far as it can."""
        if self.spool is None:
            return
        self.error = None
        if self._sinks:
            self._relieve_sinks(self.spool)
        if self.spills_state and self.budget_bytes is not None:
            self._relieve_state(self.budget_bytes)

    def _relieve_sinks(self, spool: Spool) -> None:
        held = {box: box.queue_bytes() for box in self._sinks}
        over = sum(held.values()) - self.memory_bytes
        if over <= 0:
            return
        over += self.memory_bytes // 4  # so that not every train comes here
        for box in sorted(held, key=lambda box: -held[box]):
            try:
                over -= box.spill_output(spool, over)  # type: ignore[attr-defined]
            except StateError as error:
                self.failed_write(error)
                return
            if over <= 0:
                return

    def _relieve_state(self, budget_bytes: int) -> None:
        held = self._state()
        over = sum(held.values()) - budget_bytes
        if over <= 0:
            return
        over += budget_bytes // 4
        able = [box for box in self._boxes if isinstance(box, Spills)]
        for box in sorted(able, key=lambda box: -held[box.id]):
            over -= box.spill(over)
            if over <= 0 or self.error is not None:
                return

    def memory(self) -> Memory:
        """What is held now."""
        return memory_of(self._boxes, 0 if self.spool is None else self.spool.held_bytes)

    def used(self) -> tuple[float, str]:
        """The share of the budget that is used, and the box that holds most of it."""
        held = self._state()
        most = max(held, key=lambda id: held[id])
        return sum(held.values()) / (self.budget_bytes or math.inf), most

    def _state(self) -> dict[str, int]:
        """What counts against the budget: rows that wait in a box too, but for output."""
        return {
            box.id: box.state_bytes() + (0 if isinstance(box, SpillsOutput) else box.queue_bytes())
            for box in self._boxes
        }

    def check_budget(self) -> None:
        """Raises: StateError: the state is larger than it may be; names the box that holds most."""
        if self.budget_bytes is None or self.sheds_state:
            return
        held = self._state()
        if sum(held.values()) > self.budget_bytes:
            self.relieve()  # the disk may have room again
            held = self._state()
        total = sum(held.values())
        if total <= self.budget_bytes:
            return
        most = max(held, key=lambda id: held[id])
        why = f"; {self.error.message}" if self.error is not None else ""
        raise StateError(
            f"the state holds {size_text(total)}, allowed are {size_text(self.budget_bytes)};"
            f" box {most!r} holds most: {size_text(held[most])}{why}",
            hint="a boundary closes windows, rows that were refused may be pushed again afterwards;"
            " or start with a larger state_budget="
            + ("" if self.spills_state else ', or with spill= and at_limit="spill"'),
            code="state.budget",
        )


def memory_of(boxes: Sequence[Operator], spilled: int) -> Memory:
    """What boxes hold in memory."""
    state = {box.id: box.state_bytes() for box in boxes}
    queues = {box.id: box.queue_bytes() for box in boxes}
    each = {id: state[id] + queues[id] for id in state}
    return Memory(
        state=sum(state.values()),
        queues=sum(queues.values()),
        spilled=spilled,
        boxes={id: size for id, size in each.items() if size},
    )
