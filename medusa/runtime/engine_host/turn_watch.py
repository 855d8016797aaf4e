"""Whether whoever has the engine's thread has it for too long: asked from another thread, while it lasts.

What holds the thread can't be interrupted: a function of the node's own operator may wait for ever. So the
rest of the node says who it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from medusa.engine.fragment import Fragment
from medusa.ports import Clock
from medusa.wire.status_and_metrics import EngineHeld

__all__ = ["TurnWatch"]


class TurnWatch:
    """The turns of one engine.

    Args:
        piece_us: how long a turn may last; a slice that began before its last piece is short beside that.
    """

    def __init__(self, clock: Clock, piece_us: int) -> None:
        self._clock = clock
        self._piece_us = piece_us
        self._turn: tuple[str, Fragment | None, int] | None = None
        """Written by the engine's thread alone, as a whole."""

    @contextmanager
    def turn(self, name: str, fragment: Fragment | None) -> Iterator[None]:
        """In the engine's thread: it is this fragment's turn."""
        self._turn = name, fragment, self._clock.monotonic_us()
        try:
            yield
        finally:
            self._turn = None

    def held(self) -> EngineHeld | None:
        """From any thread: who has it too long; None: nobody."""
        if (turn := self._turn) is None:
            return None
        name, fragment, since_us = turn
        for_us = self._clock.monotonic_us() - since_us
        if for_us <= self._piece_us or fragment is None:
            return None
        found = [each for box in fragment.graph.boxes for each in box.functions]
        functions = tuple(dict.fromkeys(f"{each.name} {each.version}" for each in found if each.name))
        return EngineHeld(query=fragment.graph.name, fragment=name, functions=functions, for_us=for_us)
