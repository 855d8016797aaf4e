"""Why something was refused, ended or left alone: stable codes, and what each says to a person."""

from __future__ import annotations

from enum import Enum

__all__ = ["TradeReason", "reason_text"]


class TradeReason(Enum):
    """Programs go by the value. Those of the threat table (docs/threats.md) have its names."""

    NO_CONTRACT = "E_NO_CONTRACT"
    TASK_NOT_ALLOWED = "E_TASK_NOT_ALLOWED"
    OVER_LIMIT = "E_OVER_LIMIT"
    PRICE = "E_PRICE"
    CAP = "E_CAP"
    TOO_DEAR = "E_TOO_DEAR"
    FULL = "E_FULL"
    BUSY = "E_BUSY"
    PASSING_ON = "E_PASSING_ON"
    TAKEN = "E_TAKEN"
    POLICY = "E_POLICY"
    TIMEOUT = "E_TIMEOUT"
    LATE = "E_LATE"
    AWAY = "E_AWAY"
    DEARER = "E_DEARER"
    WITHDRAWN = "E_WITHDRAWN"
    FAILED = "E_FAILED"
    UNDERSTATED = "E_UNDERSTATED"
    RECALLED = "E_RECALLED"
    SIGNAL = "E_SIGNAL"
    LOSS = "E_LOSS"
    ENDED = "E_ENDED"
    GONE = "E_GONE"
    HOME = "E_HOME"


_R = TradeReason

_TEXTS = {
    _R.NO_CONTRACT: "no contract of this version is in force between the two",
    _R.TASK_NOT_ALLOWED: "the contract doesn't allow this task there",
    _R.OVER_LIMIT: "it is no load at all, or more than the contract's units_per_s_max",
    _R.PRICE: "the price isn't in the range of the contract",
    _R.CAP: "at this rate more would be owed in a settlement than the contract's cap",
    _R.TOO_DEAR: "it would cost the provider more than the price",
    _R.FULL: "it is beyond the capacity that was declared",
    _R.BUSY: "another move is under way, and was so until the request had expired",
    _R.PASSING_ON: "another task is passed on first, to make room: ask again",
    _R.TAKEN: "a task of this name is there, or has been passed on from there",
    _R.POLICY: "the owner's policy says no",
    _R.TIMEOUT: "there was no answer in time",
    _R.LATE: "it came after its deadline, or to a negotiation that is over",
    _R.AWAY: "the partner isn't reached",
    _R.DEARER: "another partner is cheaper",
    _R.WITHDRAWN: "it isn't worth the price any more",
    _R.FAILED: "the move failed",
    _R.UNDERSTATED: "a task takes more for a row than was said",
    _R.RECALLED: "it is cheaper at its owner again",
    _R.SIGNAL: "its owner gave the signal on which it comes home",
    _R.LOSS: "it costs the provider more than it earns",
    _R.ENDED: "the contract has ended, or was revoked or replaced",
    _R.GONE: "it doesn't run there",
    _R.HOME: "it runs at its owner again",
}


def reason_text(code: str) -> str:
    """What a code says; the code itself where it is a newer party's."""
    try:
        return _TEXTS[TradeReason(code)]
    except ValueError:
        return code
