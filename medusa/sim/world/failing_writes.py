"""Writes that fail, and what is done to the files of a machine while it is down.

What there is to go wrong, and how often, is the table in ``fault_kinds``; this carries out part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from medusa.sim.world.fault_dice import AWAY_US

if TYPE_CHECKING:
    from medusa.sim.world.fault_kinds import Fault, FaultStage

__all__ = ["crash_and_damage", "fail_and_crash", "fail_once"]


def fail_and_crash(stage: FaultStage, fault: Fault) -> None:
    """A write fails, and the machine dies before it could do much about that."""
    machine = stage.machines[fault.who[0]]

    def crash() -> None:
        machine.crash()
        stage.world.after(AWAY_US, lambda: stage.restart(fault.who[0]))

    machine.disk.fail_later(fault.amount, lambda: stage.world.after(fault.for_us, crash))


def fail_once(stage: FaultStage, fault: Fault) -> None:
    """The next write of a kind fails, or every one until all faults end."""
    name, kind = fault.who
    disk = stage.machines[name].disk
    disk.fail_writes_of(kind.removeprefix("every "), all=kind.startswith("every "))


def crash_and_damage(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    """A machine dies, and one of its files isn't what it was when it lives again."""
    name, what, how = fault.who
    machine = stage.machines[name]
    machine.crash()
    where = machine.disk.damage(what, how, fault.amount)
    stage.world.trace(name, f"damage: {how} of {where or 'nothing'}")
    return lambda: stage.restart(name)
