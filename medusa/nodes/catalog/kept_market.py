"""What a node's catalog keeps of the market: who comes back knows what runs where, and what is owed."""

from __future__ import annotations

import msgspec

from medusa.market.negotiation.kept import KeptTrades

__all__ = ["KeptMarket", "TaskMark"]


class TaskMark(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A task of ours that a partner runs, or ran: which of its rows are paid for, and what it knows of that.

    Attributes:
        begin_row: those before this number were in when it was handed over.
        end_row: those from this number on came in at home; None: it is away.
        heard_begin: the partner has said that it knows where it began.
    """

    partner: str
    contract: str
    negotiation: int
    task: str
    begin_row: int
    end_row: int | None = None
    heard_begin: bool = False


class KeptMarket(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        trades: what is away, what is a guest, and what may still arrive.
        ledger: records, of which ``PartyLedger.restored`` makes the ledger again.
        marks: of tasks that are away, and of those that came home, until the partner knows.
    """

    trades: KeptTrades = KeptTrades()
    ledger: tuple[bytes, ...] = ()
    marks: tuple[TaskMark, ...] = ()
