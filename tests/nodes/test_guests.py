"""Queries that read sinks of others: who may, what is kept for them, and what ends it."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.apps.dashboard.network import Seen, network_of
from medusa.apps.dashboard.picture import svg_of
from medusa.errors import LinkError
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.catalog.kept_market import KeptMarket, TaskMark
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.spec.fragment_spec import SoldStream
from medusa.query.boxes import Field
from medusa.query.codec import graph_to_msgpack
from medusa.query.published_stream import PublishedStream
from medusa.wire.messages.commands import Deploy, Reply
from medusa.wire.messages.directory import Define
from medusa.wire.messages.links import Attach, Attached
from medusa.wire.messages.move import Move
from medusa.wire.messages.rerouting import Expect, Read, Release, Unexpect
from medusa.wire.messages.tentative import StreamState
from medusa.wire.status_and_metrics import status_of
from tests.cli.test_status import printed
from tests.nodes.keyed import SECURITY, Keyed, curve

COLUMNS = (Field("ts", "timestamp[us, UTC]"), Field("v", "int64"))
SCHEMA = {field.name: field.type for field in COLUMNS}
OFFERED = {"bob": OfferRules(boxes=(), streams=("q.*",))}
READ = Read(request=5, query="r", source="s", stream="q.out", schema=COLUMNS, timed=True)
THEIRS, OURS = "q.out.bob.r.s", "q.out.r.s"


def upstream(offers=OFFERED, security=SECURITY):
    """Node n of alice runs q; near is hers too, core is bob's."""
    node = Keyed(security)
    node.brain.remotes.offers = offers
    for name in ("maker", "near", "core"):
        node.hello(name)
    q = md.Query("q")
    q.sink("out", q.source("flows", SCHEMA, time="ts").filter("v > 0"))
    assert node.deploy("maker", q) == ""
    return node


def guests(node):
    """Stream of a guest -> who reads it, by the spec on disk; its outputs are the same."""
    spec = node.on_disk().fragments["q/flows"]
    hosted = node.brain.fragments["q/flows"]
    assert set(hosted.outputs) == set(spec.streams)
    return {spec.streams[id]: spec.readers[id] for id in spec.guests}


@pytest.mark.parametrize("offers", [{}, {"bob": OfferRules(boxes=("filter",), streams=("x.*",))}], ids=str)
def test_what_is_not_offered_is_read_by_no_query_of_another_participant(offers):
    node = upstream(offers)
    before = node.state()
    for message in (READ, msgspec.structs.replace(READ, stream="q.none")):
        assert node.answer("core", message) == "E_NO_CONTRACT"
    assert node.state() == before
    assert node.answer("near", READ) == "", "nodes of one participant need no offer"
    assert guests(node) == {OURS: ("near",)}


def test_status_says_by_which_sink_the_stream_of_a_query_leaves():
    """The sink itself had nobody who reads, and the stream of the query no rate."""
    node = upstream()
    for reader in ("near", "core"):
        assert node.answer(reader, READ) == ""
    status = node.brain.status(0)
    [fragment] = status["fragments"]
    assert {each["stream"]: each["of"] for each in fragment["outputs"]} == dict.fromkeys(
        ("q.out", THEIRS, OURS), "out"
    )
    shown = printed([status])
    assert re.search(r"q\.out +n +2 queries read ", shown)
    fragment["boxes"] = {"out": {"kind": "sink", "rows_in_per_s": 42.0}}
    drawn = svg_of(network_of([Seen(address="", status=status_of(status))]))
    assert "q.out 42/s to 2 readers" in drawn
    assert f"{THEIRS} 42/s to core" in drawn


def test_what_is_read_is_in_the_spec_on_disk_and_asked_again_it_is_the_same():
    node = upstream()
    assert node.answer("core", READ) == ""
    assert node.answer("near", READ) == ""
    assert guests(node) == {THEIRS: ("core",), OURS: ("near",)}
    spec = node.on_disk().fragments["q/flows"]
    assert [guest.foreign for guest in spec.guests.values()] == [True, False]
    kinds = [o.sender.settings.at_limit for o in node.brain.fragments["q/flows"].outputs.values()]
    assert kinds == ["slow", "shed", "slow"], "another owner holds nobody up"
    before = node.state()
    assert node.answer("core", READ) == ""
    assert node.state() == before
    assert node.answer("core", msgspec.structs.replace(READ, request=6)) == "", "begins anew"
    assert node.on_disk().fragments["q/flows"].guests["out.bob.r.s"].asked == 6


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"stream": "q.none"}, "E_STREAM"),
        ({"schema": COLUMNS[:1]}, "E_SCHEMA"),
        ({"schema": (COLUMNS[0], Field("v", "float64"))}, "E_SCHEMA"),
        ({"timed": False}, "E_SCHEMA"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(change, code):
    node = upstream()
    before = node.state()
    assert node.answer("core", msgspec.structs.replace(READ, **change)) == code
    assert node.state() == before


def test_a_stream_that_a_query_reads_by_itself_is_read_by_no_other():
    node = upstream()
    assert node.answer("core", READ) == ""
    again = msgspec.structs.replace(READ, stream=THEIRS)
    assert node.answer("near", again) == "E_STREAM"
    attach = Attach(stream=THEIRS, epoch=1, next_seq=0, durable=0, granted=8 << 20)
    assert node.answer("near", attach) == "E_READER"


def test_only_who_reads_says_who_reads_then():
    node = upstream()
    assert node.answer("core", READ) == ""
    about = {"query": "r", "stream": THEIRS}
    before = guests(node)
    for message, near, core in (
        (Release(request=10, reader="core", **about), "E_READER", None),
        (Expect(request=11, like="core", reader="near", epoch=2, **about), "E_READER", "E_NO_CONTRACT"),
        (Unexpect(request=12, reader="near", **about), "", "E_NO_CONTRACT"),
    ):
        assert node.answer("near", message) == near
        if core is not None:
            assert node.answer("core", msgspec.structs.replace(message, request=message.request + 10)) == core
        assert guests(node) == before
    other = Release(request=30, reader="core", query="q", stream=THEIRS)
    assert node.answer("core", other) == "E_STREAM", "the query isn't its reader"
    assert node.answer("core", Release(request=31, reader="core", **about)) == ""
    assert guests(node) == {}
    assert node.answer("core", Release(request=32, reader="core", **about)) == "E_NO_CONTRACT"


def test_a_question_that_comes_late_brings_nothing_back():
    node = upstream()
    assert node.answer("core", READ) == ""
    release = Release(request=6, query="r", stream=THEIRS, reader="core")
    assert node.answer("core", release) == ""
    assert node.say("core", READ) == []
    assert guests(node) == {}


# --- who deploys the reader ----------------------------------------------------------------------------

MAKER = ClientRules(key=curve("maker"), deploy=("*",), subscribe=("bob/q.*",))
MAY = replace(SECURITY, clients={**SECURITY.clients, "maker": MAKER})


def reader(of):
    q = md.Query("r")
    q.sink("out", q.source("s", of=PublishedStream(name=of, columns=COLUMNS, timed=True)))
    return graph_to_msgpack(q.graph)


@pytest.mark.parametrize(
    ("of", "reads", "code"),
    [
        ("alice/q.out", [("s", "n", "q.out", 1)], "E_ROLE"),
        ("bob/x.out", [("s", "core", "x.out", 1)], "E_ROLE"),
        ("bob/q.out", [("s", "near", "q.out", 1)], "E_SENDER"),
        ("bob/q.out", [("s", "core", "q.other", 1)], "E_MESSAGE"),
        ("bob/q.out", [("s", "core", "q.out", 0)], "E_MESSAGE"),
        ("bob/q.out", [("s", "core", "q.out", 1)] * 2, "E_MESSAGE"),
        ("bob/q.out", [("t", "core", "q.out", 1)], "E_MESSAGE"),
        ("bob/q.out", [], "query.of"),
        ("bob/q.out", [("s", "nobody", "q.out", 1)], "E_PEER"),
    ],
)
def test_a_deployment_that_lies_of_what_it_reads_is_refused_and_asks_nobody(of, reads, code):
    node = upstream(security=MAY)
    before = len(node.effects)
    deploy = Deploy(request=20, at=(("n", ("s", "out")),), reads=tuple(reads))
    assert node.answer("maker", deploy, reader(of)) == code
    node.settle()
    assert not any("Read" in type(getattr(e, "message", None)).__name__ for e in node.effects[before:])
    assert node.on_disk().reading == {}
    assert list(node.brain.fragments) == ["q/flows"]


def test_a_fragment_waits_for_what_it_reads_and_gives_it_back_where_that_is_refused():
    node = upstream(security=MAY)
    deploy = Deploy(request=20, at=(("n", ("s", "out")),), reads=(("s", "core", "q.out", 1),))
    assert node.say("maker", deploy, reader("bob/q.out")) == []
    [read] = [e.message for e in node.effects if isinstance(getattr(e, "message", None), Read)]
    assert (read.query, read.source, read.stream, read.schema) == ("r", "s", "q.out", COLUMNS)
    assert set(node.on_disk().reading) == {"q.out.alice.r.s"}
    assert list(node.brain.fragments) == ["q/flows"]


def reading():
    """Node n runs r, which reads a stream of bob's; and the question by which it came."""
    node = upstream(security=MAY)
    deploy = Deploy(request=20, at=(("n", ("s", "out")),), reads=(("s", "core", "q.out", 1),))
    assert node.say("maker", deploy, reader("bob/q.out")) == []
    [read] = [e.message for e in node.effects if isinstance(getattr(e, "message", None), Read)]
    node.say("core", Reply(request=read.request))
    [name] = [name for name in node.brain.fragments if name.startswith("r/")]
    return node, name, read


def test_what_reads_by_a_contract_stays_at_the_node_that_pays():
    node, name, read = reading()
    mark = TaskMark(
        partner="bob", contract="c", negotiation=read.request, task="q.out.alice.r.s", begin_row=0
    )
    move = Move(request=90, fragment=name, to="near", timeout_ms=1_000)
    node.brain.catalog.keep_market(KeptMarket(marks=(mark,)))
    assert node.answer("maker", move) == "E_MOVE"
    node.brain.catalog.keep_market(KeptMarket(marks=(msgspec.structs.replace(mark, end_row=5),)))
    said = node.say("maker", msgspec.structs.replace(move, request=91))
    assert [each for each in said if isinstance(each, Reply)] == [], "it begins"


def released(catalog):
    """Streams that a node with this catalog gives back after its start."""
    node = Keyed(MAY, catalog=catalog)
    node.hello("core")
    node.now_us += 60_000_000
    node.brain.tick(node.now_us)
    node.settle()
    return {e.message.stream for e in node.effects if isinstance(getattr(e, "message", None), Release)}


def test_what_a_fragment_in_doubt_reads_is_not_given_back():
    node, name, _ = reading()
    for doubtful in (True, False):
        catalog = node.on_disk()
        spec = catalog.fragments.pop(name)
        if doubtful:
            catalog.in_doubt.fragments[name] = FragmentInDoubt(
                spec=spec, coordinator="n", epoch=1, state="lost", why="its checkpoint is damaged"
            )
        assert released(catalog) == (set() if doubtful else {"q.out.alice.r.s"})


def defined(name, schema):
    q = md.Query(name)
    q.sink("out", q.source("in", schema, time="ts"))
    return graph_to_msgpack(q.graph)


@pytest.mark.parametrize(("reader", "code"), [("core", ""), ("near", "E_READ")])
def test_a_definition_is_held_by_readers_of_the_own_participant_only(reader, code):
    node = upstream({"bob": OfferRules(boxes=(), streams=("qd.out",))})
    assert node.answer("maker", Define(request=1), defined("qd", SCHEMA)) == ""
    assert node.answer(reader, msgspec.structs.replace(READ, stream="qd.out")) == ""
    changed = {**SCHEMA, "w": "int64"}
    said = node.say("maker", Define(request=2), defined("qd", changed))
    assert [each.code for each in said if isinstance(each, Reply)] == [code]
    fields = node.on_disk().fragments["qd/in"].graph.boxes[0].schema
    assert ("w" in [field.name for field in fields]) == (not code)


@pytest.mark.parametrize(("reader", "stream"), [("near", OURS), ("core", THEIRS)])
def test_the_tentative_lane_stays_in_the_participant(reader, stream):
    """Whoever else asks for it reads the stream itself."""
    node = upstream()
    assert node.answer(reader, READ) == ""
    asks = Attach(stream=stream, epoch=1, next_seq=0, durable=0, granted=1 << 20, tentative=True)
    attached, *others = node.say(reader, asks)
    assert isinstance(attached, Attached)
    is_ours = reader == "near"
    assert (attached.tentative is not None, [type(each) for each in others]) == (
        is_ours,
        [StreamState] * is_ours,
    )


def test_what_is_sold_stays_at_the_node_that_counts_it():
    node = upstream()
    assert node.answer("core", READ) == ""
    hosted = node.brain.fragments["q/flows"]
    (guest,) = hosted.spec.guests
    hosted.change_spec(sold={guest: SoldStream(partner="bob", contract="c", columns=("ts", "v"))})
    assert node.answer("maker", Move(request=90, fragment="q/flows", to="near", timeout_ms=1_000)) == "E_MOVE"
    hosted.change_spec(sold={})
    said = node.say("maker", Move(request=91, fragment="q/flows", to="near", timeout_ms=1_000))
    assert [each for each in said if isinstance(each, Reply)] == [], "it begins"


def test_who_reads_a_stream_by_its_offer_reads_it_on_by_no_contract():
    """It says the number of its reading again, once a contract counts. The node has to live on."""
    node = upstream()
    assert node.answer("core", READ) == ""
    before = node.state()
    with pytest.raises(LinkError, match="read here already") as refused:
        node.brain.diverting.read_on("core", READ, 0)
    assert refused.value.code == "E_READER"
    node.settle()
    assert node.state() == before
    (guest,) = node.brain.fragments["q/flows"].spec.guests
    sold = SoldStream(partner="bob", contract="c", columns=("ts", "v"), begin=3)
    node.brain.fragments["q/flows"].change_spec(sold={guest: sold})
    node.brain.catalog.fragments["q/flows"] = node.brain.fragments["q/flows"].spec
    assert node.brain.diverting.read_on("core", READ, 0) == (3, 0), "asked again it is the same"


@pytest.mark.parametrize("query", ["r s", "../r", "r\n"])
def test_a_reader_without_a_name_is_kept_nowhere(query):
    """What is on disk is read again, and a spec takes no such stream."""
    node = upstream()
    before = node.state()
    assert node.answer("core", msgspec.structs.replace(READ, query=query)) == "E_STREAM"
    assert node.state() == before
