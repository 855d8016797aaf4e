"""How far two parties are with something that they negotiate, as one table.

The states are those of the Dataspace Protocol (contract negotiation, 2025-1), for contracts as for the
load that is moved under one. The consumer asks, the provider offers; who has the last word says so and the
other one verifies it. Code looks every event up here, the tests walk over the table, and docs/contracts.md
draws it.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["NEGOTIATION", "NegotiationEvent", "NegotiationState"]


class NegotiationState(Enum):
    """Of one negotiation, as either party knows it."""

    REQUESTED = "REQUESTED"  # the consumer has said what it wants
    OFFERED = "OFFERED"  # the provider has said what it would do instead: less, or for another price
    ACCEPTED = "ACCEPTED"  # the consumer takes that
    AGREED = "AGREED"  # the provider is bound, and keeps room
    VERIFIED = "VERIFIED"  # the consumer has what was agreed, and handed over what it is about
    FINALIZED = "FINALIZED"  # it runs, or counts
    TERMINATED = "TERMINATED"  # it came to nothing, or is over; the reason is said


class NegotiationEvent(Enum):
    """What changes it."""

    REQUEST = "the consumer asks, or asks for something else"
    OFFER = "the provider offers something else"
    ACCEPT = "the consumer accepts the offer"
    AGREE = "the provider agrees"
    VERIFY = "the consumer verifies the agreement"
    FINALIZE = "the provider confirms"
    TERMINATE = "a party ends it, or its deadline has passed"


_S, _E = NegotiationState, NegotiationEvent

# A pair that is missing here can't happen: a message that says so is refused.
NEGOTIATION: dict[NegotiationState, dict[NegotiationEvent, NegotiationState]] = {
    _S.REQUESTED: {_E.OFFER: _S.OFFERED, _E.AGREE: _S.AGREED, _E.TERMINATE: _S.TERMINATED},
    _S.OFFERED: {
        _E.REQUEST: _S.REQUESTED,
        _E.OFFER: _S.OFFERED,
        _E.ACCEPT: _S.ACCEPTED,
        _E.TERMINATE: _S.TERMINATED,
    },
    _S.ACCEPTED: {_E.AGREE: _S.AGREED, _E.TERMINATE: _S.TERMINATED},
    _S.AGREED: {_E.VERIFY: _S.VERIFIED, _E.TERMINATE: _S.TERMINATED},
    _S.VERIFIED: {_E.FINALIZE: _S.FINALIZED, _E.TERMINATE: _S.TERMINATED},
    _S.FINALIZED: {_E.TERMINATE: _S.TERMINATED},
    _S.TERMINATED: {},
}
