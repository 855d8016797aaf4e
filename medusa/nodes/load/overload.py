"""Is this too much for us? A load against two marks, each with a time, so that it doesn't flap. Pure.

Aurora calls a node overloaded when its load is above its headroom (Abadi et al., "Aurora: a new model and
architecture for data stream management", 2003). One that is stays so until its load was clearly lower for
some time: what is done about it costs something, and undoing it at once costs the same again.
"""

from __future__ import annotations

from medusa.nodes.config.settings_load import LoadRules

__all__ = ["Overload"]


class Overload:
    """One load, as the seconds go by.

    Attributes:
        since_us: when it became overloaded; None: it isn't.
    """

    def __init__(self, rules: LoadRules) -> None:
        self._rules = rules
        self._beyond_us: int | None = None
        """Since when the load is beyond the mark that would change the verdict."""
        self.since_us: int | None = None

    def note(self, now_us: int, load: float | None) -> bool:
        """The load is this now; whether the verdict has changed.

        Args:
            load: 1 is all that can be done; None: unknown, which changes nothing and is no time.
        """
        rules, over = self._rules, self.since_us is not None
        beyond = load is not None and (load < rules.low if over else load > rules.high)
        if not beyond:
            self._beyond_us = None
            return False
        if self._beyond_us is None:
            self._beyond_us = now_us
        if now_us - self._beyond_us < (rules.low_for_us if over else rules.high_for_us):
            return False
        self._beyond_us = None
        self.since_us = None if over else now_us
        return True
