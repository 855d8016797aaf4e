"""A provider of nodes whose machines take minutes to come, in virtual time; some never do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from medusa.nodes.pool.provider import ProvidedNode

__all__ = ["SimulatedCloud"]

ABSENT = ProvidedNode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What it is until ``until_us``, and then."""

    now: ProvidedNode
    until_us: int
    then: ProvidedNode


class SimulatedCloud:
    """A ``NodeProvider``. What the port forbids is an error: acquiring what is there, ending what isn't.

    Args:
        start_us: least and most that a machine takes to come; ``stop_us`` to go.
        fails: share of those that never come.

    Attributes:
        paid_us: how long machines were there or on their way, all together, up to the last call.
    """

    def __init__(
        self,
        nodes: Iterable[str],
        random: Random,
        *,
        start_us: tuple[int, int] = (60_000_000, 300_000_000),
        stop_us: int = 20_000_000,
        fails: float = 0.0,
    ) -> None:
        self._machines = {name: _Machine(now=ABSENT, until_us=0, then=ABSENT) for name in nodes}
        self._random = random
        self._start_us, self._stop_us, self._fails = start_us, stop_us, fails
        self._seen_us = 0
        self.paid_us = 0

    def acquire(self, now_us: int, node: str) -> None:
        """As ``NodeProvider.acquire``.

        Raises:
            ValueError: it is there, or on its way.
        """
        if (state := self._at(now_us, node).state) not in ("absent", "failed"):
            raise ValueError(f"{node} is acquired while it is {state}")
        then = ProvidedNode(state="up")
        if self._random.random() < self._fails:
            then = ProvidedNode(state="failed", why="no machine of that kind is left")
        until_us = now_us + self._random.randint(*self._start_us)
        self._machines[node] = _Machine(now=ProvidedNode(state="starting"), until_us=until_us, then=then)

    def release(self, now_us: int, node: str) -> None:
        """As ``NodeProvider.release``.

        Raises:
            ValueError: it isn't there.
        """
        if (state := self._at(now_us, node).state) not in ("starting", "up"):
            raise ValueError(f"{node} is released while it is {state}")
        until_us = now_us + self._stop_us
        self._machines[node] = _Machine(now=ProvidedNode(state="stopping"), until_us=until_us, then=ABSENT)

    def breaks(self, now_us: int, node: str) -> None:
        """Its machine is lost."""
        why = ProvidedNode(state="failed", why="the machine is lost")
        self._machines[node] = _Machine(now=why, until_us=now_us, then=why)

    def heals(self) -> None:
        """From now on every machine comes that is acquired."""
        self._fails = 0.0

    def nodes(self, now_us: int) -> Mapping[str, ProvidedNode]:
        """As ``NodeProvider.nodes``."""
        found = {name: self._at(now_us, name) for name in self._machines}
        there = sum(1 for each in found.values() if each.state in ("starting", "up", "stopping"))
        self.paid_us += there * (now_us - self._seen_us)
        self._seen_us = now_us
        return found

    def _at(self, now_us: int, node: str) -> ProvidedNode:
        machine = self._machines[node]
        if now_us >= machine.until_us:
            self._machines[node] = machine = replace(machine, now=machine.then)
        return machine.now
