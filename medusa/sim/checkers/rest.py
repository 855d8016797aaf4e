"""Whether all is at rest: nothing that a node took, and nothing that it decided, waits for a disk."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.nodes.fragment.host import FragmentHost
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.checkers.publisher_names import newest_record
from medusa.wire.client_mind import LOST
from medusa.wire.link.named_subscriptions import is_key

__all__ = ["unsaved"]


def unsaved(nodes: Iterable[NodeMachine], clients: Iterable[Client]) -> str:
    """The first thing that isn't durable, in words; empty: everything is.

    With disks that work this comes true a checkpoint after the last row, whatever failed before.

    Args:
        nodes: those without a disk and those that are dead count for nothing.
        clients: what one has published is durable where it says so; not what another program took from it.
    """
    for node in nodes:
        if not node.alive or node.forgets:
            continue
        if not node.brain.saved:
            return f"the catalog of {node.name}"
        for hosted in node.brain.fragments.values():
            if reader := _unsaved_reader(node, hosted):
                return f"what {reader} has acknowledged of {hosted.spec.name} at {node.name}"
            for input in hosted.inputs.values():
                if not (input.settled or hosted.failed):
                    return (
                        f"what {hosted.spec.name} at {node.name} was sent of {input.stream} by {input.peer}"
                    )
    for client in clients:
        for mind in client.minds:
            for stream, publication in mind.publications.items():
                lost = publication.refusal is not None and publication.refusal.code in LOST
                if not (lost or publication.durable):
                    return f"what {client.name} has published into {stream}"
    return ""


def _unsaved_reader(node: NodeMachine, hosted: FragmentHost) -> str:
    """A reader with a name of whose acknowledgement the disk knows nothing; empty: there is none."""
    named = {
        (id, key): view.durable
        for id, output in hosted.outputs.items()
        for key, view in output.sender.receivers.items()
        if is_key(key)
    }
    if not named:
        return ""
    record = newest_record(node, hosted.spec.name)
    on_disk = {} if record is None else {output.sink: output.receivers for output in record.outputs}
    return next((key for (id, key), seq in named.items() if on_disk.get(id, {}).get(key, -1) < seq), "")
