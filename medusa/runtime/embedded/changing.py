"""A run whose query can change, and to whose connection points other queries can be attached."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from medusa.engine.history.history import History
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.engine.prejudged_source import JudgedRun, source_of
from medusa.engine.query_change import Change, Given, change_fragment
from medusa.engine.recording import part_below, record
from medusa.engine.splitting import Repartition, merge_running, split_running
from medusa.errors import QueryError
from medusa.query.boxes import Graph
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of
from medusa.query.rewrite.split import BLOCK_ROWS
from medusa.query.user_registry import check_functions
from medusa.runtime.embedded.memory_options import check_sheds
from medusa.runtime.embedded.query_argument import graph_of
from medusa.runtime.embedded.recordings import write_recording
from medusa.runtime.embedded.watched import WatchedRun
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.store.history_store import check_in_memory
from medusa.units import Duration, byte_count, duration_us

if TYPE_CHECKING:
    from medusa.query.builder import Query
    from medusa.runtime.embedded.attached import AttachedRun

__all__ = ["ChangingRun"]


class ChangingRun(WatchedRun):
    """A run that goes on with another query, and lets others read along.

    Args:
        attaches: makes an attached run; None: nobody attaches to this one.
    """

    def __init__(
        self, *given: Any, attaches: Callable[..., AttachedRun] | None = None, **options: Any
    ) -> None:
        super().__init__(*given, **options)
        self._attaches = attaches
        self._attachments = 0  # so far

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
        graph = self._checked(query)
        with self._turn(tells=True):
            made = self._go_on_with(graph, query.functions, reset)
            self._settled()
        return made

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
        with self._turn(tells=True):
            made = self._split_now(box, n, ranges, block)
            self._settled()
        return made

    def merge(self, box: str) -> None:
        """Run a box that was split as one again, with the state of its parts.

        Raises:
            QueryError: it isn't split.
            StateError: it has no key, and several parts hold results of an open window; as ``split``.
        """
        with self._turn(tells=True):
            self._merge_now(box)
            self._settled()

    def _split_now(self, box: str, n: int | None, ranges: str | Sequence[int], block: int) -> tuple[str, ...]:
        self._fragment.quiesce()
        made = split_running(self._fragment, box, n, ranges=ranges, block=block)
        self._repartition(made)
        return made.parts

    def _merge_now(self, box: str) -> None:
        self._fragment.quiesce()
        made = merge_running(self._fragment, box)
        made.before()
        self._repartition(made)

    def _repartition(self, made: Repartition) -> None:
        check_sheds(self._settings, made.graph)
        check_in_memory(made.graph, self._settings)
        self._go_on_with(made.graph, self._fragment.functions, (), made.given)

    def _checked(self, query: Query) -> Graph:
        """Raises QueryError where a query can't be what this run goes on with."""
        graph = graph_of(query)
        check_functions({label_of(box): box.functions for box in graph.boxes})
        if self._checkpoints is not None:
            refuse_unregistered(graph, "checkpoint=")
        check_sheds(self._settings, graph)
        check_in_memory(graph, self._settings)
        return graph

    def _go_on_with(
        self,
        graph: Graph,
        functions: Mapping[str, object],
        reset: Sequence[str],
        given: Given | None = None,
    ) -> Change:
        """Change the query, within a turn; ``given``: as of ``change_fragment``."""
        fragment = self._fragment
        fragment.at(self._clock.monotonic_us())
        made = change_fragment(
            fragment, graph, functions=functions, reset=reset, check=self._check_change, given=given
        )
        self._changed(made)
        if self._checkpoints is not None:
            self._based = False  # the log of decisions stands on the query that was
            self._save_or_warn()
        return made

    def _check_change(self, change: Change) -> None:
        """The last chance to refuse."""

    def _changed(self, made: Change) -> None:
        """Look at the boxes that run now."""
        sources = self._fragment.sources
        self._idles = any(box.spec.idle_us is not None for box in sources.values())
        judged = self._fragment.sources_read_in_time()
        self._warns_late = {name: name in judged and not box.late for name, box in sources.items()}
        self._callbacks = {id: calls for id, calls in self._callbacks.items() if id not in made.gone}

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
        graph = graph_of(query)
        check_functions({label_of(box): box.functions for box in graph.boxes})
        memory_bytes = byte_count(memory, what="memory")
        back_us = None
        if history is not None and history != "all":
            back_us = duration_us(history, what="history")
        with self._turn():
            point = self._fragment.connection(at)
            source = source_of(graph, point)
            assert point.history is not None, "runs keep histories"
            first = point.history.oldest_seq
            if history is None:
                first = point.history.next_seq
            elif back_us is not None:
                first = _seq_back(point.history, back_us, at)
            from_us = point.history.complete_from(first)
            assert self._attaches is not None, "an attached run refuses this"
            self._attachments += 1
            tasks = LoopTasks()
            judged = JudgedRun(
                graph,
                source,
                from_us,
                functions=query.functions,
                on_error=on_error,
                clock=self._clock,
                tasks=tasks,
            )
            made = self._attaches(
                self,
                point,
                judged,
                tasks,
                number=self._attachments,
                first_seq=first,
                from_us=from_us,
                memory_bytes=memory_bytes,
            )
            self._attached.add(made)
            return made

    def _let_follow(self, each: AttachedRun) -> None:
        """One that has callbacks is told when the run has come to rest."""
        if each.follow not in self._at_rest:
            self._at_rest.append(each.follow)

    def _forget(self, each: AttachedRun) -> None:
        """One that reads no more."""
        self._attached.discard(each)
        if each.follow in self._at_rest:
            self._at_rest.remove(each.follow)

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
        start_us = boundary_time_us(start, at, "the start of a recording", kind="connection_point")
        end_us = boundary_time_us(end, at, "the end of a recording", kind="connection_point")
        given = None if query is None else graph_of(query)
        with self._turn():
            point = self._fragment.connection(at)
            graph = given or part_below(self._fragment.checked, at)
            refuse_unregistered(graph, "a recording")
            files = record(point, graph, start_us, end_us, bytes_max=self._memory_bytes)
        write_recording(path, files)

    def _end(self, *, save: bool) -> None:
        try:
            super()._end(save=save)
        finally:
            for each in tuple(self._attached):
                each.close()


def _seq_back(history: History, back_us: int, name: str) -> int:
    if not history.timed:
        raise QueryError(
            f"connection_point {name!r}: its stream has no time, so no row is an hour old",
            hint='history="all", or None',
            code="query.attach",
        )
    history.write()  # or it doesn't know their times
    return history.seq_at(history.most_us - back_us) if history.rows else history.next_seq
