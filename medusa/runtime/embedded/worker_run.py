"""A run whose work is done by a thread of its own: what that does, and how callers hear of it."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from medusa.engine.input.intake import Entry, InputQueue
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.operators.source import SourceBox
from medusa.engine.overload.controller import Shedder, has_qos
from medusa.engine.query_change import Change
from medusa.errors import StateError
from medusa.runtime.embedded.asyncio_run import LOOK_AGAIN_S, LiveRun
from medusa.runtime.embedded.queue_state import Belt, Changed, abandon, note_left

__all__ = ["WorkingRun"]


class WorkingRun(LiveRun):
    """A run with an input queue and a thread; ``QueuedRun`` fills the one, this works it off."""

    def __init__(self, fragment: LoggedFragment, *, queue_bytes: int, threads: int, **options: Any) -> None:
        super().__init__(fragment, **options)
        self._waits = threads > 1
        self._belt = belt = Belt(InputQueue(queue_bytes, fragment.positions()))
        self._begin_to_shed()
        self._untold: set[str] = set()  # sources to warn about
        self._cautions: list[tuple[str, type[Warning]]] = []
        look_again_s = LOOK_AGAIN_S if self.goes_on_alone else None
        self._thread = threading.Thread(
            target=_serve, args=(belt, weakref.ref(self), look_again_s), name="medusa-run", daemon=True
        )
        self._finalizer = weakref.finalize(self, abandon, belt, fragment.graph.name)
        self._thread.start()

    def _begin_to_shed(self) -> None:
        fragment = self._fragment
        if self._sheds is None and has_qos(fragment.graph):
            if fragment.drops is None:
                fragment.shed()
            self._sheds = Shedder(fragment, fragment.drops)

    def _changed(self, made: Change) -> None:
        super()._changed(made)
        self._begin_to_shed()

    def _give_up(self) -> None:
        self._finalizer()  # lets the thread end
        self._thread.join()
        super()._give_up()

    # The work, in the thread

    def _serve_one(self, entry: Entry | None) -> None:
        """Work through one entry, or let time pass."""
        if entry is None:
            if self._fragment.stopped:
                return
            try:
                with self._turn(tells=True):
                    self._settled()
            except BaseException as error:
                self._failed(error)
            return
        belt = self._belt
        with belt.changed:
            takes = belt.takes
        try:
            with self._turn(tells=True):
                full = entry.call is None and self._full()
                if not full or belt.calls:
                    self._work(entry)
                    full = False
        except BaseException as error:
            self._done(entry, error)
            return
        if full:
            with belt.changed:
                belt.full_at, belt.working = takes, None
                belt.changed.notify_all()
            self.output.tell()
        else:
            self._done(entry, None)

    def _work(self, entry: Entry) -> None:
        fragment = self._fragment
        fragment.at(self._clock.monotonic_us(), entry.came_us)
        if entry.call is not None:
            entry.result = entry.call()
        elif entry.promise_us is not None:
            fragment.promise(entry.source, entry.promise_us)
        else:
            box: SourceBox = fragment.source(entry.source)
            if self._sheds is not None and not fragment.replays:  # what is left out then has been decided
                with self._belt.changed:
                    self._sheds.control(self._clock.monotonic_us(), self._belt.queue)
            try:
                fragment.push(box, entry.batches, entry.times, entry.arrival_us)
            finally:
                if box.late or fragment.letters.fresh is not None:
                    self._warn(entry.source)
        self._settled()

    def _settled(self) -> None:
        self._tell_shed()
        super()._settled()

    def _done(self, entry: Entry, error: BaseException | None) -> None:
        belt = self._belt
        with belt.changed:
            belt.working = None
            belt.queue.done()
            if error is not None and entry.call is not None:
                entry.error = error
                error = None
            belt.changed.notify_all()
        if error is not None or self._fragment.stopped:
            self._failed(error)
        self.room.tell()

    def _failed(self, error: BaseException | None) -> None:
        """Keep an error for the next caller; a run that has stopped works on nothing more."""
        belt = self._belt
        with belt.changed:
            left = belt.queue.forget() if self._fragment.stopped else {}
            if error is not None:
                note_left(error, left)
                belt.error = error
            belt.changed.notify_all()
        self.output.tell()
        self.room.tell()

    def _pass_time(self) -> None:
        """Sources are silent since their last row came: rows that wait have come later than what is done."""
        with self._belt.changed:
            head = self._belt.queue.head
            now_us = self._clock.monotonic_us() if head is None else head.came_us
        self._fragment.tick(now_us)

    # Telling the caller

    def _refuse_stopped(self) -> None:
        """Raises DataError when a row failed with ``on_error="stop"``."""
        if self._fragment.stopped:
            self._fragment.check(next(iter(self._fragment.sources.values())), ())

    def _is_mine(self) -> bool:
        return threading.current_thread() is self._thread

    def _refuse_own_thread(self) -> None:
        if self._is_mine():
            raise StateError(
                "the run is at work: a callback called it",
                hint="in a callback, note what to do and do it in another thread",
                code="run.busy",
            )

    def _refuse_error(self) -> None:
        """Raise what the thread ran into; then it goes on."""
        belt = self._belt
        if belt.error is None or self._is_mine():
            return
        with belt.changed:
            error, belt.error = belt.error, None
            belt.changed.notify_all()
        if error is not None:
            raise error

    def _tell_caller(self) -> None:
        self._refuse_closed()
        if self._untold or self._cautions:
            self._tell_warnings()
        self._refuse_error()

    def _tell_warnings(self) -> None:
        if self._is_mine():
            return
        while self._untold:
            super()._warn(self._untold.pop())
        while self._cautions:
            super()._caution(*self._cautions.pop(0))

    def _warn(self, source: str) -> None:
        if not self._is_mine():
            super()._warn(source)
        elif self._warns_late.get(source) or self._fragment.letters.fresh is not None:
            self._untold.add(source)  # said in the thread of a caller, at its place

    def _caution(self, text: str, category: type[Warning]) -> None:
        if self._is_mine():
            self._cautions.append((text, category))
        else:
            super()._caution(text, category)

    def _after_fork(self) -> None:
        """In the child nobody works on it."""
        self._leave_to_parent()
        self._belt.changed = Changed()
        self._finalizer.detach()


def _serve(belt: Belt, ref: weakref.ref[WorkingRun], look_again_s: float | None) -> None:
    """What the thread does. It holds the run only while it works, so that one that is lost ends."""
    while True:
        entry = belt.next(look_again_s)
        if belt.stopping:
            return
        run = ref()
        if run is None:
            return
        run._serve_one(entry)
        del run, entry
