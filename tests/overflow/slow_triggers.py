"""A host of fragments that run elsewhere, whose triggers take time: virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from medusa.runtime.engine_host.gathering import GatheringHost

__all__ = ["SlowTriggers"]

TRIGGER_US = 15_000


class SlowTriggers(GatheringHost):
    """Each trigger begins a while after something came, in virtual time.

    Args:
        busy_us: then each takes so long, and so does opening a fragment; what comes meanwhile waits.
    """

    def __init__(self, world: Any, *arguments: Any, busy_us: int = 0, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._world, self._busy_us = world, busy_us
        self._due: set[str] = set()
        self._waiting: list[Callable[[], None]] | None = None
        """What is to be done once the engine isn't busy; None: it isn't."""
        self.triggers: list[int] = []

    def open(self, *arguments: Any, **more: Any) -> None:
        self._be_busy(lambda: None)
        super().open(*arguments, **more)

    def _be_busy(self, then: Callable[[], None]) -> None:
        """For a while, and do this behind it."""
        if not self._busy_us or self._waiting is not None:
            then()
            return
        self._waiting = []
        self._world.after(self._busy_us, partial(self._go_on, then))

    def _go_on(self, then: Callable[[], None]) -> None:
        waiting, self._waiting = self._waiting or [], None
        then()
        for place, job in enumerate(waiting):
            if self._waiting is not None:  # One of them has made it busy.
                self._waiting += waiting[place:]
                break
            super()._give(job)

    def _give(self, job: Callable[[], None]) -> None:
        if self._waiting is None:
            super()._give(job)
        else:
            self._waiting.append(job)

    def _then_trigger(self, job: Any) -> None:
        job()
        for name, away in self._away.items():
            if away.waits and name not in self._due:
                self._due.add(name)
                self._world.after(TRIGGER_US, partial(self._now, name))

    def _now(self, name: str) -> None:
        self._due.discard(name)
        if self._lives.get(name):
            self._be_busy(partial(super()._give, partial(self._trigger, name)))

    def _trigger(self, name: str) -> None:
        if name in self._away and self._away[name].waits:
            self.triggers.append(self._away[name].waits)
        super()._trigger(name)
