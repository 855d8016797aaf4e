"""The output of one stream, kept until every receiver holds durably what came of it.

    trimmed |  train 90..99 | boundary | train 100..149 | boundary |  <- append
            ^ start_seq = 90                                        ^ next_seq = 150

A position in the log is an *index* that never changes: entry ``i`` stands at ``i - base``. A
boundary that follows a boundary takes its place, so boundaries can't outnumber trains. But the end: what
was promised before it says up to which time timers set each other, and a receiver has to hear that first.
So the end has an entry of its own, which stays, for whoever attaches or comes back later.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from medusa.elements import END_US, START_US
from medusa.errors import LocalProtocolError
from medusa.ports import Buffer
from medusa.wire import limits

__all__ = ["OutputEntry", "OutputLog"]


@dataclass(slots=True, kw_only=True)
class OutputEntry:
    """A train or a boundary (``time_us`` set).

    Attributes:
        seq: position of the first row; of a boundary, the position it stands before.
        end: position after the last row; of a boundary, ``seq``.
        promise_us: the boundary in force before this entry.
        cost: bytes it counts for, in credit and retention.
        payload: of a train; None: it is on disk only, or ``lost`` there.
        note: goes with it.
    """

    seq: int
    end: int
    promise_us: int
    cost: int
    payload: Buffer | None = None
    late: bool = False
    tentative: bool = False
    time_us: int | None = None
    note: bytes = b""
    lost: bool = False

    @property
    def plain(self) -> bool:
        """Rows in memory, and nothing that is said of them."""
        return self.payload is not None and not (self.late or self.tentative or self.note)

    @property
    def away(self) -> int:
        """Bytes of its rows that aren't in memory."""
        return self.cost - limits.ENTRY_BYTES if self.payload is None and self.time_us is None else 0


_GONE = OutputEntry(seq=0, end=0, promise_us=0, cost=0, time_us=0)


class OutputLog:
    """Entries in order; positions checked; bytes counted.

    Invariants: ``start_seq <= next_seq``; entries are contiguous in ``seq`` from ``start_seq`` to
    ``next_seq``, but for numbers that were skipped; boundaries only grow; ``nbytes`` is the sum of the costs,
    ``spilled_bytes`` that of what is away. The end, once it is the last entry, is never trimmed.
    """

    def __init__(self, *, first_seq: int = 0, boundary_us: int = START_US) -> None:
        self._entries: list[OutputEntry] = []
        self._ends: list[int] = []
        self._dead = 0
        """Places at the front that were forgotten; removed together, so that each costs little."""
        self.base = 0
        """Index of the first entry held."""
        self.start_seq = first_seq
        """Position of the first row held, or of the next where none is."""
        self.next_seq = first_seq
        self.boundary_us: int = boundary_us
        """The last promise."""
        self.nbytes = 0
        self.spilled_bytes = 0
        """Of those, rows that aren't in memory."""

    @property
    def memory_bytes(self) -> int:
        """What is in memory."""
        return self.nbytes - self.spilled_bytes

    @property
    def end(self) -> int:
        """The index of the next entry."""
        return self.base + len(self._entries) - self._dead

    def __getitem__(self, index: int) -> OutputEntry:
        assert index >= self.base, "entry was trimmed"
        return self._entries[index - self.base + self._dead]

    def append_train(
        self, payload: Buffer, rows: int, *, late: bool = False, tentative: bool = False, note: bytes = b""
    ) -> None:
        """Append encoded rows.

        Raises:
            LocalProtocolError: no rows, or more bytes than a frame may have. Nothing changed.
        """
        self._append_train(
            memoryview(payload).nbytes, rows, payload=payload, late=late, tentative=tentative, note=note
        )

    def append_spilled(self, nbytes: int, rows: int, *, late: bool = False, tentative: bool = False) -> None:
        """Append rows that are on disk; only when the log is loaded.

        Raises:
            LocalProtocolError: as ``append_train``.
        """
        self._append_train(nbytes, rows, payload=None, late=late, tentative=tentative, note=b"")

    def _append_train(
        self, nbytes: int, rows: int, *, payload: Buffer | None, late: bool, tentative: bool, note: bytes
    ) -> None:
        if not 1 <= rows <= limits.ROWS_MAX or nbytes > limits.PAYLOAD_BYTES_MAX:
            raise LocalProtocolError(
                f"a train of {rows:,} rows and {nbytes:,} bytes",
                hint=f"1 to {limits.ROWS_MAX:,} rows, at most {limits.PAYLOAD_BYTES_MAX:,} bytes",
                code="E_LIMIT",
            )
        self._append(
            OutputEntry(
                seq=self.next_seq,
                end=self.next_seq + rows,
                promise_us=self.boundary_us,
                cost=nbytes + limits.ENTRY_BYTES + len(note),
                payload=payload,
                late=late,
                tentative=tentative,
                note=note,
            )
        )
        self.next_seq += rows

    def skip_to(self, seq: int) -> None:
        """The next row has this number: no row has those before it that aren't here."""
        assert seq >= self.next_seq, "rows have these numbers"
        self.next_seq = seq

    def append_boundary(self, time_us: int, note: bytes = b"") -> int | None:
        """Append a promise; the index where it stands, or None where it adds nothing.

        Raises:
            LocalProtocolError: it is below the last one, or no time. Nothing changed.
        """
        if not self.boundary_us <= time_us <= END_US:
            raise LocalProtocolError(
                f"a boundary of {time_us} after one of {self.boundary_us}",
                hint="boundaries of a stream never decrease",
                code="E_BOUNDARY",
            )
        if time_us == self.boundary_us:
            return None
        before_us, self.boundary_us = self.boundary_us, time_us
        if self.end > self.base and self._entries[-1].time_us is not None and time_us < END_US:
            last = self._entries[-1]
            note = note or last.note
            # A fresh entry, since the old one may stand in an effect that is not yet done.
            self._entries[-1] = OutputEntry(
                seq=last.seq,
                end=last.end,
                promise_us=last.promise_us,
                cost=limits.ENTRY_BYTES + len(note),
                time_us=time_us,
                note=note,
            )
            self.nbytes += len(note) - len(last.note)
            return self.end - 1
        self._append(
            OutputEntry(
                seq=self.next_seq,
                end=self.next_seq,
                promise_us=before_us,
                cost=limits.ENTRY_BYTES + len(note),
                time_us=time_us,
                note=note,
            )
        )
        return self.end - 1

    def _append(self, entry: OutputEntry) -> None:
        self._entries.append(entry)
        self._ends.append(entry.end)
        self.nbytes += entry.cost
        self.spilled_bytes += entry.away

    def put_away(self, index: int) -> None:
        """Forget the payload of a train that is on disk."""
        entry = self[index]
        self.spilled_bytes -= entry.away
        entry.payload = None
        self.spilled_bytes += entry.away

    def bring_back(self, index: int, payload: Buffer) -> None:
        """The payload of a train was read from disk."""
        entry = self[index]
        self.spilled_bytes -= entry.away
        entry.payload = payload

    def behind_lost(self, seq: int) -> int:
        """The first row from ``seq`` on that isn't lost, or the end of the log."""
        index = self.find(seq)
        while index < self.end and self[index].lost:
            seq = self[index].end
            index = self.find(seq)
        return seq

    def find(self, seq: int) -> int:
        """Index of the first entry for a receiver that wants row ``seq`` next.

        It is the first entry that ends beyond ``seq``; boundaries at ``seq`` before it are covered
        by ``promise``. Where there is none, it is the end, which no promise covers.
        """
        found = self.base - self._dead + bisect_right(self._ends, seq, self._dead)
        return min(found, self.end - self._stays)

    @property
    def _stays(self) -> int:
        """Entries that are never trimmed: the end, if it has come and no row behind it."""
        return int(self.end > self.base and self._entries[-1].time_us == END_US)

    def promise(self, index: int) -> int:
        """The boundary in force before entry ``index`` (which may be ``end``)."""
        return self[index].promise_us if index < self.end else self.boundary_us

    def trim(self, seq: int, before: int) -> None:
        """Forget the entries that end at or before ``seq`` and stand before index ``before``."""
        count = min(bisect_right(self._ends, seq, self._dead) - self._dead, before - self.base)
        count = min(count, self.end - self._stays - self.base)
        if count > 0:
            self._forget(count)

    def trim_to(self, nbytes: int, *, least: int = 0) -> None:
        """Forget the oldest entries until at most ``nbytes`` are held, or only ``least`` entries."""
        count, held, least = 0, self.nbytes, max(least, self._stays)
        while held > nbytes and self.base + count + least < self.end:
            held -= self[self.base + count].cost
            count += 1
        if count > 0:
            self._forget(count)

    def _forget(self, count: int) -> None:
        dead = self._dead + count
        gone = self._entries[self._dead : dead]
        self.nbytes -= sum(entry.cost for entry in gone)
        if self.spilled_bytes:
            self.spilled_bytes -= sum(entry.away for entry in gone)
        self.start_seq = gone[-1].end
        self.base += count
        if 2 * dead < len(self._entries):
            self._entries[self._dead : dead] = [_GONE] * count
            self._dead = dead
        else:
            del self._entries[:dead]
            del self._ends[:dead]
            self._dead = 0

    def entries(self) -> list[OutputEntry]:
        """What is held, oldest first; the entries themselves, not to be changed."""
        return self._entries[self._dead :]
