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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import StopWork
from medusa.market.money import money_text
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.work import TradedTask
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.market.content_terms import ContentTerms, nano_per_step
from medusa.nodes.market.market_words import TaskRows
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.spec.fragment_spec import SoldStream, sink_of
from medusa.wire.outbox import Outbox

__all__ = ["SoldStreams", "StreamDeal", "StreamStanding", "Unsell"]

Unsell = Callable[[int, str, str], None]
"""Takes the time, a stream that is sold, and why it is read no more."""

GRACE_US = 2_000_000
"""The reader gives the provider so much more time than was agreed: rows are under way, and looked for each
second. Too small: it claims breaches that were none; too large: it sees short ones not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDeal:
    """One reading of one stream.

    Attributes:
        stream: of the reader alone.
        asked: the number of the question by which it came.
        rows: those before this one were sent, or came; ``begin``: and those before this one elsewhere.
        came: changes with each row and boundary; None: the other side isn't reached.
    """

    partner: str
    contract: str
    stream: str
    asked: int
    rows: int
    came: tuple[int, int] | None
    begin: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    content: ContentTerms
    billing: Contract


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
        self._contracts: dict[tuple[str, str], dict[int, _Terms]] = {}
        self._time_us = 0
        self._since: dict[tuple[str, int], int] = {}
        """Readers of what we sell, and since when they are there."""
        self._quiet: dict[tuple[str, int], tuple[tuple[int, int] | None, int]] = {}
        """What had come last of a reading, and when that was seen."""
        self._over: dict[tuple[str, int], None] = {}
        """Readings of ours that we don't pay for any more."""
        self._missed_us: dict[tuple[str, str], int] = {}

    # --- contracts ------------------------------------------------------------------------------------

    def signed(self, time_us: int, terms: ContentTerms, billing: Contract) -> None:
        """Both have signed it; the ledger has its own word for that."""
        self._time_us = time_us
        partner = terms.provider if terms.consumer == self._own else terms.consumer
        made = _Terms(content=terms, billing=billing)
        self._contracts.setdefault((partner, terms.id), {})[terms.version] = made

    def knows(self, partner: str) -> bool:
        """Whether there is a contract with it."""
        return any(each == partner for each, _ in self._contracts)

    def has(self, partner: str, contract: str) -> bool:
        """Whether it is one about streams."""
        return (partner, contract) in self._contracts

    def sells(self, participant: str, stream: str) -> SoldStream | None:
        """By which contract in force another participant may read a stream of ours; None: by none."""
        found = self._terms_of(participant, stream, selling=True)
        if found is None:
            return None
        columns = tuple(each.name for each in found.content.streams[stream])
        return SoldStream(partner=participant, contract=found.content.id, columns=columns)

    def buys(self, partner: str, stream: str, columns: tuple[str, ...]) -> str:
        """The contract in force by which we may read just these columns at a partner; empty: none."""
        found = self._terms_of(partner, stream, selling=False)
        if found is None or tuple(each.name for each in found.content.streams[stream]) != columns:
            return ""
        return found.content.id

    def _terms_of(self, partner: str, stream: str, *, selling: bool) -> _Terms | None:
        """The first contract in force, by name, by which this stream is sold."""
        for (whose, name), versions in sorted(self._contracts.items()):
            if whose != partner or self._paid.stopped(name, partner):
                continue
            counts = self._paid.versions(name, partner)
            slot = None if counts is None else counts.at(self._time_us)
            terms = None if slot is None else versions.get(slot.version)
            if (
                terms is not None
                and (terms.content.provider == self._own) == selling
                and stream in terms.content.streams
            ):
                return terms
        return None

    def _newest(self, partner: str, contract: str) -> _Terms | None:
        """What counts of it now; of one that is over, what counted last."""
        versions = self._contracts.get((partner, contract))
        counts = self._paid.versions(contract, partner)
        if not versions or counts is None:
            return None
        slot = counts.at(self._time_us)
        return versions.get(slot.version if slot is not None else max(versions))

    # --- who reads ------------------------------------------------------------------------------------

    def selling(self) -> Iterator[StreamDeal]:
        """What others read here by a contract."""
        for hosted in self._fragments.values():
            spec = hosted.spec
            for id, sold in spec.sold.items():
                sender = hosted.outputs[id].sender
                sent = (max(view.sent_seq, view.durable) for view in sender.receivers.values())
                yield StreamDeal(
                    partner=sold.partner,
                    contract=sold.contract,
                    stream=spec.streams[id],
                    asked=spec.guests[id].asked,
                    rows=max(sent, default=0),
                    came=(sender.log.next_seq, sender.log.boundary_us),
                )

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
                contract = self._bought_by(partner, feed.stream, read.asked)
                if contract is None:
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
                    begin=read.begin,
                )

    def _bought_by(self, partner: str, stream: str, asked: int) -> str | None:
        """The contract by which we read it: the one by which we began to pay, else one that counts now."""
        for name in sorted(name for whose, name in self._contracts if whose == partner):
            if self._paid.has(name, partner, asked, stream):
                return name
        found = self._terms_of(partner, sink_of(stream), selling=False)
        return None if found is None else found.content.id

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
        self._since = {key: since for key, since in self._since.items() if key in seen}
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

    def _follow_reader(self, now_us: int, time_us: int, deal: StreamDeal, terms: _Terms) -> None:
        made = self._deal(deal, terms, "guest")
        self._paid.runs_here(made, self._rows(deal, terms))
        since_us = self._since.setdefault((deal.stream, deal.asked), time_us)
        stopped = self._paid.stopped(deal.contract, deal.partner)
        why = f"nothing is sold by contract {deal.contract!r} now: {stopped}" if stopped else ""
        if not why and not self._paid.is_paid(made):
            versions = self._paid.versions(deal.contract, deal.partner)
            if versions is None or versions.at(time_us) is None:
                why = f"contract {deal.contract!r} doesn't count now"
            elif time_us - since_us >= terms.billing.interval_s * 1_000_000:
                why = f"participant {deal.partner!r} doesn't say from which row on it pays"
        if why:
            self._end_sale(now_us, deal.stream, deal.partner, why)
        else:
            self._paid.count(time_us, made, self._rows(deal, terms))

    def _end_sale(self, now_us: int, stream: str, partner: str, why: str) -> None:
        about = {"stream": stream, "partner": partner, "why": why}
        self._outbox.report("warning", "a stream is sold no more", **about)
        self._unsell(now_us, stream, why)

    def _follow_reading(self, time_us: int, deal: StreamDeal, terms: _Terms) -> None:
        made = self._deal(deal, terms, "away")
        if not self._paid.is_paid(made):
            begin = self._rows(deal, terms) - 1 if terms.content.by_time else deal.begin
            if why := self._paid.went(time_us, made, begin):
                about = {"stream": deal.stream, "partner": deal.partner, "why": why}
                self._outbox.report("warning", "a stream that is read can't be paid for", **about)
                self._over[deal.stream, deal.asked] = None
                return
        self._paid.count(time_us, made, self._rows(deal, terms))

    def _end_readings(self, time_us: int, seen: set[tuple[str, int]]) -> None:
        """What isn't read any more isn't paid for any more."""
        for mark in self._paid.kept_marks():
            terms = self._newest(mark.partner, mark.contract)
            if terms is None or mark.end_row is not None or (mark.task, mark.negotiation) in seen:
                continue
            self._stop_paying(time_us, mark.partner, mark.negotiation, mark.task, terms)

    def read_elsewhere(self, time_us: int, deal: StreamDeal, row: int) -> None:
        """A stream that we read comes from another participant from this row on."""
        self._time_us = time_us
        terms = self._newest(deal.partner, deal.contract)
        if terms is not None:
            self._stop_paying(time_us, deal.partner, deal.asked, deal.stream, terms, row)

    def _stop_paying(
        self, time_us: int, partner: str, asked: int, stream: str, terms: _Terms, row: int | None = None
    ) -> None:
        deal = StreamDeal(
            partner=partner, contract=terms.content.id, stream=stream, asked=asked, rows=0, came=None
        )
        if terms.content.by_time:
            row = self._rows(deal, terms)
        self._over[stream, asked] = None
        self._paid.came_home(time_us, self._deal(deal, terms, "away"), row)

    def count(self, time_us: int) -> None:
        """Tell the ledger how many rows there are."""
        self._time_us = time_us
        for part, deals in (("guest", self.selling()), ("away", self.buying())):
            for deal in deals:
                terms = self._newest(deal.partner, deal.contract)
                if terms is not None:
                    made = self._deal(deal, terms, part)
                    self._paid.count(time_us, made, self._rows(deal, terms))

    def _rows(self, deal: StreamDeal, terms: _Terms) -> int:
        """Rows so far; where time is paid for, intervals of the contract, with the one that runs."""
        if not terms.content.by_time:
            return deal.rows
        versions = self._paid.versions(deal.contract, deal.partner)
        assert versions is not None
        slot = versions.at(self._time_us) or versions.last_ended(self._time_us)
        return 0 if slot is None else versions.ordinal(slot) + 1

    def _deal(self, deal: StreamDeal, terms: _Terms, part: str) -> KeptDeal:
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

    def told(self, now_us: int, partner: str, word: TaskRows) -> None:
        """A reader says that it pays no more from some row on: it gets no more either."""
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
        for about in sorted(self._contracts):
            terms, counts = self._newest(*about), self._paid.versions(about[1], about[0])
            if terms is not None:
                yield StreamStanding(
                    partner=about[0],
                    terms=terms.content,
                    in_force=counts is not None and counts.at(self._time_us) is not None,
                    readers=read.count(about),
                    missed_us=self._missed_us.get(about, 0),
                )
