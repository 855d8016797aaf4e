"""A host of fragments that run elsewhere, whose triggers take time: virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

from medusa.runtime.engine_host.gathering import GatheringHost

__all__ = ["SlowTriggers"]

TRIGGER_US = 15_000


class SlowTriggers(GatheringHost):
    """Each trigger begins a while after something came, in virtual time."""

    def __init__(self, world: Any, *arguments: Any, trigger_us: int = TRIGGER_US, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._world, self._trigger_us = world, trigger_us
        self._due: set[str] = set()
        self.triggers: list[int] = []

    def _then_trigger(self, job: Any) -> None:
        job()
        for name, away in self._away.items():
            if away.waits and name not in self._due:
                self._due.add(name)
                self._world.after(self._trigger_us, partial(self._now, name))

    def _now(self, name: str) -> None:
        self._due.discard(name)
        if self._lives.get(name):
            self._give(partial(self._trigger, name))

    def _trigger(self, name: str) -> None:
        if name in self._away and self._away[name].waits:
            self.triggers.append(self._away[name].waits)
        super()._trigger(name)
