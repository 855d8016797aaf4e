"""The replicated part of the catalog, inside one participant: every node holds all of it. Pure.

Each node writes of what it owns, and only that: its entries are a map of its own, of which all others hold
a copy. What all of them write is numbered per node, so a node knows with one number per writer what it has
seen (Golding's timestamped anti-entropy, 1992; van Renesse et al., "Efficient reconciliation and flow
control for anti-entropy protocols", 2008). A *run* brings everything of one writer after a number, so a run
that was lost shows: the next one begins beyond what was seen, and is asked for again.

Where two nodes have written of the same thing, the higher epoch counts: who takes a thing over writes a
higher one. So every copy comes to the same, in whatever order news arrive. The directory mirrors; it never
decides who owns what.

A node that starts writes all anew: what it wrote in earlier lives stands no more (``Run.since``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter

import msgspec

from medusa.errors import RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.messages_directory import (
    Digest,
    Entries,
    Entry,
    Run,
    Seen,
    runs_from,
    runs_to,
    seen_from,
    seen_to,
)
from medusa.wire.outbox import Outbox

__all__ = ["Directory", "Entry"]

VERSIONS_PER_LIFE = 1 << 28
"""The numbers of what a node writes begin at this times its incarnation."""

DIGEST_EVERY_US = 1_000_000
"""Each peer hears so often what we have seen."""

FORGET_US = 24 * 3_600_000_000
"""What is gone is remembered so long; a node that was away for longer hears of it when its writer starts
anew."""

ENTRIES_PER_WRITER = 10_000
BYTES_MAX = 64 << 20
"""Of all bodies; with the count, what the others can make us hold."""

Key = tuple[str, str]
"""(kind, name)."""


@dataclass(slots=True)
class _Writer:
    """What one node wrote, as far as we know."""

    since: int = 0
    seen: int = 0
    entries: dict[Key, Entry] = field(default_factory=dict)


class Directory:
    """One node's copy.

    Args:
        node: its name.
        incarnation: larger than in any earlier life.
        count: told the code of each entry or run that was refused.

    Attributes:
        changed: something was learned or written since the driver of this last set it back.
    """

    def __init__(
        self,
        node: str,
        *,
        incarnation: int,
        outbox: Outbox,
        count: Callable[[str], None] = lambda code: None,
    ) -> None:
        self.node = node
        self.changed = False
        self._outbox = outbox
        self._count = count
        base = incarnation * VERSIONS_PER_LIFE
        self._own = _Writer(since=base + 1, seen=base)
        self._writers: dict[str, _Writer] = {node: self._own}
        self._by_key: dict[Key, dict[str, None]] = {}
        self._nbytes = 0
        self._gone: dict[tuple[str, Key], int] = {}
        """What is gone -> when we heard so."""
        self._peers: dict[str, int | None] = {}
        """Peers that are there -> the version up to which they have what we wrote; None: not known yet."""
        self._doubts: dict[str, int] = {}
        """Peers of whose writing we know more than they do -> since when."""
        self._digest: bytes | None = None
        self._digest_at_us = 0
        self._unsaid = False

    # --- names ------------------------------------------------------------------------------------

    def find(self, kind: str, name: str) -> Entry | None:
        """What stands; of several versions of a stream the lowest."""
        return next(iter(self.versions(kind, name)), None)

    def versions(self, kind: str, name: str) -> list[Entry]:
        """Of each version of a stream the entry that stands, by version."""
        found: dict[int, Entry] = {}
        gone: dict[int, int] = {}
        for entry in self._of(kind, name):
            at = entry.stream_version
            if entry.gone:
                gone[at] = max(gone.get(at, 0), entry.epoch)
            elif at not in found or _rank(entry) > _rank(found[at]):
                found[at] = entry
        return [entry for at, entry in sorted(found.items()) if entry.epoch >= gone.get(at, 0)]

    def holders(self, kind: str, name: str) -> list[Entry]:
        """All that stand, by node: a source that was put at several nodes is at each of them."""
        gone = max((each.epoch for each in self._of(kind, name) if each.gone), default=0)
        standing = [each for each in self._of(kind, name) if not each.gone and each.epoch >= gone]
        return sorted(standing, key=attrgetter("writer"))

    def where(self, stream: str) -> str | None:
        """The node that has a stream."""
        entry = self.find("stream", stream)
        return None if entry is None else entry.writer

    def entries(self, kind: str | None = None) -> list[Entry]:
        """All that stand, of one kind or of all, by kind, name and version of the stream."""
        keys = sorted(key for key in self._by_key if kind is None or key[0] == kind)
        return [entry for key in keys for entry in self.versions(*key)]

    def standing(self, kind: str) -> list[Entry]:
        """All of a kind that stand, at whatever nodes."""
        keys = sorted(key for key in self._by_key if key[0] == kind)
        return [entry for key in keys for entry in self.holders(*key)]

    def own(self) -> dict[Key, Entry]:
        """What this node wrote in this life and stands."""
        return {key: entry for key, entry in self._own.entries.items() if not entry.gone}

    def own_epoch(self, kind: str, name: str) -> int:
        """Of what this node wrote and stands; else 1."""
        entry = self._own.entries.get((kind, name))
        return 1 if entry is None or entry.gone else entry.epoch

    def _of(self, kind: str, name: str) -> Iterable[Entry]:
        key = kind, name
        return (self._writers[writer].entries[key] for writer in self._by_key.get(key, ()))

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
        before = self._own.entries.get((kind, name))
        if before is not None:
            same = before.body, before.stream_version, before.gone
            if same == (body, stream_version, False) and before.epoch >= epoch:
                return
            if not before.gone:
                epoch = max(epoch, before.epoch)
        self._write(now_us, kind, name, epoch, body=body, stream_version=stream_version)

    def remove(self, now_us: int, kind: str, name: str, epoch: int = 0) -> None:
        """Write that something which this node owned is gone, or another's now; unknown: nothing."""
        before = self._own.entries.get((kind, name))
        if before is not None and not before.gone:
            epoch = max(epoch, before.epoch)
            self._write(now_us, kind, name, epoch, gone=True, stream_version=before.stream_version)

    def _write(
        self,
        now_us: int,
        kind: str,
        name: str,
        epoch: int,
        *,
        stream_version: int,
        body: bytes = b"",
        gone: bool = False,
    ) -> None:
        self._own.seen += 1
        entry = Entry(
            kind=kind,
            name=name,
            writer=self.node,
            epoch=epoch,
            version=self._own.seen,
            body=body,
            gone=gone,
            stream_version=stream_version,
        )
        self._keep(now_us, self._own, entry)
        self._unsaid = True

    def _keep(self, now_us: int, writer: _Writer, entry: Entry) -> None:
        key = entry.kind, entry.name
        self._drop(writer, key, entry.writer)
        writer.entries[key] = entry
        self._by_key.setdefault(key, {})[entry.writer] = None
        self._nbytes += len(entry.body)
        if entry.gone:
            self._gone[entry.writer, key] = now_us
        self._touched()

    def _drop(self, writer: _Writer, key: Key, name: str) -> None:
        old = writer.entries.pop(key, None)
        if old is None:
            return
        self._nbytes -= len(old.body)
        self._gone.pop((name, key), None)
        writers = self._by_key[key]
        writers.pop(name, None)
        if not writers:
            del self._by_key[key]

    def _touched(self) -> None:
        self.changed = True
        self._digest = None

    # --- peers ------------------------------------------------------------------------------------------

    def peer_up(self, now_us: int, peer: str) -> None:
        """A node of the same participant is there: it hears what we have seen."""
        self._peers[peer] = None
        self._say_seen(peer, answer=True)

    def peer_down(self, peer: str) -> None:
        """It isn't any more."""
        self._peers.pop(peer, None)
        self._doubts.pop(peer, None)

    def receive(self, now_us: int, peer: str, message: Entries | Digest, payload: Buffer | None) -> None:
        """Take news of a node of the same participant.

        Raises:
            RemoteProtocolError: malformed, or too much; nothing changed.
        """
        if isinstance(message, Digest):
            seen = None if payload is None else seen_from(payload)
            self._compare(now_us, peer, message, seen)
            return
        if payload is None:
            raise RemoteProtocolError("entries without entries", peer=peer, code="E_FRAME")
        runs = runs_from(payload)
        missed = [self._take(now_us, peer, run) for run in runs]
        if message.more or any(missed):
            self._say_seen(peer, answer=False)

    def _take(self, now_us: int, peer: str, run: Run) -> bool:
        """One run; True where something before it is missing."""
        if run.writer == self.node:
            if run.upto > self._own.seen:
                self._count("E_WRITER")  # Nobody else says what we wrote.
            return False
        if run.writer != peer and run.writer in self._peers:
            return False  # It is there, and says itself what it writes.
        writer = self._writers.get(run.writer)
        if writer is None:
            if len(self._writers) >= limits.WRITERS_MAX:
                self._count("E_LIMIT")
                return False
            writer = self._writers[run.writer] = _Writer()
        if run.since < writer.since and run.writer == peer:
            writer = self._anew(peer)  # It should know: others had told us of a life that it hasn't had.
        if run.since < writer.since or run.upto <= writer.seen:
            return False
        if run.after > max(writer.seen, run.since - 1):
            return True
        if run.since > writer.since:
            for key in [key for key, entry in writer.entries.items() if entry.version < run.since]:
                self._drop(writer, key, run.writer)
            writer.since = run.since
        for entry in run.entries:
            if entry.version > writer.seen and entry.version >= run.since and self._may(writer, entry):
                self._keep(now_us, writer, entry)
        writer.seen = run.upto
        self._touched()
        return False

    def _anew(self, name: str) -> _Writer:
        """Forget all that a node wrote."""
        writer = self._writers[name]
        for key in list(writer.entries):
            self._drop(writer, key, name)
        self._touched()
        made = self._writers[name] = _Writer()
        return made

    def _may(self, writer: _Writer, entry: Entry) -> bool:
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

    def _is_too_much(self, writer: _Writer, entry: Entry) -> bool:
        known = (entry.kind, entry.name) in writer.entries
        if not known and len(writer.entries) >= ENTRIES_PER_WRITER:
            return True
        return self._nbytes + len(entry.body) > BYTES_MAX

    def _doubt(self, now_us: int, peer: str, seen: Seen) -> None:
        """Others may have told us of what it never wrote. Said once, it may be an old word of it."""
        writer = self._writers.get(peer)
        if writer is None or seen.get(peer, 0) >= writer.seen:
            self._doubts.pop(peer, None)
        elif now_us - self._doubts.setdefault(peer, now_us) >= DIGEST_EVERY_US // 2:
            del self._doubts[peer]
            self._anew(peer)
            self._say_seen(peer, answer=False)

    def _compare(self, now_us: int, peer: str, message: Digest, seen: Seen | None) -> None:
        if seen is None:
            if message.digest != self.digest():
                self._say_seen(peer, answer=True)
            return
        if peer in self._peers:
            self._peers[peer] = seen.get(self.node, 0)
        self._doubt(now_us, peer, seen)
        self._send(peer, self._news(seen))
        if message.answer and message.digest != self.digest():
            self._say_seen(peer, answer=False)

    def digest(self) -> bytes:
        """A hash of what we have seen: equal where the same is known."""
        if self._digest is None:
            state = blake2b(digest_size=16)
            for name in sorted(self._writers):
                writer = self._writers[name]
                if writer.seen >= writer.since:
                    state.update(f"{name} {writer.since} {writer.seen}\n".encode())
            self._digest = state.digest()
        return self._digest

    def _say_seen(self, peer: str, *, answer: bool) -> None:
        seen = {name: writer.seen for name, writer in self._writers.items() if writer.seen >= writer.since}
        self._outbox.send(peer, Digest(digest=self.digest(), answer=answer), seen_to(seen))

    def _news(self, seen: Seen) -> list[Run]:
        """What somebody lacks who has seen this."""
        return [
            self._run(name, writer, seen.get(name, 0))
            for name, writer in self._writers.items()
            if writer.seen > seen.get(name, 0) and writer.seen >= writer.since
        ]

    def _run(self, name: str, writer: _Writer, after: int) -> Run:
        after = max(after, writer.since - 1)
        entries = sorted((e for e in writer.entries.values() if e.version > after), key=attrgetter("version"))
        return Run(writer=name, since=writer.since, after=after, upto=writer.seen, entries=tuple(entries))

    def _send(self, peer: str, runs: list[Run]) -> None:
        """As much as fits one message; the peer asks for more."""
        taken: list[Run] = []
        room, more = limits.RUNS_BYTES_MAX - 1024, False
        for run in runs:
            fitting = 0
            room -= 100 + len(run.writer)
            for entry in run.entries[: limits.ENTRIES_MAX]:
                room -= 64 + 4 * len(entry.name) + len(entry.writer) + len(entry.body)
                if room < 0:
                    break
                fitting += 1
            if fitting == len(run.entries) and room >= 0:
                taken.append(run)
                continue
            more = True
            if fitting:
                part = run.entries[:fitting]
                taken.append(msgspec.structs.replace(run, upto=part[-1].version, entries=part))
            if room < 0:
                break
        if taken:
            self._outbox.send(peer, Entries(more=more), runs_to(tuple(taken)))
            for run in taken:
                if run.writer == self.node and peer in self._peers:
                    self._peers[peer] = run.upto

    # --- time -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell peers what we wrote since the last time."""
        if not self._unsaid:
            return
        self._unsaid = False
        for peer, known in self._peers.items():
            if known is not None and known < self._own.seen:
                self._send(peer, [self._run(self.node, self._own, known)])

    def tick(self, now_us: int) -> None:
        """Tell what we wrote, and now and then what we have seen; forget what is long gone."""
        self.flush()
        if now_us < self._digest_at_us:
            return
        self._digest_at_us = now_us + DIGEST_EVERY_US
        for peer in self._peers:
            self._outbox.send(peer, Digest(digest=self.digest()))
        for (name, key), since_us in list(self._gone.items()):
            if now_us - since_us < FORGET_US:
                break
            self._drop(self._writers[name], key, name)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._digest_at_us if self._peers else None

    # --- file -----------------------------------------------------------------------------------------

    def runs(self) -> tuple[Run, ...]:
        """What we know of others, for ``load`` in the next life."""
        return tuple(run for run in self._news({}) if run.writer != self.node)

    def load(self, now_us: int, runs: Iterable[Run]) -> None:
        """Take up what an earlier life knew of others; nothing was taken or written yet."""
        for run in runs:
            self._take(now_us, run.writer, run)
        self.changed = False


def _rank(entry: Entry) -> tuple[int, int, str]:
    return entry.epoch, entry.version, entry.writer
