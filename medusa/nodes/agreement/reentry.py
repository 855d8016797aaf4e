"""A voter that has lost its disk, or its newest catalog for good, votes again. No IO.

It may have promised or accepted something for the next configuration, and must not say otherwise now. So it
asks *all* other voters, none left out, to promise a ballot of its own that is higher than any before, in one
round. Then

- nothing that it may have accepted can still be decided behind its back: whoever hasn't accepted it yet has
  promised not to;
- what was decided with its forgotten vote was accepted by another voter too, which says so: it takes over
  the newest that any of them has accepted;
- whatever it had promised to another proposer, that one has promised itself, and the new ballot is higher.

From then on it stands where it would if it had never forgotten: it has promised that ballot, and accepted
what it heard. All of that is on its disk before it votes. A voter that is away is waited for: with fewer
answers it wouldn't be safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from medusa.wire.messages.configuration import Ballot, Configuration, Prepare, Proposal, Vote

__all__ = ["ASK_AGAIN_US", "Reentry"]

ASK_AGAIN_US = 1_000_000
"""Who hasn't answered is asked again so often."""


@dataclass(slots=True)
class Reentry:
    """Of one query, for the number after the configuration that is current.

    Attributes:
        question: what all others are asked.
        yes: what those have accepted that have promised.
        noes: voter -> why it hasn't.
        again_us: when to ask again.
    """

    question: Prepare
    others: tuple[str, ...]
    again_us: int = 0
    yes: dict[str, Proposal | None] = field(default_factory=dict)
    noes: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, current: Configuration, me: str, *, round: int, request: int, lost: tuple[str, ...] = ()
    ) -> Reentry:
        """In this round.

        Args:
            lost: fragments that this node owns and has no more.
        """
        question = Prepare(
            request=request,
            query=current.query,
            life=current.life,
            number=current.number + 1,
            ballot=Ballot(round, me),
            lost=lost,
            forgot=True,
        )
        others = tuple(node for node in current.voters if node != me)
        return cls(question=question, others=others)

    def asked(self, now_us: int) -> None:
        """Who hasn't promised is asked now."""
        self.again_us = now_us + ASK_AGAIN_US

    def is_for(self, current: Configuration) -> bool:
        """Whether it is still the number after this one that is asked about."""
        return (self.question.life, self.question.number) == (current.life, current.number + 1)

    def answers(self, peer: str, vote: Vote) -> bool:
        """Whether a vote is about what is asked."""
        asked = self.question
        return peer in self.others and (vote.request, vote.ballot) == (asked.request, asked.ballot)

    def take(self, peer: str, vote: Vote) -> None:
        """A voter has answered."""
        if vote.code:
            self.noes[peer] = vote.text or vote.code
        else:
            self.noes.pop(peer, None)
            self.yes[peer] = vote.accepted

    @property
    def silent(self) -> tuple[str, ...]:
        """Those that are waited for."""
        return tuple(node for node in self.others if node not in self.yes and node not in self.noes)

    @property
    def open(self) -> tuple[str, ...]:
        """Those that haven't promised."""
        return tuple(node for node in self.others if node not in self.yes)

    @property
    def won(self) -> bool:
        """All others have promised. A node that votes alone can ask nobody."""
        return bool(self.others) and not self.open

    @property
    def accepted(self) -> Proposal | None:
        """The newest that any of them has accepted."""
        found = [each for each in self.yes.values() if each is not None]
        return max(found, key=lambda proposal: proposal.ballot, default=None)
