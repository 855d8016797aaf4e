"""A stream that is sold is read elsewhere from now on: its seller suggests a partner that has it too.

    seller ── StreamSuggested ──> reader            (the partner, and what the reader's row 0 is called there)
                                  reader ── ReadOn ──> partner: it keeps what comes from now on, under the
                                  reader <── ReadsOn ─ partner  numbers that the reader has, from some row on
                                  the reader has all rows before that one on disk, and asks
                                  once more: it reads on there, at the next one
    seller <── SuggestionHeard ── reader            and pays the one up to that row, the other from it on

The partner has the stream as a replica: a query of the same name there reads the sink, and its own sink has
the same rows, one for one. So rows have the same numbers but for where each began to read, which the seller
knows of both. Nothing of it is kept: what was lost is suggested, or asked for, again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.market.market_words import BookedWord, ReadOn, ReadsOn, StreamSuggested, SuggestionHeard
from medusa.nodes.market.sold_streams import SWITCH_WITHIN_US, SoldStreams, StreamDeal
from medusa.nodes.spec.fragment_spec import sink_of
from medusa.query.boxes import Source
from medusa.query.published_stream import reads_of
from medusa.wire.messages.rerouting import Read
from medusa.wire.outbox import Outbox

__all__ = ["ReadersElsewhere", "SuggestedStreams"]

AGAIN_US = 2_000_000
"""What isn't answered is said again after this. Too small: noise; too large: a lost word holds the switch up
for so long."""

REFUSED_US = 60_000_000
"""As ``AGAIN_US``, of what was refused."""

STAYS = "a reader stays: it can't be sent elsewhere"


class ReadersElsewhere(Protocol):
    """Who changes where streams are read: ``Rerouting``."""

    def origin(self, stream: str) -> int | None: ...

    def read_on(self, peer: str, message: Read, origin: int) -> tuple[int, int]: ...

    def reads_on(self, now_us: int, stream: str, node: str, asked: int) -> int | None: ...

    def unsell(self, now_us: int, stream: str, why: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Switch:
    """A reading of ours that is to go elsewhere.

    Attributes:
        begin: the first row that the partner keeps for us; None: it hasn't said.
        asks_again: all rows before ``begin`` are on disk here, and the partner is asked whether it still
            keeps the others; ``sure``: it does.
    """

    deal: StreamDeal
    to: str
    asked: int
    word: ReadOn
    since_us: int
    said_us: int
    begin: int | None = None
    asks_again: bool = False
    sure: bool = False


class SuggestedStreams:
    """Those of one node: what it suggests, what it is suggested, and who comes to it so.

    Args:
        follow: partners whose suggestions are followed.
        say: has a word go to a partner, once that write of the catalog is durable.
        number: of our next question.
    """

    def __init__(
        self,
        *,
        sold: SoldStreams,
        streams: ReadersElsewhere,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        partners: Mapping[str, str],
        whose: Callable[[str], str | None],
        suggest: Mapping[str, str],
        follow: tuple[str, ...],
        say: Callable[[str, BookedWord, int], None],
        number: Callable[[], int],
        outbox: Outbox,
    ) -> None:
        self._sold, self._streams, self._catalog, self._fragments = sold, streams, catalog, fragments
        self._partners, self._whose, self._suggest, self._follow = partners, whose, dict(suggest), follow
        self._say, self._number, self._outbox = say, number, outbox
        self._say_at_us: dict[tuple[str, int], int] = {}
        self._refused: dict[tuple[str, int], str] = {}
        self._switches: dict[str, _Switch] = {}
        self.switched = 0

    def rules_read(self, suggest: Mapping[str, str]) -> None:
        """What is suggested was read again."""
        self._suggest = dict(suggest)
        self._say_at_us.clear()

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now_us: int, time_us: int) -> None:
        """Suggest what is to be suggested, and read on elsewhere what may be."""
        if self._suggest:
            deals = tuple(self._sold.selling())
            here = {(each.stream, each.asked) for each in deals}
            self._say_at_us = {key: at_us for key, at_us in self._say_at_us.items() if key in here}
            self._refused = {key: why for key, why in self._refused.items() if key in here}
            for deal in deals:
                self._suggest_one(now_us, deal)
        for switch in tuple(self._switches.values()):
            self._go_on(now_us, time_us, switch)

    def _suggest_one(self, now_us: int, deal: StreamDeal) -> None:
        key, to = (deal.stream, deal.asked), self._suggest.get(sink_of(deal.stream))
        if to is None or to == deal.partner or now_us < self._say_at_us.get(key, now_us):
            return
        self._say_at_us[key] = now_us + AGAIN_US
        origin = self._origin_at(to, deal.stream)
        if origin is None:
            self._stays(key, f"participant {to!r} has no query of this name that reads the stream")
            return
        word = StreamSuggested(
            contract=deal.contract, stream=deal.stream, asked=deal.asked, partner=to, origin=origin
        )
        self._say(deal.partner, word, 0)

    def _origin_at(self, partner: str, stream: str) -> int | None:
        """What the sink of a partner's replica calls row 0 of a reader of ours; None: it has no replica."""
        query, ours = stream.partition(".")[0], self._streams.origin(stream)
        for spec in self._catalog.fragments.values():
            for id, guest in spec.guests.items():
                name = spec.streams[id]
                there = [self._whose(node) for node in spec.readers.get(id, ())]
                if guest.query == query and sink_of(name) == sink_of(stream) and partner in there:
                    theirs = self._streams.origin(name)
                    return None if ours is None or theirs is None else ours - theirs
        return None

    def _stays(self, key: tuple[str, int], why: str) -> None:
        if self._refused.get(key) != why:
            self._refused[key] = why
            self._outbox.report("warning", STAYS, stream=key[0], why=why)

    def _go_on(self, now_us: int, time_us: int, switch: _Switch) -> None:
        if now_us - switch.since_us >= SWITCH_WITHIN_US:
            del self._switches[switch.deal.stream]
            self._heard(switch.deal, "E_TIMEOUT", f"{switch.to!r} is behind, or doesn't answer")
            return
        if not self._may_switch(now_us, switch):
            return
        row = self._streams.reads_on(now_us, switch.deal.stream, self._partners[switch.to], switch.asked)
        if row is None:
            return
        del self._switches[switch.deal.stream]
        self.switched += 1
        self._sold.read_elsewhere(time_us, switch.deal, row)
        self._outbox.report(
            "info",
            "a stream is read elsewhere, as its seller suggested",
            stream=switch.deal.stream,
            partner=switch.deal.partner,
            to=switch.to,
            row=row,
        )
        self._heard(switch.deal, "", "")

    def _may_switch(self, now_us: int, switch: _Switch) -> bool:
        """Whether the partner keeps all rows that we don't have; it is asked until it has said so."""
        if switch.sure:
            return True
        if switch.begin is None or switch.asks_again:
            asks = now_us >= switch.said_us + AGAIN_US
        else:
            asks = switch.asks_again = self._has_on_disk(switch.deal.stream, switch.begin)
        if asks:
            switch.said_us = now_us
            self._say(switch.to, switch.word, 0)
        return False

    def _has_on_disk(self, stream: str, begin: int) -> bool:
        """Whether all rows before this one, which the partner hasn't, survive our death: the seller drops
        them as soon as we read elsewhere."""
        for hosted in self._fragments.values():
            for feed in hosted.spec.feeds:
                if feed.stream == stream:
                    return hosted.inputs[feed.source, feed.node].receiver.durable_seq >= begin
        return False

    # --- words ----------------------------------------------------------------------------------------

    def receive(
        self,
        now_us: int,
        partner: str,
        word: StreamSuggested | SuggestionHeard | ReadOn | ReadsOn,
    ) -> None:
        """Take what a partner says. What isn't ours, or is over, is no news."""
        match word:
            case StreamSuggested():
                self._suggested(now_us, partner, word)
            case SuggestionHeard():
                self._answered(now_us, partner, word)
            case ReadOn():
                self._read_on(partner, word)
            case ReadsOn():
                self._reads_on(now_us, partner, word)

    def _suggested(self, now_us: int, partner: str, word: StreamSuggested) -> None:
        deal = next(
            (each for each in self._sold.buying() if (each.stream, each.asked) == (word.stream, word.asked)),
            None,
        )
        if deal is None or deal.partner != partner:
            answer = SuggestionHeard(contract=word.contract, stream=word.stream, asked=word.asked)
            self._say(partner, answer, 0)  # It is read there no more: that is what was wished.
            return
        if word.stream in self._switches:
            return
        if partner not in self._follow:
            self._heard(deal, "E_POLICY", f"[market.policy] follow doesn't name {partner!r}")
            return
        source = self._source_of(word.stream)
        columns = () if source is None else tuple(field.name for field in source.schema)
        sink = sink_of(word.stream)
        contract = self._sold.buys(word.partner, sink, columns)
        if source is None or not contract or word.partner not in self._partners:
            self._heard(deal, "E_NO_CONTRACT", f"no contract in force sells {sink!r} at {word.partner!r}")
            return
        asked = self._number()
        ask = ReadOn(
            contract=contract,
            query=self._query_of(word.stream),
            source=source.id,
            stream=sink,
            columns=tuple((field.name, field.type) for field in source.schema),
            timed=source.timed,
            asked=asked,
            origin=word.origin,
        )
        self._switches[word.stream] = _Switch(
            deal=deal,
            to=word.partner,
            asked=asked,
            word=ask,
            since_us=now_us,
            said_us=now_us,
        )
        self._say(word.partner, ask, 0)

    def _query_of(self, stream: str) -> str:
        return self._catalog.reading[stream].query

    def _source_of(self, stream: str) -> Source | None:
        for hosted in self._fragments.values():
            for feed in hosted.spec.feeds:
                if feed.stream == stream:
                    return reads_of(hosted.spec.graph).get(feed.source)
        return None

    def _heard(self, deal: StreamDeal, code: str, text: str) -> None:
        self._say(
            deal.partner,
            SuggestionHeard(
                contract=deal.contract, stream=deal.stream, asked=deal.asked, code=code, text=text[:256]
            ),
            0,
        )

    def _answered(self, now_us: int, partner: str, word: SuggestionHeard) -> None:
        key = word.stream, word.asked
        known = {(each.stream, each.asked) for each in self._sold.selling() if each.partner == partner}
        if key not in known:
            return
        if word.code:
            self._say_at_us[key] = now_us + REFUSED_US
            self._stays(key, f"{word.code}, {word.text}")
        else:
            self._refused.pop(key, None)

    def _read_on(self, partner: str, word: ReadOn) -> None:
        read = Read(
            request=word.asked,
            query=word.query,
            source=word.source,
            stream=word.stream,
            schema=word.schema(),
            timed=word.timed,
        )
        begin, after, code, text = 0, 0, "", ""
        try:
            if self._sold.sells(partner, word.stream, tuple(name for name, _ in word.columns)) is None:
                raise LinkError(f"no contract in force sells {word.stream!r} here", code="E_NO_CONTRACT")
            begin, after = self._streams.read_on(self._partners[partner], read, word.origin)
        except LinkError as error:
            code, text = error.code, error.message[:256]
        answer = ReadsOn(contract=word.contract, asked=word.asked, begin=begin, code=code, text=text)
        self._say(partner, answer, after)

    def _reads_on(self, now_us: int, partner: str, word: ReadsOn) -> None:
        switch = next(
            (each for each in self._switches.values() if (each.asked, each.to) == (word.asked, partner)), None
        )
        if switch is None:
            return
        if not word.code:
            # Another row than before: it had ended what we didn't come for, and has begun anew.
            switch.sure = switch.asks_again and word.begin == switch.begin
            switch.asks_again = switch.sure
            switch.begin = word.begin
        elif word.code != "E_BUSY":
            del self._switches[switch.deal.stream]
            self._heard(switch.deal, word.code, word.text)
