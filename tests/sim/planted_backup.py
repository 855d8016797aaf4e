"""Mistakes in who holds a state for others, and who goes on with it; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["BACKUP"]

_SCENARIOS = ("wishes",)

BACKUP: dict[str, Mistake] = {
    "a holder acknowledges a checkpoint that isn't whole": Mistake(
        area="state backup",
        about="It says that it holds what is still on its way. Senders forget rows, and output leaves, that "
        "are in no state but the owner's.",
        edits=edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._take",
            "self._piece(message, payload)",
            "self._piece(message, payload); self._durable = self._frames + 1_000",
        ),
        scenarios=_SCENARIOS,
        seed=3,
        shows="SimulationError: decided",
    ),
    "a released holder's older state is used": Mistake(
        area="state backup",
        about="Whose word counts is whom it is sent to: a holder that is let go, and that the configuration "
        "names still, takes over with what it was sent before.",
        edits=edit(
            "nodes.recovery.proposals:Proposals._look_after",
            "counted = dict.fromkeys((*replicas.secondaries, *offered, *self._coming(replicas)))",
            "counted = dict.fromkeys((*self._replication.wanted(hosted.spec, replicas), *offered))",
        ),
        scenarios=_SCENARIOS,
        seed=10,
        shows="SimulationError: trimmed",
    ),
    "two holders count at once": Mistake(
        area="state backup",
        about="The one that held it meanwhile stays when the first in order is back: output waits for both, "
        "and each node upstream has the whole state in memory.",
        edits=edit(
            "nodes.recovery.proposals:Proposals._leaving",
            "kept = self._replication.wanted(hosted.spec, replicas)",
            "pass",
        ),
        scenarios=_SCENARIOS,
        seed=38,
        shows="SimulationError: liveness",
    ),
    "a spare takes it from an owner that is there": Mistake(
        area="state backup",
        about="A node that is to go on with it, and holds it since no other can, doesn't wait for a loss.",
        edits=edit(
            "nodes.recovery.backup_holders:relieves",
            "return replicas.owner in spec.backup_nodes and node not in spec.backup_nodes",
            "return node not in spec.backup_nodes",
        ),
        scenarios=_SCENARIOS,
        seed=10,
        shows="SimulationError: backup",
    ),
}
"""Each noticed by a seed."""
