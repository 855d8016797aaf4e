"""What every box that runs has in common: inputs, an output, counters, boundaries, state.

A box is told of one element at a time and answers by emitting elements; it does no IO, reads no
clock and keeps nothing outside itself, so the same elements in the same order give the same
output, bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa

from medusa._native import ItemsCopy
from medusa.elements import END_US, START_US, Boundary, Element, Kind, Train
from medusa.engine.core.rows import on_time_rows
from medusa.engine.core.spool import Streamed
from medusa.engine.state.background_copy import Later, items_later
from medusa.engine.state.capture import Capture

__all__ = ["BoxState", "Now", "Operator", "Stateless", "expect_table", "show_time"]

_STABLE = Kind.STABLE  # which every train asks for; an enum takes as long to find it as a call


class Queue(Protocol):
    """Elements that wait before a box, each for one of its inputs, by its number."""

    def append(self, pair: tuple[int, Element], /) -> None: ...


@dataclass(slots=True)
class BoxState:
    """Everything a box holds: small numbers as JSON, rows as Arrow.

    Attributes:
        streams: tables that needn't fit in memory.
        copied: tables whose memory the box never changes: they may become files in another thread.
        patient: tables may be given as ``later``.
        later: tables that are copied while the box goes on.
        capture: what the state is taken for: tables of which the box knows what changed may be given in part.
    """

    meta: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    streams: dict[str, Streamed] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    patient: bool = False
    later: dict[str, Later] = field(default_factory=dict)
    capture: Capture | None = None

    def put(self, name: str, table: pa.Table | Later) -> None:
        """Add a table whose memory the box never changes, or one that is still being copied."""
        if not isinstance(table, pa.Table) and not self.patient and self.capture is None:
            table = table.table()  # all of it is copied
        if isinstance(table, pa.Table):
            self.tables[name] = table
            self.copied.add(name)
        else:
            self.later[name] = table

    def put_items(
        self, name: str, begin: Callable[[int, int], ItemsCopy], rows: int, columns: Sequence[str]
    ) -> None:
        """Add a table of numbered items.

        Args:
            begin: a copy of these columns of them.
            rows: how many there are.
        """
        made = partial(pa.Table.from_arrays, names=list(columns))
        take = attrgetter("columns")
        self.put(name, items_later(begin, rows, take, made, patient=self.patient, capture=self.capture))

    def note(self, **values: Any) -> None:
        """Add small numbers, as JSON values."""
        self.meta.update(values)


@dataclass(slots=True)
class Now:
    """The time that the driver of a fragment told it last: boxes read no clock.

    Attributes:
        entered_us: when that entered which is worked on, so that sinks know how old rows are; None: ``us``.
    """

    us: int | None = None
    entered_us: int | None = None

    def pass_to(self, us: int, entered_us: int | None = None) -> None:
        """It is that moment, and what is worked on has entered then."""
        self.us, self.entered_us = us, entered_us


class Operator(ABC):
    """A box of the query, running.

    Attributes:
        boundary_us: the last boundary that was emitted.
        moved_us: when that was, as the driver told the time; None: never, or it tells none.
        inputs_us: the last boundary of each input.
        boundary_ports: the ports by which boundaries leave.
        rows_before: of ``rows_in``, those that the process counted from whose checkpoint this goes on.
        dropped: rows that the box was told to leave out.
        shed: rows that were left out under overload: behind this source, before this box, above this sink.
        steps: what is left of the output of an element, where it is too much to leave at once: the scheduler
            asks for it piece by piece with ``step``, and lets the boxes below run in between.
        interleaves_freely: of several inputs; what leaves is the same however their elements interleave.
        takes_tentative: early results (trains of kind ``TENTATIVE``) reach ``on_train`` and leave with
            their kind kept. False, as for every box with state: they are counted and left out.
        state_format: of what ``save`` gives; one more whenever that changes. ``upgrade`` knows the others.
    """

    kind: str = ""
    boundary_ports: tuple[str, ...] = ("",)
    takes_tentative: bool = False
    state_format: int = 1

    # A train reads a dozen of these, of boxes of many kinds in the same lines, where Python's shortcuts for
    # one kind don't serve; and with more than 30 attributes that aren't slots an object gets a dictionary.
    __slots__ = (
        "_ports",
        "_with_steps",
        "ahead",
        "boundary_us",
        "busy_us",
        "dead",
        "dropped",
        "id",
        "inputs_us",
        "interleaves_freely",
        "late",
        "moved_us",
        "now",
        "rows_before",
        "rows_in",
        "rows_out",
        "shed",
        "steps",
        "tentative",
    )

    def __init__(self, id: str, *, inputs: int) -> None:
        self.id = id
        self.steps: Iterator[None] | None = None
        self._with_steps: set[Operator] | None = None
        self.interleaves_freely = False
        self.inputs_us: list[int] = [int(START_US)] * inputs
        self.boundary_us = int(START_US)
        self.rows_in = 0
        self.rows_before = 0
        self.rows_out = 0
        self.late = 0
        self.ahead = 0
        self.dead = 0
        self.dropped = 0
        self.shed = 0
        self.tentative = 0
        self.busy_us = 0
        self.now = Now()
        self.moved_us: int | None = None
        self._ports: dict[str, list[tuple[Queue, int]]] = {}

    # Wiring

    def take_place(self, now: Now, *, interleaves_freely: bool) -> None:
        """Belong to a fragment, which tells the time."""
        self.now = now
        self.interleaves_freely = interleaves_freely

    def stand_in_for(self, other: Operator) -> None:
        """Go on at the boundaries and by the time of another box; what this one emits leaves from there."""
        self.inputs_us, self.boundary_us, self.moved_us = other.inputs_us, other.boundary_us, other.moved_us
        self.now, self._ports = other.now, other._ports

    def succeed(self, other: Operator) -> None:
        """Go on with what the saved state of a box, which this one has loaded, doesn't say."""
        self.rows_before, self.tentative, self.busy_us = other.rows_before, other.tentative, other.busy_us
        self.moved_us = other.moved_us

    def give_in_steps(self, with_steps: set[Operator]) -> None:
        """Somebody asks for ``steps`` from now on.

        Args:
            with_steps: the boxes that have any, kept by each.
        """
        self._with_steps = with_steps

    def give_at_once(self) -> None:
        """Nobody asks for ``steps``."""
        self._with_steps = None

    def connect(self, port: str, queue: Queue, input: int) -> None:
        """Send what leaves by ``port`` to an input of another box too, by its queue."""
        self._ports.setdefault(port, []).append((queue, input))

    def disconnect(self) -> None:
        """Send nothing anywhere any more."""
        self._ports.clear()

    def targets(self, port: str) -> list[tuple[Queue, int]]:
        """Where what leaves by a port goes."""
        return list(self._ports.get(port, ()))

    def redirect(self, port: str, targets: Sequence[tuple[Queue, int]]) -> None:
        """From now on it goes there."""
        if targets:
            self._ports[port] = list(targets)

    def emit(self, element: Element, port: str = "") -> None:
        for queue, input in self._ports.get(port, ()):
            queue.append((input, element))

    def emit_train(self, train: Train) -> None:
        """Send rows on by the main port; an empty train is left out."""
        rows = train.batch.num_rows
        if rows:
            if train.kind is _STABLE:
                self.rows_out += rows
            for queue, input in self._ports.get("", ()):
                queue.append((input, train))

    def has_readers(self, port: str) -> bool:
        return bool(self._ports.get(port))

    # What a box does

    def receive(self, input: int, element: Element) -> None:
        """Take one element; what follows from it has been emitted when this returns."""
        # Small trains cost what this costs: no call that can be left out.
        if isinstance(element, Train):
            if element.kind is _STABLE:
                self.rows_in += element.batch.num_rows
                self.on_train(input, element)
                return
            self.tentative += len(element)
            if self.takes_tentative:
                self.on_train(input, element)
        elif isinstance(element, Boundary):
            time_us, inputs = element.time_us, self.inputs_us
            if time_us <= inputs[input]:
                return
            if len(inputs) == 1:
                inputs[0] = time_us
                self.on_boundary(time_us)
            else:
                before = min(inputs)
                inputs[input] = time_us
                now = min(inputs)
                if now > before:
                    self.on_boundary(now)
        else:
            raise AssertionError(f"{self.id}: {type(element).__name__} doesn't travel inside a fragment")

    def on_time(self, train: Train) -> Train:
        """The rows of a train that aren't late; the others are counted."""
        kept = on_time_rows(train)
        self.late += len(train) - len(kept)
        return kept

    def watch_trains(
        self,
        before: Callable[[int, Train], None] = lambda input, train: None,
        after: Callable[[int, Train], None] = lambda input, train: None,
    ) -> None:
        """From now on call with each train, and its input, before and after it is taken."""
        take = self.on_train

        def on_train(input: int, train: Train) -> None:
            before(input, train)
            take(input, train)
            after(input, train)

        self.on_train = on_train  # type: ignore[method-assign]

    def tell_work(self, done: Callable[[], None]) -> None:
        """From now on call when an element was worked through."""
        take = self.receive

        def receive(input: int, element: Element) -> None:
            take(input, element)
            done()

        self.receive = receive  # type: ignore[method-assign]

    # Counting what others do in its place

    def passed(self, came: int, left: int) -> None:
        """Count rows that were worked on in one go with other boxes, or in its parts."""
        self.rows_in += came
        self.rows_out += left

    def count(self, *, late: int = 0, dead: int = 0, shed: int = 0) -> None:
        """Count rows that were left out."""
        self.late += late
        self.dead += dead
        self.shed += shed

    def hand_over_counts(self) -> tuple[int, int, int]:
        """Rows that left, were late and died since this was asked last: another box counts them as well."""
        counts = self.rows_out, self.late, self.dead
        self.rows_out = self.late = self.dead = 0
        return counts

    def drop_sent(self, rows: int) -> None:
        """Rows that this box has sent don't arrive: it was told to leave them out."""
        self.rows_out -= rows
        self.dropped += rows

    def was_busy(self, us: int) -> None:
        """Somebody measured how long it worked."""
        self.busy_us += us

    def leave(self, steps: Iterator[None]) -> None:
        """Emit the first piece of the output of an element, and the rest where nobody asks for ``steps``."""
        if next(steps, self) is self:  # mostly it is one
            return
        self.steps = steps
        if self._with_steps is not None:
            self._with_steps.add(self)
            return
        while self.steps is not None:
            self.step()

    def step(self) -> None:
        """Emit the next piece of ``steps``; after the last one there are none."""
        if self.steps is not None and next(self.steps, self) is self:
            self.forget_steps()

    def forget_steps(self) -> None:
        """Leave out what is left of the output."""
        self.steps = None
        if self._with_steps is not None:
            self._with_steps.discard(self)

    @property
    def input_us(self) -> int:
        """The minimum of the boundaries of the inputs."""
        return min(self.inputs_us)

    @abstractmethod
    def on_train(self, input: int, train: Train) -> None:
        """Rows came at an input."""

    @abstractmethod
    def on_boundary(self, time_us: int) -> None:
        """The minimum over the inputs grew to ``time_us``."""

    def advance(self, time_us: int) -> None:
        """Emit a boundary if it says more than the last one."""
        if time_us > self.boundary_us:
            self.boundary_us = time_us
            self.moved_us = self.now.us
            boundary, ports = Boundary(time_us), self._ports
            for port in self.boundary_ports:
                for queue, input in ports.get(port, ()):
                    queue.append((input, boundary))
            if time_us >= END_US:
                self.emit(Boundary(time_us), "dead")  # which has no time

    # What is asked about it

    def state_bytes(self) -> int:
        """Bytes of rows, groups and indexes held."""
        return 0

    def trim(self) -> None:  # noqa: B027  most boxes keep nothing for what comes
        """Give back memory that what is held doesn't need."""

    def queue_bytes(self) -> int:
        """Bytes of rows that wait: for a boundary, or to be taken."""
        return 0

    def queue_rows(self) -> int:
        """Rows that wait: those of ``queue_bytes``."""
        return 0

    def waits_for(self, names: Sequence[str]) -> str:
        """What this box waits for, as a sentence; ``names``: of its inputs."""
        if self.input_us >= END_US:
            return "finished"
        return self.waits_open(names)

    def waits_open(self, names: Sequence[str]) -> str:
        """The same of a box whose inputs haven't all ended: what most kinds have to say."""
        return "waits for rows"

    def held(self, names: Sequence[str], *, waits: bool = False) -> str:
        """Which input has the lowest boundary, as part of that sentence; ``waits``: as its beginning."""
        name = names[self.inputs_us.index(self.input_us)]
        lead = f"waits for {name}, which" if waits else name
        return f"{lead} holds its boundary at {show_time(self.input_us)}"

    # State

    def save(self, *, patient: bool = False, capture: Capture | None = None) -> BoxState:
        """A copy of everything held; the box is unchanged.

        Args:
            patient: who asks copies ``later`` by and by.
            capture: of tables of which the box knows what changed, only that; None: all.
        """
        state = BoxState(
            meta={
                "inputs_us": list(self.inputs_us),
                "boundary_us": self.boundary_us,
                "counts": [self.rows_in, self.rows_out, self.late, self.dead],
            },
            patient=patient,
            capture=capture,
        )
        state.note(**{name: count for name in ("dropped", "shed") if (count := getattr(self, name))})
        self.save_more(state)
        return state

    def load(self, state: BoxState) -> None:
        """Take back what ``save`` gave; only on a fresh box.

        Raises:
            ValueError, KeyError, TypeError: it can't have come from ``save`` of this box.
        """
        inputs = _integers(state.meta["inputs_us"], len(self.inputs_us))
        counts = _integers(state.meta["counts"], 4)
        left_out = [state.meta.get(name, 0) for name in ("dropped", "shed")]
        boundary, dropped, shed = _integers([state.meta["boundary_us"], *left_out], 3)
        if dropped < 0 or shed < 0:
            raise ValueError(f"no numbers of rows left out: {dropped}, {shed}")
        self.load_more(state)
        self.inputs_us, self.boundary_us = inputs, boundary
        self.rows_in, self.rows_out, self.late, self.dead = counts
        self.rows_before = self.rows_in
        self.dropped, self.shed = dropped, shed

    def upgrade(self, state: BoxState, format: int) -> None:
        """Make of state of an earlier format what ``load`` takes.

        Raises:
            ValueError, KeyError, TypeError: it can't be, or no program wrote that format.
        """
        raise ValueError(f"nothing wrote format {format}")

    def save_more(self, state: BoxState) -> None:  # noqa: B027  most boxes hold nothing more
        """Add what this kind of box holds besides."""

    def load_more(self, state: BoxState) -> None:  # noqa: B027
        """Take that back."""


class Stateless(Operator):
    """A box that looks at one row at a time; boundaries pass through it."""

    takes_tentative = True
    on_boundary = Operator.advance


def _integers(values: Any, count: int) -> list[int]:
    if not isinstance(values, list) or len(values) != count or any(type(v) is not int for v in values):
        raise ValueError(f"expected {count} integers, got {values!r}")
    return values


def expect_table(tables: Mapping[str, pa.Table], name: str, schema: pa.Schema) -> pa.Table:
    """One table of a saved state.

    Raises:
        ValueError: it isn't there, or has other columns.
    """
    table = tables.get(name)
    if table is None or not table.schema.equals(schema):
        found = "nothing" if table is None else f"columns {table.schema.names}"
        raise ValueError(f"expected a table {name!r} of columns {schema.names}, found {found}")
    return table


def show_time(time_us: int) -> str:
    """A boundary as people read it."""
    if time_us <= START_US:
        return "nothing yet"
    if time_us >= END_US:
        return "the end"
    seconds, micros = divmod(time_us, 1_000_000)
    try:
        text = str(pa.scalar(seconds, pa.timestamp("s")).as_py())
    except (ValueError, OverflowError):
        return f"{time_us} us"
    return f"{text}.{micros:06d}".rstrip("0").rstrip(".") + " UTC"
