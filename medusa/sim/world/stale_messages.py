"""Messages that outlive their connection or the life of who sent them, and what comes out of its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from medusa.sim.world.fault_dice import AWAY_US, UNSYNCED

if TYPE_CHECKING:
    from medusa.sim.world.fault_kinds import Fault, FaultStage

__all__ = ["crash_at_a_message", "crash_flushed", "late", "stuck_attachment", "stuck_connection"]


def late(stage: FaultStage, fault: Fault, *, again: bool) -> Callable[[], None]:
    stage.network.delay(fault.who[0], fault.amount, again=again)
    return lambda: stage.network.delay(fault.who[0], 0)


def stuck_connection(stage: FaultStage, fault: Fault) -> None:
    """What a machine says to another goes by a connection that is stuck; it comes through once the machine
    has a newer one, or lives again."""
    source, target, how = fault.who
    world, network, machine = stage.world, stage.network, stage.machines[source]

    def divert() -> None:
        stage.restart(source)
        network.divert(source, target)
        world.after(fault.for_us, restore)

    def restore() -> None:
        release = network.restore(source, target)
        if how == "lives":
            world.after(fault.amount, release)
            return
        machine.crash(flushed=True)

        def restart() -> None:
            stage.restart(source)
            world.after(fault.amount, release)

        world.after(AWAY_US, restart)

    if how == "is born and dies":
        machine.crash()
        world.after(AWAY_US, divert)
    else:
        divert()


def crash_flushed(stage: FaultStage, fault: Fault) -> Callable[[], None]:
    stage.machines[fault.who[0]].crash(UNSYNCED[fault.amount], flushed=True)
    return lambda: stage.restart(fault.who[0])


def crash_at_a_message(stage: FaultStage, fault: Fault) -> None:
    """Who has just promised or asked for something dies, and what it had sent arrives; or its peer dies."""
    tag, end, place = fault.who

    def sent(source: str, target: str) -> bool:
        name = target if end == "receiver" else source
        if name not in stage.machines or (end == "sender to a client" and target in stage.machines):
            return False

        def crash() -> None:
            stage.machines[name].crash(flushed=True)
            stage.world.after(fault.for_us, lambda: stage.restart(name))

        stage.world.after(fault.amount, crash)
        return True

    stage.network.when_sent(tag, int(place), sent)


def stuck_attachment(stage: FaultStage, fault: Fault) -> None:
    """A machine begins anew; the first ``Attached`` that it is sent then, and what follows, come once more
    when it has begun anew again."""
    name, world, network = fault.who[0], stage.world, stage.network

    def sent(source: str, target: str) -> bool:
        if target != name or source not in stage.machines:
            return False
        network.divert(source, name, copies=True)
        world.after(fault.for_us, lambda: begin_anew(network.restore(source, name)))
        return True

    def begin_anew(release: Callable[[], None] | None = None) -> None:
        stage.machines[name].crash()

        def restart() -> None:
            stage.restart(name)
            if release is not None:
                world.after(fault.amount, release)

        world.after(AWAY_US, restart)

    network.when_sent("attached", 1, sent)
    begin_anew()
