"""What a run warns about."""

from __future__ import annotations

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.warnings import warn_dead, warn_late, warn_user

__all__ = ["RunWarnings"]


class RunWarnings:
    """Warns of the first late row of each source, and of the first dead row of each box."""

    def __init__(self, fragment: LoggedFragment) -> None:
        self._fragment = fragment
        self._letters = fragment.letters
        self.look()

    def look(self) -> None:
        """See which sources can have late rows: of a new query, or of one that has changed."""
        judged = self._fragment.sources_read_in_time()
        sources = self._fragment.sources.items()
        self._untold_late = {name for name, box in sources if name in judged and not box.late}

    def due(self, source: str) -> bool:
        """There may be something to warn about."""
        return source in self._untold_late or self._letters.fresh is not None

    def warn(self, source: str) -> None:
        """Warn of the first late row of a source (empty: of none), and of a dead row that is new."""
        if source in self._untold_late:
            box = self._fragment.source(source)
            if box.late:
                self._untold_late.discard(source)
                warn_late(box)
        dead = self._letters.fresh
        if dead is not None:
            self._letters.told()
            warn_dead(dead)

    def caution(self, text: str, category: type[Warning]) -> None:
        """Warn of something else."""
        warn_user(text, category)
