"""What an ``Attach`` may claim, whatever its sender knows of who says it. Pure."""

from __future__ import annotations

from medusa.errors import RemoteProtocolError
from medusa.wire.messages import NOW, OLDEST, RESUME, Attach

__all__ = ["check_attach"]


def check_attach(message: Attach, peer: str) -> None:
    """Whether an attachment claims what can be.

    Raises:
        RemoteProtocolError: it doesn't.
    """
    if message.plain and message.name:
        text = f"stream {message.stream!r}: a subscription under the name {message.name!r} that is plain too"
        raise RemoteProtocolError(text, peer=peer, code="E_READER")
    words = (OLDEST, NOW) if message.plain or message.name else (RESUME,)
    if message.next_seq < 0 and message.next_seq not in words:
        text = f"stream {message.stream!r}: a receiver with a disk names the row it wants"
        raise RemoteProtocolError(text, peer=peer, code="E_SEQ")
    if message.next_seq != RESUME and message.durable > max(message.next_seq, 0):
        text = f"stream {message.stream!r}: durable up to {message.durable}, yet wants row {message.next_seq}"
        raise RemoteProtocolError(text, peer=peer, code="E_SEQ")
