"""Output that is on disk and not in memory: ``at_limit = "spill"`` of a stream.

    trimmed | in segments, payloads away ... | in memory: fetched, or not yet in a segment ... |
            ^ log.base                       ^ spilled_to                                      ^ log.end

From half of the bound on the oldest trains that are in no segment are written into one, and once that is
durable their payloads go. What a receiver wants then is read back, with the rest of its segment, and goes
again when it was sent. Checkpoints refer to segments as to the logs of older checkpoints. Pure: no IO.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from medusa.ports import Buffer
from medusa.wire.link.automaton import SenderState
from medusa.wire.link.sender import Sender
from medusa.wire.outbox import Fetch, Outbox, WriteSegment

__all__ = ["OutputSpilling"]

SEGMENT_BYTES = 8 << 20
"""A segment is about so large, or a quarter of the bound; from where it is wanted on it is read at once.

Too small: many files, and a sync for each; too large: so much more memory while a receiver catches up."""

RETRY_US = 500_000
"""A write or read that failed is tried again after this."""

CHECKPOINTS = 2
"""A segment is deleted when so many in a row don't refer to it."""

READS_MAX = 3
"""Failed reads of a segment after which its rows are lost."""


@dataclass(slots=True, kw_only=True)
class _Segment:
    """One that is being written: index in the log -> offset, in order; and the bytes of each."""

    token: int
    offsets: dict[int, int]
    trains: list[tuple[int, int]]


class OutputSpilling:
    """Moves payloads of one output between memory and disk.

    Args:
        stored: index in the log -> (token, offset); shared with the owner.
        segments: tokens in ``stored`` that are those of segments.

    Attributes:
        spilled_to: every train with a smaller index lies in a segment.
        paused: no segment is begun: what is in memory stays there.
        error: why the last segment couldn't be written; empty: it could.
    """

    def __init__(
        self,
        sender: Sender,
        stored: dict[int, tuple[int, int]],
        *,
        fragment: str,
        outbox: Outbox,
        next_token: Callable[[], int],
        segments: Collection[int] = (),
    ) -> None:
        self._sender = sender
        self.paused = False
        self._stored = stored
        self._fragment = fragment
        self._outbox = outbox
        self._next_token = next_token
        self.error = ""
        self.spilled_to = sender.log.base
        for index, (token, _) in stored.items():
            if token not in segments:
                break
            self.spilled_to = index + 1
        bound = sender.settings.retained_bytes_max
        self._spills = sender.settings.at_limit == "spill"
        self._half, self._most, self._bound = bound // 2, bound // 4 * 3, bound
        self._segment_bytes = min(SEGMENT_BYTES, bound // 4)
        self._segments: dict[int, list[int]] = {}
        """Token -> index behind its last train, and how many checkpoints must not refer to it any more."""
        for index, (token, _) in stored.items():
            if index < self.spilled_to:
                self._segments[token] = [index + 1, CHECKPOINTS]
        self._fresh: deque[tuple[int, int]] = deque()
        """Trains in no segment: index and bytes; counted up to ``_counted``, while that is of interest."""
        self._fresh_bytes = 0
        self._counted = self.spilled_to
        self._writing: _Segment | None = None
        self._write_at_us = 0
        self._written: dict[int, None] = {}
        """Indexes of trains that are in memory and in a segment."""
        self._fetched: dict[int, None] = {}
        """Those that were read back."""
        self._wanted: dict[int, None] = {}
        """What receivers wait for, in the order in which they began to."""
        self._reading: tuple[int, list[int]] | None = None
        self._read_at_us = 0
        self._failures = 0
        sender.fetches_by(self._missing)

    def like(self, sender: Sender, stored: dict[int, tuple[int, int]]) -> OutputSpilling:
        """The same for another output of the same fragment."""
        return OutputSpilling(
            sender, stored, fragment=self._fragment, outbox=self._outbox, next_token=self._next_token
        )

    @property
    def away(self) -> bool:
        """Something is in segments, or on its way there."""
        return bool(self._segments or self._writing or self._reading or self._sender.log.spilled_bytes)

    def pause(self) -> None:
        """Begin no segment: what is in memory stays there."""
        self.paused = True

    def resume(self) -> None:
        """Look after the output again, after another one was to."""
        self.paused = False
        self._sender.fetches_by(self._missing)

    @property
    def writing(self) -> tuple[int, ...]:
        """The token of the segment that is being written, if any."""
        return () if self._writing is None else (self._writing.token,)

    @property
    def outdated(self) -> bool:
        """A segment is there that a checkpoint would let go."""
        base = self._sender.log.base
        return any(end <= base for end, _ in self._segments.values())

    def covered(self, tokens: Collection[int]) -> None:
        """A checkpoint is durable that refers to these groups."""
        base = self._sender.log.base
        for token, known in list(self._segments.items()):
            if token not in tokens and known[0] <= base:
                known[1] -= 1
                if not known[1]:
                    del self._segments[token]

    # --- to disk ------------------------------------------------------------------------------

    def settle(self, now_us: int) -> None:
        """After output was added: let go what may go, write what must be written."""
        log = self._sender.log
        while self._written and log.memory_bytes > self._half:
            index = next(iter(self._written))
            del self._written[index]
            if index >= log.base:
                log.put_away(index)
        if self._spills and log.memory_bytes >= self._half:
            self._write(now_us)

    def tick(self, now_us: int) -> None:
        """Now and then, and after each answer of the disk: also let go what was read back."""
        self.settle(now_us)
        self._let_go()
        if self._wanted:
            self._read(now_us)
        if self.error and self._writing is None and now_us >= self._write_at_us:
            self._write_at_us = now_us + RETRY_US  # There is nothing to write just now.

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work: what failed is tried again."""
        return self._write_at_us if self.error and self._writing is None else None

    def _let_go(self) -> None:
        log = self._sender.log
        views = self._sender.receivers.values()
        flowing = (view.cursor for view in views if view.state is SenderState.FLOWING)
        sent = min(flowing, default=log.end)
        for index in list(self._fetched):
            if log.memory_bytes <= self._half:
                break
            if index < log.base:
                del self._fetched[index]
            elif index < sent or log.memory_bytes > self._most:
                del self._fetched[index]
                log.put_away(index)

    def _write(self, now_us: int) -> None:
        """Begin a segment, if there is enough for one."""
        busy = self.paused or self._writing is not None
        if busy or now_us < self._write_at_us or not self._sender.receivers:
            return
        log = self._sender.log
        for index in range(max(self._counted, log.base), log.end):
            entry = log[index]
            if entry.payload is not None:
                nbytes = memoryview(entry.payload).nbytes
                self._fresh.append((index, nbytes))
                self._fresh_bytes += nbytes
        self._counted = log.end
        while self._fresh and self._fresh[0][0] < log.base:
            self._fresh_bytes -= self._fresh.popleft()[1]
        if not self._fresh or (self._fresh_bytes < self._segment_bytes and log.memory_bytes < self._bound):
            return
        segment = _Segment(token=self._next_token(), offsets={}, trains=[])
        payloads: list[Buffer] = []
        offset = 0
        while self._fresh and offset < self._segment_bytes:
            index, nbytes = self._fresh.popleft()
            payload = log[index].payload
            assert payload is not None, "a train in no segment is in memory"
            payloads.append(payload)
            segment.offsets[index] = offset
            segment.trains.append((index, nbytes))
            offset += nbytes
        self._fresh_bytes -= offset
        self._writing = segment
        self._outbox.append(
            WriteSegment(token=segment.token, fragment=self._fragment, payloads=tuple(payloads))
        )

    def written(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A segment is durable, or not; whether it was ours."""
        segment, log = self._writing, self._sender.log
        if segment is None or segment.token != token:
            return False
        self._writing = None
        if ok:
            if self.error:
                self._outbox.report("info", "output spilled again", stream=self._sender.stream)
            self.error = ""
            for index, offset in segment.offsets.items():
                if index >= log.base:
                    self._stored[index] = token, offset
                    self._written[index] = None
                self.spilled_to = index + 1
            self._segments[token] = [self.spilled_to, CHECKPOINTS]
        else:
            self._fresh.extendleft(reversed(segment.trains))
            self._fresh_bytes += sum(nbytes for _, nbytes in segment.trains)
            if not self.error:
                self._outbox.report("error", "output not spilled", stream=self._sender.stream, why=why)
            self.error = why or "unknown"
            self._write_at_us = now_us + RETRY_US
        self.tick(now_us)
        return True

    # --- and back -----------------------------------------------------------------------------

    def _missing(self, now_us: int, index: int) -> None:
        self._wanted[index] = None
        self._read(now_us)

    def _read(self, now_us: int) -> None:
        """Ask for what was wanted first."""
        if self._reading is not None or now_us < self._read_at_us:
            return
        log = self._sender.log
        while self._wanted:
            index = next(iter(self._wanted))
            del self._wanted[index]
            if not log.base <= index < log.end or not log[index].away or log[index].lost:
                continue
            token = self._stored[index][0]
            indexes: list[int] = []
            while index < log.end:
                entry = log[index]
                if entry.time_us is None:
                    if not entry.away or entry.lost or self._stored[index][0] != token:
                        break
                    indexes.append(index)
                index += 1
            self._reading = token, indexes
            places = tuple((self._stored[index][1], log[index].away) for index in indexes)
            self._outbox.append(Fetch(token=token, fragment=self._fragment, places=places))
            return

    def fetched(self, now_us: int, token: int, payloads: Sequence[Buffer], why: str) -> bool:
        """A ``Fetch`` was answered; whether it was ours.

        Args:
            why: it couldn't be read; empty: it could.
        """
        if self._reading is None or self._reading[0] != token:
            return False
        _, indexes = self._reading
        self._reading = None
        log = self._sender.log
        if why:
            self._failed(now_us, token, why)
        else:
            self._failures = 0
            for index, payload in zip(indexes, payloads, strict=True):
                if index >= log.base and log[index].away:
                    log.bring_back(index, payload)
                    self._fetched[index] = None
        self._sender.settle(now_us)
        self.tick(now_us)
        return True

    def _failed(self, now_us: int, token: int, why: str) -> None:
        """Try again a little later; then give up the rows that are only there."""
        self._failures += 1
        if self._failures < READS_MAX:
            self._read_at_us = now_us + RETRY_US
            return
        self._failures = 0
        log, rows = self._sender.log, 0
        for index, (other, _) in self._stored.items():
            if other == token and index >= log.base and log[index].away and not log[index].lost:
                log[index].lost = True
                rows += log[index].end - log[index].seq
        self._outbox.report("error", "output lost on disk", stream=self._sender.stream, rows=rows, why=why)
