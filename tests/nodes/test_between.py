"""A node's part in the catalog between participants: who is a member, what members and clients can do, and
what they can't (reliability C3 and D 26)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from medusa.errors import ConfigError, LinkError, RemoteProtocolError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_dht import DhtRules
from medusa.nodes.config.settings_security import PeerKey
from medusa.nodes.dht.routing_table import place_of
from medusa.nodes.names.participant_catalog import BURST
from medusa.nodes.reports import RulesRead
from medusa.query.boxes import Field
from medusa.wire.dht_entry import DhtEntry, Whereabouts, age_of, opened_entry, sign_entry
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.messages.dht import DhtFind, DhtFound, DhtLeave, DhtStore, DhtStored
from medusa.wire.messages.directory import Lookup
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import Send
from tests.nodes import keyed
from tests.nodes.keyed import ALICE, BOB, EVE, SECURITY, WALL_US, Keyed, curve
from tests.nodes.test_security import query, running

JOINS = DhtRules(join=("core",), key="alice.key", publish=("q.*",))
PLACE = bytes(20)


def entry(signer=BOB, **changes):
    fields = {
        "federation": "fed",
        "participant": "bob",
        "epoch": 1,
        "sequence": 5,
        "expiry_us": WALL_US + 600_000_000,
        "name": "bob/s.out",
        "kind": "stream",
        "nodes": (Whereabouts("core", "tcp://example.org:1", curve("core"), 4),),
        **changes,
    }
    return sign_entry(DhtEntry(**fields), signer)


class Taking(Keyed):
    """Node ``n``, which takes part; core is there and answers what it holds."""

    def __init__(self, **options):
        super().__init__(dht=JOINS, **options)
        self.core_holds = {}
        self.hello("core")
        self.pass_time(1)

    def settle(self, *, disk=True, parser=True):
        found = super().settle(disk=disk, parser=parser)
        for each in found:
            if isinstance(each, Send) and each.peer == "core" and hasattr(self, "core_holds"):
                answer = self.of_core(each.message)
                if answer is not None:
                    self.brain.receive(self.now_us, "core", answer, key=curve("core"))
                    found = found + self.settle()
        return found

    def of_core(self, message):
        match message:
            case DhtFind():
                return DhtFound(request=message.request, entry=self.core_holds.get(message.name, b""))
            case DhtStore():
                self.core_holds[opened_entry(message.entry)[1].name] = message.entry
                return DhtStored(request=message.request) if message.request else None
        return None

    def pass_time(self, seconds):
        for _ in range(seconds * 2):
            self.now_us += 500_000
            self.brain.receive(self.now_us, "core", keyed_hello(), key=curve("core"))
            self.brain.tick(self.now_us)
            self.settle()

    @property
    def member(self):
        return self.brain.naming.between.member

    def store(self, data, name="core"):
        """The code that a member gets for an entry."""
        [said] = [each for each in self.say(name, DhtStore(request=7, entry=data)) if _is(each, DhtStored)]
        return said.code

    def shows(self, name):
        [found] = [
            each
            for each in self.say("core", DhtFind(request=8, place=PLACE, name=name))
            if _is(each, DhtFound)
        ]
        return found.entry


def _is(message, kind):
    return isinstance(message, kind)


def keyed_hello():
    return Hello(version=PROTOCOL_VERSION, node="core", incarnation=1)


# --- who ------------------------------------------------------------------------------------------------


def test_a_node_of_no_registered_participant_is_no_member(monkeypatch):
    """It is a peer with a key, and still it is asked nothing and answered nothing: no word of it changes
    anything, and its link lives."""
    peers = {**SECURITY.peers, "far": PeerKey(participant="eve", key=curve("far"))}
    monkeypatch.setattr(keyed, "NODES", ("near", "core", "far"))
    node = Taking(security=replace(SECURITY, peers=peers))
    node.hello("far")
    held = len(node.member.shelf)
    for message in (
        DhtFind(request=1, place=PLACE, name="bob/s.out"),
        DhtStore(request=2, entry=entry()),
        DhtFound(request=1, members=("near",), entry=entry()),
        DhtStored(request=1),
        DhtLeave(),
    ):
        assert node.say("far", message) == []
    assert node.brain.refusals == {"E_ROLE": 5}
    assert len(node.member.shelf) == held
    assert "far" not in node.member.table
    node.pass_time(12)
    asked = [each for each in node.effects if isinstance(each, Send) and each.peer == "far"]
    assert not [each for each in asked if isinstance(each.message, DhtFind | DhtStore)]


def test_a_client_is_no_member():
    node = Taking()
    node.hello("maker")
    for message in (DhtFind(request=1, place=PLACE), DhtStore(request=2, entry=entry()), DhtLeave()):
        with pytest.raises(RemoteProtocolError) as caught:
            node.say("maker", message)
        assert caught.value.code == "E_ROLE"
    assert len(node.member.shelf) == 0


def test_a_node_that_takes_no_part_answers_nothing_and_keeps_its_links():
    node = running()
    before = node.state()
    assert node.say("core", DhtStore(request=1, entry=entry())) == []
    assert node.say("core", DhtFind(request=2, place=PLACE)) == []
    assert node.brain.refusals == {"E_ROLE": 2}
    assert node.state() == before


def test_a_member_that_says_too_much_is_not_heard():
    node = Taking()
    said = [node.say("core", DhtFind(request=each, place=PLACE)) for each in range(1, BURST + 50)]
    assert sum(map(bool, said)) <= BURST
    assert node.brain.refusals["E_LIMIT"] >= 49
    node.now_us += 1_000_000
    assert node.say("core", DhtFind(request=1, place=PLACE))


# --- what is held ---------------------------------------------------------------------------------------


def test_only_what_its_owner_signed_for_here_and_now_is_held():
    node = Taking()
    data = entry()
    for wrong, code in (
        (entry(EVE), "E_IDENTITY"),
        (entry(EVE, participant="eve", name="eve/s"), "E_IDENTITY"),
        (entry(ALICE), "E_IDENTITY"),
        (entry(name="alice/q.out"), "E_IDENTITY"),
        (entry(federation="other"), "E_AUDIENCE"),
        (entry(expiry_us=WALL_US - 100_000_000), "E_EXPIRED"),
        (entry(expiry_us=WALL_US + 10_000_000_000), "E_EXPIRED"),
        (data[:-1] + bytes([data[-1] ^ 1]), "E_IDENTITY"),
        (data[:40], "E_MESSAGE"),
        (b"", "E_MESSAGE"),
    ):
        assert node.store(wrong) == code
        assert len(node.member.shelf) == 0
        assert node.brain.refusals.pop(code) == 1
    assert node.store(data) == ""
    assert node.shows("bob/s.out") == data


def test_a_changed_byte_anywhere_is_no_entry():
    node = Taking()
    data = entry()
    for place in range(len(data)):
        node.now_us += 10_000
        assert node.store(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]), place
    assert len(node.member.shelf) == 0


def test_an_older_entry_is_refused_and_the_younger_told():
    node = Taking()
    younger = entry(epoch=2, sequence=0)
    assert node.store(younger) == ""
    for older in (entry(), entry(epoch=1, sequence=9_000)):
        [said] = node.say("core", DhtStore(request=3, entry=older))
        assert (said.code, said.entry) == ("E_REPLAY", younger)
    assert node.store(younger) == "", "the same again is no older one"
    gone = entry(epoch=2, sequence=1, gone=True, nodes=())
    assert node.store(gone) == ""
    assert node.store(younger) == "E_REPLAY"
    assert node.shows("bob/s.out") == gone


def test_an_entry_counts_no_more_once_its_participant_does():
    """Its key is taken out of the configuration: nothing that it signed is answered from then on."""
    node = Taking()
    assert node.store(entry()) == ""
    only_alice = {"alice": ALICE.key}
    node.brain.report(node.now_us, RulesRead(replace(SECURITY, participants=only_alice)))
    node.settle()
    between = node.brain.naming.between
    assert between.member.shelf.answer("bob/s.out", WALL_US) == b""
    assert not between.is_foreign("bob/s.out")
    node.pass_time(6)
    assert "core" not in between.member.table
    before = len(node.effects)
    node.pass_time(12)
    asked = [each.message for each in node.effects[before:] if isinstance(each, Send) and each.peer == "core"]
    assert not [each for each in asked if isinstance(each, DhtFind | DhtStore)]
    other = {"alice": ALICE.key, "bob": EVE.key}
    node.brain.report(node.now_us, RulesRead(replace(SECURITY, participants=other)))
    assert between.member.shelf.answer("bob/s.out", WALL_US) == b""


def test_a_participant_fills_its_own_share_only():
    node = Taking()
    shelf = node.member.shelf
    codes = []
    for number in range(shelf.quota.entries + 3):
        node.now_us += 10_000
        codes.append(node.store(entry(name=f"bob/s{number}")))
    assert codes == [""] * shelf.quota.entries + ["E_LIMIT"] * 3
    assert node.store(entry(ALICE, participant="alice", name="alice/s")) == ""
    node.now_us += 700_000_000
    node.pass_time(6)
    assert len(shelf) == 0, "they have expired, and make room"


# --- what is published, and looked up ---------------------------------------------------------------------


def test_what_is_deployed_is_published_and_gone_when_it_is_removed():
    node = Taking()
    node.hello("maker")
    assert node.deploy("maker", query()) == ""
    node.pass_time(4)
    assert list(node.core_holds) == ["alice/q.out"]
    assert node.brain.status(node.now_us)["dht"]["published"] == 1
    first = opened_entry(node.core_holds["alice/q.out"])[1]
    assert [(each.node, each.stream_version) for each in first.nodes] == [("n", 1)]
    assert [field.name for field in first.schema] == ["ts", "v"]
    [hosted] = node.brain.fragments.values()
    hosted.outputs["out"].sender.stream_version = 3  # What it reads comes from another source.
    node.pass_time(4)
    raised = opened_entry(node.core_holds["alice/q.out"])[1]
    assert [(each.node, each.stream_version) for each in raised.nodes] == [("n", 3)]
    assert node.answer("maker", Remove(request=11, query="q")) == ""
    node.pass_time(4)
    last = opened_entry(node.core_holds["alice/q.out"])[1]
    assert last.gone
    assert node.brain.status(node.now_us)["dht"]["published"] == 0
    assert (last.epoch, last.sequence) > (first.epoch, first.sequence)


class Refusing(Taking):
    """Core holds on to what is younger, as members do."""

    def of_core(self, message):
        if isinstance(message, DhtStore):
            held = self.core_holds.get(opened_entry(message.entry)[1].name)
            if held is not None and age_of(opened_entry(held)[1]) > age_of(opened_entry(message.entry)[1]):
                return DhtStored(request=message.request, code="E_REPLAY", entry=held)
        return super().of_core(message)


@pytest.mark.parametrize("gone", [False, True])
def test_a_younger_entry_of_another_node_of_ours_that_says_the_same_is_said_on(gone):
    """Ours was refused in every round, for ever: two nodes of alice have her key."""
    node = Refusing()
    node.hello("maker")
    assert node.deploy("maker", query()) == ""
    node.pass_time(4)
    if gone:
        assert node.answer("maker", Remove(request=11, query="q")) == ""
        node.pass_time(4)
    name = "alice/q.out"
    ours = opened_entry(node.core_holds[name])[1]
    younger = sign_entry(msgspec.structs.replace(ours, sequence=ours.sequence + 7_000_000), ALICE)
    node.core_holds[name] = younger
    before = len(node.effects)
    node.pass_time(130)
    sent = [each.message.entry for each in node.effects[before:] if isinstance(each, Send) and stores(each)]
    assert sent[0] == sign_entry(ours, ALICE)
    assert sent[1] == younger
    assert set(sent[1:]) == {younger}
    assert len(sent) <= 5, "once a minute, not in every round"
    assert node.shows(name) == younger
    assert node.brain.refusals == {}
    node.pass_time(900)
    assert node.core_holds[name] == younger if gone else age_of(held(node, name)) > age_of(ours), (
        "anew in time"
    )
    assert node.brain.status(node.now_us)["dht"]["published"] == (not gone)


def stores(send):
    return send.peer == "core" and isinstance(send.message, DhtStore)


def held(node, name):
    return opened_entry(node.core_holds[name])[1]


class Full(Taking):
    """Core has no room for a while."""

    full = True

    def of_core(self, message):
        if self.full and isinstance(message, DhtStore):
            return DhtStored(request=message.request, code="E_LIMIT") if message.request else None
        return super().of_core(message)


def test_an_entry_that_too_few_took_is_said_again_in_the_next_round():
    """A round is 5 s. Were it said when it is due again, after a minute, nobody would find it until then."""
    node = Full()
    node.hello("maker")
    assert node.deploy("maker", query()) == ""
    node.pass_time(12)
    assert "alice/q.out" not in node.core_holds
    node.full = False
    node.pass_time(12)
    assert "alice/q.out" in node.core_holds


def test_what_a_restarted_node_says_is_younger_than_what_it_said_before():
    """The first that it says in its new life, which members would refuse if it were not."""
    node = Taking()
    node.hello("maker")
    assert node.deploy("maker", query()) == ""
    node.pass_time(4)
    before = held(node, "alice/q.out")
    again = Taking(catalog=node.on_disk(), wall_us=WALL_US + 60_000_000)
    again.core_holds["alice/q.out"] = node.core_holds["alice/q.out"]
    again.pass_time(4)
    said = [
        opened_entry(each.message.entry)[1]
        for each in again.effects
        if isinstance(each, Send) and stores(each)
    ]
    assert said
    assert age_of(said[0]) > age_of(before)


def test_a_node_of_the_owner_that_is_behind_is_told_and_is_no_attack():
    node = Taking()
    assert node.store(entry(sequence=6)) == ""
    assert node.store(entry(sequence=5)) == "E_REPLAY", "core is bob's"
    assert node.brain.refusals == {}
    of_alice = {"participant": "alice", "name": "alice/s"}
    assert node.store(entry(ALICE, **of_alice, sequence=6)) == ""
    assert node.store(entry(ALICE, **of_alice, sequence=5)) == "E_REPLAY"
    assert node.brain.refusals == {"E_REPLAY": 1}, "core isn't hers"


def looks_up(node, name, client="maker"):
    """What a client is told: JSON, or a code."""
    node.hello(client)
    before = len(node.effects)
    node.say(client, Lookup(request=5, name=name))
    node.pass_time(6)
    [send] = [
        each
        for each in node.effects[before:]
        if isinstance(each, Send) and isinstance(each.message, Reply) and each.message.request == 5
    ]
    return send.message.code or msgspec.json.decode(send.payload)


def test_a_client_that_lost_a_stream_of_another_participant_is_told_at_once_what_is_known():
    """Nothing that comes here by itself says that it is elsewhere: who waited for that did so in vain."""
    node = Taking()
    node.core_holds["bob/s.out"] = entry()
    node.hello("maker")
    node.say("maker", Lookup(request=5, name="bob/s.out", above=4))
    (told,) = [
        msgspec.json.decode(each.payload)
        for each in node.effects
        if isinstance(each, Send) and isinstance(each.message, Reply) and each.message.request == 5
    ]
    assert (told["node"], told["epoch"]) == ("core", 1)


def test_a_name_of_another_participant_is_looked_up_there():
    node = Taking()
    node.core_holds["bob/s.out"] = entry()
    told = looks_up(node, "bob/s.out")
    assert (told["node"], told["address"]) == ("core", "tcp://example.org:1")
    assert (told["name"], told["participant"], told["server_key"]) == ("s.out", "bob", curve("core"))
    assert [each["stream_version"] for each in (told, *told["versions"])] == [4, 4]
    assert looks_up(node, "bob/nothing") == "E_STREAM"
    status = node.brain.status(node.now_us)["dht"]
    assert status.pop("look_ups") == {"asked": 2, "found": 1, "not_found": 1, "not_all_answered": 0}
    assert status == {"joined": True, "members": 1, "held": 0, "published": 0}
    assert Keyed().brain.status(0)["dht"] is None


def test_a_node_that_seeks_a_stream_hears_where_its_owner_has_published_it():
    node = Taking()
    node.core_holds["bob/s.out"] = entry(epoch=4)
    heard, naming = [], node.brain.naming
    for participant, stream in (("bob", "s.out"), ("bob", "nothing")):
        assert naming.seek(node.now_us, participant, stream, lambda *told: heard.append(told[1:]))
    node.pass_time(6)
    assert heard == [("core", 4)]
    assert not naming.seek(node.now_us, "alice", "s.out", heard.append), "it is ours"
    assert node.brain.status(node.now_us)["dht"]["look_ups"]["asked"] == 0, (
        "clients' look-ups are counted there"
    )


def test_who_looks_up_is_given_nothing_that_the_owner_did_not_sign():
    node = Taking()
    for wrong in (entry(EVE), entry(ALICE), entry(name="bob/other"), entry(federation="other"), b"x" * 300):
        node.core_holds["bob/s.out"] = wrong
        assert looks_up(node, "bob/s.out") == "E_STREAM"
        node.now_us += 1_000_000
    node.core_holds["bob/s.out"] = entry(sequence=9)
    assert looks_up(node, "bob/s.out")["epoch"] == 1
    node.core_holds["bob/s.out"] = entry(sequence=8)
    node.member.shelf.drop("bob/s.out")
    assert looks_up(node, "bob/s.out") == "E_STREAM", "older than what was given before"


def test_a_defined_stream_of_another_is_found_by_its_name_alone():
    node = Taking()
    node.core_holds["bob/s.out"] = entry()
    for name in ("bob/s", "bob/s.out"):
        assert looks_up(node, name)["name"] == "s.out"
    assert looks_up(node, "bob/s.in") == "E_STREAM"


def test_a_client_sees_of_others_what_it_may_read():
    node = Taking()
    node.core_holds["bob/s.out"] = entry()
    assert looks_up(node, "bob/s.out", "reader") == "E_ROLE"


def test_a_member_stands_where_its_owner_and_name_put_it():
    """A new CURVE key moves nobody, and all who know the owner agree."""
    node = Taking()
    assert node.member.place == place_of(f"{ALICE.key} n")


def test_an_entry_that_is_too_large_is_refused_where_it_is_signed():
    schema = tuple(Field(name=f"c{number}" * 50, type="int64") for number in range(100))
    with pytest.raises(LinkError) as caught:
        entry(schema=schema)
    assert caught.value.code == "E_LIMIT"


# --- how a node is told to take part ------------------------------------------------------------------------

NODE = f"""name = "n"
listen = "tcp://127.0.0.1:*"
data = "d"
participant = "alice"
federation = "fed"
[keys]
node = "n.key"
[participants.alice]
key = "{ALICE.key}"
[peers.core]
address = "tcp://127.0.0.1:5557"
key = "{curve("core")}"
"""


def test_a_node_takes_part_only_where_it_is_said():
    assert parse(NODE).dht is None
    assert parse(NODE + "[dht]\n").dht == DhtRules(join=("core",))
    more = '[dht]\njoin = []\nkey = "alice.key"\npublish = ["q.*"]\n'
    assert parse(NODE + more, folder="here").dht == DhtRules(key="here/alice.key", join=(), publish=("q.*",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (NODE + '[dht]\njoin = ["cor"]\n', "no peer"),
        (NODE + "[dht]\njoin = 3\n", "list of names"),
        (NODE + "[dht]\npublish = [3]\n", "list of names"),
        (NODE + '[dht]\npublish = ["q.*"]\n', "nobody signs"),
        (NODE + "[dht]\nkey = 3\n", "expected a file"),
        (NODE + '[dht]\nlisten = "x"\n', "unknown field"),
        (NODE.replace("participants.alice", "participants.bob") + "[dht]\n", "isn't registered"),
        ('name = "n"\nlisten = "tcp://127.0.0.1:*"\ndata = "d"\n[dht]\n', "without keys"),
    ],
)
def test_what_is_wrong_in_its_table_is_said(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        parse(text)
    assert caught.value.hint or says == "unknown field"
