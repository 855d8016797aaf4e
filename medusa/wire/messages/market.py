"""What nodes of two participants say to each other about load that one runs for the other, under a contract.

What is negotiated and what is owed have their own messages (``medusa.market``), which know nothing of nodes.
Each of them is the payload of one of these; ``nodes/market/market_words.py`` reads it, with its bounds.
"""

from __future__ import annotations

from typing import ClassVar

from medusa.wire.messages.base import Count, MessageBase, Payload

__all__ = ["Booked", "MarketMessage", "Traded"]


class Traded(MessageBase, frozen=True, tag="traded"):
    """About what is to run where, and for how much. It may be lost: who waits for an answer says it again.

    Payload: a message of the negotiation.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count


class Booked(MessageBase, frozen=True, tag="booked"):
    """About what is owed. It may be lost: it is said again until it is answered.

    Payload: a message of the ledger, or from and up to which row a task is paid for.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count


MarketMessage = Traded | Booked
