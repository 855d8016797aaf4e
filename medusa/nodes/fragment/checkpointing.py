"""What a checkpoint of a fragment holds, and what becomes true once it is durable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord
from medusa.nodes.fragment.input_log_records import Decision
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_to
from medusa.nodes.upstream_backup.marks import Marks
from medusa.ports import Buffer
from medusa.wire.outbox import Persist

__all__ = ["PendingCheckpoint", "SavedCheckpoint", "acknowledged_positions", "taken"]

LOGS_MAX = 8
"""Checkpoints in which kept output may lie before it is written together again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """What was found on disk.

    Attributes:
        record: of the newest whole checkpoint; None: there is none yet.
        logs: the output that it needs, by token.
        decisions: what was fed after it.
    """

    record: FragmentRecord | None
    logs: Mapping[int, Buffer]
    decisions: Sequence[Decision] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCheckpoint:
    """A checkpoint under way: what becomes true once it is durable."""

    token: int
    positions: list[tuple[FragmentInput, int, int]]
    outputs: list[tuple[str, int]]
    decided: int
    places: list[tuple[FragmentOutput, dict[int, tuple[int, int]]]]
    mixed: bool


def acknowledged_positions(
    inputs: Iterable[FragmentInput], marks: Marks | None
) -> list[tuple[FragmentInput, int, int]]:
    """What senders hear of a checkpoint: of each input the row that may be wanted next, and what was
    promised, which the mark has too."""
    if marks is None:
        return [(input, input.fed_seq, input.fed_us) for input in inputs]
    at = ((each, marks.start.position(each.source, each.publisher)) for each in inputs)
    return [(each, min(seq, each.fed_seq), each.fed_us) for each, seq in at]


def taken(
    spec: FragmentSpec,
    token: int,
    *,
    inputs: Collection[FragmentInput],
    outputs: Collection[FragmentOutput],
    fed_us: Mapping[str, int],
    mixed: bool,
    decided: int,
    held: tuple[str, int] = ("", 0),
    alone: bool = False,
    marks: Marks | None = None,
    keep: Iterable[int] = (),
    shed: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[PendingCheckpoint, Persist]:
    """The checkpoint of a fragment at rest, and how it gets to disk.

    Args:
        fed_us: source -> the newest boundary that it was fed, in us.
        mixed: its output depends on the order in which its inputs came.
        decided: the number of the next decision.
        held: the coordinator of the query, and the epoch of the fragment here; 0: it isn't ours.
        alone: it needs no older one, beside segments.
        marks: of a fragment that is recovered by upstream backup: senders keep what is read again.
        keep: segments that hold something else than output.
        shed: source -> place -> rows left out there.
    """
    compact = alone or len({token for output in outputs for token in output.tokens()}) >= LOGS_MAX
    log: list[Buffer] = []
    offset, records, places = 0, [], []
    for output in outputs:
        kept, payloads, where = output.record(token, offset, compact=compact)
        offset += sum(memoryview(payload).nbytes for payload in payloads)
        log += payloads
        records.append(kept)
        places.append((output, where))
    record = FragmentRecord(
        token=token,
        fragment=spec.name,
        mixed=mixed,
        inputs=tuple(input.record() for input in inputs),
        outputs=tuple(records),
        fed_us=dict(fed_us),
        decided=decided,
        spec=fragment_to(spec),
        coordinator=held[0],
        epoch=held[1],
        shed={source: dict(places) for source, places in (shed or {}).items()},
    )
    if marks is not None:
        record = marks.taken(record, outputs)
    writing = PendingCheckpoint(
        token=token,
        positions=acknowledged_positions(inputs, marks),
        outputs=[(output.sink, output.rows) for output in outputs],
        decided=decided,
        places=places,
        mixed=mixed,
    )
    spilled = (token for output in outputs for token in output.spilling.writing)
    persist = Persist(
        token=token,
        fragment=spec.name,
        files={RECORD: record.to_bytes(), LOG: tuple(log)},
        keep=(*record.tokens(), *spilled, *keep),
    )
    return writing, persist
