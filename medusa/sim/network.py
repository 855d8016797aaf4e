"""A network that delays, loses, repeats, reorders and is cut in two.

Between two hosts stands a connection as ZeroMQ gives it: order is kept, and when it breaks what is
under way is lost and order resumes with the next one. On top come faults that ZeroMQ hides (single
loss, repetition, reordering), since the protocol must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.ports import Buffer
from medusa.sim.world import World

__all__ = ["Faults", "Network"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad the network is. Chances are per thousand frames."""

    delay_us: int = 500
    """Of every frame, at least."""

    jitter_us: int = 0
    """Up to so much more."""

    tail_permille: int = 0
    """Frames that take up to fifty times as long."""

    loss_permille: int = 0
    duplicate_permille: int = 0
    reorder_permille: int = 0
    """Frames that overtake those before them."""


class Network:
    """Carries frames between hosts.

    Args:
        deliver: called with (source, target, frames) when a frame arrives.
    """

    def __init__(
        self, world: World, faults: Faults, deliver: Callable[[str, str, list[Buffer]], None]
    ) -> None:
        self.faults = faults
        self.sent = self.lost = 0
        self._world = world
        self._deliver = deliver
        self._arrival_us: dict[tuple[str, str], int] = {}
        self._life: dict[tuple[str, str], int] = {}
        self._cut: dict[tuple[str, str], bool] = {}
        self._held: dict[tuple[str, str], list[list[Buffer]]] = {}

    def send(self, source: str, target: str, frames: list[Buffer]) -> None:
        """Take a frame; it arrives once, later, after those before it, unless fate decides otherwise."""
        way = (source, target)
        self.sent += 1
        if way in self._cut:
            if self._cut[way]:
                self._held.setdefault(way, []).append(frames)
            else:
                self.lost += 1
            return
        faults, world = self.faults, self._world
        if world.chance(faults.loss_permille):
            self.lost += 1
            return
        self._fly(way, frames, overtake=world.chance(faults.reorder_permille))
        if world.chance(faults.duplicate_permille):
            self._fly(way, frames, overtake=False)

    def _fly(self, way: tuple[str, str], frames: list[Buffer], *, overtake: bool) -> None:
        faults, world = self.faults, self._world
        delay_us = faults.delay_us
        if faults.jitter_us:
            delay_us += world.random.randrange(faults.jitter_us)
        if world.chance(faults.tail_permille):
            delay_us *= world.random.randrange(2, 50)
        arrival_us = world.now_us + delay_us
        if not overtake:
            arrival_us = max(arrival_us, self._arrival_us.get(way, 0))
            self._arrival_us[way] = arrival_us
        life = self._life.get(way, 0)

        def arrive() -> None:
            if self._life.get(way, 0) == life:
                self._deliver(*way, frames)
            else:
                self.lost += 1

        world.at(arrival_us, arrive)

    def cut(self, source: str, target: str, *, hold: bool = False) -> None:
        """Nothing passes this way any more; what is under way is lost.

        Args:
            hold: the cut is too short to be noticed: frames sent meanwhile come after it (the
                kernel resends), and what is under way isn't lost.
        """
        way = (source, target)
        self._cut[way] = hold
        if not hold:
            self._break(way)

    def heal(self, source: str, target: str) -> None:
        """Frames pass this way again."""
        way = (source, target)
        self._cut.pop(way, None)
        for frames in self._held.pop(way, []):
            self._fly(way, frames, overtake=False)

    def heal_all(self) -> None:
        """End every cut, and every fault that is a matter of chance."""
        for way in list(self._cut):
            self.heal(*way)
        self.faults = Faults(delay_us=self.faults.delay_us)

    def forget(self, host: str) -> None:
        """The host died: connections with it break."""
        ways = list(self._arrival_us) + list(self._held)
        for way in ways:
            if host in way:
                self._break(way)
                self._held.pop(way, None)

    def _break(self, way: tuple[str, str]) -> None:
        self._life[way] = self._life.get(way, 0) + 1
        self._arrival_us.pop(way, None)
