"""What partners say about where a stream is read: what is followed, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import CrossQueryRead
from medusa.nodes.market.market_words import (
    ReadOn,
    ReadsOn,
    StreamSuggested,
    SuggestionHeard,
    encode_word,
    read_booked,
)
from medusa.nodes.market.sold_streams import SWITCH_WITHIN_US, StreamDeal
from medusa.nodes.market.suggested_streams import AGAIN_US, SuggestedStreams
from medusa.nodes.spec.fragment_spec import Feed, SoldStream
from medusa.query.boxes import Field, Graph, Sink, Source
from medusa.wire.outbox import Outbox

STREAM, SINK = "cars.out.bigco.q.cars", "cars.out"
COLUMNS = (("ts", "int64"), ("v", "int64"))
DEAL = StreamDeal(partner="acme", contract="cars", stream=STREAM, asked=7, rows=40, came=(40, 0))
SUGGESTED = StreamSuggested(contract="cars", stream=STREAM, asked=7, partner="carol", origin=-3)
ASKED = ReadOn(
    contract="cars2", query="q", source="cars", stream=SINK, columns=COLUMNS, timed=True, asked=9, origin=5
)


class Reader:
    """A node of bigco, which reads a stream of acme's; carol sells it too."""

    def __init__(self, *, follow=("acme",), buys="cars2", sells=None):
        self.said, self.read, self.stopped, self.opened = [], [], [], []
        self.next_row, self.outbox = 40, Outbox()
        schema = tuple(Field(name, type) for name, type in COLUMNS)
        source = Source(id="cars", schema=schema, judged=True, timed=True, of="acme/cars.out")
        graph = Graph(name="q", boxes=(source, Sink(id="out", inputs=())))
        spec = SimpleNamespace(graph=graph, feeds=(Feed(source="cars", node="shop", stream=STREAM),))
        self.receiver = SimpleNamespace(next_seq=self.next_row, durable_seq=self.next_row)
        host = SimpleNamespace(spec=spec, inputs={("cars", "shop"): SimpleNamespace(receiver=self.receiver)})
        numbers = iter(range(100, 200))
        self.suggested = SuggestedStreams(
            sold=SimpleNamespace(
                buying=lambda: iter([DEAL]),
                selling=lambda: iter([]),
                buys=lambda partner, stream, columns: buys if columns == ("ts", "v") else "",
                sells=lambda partner, stream, columns: sells,
                read_elsewhere=lambda time_us, deal, row: self.stopped.append((deal.partner, row)),
            ),
            streams=SimpleNamespace(reads_on=self._reads_on, read_on=self._read_on),
            catalog=SimpleNamespace(reading={STREAM: CrossQueryRead(node="shop", query="q", asked=7)}),
            fragments={"q/cars": host},
            partners={"acme": "shop", "carol": "mirror"},
            whose={"shop": "acme", "mirror": "carol"}.get,
            suggest={},
            follow=follow,
            say=lambda partner, word, after: self.said.append((partner, read_booked("p", encode_word(word)))),
            number=lambda: next(numbers),
            outbox=self.outbox,
        )

    def _reads_on(self, now_us, stream, node, asked):
        self.read.append((stream, node, asked))
        return self.receiver.next_seq

    def _read_on(self, peer, message, origin):
        if origin > 1_000:
            raise LinkError("no", code="E_SEQ")
        self.opened.append((peer, message.stream, origin))
        return 60, 4

    def reported(self):
        return list(self.outbox.take())

    def hears(self, partner, word, now_us=0):
        self.said.clear()
        self.suggested.receive(now_us, partner, word)
        return list(self.said)


def test_a_reader_goes_on_once_it_has_all_rows_before():
    node = Reader()
    ((to, asked),) = node.hears("acme", SUGGESTED)
    assert (to, asked.contract, asked.stream, asked.origin, asked.columns) == (
        "carol",
        "cars2",
        SINK,
        -3,
        COLUMNS,
    )
    assert node.hears("acme", SUGGESTED) == [], "it is under way"
    node.suggested.tick(AGAIN_US, 0)
    assert [to for to, _ in node.said] == ["carol"], "it is asked again"
    assert node.hears("carol", ReadsOn(contract="cars2", asked=asked.asked, begin=60)) == []
    node.suggested.tick(AGAIN_US + 1, 0)
    assert node.read == [], "rows 40 to 59 come from acme yet"
    node.receiver.next_seq = 62
    node.suggested.tick(AGAIN_US + 2, 0)
    assert (node.read, node.said) == ([], []), "after a death rows 40 to 59 have to come from acme again"
    node.receiver.durable_seq = 60
    node.suggested.tick(AGAIN_US + 3, 0)
    assert node.said == [("carol", asked)], "it is asked whether it keeps them still"
    node.suggested.tick(AGAIN_US + 4, 0)
    assert node.read == []
    node.hears("carol", ReadsOn(contract="cars2", asked=asked.asked, begin=60))
    node.suggested.tick(AGAIN_US + 5, 0)
    assert node.read == [(STREAM, "mirror", asked.asked)]
    assert node.stopped == [("acme", 62)]
    assert node.said == [("acme", SuggestionHeard(contract="cars", stream=STREAM, asked=7))]
    node.suggested.tick(SWITCH_WITHIN_US * 2, 0)
    assert len(node.read) == 1


def test_a_reader_stays_until_it_is_as_far_as_what_a_partner_keeps_now():
    """Carol had ended what she kept, as nobody came for it, and keeps rows from a later one on."""
    node = Reader()
    ((_, asked),) = node.hears("acme", SUGGESTED)
    node.hears("carol", ReadsOn(contract="cars2", asked=asked.asked, begin=40))
    node.suggested.tick(1, 0)
    node.hears("carol", ReadsOn(contract="cars2", asked=asked.asked, begin=70))
    node.suggested.tick(2, 0)
    assert node.read == [], "rows 40 to 69 are nowhere else"
    node.receiver.next_seq = node.receiver.durable_seq = 75
    node.suggested.tick(3, 0)
    assert node.said == [("carol", asked)]
    node.suggested.tick(3 + AGAIN_US, 0)
    assert node.said == [("carol", asked)] * 2, "the word may be lost"
    node.hears("carol", ReadsOn(contract="cars2", asked=asked.asked, begin=70))
    node.suggested.tick(4 + AGAIN_US, 0)
    assert node.stopped == [("acme", 75)]


@pytest.mark.parametrize(
    ("reader", "code"),
    [({"follow": ()}, "E_POLICY"), ({"buys": ""}, "E_NO_CONTRACT")],
    ids=["policy", "contract"],
)
def test_what_is_not_followed_is_answered_and_changes_nothing(reader, code):
    node = Reader(**reader)
    ((to, answer),) = node.hears("acme", SUGGESTED)
    assert (to, answer.code) == ("acme", code)
    node.suggested.tick(SWITCH_WITHIN_US, 0)
    assert (node.read, node.stopped) == ([], [])


def test_only_its_seller_sends_a_reader_elsewhere():
    node = Reader(follow=("acme", "carol"))
    ((to, answer),) = node.hears("carol", SUGGESTED)
    assert (to, answer.code) == ("carol", "")
    # Nor does an answer to a question that nobody asked, or of somebody else.
    node.hears("acme", SUGGESTED)
    node.hears("acme", ReadsOn(contract="cars2", asked=100))
    node.hears("carol", ReadsOn(contract="cars2", asked=101))
    node.suggested.tick(1, 0)
    assert node.read == []


def test_a_partner_that_is_behind_or_silent_keeps_the_reader_where_it_is():
    node = Reader()
    node.hears("acme", SUGGESTED)
    assert node.hears("carol", ReadsOn(contract="cars2", asked=100, code="E_BUSY")) == []
    node.suggested.tick(SWITCH_WITHIN_US, 0)
    assert [(to, word.code) for to, word in node.said] == [("acme", "E_TIMEOUT")]
    assert node.read == []


@pytest.mark.parametrize(
    ("sells", "origin", "code"),
    [
        (None, 5, "E_NO_CONTRACT"),
        (SoldStream(partner="bigco", contract="c", columns=("v",)), 1 << 40, "E_SEQ"),
    ],
    ids=["no contract", "no such row"],
)
def test_who_may_not_read_on_is_told_so(sells, origin, code):
    node = Reader(sells=sells)
    word = ReadOn(
        **{name: getattr(ASKED, name) for name in ASKED.__struct_fields__ if name != "origin"}, origin=origin
    )
    ((to, answer),) = node.hears("acme", word)
    assert (to, answer.asked, answer.code) == ("acme", 9, code)
    assert node.opened == []


def test_who_may_read_on_hears_from_which_row():
    node = Reader(sells=SoldStream(partner="acme", contract="c", columns=("ts", "v")))
    ((to, answer),) = node.hears("acme", ASKED)
    assert (to, answer) == ("acme", ReadsOn(contract="cars2", asked=9, begin=60))
    assert node.opened == [("shop", SINK, 5)]


def test_answers_about_what_nobody_reads_are_no_news():
    node = Reader()
    for number in range(100):
        word = SuggestionHeard(contract="cars", stream=f"cars.out.{number}", asked=number, code="E_POLICY")
        assert node.hears("acme", word) == []
    assert node.reported() == []
