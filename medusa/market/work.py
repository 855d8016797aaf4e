"""How much work a task is: what its parties agree on for each row, and what that loads a machine with.

The unit of a contract is one core-second. A contract also says how many bytes over the network count as one
(``bytes_per_unit``), so that a task has one figure: *nano-units per row*, agreed when it is handed over. One
core-nanosecond is one nano-unit. Rows are counted at both ends by their numbers, so a bill is rows times that
figure times the price; how fast the provider's machine is, or what it says about it, changes nothing.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.errors import ConfigError
from medusa.units import byte_count

__all__ = [
    "NANO",
    "ResourceUse",
    "TaskName",
    "TradedTask",
    "nano_units_per_row",
    "price_of_work",
    "resource_use_of",
]

NANO = 1_000_000_000
"""Nano-units of a unit."""

CAPACITY_CHARS_MAX = 100
_CORES = re.compile(r"\A\s*([0-9]{1,6}(?:\.[0-9]{1,9})?)\s*cores?\s*\Z")
_PER_S = re.compile(r"\A\s*([0-9]{1,15}(?:\.[0-9]{1,9})?\s*[kKMGi]*B)\s*/\s*s\s*\Z")

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

    @property
    def shape(self) -> tuple[int, int, int]:
        """What its load follows from. Tasks of one shape are worth the same on top of the same load: one is
        reckoned for all."""
        return self.rows_per_s_milli, self.cpu_ns_per_row, self.bytes_per_row

    def units_per_s(self, bytes_per_unit: int) -> float:
        """Its load in units of a contract. 0: nothing comes."""
        per_row = self.cpu_ns_per_row
        if bytes_per_unit:
            per_row = nano_units_per_row(per_row, self.bytes_per_row, bytes_per_unit)
        return self.rows_per_s_milli / 1e3 * per_row / NANO


def nano_units_per_row(cpu_ns: int, nbytes: int, bytes_per_unit: int) -> int:
    """What one row of a task counts as.

    Args:
        bytes_per_unit: so many bytes count as one unit; 0: bytes count nothing.
    """
    return cpu_ns + (nbytes * NANO // bytes_per_unit if bytes_per_unit else 0)


def price_of_work(nano_units: int, price_micro: int, rest: int = 0) -> tuple[int, int]:
    """What work costs, in micro-units, rounded down; and what is left over for the next bill, in
    nano-units times micro-units.

    Args:
        price_micro: of one unit.
        rest: what was left over of the bill before.
    """
    return divmod(nano_units * price_micro + rest, NANO)


def resource_use_of(text: str, *, what: str = "capacity") -> ResourceUse:
    """What a machine has, as people write it: ``"0.5 cores"``, ``"10 MB/s"``, or ``"2 cores, 1 GiB/s"``.

    Args:
        what: the field, for the error.

    Raises:
        ConfigError: it is neither, says one of them twice, or is 0.
    """
    found: dict[str, float] = {}
    for part in text.split(",") if isinstance(text, str) and len(text) <= CAPACITY_CHARS_MAX else ("",):
        cores, per_s = _CORES.match(part), _PER_S.match(part)
        name = "cpu_cores" if cores else "bytes_per_s"
        if (cores is None and per_s is None) or name in found:
            raise ConfigError(
                f"{what} is {text!r}: {part.strip()!r} is no number of cores or bytes a second, or it comes"
                " twice",
                hint='write "0.5 cores", "10 MB/s" or "2 cores, 1 GiB/s"',
                code="config.capacity",
            )
        if cores:
            found[name] = float(cores[1])
        elif per_s:
            found[name] = float(byte_count(per_s[1], what=what, error=ConfigError))
    if not all(found.values()):
        raise ConfigError(
            f"{what} is {text!r}: of what is named there is more than 0",
            hint="leave out what isn't to be counted",
            code="config.capacity",
        )
    return ResourceUse(**found)
