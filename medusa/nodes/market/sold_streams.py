"""Streams that are sold: who reads by which contract, how many rows that were, and whether they came in time.

    reader ── Read ──> the contract in force says which columns leave, and the ledger what is owed
    reader ── TaskRows ──> from here on we pay; from there on no more     (as of a task that is lent)

The provider counts the rows that it has sent, the reader those that came. Where time is paid for both count
intervals of the contract, begun ones too. An interval is broken in which nothing came, row or boundary, for
longer than was agreed: each side looks itself, while it reaches the other one.

Which streams are sold stands in the specs of fragments, and from where on they are paid for in the ledger: so
nothing else of it has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from medusa.errors import LinkError
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import StopWork
from medusa.market.money import money_text
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.work import TradedTask
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.market.content_contracts import ContentContracts, StreamTerms
from medusa.nodes.market.content_terms import ContentTerms, nano_per_step
from medusa.nodes.market.market_words import TaskRows
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.market.unpaid_readers import UnpaidReaders
from medusa.nodes.spec.fragment_spec import SoldStream, sink_of
from medusa.query.published_stream import reads_of
from medusa.wire.outbox import Outbox

__all__ = ["SWITCH_WITHIN_US", "SoldStreams", "StreamDeal", "StreamStanding", "Unsell"]

Unsell = Callable[[int, str, str], None]
"""Takes the time, a stream that is sold, and why it is read no more."""

GRACE_US = 2_000_000
"""The reader gives the provider so much more time than was agreed: rows are under way, and looked for each
second. Too small: it claims breaches that were none; too large: it sees short ones not at all."""

SWITCH_WITHIN_US = 30_000_000
"""A reader that may not switch to another partner by then stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDeal:
    """One reading of one stream.

    Attributes:
        stream: of the reader alone.
        asked: the number of the question by which it came.
        rows: those before this one were sent, or came; ``begin``: and those before this one elsewhere.
        came: changes with each row and boundary; None: the other side isn't reached.
        columns: that are read.
        first: the first row that the reader was sent, since it attached last; None: it hasn't, or is ours.
    """

    partner: str
    contract: str
    stream: str
    asked: int
    rows: int
    came: tuple[int, int] | None
    columns: tuple[str, ...] = ()
    begin: int = 0
    first: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStanding:
    """How a contract about streams stands.

    Attributes:
        terms: that count now, or counted last.
        missed_us: for how long in all something should have come and didn't, in this life.
    """

    partner: str
    terms: ContentTerms
    in_force: bool
    readers: int
    missed_us: int


class SoldStreams:
    """Those of one node: what it sells, and what it buys.

    Args:
        own: our participant.
        fragments: what runs here.
        whose: the participant of a node.
        unsell: ends the reading of a stream that is sold.
    """

    def __init__(
        self,
        own: str,
        *,
        paid: PaidTasks,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        whose: Callable[[str], str | None],
        unsell: Unsell,
        outbox: Outbox,
    ) -> None:
        self._own, self._paid, self._catalog = own, paid, catalog
        self._fragments, self._whose, self._unsell, self._outbox = fragments, whose, unsell, outbox
        self._contracts = ContentContracts(own, paid)
        self._time_us = 0
        self._unpaid = UnpaidReaders()
        self._quiet: dict[tuple[str, int], tuple[tuple[int, int] | None, int]] = {}
        """What had come last of a reading, and when that was seen."""
        self._over: dict[tuple[str, int], None] = {}
        """Readings of ours that we don't pay for any more."""
        self._missed_us: dict[tuple[str, str], int] = {}

    # --- contracts ------------------------------------------------------------------------------------

    def signed(self, time_us: int, terms: ContentTerms, billing: Contract) -> None:
        """Both have signed it; the ledger has its own word for that."""
        self._time_us = time_us
        self._contracts.signed(terms, billing)

    def knows(self, partner: str) -> bool:
        """Whether there is a contract with it."""
        return bool(self._contracts.named(partner))

    def has(self, partner: str, contract: str) -> bool:
        """Whether it is one about streams."""
        return self._contracts.has(partner, contract)

    def sells(self, participant: str, stream: str, columns: tuple[str, ...]) -> SoldStream | None:
        """As of ``ContentContracts.selling``. None: no contract names the stream.

        Raises:
            LinkError: a contract names it, and nothing is sold by it just now (``E_NO_CONTRACT``).
        """
        first, why = self._contracts.selling(self._time_us, participant, stream, columns)
        if first is not None and self._unpaid.is_distrusted(self._time_us, participant):
            first, why = None, f"participant {participant!r} didn't say from which row on it pays"
        if first is None and why:
            hint = "compare medusa status at both nodes that trade; try again later"
            raise LinkError(f"stream {stream!r} isn't sold now: {why}", hint=hint, code="E_NO_CONTRACT")
        return first

    def buys(self, partner: str, stream: str, columns: tuple[str, ...]) -> str:
        """As of ``ContentContracts.buying``."""
        return self._contracts.buying(self._time_us, partner, stream, columns)

    def _newest(self, partner: str, contract: str) -> StreamTerms | None:
        return self._contracts.newest(self._time_us, partner, contract)

    def _due(self, deal: StreamDeal, terms: StreamTerms) -> StreamTerms:
        return self._contracts.due(self._time_us, deal.partner, deal.contract, terms)

    # --- who reads ------------------------------------------------------------------------------------

    def selling(self) -> Iterator[StreamDeal]:
        """What others read here by a contract."""
        for hosted in self._fragments.values():
            spec = hosted.spec
            for id, sold in spec.sold.items():
                sender = hosted.outputs[id].sender
                views = sender.receivers.values()
                sent = (max(view.sent_seq, view.durable) for view in views)
                firsts = (view.wanted_seq for view in views if view.epoch)
                yield StreamDeal(
                    partner=sold.partner,
                    contract=self._sold_by(sold, spec.streams[id], spec.guests[id].asked),
                    stream=spec.streams[id],
                    asked=spec.guests[id].asked,
                    rows=max(sent, default=0),
                    came=(sender.log.next_seq, sender.log.boundary_us),
                    columns=sold.columns,
                    first=min(firsts, default=None),
                )

    def _sold_by(self, sold: SoldStream, stream: str, asked: int) -> str:
        """The contract by which it is paid for; else the one by which it began to be read."""
        for name in (sold.contract, *self._contracts.named(sold.partner)):
            if self._paid.has(name, sold.partner, asked, stream):
                return name
        return sold.contract

    def buying(self) -> Iterator[StreamDeal]:
        """What we read of others by a contract."""
        over = self._over.keys() | self._ended()
        for hosted in self._fragments.values():
            for feed in hosted.spec.feeds:
                read = self._catalog.reading.get(feed.stream)
                input = hosted.inputs.get((feed.source, feed.node))
                partner = self._whose(feed.node) or self._own
                if read is None or input is None or not read.asked or partner == self._own:
                    continue
                if (feed.stream, read.asked) in over:
                    continue
                source = reads_of(hosted.spec.graph).get(feed.source)
                columns = () if source is None else tuple(each.name for each in source.schema)
                contract = self._bought_by(partner, feed.stream, read.asked, columns)
                if not contract:
                    continue
                receiver = input.receiver
                there = input.silent_since_us is None
                yield StreamDeal(
                    partner=partner,
                    contract=contract,
                    stream=feed.stream,
                    asked=read.asked,
                    rows=input.fed_seq,
                    came=(receiver.next_seq, receiver.boundary_us) if there else None,
                    columns=columns,
                    begin=read.begin,
                )

    def _bought_by(self, partner: str, stream: str, asked: int, columns: tuple[str, ...]) -> str:
        """The contract by which we read it: the one by which we began to pay, else one that counts now."""
        for name in self._contracts.named(partner):
            if self._paid.has(name, partner, asked, stream):
                return name
        return self.buys(partner, sink_of(stream), columns)

    def _ended(self) -> set[tuple[str, int]]:
        """Readings that we pay for no more, of which the partner may not know yet."""
        return {(mark.task, mark.negotiation) for mark in self._paid.kept_marks() if mark.end_row is not None}

    # --- time -----------------------------------------------------------------------------------------

    def follow(self, now_us: int, time_us: int, since_us: int) -> None:
        """Look who reads, from where on that is paid for, and whether rows came in time.

        Args:
            since_us: how long ago that was done last.
        """
        self._time_us = time_us
        missed: dict[tuple[str, str], int] = {}
        seen: set[tuple[str, int]] = set()
        for selling, deals in ((True, tuple(self.selling())), (False, tuple(self.buying()))):
            for deal in deals:
                terms = self._newest(deal.partner, deal.contract)
                if terms is None:
                    if selling:
                        self._unsell(now_us, deal.stream, f"contract {deal.contract!r} is none here any more")
                    continue
                seen.add((deal.stream, deal.asked))
                about = deal.partner, deal.contract
                quiet_us = terms.content.quiet_us + (0 if selling else GRACE_US)
                missed[about] = max(missed.get(about, 0), self._missed(deal, time_us, since_us, quiet_us))
                if selling:
                    self._follow_reader(now_us, time_us, deal, terms)
                else:
                    self._follow_reading(time_us, deal, terms)
        for (partner, contract), missed_us in missed.items():
            self._paid.measured(time_us, contract, partner, missed_us)
            self._missed_us[partner, contract] = self._missed_us.get((partner, contract), 0) + missed_us
        self._unpaid.follow(time_us, seen)
        self._quiet = {key: quiet for key, quiet in self._quiet.items() if key in seen}
        self._over = {key: None for key in self._over if key[0] in self._catalog.reading}
        self._end_readings(time_us, seen)

    def _missed(self, deal: StreamDeal, time_us: int, since_us: int, quiet_us: int) -> int:
        """For how long, of the time since the last look, something should have come and didn't."""
        key = deal.stream, deal.asked
        came, seen_us = self._quiet.get(key, (None, time_us))
        if deal.came is None or came != deal.came:
            self._quiet[key] = deal.came, time_us
            return 0
        self._quiet[key] = came, seen_us
        return max(time_us - max(seen_us + quiet_us, time_us - since_us), 0)

    def _follow_reader(self, now_us: int, time_us: int, deal: StreamDeal, terms: StreamTerms) -> None:
        made, key = self._deal(deal, terms, "guest"), (deal.stream, deal.asked)
        is_paid = self._paid.is_paid(made)
        if is_paid:
            self._unpaid.forget(key)
        else:
            interval_us = terms.billing.interval_s * 1_000_000
            self._unpaid.sees(time_us, key, deal.partner, interval_us, deal.first)
        self._paid.runs_here(made, self._rows(deal, terms), begin_most=self._begin_most(deal, terms))
        stopped = self._paid.stopped(deal.contract, deal.partner)
        why = f"nothing is sold by contract {deal.contract!r} now: {stopped}" if stopped else ""
        why = why or self._differs(deal, terms)
        if not why and not is_paid:
            versions = self._paid.versions(deal.contract, deal.partner)
            if versions is None or versions.at(time_us) is None:
                why = f"contract {deal.contract!r} doesn't count now"
            else:
                why = self._unpaid.end_late(time_us, key)
        if why:
            self._unpaid.forget(key)
            self._end_sale(now_us, deal.stream, deal.partner, why)
        else:
            self._paid.count(time_us, made, self._rows(deal, terms))

    def _begin_most(self, deal: StreamDeal, terms: StreamTerms) -> int | None:
        """What a reader gets is paid from the first row on, or the interval in which it came; None: as yet
        nothing says which that is."""
        attached = self._unpaid.attached((deal.stream, deal.asked))
        if not terms.content.by_time:
            return None if attached is None else attached[1]
        since_us = self._time_us if attached is None else attached[0]
        return self._intervals(deal, since_us + GRACE_US) - 1  # The reader looks a second later.

    def _differs(self, deal: StreamDeal, terms: StreamTerms) -> str:
        """Why a reading can't go on by the version that should count now; empty: it can."""
        due = self._due(deal, terms).content
        columns = due.streams.get(sink_of(deal.stream))
        version = f"version {due.version} of contract {deal.contract!r}"
        if columns is None:
            return f"{version} sells it no more"
        if tuple(each.name for each in columns) != deal.columns:
            return f"{version} sells other columns: {', '.join(each.name for each in columns)}"
        return f"{version} has another price" if self._prices_differ(deal, terms) else ""

    def _prices_differ(self, deal: StreamDeal, terms: StreamTerms) -> bool:
        due = self._due(deal, terms).content
        prices = due.price_micro or 0, nano_per_step(due)
        began = self._paid.prices(deal.contract, deal.partner, deal.asked, deal.stream)
        return began not in (None, prices) or due.by_time != terms.content.by_time

    def _end_sale(self, now_us: int, stream: str, partner: str, why: str) -> None:
        about = {"stream": stream, "partner": partner, "why": why}
        self._outbox.report("warning", "a stream is sold no more", **about)
        self._unsell(now_us, stream, why)

    def _follow_reading(self, time_us: int, deal: StreamDeal, terms: StreamTerms) -> None:
        made = self._deal(deal, terms, "away")
        if not self._paid.is_paid(made):
            begin = self._rows(deal, terms) - 1 if terms.content.by_time else deal.begin
            why = self._differs(deal, terms) or self._paid.went(time_us, made, begin)
            if why:
                about = {"stream": deal.stream, "partner": deal.partner, "why": why}
                self._outbox.report("warning", "a stream that is read can't be paid for", **about)
                self._over[deal.stream, deal.asked] = None
                return
        elif why := self._differs(deal, terms):
            about = {"stream": deal.stream, "partner": deal.partner, "why": why}
            self._outbox.report("warning", "a stream is paid for no more", **about)
            self._stop_paying(time_us, deal.partner, deal.asked, deal.stream, terms)
            return
        self._paid.count(time_us, made, self._rows(deal, terms))

    def _end_readings(self, time_us: int, seen: Set[tuple[str, int]]) -> None:
        """What isn't read any more isn't paid for any more."""
        for mark in self._paid.kept_marks():
            terms = self._newest(mark.partner, mark.contract)
            if terms is None or mark.end_row is not None or (mark.task, mark.negotiation) in seen:
                continue
            if not self._still_reads(mark.task, mark.negotiation):
                self._stop_paying(time_us, mark.partner, mark.negotiation, mark.task, terms)

    def _still_reads(self, stream: str, asked: int) -> bool:
        """Whether a query of ours has a stream, even if what reads it isn't here just now: while it is taken
        over, or in doubt after a restart. Its rows wait for it."""
        read = self._catalog.reading.get(stream)
        if read is not None and read.asked == asked:
            return True
        return stream in self._catalog.reads_in_doubt()

    def read_elsewhere(self, time_us: int, deal: StreamDeal, row: int) -> None:
        """A stream that we read comes from another participant from this row on."""
        self._time_us = time_us
        terms = self._newest(deal.partner, deal.contract)
        if terms is not None:
            self._stop_paying(time_us, deal.partner, deal.asked, deal.stream, terms, row)

    def _stop_paying(
        self, time_us: int, partner: str, asked: int, stream: str, terms: StreamTerms, row: int | None = None
    ) -> None:
        deal = _bare(partner, terms.content.id, stream, asked)
        if terms.content.by_time and not self._prices_differ(deal, terms):
            row = self._rows(deal, terms)
        self._over[stream, asked] = None
        self._paid.came_home(time_us, self._deal(deal, terms, "away"), row)

    def count(self, time_us: int) -> None:
        """Tell the ledger how many rows there are."""
        self._time_us = time_us
        for part, deals in (("guest", self.selling()), ("away", self.buying())):
            for deal in deals:
                terms = self._newest(deal.partner, deal.contract)
                if terms is not None and not self._differs(deal, terms):
                    made = self._deal(deal, terms, part)
                    self._paid.count(time_us, made, self._rows(deal, terms))
        for mark in self._paid.kept_marks():
            terms = self._newest(mark.partner, mark.contract)
            if terms is None or mark.end_row is not None or not terms.content.by_time:
                continue
            # Time is paid for whether what reads is here or not: ``_still_reads``.
            deal = _bare(mark.partner, mark.contract, mark.task, mark.negotiation)
            if self._still_reads(mark.task, mark.negotiation) and not self._prices_differ(deal, terms):
                self._paid.count(time_us, self._deal(deal, terms, "away"), self._rows(deal, terms))

    def _rows(self, deal: StreamDeal, terms: StreamTerms) -> int:
        """Rows so far; where time is paid for, intervals of the contract, with the one that runs."""
        if not terms.content.by_time:
            return deal.rows
        return self._intervals(deal, self._time_us)

    def _intervals(self, deal: StreamDeal, time_us: int) -> int:
        """Of the contract until then, with the one that runs."""
        versions = self._paid.versions(deal.contract, deal.partner)
        assert versions is not None
        slot = versions.at(time_us) or versions.last_ended(time_us)
        return 0 if slot is None else versions.ordinal(slot) + 1

    def _deal(self, deal: StreamDeal, terms: StreamTerms, part: str) -> KeptDeal:
        return KeptDeal(
            part="guest" if part == "guest" else "away",
            partner=deal.partner,
            task=TradedTask(name=deal.stream, owner=terms.content.consumer),
            contract=terms.billing,
            negotiation=deal.asked,
            price_micro=terms.billing.price_micro,
            nano=nano_per_step(terms.content),
            since_us=0,
        )

    # --- ends -----------------------------------------------------------------------------------------

    def opens(self, time_us: int, partner: str, word: TaskRows) -> None:
        """A reader says by which contract it pays for what it reads here: that one counts, if it sells just
        that. The ledger is told next."""
        self._time_us = time_us
        if not self.has(partner, word.contract):
            return
        for deal in tuple(self.selling()):
            if (deal.partner, deal.stream, deal.asked) != (partner, word.task, word.negotiation):
                continue
            known = self._paid.has(deal.contract, partner, deal.asked, deal.stream)
            sink, terms = sink_of(deal.stream), self._newest(partner, word.contract)
            if known or terms is None or deal.contract == word.contract:
                return
            if self._contracts.sells_by(time_us, partner, word.contract, sink, deal.columns):
                named = replace(deal, contract=word.contract)
                rows, begin_most = self._rows(named, terms), self._begin_most(named, terms)
                self._paid.runs_here(self._deal(named, terms, "guest"), rows, begin_most=begin_most)

    def told(self, now_us: int, partner: str, word: TaskRows) -> None:
        """A reader says from which row on it pays; or that it pays no more from some row on: it gets no more
        either."""
        if self._paid.has(word.contract, partner, word.negotiation, word.task):
            self._unpaid.forget((word.task, word.negotiation))
        if word.end_row is None or not self.has(partner, word.contract):
            return
        for deal in tuple(self.selling()):
            if (deal.partner, deal.stream, deal.asked) == (partner, word.task, word.negotiation):
                self._unsell(now_us, deal.stream, "its reader doesn't pay for it any more")

    def order(self, effect: StopWork) -> Callable[[int], None]:
        """What to do about it once all that was agreed is on disk; of the time of the node."""
        return lambda now_us: self._stop(now_us, effect)

    def _stop(self, now_us: int, effect: StopWork) -> None:
        terms = self._newest(effect.partner, effect.contract)
        for asked, stream in effect.tasks:
            if terms is not None and terms.content.consumer == self._own:
                self._stop_paying(self._time_us, effect.partner, asked, stream, terms)
            else:
                self._end_sale(now_us, stream, effect.partner, effect.text)

    # --- what is seen ---------------------------------------------------------------------------------

    def explained(self) -> Iterator[str]:
        """Of each contract, in a sentence."""
        for each in self.status():
            terms = each.terms
            price = money_text(terms.price_micro or 0, terms.currency)
            read = (
                f"{each.readers} of {terms.consumer}'s queries read"
                if each.in_force
                else "it doesn't count now"
            )
            yield (
                f"contract {terms.id}: {terms.provider} sells {terms.consumer} {', '.join(terms.streams)} for"
                f" {price} a {terms.price_unit or 'row'}; {read}"
            )

    def status(self) -> Iterator[StreamStanding]:
        """Of each contract."""
        read = [(deal.partner, deal.contract) for deal in (*self.selling(), *self.buying())]
        for about in self._contracts.all:
            terms, counts = self._newest(*about), self._paid.versions(about[1], about[0])
            if terms is not None:
                yield StreamStanding(
                    partner=about[0],
                    terms=terms.content,
                    in_force=counts is not None and counts.at(self._time_us) is not None,
                    readers=read.count(about),
                    missed_us=self._missed_us.get(about, 0),
                )


def _bare(partner: str, contract: str, stream: str, asked: int) -> StreamDeal:
    """A reading of ours of which nothing is here just now."""
    return StreamDeal(partner=partner, contract=contract, stream=stream, asked=asked, rows=0, came=None)
