"""A turn: while it lasts one thread works on a run, and interrupts are deferred.

They are deferred from before the turn is taken until after it has been given back, so that one that comes
in the middle leaves no lock taken and no box ahead of others.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from medusa.errors import FullError, MedusaError, StateError

if TYPE_CHECKING:
    from medusa.engine.run import Run

__all__ = ["Turn", "begin", "broken_off", "leave"]


class Turn:
    """A turn as a context manager.

    Args:
        tells: afterwards those who wait for output look again.
        wait: for other threads, where the run has several.
        room: there must be room for output.
    """

    __slots__ = ("_room", "_run", "_tells", "_wait")

    def __init__(self, run: Run, tells: bool, wait: bool, room: bool) -> None:
        self._run = run
        self._tells = tells
        self._wait = wait
        self._room = room

    def __enter__(self) -> None:
        begin(self._run, self._wait, self._room)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                broken_off(self._run, error)
        finally:
            leave(self._run, self._tells)


def begin(run: Run, wait: bool, room: bool) -> None:
    """Begin a turn; nothing has begun where this raises.

    Raises:
        StateError: the run is closed, or it is at work and this caller can't wait.
        FullError: there is no room for output; or another thread is at work and ``wait`` is False.
    """
    # Small trains cost what this costs: no call that can be left out, here and in leave.
    turns, state = run._turns, run._state
    entered = held = False
    run._interrupts.hold()
    try:
        if run._closed:
            run._refuse_closed()
        entered = turns.enter(wait)
        if not entered:
            _refuse_busy(run, wait)
        if turns.waits:
            while room and wait and not run._closed and run._full():
                turns.pause()
        held = state.acquire()  # those who ask hold it briefly
        if run._closed:
            run._refuse_closed()
        if room and run._full():
            run._refuse_full()
    except BaseException:
        try:
            if held:
                state.release()
            if entered:
                turns.leave()
                if turns.waits:
                    run.room.tell()
        finally:
            run._interrupts.release()
        raise


def _refuse_busy(run: Run, wait: bool) -> NoReturn:
    if not wait and run._turns.waits:
        raise FullError("another thread is at work, and wait=False", code="full.busy")
    raise StateError(
        "the run is at work: a callback or another thread called it",
        hint="one thread at a time; in a callback, note what to do and do it after the push",
        code="run.busy",
    )


def leave(run: Run, tells: bool) -> None:
    """End a turn, then raise what the interrupts raise that came meanwhile."""
    try:
        run._state.release()
        run._turns.leave()
        if tells:
            run.output.tell()
        if run._turns.waits:
            run.room.tell()  # who was refused because another was at work
    finally:
        run._interrupts.release()


def broken_off(run: Run, error: BaseException) -> None:
    """An error ends a turn: where an interrupt broke off what was at work the run has stopped."""
    if run._interrupts.passed and not isinstance(error, MedusaError):
        run._fragment.give_up(error)
