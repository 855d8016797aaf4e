"""Streams that are sold: what leaves, from where on it is paid for, and who says that it came in time."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

from medusa.elements import Boundary, Train
from medusa.errors import ContractError, LinkError, RemoteProtocolError
from medusa.market.ledger.effects import KeepRecord, LedgerLine, SayInLedger, StopWork
from medusa.market.ledger.ledger import LedgerStanding
from medusa.market.money import MONEY_MAX
from medusa.nodes.catalog.catalog import CrossQueryRead
from medusa.nodes.catalog.kept_market import KeptMarket
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.market.content_terms import ROWS_PER_S_MOST, ContentTerms, billing_contract, nano_per_step
from medusa.nodes.market.market_words import TaskRows
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.market.sold_streams import SoldStreams
from medusa.nodes.spec.fragment_spec import Feed, ForeignReader, SoldStream
from medusa.query.boxes import Graph, Sink, Source
from medusa.query.shape import StreamShape
from medusa.query.structs import Field
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.outbox import Outbox, ReportLine
from tests.nodes.keyed import Signer, verify
from tests.nodes.market.owners import WALL_US

S = 1_000_000
STREAM, ASKED = "cars.out.bigco.q.cars", 7
TERMS = ContentTerms(
    id="cars",
    version=1,
    provider="acme",
    consumer="bigco",
    begins_us=WALL_US,
    ends_us=WALL_US + 3_600 * S,
    notice_s=0,
    streams={"cars.out": (Field("ts", "int64"), Field("v", "int64"))},
    price_micro=2_000,
    price_unit="row",
    currency="EUR",
    latency_us=S,
    availability_ppm=900_000,
    breach_micro=500_000,
    interval_s=10,
)


class Side:
    """One of the two, with a ledger of its own and what it has of the stream."""

    def __init__(self, own, terms):
        self.own, self.unsold = own, []
        self.rows, self.boundary_us, self.there = 0, 0, True
        self.first, self.asked = 0, ASKED
        self.columns = ("ts", "v")
        self.label = "cars"
        self.stream = True
        self.outbox = Outbox()
        keys = {name: Signer(name).key for name in ("acme", "bigco")}
        self.paid = PaidTasks(own, "fed", signer=Signer(own), verify=verify, keys=keys, kept=KeptMarket())
        self.said = []
        self.stopped = []
        self.waits = []
        self.fragments = {}
        self.here = True
        self.in_doubt = set()
        read = CrossQueryRead(node="shop", query="q", asked=ASKED)
        self.reading = {STREAM: read} if own == "bigco" else {}
        self.sold = SoldStreams(
            own,
            paid=self.paid,
            catalog=SimpleNamespace(
                reading=self.reading,
                reads_in_doubt=lambda: self.in_doubt,
            ),
            fragments=self.fragments,
            whose={"shop": "acme", "desk": "bigco"}.get,
            unsell=self._unsell,
            outbox=self.outbox,
        )
        billing = billing_contract(terms)
        self.sold.signed(WALL_US, terms, billing)
        self.paid.sign(WALL_US, billing)

    def _unsell(self, now_us, stream, why):
        self.unsold.append((stream, why))
        self.stream = False

    def show(self):
        """The fragment as it is now."""
        self.fragments.clear()
        if not self.stream or not self.here:
            return
        if self.own == "acme":
            attached = {"wanted_seq": self.first, "epoch": 0 if self.first is None else 1}
            view = SimpleNamespace(sent_seq=self.rows, durable=0, **attached)
            log = SimpleNamespace(next_seq=self.rows, boundary_us=self.boundary_us)
            spec = SimpleNamespace(
                feeds=(),
                sold={"g": SoldStream(partner="bigco", contract=self.label, columns=self.columns)},
                streams={"g": STREAM},
                guests={"g": ForeignReader(sink="out", query="q", first=0, asked=self.asked, foreign=True)},
            )
            sender = SimpleNamespace(receivers={"desk": view}, log=log)
            outputs = {"g": SimpleNamespace(sender=sender)}
            self.fragments["cars/in"] = SimpleNamespace(spec=spec, outputs=outputs, inputs={})
        else:
            feed = Feed(source="cars", node="shop", stream=STREAM)
            receiver = SimpleNamespace(next_seq=self.rows, boundary_us=self.boundary_us)
            silent = None if self.there else 0
            input = SimpleNamespace(receiver=receiver, fed_seq=self.rows, silent_since_us=silent)
            schema = tuple(Field(name, "int64") for name in self.columns)
            source = Source(id="cars", schema=schema, judged=True, timed=True, of="acme/cars.out")
            graph = Graph(name="q", boxes=(source, Sink(id="out", inputs=())))
            spec = SimpleNamespace(feeds=(feed,), sold={}, streams={}, guests={}, graph=graph)
            self.fragments["q/cars"] = SimpleNamespace(
                spec=spec, inputs={("cars", "shop"): input}, outputs={}
            )

    def book(self):
        waits, self.waits = self.waits, []
        for billing in waits:
            try:
                self.paid.sign(WALL_US, billing)
            except ContractError:
                self.waits.append(billing)

    def standing(self, contract="cars") -> LedgerStanding:
        return next(each for each in self.paid.status() if each.contract == contract)


class Pair:
    """Both, with a network that loses nothing; a second is a step."""

    def __init__(self, terms=TERMS):
        self.sides = {name: Side(name, terms) for name in ("acme", "bigco")}
        self.acme, self.bigco = self.sides.values()
        self.now_s = 0
        self.told = True
        self.refused = []

    @property
    def time_us(self):
        return WALL_US + self.now_s * S

    def sign(self, terms):
        """Both have signed it; the ledger takes it as soon as it can."""
        billing = billing_contract(terms)
        for side in self.sides.values():
            side.sold.signed(self.time_us, terms, billing)
            side.waits.append(billing)

    def run(self, seconds, rows=0, *, comes=True):
        """So many rows come in each second, and a boundary behind them."""
        for _ in range(seconds):
            self.now_s += 1
            for side in self.sides.values():
                if comes:
                    side.rows += rows
                    side.boundary_us += 1
                side.show()
                side.book()
                side.sold.follow(self.now_s * S, self.time_us, S)
                side.sold.count(self.time_us)
                side.paid.tick(self.time_us)
                side.said += side.paid.due(self.time_us) if self.told else ()
            for _ in range(6):
                self._carry()

    def _carry(self):
        for name, side in self.sides.items():
            other = self.bigco if name == "acme" else self.acme
            said, side.said = side.said, []
            for _, word in said:
                if type(word).__name__ == "TaskRows":
                    other.sold.opens(self.time_us, name, word)
                    try:
                        answer = other.paid.told(self.time_us, name, word)
                    except RemoteProtocolError as error:
                        self.refused.append(error.code)
                        continue
                    if answer is not None:
                        other.sold.told(self.now_s * S, name, word)
                        side.paid.heard(self.time_us, other.own, answer)
                else:
                    other.sold.count(self.time_us)
                    other.paid.receive(self.time_us, name, word)
            for effect in side.paid.take_effects():
                match effect:
                    case SayInLedger():
                        side.said.append((effect.partner, effect.message))
                    case StopWork():
                        side.stopped.append(effect.code)
                        side.sold.order(effect)(self.now_s * S)
                    case KeepRecord() | LedgerLine():
                        pass

    def agrees(self, contract="cars"):
        ours, theirs = self.acme.standing(contract), self.bigco.standing(contract)
        assert (ours.owed_micro, ours.receipts) == (theirs.owed_micro, theirs.receipts)
        assert ours.disputes == theirs.disputes == 0
        return ours.owed_micro + ours.settled_micro


def test_each_row_that_came_is_paid_once():
    pair = Pair()
    pair.run(61, rows=3)
    assert pair.agrees() == 60 * 3 * 2_000
    assert pair.acme.unsold == []
    told = "contract cars: acme sells bigco cars.out for 0.002 EUR a row; 1 of bigco's queries read"
    assert [*pair.acme.sold.explained()] == [*pair.bigco.sold.explained()] == [told]


def test_time_is_paid_by_the_interval_whether_rows_come_or_not():
    terms = replace(TERMS, price_unit="minute", latency_us=0, availability_ppm=0, breach_micro=0)
    assert nano_per_step(terms) * 6 == 1_000_000_000 - 4, "rounded down"
    pair = Pair(terms)
    pair.run(61, comes=False)
    # The reading of the sixth interval has the seventh too, which has begun.
    assert pair.agrees() == 7 * 2_000 // 6
    assert sum(1 for _ in pair.acme.sold.selling()) == 1


@pytest.mark.parametrize(("quiet_s", "broken"), [(2, 0), (5, 1), (25, 3)])
def test_intervals_in_which_nothing_came_for_too_long_are_credited(quiet_s, broken):
    """A second may be quiet, and a tenth of each interval of ten."""
    pair = Pair()
    pair.run(12, rows=1)
    pair.run(quiet_s, comes=False)
    pair.run(59 - quiet_s, rows=1)
    paid = (70 - quiet_s) * 2_000
    assert pair.agrees() == paid - broken * 500_000


def test_the_reader_denies_what_is_said_of_a_breach_that_it_saw():
    pair = Pair()
    pair.run(12, rows=1)
    # Acme says that a boundary left each second; none came.
    for _ in range(28):
        pair.acme.boundary_us += 1
        pair.run(1, comes=False)
    assert pair.bigco.standing().disputes > 0
    assert pair.acme.standing().disputes == pair.bigco.standing().disputes
    assert "contract.breaches" in pair.bigco.stopped, "after two it takes no more"
    pair.run(5, comes=False)
    assert pair.acme.unsold, "and gets no more"


def test_who_is_not_reached_claims_nothing():
    pair = Pair()
    pair.run(12, rows=1)
    pair.bigco.there = False
    for _ in range(28):
        pair.acme.boundary_us += 1
        pair.run(1, comes=False)
    assert pair.agrees() == 12 * 2_000


def test_who_does_not_say_that_it_pays_gets_no_more_after_an_interval():
    pair = Pair()
    pair.told = False
    pair.run(12, rows=1)
    ((stream, why),) = pair.acme.unsold
    assert stream == STREAM
    assert "doesn't say from which row on it pays" in why
    (line,) = [each for each in pair.acme.outbox.take() if isinstance(each, ReportLine)]
    assert line.level == "warning"


def ended(pair, seconds, **rows):
    """The second of so many in which acme's sale was ended first; None: in none."""
    for second in range(1, seconds + 1):
        pair.run(1, **rows)
        if pair.acme.unsold:
            return second
    return None


@pytest.mark.parametrize(("first", "second"), [(0, 11), (None, 41)], ids=["gets rows", "never came"])
def test_a_reader_has_time_to_come_and_to_say_that_it_pays(first, second):
    """However short an interval is: one that comes from another partner reads there for up to 30 s yet."""
    pair = Pair(replace(TERMS, interval_s=1, latency_us=0, availability_ppm=0, breach_micro=0))
    pair.told, pair.acme.first = False, first
    assert ended(pair, 60) == second
    if first is None:
        assert sells(pair) is not None, "it got nothing"


def refusal(pair):
    """Why bigco can't begin to read now; empty: it can."""
    try:
        assert sells(pair) is not None
    except LinkError as error:
        return error.message
    return ""


def test_who_never_pays_is_sold_nothing_for_longer_and_longer():
    pair = Pair()
    pair.told = False
    free_s = []
    for number in range(3):
        pair.acme.stream, pair.acme.asked = True, 100 + number
        pair.acme.unsold.clear()
        assert ended(pair, 20) is not None
        waited = 0
        while "didn't say from which row on it pays" in refusal(pair):
            waited += 1
            pair.run(1)
        free_s.append(waited)
    assert free_s == [60, 120, 240]


def test_who_asks_anew_before_its_time_is_over_is_known_too():
    pair = Pair()
    pair.told = False
    for number in range(4):
        pair.acme.asked = 100 + number
        pair.run(4, rows=1)
    with pytest.raises(LinkError, match="didn't say from which row on it pays"):
        sells(pair)
    assert not pair.acme.unsold, "of the one that reads now the time isn't over"


def test_a_reader_that_says_later_that_it_paid_is_sold_more():
    pair = Pair()
    pair.told = False
    pair.run(4, rows=1)
    pair.told = True
    pair.bigco.stream = False
    pair.bigco.reading.clear()
    pair.run(30, rows=1)
    assert sells(pair) is not None
    assert pair.agrees() == 4 * 2_000


@pytest.mark.parametrize("by", ["row", "minute"])
def test_a_reader_does_not_choose_from_where_on_it_pays(by):
    terms = TERMS if by == "row" else replace(TERMS, price_unit="minute")
    pair = Pair(terms)
    pair.told = False
    pair.run(4, rows=5)
    said = TaskRows(contract="cars", negotiation=ASKED, task=STREAM, begin_row=20 if by == "row" else 1)
    with pytest.raises(RemoteProtocolError, match="is paid from row") as error:
        pair.acme.paid.told(pair.time_us, "bigco", said)
    assert error.value.code == "E_BILLING"
    pair.told = True
    pair.run(9, rows=5)
    assert (pair.refused, pair.acme.unsold) == ([], []), "where it began is fine"


def test_one_that_comes_at_the_end_of_an_interval_may_be_seen_in_the_next_one():
    pair = Pair(replace(TERMS, price_unit="minute"))
    pair.acme.stream = pair.bigco.here = False
    pair.run(8)
    pair.acme.stream = True
    pair.run(1)
    pair.bigco.here = True
    pair.run(20)
    assert (pair.refused, pair.acme.unsold) == ([], [])


SECOND = replace(TERMS, version=2, begins_us=WALL_US + 20 * S)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (replace(SECOND, streams={"cars.out": (Field("ts", "int64"),)}), "sells other columns: ts"),
        (replace(SECOND, streams={"cars.in": (Field("ts", "int64"),)}), "sells it no more"),
        (replace(SECOND, price_micro=4_000), "has another price"),
        (replace(SECOND, price_micro=1_000), "has another price"),
        (replace(SECOND, price_unit="minute"), "has another price"),
    ],
    ids=["columns", "streams", "higher", "lower", "unit"],
)
@pytest.mark.parametrize("signed_s", [0, 5], ids=["before", "while it is read"])
def test_a_new_version_ends_what_it_does_not_sell(second, why, signed_s):
    pair = Pair()
    pair.run(signed_s, rows=1)
    pair.sign(second)
    pair.run(18 - signed_s, rows=1)
    assert pair.acme.unsold == []
    pair.run(20, rows=1)
    assert any(text.endswith(why) for _, text in pair.acme.unsold), pair.acme.unsold
    assert pair.agrees() in (19 * 2_000, 20 * 2_000), "nothing is paid by what has ended"


def test_a_new_version_of_the_same_ends_nothing():
    pair = Pair()
    pair.sign(replace(SECOND, breach_micro=1))
    pair.run(61, rows=1)
    assert pair.acme.unsold == []
    assert pair.agrees() == 60 * 2_000


def test_what_a_version_takes_out_is_not_sold_by_the_one_before_while_that_is_read():
    pair = Pair()
    pair.run(5, rows=1)
    pair.sign(replace(SECOND, price_micro=1_000))
    pair.run(10, rows=1)
    assert sells(pair) is not None
    pair.told = False  # Bigco can't say that it has ended.
    pair.run(6, rows=1)
    with pytest.raises(LinkError, match="version 2 of contract 'cars' waits"):
        sells(pair)
    pair.told = True
    pair.run(10)
    assert sells(pair) is not None


@pytest.mark.parametrize("where", ["away", "doubt"])
@pytest.mark.parametrize("by", ["row", "minute"])
def test_a_reader_that_is_not_here_just_now_keeps_its_stream(where, by):
    """What reads it is being taken over, or is in doubt after a restart."""
    pair = Pair(replace(TERMS, price_unit=by, latency_us=0, availability_ppm=0, breach_micro=0))
    pair.run(15, rows=2)
    pair.bigco.here = False
    if where == "doubt":
        pair.bigco.in_doubt.add(STREAM)
        pair.bigco.reading.clear()
    pair.run(25)
    assert pair.acme.unsold == []
    pair.bigco.here = True
    pair.bigco.reading[STREAM] = CrossQueryRead(node="shop", query="q", asked=ASKED)
    pair.bigco.in_doubt.clear()
    pair.run(21, rows=2)
    assert pair.agrees() == ((15 + 20) * 2 * 2_000 if by == "row" else 7 * 2_000 // 6)


def test_a_query_that_asked_anew_pays_no_more_for_what_it_had():
    pair = Pair()
    pair.run(15, rows=2)
    pair.bigco.here = False
    pair.bigco.reading[STREAM] = CrossQueryRead(node="shop", query="q", asked=ASKED + 1)
    pair.run(5, rows=2)
    assert pair.acme.unsold == [(STREAM, "its reader doesn't pay for it any more")]


def test_of_two_contracts_the_one_with_the_columns_counts():
    pair = Pair()
    pair.sign(replace(TERMS, id="all", streams={"cars.out": (Field("ts", "int64"),)}))
    pair.run(1, rows=1)
    assert sells(pair).contract == "cars"
    assert sells(pair, columns=("ts",)).contract == "all"
    assert sells(pair, columns=("w",)).contract == "all", "whose columns it hasn't: the first says so"
    assert pair.bigco.sold.buys("acme", "cars.out", ("ts",)) == "all"
    assert [each.contract for each in pair.bigco.sold.buying()] == ["cars"]


# --- two contracts about the same columns -------------------------------------------------------------

CHEAPER = replace(TERMS, id="again", price_micro=1_000)
"""Of the same columns, and before the other one by name."""


def sign_at(side, terms):
    """This side alone knows it as yet."""
    billing = billing_contract(terms)
    side.sold.signed(WALL_US, terms, billing)
    side.paid.sign(WALL_US, billing)


def test_of_two_contracts_the_one_counts_by_which_the_reader_pays():
    """It doesn't know the one that acme would go by."""
    pair = Pair()
    sign_at(pair.acme, CHEAPER)
    pair.acme.label = sells(pair).contract
    assert pair.acme.label == "again"
    pair.run(61, rows=3)
    assert (pair.acme.unsold, pair.refused) == ([], [])
    assert pair.agrees() == 60 * 3 * 2_000
    assert pair.acme.standing("again").receipts == 0
    assert [each.contract for each in pair.acme.sold.selling()] == ["cars"]
    pair.bigco.stream = False
    pair.bigco.reading.clear()
    pair.run(12, rows=3)
    assert pair.acme.unsold == [(STREAM, "its reader doesn't pay for it any more")]
    assert pair.agrees() == 61 * 3 * 2_000


def test_of_two_contracts_the_reader_pays_by_the_first_that_counts_at_both():
    """As it asked acme knew the other one only."""
    pair = Pair()
    for side in pair.sides.values():
        sign_at(side, CHEAPER)
    assert pair.acme.label == "cars"
    pair.run(61, rows=3)
    assert (pair.acme.unsold, pair.refused) == ([], [])
    assert pair.agrees("again") == 60 * 3 * 1_000
    assert pair.agrees("cars") == 0
    assert [each.contract for each in pair.acme.sold.selling()] == ["again"]


@pytest.mark.parametrize("by", ["row", "minute"])
def test_a_reader_that_pays_by_another_contract_pays_from_the_row_on_that_it_got_first(by):
    pair = Pair()
    for side in pair.sides.values():
        sign_at(side, replace(CHEAPER, price_unit=by))
    pair.told = False
    pair.run(4, rows=5)
    said = TaskRows(contract="again", negotiation=ASKED, task=STREAM, begin_row=20 if by == "row" else 1)
    pair.acme.sold.opens(pair.time_us, "bigco", said)
    with pytest.raises(RemoteProtocolError, match="is paid from row") as error:
        pair.acme.paid.told(pair.time_us, "bigco", said)
    assert error.value.code == "E_BILLING"
    pair.told = True
    pair.run(9, rows=5)
    assert (pair.refused, pair.acme.unsold) == ([], [])


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(CHEAPER, begins_us=WALL_US + 3_000 * S),
        replace(CHEAPER, streams={"cars.out": (Field("ts", "int64"),)}),
        replace(CHEAPER, streams={"cars.in": TERMS.streams["cars.out"]}),
    ],
    ids=["unknown", "later", "other columns", "another stream"],
)
def test_who_pays_by_a_contract_that_does_not_sell_it_gets_no_more_after_an_interval(other):
    pair = Pair()
    sign_at(pair.bigco, CHEAPER)
    if other is not None:
        sign_at(pair.acme, other)
    pair.run(12, rows=1)
    ((_, why),) = pair.acme.unsold
    assert "doesn't say from which row on it pays" in why
    pair.run(20, rows=1)
    assert pair.agrees() == 0
    assert pair.acme.standing().exposure_micro == 0
    if other is not None:
        assert pair.acme.standing("again").exposure_micro == pair.acme.standing("again").receipts == 0


def test_by_which_contract_a_stream_is_paid_for_is_said_once():
    """A word about another one later changes nothing: the first opening counts."""
    pair = Pair()
    pair.run(3, rows=1)
    for side in pair.sides.values():
        sign_at(side, CHEAPER)
    said = TaskRows(contract="again", negotiation=ASKED, task=STREAM, begin_row=0)
    pair.acme.sold.opens(pair.time_us, "bigco", said)
    assert pair.acme.paid.told(pair.time_us, "bigco", said) is None
    pair.run(58, rows=1)
    assert [each.contract for each in pair.acme.sold.selling()] == ["cars"]
    assert pair.agrees() == 60 * 2_000
    assert pair.acme.standing("again").receipts == 0


def test_a_reader_that_goes_pays_for_what_came_and_no_more():
    pair = Pair()
    pair.run(15, rows=2)
    pair.bigco.stream = False
    pair.bigco.reading.clear()
    pair.run(20, rows=2)
    assert pair.acme.unsold == [(STREAM, "its reader doesn't pay for it any more")]
    assert pair.agrees() == 15 * 2 * 2_000
    assert [*pair.bigco.sold.buying()] == [*pair.acme.sold.selling()] == []


def sells(pair, partner="bigco", stream="cars.out", columns=("ts", "v")):
    return pair.acme.sold.sells(partner, stream, columns)


def test_it_sells_while_the_contract_counts():
    pair = Pair(replace(TERMS, ends_us=WALL_US + 30 * S))
    pair.run(25, rows=1)
    assert sells(pair) == SoldStream(partner="bigco", contract="cars", columns=("ts", "v"))
    assert sells(pair, "carol") is sells(pair, stream="cars.in") is None
    assert pair.bigco.sold.sells("acme", "cars.out", ("ts", "v")) is None, "it is the other one that sells"
    pair.run(20, rows=1)
    assert pair.acme.stopped == ["contract.ended"]
    assert pair.acme.unsold
    with pytest.raises(LinkError, match="contract 'cars' doesn't count now") as error:
        sells(pair)
    assert error.value.code == "E_NO_CONTRACT"
    pair.run(10)
    # Those of the second in which it ended had left: whether they are paid, both say alike.
    assert pair.agrees() in (29 * 2_000, 30 * 2_000)


def test_what_a_contract_will_sell_is_not_given_away_before():
    pair = Pair(replace(TERMS, begins_us=WALL_US + 30 * S))
    with pytest.raises(LinkError, match="contract 'cars' doesn't count now") as error:
        sells(pair)
    assert error.value.code == "E_NO_CONTRACT"
    assert sells(pair, stream="cars.in") is None, "[offers] may give that away"


def test_what_nodes_do_not_count_is_refused():
    with pytest.raises(ContractError, match="nodes don't count 'gigabyte'"):
        billing_contract(replace(TERMS, price_unit="gigabyte"))
    free = billing_contract(replace(TERMS, price_micro=None, price_unit="", currency=""))
    assert (free.price_micro, free.currency) == (0, "EUR")
    assert billing_contract(replace(TERMS, availability_ppm=0)).availability_ppm == 1_000_000


def test_what_is_agreed_of_rows_a_second_is_billed_and_else_what_a_settlement_has_room_for():
    dear = replace(TERMS, price_micro=2_000_000_000, settlement_s=86_400)
    open_end = billing_contract(dear).units_per_s_max_milli
    assert open_end == MONEY_MAX * 1_000 // (2_000_000_000 * 86_400) < ROWS_PER_S_MOST * 1_000
    with pytest.raises(ContractError):  # It is what both have signed, though no settlement can hold it.
        billing_contract(replace(dear, rows_per_s=ROWS_PER_S_MOST))
    cheap = replace(TERMS, price_micro=1, rows_per_s=ROWS_PER_S_MOST)
    assert billing_contract(cheap).units_per_s_max_milli == ROWS_PER_S_MOST * 1_000


# --- what leaves --------------------------------------------------------------------------------------

SCHEMA = (Field("ts", "int64"), Field("secret", "utf8"), Field("v", "int64"))
MARK = "nobody else may see this"


def sold_by(columns, begin=0):
    return SoldStream(partner="bigco", contract="cars", columns=columns, begin=begin) if columns else None


def output(columns):
    return FragmentOutput(
        "out",
        "q.out",
        StreamShape("box", SCHEMA, timed=True),
        readers=["c"],
        outbox=Outbox(),
        settings=LinkSettings(),
        fragment="q/box",
        next_token=lambda: 1,
        sold=sold_by(columns),
    )


def train(rows):
    batch = pa.record_batch(
        {
            "ts": pa.array(range(rows), pa.int64()),
            "secret": [MARK] * rows,
            "v": pa.array(range(rows), pa.int64()),
        }
    )
    times = pa.array([n * S for n in range(rows)], pa.timestamp("us", tz="UTC"))
    return Train(batch=batch, times=times)


def payloads(out):
    return [bytes(each.payload) for each in out.sender.log.entries() if each.payload is not None]


@pytest.mark.parametrize("columns", [("ts", "v"), ("v",)], ids=str)
def test_columns_that_are_not_sold_never_leave(columns):
    made, whole = output(columns), output(())
    guest = ForeignReader(sink="out", query="r", first=0, asked=3, foreign=True)
    later = whole.for_guest("out.r.s", "q.out.r.s", guest, "core", Outbox(), sold_by(columns))
    for out in (made, whole, later):
        out.take(0, train(40), hold=False)
        out.take(0, Boundary(time_us=39 * S), hold=False)
    assert any(MARK.encode() in each for each in payloads(whole)), "the mark would be seen"
    kept = tuple(field for field in SCHEMA if field.name in columns)
    for out in (made, later):
        (payload,) = payloads(out)
        assert MARK.encode() not in payload
        assert out.sender.schema == kept
        assert len(payload) < len(payloads(whole)[0])
        alone = msgspec.structs.replace(train(40), batch=train(40).batch.select(list(columns)))
        assert payload == bytes(next(iter(TrainCodec(kept, timed=True).encode(alone)))[0])


# --- where it is read on ------------------------------------------------------------------------------


def test_a_reader_goes_on_under_the_numbers_that_it_has():
    """It has read 25 rows elsewhere; here 100 have come, of which the first is its row 5."""
    out = output(())
    out.take(0, replaced(train(100), 0), hold=False)
    guest = ForeignReader(sink="out", query="r", first=100, asked=3, foreign=True)
    sold = SoldStream(partner="bigco", contract="cars", columns=("v",), begin=105)
    made = out.for_guest("out.r.s", "q.out.r.s", guest, "core", Outbox(), sold)
    assert (made.rows, made.sender.log.next_seq) == (105, 105)
    made.take(0, replaced(train(10), 95), hold=False)
    entries = [(each.seq, each.end) for each in made.sender.log.entries() if each.payload is not None]
    assert entries == [(105, 110)], "the first five were there before it came"
    # After a restart before the next checkpoint the fragment gives all of that again.
    again = FragmentOutput(
        "out.r.s",
        "q.out.r.s",
        StreamShape("box", SCHEMA, timed=True),
        readers=["core"],
        outbox=Outbox(),
        settings=LinkSettings(),
        fragment="q/box",
        next_token=lambda: 1,
        guest=guest,
        sold=sold,
    )
    again.take(0, replaced(train(105), 0), hold=False)
    entries = [(each.seq, each.end) for each in again.sender.log.entries() if each.payload is not None]
    assert entries == [(105, 110)]


def replaced(made, first_seq):
    return msgspec.structs.replace(made, first_seq=first_seq)
