"""Who may have a fragment whose state is backed up: nobody takes it from an owner that is there. Apart from
the code that it checks: it compares what was decided.

An owner that was lost is counted out. One that agrees stays as a secondary: so does a node that only held the
state and hands it on, and no other, as long as nobody orders a move. No trial orders one of such a fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.recovery import STATE_BACKUP
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.configuration import Configuration

if TYPE_CHECKING:
    from medusa.sim.actors.node import NodeMachine

__all__ = ["check_handed_on"]


def check_handed_on(before: Configuration, current: Configuration, nodes: Iterable[NodeMachine]) -> None:
    """One configuration after the other.

    Raises:
        SimulationError: an owner that isn't lost, and doesn't only hold it for others, has given it away.
    """
    changed = []
    for new in current.fragments:
        old = before.replicas(new.fragment)
        if old is not None and old.owner != new.owner and old.owner in new.secondaries:
            changed.append((old, new))
    if not changed:
        return
    specs = {spec.name: spec for spec in _specs(nodes)}
    for old, new in changed:
        spec = specs.get(new.fragment)
        if spec is None or spec.method != STATE_BACKUP or old.owner in spec.backup_nodes:
            continue
        raise SimulationError(
            f"backup: {new.owner} has {new.fragment} from {old.owner}, which is there; only "
            f"{', '.join(spec.backup_nodes)} would give it away"
        )


def _specs(nodes: Iterable[NodeMachine]) -> Iterator[FragmentSpec]:
    for node in nodes:
        if node.alive:
            yield from (hosted.spec for hosted in node.brain.fragments.values())
