"""A query running inside a program: rows in by ``push``, rows out by ``take``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.query_change import Change
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.gate import RunGate
from medusa.engine.run.intake import Check
from medusa.engine.state.checkpoint import Checkpoints
from medusa.ports import Clock, Interrupts, Jobs, Lock, Turns
from medusa.query.rewrite.split import BLOCK_ROWS
from medusa.runtime.embedded.async_streams import push_when_room
from medusa.runtime.embedded.attached import AttachedRun
from medusa.runtime.embedded.attachments import Attachments
from medusa.runtime.embedded.metrics_service import MetricsService
from medusa.runtime.embedded.query_changes import QueryChanges
from medusa.runtime.embedded.readable_run import ReadableRun
from medusa.runtime.embedded.recordings import record_run
from medusa.runtime.embedded.run_parts import QueueOptions, direct_parts, queued_parts
from medusa.runtime.embedded.views import HistoryInfo, HistoryViews
from medusa.units import Duration

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["Run"]


class Run(ReadableRun):
    """A running query. ``md.start`` and ``md.restore`` make it.

    One thread at a time may push, take and change it: a second one gets ``StateError`` or, with
    ``threads=`` of 2 or more, waits for its turn. ``taken``, ``positions``, ``stats``, ``explain`` and
    ``dead`` may be asked from any thread, also from a callback: they wait until what another thread
    does has ended.

    With ``queue=`` any thread may call it. Callbacks run in the thread of the run, and may push as long as
    there is room. What goes wrong in that thread (a failed row with ``on_error="stop"``, a callback that
    raises) is raised by the next call of anybody, but for those that only ask; until then nothing more is
    worked on. A child after a fork has no such thread: there the run is closed.

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
        jobs: Jobs,
        checkpoints: Checkpoints | None = None,
        checkpoint_every_us: int | None = None,
        queue: QueueOptions | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        gate = RunGate(fragment, memory_bytes=memory_bytes, turns=turns, state=state, interrupts=interrupts)
        saves = partial(
            RunCheckpoints,
            fragment,
            clock,
            store=checkpoints,
            jobs=jobs,
            state=state,
            every_us=checkpoint_every_us,
            settings=settings,
        )
        made = direct_parts(gate, clock, saves) if queue is None else queued_parts(gate, clock, saves, queue)
        super().__init__(gate, clock, made.output)
        self._intake, self._rest = made.intake, made.rest
        self._warnings, self._checkpoints = made.warnings, made.checkpoints
        self._shedding = made.shedding
        self._views = HistoryViews(gate, made.checkpoints.sync)
        self._changes = QueryChanges(
            gate, clock, settings, made.intake, made.time, made.warnings, made.output, made.checkpoints
        )
        self._attachments = Attachments(
            gate, clock, made.time, made.warnings, made.checkpoints, made.rest, made.forks
        )
        self._metrics = MetricsService(gate)
        self._on_close = on_close
        self.push = made.intake.push  # type: ignore[assignment, method-assign]  # as ``take``

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
        """Take rows and run the query to quiescence; with ``queue=``: check them, let them wait, and return.

        Rows that wait are shared, not copied (numpy arrays in a dict are): what they lie in may not be
        written to before ``flush``.

        Args:
            data: anything with the Arrow PyCapsule interface, or a dict of columns.
            extra: ``ignore`` leaves out columns that the source doesn't have.
            first: the number of the first row among all rows of this source; rows that are held
                already (see ``positions``) are dropped.
            arrival: when these rows arrived, written as the time of a ``boundary``: for a source with
                ``ahead=`` whose arrival no column tells.
            wait: with ``threads=`` of 2 or more: wait for other threads that are at work, and for
                one of them to take output when more than ``memory=`` waits; with ``queue=``: for room in
                it. Without it that raises ``FullError``, as it does in a callback. Another run of one
                thread never waits.

        Raises:
            DataError: the rows don't fit, or ``first`` leaves a gap: nothing of them entered.
            FullError: more output than ``memory=`` waits to be taken, or the queue is full and stays so:
                nothing entered.
            StateError: the run is closed; or the state is larger than ``state_budget=``: nothing entered.
            KeyboardInterrupt: Ctrl-C came meanwhile. The rows entered, or didn't: ``positions`` tells, and
                with ``first=`` the same push may simply be repeated.
        """
        self._intake.push(source, data, extra=extra, first=first, arrival=arrival, wait=wait)

    async def push_async(self, source: str, data: Any, **options: Any) -> None:
        """``push``; but where it would raise ``FullError`` this waits until rows have been taken.

        The query runs in the thread of the loop, which does nothing else meanwhile; then other
        tasks have a turn.

        Raises:
            DataError, StateError: as ``push``.
        """
        push = partial(self.push, source, data, wait=False, **options)
        await push_when_room(push, self.room)

    def boundary(self, source: str, time: int | str | datetime) -> None:
        """Promise that no row of a source with a smaller time will come; those that do are late.

        Args:
            time: microseconds since 1970 in UTC, a datetime (naive means UTC), or text such as
                ``2026-03-01 12:00:00``.

        Raises:
            DataError: no time, or below an earlier explicit boundary: nothing changed.
            FullError, StateError: as ``push``.
        """
        self._intake.boundary(source, time)

    def tick(self) -> None:
        """Let time pass: sources that have been silent for their ``idle=`` let go of the others.

        Every push, boundary and take does so too; where nobody calls for long, this does.
        """
        self._intake.tick()

    def finish(self) -> None:
        """End all sources, behind the rows that wait: every window closes, every join emits. Output stays
        to be taken.

        Raises:
            KeyboardInterrupt: Ctrl-C came while calls of async functions ran. They go on; what they give can
                be taken as it comes, and this can be called again.
        """
        self._intake.in_order(self._finish, ends=True)

    def _finish(self, check: Check) -> None:
        self._checkpoints.rest()
        self._fragment.finish(check)
        self._warnings.warn("")

    def flush(self) -> None:
        """Wait until all that has been pushed has been worked through.

        Only a run with ``queue=`` lets rows wait: of another one that is so when ``push`` returns.

        Raises:
            StateError: the run is closed, or a callback called this.
        """
        self._intake.flush()

    # Asked

    def positions(self) -> dict[str, int]:
        """Rows accepted so far of each source, late ones and those that wait in the input queue included:
        push from there after a restore.
        """
        return self._intake.positions()

    def stats(self, *, attached: bool = False) -> pa.Table:
        """One row per box: rows, rates, cost, lag, late, dead, bytes held, time spent, boundary.

        docs/metrics.md describes each column.

        Args:
            attached: behind them the boxes of queries that are attached, with two columns more: ``query``,
                its name, and ``attached``, the label of that query; null for the boxes of the run.
        """
        with self._gate.asking():
            self._intake.count_waiting()
            own = self._fragment.stats(self._clock.monotonic_us())
            return self._attachments.with_stats(own) if attached else own

    def shedding(self) -> pa.Table:
        """Where rows can be left out, and what is at this moment; no rows where nothing is ever shed.

        Returns:
            Of each place: ``box`` (a source: behind it; another one: before it), ``how`` (``random``,
            ``value`` or ``windows``), ``sinks`` that miss what is dropped there, the ``share`` that is
            dropped now, rows ``seen`` and ``shed`` so far.
        """
        return self._shedding.table()

    def on_shed(self, box: str, call: Callable[[pa.Table], object]) -> None:
        """Call back, in the thread of the run, with rows that are left out at a box: see ``shedding``.

        Rows count as told once all callbacks of their box have returned; after one that raised, they
        come again with the next ones, and the next caller is told its error.

        Raises:
            DataError: nothing is ever shed there; says where something may be.
        """
        self._shedding.on(box, call)

    def history(self, name: str) -> HistoryInfo:
        """How much history a connection point holds at this moment.

        Raises:
            DataError: there is no such connection point.
            StateError: the run is closed.
        """
        return self._views.info(name)

    def view(
        self,
        name: str,
        *,
        start: int | str | datetime | None = None,
        end: int | str | datetime | None = None,
        last: Duration | None = None,
        rows: int | tuple[int, int] | None = None,
    ) -> pa.Table:
        """Rows of a connection point that are kept, late ones too, in the order in which they came.

        By default all; or a fixed range (``start``, ``end``, ``rows=(first, end)``), or one that moves
        with the stream from call to call (``last``, ``rows=n``).

        Args:
            start, end: ``start <= time < end``, written as the time of a ``boundary``; either may be left
                out.
            last: the rows less than this before the largest time so far.
            rows: the last so many; or a pair, for rows numbered ``first <= number < end``.

        Raises:
            DataError: no such connection point, no such range, or times of a stream without time.
            StateError: the run is closed, or a record is damaged (names the file; ranges without it can
                be read).
        """
        return self._views.view(name, start=start, end=end, last=last, rows=rows)

    def serve_metrics(self, address: str, *, public: bool = False) -> None:
        """Serve the figures of ``stats`` over HTTP until the run is closed: what ``md.start`` does with
        ``metrics=``; here for a run that goes on already. docs/metrics.md.

        Args:
            address: ``host:port``; port 0 takes a free one, see ``metrics_address``.
            public: other machines may reach it.

        Raises:
            QueryError: no address, or one that can't be served at; no prometheus-client; served already.
            StateError: the run is closed.
        """
        self._metrics.serve(self, address, public=public)

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served, ``host:port``; None: nowhere."""
        return self._metrics.address

    # Changed, and read along

    def change(self, query: Query, *, reset: Sequence[str] = ()) -> Change:
        """Go on with another query, in place of this one; docs/changing.md.

        Boxes that are the same (id, kind, parameters and input columns) keep their state, sources their
        positions, sinks their numbers and the rows that wait. New ones begin empty, at the boundaries of
        this moment: windows that have begun count from now on. With ``checkpoint=`` a checkpoint of the
        new query is written; one that fails warns, as those that fall due do.

        Args:
            query: the whole of what is to run from now on.
            reset: boxes that begin empty although they are the same, and sources although they aren't.

        Returns:
            What was kept, what is new, replaced and dropped. ``str`` of it says so.

        Raises:
            QueryError: the query doesn't hold, names functions that aren't registered, or a source isn't
                what it was. Nothing changed, as with StateError.
            StateError: a sink that goes holds rows that nobody took; a box can't follow its new input;
                the run is closed, or another thread or a callback of its own is at work with it.
        """
        return self._changes.change(query, reset)

    def split(
        self,
        box: str,
        n: int | None = None,
        *,
        ranges: str | Sequence[int] = "even",
        block: int = BLOCK_ROWS,
    ) -> tuple[str, ...]:
        """Run a box as parts over ranges of its keys from now on; docs/splitting.md.

        The answer stays the same, row for row: the state of the box goes to its parts. With
        ``checkpoint=`` a checkpoint is written, as by ``change``.

        Args:
            box: its id.
            n: how many parts, from 2; may be left out where ``ranges`` are given.
            ranges: ``"even"``; ``"weight"``: such that the rows of the keys that the box holds now are
                shared evenly; or where ranges of ``hash_partition`` of the key end, ascending, n - 1 of them.
            block: of a box without keys: so many rows go the same way.

        Returns:
            The ids of the parts.

        Raises:
            QueryError: it can't be split so that the answer stays the same, with the reason.
            StateError: the run is closed, or another thread or a callback of its own is at work with it.
        """
        return self._changes.split(box, n, ranges, block)

    def merge(self, box: str) -> None:
        """Run a box that was split as one again, with the state of its parts.

        Raises:
            QueryError: it isn't split.
            StateError: it has no key, and several parts hold results of an open window; as ``split``.
        """
        self._changes.merge(box)

    def attach(
        self,
        query: Query,
        *,
        at: str,
        history: Duration | None = None,
        memory: str | int = "256 MiB",
        on_error: str = "dead",
    ) -> AttachedRun:
        """Let another query read a connection point: its history first, then what comes; docs/changing.md.

        It reads when it is asked (``take``), or after each push where it has callbacks (``on``); the run
        does no work for it before. It isn't in checkpoints: after a restart, attach it again.

        Args:
            query: has one source, with the columns of the connection point; its ``time`` names the
                column that holds the time of the stream, or is None. How late rows are was judged where
                they entered, so ``slack=`` and the like are refused.
            at: the connection point.
            history: how far back it begins, behind the largest time so far; ``"all"``: with the oldest
                row that is kept. None: with the next row that comes.
            memory: output not yet taken, beyond which it reads no further.
            on_error: as of ``md.start``, for this query.

        Returns:
            A run of its own: ``first_seq`` is the number of the first row that it reads, and windows that
            start before its ``from_time`` aren't given.

        Raises:
            DataError: there is no such connection point.
            QueryError: the query doesn't hold or doesn't fit.
            StateError: the history can't be read; the run is closed, or another thread is at work with it.
        """
        return self._attachments.attach(self, query, at, history, memory, on_error)

    def record(
        self,
        at: str,
        start: int | str | datetime,
        end: int | str | datetime,
        path: str | os.PathLike[str],
        *,
        query: Query | None = None,
    ) -> None:
        """Write rows of a connection point into a folder, with a query, for ``md.replay``; docs/changing.md.

        Args:
            at: the connection point.
            start, end: from the first row of ``start`` or a later time to the last one below ``end`` that
                wasn't late; written as the time of a ``boundary``. Where the stream hasn't come to
                ``end`` yet, up to now.
            path: the folder, which holds no recording yet; it is made where it doesn't exist.
            query: what is to be replayed: it has one source, with the columns of the connection point.
                None: the part of the query that runs which depends on the connection point alone.

        Raises:
            DataError: there is no such connection point, or no rows came between these times.
            QueryError: the query doesn't hold or fit, or runs functions that aren't registered.
            StateError: rows from ``start`` on were trimmed, take more than ``memory=`` of the run, or can't
                be read; the folder can't be written, or holds a recording.
        """
        record_run(self._gate, at, start, end, path, query)

    # Checkpoints, and the end

    def checkpoint(self) -> str:
        """Write a checkpoint now, of all that was pushed; calls of async functions are waited for.

        Returns:
            Its name.

        Raises:
            StateError: the run has no ``checkpoint=``, or it couldn't be written; the run goes on.
            KeyboardInterrupt: Ctrl-C came while they were waited for: nothing was written, the run goes on.
        """
        return self._intake.in_order(self._checkpoint, settles=False)

    def _checkpoint(self, check: Check) -> str:
        if check is not None and self._checkpoints.written:
            self._fragment.wait(check)
        return self._checkpoints.save()

    def close(self) -> None:
        """Work off what waits, wait for calls of async functions, write a last checkpoint (where there are
        any), and refuse everything from now on.

        Raises:
            StateError: the last checkpoint couldn't be written; the run is closed all the same. Or, with
                ``queue=``, a callback called this.
            What went wrong in the thread of the run; the run is closed all the same.
        """
        if not self._gate.closed:
            self._intake.close(self._close)

    def __enter__(self) -> Self:
        self._gate.refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; where an error is on its way out, without working off what waits."""
        if not self._gate.closed:
            self._intake.close(self._close, error)

    def _close(self) -> None:
        if self._gate.closed:
            return
        with self._gate.turn():
            stopped = self._fragment.stopped or self._fragment.stuck
            self._end(save=self._checkpoints.written and not stopped)

    def _give_up(self) -> None:
        """Close a run that nobody has got yet: nothing is written."""
        self._intake.give_up()
        self._end(save=False)

    def _end(self, *, save: bool) -> None:
        with ExitStack() as ends:  # each, whatever becomes of those before
            ends.callback(self._attachments.close)
            ends.callback(self._metrics.close)
            ends.callback(self._gate.tell)
            ends.callback(self._on_close)
            ends.callback(self._gate.close)
            if self._fragment.wait():
                self._rows_out.call_back()
            if save:
                self._checkpoints.save()
            else:
                self._checkpoints.rest()
            self._fragment.close()

    def __repr__(self) -> str:
        return f"<Run of {self._fragment.graph.name!r}{', closed' if self._gate.closed else ''}>"


Run.register(AttachedRun)
"""It reads as any run, and refuses what only one with rows of its own can do."""
