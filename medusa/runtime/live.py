"""A run among the tasks of asyncio: rows out as they come, pushes that wait for room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from medusa.elements import Train
from medusa.engine.change import Change, change_fragment
from medusa.engine.watchers import Watchers
from medusa.errors import FullError, QueryError, StateError
from medusa.query.boxes import Graph
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import check_graph, label_of
from medusa.query.registry import check_functions
from medusa.runtime.watched import WatchedRun

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["LiveRun", "graph_of"]

LOOK_AGAIN_S = 0.25
"""How often, at least, a stream looks whose run may go on though nobody pushes."""


class LiveRun(WatchedRun):
    """A run with methods for asyncio. The work itself is done in the thread that calls."""

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
        graph = graph_of(query)
        check_functions({label_of(box): box.functions for box in graph.boxes})
        if self._checkpoints is not None:
            refuse_unregistered(graph, "checkpoint=")
        with self._turn(tells=True):
            fragment = self._fragment
            fragment.at(self._clock.monotonic_us())
            made = change_fragment(fragment, graph, functions=query.functions, reset=reset)
            self._changed(made)
            if self._checkpoints is not None:
                self._based = False  # the log of decisions stands on the query that was
                self._save_or_warn()
            self._settled()
        return made

    def _changed(self, made: Change) -> None:
        """Look at the boxes that run now."""
        sources = self._fragment.sources
        self._idles = any(box.spec.idle_us is not None for box in sources.values())
        judged = self._fragment.sources_read_in_time()
        self._warns_late = {name: name in judged and not box.late for name, box in sources.items()}
        self._callbacks = {id: calls for id, calls in self._callbacks.items() if id not in made.gone}

    async def push_async(self, source: str, data: Any, **options: Any) -> None:
        """``push``; but where it would raise ``FullError`` this waits until rows have been taken.

        The query runs in the thread of the loop, which does nothing else meanwhile; then other
        tasks have a turn.

        Raises:
            DataError, StateError: as ``push``.
        """
        with _events(self.room) as event:
            while True:
                event.clear()
                try:
                    self.push(source, data, wait=False, **options)
                    break
                except FullError:
                    await event.wait()
        await asyncio.sleep(0)

    async def stream(self, sink: str, *, changes: bool = False) -> AsyncIterator[Any]:
        """What comes out of a sink, as it comes: ``async for table in run.stream("tolls")``.

        It ends when the run is closed (what was not taken by then is in the checkpoint, where there
        is one), or has finished and all has been taken.

        Args:
            changes: lists of elements as of ``take(sink, changes=True)``, in place of tables.

        Raises:
            DataError: there is no such sink.
        """
        with _events(self.output) as event:
            while True:
                event.clear()
                ended = self.ended
                try:
                    made = self.take(sink, changes=changes)
                except StateError as error:
                    if error.code == "run.closed":
                        return
                    if error.code != "run.busy":
                        raise
                    made = []  # another thread is at work: it tells when it is done
                if any(isinstance(each, Train) for each in made) if changes else len(made):
                    yield made
                elif ended:
                    return
                else:
                    await self._something(event)

    async def _something(self, event: asyncio.Event) -> None:
        if not self.goes_on_alone:
            await event.wait()
            return
        try:
            await asyncio.wait_for(event.wait(), LOOK_AGAIN_S)
        except TimeoutError:
            with suppress(StateError):  # closed, or another thread is at work
                self.tick()


def graph_of(q: Query) -> Graph:
    """What a query is, checked: it can run.

    Raises:
        QueryError: it isn't a query, doesn't hold, or lacks a source or a sink.
    """
    graph = getattr(q, "graph", None)
    if not isinstance(graph, Graph):
        raise QueryError(f"expected a md.Query, got {type(q).__name__}", code="query.argument")
    check_graph(graph, require_sinks=True)
    return graph


@contextmanager
def _events(watchers: Watchers) -> Iterator[asyncio.Event]:
    """An event of the running loop that is set whenever the watchers are told."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def call() -> None:
        try:
            ours = asyncio.get_running_loop() is loop
        except RuntimeError:  # a thread without a loop
            ours = False
        if ours:
            event.set()  # whoever waits has its turn before the one who pushed
            return
        with suppress(RuntimeError):  # the loop has ended; so has whoever waited
            loop.call_soon_threadsafe(event.set)

    with watchers.watching(call):
        yield event
