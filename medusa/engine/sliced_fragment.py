"""A fragment that comes back in the middle of an element, so that others have their turn meanwhile."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from medusa._native import Times
from medusa.elements import Element, Shed
from medusa.engine.operators.source import SourceBox
from medusa.engine.wiring import Scheduling

__all__ = ["SlicedFragment"]


class SlicedFragment:
    """What one element makes may be any number of rows; it is run in slices of whole pieces.

    Where slices end changes no output: the pieces, and the order in which boxes take them, are the same.
    """

    _scheduler: Scheduling

    def __init__(self) -> None:
        self._rests: Callable[[], bool] | None = None
        """Of a slice: whether it ends here."""
        self._entering: deque[tuple[SourceBox, pa.RecordBatch, Times | None, int | None]] = deque()
        """Parts of a large batch that enter when the part before has run."""

    def feed_slice(self, source: str, element: Element | Shed, rests: Callable[[], bool]) -> bool:
        """Take one element as ``feed`` does, but return between two pieces when ``rests`` says so.

        While the fragment is ``unfinished`` it takes no other element and gives no state.

        Args:
            rests: asked after each piece.

        Returns:
            whether the element is done; otherwise call ``go_on`` until it is.

        Raises:
            DataError: as ``feed``.
        """
        assert not self.unfinished, "the element before is not done"
        self._rests = rests
        try:
            self.feed(source, element)
        finally:
            self._rests = None
        return not self.unfinished

    def go_on(self, rests: Callable[[], bool]) -> bool:
        """Run the next slice: at least one piece. Returns and raises as ``feed_slice``."""
        self._refuse_after_failure()
        self._rests = rests
        try:
            self._settle()
            while self._entering and not self._scheduler.waits:
                self._enter(*self._entering.popleft())
                if rests():
                    break
        finally:
            self._rests = None
        return not self.unfinished

    @property
    def unfinished(self) -> bool:
        """A slice ended before the element was done."""
        return bool(self._entering) or self._scheduler.waits

    def _abandon(self) -> None:
        """Forget what is left of the element; some boxes are ahead of others then."""
        self._scheduler.clear()
        self._entering.clear()

    @abstractmethod
    def feed(self, source: str, element: Element | Shed) -> None:
        """Take one element and run to quiescence."""

    @abstractmethod
    def _enter(
        self, box: SourceBox, batch: pa.RecordBatch, times: Times | None, arrival_us: int | None
    ) -> None:
        """Let rows into the boxes."""

    @abstractmethod
    def _settle(self) -> None:
        """Run until nothing waits, or ``_rests`` says so."""

    @abstractmethod
    def _refuse_after_failure(self) -> None:
        """Raise DataError where the fragment has failed."""
