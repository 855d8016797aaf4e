"""By how much the state of a fragment grows while an input is missing, and which inputs then rest. Pure.

    an input is missing ──> boxes hold what waits for it ── [delay] memory ──> that rests ──> it is back

What the engine says of the state is some tenths of a second old: what was fed since counts besides. State of
before the failure doesn't count. Of the sources that meet a missing one those rest that lead to nothing else
than streams which are held up anyway: so nobody else is. Once it is back those rest that are ahead of it: for
what isn't it waits itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from types import MappingProxyType

from medusa.elements import START_US

__all__ = ["HeldState"]


class HeldState:
    """Of one fragment.

    Args:
        bytes_max: by so much it may grow.
        above: sink -> the sources that lead to it.
        together: source -> those that share a box with it.

    Attributes:
        resting: sources of which nothing more is fed.
    """

    def __init__(
        self, bytes_max: int, above: Mapping[str, Set[str]], together: Mapping[str, Set[str]]
    ) -> None:
        self._bytes_max = bytes_max
        self._above, self._together = above, together
        self._told: int | None = None
        self._before = 0
        """What it held before the failure."""
        self._fed = 0
        """Bytes of rows that were fed since the engine said so."""
        self.resting: frozenset[str] = frozenset()

    def told(self, held_bytes: int) -> None:
        """The engine says how much the boxes hold: state, and rows that wait."""
        if self._told is None:
            self._before = held_bytes
        self._told, self._fed = held_bytes, 0

    def fed(self, nbytes: int) -> None:
        """Rows of so many bytes were fed."""
        self._fed += nbytes

    def calm(self) -> None:
        """No input is missing, and none was: what is held now isn't held for one."""
        self._before, self._fed = self._told or 0, 0
        self.resting = frozenset()

    @property
    def nbytes(self) -> int:
        """What is held since an input was missing."""
        return max((self._told or 0) - self._before, 0) + self._fed

    def look(
        self,
        missed: Collection[str],
        held_up: Collection[str],
        back: Collection[str] = (),
        stands_us: Mapping[str, int] = MappingProxyType({}),
    ) -> bool:
        """See which sources rest; whether others do than before.

        Args:
            missed: sources by which something is missing.
            held_up: the sinks of which new rows wait for it.
            back: sources by which something was, and has to come up.
            stands_us: source -> the boundary to which it was fed; START_US: it isn't known.
        """
        resting: frozenset[str] = frozenset()
        if (missed or back) and self.nbytes >= self._bytes_max:
            meeting = {each for source in missed for each in self._together.get(source, ())}
            ahead = {each for source in back for each in self._ahead(source, stands_us)}
            others = {each for sink, above in self._above.items() if sink not in held_up for each in above}
            resting = frozenset((meeting | ahead) - set(missed) - others)
        was, self.resting = self.resting, resting
        return resting != was

    def _ahead(self, source: str, stands_us: Mapping[str, int]) -> Iterator[str]:
        """Those of which something waits for a source that is back."""
        at_us = stands_us.get(source, START_US)
        for each in self._together.get(source, ()):
            if START_US < at_us < stands_us.get(each, START_US):
                yield each
