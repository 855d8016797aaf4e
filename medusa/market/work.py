"""How much work a task is: what its parties agree on for each row, and what that loads a machine with.

The unit of a contract is one core-second. A contract also says how many bytes over the network count as one
(``bytes_per_unit``), so that a task has one figure: *nano-units per row*, agreed when it is handed over. One
core-nanosecond is one nano-unit. Rows are counted at both ends by their numbers, so a bill is rows times that
figure times the price; how fast the provider's machine is, or what it says about it, changes nothing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["NANO", "ResourceUse", "TaskName", "TradedTask", "nano_units_per_row", "price_of_work"]

NANO = 1_000_000_000
"""Nano-units of a unit."""

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
TaskName = Annotated[str, Meta(min_length=1, max_length=256)]


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What something takes of a machine, or what a machine has.

    Attributes:
        cpu_cores: 0.5 is half of a core.
        bytes_per_s: in and out over the network.
    """

    cpu_cores: float = 0.0
    bytes_per_s: float = 0.0

    def plus(self, other: ResourceUse) -> ResourceUse:
        return ResourceUse(
            cpu_cores=self.cpu_cores + other.cpu_cores, bytes_per_s=self.bytes_per_s + other.bytes_per_s
        )

    def minus(self, other: ResourceUse) -> ResourceUse:
        """At least nothing of each."""
        return ResourceUse(
            cpu_cores=max(self.cpu_cores - other.cpu_cores, 0.0),
            bytes_per_s=max(self.bytes_per_s - other.bytes_per_s, 0.0),
        )


class TradedTask(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One task as it was measured where it runs.

    Attributes:
        name: unique among all tasks of its owner.
        owner: the participant whose task it is, and who pays for it in the end.
        kind: what a contract allows by name, such as a remote definition; empty: nothing by name.
        rows_per_s_milli: rows that come in a second, times 1,000.
        cpu_ns_per_row, bytes_per_row: measured means.
    """

    name: TaskName
    owner: TaskName
    kind: str = ""
    rows_per_s_milli: Count = 0
    cpu_ns_per_row: Count = 0
    bytes_per_row: Count = 0

    @property
    def use(self) -> ResourceUse:
        """What it takes of the machine on which it was measured."""
        rows_per_s = self.rows_per_s_milli / 1e3
        return ResourceUse(
            cpu_cores=rows_per_s * self.cpu_ns_per_row / NANO, bytes_per_s=rows_per_s * self.bytes_per_row
        )

    def units_per_s(self, bytes_per_unit: int) -> float:
        """Its load in units of a contract. 0: nothing comes."""
        per_row = nano_units_per_row(self.cpu_ns_per_row, self.bytes_per_row, bytes_per_unit)
        return self.rows_per_s_milli / 1e3 * per_row / NANO


def nano_units_per_row(cpu_ns: int, nbytes: int, bytes_per_unit: int) -> int:
    """What one row of a task counts as.

    Args:
        bytes_per_unit: so many bytes count as one unit; 0: bytes count nothing.
    """
    return cpu_ns + (nbytes * NANO // bytes_per_unit if bytes_per_unit else 0)


def price_of_work(nano_units: int, price_micro: int) -> tuple[int, int]:
    """What work costs, in micro-units, rounded down; and what is left over for the next bill, in
    nano-units times micro-units.

    Args:
        price_micro: of one unit.
    """
    return divmod(nano_units * price_micro, NANO)
