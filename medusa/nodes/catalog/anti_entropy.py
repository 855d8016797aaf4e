"""How the nodes of a participant come to know the same of its catalog. Pure.

What a node writes it pushes to its direct peers. All else goes by comparing, with a few peers at a time, in
turn: a *probe* is a hash of all that is known, and how far the two know each other. Where hashes differ, each
says of which nodes it has news since it last told the other so (Demers et al., "Epidemic algorithms for
replicated database maintenance", 1987: rumours, and anti-entropy with checksums and recent updates), and both
send what the other lacks. Only where that settles nothing, and where two meet, one names all nodes. So two
that agree say some hundred bytes, however much they know; and a change costs what changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from zlib import crc32

import msgspec

from medusa.nodes.catalog.replica_state import ReplicaState
from medusa.wire import limits
from medusa.wire.messages.directory import (
    ALL,
    NEWS,
    US,
    Digest,
    Entries,
    EntryRun,
    Seen,
    runs_to,
    seen_to,
)
from medusa.wire.outbox import Outbox

__all__ = ["AntiEntropy"]

ROUND_US = 1_000_000
"""So often a node compares with a few peers."""

SOON_US = 250_000
"""The same, where something changed since the last round."""

PEERS_PER_ROUND = 3
PROBES_IN_VAIN = 32
"""A peer that knew something else so often in a row: perhaps what was told got lost."""

IN_VAIN = 3
"""A peer of which nothing came after so many probes has to speak."""

NAMED_PER_ROUND = 100_000
"""So many nodes are named in a second where all are named: a start of a thousand neighbours at once ends
within seconds, and who asks for it again and again gets no more."""


@dataclass(slots=True)
class _Peer:
    """
    Attributes:
        knows: the version up to which it has what we wrote; None: not known yet.
        told: after how many changes it knew all that we know, as far as we told; None: never.
        in_vain: probes in a row that found a difference.
        heard_us: when it last probed: then we need not.
        asked: so often did we probe it and haven't heard a word of it yet; None: we have.
    """

    knows: int | None = None
    told: int | None = None
    in_vain: int = 0
    heard_us: int = -ROUND_US
    asked: int | None = 0


class AntiEntropy:
    """One node's part in it.

    Attributes:
        peers: those that are there.
    """

    def __init__(self, written: ReplicaState, outbox: Outbox) -> None:
        self.peers: dict[str, _Peer] = {}
        self._written = written
        self._outbox = outbox
        self._doubts: dict[str, int] = {}
        """Peers of whose writing we know more than they do -> since when."""
        self._round_us = crc32(written.node.encode()) % ROUND_US - ROUND_US
        self._changes = 0
        self._may_name = NAMED_PER_ROUND
        self._refilled_us = 0

    def up(self, peer: str) -> None:
        """A node of the same participant is there."""
        self.peers[peer] = _Peer()
        self._say(peer, answer=True)

    def down(self, peer: str) -> None:
        """It isn't any more."""
        self.peers.pop(peer, None)
        self._doubts.pop(peer, None)

    # --- what others say ---------------------------------------------------------------------------------

    def compare(self, now_us: int, peer: str, message: Digest, seen: Seen) -> None:
        """Send what a peer lacks, ask for what we lack, say what is new to it."""
        known = self.peers.get(peer)
        if known is None:
            return  # It will be: then we speak first.
        written = self._written
        known.asked = None
        if message.answer and message.covers == US:
            known.heard_us = now_us
        if written.node in seen:
            known.knows = seen[written.node]
        self._doubt(now_us, peer, seen)
        names, behind = written.compare(seen)
        lacks = {
            name: have
            for name, have in behind.items()
            if name != written.node and (name == peer or name not in self.peers)
        }
        if message.covers == ALL:
            names += [name for name in written.all_seen() if name not in seen]
        self.send(peer, written.runs(seen, names))
        if message.digest == written.digest():
            known.told, known.in_vain = written.changes, 0
            if message.answer and written.node not in seen:
                self._say(peer)  # It hasn't heard us yet.
        elif message.answer:
            settled = not names and not lacks and len(seen) <= 2
            self._tell(peer, known, message, lacks, idle=settled and message.covers == NEWS)
        elif lacks:
            self._say(peer, lacks)
        if message.covers == ALL:
            known.told = written.changes

    def _tell(self, peer: str, known: _Peer, message: Digest, lacks: Seen, *, idle: bool) -> None:
        """Say what is new since the last time; all, where that isn't enough."""
        if message.covers == US:
            known.in_vain += 1
        if known.told is not None:
            news = self._written.news(known.told)
            if not (idle and not news) and known.in_vain < PROBES_IN_VAIN:
                known.told = self._written.changes
                self._say(peer, news | lacks, covers=NEWS, answer=message.covers == US)
                return
        known.told, known.in_vain = None, 0
        if not self.say_all(peer) and lacks:
            self._say(peer, lacks)

    def _doubt(self, now_us: int, peer: str, seen: Seen) -> None:
        """Others may have told us of what it never wrote. Said once, it may be an old word of it."""
        if peer not in seen:
            return
        if seen[peer] >= self._written.seen(peer):
            self._doubts.pop(peer, None)
        elif now_us - self._doubts.setdefault(peer, now_us) >= ROUND_US // 2:
            del self._doubts[peer]
            self._written.anew(peer)
            self._say(peer)

    # --- what we say --------------------------------------------------------------------------------------

    def ask(self, peer: str, names: list[str]) -> None:
        """Have it send again what these nodes wrote, from what we know on."""
        self._say(peer, {name: self._written.seen(name) for name in names})

    def say_all(self, peer: str) -> bool:
        """Name all nodes: what we lack of them, or it does, is then sent; False: not now."""
        seen = self._written.all_seen()
        if len(seen) > self._may_name:
            return False
        self._may_name -= len(seen)
        known = self.peers.get(peer)
        if known is not None:
            known.told = self._written.changes
        self._say(peer, seen, covers=ALL)
        return True

    def _say(
        self,
        peer: str,
        seen: Seen | None = None,
        *,
        covers: int = US,
        answer: bool = False,
        knows: bool = True,
    ) -> None:
        written = self._written
        both = {} if seen is None else seen
        if knows:
            both[peer] = written.seen(peer)
        both[written.node] = written.seen(written.node)
        message = Digest(digest=written.digest(), answer=answer, covers=covers)
        self._outbox.send(peer, message, seen_to(both))

    def send(self, peer: str, runs: list[EntryRun]) -> None:
        """As much as fits one message; the peer asks for more."""
        taken: list[EntryRun] = []
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
                if run.writer == self._written.node and peer in self.peers:
                    self.peers[peer].knows = run.upto

    # --- time -----------------------------------------------------------------------------------------

    def push(self) -> None:
        """Tell peers what we wrote since the last time."""
        own = self._written.own
        for peer, known in self.peers.items():
            if known.knows is not None and known.knows < own.seen:
                self.send(peer, [self._written.run(self._written.node, known.knows)])

    def tick(self, now_us: int) -> bool:
        """Compare with the next few peers, when it is time; whether it was."""
        if now_us < self._due_us():
            return False
        began_us, self._round_us, self._changes = self._round_us, now_us, self._written.changes
        if now_us >= self._refilled_us + ROUND_US:
            self._refilled_us, self._may_name = now_us, NAMED_PER_ROUND
        for peer in list(islice(self.peers, PEERS_PER_ROUND)):
            known = self.peers[peer] = self.peers.pop(peer)
            if known.heard_us <= began_us:
                self._probe(peer, known)
        return True

    def _probe(self, peer: str, known: _Peer) -> None:
        """Who knows the same answers nothing. Before we have heard a peer once that is too little: its first
        word was lost, and nobody can tell whether it has said all. So we leave out how far we know it."""
        unheard = known.asked is not None and known.asked >= IN_VAIN
        if known.asked is not None:
            known.asked += 1
        self._say(peer, answer=True, knows=not unheard)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._due_us() if self.peers else None

    def _due_us(self) -> int:
        return self._round_us + (ROUND_US if self._changes == self._written.changes else SOON_US)
