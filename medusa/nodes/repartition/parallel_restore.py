"""A fragment whose state this node held for its lost owner is restored on several nodes at once. No IO.

    owner lost ── this node takes over ── splits the box where its state lies ── part 1 ──> spare 1
                                                                             └── part 2 ──> spare 2

It is a split and moves, which this node orders of itself: ``RepartitionCoordinator`` and ``Handovers`` do
them, and say no where they can't be. Until then nobody else is sent the state: what comes of a split has to
begin here. Nothing of it is on disk. A node that dies amid it leaves fragments that go on, whole or in parts,
and each goes to the first spare as if nobody had wished for parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from medusa.decoders import json_decoder
from medusa.errors import QueryError
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.order import no
from medusa.nodes.recovery.handovers import Handovers
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.succession import Succession
from medusa.nodes.repartition.coordinator import RepartitionCoordinator
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.boxes import KeyRouter
from medusa.query.recovery import STATE_BACKUP
from medusa.query.rewrite.split import cuts_of, routed_box, split
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Replicas
from medusa.wire.messages.split import Split
from medusa.wire.outbox import Outbox

__all__ = ["ParallelRestore", "keyed_box"]

AGAIN_US = 100_000
"""What can't be ordered yet is ordered again after this."""

PATIENCE_US = 10_000_000
"""For so long: a takeover is decided, and heard everywhere, in some seconds. Too large: a fragment that can't
be split stays so long at a node that only held its state."""

MOVE_US = 60_000_000
"""A part has so long to go to its node."""

NOT_YET = ("E_BUSY", "E_TIMEOUT", "E_STANDBY")
"""After these a split or move is ordered again."""


class _Made(msgspec.Struct, frozen=True):
    """Of the answer to a split."""

    fragments: tuple[str, ...]


_MADE = json_decoder(_Made)


@dataclass(slots=True, kw_only=True)
class _Restore:
    """One fragment that is to be restored in parts, or a part of it that goes to its node.

    Attributes:
        box: that is split; empty: this is a part, or what stands before and behind them.
        nodes: where the parts go; of a part the one.
        since_us: when that began.
        order: the number of what was ordered last and isn't answered; 0: nothing is.
        refused: it can't be.
        why: it was refused last.
    """

    box: str
    nodes: tuple[str, ...]
    since_us: int
    order: int = 0
    refused: bool = False
    again_us: int = 0
    why: str = ""


def keyed_box(spec: FragmentSpec) -> str:
    """The first box of a fragment that can be split by ranges of its keys; empty: none can."""
    for box in spec.graph.boxes:
        try:
            whole = split(spec.graph, box.id, 2)
            if cuts_of(whole, box.id):
                return box.id
        except QueryError:
            continue
    return ""


class ParallelRestore:
    """Of the fragments that a node took over as it held their states.

    Args:
        parts: so many each, at most as many as there are spares; 1: none is split.
        fragments: what runs here, by name.
        siblings: names of the fragments of a query that are anywhere, as far as they are known here.
        number: gives numbers for orders.
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        me: str,
        parts: int,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        splits: RepartitionCoordinator,
        handovers: Handovers,
        replication: Replication,
        succession: Succession,
        siblings: Callable[[str], Sequence[str]],
        number: Callable[[], int],
        is_up: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._parts = parts
        self._fragments = fragments
        self._outbox = outbox
        self._splits = splits
        self._handovers = handovers
        self._replication = replication
        self._succession = succession
        self._siblings = siblings
        self._number = number
        self._is_up = is_up
        self._under_way: dict[str, _Restore] = {}
        self._over: dict[str, int] = {}
        """Fragment -> the epoch in which it was tried, to whatever end."""
        self._boxes: dict[str, str] = {}
        """Fragment that was taken over here -> its box that is to be split; empty: none can be."""

    # --- what is asked ----------------------------------------------------------------------------

    def keeps_here(self, spec: FragmentSpec, replicas: Replicas) -> bool:
        """Whether a fragment of ours goes to nobody yet but where this sends it."""
        return spec.name in self._under_way or len(self._nodes_for(spec, replicas)) > 1

    def _nodes_for(self, spec: FragmentSpec, replicas: Replicas) -> tuple[str, ...]:
        """Where the parts of what we have taken over are to go; fewer than two: it isn't to be split."""
        held = spec.method == STATE_BACKUP and self._me in spec.backup_nodes and replicas.owner == self._me
        if self._parts < 2 or not held or replicas.abroad or self._over.get(spec.name) == replicas.epoch:
            return ()
        name = spec.name
        if not self._succession.begins(name) and self._succession.taken_over_at_us(name) is None:
            return ()
        spares = [node for node in replicas.members if node not in (self._me, *spec.backup_nodes)]
        nodes = tuple(node for node in spares if self._is_up(node))[: self._parts]
        if len(nodes) < 2 or self._is_part(spec):
            return ()
        if name not in self._boxes:
            self._boxes[name] = box = keyed_box(spec)
            if not box:
                why = "none of its boxes can be split by ranges of its keys"
                self._outbox.report("info", "state isn't restored in parts", fragment=name, why=why)
        return nodes if self._boxes[name] else ()

    def _is_part(self, spec: FragmentSpec) -> bool:
        """Whether it came of a split: then it is restored as it is."""
        split = {routed_box(each.rpartition("/")[2]) for each in self._siblings(spec.query)} - {""}
        return any(
            isinstance(box, KeyRouter) or box.id.rpartition("-")[0] in split for box in spec.graph.boxes
        )

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Order what is due."""
        if self._parts < 2:
            return
        for hosted, _, replicas in list(self._replication.owned()):
            name = hosted.spec.name
            if name in self._under_way or self._succession.begins(name):
                continue
            if len(nodes := self._nodes_for(hosted.spec, replicas)) > 1:
                self._over[name] = replicas.epoch
                self._under_way[name] = _Restore(box=self._boxes[name], nodes=nodes, since_us=now_us)
        for name, restore in list(self._under_way.items()):
            if restore.order:
                if not restore.box and not self._is_up(restore.nodes[0]):
                    text = f"node {restore.nodes[0]!r} is silent"
                    self._handovers.cancel(name, no("E_BROKEN", text, ""))
                continue
            if name not in self._fragments:  # Its query was removed, or it is where it should be.
                del self._under_way[name]
            elif restore.refused or now_us - restore.since_us >= PATIENCE_US:
                self._give_up(name, restore)
            elif now_us >= restore.again_us:
                self._order(now_us, name, restore)

    def _order(self, now_us: int, name: str, restore: _Restore) -> None:
        restore.order, restore.again_us = self._number(), now_us + AGAIN_US
        if restore.box:
            parts = len(restore.nodes)
            order = Split(request=restore.order, fragment=name, box=restore.box, parts=parts)
            self._splits.order(now_us, self._me, order)
        else:
            self._handovers.order(now_us, self._me, restore.order, name, restore.nodes[0], MOVE_US)

    def answered(self, now_us: int, peer: str, reply: Reply, payload: Buffer | None) -> bool:
        """Take the answer to an order of ours; whether it was one."""
        orders = {each.order: (name, each) for name, each in self._under_way.items() if each.order}
        if peer != self._me or reply.request not in orders:
            return False
        name, restore = orders[reply.request]
        restore.order = 0
        if reply.code:
            restore.why = f"{reply.code}: {reply.text}"
            restore.refused = reply.code not in NOT_YET
            return True
        del self._under_way[name]
        if restore.box:
            made = _MADE.decode(bytes(payload or b"")).fragments
            self._send_out(now_us, restore, made)
            nodes = ", ".join(restore.nodes)
            self._outbox.report(
                "info", "state is restored in parts", fragment=name, box=restore.box, nodes=nodes
            )
        return True

    def _send_out(self, now_us: int, restore: _Restore, made: Sequence[str]) -> None:
        """Each part to a node of its own, and what stands before and behind them to the first."""
        for name in made:
            hosted = self._fragments.get(name)
            ids = () if hosted is None else tuple(box.id for box in hosted.spec.graph.boxes)
            places = (at for at in range(len(restore.nodes)) if f"{restore.box}-{at + 1}" in ids)
            to = restore.nodes[next(places, 0)]
            self._under_way[name] = _Restore(box="", nodes=(to,), since_us=now_us)

    def _give_up(self, name: str, restore: _Restore) -> None:
        """It goes to the first spare, as any other."""
        del self._under_way[name]
        what = "state isn't restored in parts" if restore.box else "part doesn't go to its node"
        self._outbox.report("warning", what, fragment=name, why=restore.why)

    def removed(self, query: str) -> None:
        """A query is no more: one that is deployed under its name begins anew."""
        for by_fragment in (self._over, self._boxes):
            for name in [name for name in by_fragment if name.partition("/")[0] == query]:
                del by_fragment[name]

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return min((each.again_us for each in self._under_way.values() if not each.order), default=None)
