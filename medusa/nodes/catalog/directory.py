"""The replicated part of the catalog, inside one participant: every node holds all of it. Pure.

Each node writes of what it owns, and only that: its entries are a map of its own, of which all others hold
a copy. What all of them write is numbered per node, so a node knows with one number per writer what it has
seen (Golding's timestamped anti-entropy, 1992; van Renesse et al., "Efficient reconciliation and flow
control for anti-entropy protocols", 2008). A *run* brings everything of one writer after a number, so a run
that was lost shows: the next one begins beyond what was seen, and is asked for again.
``nodes/catalog/anti_entropy.py`` says who tells whom.

Where two nodes have written of the same thing, the higher epoch counts: who takes a thing over writes a
higher one. So every copy comes to the same, in whatever order news arrive. The directory mirrors; it never
decides who owns what.

A node that starts writes all anew: what it wrote in earlier lives stands no more (``EntryRun.since``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from medusa.errors import RemoteProtocolError
from medusa.nodes.catalog.anti_entropy import AntiEntropy
from medusa.nodes.catalog.replica_state import Key, ReplicaState
from medusa.ports import Buffer
from medusa.wire.messages.directory import CatalogEntry, Digest, Entries, EntryRun, runs_from, seen_from
from medusa.wire.outbox import Outbox

__all__ = ["CatalogEntry", "Directory"]

VERSIONS_PER_LIFE = 1 << 28
"""The numbers of what a node writes begin at this times its incarnation."""

FORGET_EVERY_US = 60_000_000
"""So often it is looked whether a node has been away for too long (``nodes.clock.expiry``)."""


class Directory:
    """One node's copy.

    Args:
        node: its name.
        incarnation: larger than in any earlier life.
        count: told the code of each entry or run that was refused.
        wall: what time it is; None: not known, then no node is forgotten.
    """

    def __init__(
        self,
        node: str,
        *,
        incarnation: int,
        outbox: Outbox,
        count: Callable[[str], None] = lambda code: None,
        wall: Callable[[int], int | None] = lambda now_us: None,
    ) -> None:
        self.node = node
        self._written = ReplicaState(node, incarnation * VERSIONS_PER_LIFE, count)
        self._agreeing = AntiEntropy(self._written, outbox)
        self.wall = wall
        self._changes = 0
        self._unsaid = False
        self._forget_at_us = 0

    @property
    def changed(self) -> bool:
        """Something was learned or written since this was last set back."""
        return self._written.changes != self._changes

    def settled(self) -> None:
        """All that was learned so far is on its way to the disk."""
        self._changes = self._written.changes

    @property
    def changes(self) -> int:
        """How many things were learned or written so far."""
        return self._written.changes

    @staticmethod
    def life_of(version: int) -> int:
        """The life in which a node wrote what has this version."""
        return version // VERSIONS_PER_LIFE

    def seen(self, node: str) -> int:
        """The version up to which all is known that a node wrote."""
        return self._written.seen(node)

    # --- names ------------------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> CatalogEntry | None:
        """What stands; of several versions of a stream that in the highest epoch, of these the lowest.

        An owner that was lost left its word behind, and whoever took over may have raised the version.
        """
        return max(self.versions(kind, name), key=lambda entry: entry.epoch, default=None)

    def versions(self, kind: str, name: str) -> list[CatalogEntry]:
        """Of each version of a stream the entry that stands, by version."""
        found: dict[int, CatalogEntry] = {}
        gone: dict[int, int] = {}
        for entry in self._of(kind, name):
            at = entry.stream_version
            if entry.gone:
                gone[at] = max(gone.get(at, 0), entry.epoch)
            elif at not in found or _rank(entry) > _rank(found[at]):
                found[at] = entry
        return [entry for at, entry in sorted(found.items()) if entry.epoch >= gone.get(at, 0)]

    def holders(self, kind: str, name: str) -> list[CatalogEntry]:
        """All that stand, by node: a source that was put at several nodes is at each of them."""
        gone = max((each.epoch for each in self._of(kind, name) if each.gone), default=0)
        standing = [each for each in self._of(kind, name) if not each.gone and each.epoch >= gone]
        return sorted(standing, key=attrgetter("writer"))

    def gone_from(self, kind: str, name: str) -> list[str]:
        """The nodes that say that they had it and have it no more, for as long as they remember."""
        return sorted(each.writer for each in self._of(kind, name) if each.gone)

    def where(self, stream: str) -> str | None:
        """The node that has a stream."""
        entry = self.find("stream", stream)
        return None if entry is None else entry.writer

    def entries(self, kind: str | None = None) -> list[CatalogEntry]:
        """All that stand, of one kind or of all, by kind, name and version of the stream."""
        keys = sorted(key for key in self._written.by_key if kind is None or key[0] == kind)
        return [entry for key in keys for entry in self.versions(*key)]

    def standing(self, kind: str) -> list[CatalogEntry]:
        """All of a kind that stand, at whatever nodes."""
        keys = sorted(key for key in self._written.by_key if key[0] == kind)
        return [entry for key in keys for entry in self.holders(*key)]

    def own(self) -> dict[Key, CatalogEntry]:
        """What this node wrote in this life and stands."""
        written = self._written.own.entries
        return {key: entry for key, entry in written.items() if not entry.gone}

    def own_epoch(self, kind: str, name: str) -> int:
        """Of what this node wrote and stands; else 1."""
        entry = self._written.own_entry(kind, name)
        return 1 if entry is None or entry.gone else entry.epoch

    def _of(self, kind: str, name: str) -> Iterable[CatalogEntry]:
        key, writers = (kind, name), self._written.writers
        return (writers[writer].entries[key] for writer in self._written.by_key.get(key, ()))

    # --- what this node writes -----------------------------------------------------------------------

    def put(
        self, now_us: int, kind: str, name: str, epoch: int, body: bytes, *, stream_version: int = 1
    ) -> None:
        """Write of something that this node owns now.

        Where another node has written that it is gone, in an epoch as high, the epoch is raised beyond
        that: it is there again.
        """
        others = [each for each in self._of(kind, name) if each.writer != self.node and each.gone]
        epoch = max([epoch, *(1 + each.epoch for each in others)])
        before = self._written.own_entry(kind, name)
        if before is not None:
            same = before.body, before.stream_version, before.gone
            if same == (body, stream_version, False) and before.epoch >= epoch:
                return
            if not before.gone:
                epoch = max(epoch, before.epoch)
        self._unsaid = True
        self._written.write(now_us, kind, name, epoch, body=body, gone=False, stream_version=stream_version)

    def remove(self, now_us: int, kind: str, name: str, epoch: int = 0) -> None:
        """Write that something which this node owned is gone, or another's now; unknown: nothing."""
        before = self._written.own_entry(kind, name)
        if before is not None and not before.gone:
            epoch, of = max(epoch, before.epoch), before.stream_version
            self._unsaid = True
            self._written.write(now_us, kind, name, epoch, body=b"", gone=True, stream_version=of)

    # --- peers ------------------------------------------------------------------------------------------

    def peer_up(self, now_us: int, peer: str) -> None:
        """A node of the same participant is there: it hears what we have seen."""
        self._agreeing.up(peer)

    def peer_down(self, peer: str) -> None:
        """It isn't any more."""
        self._agreeing.down(peer)

    def is_there(self, node: str) -> bool:
        """Whether a peer is up."""
        return node in self._agreeing.peers

    def receive(self, now_us: int, peer: str, message: Entries | Digest, payload: Buffer | None) -> None:
        """Take news of a node of the same participant.

        Raises:
            RemoteProtocolError: malformed, or too much; nothing changed.
        """
        if isinstance(message, Digest):
            seen = {} if payload is None else seen_from(payload)
            self._agreeing.compare(now_us, peer, message, seen)
            return
        if payload is None:
            raise RemoteProtocolError("entries without entries", peer=peer, code="E_FRAME")
        there = self._agreeing.peers
        runs = runs_from(payload)
        wall_us = self.wall(now_us)
        missed = [run.writer for run in runs if self._written.take(now_us, peer, run, there, wall_us)]
        if message.more:
            self._agreeing.say_all(peer)
        elif missed:
            self._agreeing.ask(peer, missed)

    def digest(self) -> bytes:
        """A hash of what we have seen: equal where the same is known."""
        return self._written.digest()

    # --- time -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell peers what we wrote since the last time."""
        if self._unsaid:
            self._unsaid = False
            self._agreeing.push()

    def tick(self, now_us: int) -> None:
        """Tell what we wrote, and now and then what we have seen; forget what is long gone."""
        self.flush()
        if self._agreeing.tick(now_us):
            self._written.forget(now_us)
        if now_us >= self._forget_at_us:
            self._forget_at_us = now_us + FORGET_EVERY_US
            self._written.forget_nodes(self._agreeing.peers, self.wall(now_us))

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._agreeing.wake_at_us()

    # --- file -----------------------------------------------------------------------------------------

    def runs(self) -> tuple[EntryRun, ...]:
        """What we know of others, for ``load`` in the next life."""
        others = [name for name in self._written.all_seen() if name != self.node]
        return tuple(self._written.runs({}, others))

    def load(self, now_us: int, runs: Iterable[EntryRun]) -> None:
        """Take up what an earlier life knew of others; nothing was taken or written yet."""
        for run in runs:
            self._written.take(now_us, run.writer, run, ())
        self.settled()


def _rank(entry: CatalogEntry) -> tuple[int, int, str]:
    return entry.epoch, entry.version, entry.writer
