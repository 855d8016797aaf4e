"""Agreement on the configurations of queries: proposes, counts votes, and learns what was decided. No IO.

``automaton`` has the steps of a proposer and of a voter, ``voter`` what this node says as one;
``telling`` sees to it that others hear what was decided. At most one configuration is decided for each number
of a query, whatever is lost, late, doubled or said again, and whoever dies with or without the last write of
its disk: docs/standby.md tells why.

Suspicion alone decides nothing: a voter refuses a change that counts out a node which it hears itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec

from medusa.errors import LinkError, LocalProtocolError
from medusa.nodes.agreement.automaton import AgreementEvent, ProposerState
from medusa.nodes.agreement.bid import Bid, Change
from medusa.nodes.agreement.changes import next_number
from medusa.nodes.agreement.missing_parts import missing_parts, never_given
from medusa.nodes.agreement.reentry import Reentry
from medusa.nodes.agreement.telling import TELL_LATER_US, Announcements
from medusa.nodes.agreement.voter import Voter, first_proposer
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.message_table import Heard
from medusa.nodes.security.sessions import refusal_of
from medusa.wire import limits
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import (
    NEVER_GIVEN,
    Accept,
    Ballot,
    Configuration,
    Configure,
    Prepare,
    RecoveryMessage,
    Vote,
)
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import AgreementStatus

__all__ = ["Agreement"]

_E = AgreementEvent

WAITS_US = 1_000_000
"""A voter that hasn't said yes for so long is waited for, as ``status`` tells."""

SAY_WAITS_US = 5_000_000
"""After this the log says so too, once."""


@dataclass(slots=True)
class _Open:
    """The next configuration of one query isn't decided though this node wants one, or it doesn't vote on it.

    Attributes:
        number: of the current one.
        said: whether the log has it.
    """

    number: int
    since_us: int
    said: bool = False


def _nobody(query: str) -> Collection[str]:
    return ()


def _nothing(configuration: Configuration, node: str) -> Configuration | None:
    return None


def _not_heard(now_us: int, current: Configuration, owner: str, fragments: Collection[str]) -> None:
    pass


class Agreement:
    """For all queries of a node.

    Args:
        number: gives numbers for questions to nodes; they grow over all lives.
        is_up: whether a node is heard here; this node always is.
        decided: told once of each configuration that is current here from now on, and which was so before.
            Its number rose by more than one where those between weren't heard of. It may not be on this
            node's disk yet.
        audience: nodes that have a part of a query, beside those that its configuration names.
        ended: told of a query with a configuration here that another node says was removed.
        life_of: the newest life of a node that was heard of; 0: it wasn't.
        lost: of a voter whose disk was lost: fragments that it owns by a configuration and has no more.
        owner_lost: told of an owner that is such a voter, and of what it has lost.
        told_abroad: what a peer of another participant is told of a configuration; None: nothing.
        told_by: whether a node may have us go by a configuration; raises LinkError if not.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
        decided: Callable[[int, Configuration | None, Configuration], None],
        audience: Callable[[str], Collection[str]] = _nobody,
        ended: Callable[[int, str], None] = lambda now_us, query: None,
        life_of: Callable[[str], int] = lambda node: 0,
        lost: Callable[[Configuration], tuple[str, ...]] = lambda current: (),
        owner_lost: Callable[[int, Configuration, str, Collection[str]], None] = _not_heard,
        told_abroad: Callable[[Configuration, str], Configuration | None] = _nothing,
        told_by: Callable[[str, Configuration], None] = lambda node, told: None,
    ) -> None:
        self._me, self._forgets = settings.name, settings.forgets
        self._peers = settings.own_peers
        self._catalog = catalog
        self._kept = catalog.configurations
        self._outbox = outbox
        self._saver = saver
        self._number = number
        self._is_up = is_up
        self._decided = decided
        self._ended = ended
        self._life_of = life_of
        self._lost = lost
        self._owner_lost = owner_lost
        self._told_by = told_by
        self._voter = Voter(catalog, saver=saver, is_up=is_up)
        self._announcements = Announcements(
            settings.name,
            settings.own_peers,
            catalog,
            outbox=outbox,
            saver=saver,
            number=number,
            is_up=is_up,
            written=self._voter.token,
            audience=audience,
            ended=ended,
            since=lambda query, node: self._since.get(query, {}).get(node, 0),
            told_abroad=told_abroad,
        )
        self._bids: dict[str, Bid] = {}
        self._since: dict[str, dict[str, int]] = {}
        """Query that was deployed here in this life -> node -> the life of that in which it was so."""
        self._unfit: dict[str, int] = {}
        """Query -> the number that couldn't be followed by what was wanted: said once."""
        self._own: list[tuple[int, Vote]] = []
        """Votes of this node for proposals of its own, and the writes that they wait for."""
        self._reentries: dict[str, Reentry] = {}
        """Queries on which this node doesn't vote yet, since what it said of them may be lost."""
        self._not_voting: dict[str, set[str]] = {}
        """Query -> other voters that don't vote on it yet, by their own word."""
        self._open: dict[str, _Open] = {}
        self._deferred: dict[str, tuple[str, Prepare | Accept]] = {}
        """Query -> who was refused since a suspect is heard here, and what it asked: that changes at once
        when the suspect isn't heard any more."""

    # --- what others ask --------------------------------------------------------------------------------

    def current(self, query: str) -> Configuration | None:
        """The newest configuration that is known here to be decided; None: the query has none."""
        kept = self._kept.get(query)
        return None if kept is None else kept.current

    def proposing(self, query: str) -> bool:
        """Whether this node wants another configuration that isn't decided yet."""
        return query in self._bids

    def wants(self, query: str, change: Change) -> bool:
        """Whether it is this change that this node wants."""
        bid = self._bids.get(query)
        return bid is not None and bid.change is change

    def suspects(self, query: str) -> tuple[str, ...]:
        """Nodes that what this node proposes counts out."""
        bid = self._bids.get(query)
        return () if bid is None else bid.suspects

    def untold(self, query: str) -> Collection[str]:
        """Nodes that were told the current configuration and haven't said that it is on their disk."""
        return self._announcements.untold(query)

    def not_voting(self, query: str) -> tuple[str, ...]:
        """Voters that are known not to vote yet, since they have lost what they had said; this node too."""
        current, others = self.current(query), self._not_voting.get(query, ())
        voters = () if current is None else current.voters
        own = self._voter.has_forgotten(query)
        return tuple(node for node in voters if node in others or (own and node == self._me))

    def differs(self, now_us: int, query: str, node: str) -> None:
        """On a link a node goes by another number than this one does."""
        self._announcements.differs(now_us, query, node)

    def status(self) -> dict[str, AgreementStatus]:
        """By query."""
        return {query: self._status(query) for query in self._kept}

    def _status(self, query: str) -> AgreementStatus:
        current, bid = self.current(query), self._bids.get(query)
        assert current is not None
        if (reentry := self._reentries.get(query)) is not None:
            return AgreementStatus(
                number=current.number,
                coordinator=current.coordinator,
                voters=current.voters,
                proposing="asking what it promised",
                silent=reentry.silent,
                refused=dict(reentry.noes),
                untold=tuple(self.untold(query)),
            )
        waits = bid is not None and bid.question is not None
        return AgreementStatus(
            number=current.number,
            coordinator=current.coordinator,
            voters=current.voters,
            proposing=bid.state.value if bid is not None else "",
            silent=tuple(
                node
                for node in current.voters
                if bid is not None and waits and node not in bid.yes and node not in bid.noes
            ),
            refused=dict(bid.noes) if bid is not None else {},
            untold=tuple(self.untold(query)),
        )

    def waiting(self, now_us: int) -> dict[str, AgreementStatus]:
        """Queries of which something isn't decided, or this node doesn't vote, for want of others' word."""
        found: dict[str, AgreementStatus] = {}
        for query, since in self._open.items():
            if query in self._bids or query in self._reentries:
                status = msgspec.structs.replace(self._status(query), waits_us=now_us - since.since_us)
                if status.number == since.number and status.waits_us >= WAITS_US and status.waits_for:
                    votes = query not in self._reentries
                    what = f"configuration {status.number + 1} is decided" if votes else "this node votes"
                    found[query] = msgspec.structs.replace(
                        status,
                        waits=("decision" if votes else "vote",),
                        why=f"{what} once more voters have answered: {status.waits_for}",
                    )
        return found

    # --- what others want -------------------------------------------------------------------------------

    def install(self, now_us: int, configuration: Configuration) -> None:
        """Number 1, where its coordinator deploys the query; or a later one that is decided for certain.

        Who is named by it, and who has a part, is told until all have it on disk (``untold``).
        """
        if configuration.number == 1:
            of = {node: self._life_of(node) for node in configuration.nodes() if node in self._peers}
            self._since[configuration.query] = of
        self._learn(now_us, configuration, tell_at_us=now_us, installed=True)

    def propose(self, now_us: int, query: str, change: Change, *, suspects: tuple[str, ...] = ()) -> None:
        """Have a change decided; what was wanted for this query before is so no more.

        ``change`` is given the current configuration, and again when that has become another one, until what
        it gave is decided, it gives None, or ``withdraw``. A node that doesn't vote can't propose: nothing
        happens.

        Args:
            suspects: nodes that the change counts out since they aren't heard. Who hears one refuses.
        """
        before = self._bids.get(query)
        if before is not None and before.suspects != suspects:
            self.withdraw(query)  # Else who hears one that is no suspect any more would refuse for ever.
        bid = self._bids.setdefault(query, Bid(change=change, suspects=suspects))
        bid.want(change)
        if bid.state is ProposerState.RESTING:
            self._begin(now_us, query)

    def withdraw(self, query: str) -> None:
        """Want nothing more. What voters have accepted already may be decided all the same."""
        bid = self._bids.pop(query, None)
        if bid is not None:
            bid.step(_E.IDLE)

    def leave(self, query: str) -> None:
        """The query of another participant isn't this node's business any more; it may be again."""
        self._kept.pop(query, None)
        self.forget(query)

    def forget(self, query: str) -> None:
        """The query is removed."""
        self.withdraw(query)
        self._announcements.forget(query)
        self._unfit.pop(query, None)
        self._since.pop(query, None)
        self._not_voting.pop(query, None)
        self._deferred.pop(query, None)
        self._reentries.pop(query, None)
        self._open.pop(query, None)
        self._voter.forget(query)

    # --- messages ---------------------------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """Take a message of a node."""
        now_us, peer, message = heard.now_us, heard.peer, heard.message
        assert isinstance(message, RecoveryMessage)
        match message:
            case Configure():
                self._configured(now_us, peer, message)
            case Prepare() | Accept():
                self._asked(peer, message)
                if isinstance(message, Prepare) and message.lost:
                    self._owner_said(now_us, peer, message)
            case Vote():
                self._voted(now_us, peer, message)

    def _asked(self, peer: str, message: Prepare | Accept) -> None:
        vote = self._voter.vote(peer, message)
        self._deferred.pop(vote.query, None)
        if vote.code:
            self._outbox.send(peer, vote)
        else:
            self._saver.send(peer, vote, after=self._voter.token(vote.query))
        if vote.code == "E_ALIVE":
            self._deferred[vote.query] = peer, message
        if vote.code not in ("E_REMOVED", "E_QUERY"):  # It speaks of an earlier query of that name.
            self._announcements.shown(peer, vote.query, vote.number - 1)
            self._votes(peer, vote.query, not (isinstance(message, Prepare) and message.forgot))

    def _votes(self, peer: str, query: str, votes: bool) -> None:
        """A voter has shown whether it votes."""
        not_voting = self._not_voting.setdefault(query, set())
        not_voting.discard(peer) if votes else not_voting.add(peer)

    def _owner_said(self, now_us: int, peer: str, message: Prepare) -> None:
        """A node says that what it owns by the configuration before was on a disk that is lost."""
        current = self.current(message.query)
        if current is not None and (current.life, current.number + 1) == (message.life, message.number):
            self._owner_lost(now_us, current, peer, message.lost)

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer to a ``Configure``; whether it was one."""
        return self._announcements.answered(now_us, peer, reply)

    def _configured(self, now_us: int, peer: str, message: Configure) -> None:
        told = message.configuration
        query, current = told.query, self.current(told.query)
        code = text = ""
        try:
            self._told_by(peer, told)
        except LinkError as error:
            if message.request:
                self._outbox.send(peer, refusal_of(message.request, error.code, error.message, error.hint))
            return
        if self._catalog.is_buried(query, told.life):
            code, text = "E_REMOVED", f"query {query!r} was removed from node {self._me!r}"
        elif current is None and self._is_undone(peer, told):
            # Whoever deploys it tells us, or has undone that: a node that was away meanwhile may not know.
            code, text = "E_QUERY", f"no such query at node {self._me!r}"
        elif current is not None and current.life != told.life:
            code, text = "E_QUERY", f"another query {query!r} is at node {self._me!r}"
        elif current is None or told.number > current.number:
            at_us = now_us + TELL_LATER_US
            self._learn(now_us, told, tell_at_us=at_us, told_by=peer, since=message.since)
        elif told.number < current.number:
            code, text = "E_CONFIGURATION", f"configuration {current.number} is known at node {self._me!r}"
            self._announcements.tell(now_us, query, peer)
        elif told != current:
            code, text = "E_CONFIGURATION", f"node {self._me!r} knows another one of number {told.number}"
            self._outbox.report("error", "two configurations of one number", query=query, node=peer)
        else:
            self._announcements.shown(peer, query, told.number)
            if self._voter.is_new(query, message.since):
                self._reentries.pop(query, None)
        if not message.request:
            return
        if code:
            self._outbox.send(peer, Reply(request=message.request, code=code, text=text))
            return
        if peer == told.coordinator and told.number > 1 and (missing := self._missing(told)):
            code, text = NEVER_GIVEN, never_given(self._me, missing)
        reply = Reply(request=message.request, code=code, text=text[: limits.TEXT_CHARS_MAX])
        self._saver.send(peer, reply, after=self._voter.token(query))

    def _missing(self, current: Configuration) -> tuple[str, ...]:
        """Parts that this node was never given; one that forgets what it has is given it again."""
        return () if self._forgets else missing_parts(self._catalog, current)

    def _is_undone(self, peer: str, told: Configuration) -> bool:
        """Whether a first configuration may be of a deployment that was undone; what this node deployed
        itself and has forgotten is known to others alone."""
        ours = told.coordinator == self._me and self._catalog.birth.rebuilt
        return told.number == 1 and told.parts is not None and peer != told.coordinator and not ours

    # --- a voter that has lost its disk -----------------------------------------------------------------

    def _reenter(self, now_us: int, query: str, *, round: int = 0) -> None:
        """Ask all other voters what they have accepted, anew where something has changed meanwhile."""
        current = self.current(query)
        forgot = self._voter.has_forgotten(query) and self._catalog.asks_for_its_votes
        if current is None or self._me not in current.voters or not forgot:
            self._reentries.pop(query, None)
            return
        known = self._reentries.get(query)
        if known is None or round or not known.is_for(current):
            request = self._number()
            lost = self._lost(current)
            known = Reentry.of(current, self._me, round=round or request, request=request, lost=lost)
            self._reentries[query] = known
        known.asked(now_us)
        for node in known.open:
            if self._reaches(node):
                self._outbox.send(node, known.question)

    def _reentered(self, now_us: int, peer: str, vote: Vote) -> bool:
        """Take what a voter says to one that has forgotten; whether it was that."""
        query, reentry = vote.query, self._reentries.get(vote.query)
        if reentry is None or not reentry.answers(peer, vote):
            return False
        reentry.take(peer, vote)
        if vote.code == "E_REMOVED":
            self._ended(now_us, query)
        elif vote.promised is not None and vote.promised >= vote.ballot:
            self._reenter(now_us, query, round=vote.promised.round + 1)
        elif vote.code in ("E_CONFIGURATION", "E_QUERY"):
            self._announcements.tell(now_us, query, peer)
        elif reentry.won:
            del self._reentries[query]
            self._voter.remember(query, reentry.question.ballot, reentry.accepted)
            self._say_votes(reentry)
            what = "votes again: all other voters have said what they know"
            self._outbox.report("info", what, query=query, number=reentry.question.number - 1)
            if reentry.accepted is not None and not self.proposing(query):
                # It may be decided, and only this node had heard so: bring it to its end.
                self.propose(now_us, query, next_number)
        return True

    def _say_votes(self, reentry: Reentry) -> None:
        """Others counted this node out: what it had asked them is so, and it votes."""
        again = msgspec.structs.replace(reentry.question, forgot=False)
        for node in filter(self._reaches, reentry.others):
            self._saver.send(node, again, after=self._voter.token(again.query))

    # --- a proposal -------------------------------------------------------------------------------------

    def _begin(self, now_us: int, query: str) -> None:
        """A new ballot, if there is still something to do that isn't decided."""
        bid, kept = self._bids[query], self._kept.get(query)
        wanted = self._wanted(query, bid)
        if kept is None or wanted is None:
            self.withdraw(query)
            return
        if heard := [node for node in bid.suspects if self._is_up(node)]:
            bid.wait(self._me, f"node {self._me!r} hears {', '.join(map(repr, heard))}")
            return
        free = kept.promised is None and kept.accepted is None
        if free and self._me == first_proposer(kept.current) and bid.step(_E.FIRST):
            bid.wish(wanted)
            self._ask_to_accept(now_us, bid, Ballot(0, self._me), wanted, bid.suspects)
        elif bid.step(_E.WANTED):
            highest = 0 if kept.promised is None else kept.promised.round
            ballot = Ballot(max(highest, bid.round) + 1, self._me)
            question = Prepare(
                request=self._number(),
                query=query,
                life=kept.current.life,
                number=kept.current.number + 1,
                ballot=ballot,
                suspects=bid.suspects,
            )
            bid.ask(now_us, question)
            self._ask(query, bid, kept.current.voters)

    def _wanted(self, query: str, bid: Bid) -> Configuration | None:
        """What is to follow the current configuration; None: nothing, or this node doesn't vote."""
        current = self.current(query)
        if current is None or self._me not in current.voters or self._voter.has_forgotten(query):
            return None
        try:
            wanted = bid.change(current)
        except ValueError as error:  # More names than a configuration may have: the one that stands goes on.
            if self._unfit.get(query) != current.number:
                self._unfit[query] = current.number
                self._outbox.report("error", "configuration can't be changed", query=query, why=str(error))
            return None
        if wanted is None:
            return None
        follows = (current.query, current.life, current.number + 1)
        if (wanted.query, wanted.life, wanted.number) != follows:
            raise LocalProtocolError(
                f"configuration {wanted.number} of query {wanted.query!r} can't follow {current.number}"
            )
        return wanted

    def _ask_to_accept(
        self,
        now_us: int,
        bid: Bid,
        ballot: Ballot,
        configuration: Configuration,
        suspects: tuple[str, ...],
    ) -> None:
        question = Accept(
            request=self._number(), ballot=ballot, configuration=configuration, suspects=suspects
        )
        current = self.current(configuration.query)
        assert current is not None
        bid.ask(now_us, question)
        self._ask(configuration.query, bid, current.voters)

    def _ask(self, query: str, bid: Bid, voters: Collection[str]) -> None:
        """Ask those that haven't voted; first of all ourselves, since no ballot may be begun twice.

        What accepts in a later round than 0 need not wait for our disk: that ballot is promised there.
        """
        question = bid.question
        if question is None:
            return
        if self._me in voters and self._me not in bid.yes:
            own = self._voter.vote(self._me, question)
            if own.code:
                bid.take(self._me, own)
            else:
                self._own.append((self._voter.token(query), own))
        promised = self._promised(query)
        if promised is not None and question.ballot < promised:
            bid.overrule(self._me)
            return
        begins = isinstance(question, Prepare) or question.ballot.round == 0
        if begins and promised != question.ballot:
            return  # We hear a suspect ourselves: it hasn't begun.
        after = self._voter.token(query) if begins else 0
        for node in voters:
            if node != self._me and node not in bid.yes and self._reaches(node):
                self._saver.send(node, question, after=after)

    def _promised(self, query: str) -> Ballot | None:
        kept = self._kept.get(query)
        return None if kept is None else kept.promised

    def _reaches(self, node: str) -> bool:
        return node in self._peers and self._is_up(node)

    def _voted(self, now_us: int, peer: str, vote: Vote) -> None:
        current, known = self.current(vote.query), vote.known
        if current is None:
            return
        if known is not None and known.life == current.life and known.number > current.number:
            self._learn(now_us, known, tell_at_us=now_us + TELL_LATER_US, told_by=peer)
            return
        if vote.code in ("", "E_BALLOT", "E_ALIVE", "E_FORGOT"):
            self._votes(peer, vote.query, vote.code != "E_FORGOT")
        if self._reentered(now_us, peer, vote):
            return
        bid = self._bids.get(vote.query)
        if bid is None or not bid.answers(vote) or peer not in current.voters:
            return
        bid.take(peer, vote)
        if vote.code == "E_REMOVED":
            self._ended(now_us, vote.query)
        if vote.code in ("E_CONFIGURATION", "E_QUERY") and peer not in bid.behind:
            bid.behind.add(peer)
            self._announcements.tell(now_us, vote.query, peer)
            self._ask(vote.query, bid, (peer,))
        self._count(now_us, vote.query, bid, current)

    def _count(self, now_us: int, query: str, bid: Bid, current: Configuration) -> None:
        question = bid.question
        if bid.won(current) and bid.step(_E.PROMISED):
            self._promised_to(now_us, query, bid)
        elif bid.won(current) and isinstance(question, Accept) and bid.step(_E.DECIDED):
            self._learn(now_us, question.configuration, tell_at_us=now_us)
        elif bid.lost(current):
            self._overruled(now_us, bid, current)

    def _overruled(self, now_us: int, bid: Bid, current: Configuration) -> None:
        if bid.step(_E.OVERRULED):
            bid.pause(now_us, current.voters.index(self._me) + 1)

    def _promised_to(self, now_us: int, query: str, bid: Bid) -> None:
        """More than half have promised. What some of them have accepted may be decided: then it is that."""
        current, ballot = self.current(query), bid.ballot
        assert current is not None
        assert ballot is not None
        bound = bid.may_be_decided(current)
        wanted = bound if bound is not None else self._wanted(query, bid)
        if wanted is None:
            self.withdraw(query)
            return
        own = bound is None or wanted in bid.wishes
        if bound is None:
            bid.wish(wanted)
        self._ask_to_accept(now_us, bid, ballot, wanted, bid.suspects if own else ())

    def _own_votes(self, now_us: int) -> None:
        """Count what we have said ourselves and is on disk by now."""
        durable = self._saver.durable
        due = [vote for token, vote in self._own if token <= durable]
        self._own = [(token, vote) for token, vote in self._own if token > durable]
        for vote in due:
            self._voted(now_us, self._me, vote)

    # --- decided ----------------------------------------------------------------------------------------

    def _learn(
        self,
        now_us: int,
        new: Configuration,
        *,
        tell_at_us: int,
        told_by: str = "",
        installed: bool = False,
        since: int = 0,
    ) -> None:
        """A configuration is decided: it is current from now on, if it is newer."""
        query, old = new.query, self.current(new.query)
        if old is not None and (old.life != new.life or old.number >= new.number):
            return
        self._voter.learn(new, installed=installed, since=since)
        if self._voter.has_forgotten(query):
            self._reenter(now_us, query)
        self._announcements.begin(old, new, told_by=told_by, at_us=tell_at_us)
        bid = self._bids.get(query)
        if bid is not None:
            bid.step(_E.NEWER)
            bid.rest(now_us)
            if new in bid.wishes:
                self.withdraw(query)
        if old is not None:
            self._outbox.report("info", "configuration decided", query=query, number=new.number)
        self._announcements.tell_due(now_us, query)
        self._decided(now_us, old, new)
        again = self._bids.get(query)
        if again is not None and again.state is ProposerState.RESTING:
            self._begin(now_us, query)

    # --- time -------------------------------------------------------------------------------------------

    def written(self, now_us: int) -> None:
        """The catalog is on disk, up to ``saver.durable``."""
        self._own_votes(now_us)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node is heard again, or no more."""
        for query, bid in list(self._bids.items()):
            current = self.current(query)
            if event is LinkEvent.PEER_DOWN and bid.waits:
                self._begin(now_us, query)
            elif current is not None and event is not LinkEvent.PEER_DOWN and peer in current.voters:
                self._ask(query, bid, (peer,))
        if event is LinkEvent.PEER_DOWN:
            self._announcements.lost(peer)
            for asked_by, message in list(self._deferred.values()):
                if peer in message.suspects:
                    self._asked(asked_by, message)
            return
        if event is LinkEvent.PEER_RESTARTED:
            self._announcements.restarted(peer)
        for query, reentry in list(self._reentries.items()):
            if peer in reentry.open:
                self._reenter(now_us, query)
            elif peer in reentry.others and self._reaches(peer):  # It may have forgotten that we don't vote.
                self._outbox.send(peer, reentry.question)
        self._announcements.came(now_us, peer)

    def tick(self, now_us: int) -> None:
        """Ask and tell again, begin a new ballot after a pause."""
        self._own_votes(now_us)
        for query in [each for each, kept in self._kept.items() if kept.forgot]:
            reentry = self._reentries.get(query)
            if reentry is None or now_us >= reentry.again_us:
                self._reenter(now_us, query)
        for query, bid in list(self._bids.items()):
            if bid.again_us is None or now_us < bid.again_us:
                continue
            current = self.current(query)
            if current is None or bid.question is None:
                self._begin(now_us, query)
                continue
            if self._wanted(query, bid) is None:  # A suspect is heard again, say: nothing else would end it.
                self.withdraw(query)
                continue
            bid.asked_again(now_us)
            self._ask(query, bid, current.voters)
            if bid.overruled:  # Those that haven't voted may never do.
                self._overruled(now_us, bid, current)
        self._announcements.tick(now_us)
        self._look_at_open(now_us)

    def _look_at_open(self, now_us: int) -> None:
        """Since when votes are waited for; the log names those that keep something undecided for long."""
        before, self._open = self._open, {}
        for query in dict.fromkeys((*self._bids, *self._reentries)):
            if (current := self.current(query)) is not None:
                known = before.get(query)
                same = known is not None and known.number == current.number
                self._open[query] = known if known is not None and same else _Open(current.number, now_us)
        for query, status in self.waiting(now_us).items():
            since = self._open[query]
            if status.waits_us >= SAY_WAITS_US and not since.said:
                since.said = True
                what = f"{'vote' if query in self._reentries else 'decision'} waits for other voters"
                names = status.waits_for
                self._outbox.report("warning", what, query=query, number=status.number + 1, waits_for=names)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [each.again_us for each in self._bids.values() if each.again_us is not None]
        times += [each.again_us for each in self._reentries.values()]
        told_us = self._announcements.wake_at_us()
        return min(times if told_us is None else [*times, told_us], default=None)
