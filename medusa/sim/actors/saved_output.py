"""The output of a stream that is not yet durable downstream, as bytes for a checkpoint."""

from __future__ import annotations

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.errors import LocalProtocolError, StateError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.link.output_log import OutputEntry
from medusa.wire.link.sender import Sender
from medusa.wire.outbox import Outbox

__all__ = ["load_sender", "save_sender"]

FORMAT_VERSION = 1


class _Saved(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One train (``payload``) or boundary (``time_us``)."""

    seq: int
    end: int
    payload: memoryview | None = None
    time_us: int | None = None
    late: bool = False
    tentative: bool = False


class _SavedSender(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    first_seq: int
    boundary_us: int
    entries: list[_Saved]
    durable: dict[str, int]


_SAVED = msgpack_decoder(_SavedSender)


def save_sender(sender: Sender) -> bytes:
    """Kept output, and what each receiver with a disk holds durably. The sender is unchanged."""
    log = sender.log
    entries = [
        _Saved(
            seq=entry.seq,
            end=entry.end,
            payload=None if entry.payload is None else memoryview(entry.payload),
            time_us=entry.time_us,
            late=entry.late,
            tentative=entry.tentative,
        )
        for entry in log.entries()
    ]
    return msgspec.msgpack.encode(
        _SavedSender(
            version=FORMAT_VERSION,
            first_seq=log.start_seq,
            boundary_us=log.promise(log.base),
            entries=entries,
            durable=sender.durable_positions(),
        )
    )


def load_sender(
    data: Buffer,
    stream: str,
    schema: Schema,
    *,
    timed: bool,
    outbox: Outbox,
    settings: LinkSettings | None = None,
    make: type[Sender] = Sender,
) -> Sender:
    """The sender that ``save_sender`` saw, with its receivers detached.

    Args:
        make: tests plant a mistake here.

    Raises:
        StateError: the bytes can't have come from ``save_sender``.
    """
    try:
        saved = _SAVED.decode(data)
        if saved.version != FORMAT_VERSION:
            raise StateError(
                f"stream {stream!r}: saved output of version {saved.version}", code="state.version"
            )
        sender = make(
            stream,
            schema,
            timed=timed,
            outbox=outbox,
            settings=settings,
            first_seq=saved.first_seq,
            boundary_us=saved.boundary_us,
        )
        # ``load`` reads only these fields of an entry; the log counts the others anew.
        entries = [
            OutputEntry(
                seq=entry.seq,
                end=entry.end,
                promise_us=0,
                cost=0,
                payload=entry.payload,
                time_us=entry.time_us,
                late=entry.late,
                tentative=entry.tentative,
            )
            for entry in saved.entries
        ]
        sender.load(entries, saved.durable)
    except (msgspec.MsgspecError, LocalProtocolError) as error:
        raise StateError(
            f"stream {stream!r}: saved output can't be read: {error}", code="state.corrupt"
        ) from None
    return sender
