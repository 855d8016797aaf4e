"""What each node of a participant has written into the catalog, as far as one of them knows. Pure.

A hash over all of it is kept up with every change: the sum of one term per node (Bellare and Micciancio's
incremental hashing, 1997). And nodes stand in the order in which news of them came, so that what is new since
some moment is found without looking at the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter

from medusa.nodes.clock.expiry import is_over
from medusa.wire import limits
from medusa.wire.messages.directory import CatalogEntry, EntryRun, Seen

__all__ = ["Key", "ReplicaState", "WriterState"]

FORGET_US = 24 * 3_600_000_000
"""What is gone is remembered so long; a node that was away for longer hears of it when its writer starts
anew."""

ENTRIES_PER_WRITER = 10_000
BYTES_MAX = 64 << 20
"""Of all bodies; with the count, what the others can make us hold."""

MODULUS = (1 << 127) - 1

Key = tuple[str, str]
"""(kind, name)."""


@lru_cache(maxsize=2 * limits.WRITERS_MAX)
def _factors(name: str) -> tuple[int, int]:
    """Of a node's ``since`` and ``seen`` in the hash: whatever differs, the sums differ."""
    drawn = blake2b(name.encode(), digest_size=32).digest()
    return int.from_bytes(drawn[:16], "big") % MODULUS, int.from_bytes(drawn[16:], "big") % MODULUS


@dataclass(slots=True)
class WriterState:
    """What one node wrote, as far as we know.

    Attributes:
        since: what it wrote with a smaller version stands no more.
        seen: all up to this version is known.
        change: the number of the last change to it, among all changes.
        term: its part in the hash.
        whole: the run of all that stands, while nothing has changed since it was made.
    """

    since: int = 0
    seen: int = 0
    change: int = 0
    term: int = 0
    whole: EntryRun | None = None
    entries: dict[Key, CatalogEntry] = field(default_factory=dict)


class ReplicaState:
    """One node's copies, and what it wrote itself.

    Args:
        node: its name.
        base: what it writes has versions above this.
        count: told the code of each entry or run that was refused.

    Attributes:
        writers: by name, in the order of their last change.
        by_key: who has written of a thing.
        changes: how many there were.
    """

    def __init__(self, node: str, base: int, count: Callable[[str], None]) -> None:
        self.node = node
        self.own = WriterState(since=base + 1, seen=base)
        self.writers: dict[str, WriterState] = {node: self.own}
        self.by_key: dict[Key, tuple[str, ...]] = {}
        self.changes = 0
        self._sum = 0
        self._count = count
        self._nbytes = 0
        self._gone: dict[tuple[str, Key], int] = {}
        """What is gone -> when we heard so."""

    def own_entry(self, kind: str, name: str) -> CatalogEntry | None:
        """What this node wrote last of a thing; None: it never did."""
        return self.own.entries.get((kind, name))

    # --- what is known -------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """A hash of what is known: equal where the same is."""
        self._sum %= MODULUS
        return self._sum.to_bytes(16, "big")

    def seen(self, name: str) -> int:
        """All that a node wrote up to this version is known; 0: nothing is."""
        writer = self.writers.get(name)
        return 0 if writer is None or writer.seen < writer.since else writer.seen

    def compare(self, seen: Seen) -> tuple[list[str], Seen]:
        """Nodes of which we have seen more than somebody else, and those of which less, with how much."""
        more: list[str] = []
        less: Seen = {}
        writers = self.writers
        for name, version in seen.items():  # A thousand in one message: as little as can be for each.
            writer = writers.get(name)
            have = 0 if writer is None or writer.seen < writer.since else writer.seen
            if have > version:
                more.append(name)
            elif have < version:
                less[name] = have
        return more, less

    def all_seen(self) -> Seen:
        """Of every node of which something is known."""
        return {name: w.seen for name, w in self.writers.items() if w.seen >= w.since and w.seen}

    def news(self, after: int) -> Seen:
        """Of nodes of which something changed after so many changes."""
        found: Seen = {}
        for name, writer in reversed(self.writers.items()):
            if writer.change <= after:
                break
            if writer.seen >= writer.since and writer.seen:
                found[name] = writer.seen
        return found

    def runs(self, seen: Seen, names: Iterable[str]) -> list[EntryRun]:
        """What somebody lacks who has seen this, of nodes of which we have seen more."""
        return [self.run(name, seen.get(name, 0)) for name in names]

    def run(self, name: str, after: int) -> EntryRun:
        """What a node wrote after a version."""
        writer = self.writers[name]
        if writer.whole is not None and after < writer.since:
            return writer.whole
        after = max(after, writer.since - 1)
        entries = [entry for entry in writer.entries.values() if entry.version > after]
        if len(entries) > 1:
            entries.sort(key=attrgetter("version"))
        run = EntryRun(writer=name, since=writer.since, after=after, upto=writer.seen, entries=tuple(entries))
        if after < writer.since:
            writer.whole = run
        return run

    # --- what changes it --------------------------------------------------------------------------------

    def write(
        self, now_us: int, kind: str, name: str, epoch: int, *, stream_version: int, body: bytes, gone: bool
    ) -> None:
        """Write an entry of this node."""
        self.own.seen += 1
        entry = CatalogEntry(
            kind=kind,
            name=name,
            writer=self.node,
            epoch=epoch,
            version=self.own.seen,
            body=body,
            gone=gone,
            stream_version=stream_version,
        )
        self._keep(now_us, self.own, entry)
        self._changed(self.node, self.own)

    def take(
        self, now_us: int, peer: str, run: EntryRun, there: Container[str], wall_us: int | None = None
    ) -> bool:
        """Take one run; True where something before it is missing.

        Args:
            there: nodes of which only what they say themselves is believed.
            wall_us: the time, for what is too old; None: not known, nothing is.
        """
        name = run.writer
        if name == self.node:
            if run.upto > self.own.seen:
                self._count("E_WRITER")  # Nobody else says what we wrote.
            return False
        if name != peer and name in there:
            return False  # It is there, and says itself what it writes.
        writer = self.writers.get(name)
        if writer is None:
            if name != peer and any(_is_over(entry, wall_us) for entry in run.entries):
                self._count("E_EXPIRED")  # Forgotten here already.
                return False
            if len(self.writers) >= limits.WRITERS_MAX:
                self._count("E_LIMIT")
                return False
            writer = self.writers[name] = WriterState()
        if run.since < writer.since and name == peer:
            writer = self.anew(peer)  # It should know: others had told us of a life that it hasn't had.
        if run.since < writer.since or run.upto <= writer.seen:
            return False
        if run.after > max(writer.seen, run.since - 1):
            return True
        if run.since > writer.since:
            for key in [key for key, entry in writer.entries.items() if entry.version < run.since]:
                self._drop(writer, key, name)
            writer.since = run.since
        all_new = writer.seen < run.since
        for entry in run.entries:
            if entry.version > writer.seen and entry.version >= run.since and self._may(writer, entry):
                self._keep(now_us, writer, entry)
        writer.seen = run.upto
        self._changed(name, writer)
        if all_new and run.after == run.since - 1 and len(run.entries) == len(writer.entries):
            writer.whole = run
        return False

    def anew(self, name: str) -> WriterState:
        """Forget all that a node wrote."""
        writer = self.writers[name]
        for key in list(writer.entries):
            self._drop(writer, key, name)
        writer.since = writer.seen = 0
        self._changed(name, writer)
        return writer

    def forget_nodes(self, there: Container[str], wall_us: int | None) -> None:
        """Forget, with all that they wrote, nodes that haven't been heard of for long and aren't here."""
        for name, writer in list(self.writers.items()):
            entry = writer.entries.get(("node", name))
            if entry is not None and name != self.node and name not in there and _is_over(entry, wall_us):
                self.anew(name)
                del self.writers[name]

    def forget(self, now_us: int) -> None:
        """Forget what is gone for long."""
        for (name, key), since_us in list(self._gone.items()) if self._gone else ():
            if now_us - since_us < FORGET_US:
                break
            self._drop(self.writers[name], key, name)

    def _changed(self, name: str, writer: WriterState) -> None:
        self.changes += 1
        writer.change = self.changes
        writer.whole = None
        self.writers[name] = self.writers.pop(name)
        before, writer.term = writer.term, 0
        if writer.seen >= writer.since:
            since, seen = _factors(name)
            writer.term = since * writer.since + seen * writer.seen
        self._sum += writer.term - before

    def _keep(self, now_us: int, writer: WriterState, entry: CatalogEntry) -> None:
        key = entry.kind, entry.name
        if key in writer.entries:
            self._drop(writer, key, entry.writer)
        writer.entries[key] = entry
        self.by_key[key] = (*self.by_key.get(key, ()), entry.writer)
        self._nbytes += len(entry.body)
        if entry.gone:
            self._gone[entry.writer, key] = now_us

    def _drop(self, writer: WriterState, key: Key, name: str) -> None:
        old = writer.entries.pop(key, None)
        if old is None:
            return
        writer.whole = None
        self._nbytes -= len(old.body)
        self._gone.pop((name, key), None)
        writers = tuple(each for each in self.by_key[key] if each != name)
        if writers:
            self.by_key[key] = writers
        else:
            del self.by_key[key]

    def _may(self, writer: WriterState, entry: CatalogEntry) -> bool:
        """Whether an entry is one that its writer may write; others are counted and left out."""
        code = ""
        if entry.kind == "node" and entry.name != entry.writer:
            code = "E_WRITER"
        elif self._is_too_much(writer, entry):
            code = "E_LIMIT"
        if code:
            self._count(code)
            self._drop(writer, (entry.kind, entry.name), entry.writer)
        return not code

    def _is_too_much(self, writer: WriterState, entry: CatalogEntry) -> bool:
        known = writer.entries.get((entry.kind, entry.name))
        if known is None and len(writer.entries) >= ENTRIES_PER_WRITER:
            return True
        more = len(entry.body) - (0 if known is None else len(known.body))
        return more > 0 and self._nbytes + more > BYTES_MAX


def _is_over(entry: CatalogEntry, wall_us: int | None) -> bool:
    return entry.kind == "node" and is_over(entry.writer, entry.epoch, wall_us)
