"""The state of a fragment, copied in the engine's thread piece by piece: what waits is fed in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from medusa.engine.fragment import Fragment
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.capture import Capture

__all__ = ["StatePieces"]


class StatePieces:
    """Of one fragment; one copy at a time. Only the engine's thread calls it.

    Args:
        give: does a job after all that the engine's thread was given before.
    """

    def __init__(self, give: Callable[[Callable[[], None]], None]) -> None:
        self._give = give
        self._under_way: tuple[BackgroundCopy, Callable[[str], None]] | None = None
        self._yields = False

    def of(self, fragment: Fragment | None, capture: Capture | None = None) -> BackgroundCopy:
        """The state as it is now; the copy before is ended at once, so that they end in order.

        Args:
            capture: for a checkpoint that may be a delta; None: all of it.
        """
        self.finish()
        return fragment.captured(capture, patient=True) if fragment is not None else BackgroundCopy({})

    def begin(self, copying: BackgroundCopy, ended: Callable[[str], None], *, yields: bool = False) -> None:
        """Copy it.

        Args:
            ended: told why it could not be copied, or nothing when it is.
            yields: it can be made later as well (``give_way``).
        """
        self._under_way, self._yields = (copying, ended), yields
        self._go_on(copying, first=True)

    def finish(self) -> None:
        """Copy what is left now."""
        while self._under_way is not None:
            self._step()

    def give_way(self, why: str, *, beyond_rows: int) -> None:
        """Another copy has to be made now: one under way that yields is abandoned if more than so many of its
        rows are left."""
        if self._under_way is not None and self._yields and self._under_way[0].left > beyond_rows:
            self.abandon(why)

    def abandon(self, why: str, *, only: BackgroundCopy | None = None) -> None:
        """Copy nothing more.

        Args:
            only: of this copy, where it is under way; None: whichever is.
        """
        if self._under_way is not None and only in (None, self._under_way[0]):
            copying, ended = self._under_way
            self._under_way = None
            copying.drop()
            ended(why)

    def _go_on(self, copying: BackgroundCopy, *, first: bool = False) -> None:
        if self._under_way is None or self._under_way[0] is not copying:
            return  # it was ended at once
        if not first or copying.done:
            self._step()
        if self._under_way is not None:
            self._give(partial(self._go_on, copying))

    def _step(self) -> None:
        assert self._under_way is not None
        copying, ended = self._under_way
        why = ""
        try:
            if not copying.done and not copying.step():
                return
        except Exception as error:
            why = str(error) or type(error).__name__
            copying.drop()
        self._under_way = None
        ended(why)
