"""What an ``Attach`` may claim, whatever its sender knows of who says it. Pure."""

from __future__ import annotations

from medusa.errors import RemoteProtocolError
from medusa.wire.messages.links import NOW, OLDEST, RESUME, Attach, Refuse

__all__ = ["ANEW", "check_attach", "other_life"]

ANEW = "E_ANEW"
"""The receiver's position is of an earlier life of the stream: other rows had those numbers."""


def other_life(message: Attach, life: int) -> Refuse | None:
    """What a receiver hears whose rows came from another life of the stream; None: they didn't."""
    if message.name or 0 in (message.life, life) or message.life == life:
        return None
    text = (
        f"the stream began anew with row 0: its node had lost what it was, and rows before {message.next_seq}"
    )
    return Refuse(
        code=ANEW,
        text=f"{text} came from the one before",
        hint="subscribe again, from the oldest row",
        stream=message.stream,
        epoch=message.epoch,
    )


def check_attach(message: Attach, peer: str) -> None:
    """Whether an attachment claims what can be.

    Raises:
        RemoteProtocolError: it doesn't.
    """
    if message.plain and message.name:
        text = f"stream {message.stream!r}: a subscription under the name {message.name!r} that is plain too"
        raise RemoteProtocolError(text, peer=peer, code="E_READER")
    if message.tentative and message.name:
        text = f"stream {message.stream!r}: a subscription under a name gets no tentative rows"
        raise RemoteProtocolError(text, peer=peer, code="E_READER")
    words = (OLDEST, NOW) if message.plain or message.name else (RESUME,)
    if message.next_seq < 0 and message.next_seq not in words:
        text = f"stream {message.stream!r}: a receiver with a disk names the row it wants"
        raise RemoteProtocolError(text, peer=peer, code="E_SEQ")
    if message.next_seq != RESUME and message.durable > max(message.next_seq, 0):
        text = f"stream {message.stream!r}: durable up to {message.durable}, yet wants row {message.next_seq}"
        raise RemoteProtocolError(text, peer=peer, code="E_SEQ")
