"""What every simulated machine has, whatever runs on it: a disk, clocks, lives, pauses, slowness."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from medusa.sim.world.clock import LocalClock
from medusa.sim.world.disk import Disk
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import World

__all__ = ["Machine"]


class Machine(ABC):
    """One machine: a disk that survives, and a mind while it is alive.

    Attributes:
        lives: how often it was started.
        slowness: its work takes so many times as long.
    """

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.name = name
        self.world = world
        self.network = network
        self.disk = Disk(name)
        self.clock = LocalClock(world)
        self.lives = 0
        self.slowness = 1
        self._paused: list[Callable[[], None]] | None = None

    @property
    @abstractmethod
    def alive(self) -> bool:
        """It runs (or stands still, but will go on)."""

    @abstractmethod
    def start(self) -> None:
        """Come to life with what the disk holds."""

    @abstractmethod
    def crash(self, unsynced: str = "lost", *, flushed: bool = False) -> None:
        """Die at once: memory and connections are gone. Unsynced writes: see ``Disk.crash``; what it had
        sent: see ``Network.forget``."""

    def pause(self, duration_us: int) -> None:
        """Stand still (as under SIGSTOP); then everything that came meanwhile happens at once."""
        if not self.alive or self._paused is not None:
            return
        self.world.trace(self.name, f"pauses for {duration_us // 1000} ms")
        self._paused = []
        life = self.lives

        def resume() -> None:
            if not self.alive or self.lives != life or self._paused is None:
                return
            calls, self._paused = self._paused, None
            for call in calls:
                call()

        self.world.after(duration_us, resume)

    @property
    def stands_still(self) -> bool:
        """It is paused."""
        return self._paused is not None

    def slow_down(self, times: int) -> None:
        """Its work takes so many times as long from now on; 1: as long as it should."""
        self.slowness = times

    def in_this_life(self, call: Callable[[], None]) -> Callable[[], None]:
        """The same call, which does nothing once this life is over and waits while it is paused."""
        life = self.lives

        def guarded() -> None:
            if not self.alive or self.lives != life:
                return
            if self._paused is not None:
                self._paused.append(guarded)
                return
            call()

        return guarded
