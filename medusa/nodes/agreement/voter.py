"""A voter: what this node promises and accepts for the next configuration of a query. No IO.

What it says goes out once the catalog that says so is on disk, also what it says to itself. So a node that
dies and comes back stands by every word that anybody has heard.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from medusa.automaton import next_state
from medusa.nodes.agreement.automaton import VOTER, AgreementEvent, VoterState
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.wire import limits
from medusa.wire.messages.configuration import Accept, Ballot, Configuration, Prepare, Proposal, Vote

__all__ = ["Voter", "first_proposer"]


def first_proposer(configuration: Configuration) -> str:
    """Who may propose the next configuration in round 0, without asking for promises; empty: nobody.

    It is one node by the configuration alone, and only for as long as it has promised nothing: two of them,
    or two proposals of one, could both be decided.
    """
    for each in sorted(configuration.fragments, key=lambda replicas: replicas.fragment):
        if each.secondaries:
            first = each.secondaries[0]
            return first if first in configuration.voters else ""
    return ""


def voter_state(kept: KeptConfiguration) -> VoterState:
    """Where a voter stands for the number after its current one."""
    if kept.accepted is not None:
        return VoterState.ACCEPTED
    return VoterState.FREE if kept.promised is None else VoterState.PROMISED


class Voter:
    """Votes on all queries.

    Args:
        is_up: whether a node is heard here; this node always is.
    """

    def __init__(self, catalog: Catalog, *, saver: CatalogWriter, is_up: Callable[[str], bool]) -> None:
        self._catalog = catalog
        self._kept = catalog.configurations
        self._saver = saver
        self._is_up = is_up
        self._tokens: dict[str, int] = {}
        """Query -> of the last write that changed what is kept of it. Of an earlier life: 0."""

    def token(self, query: str) -> int:
        """Of the write that holds all that this node knows and has said of a query."""
        return self._tokens.get(query, 0)

    def learn(self, configuration: Configuration, *, installed: bool = False, since: int = 0) -> None:
        """It is decided: what was promised for its number counts no more.

        Args:
            installed: this node deploys the query, so nobody has voted on it.
            since: the life of this node in which the query was deployed elsewhere; 0: that isn't known.
        """
        query = configuration.query
        kept = self._kept.get(query)
        if kept is not None:
            next_state(VOTER, voter_state(kept), AgreementEvent.NEWER, of=f"the voter on query {query!r}")
        if kept is None:
            forgot = not installed and self._catalog.may_have_voted(since)
        else:
            forgot = kept.forgot or bool(kept.forgot_beyond)
        self._keep(KeptConfiguration(current=configuration, forgot=forgot))

    def is_new(self, query: str, since: int) -> bool:
        """A query was deployed in this life of the node, 0: nobody knows; whether it has forgotten nothing
        then, and thought that it might have."""
        kept = self._kept.get(query)
        if kept is None or not kept.forgot or self._catalog.may_have_voted(since):
            return False
        self._keep(msgspec.structs.replace(kept, forgot=False))
        return True

    def has_forgotten(self, query: str) -> bool:
        """Whether this node may have voted for the next number and doesn't know how: also while it has lost
        its newest catalog."""
        kept = self._kept.get(query)
        return kept is not None and (kept.forgot or self._catalog.may_not_vote)

    def remember(self, query: str, ballot: Ballot, accepted: Proposal | None) -> None:
        """All other voters have promised this ballot and said what they accepted: this one votes again."""
        kept = self._kept[query]
        # It may have heard that this was decided, and have voted on what follows with those who vote by it.
        new = set() if accepted is None else {*accepted.configuration.voters}.difference(kept.current.voters)
        beyond = True if new else msgspec.UNSET
        self._take(msgspec.structs.replace(kept, forgot=False, forgot_beyond=beyond), ballot, accepted)

    def forget(self, query: str) -> bool:
        """The query is removed; whether it was known."""
        known = self._catalog.bury(query)
        if known:
            self._tokens[query] = self._saver.save()
        return known

    def vote(self, peer: str, message: Prepare | Accept) -> Vote:
        """What this node says to a proposer; it may go out once ``token`` is durable."""
        asked = message if isinstance(message, Prepare) else None
        offered = message.configuration if isinstance(message, Accept) else None
        about = offered if offered is not None else asked
        assert about is not None
        query, life, number = about.query, about.life, about.number

        def no(code: str, text: str, **known: Configuration | Ballot) -> Vote:
            text = text[: limits.TEXT_CHARS_MAX]
            plain = Vote(
                request=message.request,
                query=query,
                number=number,
                ballot=message.ballot,
                code=code,
                text=text,
            )
            return msgspec.structs.replace(plain, **known)

        kept = self._kept.get(query)
        if self._catalog.is_buried(query, life):
            return no("E_REMOVED", f"query {query!r} was removed from node {self._catalog.node!r}")
        if kept is None or kept.current.life != life:
            return no("E_QUERY", f"no such query at node {self._catalog.node!r}")
        current = kept.current
        if number != current.number + 1:
            text = f"configuration {current.number} is the newest at node {self._catalog.node!r}"
            return no("E_CONFIGURATION", text, known=current)
        if self._catalog.node not in current.voters or peer not in current.voters:
            who = peer if peer not in current.voters else self._catalog.node
            return no("E_VOTER", f"node {who!r} doesn't vote on query {query!r}")
        if kept.forgot:
            lost = "disk" if self._catalog.birth.forgot else "newest catalog"
            return no("E_FORGOT", f"node {self._catalog.node!r} has lost its {lost}, and doesn't vote yet")
        if (earlier := self._ballot_refused(kept, peer, message)) is not None:
            return no("E_BALLOT", f"a ballot of node {earlier.node!r} goes before", promised=earlier)
        same = Proposal(ballot=message.ballot, configuration=offered) if offered is not None else None
        if same is None or kept.accepted != same:
            alive = [node for node in message.suspects if self._is_up(node)]
            if alive:
                heard = ", ".join(map(repr, alive))
                return no("E_ALIVE", f"node {self._catalog.node!r} hears {heard}")
        before = kept.accepted
        self._take(kept, message.ballot, same)
        return Vote(
            request=message.request,
            query=query,
            number=number,
            ballot=message.ballot,
            accepted=before if asked is not None else None,
        )

    def _ballot_refused(self, kept: KeptConfiguration, peer: str, message: Prepare | Accept) -> Ballot | None:
        """The ballot that stands against this one; None: none does."""
        ballot = message.ballot
        if kept.promised is not None and ballot < kept.promised:
            return kept.promised
        if ballot.node != peer:
            return ballot
        if ballot.round == 0 and (isinstance(message, Prepare) or peer != first_proposer(kept.current)):
            return Ballot(0, first_proposer(kept.current) or self._catalog.node)
        return None

    def _take(self, kept: KeptConfiguration, ballot: Ballot, accepted: Proposal | None) -> None:
        event = AgreementEvent.PREPARE if accepted is None else AgreementEvent.ACCEPT
        next_state(VOTER, voter_state(kept), event, of=f"the voter on query {kept.current.query!r}")
        taken = msgspec.structs.replace(kept, promised=ballot, accepted=accepted or kept.accepted)
        if taken != kept:
            self._keep(taken)

    def _keep(self, kept: KeptConfiguration) -> None:
        query = kept.current.query
        self._kept[query] = kept
        self._tokens[query] = self._saver.save()
