"""How far a reading is, as one table: code steps through it, tests walk it, docs/ledger.md draws it."""

from __future__ import annotations

from enum import Enum

__all__ = ["READING", "ReadingEvent", "ReadingState"]


class ReadingState(Enum):
    """Of the reading that follows the last receipt; a contract has one at a time."""

    NONE = "NONE"  # the interval runs
    SAID = "SAID"  # the provider has signed it; it is durable there, and said again until it is answered
    HELD = "HELD"  # the consumer has it, and waits for rows that it says were delivered
    COUNTERED = "COUNTERED"  # the consumer has signed fewer rows, and waits for the provider to sign them
    REFUSED = "REFUSED"  # nothing of it counts; the provider may say another of this number
    RECEIPTED = "RECEIPTED"  # both have signed: it is owed, and the next one may be made


class ReadingEvent(Enum):
    """What changes it."""

    SAY = "the provider says it"
    HOLD = "rows that it says were delivered aren't here yet"
    COUNTER = "they didn't come in time: the consumer signs those that did"
    REFUSE = "it isn't by the contract or the agreements"
    SIGN = "the other one signs"


_S, _E = ReadingState, ReadingEvent

# A pair that is missing here can't happen. The provider is in NONE, SAID and RECEIPTED; the consumer in all.
READING: dict[ReadingState, dict[ReadingEvent, ReadingState]] = {
    _S.NONE: {_E.SAY: _S.SAID},
    _S.SAID: {
        _E.SAY: _S.SAID,
        _E.HOLD: _S.HELD,
        _E.COUNTER: _S.COUNTERED,
        _E.REFUSE: _S.REFUSED,
        _E.SIGN: _S.RECEIPTED,
    },
    _S.HELD: {
        _E.SAY: _S.SAID,
        _E.COUNTER: _S.COUNTERED,
        _E.REFUSE: _S.REFUSED,
        _E.SIGN: _S.RECEIPTED,
    },
    _S.COUNTERED: {_E.SIGN: _S.RECEIPTED},
    _S.REFUSED: {_E.SAY: _S.SAID},
    _S.RECEIPTED: {_E.SAY: _S.SAID},
}
