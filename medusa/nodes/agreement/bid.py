"""A wish of this node to have another configuration decided, through all ballots that it takes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from medusa.nodes.agreement.automaton import PROPOSER, AgreementEvent, ProposerState
from medusa.wire.messages.configuration import Accept, Ballot, Configuration, Prepare, Proposal, Vote

__all__ = ["ASK_US", "ASK_US_MAX", "PAUSE_US", "PAUSE_US_MAX", "Bid", "Change"]

Change: TypeAlias = Callable[[Configuration], Configuration | None]
"""Gives the configuration that is to follow; None: there is nothing to do any more."""

ASK_US = 50_000
"""Voters that haven't voted are asked again after this, then after twice as long, and so on. Longer than the
way to a voter and back, its disk included: it would only be asked in vain."""

ASK_US_MAX = 1_000_000

PAUSE_US = 5_000
"""After another ballot went before: so long, times the place among the voters, then twice as long, and so on.
Two that overrule each other come apart by that."""

PAUSE_US_MAX = 1_000_000


@dataclass(slots=True, kw_only=True)
class Bid:
    """What one query is to become.

    Attributes:
        suspects: nodes that are counted out.
        ballot: the present one; None: none yet.
        question: what all voters are asked now.
        yes: who has said yes to it.
        overruled: who has promised another ballot.
        noes: why others haven't voted, by node.
        behind: who was told the current configuration in this ballot.
        best: of what voters had accepted before, that of the highest ballot.
        before: what each had accepted before.
        wishes: what this node has proposed of its own for the change that it wants.
        round: the highest that was heard of.
        again_us: when to ask again, or to begin a new ballot; None: nothing is under way.
    """

    change: Change
    suspects: tuple[str, ...]
    state: ProposerState = ProposerState.RESTING
    ballot: Ballot | None = None
    question: Prepare | Accept | None = None
    yes: set[str] = field(default_factory=set)
    overruled: set[str] = field(default_factory=set)
    noes: dict[str, str] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)
    best: Proposal | None = None
    before: dict[str, Configuration] = field(default_factory=dict)
    wishes: list[Configuration] = field(default_factory=list)
    round: int = 0
    tries: int = 0
    wait_us: int = ASK_US
    again_us: int | None = None

    def want(self, change: Change) -> None:
        """This is wanted from now on, with the same suspects."""
        self.change, self.wishes = change, []

    def step(self, event: AgreementEvent) -> bool:
        """Take a step of the automaton; whether there is one."""
        target = PROPOSER[self.state].get(event)
        if target is None:
            return False
        self.state = target
        return True

    def ask(self, now_us: int, question: Prepare | Accept) -> None:
        """Voters are asked this from now on."""
        if self.ballot != question.ballot:
            self.best, self.before = None, {}
        self.ballot, self.question = question.ballot, question
        self.round = max(self.round, question.ballot.round)
        self.yes, self.overruled, self.noes, self.behind = set(), set(), {}, set()
        self.wait_us = ASK_US
        self.again_us = now_us + self.wait_us

    def asked_again(self, now_us: int) -> None:
        """Those that haven't voted were asked once more."""
        self.wait_us = min(2 * self.wait_us, ASK_US_MAX)
        self.again_us = now_us + self.wait_us
        self.behind.clear()

    def answers(self, vote: Vote) -> bool:
        """Whether a vote is about what is asked now."""
        question = self.question
        return question is not None and (vote.request, vote.ballot) == (question.request, question.ballot)

    def take(self, peer: str, vote: Vote) -> None:
        """A voter has answered."""
        if vote.promised is not None:
            self.round = max(self.round, vote.promised.round)
        if vote.code:
            self.noes[peer] = vote.text or vote.code
            if vote.code == "E_BALLOT":
                self.overrule(peer)
            return
        self.noes.pop(peer, None)
        self.overruled.discard(peer)
        self.yes.add(peer)
        before = vote.accepted
        if before is not None:
            self.before[peer] = before.configuration
        if before is not None and (self.best is None or self.best.ballot < before.ballot):
            self.best = before

    def may_be_decided(self, current: Configuration) -> Configuration | None:
        """What may have been decided before this ballot; None: nothing can have been, so the wish is free.

        Whoever accepted what is decided says so, unless it is one of those that haven't voted in this ballot.
        """
        if self.best is None:
            return None
        found = self.best.configuration
        silent = sum(node not in self.yes for node in current.voters)
        accepted = sum(self.before.get(node) == found for node in current.voters)
        return found if accepted + silent >= current.majority else None

    def overrule(self, node: str) -> None:
        """It has promised another ballot."""
        self.overruled.add(node)

    def won(self, current: Configuration) -> bool:
        """Whether enough voters of the current configuration have said yes."""
        return len(self.yes.intersection(current.voters)) >= current.majority

    def lost(self, current: Configuration) -> bool:
        """Whether so many have promised another ballot that this one can't win."""
        return len(current.voters) - len(self.overruled) < current.majority

    def pause(self, now_us: int, rank: int) -> None:
        """Another ballot went before: leave it the time to be decided.

        Args:
            rank: of this node among the voters, from 1: who comes first pauses the shortest.
        """
        self.again_us = now_us + min(PAUSE_US * rank << min(self.tries, 10), PAUSE_US_MAX)
        self.tries += 1
        self.question = None

    def wait(self, me: str, why: str) -> None:
        """This node itself hears a suspect: begin when it doesn't any more."""
        self.noes[me] = why
        self.again_us = None

    @property
    def waits(self) -> bool:
        """Whether it has to be begun by somebody, and not by the time."""
        return self.question is None and self.again_us is None

    def wish(self, configuration: Configuration) -> None:
        """This is what is wanted, as far as it was proposed."""
        if configuration not in self.wishes:
            self.wishes.append(configuration)

    def rest(self, again_us: int | None) -> None:
        """Nothing is under way."""
        self.question, self.again_us = None, again_us
        self.yes, self.overruled, self.best, self.before = set(), set(), None, {}
