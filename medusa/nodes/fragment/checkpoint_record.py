"""What a checkpoint holds beside the state of the engine: positions, and output not yet durable.

The rows of the output lie in the file ``log`` of the checkpoint in which they were first stored,
and are not written again; the record says in which and where. A checkpoint so costs the state plus
the output since the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import StateError
from medusa.nodes.upstream_backup.records import MarksRecord
from medusa.ports import Buffer
from medusa.wire import limits
from medusa.wire.link.output_log import OutputEntry
from medusa.wire.messages.base import Count, Name, StreamTime

__all__ = ["LOG", "RECORD", "EntryRecord", "FragmentRecord", "InputRecord", "OutputRecord", "read_record"]

RECORD = "positions"
LOG = "log"
VERSION = 1

_ShedPlaces = Annotated[dict[Name, Count], Meta(max_length=limits.PLACES_MAX)]


class InputRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far one stream was fed: the next row wanted, the promise that stood, the sender's note.

    ``peer`` of a named publisher is its key (``wire.link.named_subscriptions``), ``holder`` the client that
    has the name, ``ousted`` those that had it last, oldest first: none of them has it again.
    ``life``: of the stream, as its sender said; 0: unknown.
    ``acknowledged``: the sender was told that rows below it are durable; -1: unknown.
    ``shed``: rows left out of what it brought.
    """

    source: str
    peer: str
    next_seq: Count
    boundary_us: StreamTime
    note: bytes = b""
    holder: str = ""
    ousted: tuple[str, ...] = ()
    life: Count = 0
    acknowledged: Annotated[int, Meta(ge=-1, le=limits.SEQ_MAX)] = -1
    shed: Count = 0


class EntryRecord(msgspec.Struct, frozen=True, array_like=True):
    """A train or boundary of the output; the payload of a train lies in ``log`` of ``token``."""

    seq: int
    end: int
    time_us: int | None = None
    late: bool = False
    tentative: bool = False
    token: int = 0
    offset: int = 0
    nbytes: int = 0


class OutputRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One stream: what is kept of it, what each receiver holds durably, the notes that they left.

    ``segments`` are tokens of groups with output and nothing else: that stays on disk until it is wanted.
    ``again`` rows at the end of it came from a fragment whose place this one took, and come once more out of
    the state that lies beside it. ``life``: which time the stream was begun; 0: unknown. ``held`` entries at
    the end of it hadn't left: where others stand by, whoever begins from it holds them until those have what
    they came of.
    """

    sink: str
    first_seq: int
    first_boundary_us: int
    entries: tuple[EntryRecord, ...]
    receivers: dict[str, int]
    notes: dict[str, bytes] = {}
    segments: tuple[int, ...] = ()
    again: int = 0
    life: int = 0
    held: int = 0

    @property
    def next_seq(self) -> int:
        """The number of the next row."""
        return max((entry.end for entry in self.entries), default=self.first_seq)


class FragmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint of one fragment.

    Attributes:
        token: of this checkpoint; they grow.
        fragment: whose it is.
        mixed: its output depends on the order in which its inputs came, so output waits until that
            order is on disk.
        fed_us: the last boundary fed to each source that publishers feed.
        decided: the number of the next decision (``nodes.fragment.input_log``).
        spec: of the fragment, as it was then; empty: an earlier version wrote this.
        coordinator: the node that deployed its query.
        epoch: of the fragment here; 0: it wasn't this node's yet.
        marks: of one that is recovered by upstream backup.
        shed: source -> place, here or in a fragment whose place this one took -> rows left out there.
    """

    token: int
    fragment: str
    mixed: bool
    inputs: tuple[InputRecord, ...]
    outputs: tuple[OutputRecord, ...]
    fed_us: dict[str, int]
    decided: int = 0
    spec: bytes = b""
    coordinator: str = ""
    epoch: int = 0
    version: int = VERSION
    marks: MarksRecord | None = None
    shed: Annotated[dict[Name, _ShedPlaces], Meta(max_length=limits.PLACES_MAX)] = {}

    @property
    def rows_in(self) -> int:
        """The sum of the numbers of the next rows of its inputs."""
        return sum(input.next_seq for input in self.inputs)

    @property
    def rows_out(self) -> int:
        """The same of its outputs."""
        return sum(output.next_seq for output in self.outputs)

    def segments(self) -> set[int]:
        """Of these, the segments."""
        return {token for output in self.outputs for token in output.segments}

    def tokens(self) -> tuple[int, ...]:
        """The checkpoints whose ``log`` is needed, ascending."""
        needed = {e.token for output in self.outputs for e in output.entries if e.time_us is None}
        return tuple(sorted(needed))

    def to_bytes(self) -> bytes:
        fields = msgspec.structs.asdict(self)
        if self.marks is None:  # As others write it.
            del fields["marks"]
        return msgspec.msgpack.encode(fields)


_RECORDS = msgpack_decoder(FragmentRecord)


def read_record(data: Buffer, *, where: str) -> FragmentRecord:
    """Read a record back.

    Raises:
        StateError: it is damaged, or of another version.
    """
    try:
        record = _RECORDS.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"{where} is damaged: {error}", code="state.record") from None
    if record.version != VERSION:
        raise StateError(
            f"{where} has version {record.version}, this program reads {VERSION}", code="state.version"
        )
    return record


def entries_from(output: OutputRecord, logs: Mapping[int, Buffer], *, where: str) -> list[OutputEntry]:
    """The entries of one stream, with the payloads from the logs; without those that are in segments.

    Raises:
        StateError: a log is missing or too short.
    """
    made: list[OutputEntry] = []
    for entry in output.entries:
        payload: Buffer | None = None
        spilled = entry.time_us is None and entry.token in output.segments and entry.nbytes > 0
        if entry.time_us is None and not spilled:
            log = memoryview(logs.get(entry.token, b""))
            payload = log[entry.offset : entry.offset + entry.nbytes]
            if not entry.nbytes or len(payload) != entry.nbytes:
                raise StateError(
                    f"{where}: output of checkpoint {entry.token} is missing", code="state.record"
                )
        made.append(
            OutputEntry(
                seq=entry.seq,
                end=entry.end,
                promise_us=0,
                cost=entry.nbytes + limits.ENTRY_BYTES if spilled else 0,
                payload=payload,
                late=entry.late,
                tentative=entry.tentative,
                time_us=entry.time_us,
            )
        )
    return made
