"""Who may work on a run, and when.

While a turn lasts one thread works on a run, and interrupts are deferred. They are deferred from before the
turn is taken until after it has been given back, so that one that comes in the middle leaves no lock taken
and no box ahead of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from medusa.engine.core.watchers import Watchers
from medusa.engine.logged_fragment import LoggedFragment
from medusa.errors import FullError, MedusaError, StateError
from medusa.ports import Interrupts, Lock, Turns
from medusa.units import size_text

__all__ = ["RunGate", "Turn"]


class RunGate:
    """Lets one caller at a time work on a run, while it is open and there is room for its output.

    Args:
        memory_bytes: of output not taken.
        turns: not reentrant: a callback that pushes is refused.
        state: reentrant: a callback may ask.
        interrupts: deferred from before a turn is taken until after it was given back.
        output: who waits for output of this run waits there; None: nobody yet.
        above: the gate of the run that this one reads from.
        why_closed: the error of a call when this is closed; None: that of a run.

    Attributes:
        output, room: told when there may be some.
        briefly: calls short work within a turn; None: callers wait in line.
        closed: nothing is done any more.
        forked: closed, since this process is a fork of the one that goes on with the run.
    """

    def __init__(
        self,
        fragment: LoggedFragment,
        *,
        memory_bytes: int,
        turns: Turns,
        state: Lock,
        interrupts: Interrupts,
        output: Watchers | None = None,
        above: RunGate | None = None,
        why_closed: Callable[[], StateError] | None = None,
    ) -> None:
        self.fragment = fragment
        self.memory_bytes = memory_bytes
        self.turns = turns
        self.state = state
        self.interrupts = interrupts
        self.output = output or Watchers()
        self.room = Watchers()
        self.briefly = turns.briefly(state)
        self.closed = self.forked = False
        self._above = above
        self._kept: list[object] = []
        self._why_closed = why_closed

    def begin(self, wait: bool, room: bool) -> None:
        """Begin a turn; nothing has begun where this raises.

        Args:
            wait: for other threads, where the run has several.
            room: there must be room for output.

        Raises:
            StateError: the run is closed, or it is at work and this caller can't wait.
            FullError: there is no room for output; or another thread is at work and ``wait`` is False.
        """
        # Small trains cost what this costs: no call that can be left out, here and in leave.
        turns, state = self.turns, self.state
        entered = held = False
        self.interrupts.hold()
        try:
            if self.closed:
                self.refuse_closed()
            entered = turns.enter(wait)
            if not entered:
                self._refuse_busy(wait)
            if turns.waits:
                while room and wait and not self.closed and self.is_full():
                    turns.pause()
            held = state.acquire()  # those who ask hold it briefly
            if self.closed:
                self.refuse_closed()
            if room and self.is_full():
                self.refuse_full()
        except BaseException:
            try:
                if held:
                    state.release()
                if entered:
                    turns.leave()
                    if turns.waits:
                        self.room.tell()
            finally:
                self.interrupts.release()
            raise

    def leave(self, tells: bool) -> None:
        """End a turn, then raise what the interrupts raise that came meanwhile.

        Args:
            tells: those who wait for output look again.
        """
        try:
            self.state.release()
            self.turns.leave()
            if tells:
                self.output.tell()
            if self.turns.waits:
                self.room.tell()  # who was refused because another was at work
        finally:
            self.interrupts.release()

    def broken_off(self, error: BaseException) -> None:
        """An error ends a turn: where an interrupt broke off what was at work the run has stopped."""
        if self.interrupts.passed and not isinstance(error, MedusaError):
            self.fragment.give_up(error)

    def turn(self, *, tells: bool = False, room: bool = False) -> Turn:
        """A turn as a context manager; arguments as of ``begin`` and ``leave``."""
        return Turn(self, tells, room)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While somebody asks nothing changes.

        Raises:
            StateError: the run is closed.
        """
        with self.state:
            self.refuse_closed()
            yield

    def _refuse_busy(self, wait: bool) -> NoReturn:
        if not wait and self.turns.waits:
            raise FullError("another thread is at work, and wait=False", code="full.busy")
        raise StateError(
            "the run is at work: a callback or another thread called it",
            hint="one thread at a time; in a callback, note what to do and do it after the push",
            code="run.busy",
        )

    def refuse_closed(self) -> None:
        """Raises StateError where the run is closed."""
        if self._above is not None:
            self._above.refuse_closed()
        if self.forked:
            raise StateError(
                f"the run of {self.fragment.graph.name!r} belongs to the process that was forked",
                hint="start a run after the fork",
                code="run.forked",
            )
        if self.closed and self._why_closed is not None:
            raise self._why_closed()
        if self.closed:
            raise StateError(
                f"the run of {self.fragment.graph.name!r} is closed",
                hint="md.restore goes on from its checkpoint, where it has one",
                code="run.closed",
            )

    def check_interrupts(self) -> None:
        """Raise what the interrupts raise that came meanwhile; where nothing is half done."""
        self.interrupts.check()

    def is_full(self) -> bool:
        """More output waits than is allowed."""
        if self.fragment.held_bytes() <= self.memory_bytes:
            return False
        self.fragment.relieve()  # the disk may have room again
        return self.fragment.held_bytes() > self.memory_bytes

    def refuse_full(self) -> NoReturn:
        """Raises FullError, with what waits."""
        held, allowed = size_text(self.fragment.held_bytes()), size_text(self.memory_bytes)
        storage = self.fragment.storage
        why = f"; {storage.error.message}" if storage is not None and storage.error is not None else ""
        raise FullError(
            f"{held} of output wait to be taken, allowed are {allowed}{why}",
            hint="take() the sinks, or start with a larger memory= or with spill=",
            code="full.memory",
        )

    def close(self) -> None:
        """Let nobody work from now on."""
        self.closed = True

    def tell(self) -> None:
        """Those who wait for output or for room look again."""
        self.output.tell()
        self.room.tell()

    def tell_output(self) -> None:
        """Those who wait for output look again."""
        self.output.tell()

    def tell_room(self) -> None:
        """Those who wait for room look again."""
        self.room.tell()

    def keep(self, part: object) -> None:
        """Keep something as long as this is kept."""
        self._kept.append(part)

    def leave_to_parent(self, turns: Turns, state: Lock) -> None:
        """Be closed in a forked process: the locks may be held by threads that aren't there."""
        self.closed = self.forked = True
        self.turns, self.state, self.briefly = turns, state, None


class Turn:
    """A turn as a context manager."""

    __slots__ = ("_gate", "_room", "_tells")

    def __init__(self, gate: RunGate, tells: bool, room: bool) -> None:
        self._gate = gate
        self._tells = tells
        self._room = room

    def __enter__(self) -> None:
        self._gate.begin(True, self._room)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._gate.broken_off(error)
        finally:
            self._gate.leave(self._tells)
