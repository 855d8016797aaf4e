"""The clocks of one machine: what it reads differs from the world's time, as real clocks do."""

from __future__ import annotations

from medusa.sim.world.virtual_time import World

__all__ = ["LocalClock"]

EPOCH_US = 1_700_000_000_000_000
"""Where the walls' clocks stand when a world begins."""


class LocalClock:
    """A ``Clock`` port in virtual time.

    Attributes:
        drift_ppm: the monotonic clock runs so much too fast, in millionths (-50,000 to 50,000).
        wall_step_us: the wall's clock was set forward by so much, or back.
    """

    __slots__ = ("_base_us", "_since_us", "_world", "drift_ppm", "wall_step_us")

    def __init__(self, world: World) -> None:
        self.drift_ppm = 0
        self.wall_step_us = 0
        self._world = world
        self._since_us = 0
        self._base_us = 0

    def monotonic_us(self) -> int:
        """Never goes back."""
        past_us = self._world.now_us - self._since_us
        if not self.drift_ppm:
            return self._base_us + past_us
        return self._base_us + past_us + past_us * self.drift_ppm // 1_000_000

    def now_us(self) -> int:
        return EPOCH_US + self.monotonic_us() + self.wall_step_us

    def world_us(self, local_us: int) -> int:
        """The world's time at which the monotonic clock shows at least ``local_us``; not before now."""
        left_us = local_us - self.monotonic_us()
        if left_us <= 0:
            return self._world.now_us
        if self.drift_ppm:
            left_us = -(-left_us * 1_000_000 // (1_000_000 + self.drift_ppm)) + 1
        return self._world.now_us + left_us

    def drift(self, ppm: int) -> None:
        """Run at another pace from now on."""
        self._base_us = self.monotonic_us()
        self._since_us = self._world.now_us
        self.drift_ppm = ppm

    def jump(self, forward_us: int) -> None:
        """The machine slept, or counts from another moment: its monotonic clock is so far ahead."""
        assert forward_us >= 0, "a monotonic clock never goes back"
        self._base_us += forward_us

    def step(self, us: int) -> None:
        """Somebody set the wall's clock."""
        self.wall_step_us += us
