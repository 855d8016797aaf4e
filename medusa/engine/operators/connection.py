"""Connection point: rows pass as they come, and a history keeps them for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from medusa.elements import START_US, Boundary, Element, Kind, Train
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.history.history import History, numbered
from medusa.engine.history.opening import prepare_history
from medusa.ports import Segments
from medusa.query.boxes import ConnectionPoint, Schema
from medusa.query.types import schema_to_arrow
from medusa.units import size_text

__all__ = ["SYNC_EVERY_US", "ConnectionPointBox", "Connections"]

SYNC_EVERY_US = 1_000_000


class ConnectionPointBox(Operator):
    """Numbers rows from 0 and hands them to its history; its output is its input.

    Args:
        segments: where history is kept; None: nowhere, the box only passes rows on.

    Attributes:
        history: None: none is kept. It is to be opened before the first row.
        gone: numbers of the first and of the one behind the last row that were kept when the checkpoint was
            written, where no file of the history was there any more; None: there was one.
    """

    kind = "connection_point"
    takes_tentative = True

    def __init__(
        self, spec: ConnectionPoint, *, input: Schema, timed: bool, segments: Segments | None
    ) -> None:
        super().__init__(spec.id, inputs=1)
        self.history: History | None = None
        if segments is not None:
            self.history = History(
                segments,
                schema_to_arrow(input),
                timed=timed,
                keep_us=spec.keep_us,
                keep_bytes=spec.keep_bytes,
            )
        self._watchers: list[Callable[[Element], None]] = []
        self._most_us = int(START_US)
        self._kept_from: int | None = None
        self.gone: tuple[int, int] | None = None
        self._synced_us: int | None = None

    def retain(self, spec: ConnectionPoint) -> None:
        """Keep from now on what another form of this box says."""
        if self.history is not None:
            self.history.retain(spec.keep_us, spec.keep_bytes)

    def open(self) -> None:
        """Open the history where the state of this box stands.

        Raises:
            StateError: it can't go on there.
        """
        self.prepare()
        self.settle()

    def prepare(self) -> None:
        """Take over the history where the state of this box stands; no file changes before ``settle``.

        Raises:
            StateError: it can't go on there.
        """
        if self.history is None:
            return
        kept_from = self._kept_from
        found = prepare_history(self.history, self.rows_in, self._most_us)
        if kept_from is not None and kept_from < self.rows_in and not found:
            self.gone = kept_from, self.rows_in

    def settle(self) -> None:
        """Let the files be what ``prepare`` found that they should be.

        Raises:
            StateError: they can't be changed.
        """
        if self.history is not None:
            self.history.settle()

    def watch(self, call: Callable[[Element], None]) -> None:
        """From now on call with every numbered train and every boundary; never with early results."""
        self._watchers.append(call)

    def on_train(self, input: int, train: Train) -> None:
        if train.kind is Kind.STABLE and len(train):
            if self.history is not None:
                self.history.append(train, self.boundary_us)
            if self._watchers:
                self._tell(train)
        self.emit_train(train)

    def _tell(self, train: Train) -> None:
        made = numbered(train, self.rows_in - len(train))
        for call in tuple(self._watchers):
            call(made)

    def on_boundary(self, time_us: int) -> None:
        if self.history is not None:
            self.history.trim(time_us)
        for call in tuple(self._watchers):
            call(Boundary(time_us))
        self.advance(time_us)

    # The history

    def pass_time(self, now_us: int) -> None:
        """Sync the history where the last time is a second ago."""
        if self._synced_us is None:
            self._synced_us = now_us
        elif now_us - self._synced_us >= SYNC_EVERY_US:
            self.sync()
            self._synced_us = now_us

    def sync(self) -> None:
        """When this returns, every row so far survives a power cut."""
        if self.history is not None:
            self.history.sync()

    def close(self) -> None:
        """The same at the end of the run, with the last boundary; nothing, where it was never settled."""
        if self.history is not None and self.history.settled and not self.history.broken:
            self.history.mark(self.boundary_us)
            self.history.sync()

    # What is asked about it

    def state_bytes(self) -> int:
        return 0 if self.history is None else self.history.memory_bytes

    def waits_open(self, names: Sequence[str]) -> str:
        history = self.history
        if history is None:
            return "passes rows on, keeps none"
        kept = f"{history.rows} rows kept from number {history.oldest_seq} on, {size_text(history.nbytes)}"
        return f"waits for rows; {kept}"

    # State

    def save_more(self, state: BoxState) -> None:
        if self.history is not None:
            self.history.write()
            if not self.history.port.memory:
                state.meta["kept_from"] = self.history.oldest_seq
        state.meta["most_us"] = self._most_us if self.history is None else self.history.most_us

    def load_more(self, state: BoxState) -> None:
        most_us, rows = state.meta["most_us"], state.meta["counts"][0]
        if type(most_us) is not int or not START_US <= most_us < 1 << 61:
            raise ValueError(f"most_us is no time: {most_us!r}")
        if not 0 <= rows < 1 << 62:
            raise ValueError(f"{rows} is no number of rows")
        kept_from = state.meta.get("kept_from")  # None: earlier versions didn't say, or it was in memory.
        if kept_from is not None and (type(kept_from) is not int or not 0 <= kept_from <= rows):
            raise ValueError(f"kept_from is no row before {rows}: {kept_from!r}")
        self._most_us, self._kept_from = most_us, kept_from


class Connections(dict[str, ConnectionPointBox]):
    """The connection points of a fragment, by name."""

    def __init__(self, boxes: Iterable[Operator]) -> None:
        super().__init__((box.id, box) for box in boxes if isinstance(box, ConnectionPointBox))

    def open(self) -> None:
        """Before the first row: let every one go on where its state stands.

        Raises:
            StateError: its history can't: then no file of any was changed, or one couldn't be.
        """
        self.prepare()
        self.settle()

    def prepare(self) -> None:
        """Look at all histories; no file changes before ``settle``.

        Raises:
            StateError: one can't go on where its state stands.
        """
        for box in self.values():
            box.prepare()

    def settle(self) -> None:
        """Take the files back to where the state stands.

        Raises:
            StateError: they can't be changed.
        """
        for box in self.values():
            box.settle()

    def pass_time(self, now_us: int) -> None:
        """Sync the histories that haven't been for a second."""
        for box in self.values():
            box.pass_time(now_us)

    def sync(self) -> None:
        """When this returns, all rows so far survive a power cut."""
        for box in self.values():
            box.sync()

    def close(self) -> None:
        """Sync for the last time; what failed before stays as it is."""
        for box in self.values():
            box.close()
