"""What a node does about hostile names, numbers, times and files (reliability D 14, 16, 24, 25, 30)."""

from __future__ import annotations

import json
import math
import re
import struct

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, START_US
from medusa.engine.state.checkpoint import seal, unseal
from medusa.errors import QueryError, RemoteProtocolError, StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.fragment.checkpoint_record import InputRecord, read_record
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.query.boxes import Graph, Source
from medusa.query.codec import graph_to_msgpack
from medusa.query.ids import check_name
from medusa.runtime.engine_host.group_names import group_name, group_token
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.repair.startup import recover
from medusa.sim.world.disk import Disk
from medusa.wire.limits import NAME_CHARS_MAX, PLACES_MAX, PROTOCOL_VERSION, SEQ_MAX
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.messages.commands import Deploy, Install, Remove, Reply
from medusa.wire.messages.links import Ack, Attach, Hello, OpenPublisher, Refuse
from medusa.wire.outbox import Outbox
from tests.nodes.keyed import Keyed, curve
from tests.nodes.test_security import columns, running
from tests.nodes.test_spec_limits import good

# --- names (D 24) -----------------------------------------------------------------------------------

HOSTILE = [
    "../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "q.tmp",
    ".tmp",
    "раураl",  # Cyrillic letters that look Latin.
    "q\u200b",
    "q\u202egnp",
    "\x1b[2J",
    "q" * 65,
    "q" * 255,
    "con:",
    "~root",
    "$(reboot)",
    "[red]q[/red]",
    "' OR 1=1 --",
    "-rf",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_names_nothing_here(name):
    """No query, node or client is called so; asking for it is answered, once, in words that are short
    and show what is in them; nothing changes."""
    node = running()
    before = node.state()
    for client in (True, False):
        with pytest.raises(RemoteProtocolError) as caught:
            node.brain.admit(
                Hello(version=PROTOCOL_VERSION, node=name, incarnation=1, client=client), key=curve("maker")
            )
        assert caught.value.code == "E_IDENTITY"
    with pytest.raises(QueryError):
        check_name(name, what="query")
    graph = msgspec.msgpack.decode(graph_to_msgpack(good().graph))
    data = msgspec.msgpack.encode({**graph, "name": name})
    deploy = Deploy(request=9, at=(("n", ("flows",)),))
    said = node.say("maker", deploy, data)
    said += node.say("maker", Deploy(request=10, at=((name, ("flows",)),)), graph_to_msgpack(good().graph))
    said += node.say("maker", Remove(request=11, query=name))
    said += node.say("writer", OpenPublisher(stream=name, schema=columns()))
    said += node.say("writer", OpenPublisher(stream=f"q.{name}"[:255], schema=columns()))
    attach = Attach(stream=name, epoch=1, next_seq=0, durable=0, granted=1 << 20, plain=True)
    said += node.say("reader", attach)
    for change in ({"name": f"q/{name}"}, {"name": name}, {"streams": {"out": f"q.{name}"}}):
        spec = msgspec.msgpack.decode(fragment_to(good()))
        install = Install(request=12, query="q", fragment=(change.get("name", "q/flows"))[:255])
        said += node.say("near", install, msgspec.msgpack.encode({**spec, **change}))
    assert len(said) == 9
    for each in said:
        assert isinstance(each, Reply | Refuse)
        assert each.code
        assert len(each.text) <= 2_000
        assert each.text.isprintable(), ascii(each.text)
    assert node.state() == before


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_file_is_called_by_a_hash_whatever_its_owner_is_called(name):
    assert re.fullmatch(r"[0-9a-f]{24}-\d{12}", group_name(name, 7))
    assert group_token(name, group_name(name, 7)) == 7
    assert group_token(name + "x", group_name(name, 7)) is None


# --- numbers and times (D 14, 16, 18) -----------------------------------------------------------------

NANS = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]


def of_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def test_nan_is_one_key_and_one_value_whatever_its_bits():
    """D 14: groups and counts don't tell which of the bit patterns came; the same rows give the same bits,
    however they are cut into trains."""
    q = md.Query("q")
    rows = q.source("rows", {"t": "int64", "k": "float64", "v": "float64"}, time="t", unit="ms")
    every = {"n": md.count(), "most": md.max("v"), "least": md.min("v"), "d": md.count_distinct("v")}
    q.sink("out", rows.window("1 s").group_by("k").aggregate(**every))
    for nans in (NANS, NANS[::-1]):
        given = [1.0, *map(of_bits, nans), -0.0, 0.0, math.inf, 2.0, *map(of_bits, nans[:3])]
        keys = pa.array([of_bits(bits) for bits in nans] * 3)
        table = pa.table({"t": pa.array(range(12)), "k": keys, "v": pa.array(given)})
        cuts = [table, pa.concat_tables([table.slice(at, 5) for at in range(0, 12, 5)])]
        replicas = [md.collect(q, rows=cut)["out"].combine_chunks() for cut in cuts]
        [one, other] = [bytes(each.to_batches()[0].serialize()) for each in replicas]
        assert one == other
        [row] = replicas[0].to_pylist()
        assert (row["n"], row["d"], row["least"]) == (12, 5, 0.0)
        assert math.isnan(row["k"])
        assert math.isnan(row["most"])
        assert replicas[0]["k"].chunk(0).buffers()[1].to_pybytes()[:8] == struct.pack("<Q", NANS[0])


def entries_of(*promises_us):
    """One open source and publishers that have promised so much."""
    source = Source(id="flows", schema=columns(), time="ts")
    inputs = {}
    outbox = Outbox()
    entries = PublishedSources({"flows": source}, {"flows": "q.flows"}, inputs, fed_us={}, grace_us=1_000_000)
    for number, promise_us in enumerate(promises_us):
        one = FragmentInput(
            source, "q.flows", f"p{number}", incarnation=1, outbox=outbox, settings=LinkSettings()
        )
        one.fed_us = promise_us
        inputs["flows", f"p{number}"] = one
    return entries, inputs


def test_one_bad_publisher_moves_nobodys_boundary():
    """D 16: the promise of a source is the least of its publishers', whatever the others claim."""
    entries, inputs = entries_of(5_000, END_US - 1, END_US)
    assert entries.advance("flows").time_us == 5_000
    inputs["flows", "p0"].fed_us = 7_000
    assert entries.advance("flows").time_us == 7_000
    inputs["flows", "p0"].fed_us = START_US
    assert entries.advance("flows") is None, "it never goes back"


def test_a_publisher_that_went_holds_no_longer_than_its_time():
    entries, inputs = entries_of(5_000, 90_000)
    entries.advance("flows")
    inputs["flows", "p0"].silent_since_us = 10
    assert entries.tick(1_000_009) == []
    [work] = entries.tick(1_000_010)
    assert work.element.time_us == 90_000


# --- streams ------------------------------------------------------------------------------------------


KEPT = Attach(stream="q.out", epoch=1, next_seq=0, durable=0, granted=1 << 20)


@pytest.mark.parametrize(
    ("name", "message", "code"),
    [
        ("near", KEPT, "E_READER"),
        ("reader", msgspec.structs.replace(KEPT, plain=True, durable=7), "E_SEQ"),
        ("reader", Ack(stream="q.out", epoch=1, frames=0, received=9, durable=9, granted=0), "E_SEQ"),
        ("writer", OpenPublisher(stream="q.flows", schema=()), "E_SCHEMA"),
    ],
)
def test_who_breaks_a_rule_of_a_stream_is_told_and_counted(name, message, code):
    node = running()
    if isinstance(message, Ack):
        node.say(name, msgspec.structs.replace(KEPT, plain=True))
    before = node.state()
    for times in (1, 2):
        assert node.answer(name, message) == code
        assert node.brain.status(0)["refused"] == {code: times}
    assert node.state() == before


def test_who_asks_for_what_is_not_here_yet_breaks_no_rule():
    node = running()
    for name, message in (
        ("near", msgspec.structs.replace(KEPT, stream="q.nothing")),
        ("writer", OpenPublisher(stream="q.nothing", schema=columns())),
    ):
        assert node.answer(name, message) == "E_STREAM"
    assert node.brain.status(0)["refused"] == {}


# --- files (D 25) -------------------------------------------------------------------------------------


def catalog_of(node="n"):
    made = Catalog(node)
    made.add(good(), "n")
    made.statements["bob key x"] = (b"y",)
    return made


def disk_with(files, facts=None, token=1):
    disk = Disk("n")
    disk._groups[group_name("", token)] = seal(
        files, {"fragment": "", "token": token} if facts is None else facts
    )
    return disk


def recovered(disk):
    warned = []
    return recover(disk, SystemClock(), node="n", warn=warned.append), warned


def test_a_flipped_bit_anywhere_in_a_catalog_is_found():
    files = seal({CATALOG: catalog_of().to_bytes()}, {"fragment": "", "token": 1})
    places = [(name, place) for name, data in files.items() for place in range(len(data))]
    for number, (name, place) in enumerate(places):
        data = bytearray(files[name])
        data[place] ^= 1 << number % 8
        with pytest.raises(StateError):
            unseal({**files, name: bytes(data)}, "here")
    for name, data in files.items():
        for length in range(0, len(data), 7):
            with pytest.raises(StateError):
                unseal({**files, name: bytes(data[:length])}, "here")


def test_bytes_under_a_right_checksum_are_checked_too():
    """Whoever writes the disk can write checksums: what is read is still only a catalog or an error."""
    data = catalog_of().to_bytes()
    for place in range(0, len(data), 7):
        for value in (0, 0x41, 0xC1, 0xFF):
            wounded = data[:place] + bytes([value]) + data[place + 1 :]
            try:
                found = Catalog.from_bytes(wounded, node="n", where="here")
            except StateError:
                continue
            assert isinstance(found, Catalog)


def test_a_catalog_of_another_version_node_or_place_is_not_used():
    fine, _ = recovered(disk_with({CATALOG: catalog_of().to_bytes()}))
    assert list(fine.catalog.fragments) == ["q/flows"]
    assert fine.catalog.statements == {"bob key x": (b"y",)}
    with pytest.raises(StateError, match="belongs to node 'm'"):
        recovered(disk_with({CATALOG: catalog_of("m").to_bytes()}))
    later = msgspec.msgpack.decode(catalog_of().to_bytes()) | {"version": 2}
    with pytest.raises(StateError, match="no catalog there is whole"):
        recovered(disk_with({CATALOG: msgspec.msgpack.encode(later)}))
    for facts in ({"fragment": "q/flows", "token": 1}, {"fragment": "", "token": 9}, {}):
        with pytest.raises(StateError, match="no catalog there is whole"):
            recovered(disk_with({CATALOG: catalog_of().to_bytes()}, facts))


def test_the_one_before_is_used_where_the_newest_is_anothers():
    disk = disk_with({CATALOG: catalog_of().to_bytes()})
    newer = Catalog("n").to_bytes()
    disk._groups[group_name("", 2)] = seal({CATALOG: newer}, {"fragment": "", "token": 1})
    found, warned = recovered(disk)
    assert list(found.catalog.in_doubt.fragments) == ["q/flows"]  # What the newest said isn't known.
    assert found.catalog.fragments == {}
    assert "was written as number 1; number 1 is used" in warned[0]


def test_a_spec_on_disk_is_checked_like_one_from_a_link():
    assert fragment_from(fragment_to(good())) == good()
    wrong = msgspec.structs.replace(good(), name="x")
    with pytest.raises(QueryError):
        fragment_from(fragment_to(wrong))
    assert isinstance(good().graph, Graph)


# --- words (D 30) -------------------------------------------------------------------------------------


def test_status_is_json_whatever_peers_say():
    node = running()
    node.say("near", Refuse(code="E_X", text="\x1b[2J\0" + "y" * 1_900, stream="q.flows"))
    text = json.dumps(node.brain.status(0))
    assert "\x1b" not in text
    assert json.loads(text)["node"] == "n"


def test_no_key_but_public_ones_is_ever_in_what_a_brain_wants_done():
    """The mind never sees a secret: its settings name files, its reports names and statements."""
    node = Keyed()
    assert "n.key" in repr(node.brain.settings.security)
    said = repr(node.effects)
    assert "n.key" not in said


# --- what a checkpoint of a stranger says (reliability D 25) ----------------------------------------------

INPUT = {"source": "s", "peer": "e", "next_seq": 7, "boundary_us": 5}
STATED = {
    "token": 1,
    "fragment": "q/f",
    "mixed": False,
    "inputs": [INPUT],
    "outputs": [],
    "fed_us": {},
    "shed": {"s": {"q/f.s": 3}},
}
NOBODY_HAS = {
    "rows that no stream can have": {"inputs": [{**INPUT, "next_seq": SEQ_MAX + 1}]},
    "a row below none": {"inputs": [{**INPUT, "next_seq": -1}]},
    "fewer rows left out than none": {"inputs": [{**INPUT, "shed": -7}]},
    "more rows left out than there can be": {"inputs": [{**INPUT, "shed": SEQ_MAX + 1}]},
    "durable beyond all rows": {"inputs": [{**INPUT, "acknowledged": SEQ_MAX + 1}]},
    "a time beyond all": {"inputs": [{**INPUT, "boundary_us": END_US + 1}]},
    "a place with a long name": {"shed": {"s": {"p" * 5_000: 3}}},
    "a place without a name": {"shed": {"s": {"": 3}}},
    "a source with a long name": {"shed": {"s" * 5_000: {"q/f.s": 3}}},
    "fewer rows at a place than none": {"shed": {"s": {"q/f.s": -3}}},
    "more rows at a place than there can be": {"shed": {"s": {"q/f.s": SEQ_MAX + 1}}},
    "very many places": {"shed": {"s": {f"q/f.{number}": 1 for number in range(PLACES_MAX + 1)}}},
    "very many sources": {"shed": {f"s{number}": {} for number in range(PLACES_MAX + 1)}},
}


@pytest.mark.parametrize("changes", NOBODY_HAS.values(), ids=NOBODY_HAS)
def test_a_record_that_says_what_no_fragment_has_is_refused(changes):
    assert read_record(msgspec.msgpack.encode(STATED), where="it").shed == STATED["shed"]
    with pytest.raises(StateError, match="it is damaged"):
        read_record(msgspec.msgpack.encode(STATED | changes), where="it")


@pytest.mark.parametrize(
    "most",
    [
        {"inputs": [{**INPUT, "next_seq": SEQ_MAX, "shed": SEQ_MAX, "boundary_us": END_US}]},
        {"inputs": [{**INPUT, "boundary_us": START_US, "acknowledged": -1}]},
        {"shed": {"s": {"p" * NAME_CHARS_MAX: SEQ_MAX}}},
    ],
)
def test_the_most_that_a_record_may_say_is_read(most):
    assert read_record(msgspec.msgpack.encode(STATED | most), where="it").fragment == "q/f"


def test_rows_left_out_are_told_in_a_number_that_a_link_takes_whatever_a_record_said():
    outbox, said = Outbox(), InputRecord(source="flows", peer="e", next_seq=0, boundary_us=0, shed=SEQ_MAX)
    source = Source(id="flows", schema=columns(), time=None)
    one = FragmentInput(
        source, "q.flows", "e", incarnation=1, outbox=outbox, settings=LinkSettings(), record=said
    )
    one.shed(0, 5)
    assert one.record().shed == one.receiver.shed_rows == SEQ_MAX
    read_record(msgspec.msgpack.encode(STATED | {"inputs": [one.record()]}), where="it")
