"""The automaton of an agreement on the next configuration of a query: a proposer and a voter, as two tables.

``Bid`` in ``agreement.py`` and the voters look every event up here, the tests walk over these tables,
and docs/standby.md draws them. Nothing else decides what is legal when.

    proposer                                     each voter
      |  own promise on disk                       |
      |  Prepare(number, ballot, suspects)         |
      |------------------------------------------->|  hears no suspect, promised nothing higher
      |  Vote(accepted before)                     |  on disk: promised
      |<-------------------------------------------|
      |  more than half: the highest accepted      |
      |  one is proposed, else its own wish        |
      |  Accept(ballot, configuration)             |
      |------------------------------------------->|  promised nothing higher
      |  Vote                                      |  on disk: accepted
      |<-------------------------------------------|
      |  more than half: decided                   |
      |  Configure(configuration) to everybody     |
      |------------------------------------------->|  on disk: that is current

Half of the voters and one more have accepted what is decided, and half and one more promise before anything
else is proposed. One node is in both halves, and names it.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["PROPOSER", "VOTER", "AgreementEvent", "ProposerState", "VoterState"]


class ProposerState(Enum):
    """Of a node that wants another configuration."""

    RESTING = "resting"  # wants nothing
    PREPARING = "preparing"  # its own promise is on its way to disk, or voters are asked for theirs
    ACCEPTING = "accepting"  # voters are asked to accept a configuration in this ballot
    PAUSING = "pausing"  # another ballot went before; a new one in a moment


class VoterState(Enum):
    """Of a voter, for the number after its current configuration."""

    FREE = "free"  # has promised nothing
    PROMISED = "promised"
    ACCEPTED = "accepted"


class AgreementEvent(Enum):
    """What can happen to either."""

    WANTED = "a change is wanted"
    FIRST = "a change is wanted, and round 0 is its own"
    PROMISED = "more than half promised"
    DECIDED = "more than half accepted"
    OVERRULED = "another ballot goes before"
    NEWER = "the next configuration is known"
    IDLE = "nothing is wanted any more"
    PREPARE = "Prepare"
    ACCEPT = "Accept"


_P, _V, _E = ProposerState, VoterState, AgreementEvent

# A pair that is missing here is no step: such a message is late, and dropped.
PROPOSER: dict[ProposerState, dict[AgreementEvent, ProposerState]] = {
    _P.RESTING: {_E.WANTED: _P.PREPARING, _E.FIRST: _P.ACCEPTING},
    _P.PREPARING: {
        _E.PROMISED: _P.ACCEPTING,
        _E.OVERRULED: _P.PAUSING,
        _E.NEWER: _P.RESTING,
        _E.IDLE: _P.RESTING,
    },
    _P.ACCEPTING: {
        _E.DECIDED: _P.RESTING,
        _E.OVERRULED: _P.PAUSING,
        _E.NEWER: _P.RESTING,
        _E.IDLE: _P.RESTING,
    },
    _P.PAUSING: {
        _E.WANTED: _P.PREPARING,
        _E.NEWER: _P.RESTING,
        _E.IDLE: _P.RESTING,
    },
}

VOTER: dict[VoterState, dict[AgreementEvent, VoterState]] = {
    _V.FREE: {_E.PREPARE: _V.PROMISED, _E.ACCEPT: _V.ACCEPTED, _E.NEWER: _V.FREE},
    _V.PROMISED: {_E.PREPARE: _V.PROMISED, _E.ACCEPT: _V.ACCEPTED, _E.NEWER: _V.FREE},
    _V.ACCEPTED: {_E.PREPARE: _V.ACCEPTED, _E.ACCEPT: _V.ACCEPTED, _E.NEWER: _V.FREE},
}
