"""Names of publishers: what one is told to be there is on the node's disk; who lost one never has it back."""

from __future__ import annotations

from medusa.engine.state.checkpoint import unseal
from medusa.errors import LinkError, StateError
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.fragment.checkpoint_record import RECORD, FragmentRecord, read_record
from medusa.runtime.engine_host.group_names import group_token
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.links import Attach

__all__ = ["Holders", "check_told", "newest_record"]


def check_told(node: NodeMachine, client: str, key: str, message: Attach) -> None:
    """A node answers a new life of a publisher: the rows that it says it has survive its crash.

    The program goes on at ``durable``, so the disk has the rows below it, always. ``next_seq`` is what the
    node has received. It answers once that is durable too, unless it feeds its log again, or has taken the
    fragment over and calls who had the name: then the program publishes rows that the node has, and they
    count once.

    Args:
        key: of the publisher's name.

    Raises:
        SimulationError: they don't.
    """
    if not node.alive or message.next_seq <= 0:
        return
    try:
        fragment, source = node.brain.catalog.entry(message.stream)
    except LinkError:
        return  # It went elsewhere while this was under way.
    hosted = node.brain.fragments.get(fragment)
    if hosted is None:
        return
    taken_over = hosted.durability.guarded and node.brain.catalog.ownership.epoch(fragment) > FIRST_EPOCH
    at_once = hosted.repeating or taken_over
    told = message.durable if at_once else message.next_seq
    durable = _durable(node, fragment, source, key)
    if max(told, message.durable) > durable:
        raise SimulationError(
            f"told: {node.name} tells {client} to go on at row {told} of {message.stream}, "
            f"its disk has {durable}"
        )


def _durable(node: NodeMachine, fragment: str, source: str, key: str) -> int:
    """The next row of this name by the newest whole checkpoint on disk; 0: none holds it."""
    record = newest_record(node, fragment)
    inputs = () if record is None else record.inputs
    return next((i.next_seq for i in inputs if (i.source, i.peer) == (source, key)), 0)


def newest_record(node: NodeMachine, fragment: str) -> FragmentRecord | None:
    """What the newest whole checkpoint of a fragment on disk says; None: there is none."""
    for name in reversed(node.disk.names()):
        if group_token(fragment, name) is None:
            continue
        try:
            _, files = unseal(node.disk.read(name), name)
            return read_record(files[RECORD], where=name)
        except StateError:
            continue  # Torn.
    return None


class Holders:
    """Who has had each name at each node, one after the other. Over its death, those that its disk knows of.

    Disks keep what they were given.
    """

    def __init__(self) -> None:
        self._had: dict[tuple[str, str, int, str, str], list[str]] = {}
        self._lives: dict[str, int] = {}

    def look(self, node: NodeMachine) -> None:
        """The node has had a turn.

        Raises:
            SimulationError: a program has a name again that another one took from it.
        """
        if node.loop is None:
            return
        if self._lives.get(node.name) != node.lives:
            self._lives[node.name] = node.lives
            self._forget(node)
        for hosted in node.brain.fragments.values():
            epoch = node.brain.catalog.ownership.epoch(hosted.spec.name)
            for (source, key), input in hosted.inputs.items():
                if not input.named or not input.by:
                    continue
                had = self._had.setdefault((node.name, hosted.spec.name, epoch, source, key), [])
                if had and had[-1] != input.by and input.by in had:
                    raise SimulationError(f"named: {input.by} has {key} again, which {had[-1]} took from it")
                if input.by not in had:
                    had.append(input.by)

    def _forget(self, node: NodeMachine) -> None:
        """It lives again: who took a name after its newest checkpoint may have to take it once more."""
        for (name, fragment, _, source, key), had in self._had.items():
            if name == node.name:
                record = newest_record(node, fragment)
                inputs = () if record is None else record.inputs
                holder = next((i.holder for i in inputs if (i.source, i.peer) == (source, key)), "")
                had[:] = had[: had.index(holder) + 1] if holder in had else [holder] * bool(holder)
