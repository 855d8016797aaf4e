"""``Fed`` of one attempt in one frame, and apart again: each frame costs both nodes a turn. Pure: no IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from medusa.errors import RemoteProtocolError
from medusa.ports import Buffer
from medusa.wire.messages import Message
from medusa.wire.messages.move import TOGETHER_ALIGNED, TOGETHER_MAX, Fed, FedTogether

__all__ = ["apart", "together"]

TOGETHER_BYTES = 256 << 10
"""Rows beyond this go by themselves: they are copied to go together, which costs more than a frame then."""

_Frame = tuple[Message, Buffer | None]


def together(frames: Sequence[_Frame]) -> Iterator[_Frame]:
    """The same frames in the same order, where ``Fed`` stand side by side in fewer."""
    run: list[tuple[Fed, Buffer]] = []
    run_bytes = 0
    for message, payload in frames:
        nbytes = 0 if payload is None else memoryview(payload).nbytes
        fits = isinstance(message, Fed) and nbytes <= TOGETHER_BYTES
        if not fits or len(run) == TOGETHER_MAX or run_bytes + nbytes > TOGETHER_BYTES:
            yield from _joined(run)
            run, run_bytes = [], 0
        if isinstance(message, Fed) and fits:
            run.append((message, b"" if payload is None else payload))
            run_bytes += nbytes
        else:
            yield message, payload
    yield from _joined(run)


def _joined(run: Sequence[tuple[Fed, Buffer]]) -> Iterator[_Frame]:
    if len(run) < 2:
        yield from ((fed, payload if memoryview(payload).nbytes else None) for fed, payload in run)
        return
    parts: list[Buffer] = []
    for _, payload in run:
        parts.append(payload)
        parts.append(bytes(-memoryview(payload).nbytes % TOGETHER_ALIGNED))
    fed = tuple(each for each, _ in run)
    message = FedTogether(
        fragment=fed[0].fragment,
        attempt=fed[0].attempt,
        ticket=fed[0].ticket,
        fed=fed,
        nbytes=tuple(memoryview(payload).nbytes for _, payload in run),
    )
    yield message, b"".join(parts) or None


def apart(message: FedTogether, payload: Buffer | None, *, peer: str) -> Iterator[tuple[Fed, Buffer | None]]:
    """What went together, each with its rows: views of ``payload``.

    Raises:
        RemoteProtocolError: one is of another attempt, or the payload is longer or shorter than was said
            (``E_STATE``). Then nothing was given.
    """
    data = memoryview(payload if payload is not None else b"").cast("B")
    of = message.fragment, message.attempt, message.ticket
    ends: list[int] = []
    for nbytes in message.nbytes:
        ends.append((ends[-1] if ends else 0) + nbytes + -nbytes % TOGETHER_ALIGNED)
    fits = len(message.nbytes) == len(message.fed) and ends[-1] == len(data)
    if not fits or any((each.fragment, each.attempt, each.ticket) != of for each in message.fed):
        text = f"fragment {message.fragment!r}: what was fed together doesn't fit"
        raise RemoteProtocolError(text, peer=peer, code="E_STATE")
    for fed, nbytes, end in zip(message.fed, message.nbytes, ends, strict=True):
        begin = end - nbytes - -nbytes % TOGETHER_ALIGNED
        yield fed, data[begin : begin + nbytes] if nbytes else None
