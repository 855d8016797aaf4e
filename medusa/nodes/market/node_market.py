"""The market on a node: the one door. Messages and time come in; messages, and orders to move, go out.

Time of the market is that of the wall, and never goes back in a life. What the trader and the ledger want
kept is in the catalog before anything that follows from it is said or done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from medusa.errors import ContractError, LinkError, RemoteProtocolError
from medusa.market.contract.signed import ContentDocument
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import KeepRecord, LedgerLine, SayInLedger, StopWork
from medusa.market.negotiation.effects import HandBack, HandOver, Say, TradeLine
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_market import KeptMarket
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings_market import MarketRules
from medusa.nodes.config.settings_security import Security
from medusa.nodes.deploy.admission import ClusterNow
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.market.content_terms import ContentTerms, billing_contract
from medusa.nodes.market.market_status import market_status
from medusa.nodes.market.market_words import (
    BookedWord,
    ReadOn,
    ReadsOn,
    StreamSuggested,
    SuggestionHeard,
    TaskRows,
    TaskRowsHeard,
    encode_word,
    read_booked,
    read_traded,
)
from medusa.nodes.market.measured_tasks import KnownLoads
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.market.planned_moves import PlannedMoves
from medusa.nodes.market.signed_documents import signed_by_both
from medusa.nodes.market.signed_papers import SignedPapers, read_papers
from medusa.nodes.market.sold_streams import SoldStreams
from medusa.nodes.market.suggested_streams import ReadersElsewhere, SuggestedStreams
from medusa.nodes.market.tasks_port import TaskMoves
from medusa.nodes.market.traded_tasks import OwnFragments, TradedTasks
from medusa.nodes.message_table import Heard
from medusa.nodes.security.registry import Refusal
from medusa.nodes.security.sessions import say_no
from medusa.nodes.spec.fragment_spec import SoldStream
from medusa.ports import Signer, Verify
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.market import Booked, Traded
from medusa.wire.messages.move import Move
from medusa.wire.outbox import AddReceipt, Outbox
from medusa.wire.status_and_metrics import MarketStatus

__all__ = ["ContentReader", "NodeMarket"]

ContentReader = Callable[[ContentDocument], ContentTerms]
"""Reads what was signed about rows of a stream; raises ``ContractError``."""

LOOK_US = 1_000_000
"""So often is looked at what runs here, and how many rows have come. Too small: work for nothing; too large:
an overload, and rows, show late."""

WARM_US = 5_000_000
"""After its start a node takes and offers nothing for so long: it doesn't know yet what fragments take."""

ASKED_MAX = 256
"""Messages that may still be answered with a refusal."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be done once a write of the catalog is durable."""

    after: int
    do: Callable[[int], None]


class NodeMarket:
    """Trades for a participant.

    Args:
        own: our participant; ``node``: this one.
        security: keys of the participants.
        papers: name of a file -> its text: contracts, and their ends.
        incarnation: larger than in any earlier life.
        moves: moves fragments between participants.
        fragments: what of our own runs here; ``hosts``: all that runs here.
        content: reads contracts about streams; None: those don't count here.
        whose: the participant of a node.
        streams: changes where streams are read.
        wall: the time; None: nobody has told it yet.
        peers: peer -> ``up`` or ``silent``, as it is now.
        cluster: what runs fragments in the node's place; None: they run in the node.
        number: of our next question.
        count: told the code of what was refused.

    Raises:
        StateError: what was kept of the ledger is none.
    """

    def __init__(
        self,
        own: str,
        node: str,
        rules: MarketRules,
        security: Security,
        papers: Mapping[str, str],
        *,
        incarnation: int,
        catalog: Catalog,
        saver: CatalogWriter,
        outbox: Outbox,
        signer: Signer,
        verify: Verify,
        loads: KnownLoads,
        moves: TaskMoves,
        fragments: OwnFragments,
        hosts: Mapping[str, FragmentHost],
        content: ContentReader | None,
        whose: Callable[[str], str | None],
        streams: ReadersElsewhere,
        wall: Callable[[int], int | None],
        peers: Mapping[str, str],
        number: Callable[[], int],
        count: Callable[[str], None],
        cluster: Callable[[], ClusterNow | None] = lambda: None,
    ) -> None:
        self._own, self._node, self._rules, self._partners = own, node, rules, dict(rules.partners)
        self._federation, self._verify = security.federation, verify
        self._keys = dict(security.counting().participants)
        self._files, self._papers = dict(papers), SignedPapers()
        self._catalog, self._saver, self._outbox = catalog, saver, outbox
        self._wall, self._peers, self._number, self._count = wall, peers, number, count
        self._paid = PaidTasks(
            own, self._federation, signer=signer, verify=verify, keys=self._keys, kept=catalog.market
        )
        self._tasks = TradedTasks(
            own,
            rules,
            seed=f"{node}/{incarnation}",
            paid=self._paid,
            moves=moves,
            loads=loads,
            fragments=fragments,
            outbox=outbox,
            cluster=cluster,
        )
        self._moves = moves
        self._content = content
        self._sold = SoldStreams(
            own,
            paid=self._paid,
            catalog=catalog,
            fragments=hosts,
            whose=whose,
            unsell=streams.unsell,
            outbox=outbox,
        )
        self._suggested = SuggestedStreams(
            sold=self._sold,
            streams=streams,
            catalog=catalog,
            fragments=hosts,
            partners=self._partners,
            whose=whose,
            suggest=rules.suggest,
            follow=rules.policy.follow,
            say=self._book_word,
            number=number,
            outbox=outbox,
        )
        self._planned = PlannedMoves(own, node, self._partners, tasks=self._tasks, moves=moves, outbox=outbox)
        self._time_us: int | None = None
        self._begun = self._ledger_changed = False
        self._started_us = self._look_at_us = self._looked_us = 0
        self._says: list[tuple[str, type[Traded] | type[Booked], bytes, int]] = []
        self._orders: list[_Order] = []
        self._token = 0
        self._asked: dict[int, str] = {}
        self._refused_by: dict[str, str] = {}
        self._waits: list[Contract] = []
        """Versions that the ledger takes once tasks are home whose price they don't allow."""

    # --- contracts ------------------------------------------------------------------------------------

    def rules_read(
        self,
        now_us: int,
        security: Security,
        papers: Mapping[str, str] | None,
        suggest: Mapping[str, str] | None = None,
    ) -> None:
        """Keys, contracts and what is suggested (None: those stay) were read again. A file that is gone
        changes nothing: a contract ends by its date, or by a revocation."""
        if suggest is not None:
            self._suggested.rules_read(suggest)
        self._keys.clear()
        self._keys.update(security.counting().participants)
        if papers is not None:
            self._files = dict(papers)
        time_us = self._advance(now_us)
        if self._begun and time_us is not None:
            self._take_papers(time_us)
            self._turn(now_us, time_us)

    def _take_papers(self, time_us: int) -> None:
        found = read_papers(
            self._files,
            own=self._own,
            federation=self._federation,
            keys=self._keys,
            verify=self._verify,
            partners=self._partners,
        )
        refused = dict(found.refused)
        for name, contract in found.contracts.items():
            try:
                self._tasks.signed(time_us, contract)
            except ContractError as error:
                refused[name] = error.message
            else:
                self._book(time_us, contract)
        for name, document in found.contents.items():
            try:
                self._take_content(time_us, document)
            except ContractError as error:
                refused[name] = f"{error.message}; {error.hint}" if error.hint else error.message
        for name, paper in found.revocations.items():
            partner = next(each for each in paper.parties if each != self._own)
            versions = self._paid.versions(paper.id, partner)
            if versions is None:
                refused[name] = f"there is no contract {paper.id!r} with {partner!r} that it could end"
            elif versions.newest.version > paper.version:
                refused[name] = f"version {versions.newest.version} has taken the place of what it ends"
            else:
                self._paid.end(paper.id, partner, paper.ends_us)
                if not self._sold.has(partner, paper.id):
                    self._tasks.revoked(time_us, paper.id, partner, paper.ends_us)
        for name, why in refused.items():
            if self._papers.refused.get(name) != why:
                self._outbox.report("warning", "a contract doesn't count", file=name, why=why)
        self._papers = replace(found, refused=refused)

    def _take_content(self, time_us: int, document: ContentDocument) -> None:
        if self._content is None:
            raise ContractError("this node reads no contracts about rows of a stream", code="contract.kind")
        partner = document.provider if document.consumer == self._own else document.consumer
        if self._tasks.has(partner, document.id):
            text = f"contract {document.id!r} with {partner!r} is one about load already"
            raise ContractError(text, hint="give it an id of its own", code="contract.version")
        terms = self._content(document)
        billing = billing_contract(terms)
        self._sold.signed(time_us, terms, billing)
        self._book(time_us, billing)

    def sells(self, participant: str, stream: str, columns: tuple[str, ...]) -> SoldStream | None:
        """As of ``SoldStreams``.

        Raises:
            LinkError: also where a partner's contracts aren't known yet (``E_BUSY``).
        """
        if self._begun:
            return self._sold.sells(participant, stream, columns)
        if participant in self._partners:
            text = f"node {self._node!r} doesn't know yet which contracts count: nobody has told it the time"
            raise LinkError(text, hint="try again in a moment", code="E_BUSY")
        return None

    def _book(self, time_us: int, contract: Contract) -> None:
        try:
            self._paid.sign(time_us, contract)
        except ContractError as error:
            if contract not in self._waits:
                self._waits.append(contract)
                self._outbox.report("info", "a version waits for tasks to come home", why=error.message)

    def _book_waiting(self, time_us: int) -> None:
        waits, self._waits = self._waits, []
        for contract in waits:
            try:
                self._paid.sign(time_us, contract)
            except ContractError:
                self._waits.append(contract)

    def signal(self, now_us: int, client: str, move: Move) -> bool:
        """A client wants a fragment moved; whether that is by a plan of a contract, and so is done here."""
        time_us = self._advance(now_us)
        if time_us is None or not self._begun:
            return False
        taken = self._planned.signal(now_us, time_us, client, move)
        if taken:
            self._turn(now_us, time_us)
        return taken

    # --- time -----------------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """The node begins."""
        self._started_us = self._looked_us = now_us
        self.tick(now_us)

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        time_us = self._advance(now_us)
        if time_us is None:
            return
        self._begin(time_us)
        self._reach(time_us)
        if now_us >= self._look_at_us:
            self._look(now_us, time_us)
        self._tasks.tick(time_us)
        self._count_rows(time_us)
        self._paid.tick(time_us)
        for partner, word in self._paid.due(time_us):
            self._book_word(partner, word)
        self._turn(now_us, time_us)

    def _look(self, now_us: int, time_us: int) -> None:
        since_us, self._looked_us = now_us - self._looked_us, now_us
        self._look_at_us = now_us + LOOK_US
        self._book_waiting(time_us)
        # What came home is known as such before it is measured here: its last row is taken then.
        self._tasks.follow(now_us, time_us)
        self._tasks.missed(time_us, since_us)
        self._sold.follow(now_us, time_us, since_us)
        self._suggested.tick(now_us, time_us)
        if now_us >= self._started_us + WARM_US:
            self._tasks.measure(time_us)

    def count_rows(self) -> None:
        """What runs here may end now: its last rows count."""
        if self._begun and self._time_us is not None:
            self._count_rows(self._time_us)

    def _count_rows(self, time_us: int) -> None:
        self._tasks.count(time_us)
        self._sold.count(time_us)

    def written(self, now_us: int) -> None:
        """The catalog may have become durable."""
        if self._orders and self._time_us is not None:
            self._turn(now_us, self._time_us)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has something to do."""
        time_us = self._advance(now_us)
        if time_us is None:
            return None
        times = (self._tasks.wake_at_us(), self._paid.wake_at_us(time_us))
        later = (now_us + max(each - time_us, 0) for each in times if each is not None)
        return min((*later, self._look_at_us))

    def _advance(self, now_us: int) -> int | None:
        """The time of the market; None: nobody has told it yet."""
        wall_us = self._wall(now_us)
        if wall_us is not None:
            self._time_us = max(wall_us, self._time_us or 0)
        return self._time_us

    def _begin(self, time_us: int) -> None:
        """Once, as soon as the time is known: go on from what was kept."""
        if not self._begun:
            self._begun = True
            self._take_papers(time_us)
            kept = self._catalog.market
            self._tasks.resume(time_us, kept.trades)
            # Of these the process may have died before they were in the file.
            for document in (each for record in kept.ledger for each in signed_by_both(record)):
                self._outbox.append(document)

    def _reach(self, time_us: int) -> None:
        for partner, node in self._partners.items():
            if self._tasks.reaches(time_us, partner, up=self._peers.get(node) == "up"):
                self._paid.is_reached(partner)

    # --- messages -------------------------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """Take what a node of another participant says about load.

        Raises:
            RemoteProtocolError: it is too long, or no word of the market: the link ends.
        """
        partner = "" if heard.caller is None else heard.caller.participant
        traded = read_traded(heard.peer, heard.payload) if isinstance(heard.message, Traded) else None
        booked = read_booked(heard.peer, heard.payload) if traded is None else None
        time_us = self._advance(heard.now_us)
        if time_us is None:
            return  # It is said again.
        self._begin(time_us)
        if refusal := self._against(partner, heard.peer):
            self._count(refusal.code)
            say_no(self._outbox, heard.peer, heard.message, refusal)
            return
        try:
            if traded is not None:
                self._tasks.receive(time_us, partner, traded)
            elif booked is not None:
                self._take_booked(heard.now_us, time_us, partner, booked)
        except RemoteProtocolError as error:
            # It changed nothing. Links carry rows too: what is wrong about money doesn't end them.
            self._count(error.code)
            about = {"partner": partner, "why": error.message}
            self._outbox.report("warning", "a word of the market is refused", **about)
        self._turn(heard.now_us, time_us)

    def _against(self, partner: str, node: str) -> Refusal | None:
        if not self._tasks.knows(partner) and not self._sold.knows(partner):
            text = f"participant {partner!r} has no contract with {self._own!r} here"
            hint = "both have to sign one, and either's node to have the file: docs/market.md"
            return Refusal(code="E_NO_CONTRACT", text=text, hint=hint)
        trades = self._partners.get(partner)
        if trades != node:
            text = f"node {node!r} doesn't trade for {partner!r} here, {trades!r} does"
            return Refusal(code="E_ROLE", text=text, hint=f"compare [market.partners.{partner}]")
        return None

    def _take_booked(self, now_us: int, time_us: int, partner: str, word: BookedWord) -> None:
        if isinstance(word, TaskRows):
            self._tasks.follow(now_us, time_us)
            self._sold.opens(time_us, partner, word)
            answer = self._paid.told(time_us, partner, word)
            if answer is not None:
                self._ledger_changed = True
                self._sold.told(now_us, partner, word)
                self._book_word(partner, answer)
        elif isinstance(word, TaskRowsHeard):
            self._paid.heard(time_us, partner, word)
        elif isinstance(word, StreamSuggested | SuggestionHeard | ReadOn | ReadsOn):
            self._suggested.receive(now_us, partner, word)
        else:
            self._count_rows(time_us)  # A reading is compared with what is here by now.
            self._paid.receive(time_us, partner, word)

    def answered(self, peer: str, reply: Reply) -> bool:
        """Whether a refusal is about something that was said here; then it is shown."""
        partner = self._asked.pop(reply.request, None)
        if partner is None:
            return False
        why = f"{reply.code}, {reply.text}" if reply.code else ""
        if why and self._refused_by.get(partner) != why:
            self._refused_by[partner] = why
            self._outbox.report("warning", "a partner refuses to trade", partner=partner, why=why, node=peer)
        return True

    # --- what is wanted -------------------------------------------------------------------------------

    def _turn(self, now_us: int, time_us: int) -> None:
        """Follow what has moved, keep what is to be kept, and do what is durable, until nothing is left."""
        while True:
            self._take_effects()  # What is to go is known before it is looked where it is.
            self._tasks.follow(now_us, time_us)
            self._take_effects()
            self._tasks.permit(time_us)
            self._keep()
            if not self._do_orders(now_us):
                break
        self._planned.look(now_us)

    def _take_effects(self) -> None:
        for booked in self._paid.take_effects():
            match booked:
                case KeepRecord():
                    self._ledger_changed = True
                    self._orders += [_Order(-1, self._filed(each)) for each in signed_by_both(booked.data)]
                case SayInLedger():
                    self._book_word(booked.partner, booked.message)
                case StopWork():
                    about = {"contract": booked.contract, "partner": booked.partner, "code": booked.code}
                    self._outbox.report("warning", f"work stops: {booked.text}", **about)
                    self._order(booked)
                case LedgerLine():
                    self._outbox.report(booked.level, booked.text, **dict(booked.about))
        for traded in self._tasks.take_effects():
            match traded:
                case Say():
                    self._say(traded.partner, Traded, encode_word(traded.message))
                case HandOver() | HandBack():
                    self._order(traded)
                case TradeLine():
                    self._outbox.report(traded.level, traded.text, **_told(traded.about))

    def _order(self, effect: HandOver | HandBack | StopWork) -> None:
        # The write that it waits for comes behind it: which one that is, ``_keep`` says.
        if isinstance(effect, StopWork) and self._sold.has(effect.partner, effect.contract):
            self._orders.append(_Order(-1, self._sold.order(effect)))
        else:
            self._orders.append(_Order(-1, self._tasks.order(effect)))

    def _filed(self, document: AddReceipt) -> Callable[[int], None]:
        return lambda now_us: self._outbox.append(document)

    def _book_word(self, partner: str, word: BookedWord, after: int = 0) -> None:
        self._say(partner, Booked, encode_word(word), after)

    def _say(self, partner: str, kind: type[Traded] | type[Booked], payload: bytes, after: int = 0) -> None:
        node = self._partners.get(partner)
        if node is not None and self._peers.get(node) == "up":  # Else it is lost: it is said again.
            self._says.append((partner, kind, payload, after))

    def _keep(self) -> None:
        """Write what has changed; what follows from it waits for that."""
        before = self._catalog.market
        kept = KeptMarket(
            trades=self._tasks.kept(),
            ledger=self._paid.snapshot() if self._ledger_changed else before.ledger,
            marks=self._paid.kept_marks(),
        )
        self._ledger_changed = False
        if kept != before:
            self._catalog.keep_market(kept)
            self._token = self._saver.save()
        self._orders = [_Order(self._token, each.do) if each.after < 0 else each for each in self._orders]
        says, self._says = self._says, []
        for partner, kind, payload, after in says:
            request = self._number()
            self._asked[request] = partner
            token = max(self._token, after)
            self._saver.send(self._partners[partner], kind(request=request), payload, after=token)
        while len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]

    def _do_orders(self, now_us: int) -> bool:
        """Whether something was done, from which more may follow."""
        ready = [each for each in self._orders if each.after <= self._saver.durable]
        self._orders = [each for each in self._orders if each.after > self._saver.durable]
        for each in ready:
            each.do(now_us)
        return bool(ready)

    @property
    def is_selling(self) -> bool:
        """A fragment of ours is on its way to a partner: not one that is there, of which we hear nothing."""
        return bool(self._moves.sending())

    def is_giving_back(self, since_us: int) -> bool:
        """An owner was asked since then to take a guest home, and hasn't yet; of the time of the node."""
        return any(asked_us >= since_us for asked_us in self._moves.giving_back().values())

    # --- what is seen ---------------------------------------------------------------------------------

    def status(self, now_us: int) -> MarketStatus:
        """How it trades: docs/market.md describes each field."""
        time_us = self._advance(now_us)
        return market_status(
            time_us or 0,
            self._rules,
            tasks=self._tasks,
            paid=self._paid,
            sold=self._sold,
            up={whose: self._peers.get(node) == "up" for whose, node in self._partners.items()},
            refused_papers=self._papers.refused,
            refused_by=self._refused_by,
        )


def _told(about: Mapping[str, str | int | float]) -> dict[str, str | int]:
    """As the log has it."""
    return {name: f"{value:g}" if isinstance(value, float) else value for name, value in about.items()}
