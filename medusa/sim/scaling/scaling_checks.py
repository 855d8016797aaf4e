"""What must hold of the orders that nodes give by themselves, by what the trial knows without them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.outbox import ReportLine

__all__ = ["ScalingChecks"]

KNOWN_US = 2_500_000
"""What is under way for so long everybody knows: a status is waited for 2 s."""

SPANS_US = (700_000, 2_000_000)
"""Over each of them there has to be too much, where there is said to be: figures are smoothed."""

ROOM = 0.3
"""So much more than the mark is surely too much."""


class ScalingChecks:
    """Of the orders for one query.

    Attributes:
        orders: how many of each kind were given.
    """

    def __init__(
        self, world: World, nodes: Mapping[str, NodeMachine], query: str, settings: ScaleSettings
    ) -> None:
        self._world, self._nodes = world, nodes
        self._own, self._settings = f"{query}/", settings
        self._since_us: dict[tuple[str, str], int] = {}
        """Node and fragment -> since when that moves, or is split or merged, there."""
        self._spent: deque[tuple[int, int]] = deque()
        """When, and how much, in the last seconds."""
        self._seen: dict[str, ReportLine] = {}
        """Node -> the last thing it said that was looked at."""
        self.orders: dict[str, int] = {}

    def spent(self, cost_us: int) -> None:
        """Rows of the box have cost so much."""
        now_us = self._world.now_us
        self._spent.append((now_us, cost_us))
        while self._spent[0][0] < now_us - max(SPANS_US):
            self._spent.popleft()

    def look(self, node: NodeMachine) -> None:
        """After each turn of a node.

        Raises:
            SimulationError: it has ordered what it shouldn't.
        """
        if not node.alive:
            return
        for report in self._new(node):
            what = str(report.fields["order"])
            self.orders[what.split()[0]] = self.orders.get(what.split()[0], 0) + 1
            self._check_alone(what)
            if what.startswith("merge") or "below" in str(report.fields["why"]):
                self._check_light(what)
        self._note()

    def _new(self, node: NodeMachine) -> list[ReportLine]:
        last = self._seen.get(node.name)
        found: list[ReportLine] = []
        for report in reversed(node.reports):
            if report is last:
                break
            if report.what == "scaling":
                found.append(report)
        if node.reports:
            self._seen[node.name] = node.reports[-1]
        return found

    def _note(self) -> None:
        now = dict.fromkeys(self._under_way())
        kept = {about: us for about, us in self._since_us.items() if about in now}
        self._since_us = dict.fromkeys(now, self._world.now_us) | kept

    def _under_way(self) -> Iterator[tuple[str, str]]:
        for name, node in self._nodes.items():
            if node.alive:
                orders = node.brain.orders
                going = orders.status().going
                split = (each for job in orders.splits_status() for each in job.fragments)
                yield from ((name, each) for each in (*going, *split) if each.startswith(self._own))

    def _check_alone(self, what: str) -> None:
        for (node, fragment), since_us in self._since_us.items():
            for_us = self._world.now_us - since_us
            if for_us > KNOWN_US:
                busy = f"{fragment} has been moved, split or merged at {node} for {for_us} us"
                raise SimulationError(f"scaling: {what} is ordered, and {busy}")

    def _check_light(self, what: str) -> None:
        now_us = self._world.now_us
        least = min(
            sum(cost_us for at_us, cost_us in self._spent if at_us > now_us - span_us) / span_us
            for span_us in SPANS_US
        )
        if least > self._settings.high + ROOM:
            raise SimulationError(f"scaling: {what} is ordered, and its parts have {least:.2f} threads to do")
