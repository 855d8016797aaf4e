"""What must hold of fragments that others stand by for. Apart from the code that it checks: it reads disks,
what nodes hold and what goes over the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.recovery import STATE_BACKUP
from medusa.sim.checkers.backup_owners import check_handed_on
from medusa.sim.checkers.catalog import newest_catalog
from medusa.sim.checkers.publisher_names import newest_record
from medusa.sim.checkers.votes_on_disks import VotesOnDisks
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.codec import TrainCodec, decode_frame
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.link.named_subscriptions import key_of
from medusa.wire.link.sender import Sender
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.messages.links import Data

if TYPE_CHECKING:
    from medusa.sim.actors.client import Client
    from medusa.sim.actors.node import NodeMachine

__all__ = ["ReplicaChecks", "held_by"]

DATA = b"\xa4data"
"""How the header of a ``Data`` goes on after its first byte."""


class ReplicaChecks:
    """Of one query, after each turn of a node and for each frame that arrives.

    A configuration is decided by the disks of more than half of the voters of the one before it. A node
    never goes back to an earlier one. A row that anybody was sent has the same values from whoever sends it,
    and where the order of arrival decides over it each secondary has the decisions too, and has made it once
    its engine has fed all that it has. What senders have
    forgotten is on the disk of the owner and of each secondary. Nobody that a node knows to be replaced reads
    from it, or sends to it.

    Attributes:
        newest: the configuration with the highest number that any node has known; None: there is none yet.
    """

    def __init__(self, nodes: Mapping[str, NodeMachine], clients: Mapping[str, Client]) -> None:
        self._nodes = nodes
        self._clients = clients
        self._votes = VotesOnDisks(nodes)
        self.newest: Configuration | None = None
        self._known: dict[tuple[str, int, int], Configuration] = {}
        self._lives: list[int] = []
        """Of queries of the name, in order."""
        self._numbers: dict[str, tuple[int, int, int]] = {}
        """Node -> its life, and life and number of the configuration that it went by last."""
        self._epochs: dict[tuple[str, int, int, str], int] = {}
        """Node, its life, the life of the query and a stream that it reads -> the epoch in which it does."""
        self._owners: dict[tuple[str, int, int], str] = {}
        """Fragment, life of its query and epoch -> who runs it: one that is deployed again begins anew."""
        self._rows: dict[str, list[object]] = {}
        """Stream -> its rows, as they were sent first; None: not seen."""
        self._shown: dict[str, int] = {}
        """Stream -> rows below this one were sent."""
        self._decided: dict[tuple[str, int], int] = {}
        """Fragment and life of its query -> of decisions below this one something was shown."""
        self._released: dict[str, int] = {}
        """Stream -> rows below this one have been released by some owner."""
        self._codecs: dict[str, TrainCodec] = {}
        self._disks: dict[tuple[str, str], tuple[int, dict[tuple[str, str], int]]] = {}
        """Node and fragment -> how often its disk had changed, and the positions of the newest checkpoint
        there."""
        self._empty: set[str] = set()
        """Fragments of which nobody keeps anything, and streams that they put out: recovered by amnesia."""

    # --- turns --------------------------------------------------------------------------------------

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn.

        Raises:
            SimulationError: something doesn't hold.
        """
        if node.loop is None:
            return
        self._votes.look(node)
        for kept in node.brain.catalog.configurations.values():
            self._look_at(node, kept.current)
        for fragment, hosted in node.brain.fragments.items():
            if hosted.spec.keeps_nothing:
                self._empty |= {fragment, *hosted.spec.streams.values()}
            self._check_owner(node, fragment, hosted)
            self._check_epochs(node, hosted)
            self._check_fenced(node, hosted)
            # One that rests, since another is to have it, lets go what all had when it was the owner.
            epoch = node.brain.catalog.ownership.epoch(fragment)
            if self._owners.get((fragment, _life(node, hosted), epoch)) == node.name:
                about = fragment, _life(node, hosted)
                if hosted.decisions_shown > hosted.decisions_begun:
                    self._decided[about] = max(self._decided.get(about, 0), hosted.decisions_shown)
                for output in hosted.outputs.values():
                    at = output.sender.log.next_seq
                    self._released[output.stream] = max(self._released.get(output.stream, 0), at)
        self._check_secondaries(node)
        self._check_forgotten(node)

    def _look_at(self, node: NodeMachine, current: Configuration) -> None:
        about = current.query, current.life, current.number
        known = self._known.get(about)
        if known is None:
            self._check_decided(current)
            self._known[about] = known = current
        if known != current:
            raise SimulationError(f"configuration: {current} at {node.name}, and {known}")
        before = self._numbers.get(node.name)
        now = node.lives, current.life, current.number
        if before is not None and before[:2] == now[:2] and before[2] > current.number:
            raise SimulationError(
                f"configuration: {node.name} goes back from {before[2]} to {current.number}"
            )
        self._numbers[node.name] = now
        newest = self.newest
        anew = newest is None or newest.life != current.life
        if current.life not in self._lives:
            self._lives.append(current.life)
        if (anew and current.life == self._lives[-1]) or (
            newest is not None and not anew and newest.number < current.number
        ):
            self.newest = current

    def _check_decided(self, current: Configuration) -> None:
        before = self._known.get((current.query, current.life, current.number - 1))
        if current.number == 1:
            return
        if before is None:
            raise SimulationError(f"configuration: {current.number} is there, and none before it")
        self._votes.check_decided(current, before)
        check_handed_on(before, current, self._nodes.values())

    def _check_owner(self, node: NodeMachine, fragment: str, hosted: FragmentHost) -> None:
        if hosted.frozen:
            return
        epoch = node.brain.catalog.ownership.epoch(fragment)
        about = fragment, _life(node, hosted), epoch
        if epoch > FIRST_EPOCH and about not in self._owners:
            data = newest_catalog(node) or Catalog(node.name).to_bytes()
            on_disk = Catalog.from_bytes(data, node=node.name, where=node.name)
            if fragment not in on_disk.fragments or on_disk.ownership.epoch(fragment) != epoch:
                raise SimulationError(f"owner: {node.name} runs {fragment} in epoch {epoch}, not by its disk")
        if (owner := self._owners.setdefault(about, node.name)) != node.name:
            raise SimulationError(f"owner: {fragment} in epoch {epoch} is of {owner} and of {node.name}")
        replicas = None if self.newest is None else self.newest.replicas(fragment)
        if replicas is not None and replicas.members and epoch > replicas.epoch:
            raise SimulationError(f"owner: {node.name} has {fragment} in epoch {epoch} before {replicas}")

    def _check_epochs(self, node: NodeMachine, hosted: FragmentHost) -> None:
        """While a node lives it never goes back to an earlier owner of a stream that it reads, unless the
        query is deployed again."""
        for feed in hosted.spec.feeds:
            about = node.name, node.lives, _life(node, hosted), f"{hosted.spec.name} {feed.stream}"
            if feed.epoch < self._epochs.get(about, 0):
                raise SimulationError(
                    f"feeds: {hosted.spec.name} at {node.name} reads {feed.stream} in epoch {feed.epoch} "
                    f"of {feed.node}, and read it in epoch {self._epochs[about]}"
                )
            self._epochs[about] = feed.epoch

    def _check_fenced(self, node: NodeMachine, hosted: FragmentHost) -> None:
        """Who reads from a node for a guarded fragment is the owner of that by the configuration which the
        node knows, and so is who it reads from."""
        kept = node.brain.catalog.configurations.get(hosted.spec.query)
        if kept is None:
            return
        links = [
            (output.stream, view.peer, False)
            for output in hosted.outputs.values()
            for view in output.sender.receivers.values()
            if view.state is not SenderState.DETACHED
        ]
        links += [
            (input.stream, input.peer, True)
            for input in hosted.inputs.values()
            if input.receiver.state is ReceiverState.FLOWING
        ]
        fragments = kept.current.fragments
        for stream, peer, sends in links:
            ends = [each for each in fragments if stream in (each.streams if sends else each.reads)]
            if all(each.owner != peer for each in ends) and any(peer in each.holders for each in ends):
                raise SimulationError(
                    f"fenced: {peer} {'sends' if sends else 'reads'} {stream} at {node.name}, and not by "
                    f"{kept.current}"
                )

    def _secondaries(self, replicas: Replicas) -> Iterator[tuple[NodeMachine, FragmentHost]]:
        """Those of them that have something to follow with."""
        for name in replicas.secondaries:
            node = self._nodes[name]
            part = node.brain.recovery.successor(replicas.fragment) if node.alive else None
            if part is not None and not part.failed:
                yield node, part

    def _follows(self, name: str, replicas: Replicas) -> bool:
        """Whether it is there and could take over."""
        node = self._nodes[name]
        if replicas.fragment in self._empty:
            return node.alive and node.brain.recovery.followings.heir(replicas.fragment) is not None
        if held_record(node, replicas) is not None:
            return True
        return name in {node.name for node, _ in self._secondaries(replicas)}

    def _kept(self) -> Iterator[Replicas]:
        """Of fragments of which disks have something."""
        for replicas in () if self.newest is None else self.newest.fragments:
            if replicas.fragment not in self._empty:
                yield replicas

    def _check_secondaries(self, node: NodeMachine) -> None:
        """Each has the decisions of which something was shown and makes that of them, and has released
        nothing that the owner hasn't."""
        for replicas in self._kept():
            for at, shadow in self._secondaries(replicas):
                if at is node and shadow.mixed:
                    decided = self._decided.get((replicas.fragment, _life(node, shadow)), 0)
                    self._check_secondary(node.name, shadow, decided)
            for name in replicas.secondaries:
                record = held_record(self._nodes[name], replicas)
                if record is not None and record.mixed:
                    self._check_held(name, record, replicas)

    def _check_secondary(self, name: str, shadow: FragmentHost, decided: int) -> None:
        # Restarted where it rests it hasn't made again yet what its disk has decided: it would, before more.
        is_behind = shadow.decisions_fed < shadow.decisions_on_disk
        if is_behind and shadow.decisions_on_disk < decided:
            raise SimulationError(
                f"decided: {decided} decisions of {shadow.spec.name} were shown, secondary {name} has "
                f"{shadow.decisions_on_disk} on its disk"
            )
        if not is_behind and shadow.decisions_fed < decided:
            raise SimulationError(
                f"decided: {decided} decisions of {shadow.spec.name} were shown, secondary {name} has "
                f"{shadow.decisions_fed}"
            )
        rests = not shadow.under_way  # Else its engine has some of them, and feeds those next.
        for output in shadow.outputs.values():
            shown, released = self._shown.get(output.stream, 0), self._released.get(output.stream, 0)
            if output.rows < shown and rests and not is_behind:
                raise SimulationError(
                    f"decided: {shown} rows of {output.stream} were sent, secondary {name} has made "
                    f"{output.rows}"
                )
            if output.sender.log.next_seq > released:
                raise SimulationError(
                    f"decided: secondary {name} has let {output.sender.log.next_seq} rows of {output.stream} "
                    f"go, no owner more than {released}"
                )

    def _check_held(self, name: str, record: FragmentRecord, replicas: Replicas) -> None:
        """A passive secondary holds what was shown of decisions."""
        for output in record.outputs:
            held = output.next_seq
            for stream in replicas.streams:
                if stream.endswith(f".{output.sink}") and self._shown.get(stream, 0) > held:
                    raise SimulationError(
                        f"decided: {self._shown[stream]} rows of {stream} were sent, secondary {name} holds "
                        f"{held}"
                    )

    # --- what senders have forgotten ------------------------------------------------------------------

    def _check_forgotten(self, node: NodeMachine) -> None:
        """Of what this node sends; clients are looked at with who reads from them."""
        for replicas in self._kept():
            reads = [
                (hosted, output.sender)
                for hosted in node.brain.fragments.values()
                if not hosted.frozen
                for output in hosted.outputs.values()
                if output.stream in replicas.reads
            ]
            for hosted, sender in reads:
                for at in self._holders(replicas):
                    self._check_covered(hosted.spec.node, at, replicas, sender, "")
            if node.name in (replicas.owner, *replicas.secondaries):
                for client in self._clients.values():
                    for stream in replicas.streams:
                        publication = client.publication(stream)
                        if publication is None:
                            continue
                        key = key_of("", client.names[stream]) if stream in client.names else client.name
                        for at in self._holders(replicas):
                            self._check_covered(client.name, at, replicas, publication.sender, key)

    def _holders(self, replicas: Replicas) -> Iterator[NodeMachine]:
        """Nodes whose disks count: that of the owner also while it is dead."""
        owner = self._nodes[replicas.owner]
        if not owner.alive or not owner.brain.catalog.in_doubt.newest:
            known = owner.brain.fragments.get(replicas.fragment) if owner.alive else None
            if known is not None and not known.frozen:
                yield owner
        for node, _ in self._secondaries(replicas):
            # One that begins anew has nothing there for a moment; it says that it may own it after it has.
            if newest_record(node, replicas.fragment) is not None:
                yield node
        for name in replicas.secondaries:
            if held_record(self._nodes[name], replicas) is not None:
                yield self._nodes[name]

    def _check_covered(
        self, who: str, at: NodeMachine, replicas: Replicas, sender: Sender, peer: str
    ) -> None:
        start = sender.log.start_seq
        if not start:
            return
        positions = self._positions(at, replicas.fragment)
        found = [
            seq for (stream, by), seq in positions.items() if stream == sender.stream and by in (peer, "")
        ]
        position = max(found, default=0)
        if start > position:
            raise SimulationError(
                f"trimmed: {who} keeps rows of {sender.stream} from {start}, the disk of {at.name} has "
                f"{position}"
            )

    def _positions(self, node: NodeMachine, fragment: str) -> dict[tuple[str, str], int]:
        """(Stream, publisher or nothing) -> the next row by the newest whole checkpoint on its disk."""
        taking = held_by(node, fragment)
        if taking is not None and taking.record is not None:
            return positions_of(taking.record, taking.spec)
        changes, found = self._disks.get((node.name, fragment), (-1, {}))
        if changes == node.disk.changes:
            return found
        record = newest_record(node, fragment)
        hosted = node.brain.fragments.get(fragment) or node.brain.recovery.followings.shadow(fragment)
        found = positions_of(record, hosted.spec) if record is not None and hosted is not None else {}
        self._disks[node.name, fragment] = node.disk.changes, found
        return found

    # --- frames ---------------------------------------------------------------------------------------

    def delivered(self, source: str, frames: list[Buffer]) -> None:
        """A node's frame arrives somewhere: rows of a number are the same from whoever sends them.

        Raises:
            SimulationError: they are others than were sent before.
        """
        if frames[0][1:6] != DATA or source not in self._nodes:
            return
        message, payload = decode_frame(frames)
        codec = self._codec(self._nodes[source], message.stream) if isinstance(message, Data) else None
        if not isinstance(message, Data) or codec is None or payload is None:
            return
        if not self._compares(message.stream):
            return
        batch = codec.decode(message, payload).batch
        rows = self._rows.setdefault(message.stream, [])
        rows += [None] * (message.seq + message.rows - len(rows))
        for seq, row in enumerate(_rows(batch), start=message.seq):
            if rows[seq] is not None and rows[seq] != row:
                raise SimulationError(
                    f"shown: row {seq} of {message.stream} by {source} in epoch {message.epoch} is {row}, "
                    f"and was {rows[seq]}"
                )
            rows[seq] = row
        self._shown[message.stream] = max(self._shown.get(message.stream, 0), message.seq + message.rows)

    def _compares(self, stream: str) -> bool:
        """Whether its rows are the same from whoever sends them: of what keeps nothing they may be others."""
        return stream not in self._empty

    def _codec(self, node: NodeMachine, stream: str) -> TrainCodec | None:
        if stream not in self._codecs and node.alive:
            for hosted in node.brain.fragments.values():
                for output in hosted.outputs.values():
                    sender = output.sender
                    self._codecs[output.stream] = TrainCodec(sender.schema, timed=sender.timed)
        return self._codecs.get(stream)

    # --- the end --------------------------------------------------------------------------------------

    def guarded_again(self, gone: frozenset[str]) -> str:
        """What isn't yet as it should be once nothing goes wrong any more; empty: nothing.

        Args:
            gone: nodes that never come back.
        """
        newest = self.newest
        if newest is None:
            return "no configuration is known"
        for name, node in self._nodes.items():
            known = (
                [kept.current for kept in node.brain.catalog.configurations.values()] if node.alive else []
            )
            if known and known != [newest]:
                return f"{name} doesn't know configuration {newest.number}"
        listed = {each.fragment: each.epoch for each in newest.fragments if each.members}
        for node in self._nodes.values():
            for name, hosted in node.brain.fragments.items() if node.alive else ():
                if hosted.spec.standby and listed.get(name, 0) < node.brain.catalog.ownership.epoch(name):
                    return f"nobody is to stand by for {name} at {node.name}"
        for replicas in newest.fragments:
            if replicas.guest:
                return f"{replicas.guest} is a guest of {replicas.fragment} and nobody's wish"
            has = {
                name
                for name, node in self._nodes.items()
                if node.alive and replicas.fragment in node.brain.fragments
                if not node.brain.fragments[replicas.fragment].frozen
            }
            if not replicas.members:  # It was split or merged.
                if has:
                    return f"{replicas.fragment} is at {sorted(has)}, and is no more"
                continue
            if has != {replicas.owner}:
                return f"{replicas.fragment} is at {sorted(has)}, {replicas.owner} should have it"
            wanted = {node for node in replicas.members if node != replicas.owner} - gone
            spec = self._nodes[replicas.owner].brain.fragments[replicas.fragment].spec
            if spec.method == STATE_BACKUP:  # One holds it: upstream where one is there, and the owner isn't.
                holders = wanted.intersection(spec.backup_nodes)
                if replicas.owner in spec.backup_nodes and wanted - holders:
                    return f"{replicas.owner} only holds {replicas.fragment}, and others are there"
                first = [node for node in spec.backup_nodes if node in holders]
                first += [node for node in replicas.members if node in wanted - holders]
                wanted = set(first[:1])
            if set(replicas.secondaries) != wanted:
                return f"secondaries of {replicas.fragment} are {replicas.secondaries}, not {sorted(wanted)}"
            if not all(self._follows(node, replicas) for node in wanted):
                return f"not all secondaries of {replicas.fragment} follow"
        return ""


def positions_of(record: FragmentRecord, spec: FragmentSpec) -> dict[tuple[str, str], int]:
    """(Stream, publisher or nothing) -> the next row."""
    found: dict[tuple[str, str], int] = {}
    of = {feed.source: feed.stream for feed in spec.feeds}
    for input in record.inputs:
        published = input.source in spec.entries
        key = (spec.entries[input.source], input.peer) if published else (of[input.source], "")
        found[key] = max(found.get(key, 0), input.next_seq)
    return found


def held_by(node: NodeMachine, fragment: str) -> CheckpointReceiver | None:
    """What a passive secondary could begin with; None: nothing, or it runs already."""
    for name, _, taking in node.brain.recovery.followings.followed() if node.alive else ():
        if name == fragment and isinstance(taking, CheckpointReceiver) and taking.shadow is None:
            return taking
    return None


def held_record(node: NodeMachine, replicas: Replicas) -> FragmentRecord | None:
    """Of the checkpoint that it holds; None: see ``held_by``."""
    taking = held_by(node, replicas.fragment)
    return None if taking is None else taking.record


def _life(node: NodeMachine, hosted: FragmentHost) -> int:
    """Of the query of a fragment, by the configuration that its node goes by; 0: it has none."""
    kept = node.brain.catalog.configurations.get(hosted.spec.query)
    return 0 if kept is None else kept.current.life


def _rows(batch: pa.RecordBatch) -> Iterator[str]:
    columns = [column.to_pylist() for column in batch.columns]
    return map(repr, zip(*columns, strict=True))
