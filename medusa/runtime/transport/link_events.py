"""What a transport tells of: links, messages, strangers at the door."""

from __future__ import annotations

from dataclasses import dataclass

from medusa.runtime.transport.refusals import Refused

__all__ = ["Arrival", "Event", "LinkDown", "LinkRefused", "LinkUp", "Refused"]


@dataclass(frozen=True, slots=True)
class LinkUp:
    """We reached the peer; a link begins. (Links of callers begin with their first message.)

    Attributes:
        lane: 0: the connection for control, with which the link begins; from 1 on: one for streams, which
            carries nothing until it is introduced.
    """

    link: str
    lane: int = 0


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection broke; what was under way is lost.

    Attributes:
        lane: of those that we call: 0: the link is over; else only this connection for streams.
    """

    link: str
    lane: int = 0


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """Somebody answers at the peer's address and there is no link: wrong or missing keys. We try on.

    Attributes:
        said: it said so itself; else that is what the end of the connection must mean.
    """

    link: str
    code: str
    why: str
    hint: str
    said: bool = True


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message: its frames as read-only buffers, at most ``PARTS_MAX``.

    Attributes:
        key: public CURVE key of who sent it, authenticated; empty without keys.
    """

    link: str
    frames: tuple[memoryview, ...]
    key: str = ""


Event = LinkUp | LinkDown | LinkRefused | Arrival | Refused
