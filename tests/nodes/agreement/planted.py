"""Mistakes that an agreement must not have, each put into the code for the time of a test."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from medusa.nodes.agreement import agreement, voter
from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.agreement.bid import Bid
from medusa.nodes.agreement.voter import Voter
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.wire.messages.configuration import Accept, Configuration, Vote
from tests.nodes.agreement.agreement_trial import Actor

__all__ = ["PLANTED", "Planted"]


@dataclass(frozen=True)
class Planted:
    """One mistake: ``attribute`` of each of ``targets`` is ``wrong``. It shows ``within`` so many seeds."""

    name: str
    targets: tuple[object, ...]
    attribute: str
    wrong: object
    within: int = 40


def _says_before_its_disk(self, query):
    return 0


def _own_vote_before_the_disk(self, query, bid, voters, _right=Agreement._ask):
    _right(self, query, bid, voters)
    due, self._own = self._own, []
    for _, vote in due:
        if bid.answers(vote):
            bid.take(self._me, vote)


def _forgets_with_the_process(self, _right=Actor.start):
    _right(self)
    for query, kept in self.catalog.configurations.items():
        self.catalog.configurations[query] = KeptConfiguration(current=kept.current)


def _forgets_its_promise(self, kept, ballot, accepted, _right=Voter._take):
    if accepted is not None or ballot.node == self._catalog.node:
        _right(self, kept, ballot, accepted)


def _forgets_what_it_accepted(self, kept, ballot, accepted, _right=Voter._take):
    if accepted is None:
        _right(self, msgspec.structs.replace(kept, accepted=None), ballot, accepted)
    else:
        _right(self, kept, ballot, accepted)


def _new_voters_decide(self, current, _right=Bid.won):
    if isinstance(self.question, Accept):
        return _right(self, self.question.configuration)
    return _right(self, current)


def _half_is_enough(self):
    return max(1, len(self.voters) // 2)


def _below_its_promise(self, kept, peer, message, _right=Voter._ballot_refused):
    if isinstance(message, Accept) and message.ballot.round:
        return None
    return _right(self, kept, peer, message)


def _ignores_what_was_accepted(self, peer, vote, _right=Bid.take):
    _right(self, peer, msgspec.structs.replace(vote, accepted=None))


def _takes_any_accepted(self, peer, vote, _right=Bid.take):
    before = self.best
    _right(self, peer, vote)
    if before is not None:
        self.best = min(before, self.best, key=lambda proposal: proposal.ballot)


def _round_0_is_everybodys(self, kept, peer, message, _right=Voter._ballot_refused):
    if isinstance(message, Accept) and message.ballot.round == 0 and kept.promised is None:
        return None
    return _right(self, kept, peer, message)


def _first_is_whoever_asks(configuration, _right=voter.first_proposer):
    return _Anybody(configuration.voters)


class _Anybody(str):
    """Equals every voter."""

    def __new__(cls, voters):
        made = super().__new__(cls, "anybody")
        made.voters = voters
        return made

    __hash__ = str.__hash__

    def __eq__(self, other):
        return other in self.voters

    def __ne__(self, other):
        return other not in self.voters


def _counts_answers_of_other_ballots(self, vote: Vote):
    return self.question is not None


PLANTED = [
    Planted("it says what its disk doesn't say yet", (Voter,), "token", _says_before_its_disk),
    Planted(
        "its own vote counts before its disk says so",
        (Agreement,),
        "_ask",
        _own_vote_before_the_disk,
        within=100,
    ),
    Planted("a process that dies takes its promises with it", (Actor,), "start", _forgets_with_the_process),
    Planted("a promise isn't kept", (Voter,), "_take", _forgets_its_promise),
    Planted("with a promise what was accepted is forgotten", (Voter,), "_take", _forgets_what_it_accepted),
    Planted("the new voters decide", (Bid,), "won", _new_voters_decide, within=200),
    Planted("half of the voters decide", (Configuration,), "majority", property(_half_is_enough)),
    Planted("a voter accepts below its promise", (Voter,), "_ballot_refused", _below_its_promise),
    Planted("what others had accepted is passed over", (Bid,), "take", _ignores_what_was_accepted),
    Planted("the lowest accepted proposal goes on", (Bid,), "take", _takes_any_accepted, within=200),
    Planted("answers to earlier questions count", (Bid,), "answers", _counts_answers_of_other_ballots),
    Planted("everybody has round 0", (agreement, voter), "first_proposer", _first_is_whoever_asks),
]
