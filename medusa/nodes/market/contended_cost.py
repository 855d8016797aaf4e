"""What load costs an owner whose processors others use as well: less of it is too much."""

from __future__ import annotations

from collections.abc import Callable

from medusa.market.cost import CostFunction
from medusa.market.work import ResourceUse

__all__ = ["ContendedCost"]


class ContendedCost:
    """An owner's cost, by how long its engine is occupied, of load that is told in CPU time.

        occupied = beside + (use - beside) / on_processor
        cost(use) = private cost of occupied * on_processor

    Where other threads and processes have the processors, work of a core-second occupies the engine for
    longer. So a core-second more costs what the private cost says of one where so much is in use: who is
    short of processors sheds, and takes nothing, while all agree on what a row takes of them. It is convex
    where the private cost is.

    Args:
        private: the owner's.
        beside_cores: what the process takes beside its fragments, as it is now.
        on_processor: of the time that fragments take, the share in which they have a processor, as it is now.
    """

    def __init__(
        self,
        private: CostFunction,
        beside_cores: Callable[[], float],
        on_processor: Callable[[], float],
    ) -> None:
        self._private, self._beside, self._on_processor = private, beside_cores, on_processor

    def occupied(self, use: ResourceUse) -> ResourceUse:
        """Of how long the engine and the process are occupied by so much load."""
        share = self._on_processor()
        if share >= 1:
            return use
        beside = min(self._beside(), use.cpu_cores)
        return ResourceUse(cpu_cores=beside + (use.cpu_cores - beside) / share, bytes_per_s=use.bytes_per_s)

    def cost(self, use: ResourceUse) -> float:
        return self._private.cost(self.occupied(use)) * min(self._on_processor(), 1.0)
