"""A query running inside a program: rows in by ``push``, rows out by ``take``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from medusa.elements import Element, Train
from medusa.engine.core.watchers import Watchers
from medusa.engine.input.ingest import normalise
from medusa.engine.input.push_arguments import boundary_time_us, callback, from_first
from medusa.engine.inspection import RunAsked
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.quick_take import take_briefly, to_table
from medusa.engine.state.checkpoint import Checkpoints
from medusa.engine.turn import Turn, begin, broken_off, leave
from medusa.engine.warnings import warn_dead, warn_late, warn_user
from medusa.errors import (
    CheckpointWarning,
    FullError,
    MedusaError,
    StateError,
)
from medusa.ports import Clock, Interrupts, Lock, Turns
from medusa.units import byte_count, size_text

__all__ = ["Run", "to_table"]


class Run(RunAsked):
    """A running query. ``md.start`` and ``md.restore`` make it.

    One thread at a time may push, take and change it: a second one gets ``StateError`` or, with
    ``threads=`` of 2 or more, waits for its turn. ``taken``, ``positions``, ``stats``, ``explain`` and
    ``dead`` may be asked from any thread, also from a callback: they wait until what another thread
    does has ended.

    Ctrl-C, and any other signal whose handler raises, is handled when the call that it came in is done,
    so that a push is taken whole or not at all (``positions`` tells) and the run goes on. A call that
    doesn't end is given up by a second one, a second or more later; then the run has stopped.

    Leaving a ``with`` block closes it: with checkpoints a last one is written, and windows stay
    open in it. Only ``finish`` ends the input and closes all windows.
    """

    def __init__(
        self,
        fragment: LoggedFragment,
        *,
        clock: Clock,
        memory_bytes: int,
        settings: dict[str, Any],
        turns: Turns,
        state: Lock,
        interrupts: Interrupts,
        checkpoints: Checkpoints | None = None,
        checkpoint_every_us: int | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._fragment: LoggedFragment = fragment
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._settings = settings
        self._checkpoints = checkpoints
        self._based = checkpoints is not None and bool(checkpoints.names())
        self._every_us = checkpoint_every_us
        self._due_us = clock.monotonic_us() + (checkpoint_every_us or 0)
        self._on_close = on_close
        self._callbacks: dict[str, list[Callable[[pa.Table], object]]] = {}
        self.output, self.room = Watchers(), Watchers()  # told when there may be some
        self._at_rest: list[Callable[[], object]] = []  # called whenever the query has come to rest
        self._closed = False
        self._turns = turns  # not reentrant: a callback that pushes is refused
        self._state = state  # reentrant: a callback may ask
        self._interrupts = interrupts  # deferred from before a turn is taken until after it was given back
        self._briefly = turns.briefly(state)
        self._idles = any(box.spec.idle_us is not None for box in fragment.sources.values())
        self._idles |= bool(fragment.connections)  # whose histories are synced as time passes
        judged = fragment.sources_read_in_time()
        self._warns_late = {name: name in judged and not box.late for name, box in fragment.sources.items()}

    # Rows in

    def push(
        self,
        source: str,
        data: Any,
        *,
        extra: str = "refuse",
        first: int | None = None,
        arrival: int | str | datetime | None = None,
        wait: bool = True,
    ) -> None:
        """Take rows and run the query to quiescence.

        Args:
            data: anything with the Arrow PyCapsule interface, or a dict of columns.
            extra: ``ignore`` leaves out columns that the source doesn't have.
            first: the number of the first row among all rows of this source; rows that are held
                already (see ``positions``) are dropped.
            arrival: when these rows arrived, written as the time of a ``boundary``: for a source with
                ``ahead=`` whose arrival no column tells.
            wait: with ``threads=`` of 2 or more: wait for other threads that are at work, and for
                one of them to take output when more than ``memory=`` waits. Without it that raises
                ``FullError``. A run of one thread never waits.

        Raises:
            DataError: the rows don't fit, or ``first`` leaves a gap: nothing of them entered.
            FullError: more output than ``memory=`` waits to be taken: nothing entered.
            StateError: the run is closed; or the state is larger than ``state_budget=``: nothing entered.
            KeyboardInterrupt: Ctrl-C came meanwhile. The rows entered, or didn't: ``positions`` tells, and
                with ``first=`` the same push may simply be repeated.
        """
        begin(self, wait, True)
        try:
            fragment = self._fragment
            if fragment.storage is not None and fragment.storage.budget_bytes is not None:
                fragment.storage.check_budget()
            box = fragment.source(source)
            arrival_us = None if arrival is None else boundary_time_us(arrival, source, "an arrival")
            # As most come: nothing to convert and nothing to cut.
            rows = box.exported(data) if first is None and extra == "refuse" else None
            if rows is not None:
                batches = [data]
            else:
                batches = normalise(data, box.spec.schema, extra=extra, source=source, arrow=box.schema)
            if first is not None:
                batches = from_first(batches, first, fragment.positions()[source], source)
            times = fragment.check(box, batches, arrival_us, rows)
            fragment.at(self._clock.monotonic_us())
            try:
                fragment.push(box, batches, times, arrival_us)
            finally:
                if box.late or fragment.letters.fresh is not None:
                    self._warn(source)
            self._settled()
        except BaseException as error:
            broken_off(self, error)
            raise
        finally:
            leave(self, True)

    def boundary(self, source: str, time: int | str | datetime) -> None:
        """Promise that no row of a source with a smaller time will come; those that do are late.

        Args:
            time: microseconds since 1970 in UTC, a datetime (naive means UTC), or text such as
                ``2026-03-01 12:00:00``.

        Raises:
            DataError: no time, or below an earlier explicit boundary: nothing changed.
            FullError, StateError: as ``push``.
        """
        with self._turn(tells=True, room=True):
            self._fragment.source(source)
            time_us = boundary_time_us(time, source, "a boundary")
            self._fragment.at(self._clock.monotonic_us())
            self._fragment.promise(source, time_us)
            self._settled()

    def tick(self) -> None:
        """Let time pass: sources that have been silent for their ``idle=`` let go of the others.

        Every push, boundary and take does so too; where nobody calls for long, this does.
        """
        with self._turn(tells=True):
            self._settled()

    def finish(self) -> None:
        """End all sources: every window closes, every join emits. Output stays to be taken.

        Raises:
            KeyboardInterrupt: Ctrl-C came while calls of async functions ran. They go on; what they give can
                be taken as it comes, and this can be called again.
        """
        with self._turn(tells=True):
            self._fragment.at(self._clock.monotonic_us())
            self._fragment.finish(self._interrupts.check)
            self._warn("")
            self._settled()

    def flush(self) -> None:
        """Wait until all that has been pushed has been worked through.

        Only a run with ``queue=`` lets rows wait: of another one that is so when ``push`` returns.

        Raises:
            StateError: the run is closed.
        """
        with self._state:
            self._refuse_closed()

    # Rows out

    def take(self, sink: str, *, changes: bool = False, at_most: str | int | None = None) -> Any:
        """What has come out since the last take.

        Args:
            at_most: about so many bytes of it, such as ``"64 MiB"``, but at least one train; the rest stays.

        Returns:
            A ``pyarrow.Table``, empty with the sink's columns where nothing came; or with
            ``changes`` the list of elements: numbered trains, trains of early rows (kind
            ``TENTATIVE``, without numbers), and boundaries. An early row is void when a final or
            later early row of its window and key comes, or a boundary beyond its time.
        """
        return self._take(sink, changes, at_most)[0]

    def _take(self, sink: str, changes: bool, at_most: str | int | None) -> tuple[Any, bool]:
        """What ``take`` gives, and whether there are rows in it.

        An interrupt that comes before the caller can have them puts them back.
        """
        if self._briefly is not None and at_most is None and not changes:
            found = take_briefly(self, self._briefly, sink)
            if found is not None:
                return found
        elements: list[Element] = []
        try:
            begin(self, True, False)
            try:
                fragment = self._fragment
                box = fragment.sink(sink)
                if fragment.has_calls:
                    fragment.poll()
                if self._idles:
                    self._pass_time()
                if fragment.letters.fresh is not None:
                    self._warn("")
                some = bool(box.held_rows)
                if fragment.behind and (some or changes):
                    self._sync()
                elements = box.take(None if at_most is None else byte_count(at_most, what="at_most"))
                self._took(elements)
                if changes:
                    made: Any = list(elements)
                    some = any(isinstance(each, Train) for each in elements)
                else:
                    made = to_table(elements, box.schema) if some else box.nothing
                    some = bool(len(made))
            except BaseException as error:
                broken_off(self, error)
                raise
            finally:
                leave(self, False)
            return made, some
        except BaseException:
            if elements:
                with self._interrupts, self._state:
                    box.put_back(elements)
            raise

    def _took(self, elements: list[Element]) -> None:
        """Rows have been taken, perhaps none; within the turn."""
        self.room.tell()

    def on(self, sink: str, call: Callable[[pa.Table], object]) -> None:
        """Call back with new rows at the end of each push, boundary and finish that made some.

        Rows count as taken once all callbacks of their sink have returned; after one that raised,
        they come again with the next rows, and its error comes out of the push, whose rows entered.
        """
        with self._turn():
            self._fragment.sink(sink)
            checked = callback(call, f"on({sink!r}, ...)")
            self._callbacks.setdefault(sink, []).append(checked)

    def taken(self, sink: str) -> int:
        """The number of the next row that ``take`` gives; rows of a sink are numbered from 0."""
        with self._state:
            self._refuse_closed()
            return self._fragment.sink(sink).taken

    # Checkpoints

    def checkpoint(self) -> str:
        """Write a checkpoint now; calls of async functions are waited for.

        Returns:
            Its name.

        Raises:
            StateError: the run has no ``checkpoint=``, or it couldn't be written; the run goes on.
            KeyboardInterrupt: Ctrl-C came while they were waited for: nothing was written, the run goes on.
        """
        with self._turn():
            if self._checkpoints is not None:
                self._fragment.wait(self._interrupts.check)
            return self._save()

    def _save(self) -> str:
        if self._checkpoints is None:
            raise StateError(
                "this run has no folder for checkpoints", hint="start(q, checkpoint=...)", code="state.none"
            )
        fragment = self._fragment
        if fragment.has_calls:
            fragment.wait()
        state, number = fragment.snapshot(), fragment.turn()
        name = self._checkpoints.save(
            state,
            {
                "query": fragment.graph_json(),
                "settings": self._settings,
                "positions": fragment.accepted(),
                "sinks": {id: {"taken": s.taken, "next": s.next_seq} for id, s in fragment.sinks.items()},
                "decisions": number,
                "shedding": None if fragment.drops is None else fragment.drops.save(),
            },
        )
        fragment.turned(number, name, self._checkpoints.logged())
        self._based = True
        self._due_us = self._clock.monotonic_us() + (self._every_us or 0)
        return name

    def _sync(self) -> None:
        """Rows are about to leave: what they depend on is made durable first.

        The log stands on a checkpoint: where there is none yet, one is written in its place.
        """
        if self._based:
            self._fragment.sync()
        else:
            self._save()

    def _save_if_due(self) -> None:
        if self._clock.monotonic_us() >= self._due_us:
            self._save_or_warn()

    def _save_or_warn(self) -> None:
        try:
            self._save()
        except StateError as error:
            self._due_us = self._clock.monotonic_us() + (self._every_us or 0)
            self._caution(f"the checkpoint that fell due was not written: {error}", CheckpointWarning)

    # The end

    def close(self) -> None:
        """Wait for calls of async functions, write a last checkpoint (where there are any), and refuse
        everything from now on.

        Raises:
            StateError: the last checkpoint couldn't be written; the run is closed all the same.
        """
        if self._closed:
            return
        with self._turn():
            saves = self._checkpoints is not None and not self._fragment.stopped
            self._end(save=saves and not self._fragment.stuck)

    def _end(self, *, save: bool) -> None:
        try:
            if self._fragment.wait():
                self._tell()
            if save:
                self._save()
            self._fragment.connections.close()
        finally:
            self._closed = True
            try:
                self._on_close()
            finally:
                self.output.tell()
                self.room.tell()

    def _give_up(self) -> None:
        """Close a run that nobody has got yet: nothing is written."""
        self._end(save=False)

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        if error is None:
            self.close()
            return
        # The error on its way out is the news; a failing checkpoint must not hide it.
        try:
            self.close()
        except MedusaError as other:
            error.add_note(f"besides, closing the run failed: {other}")

    def __repr__(self) -> str:
        return f"<Run of {self._fragment.graph.name!r}{', closed' if self._closed else ''}>"

    # Inner workings

    def _turn(self, *, tells: bool = False, wait: bool = True, room: bool = False) -> Turn:
        """The one that works.

        Args:
            tells: afterwards those who wait for output look again.
            wait: for other threads, where the run has several.
            room: there must be room for output.
        """
        return Turn(self, tells, wait, room)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError(
                f"the run of {self._fragment.graph.name!r} is closed",
                hint="md.restore goes on from its checkpoint, where it has one",
                code="run.closed",
            )

    def _full(self) -> bool:
        if self._fragment.held_bytes() <= self._memory_bytes:
            return False
        if self._fragment.storage is not None:
            self._fragment.storage.relieve()  # the disk may have room again
        return self._fragment.held_bytes() > self._memory_bytes

    def _refuse_full(self) -> None:
        held, allowed = size_text(self._fragment.held_bytes()), size_text(self._memory_bytes)
        storage = self._fragment.storage
        why = f"; {storage.error.message}" if storage is not None and storage.error is not None else ""
        raise FullError(
            f"{held} of output wait to be taken, allowed are {allowed}{why}",
            hint="take() the sinks, or start with a larger memory= or with spill=",
            code="full.memory",
        )

    def _pass_time(self) -> None:
        """See which sources are idle by now."""
        self._fragment.tick(self._clock.monotonic_us())

    def _settled(self) -> None:
        """After the query has come to rest: let time pass, tell the callbacks, checkpoint when it is time."""
        # Asked first, since most runs need none of it and every push comes here.
        if self._idles:
            self._pass_time()
        if self._fragment.has_calls:
            self._fragment.poll()
        storage = self._fragment.storage
        if storage is not None and storage.budget_bytes is not None:
            storage.settle()
        if self._callbacks:
            self._tell()
        if self._every_us is not None and self._checkpoints is not None:
            self._save_if_due()
        if self._at_rest:
            for call in tuple(self._at_rest):
                call()

    def _tell(self) -> None:
        for name, calls in self._callbacks.items():
            box = self._fragment.sink(name)
            if box.held_rows:
                if self._fragment.behind:
                    self._sync()
                while box.held_rows:  # in pieces where some of it is on disk
                    elements = box.peek(box.piece_bytes)
                    table = to_table(elements, box.schema)
                    for call in calls:
                        call(table)
                    box.drop(len(elements))

    def _caution(self, text: str, category: type[Warning]) -> None:
        warn_user(text, category)

    def _warn(self, source: str) -> None:
        """Warn of the first late row of a source and of the first dead row."""
        if self._warns_late.get(source):
            box = self._fragment.source(source)
            if box.late:
                self._warns_late[source] = False
                warn_late(box)
        dead = self._fragment.letters.fresh
        if dead is not None:
            self._fragment.letters.fresh = None
            warn_dead(dead)
