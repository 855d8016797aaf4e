"""The catalog inside a participant: many copies, a bad network, nodes that die; in the end all are one."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from medusa.errors import RemoteProtocolError
from medusa.nodes.catalog import anti_entropy, replica_state
from medusa.nodes.catalog import directory as room
from medusa.nodes.catalog.directory import Directory
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.directory import (
    CatalogEntry,
    Digest,
    Entries,
    EntryRun,
    runs_to,
    seen_from,
    seen_to,
)
from medusa.wire.outbox import Outbox, Send

STEP_US = 100_000


class Site:
    """A node with nothing but a directory, and what it owns."""

    def __init__(self, name):
        self.name = name
        self.lives = 0
        self.owned = {}
        self.disk = ()
        self.refused = []
        self.start(())

    def start(self, disk):
        self.lives += 1
        self.outbox = Outbox()
        self.directory = Directory(
            self.name, incarnation=self.lives, outbox=self.outbox, count=self.refused.append
        )
        self.directory.load(0, disk)
        self.up = set()
        self.directory.put(0, "node", self.name, 1, b"")


class World:
    """Sites, links that lose, repeat and reorder, and partitions."""

    def __init__(self, seed, count, links=None):
        self.dice = Random(seed)
        self.names = [f"n{number}" for number in range(count)]
        self.sites = {name: Site(name) for name in self.names}
        pairs = [(a, b) for a in self.names for b in self.names if a < b]
        self.links = pairs if links is None else links
        self.cut = set()
        self.dead = set()
        self.loss = 0.2
        self.now_us = 0
        self.flying = []
        self.epochs = {}

    def joined(self, a, b):
        pair = (min(a, b), max(a, b))
        return pair in self.links and pair not in self.cut and not {a, b} & self.dead

    def step(self):
        self.now_us += STEP_US
        for name, site in self.sites.items():
            if name in self.dead:
                continue
            for other in self.names:
                if other != name and self.joined(name, other) != (other in site.up):
                    if other in site.up:
                        site.up.discard(other)
                        site.directory.peer_down(other)
                    else:
                        site.up.add(other)
                        site.directory.peer_up(self.now_us, other)
            site.directory.tick(self.now_us)
            self.send(site)
        flying, self.flying = self.flying, []
        self.dice.shuffle(flying)
        for source, target, frames in flying:
            if self.joined(source, target):
                message, payload = decode_frame([bytes(each) for each in frames])
                self.sites[target].directory.receive(self.now_us, source, message, payload)
                self.send(self.sites[target])

    def send(self, site):
        for effect in site.outbox.take():
            assert isinstance(effect, Send)
            copies = self.dice.choice([1, 1, 1, 2]) if self.dice.random() >= self.loss else 0
            frame = encode_frame(effect.message, effect.payload)
            self.flying += [(site.name, effect.peer, frame)] * copies

    # what happens

    def act(self):
        site = self.sites[self.dice.choice([name for name in self.names if name not in self.dead])]
        what = self.dice.choice(["put", "put", "remove", "move", "crash", "wipe", "cut", "mend"])
        thing = f"s{self.dice.randrange(12)}"
        owner = self.epochs.get(thing, (None, 0))[0]
        if what == "put" and owner in (None, site.name):
            self.own(site, thing, self.epochs.get(thing, (None, 1))[1])
        elif what == "remove" and owner == site.name:
            self.disown(site, thing)
            del self.epochs[thing]
        elif what == "move" and owner not in (None, site.name) and owner not in self.dead:
            epoch = self.epochs[thing][1] + 1
            self.disown(self.sites[owner], thing)
            self.own(site, thing, epoch)
        elif what in ("crash", "wipe") and len(self.dead) < len(self.names) // 2:
            site.disk = site.directory.runs() if what == "crash" else ()
            self.dead.add(site.name)
        elif what == "cut":
            self.cut.add(self.dice.choice(self.links))
        elif what == "mend":
            self.cut.clear()
            for name in list(self.dead):
                self.revive(name)

    def own(self, site, thing, epoch):
        site.owned[thing] = self.dice.randbytes(3)
        site.directory.put(self.now_us, "stream", thing, epoch, site.owned[thing])
        entry = site.directory.own()["stream", thing]
        self.epochs[thing] = site.name, max(epoch, entry.epoch)

    def disown(self, site, thing):
        del site.owned[thing]
        site.directory.remove(self.now_us, "stream", thing)

    def revive(self, name):
        site = self.sites[name]
        self.dead.discard(name)
        site.start(site.disk)
        for thing, body in site.owned.items():
            site.directory.put(self.now_us, "stream", thing, self.epochs[thing][1], body)

    def heal(self, *, steps=60):
        self.cut.clear()
        self.loss = 0
        for name in list(self.dead):
            self.revive(name)
        for _ in range(steps):
            self.step()

    def truth(self):
        return {
            thing: (site.name, body) for site in self.sites.values() for thing, body in site.owned.items()
        }


def known(site):
    return {entry.name: (entry.writer, entry.body) for entry in site.directory.entries("stream")}


@pytest.mark.parametrize("seed", range(30))
def test_all_copies_come_to_the_truth(seed):
    dice = Random(seed)
    count = dice.choice([2, 3, 5, 8])
    links = None
    if dice.random() < 0.5:  # A ring: most hear of most through others.
        links = [tuple(sorted((f"n{a}", f"n{(a + 1) % count}"))) for a in range(count)]
    world = World(seed, count, links)
    for _ in range(150):
        if world.dice.random() < 0.5:
            world.act()
        world.step()
    world.heal()
    for site in world.sites.values():
        assert known(site) == world.truth(), (seed, site.name)
        assert site.directory.digest() == world.sites["n0"].directory.digest()
    world.flying.clear()  # In peace only digests are said.
    world.step()
    assert all(isinstance(decode_frame(frame)[0], Digest) for _, _, frame in world.flying)


def test_what_changes_is_known_at_once():
    world = World(1, 4)
    world.loss = 0
    for _ in range(5):
        world.step()
    world.own(world.sites["n2"], "s1", 1)
    world.step()
    assert [site.directory.where("s1") for site in world.sites.values()] == ["n2"] * 4
    world.disown(world.sites["n2"], "s1")
    world.own(world.sites["n3"], "s1", 2)
    world.step()
    assert [site.directory.where("s1") for site in world.sites.values()] == ["n3"] * 4


def test_many_entries_go_in_several_messages():
    world = World(1, 2)
    world.loss = 0
    for number in range(3000):
        world.sites["n0"].directory.put(0, "stream", f"s{number}", 1, b"x" * 900)
    for _ in range(12):
        world.step()
    assert len(world.sites["n1"].directory.entries("stream")) == 3000


def test_versions_of_a_stream_stand_side_by_side():
    """The seam for replicas: one name, several versions, each at a node of its own."""
    world = World(1, 3)
    world.loss = 0
    for number, name in enumerate(("n2", "n0"), start=1):
        world.sites[name].directory.put(0, "stream", "s", 1, b"", stream_version=number)
    for _ in range(3):
        world.step()
    for site in world.sites.values():
        assert [(e.stream_version, e.writer) for e in site.directory.versions("stream", "s")] == [
            (1, "n2"),
            (2, "n0"),
        ]
        assert site.directory.where("s") == "n2"
    # Who took over raised the version, and the owner that was lost never said that it had gone.
    world.sites["n0"].directory.put(0, "stream", "s", 2, b"", stream_version=2)
    for _ in range(3):
        world.step()
    assert {site.directory.where("s") for site in world.sites.values()} == {"n0"}


def test_a_thing_comes_again_after_it_was_gone_elsewhere():
    world = World(1, 2)
    world.loss = 0
    world.own(world.sites["n0"], "s1", 7)
    world.step()
    world.step()
    world.disown(world.sites["n0"], "s1")
    world.step()
    world.own(world.sites["n1"], "s1", 1)
    world.step()
    assert [site.directory.where("s1") for site in world.sites.values()] == ["n1"] * 2


def test_what_is_gone_is_forgotten_after_a_day():
    world = World(1, 2)
    world.loss = 0
    world.own(world.sites["n0"], "s1", 1)
    world.step()
    world.disown(world.sites["n0"], "s1")
    for _ in range(3):
        world.step()
    for site in world.sites.values():
        assert ("stream", "s1") in site.directory._written.by_key
        site.directory.tick(world.now_us + replica_state.FORGET_US + 1_000_000)
        assert ("stream", "s1") not in site.directory._written.by_key


# --- hostile ------------------------------------------------------------------------------------------


def entry(**changes):
    fields = {"kind": "stream", "name": "s", "writer": "a", "epoch": 1, "version": 5, "body": b""}
    return CatalogEntry(**{**fields, **changes})


def run(*entries, **changes):
    fields = {"writer": "a", "since": 1, "after": 0, "upto": 9, "entries": entries}
    return EntryRun(**{**fields, **changes})


def one(*, peers=("a", "b")):
    site = Site("n")
    for peer in peers:
        site.directory.peer_up(0, peer)
    site.outbox.take()
    return site


def give(site, peer, *runs):
    site.directory.receive(0, peer, Entries(), runs_to(tuple(runs)))


MALFORMED = {
    "no msgpack": b"\xc1",
    "another thing": msgspec.msgpack.encode({"a": 1}),
    "another writer": runs_to((run(entry(writer="b")),)),
    "beyond its end": runs_to((run(entry(version=10)),)),
    "before its begin": runs_to((run(entry(version=3), after=3),)),
    "out of order": runs_to((run(entry(version=5), entry(version=4, name="t")),)),
    "one version twice": runs_to((run(entry(), entry(name="t")),)),
    "backwards": runs_to((run(after=9, upto=3),)),
    "an escape": runs_to((run(entry(name="\x1b[2J")),)),
    "a writer with a path": runs_to((run(entry(writer="../a"), writer="../a"),)),
    "a kind with a space": runs_to((run(entry(kind="a b")),)),
    "a wide body": runs_to((run(entry(body=b"x" * (limits.BODY_BYTES_MAX + 1))),)),
    "a negative epoch": runs_to((run(entry(epoch=-1)),)),
    "too long": b"\x90" * (limits.RUNS_BYTES_MAX + 1),
    "nested": b"\x91" * 5000,
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_news_change_nothing(what):
    site = one()
    before = site.directory.digest()
    with pytest.raises(RemoteProtocolError) as caught:
        site.directory.receive(0, "a", Entries(), MALFORMED[what])
    assert caught.value.code in ("E_MESSAGE", "E_LIMIT")
    assert site.directory.digest() == before
    assert site.outbox.take() == []


def test_a_node_twice_in_a_digest_is_refused():
    data = msgspec.msgpack.encode((("a", 1), ("a", 2)))
    with pytest.raises(RemoteProtocolError, match="twice"):
        one().directory.receive(0, "a", Digest(digest=bytes(16)), data)


def test_as_many_nodes_as_there_may_be_are_named_in_one_message():
    seen = {f"{number:064}": limits.SEQ_MAX for number in range(limits.WRITERS_MAX)}
    assert seen_from(seen_to(seen)) == seen


def test_a_participant_has_a_bounded_number_of_names(monkeypatch):
    monkeypatch.setattr(limits, "WRITERS_MAX", 3)
    site = one(peers=("b",))
    for writer in ("c", "d", "e"):
        give(site, "b", run(entry(writer=writer), writer=writer))
    assert {each.writer for each in site.directory.holders("stream", "s")} == {"c", "d"}
    assert site.refused == ["E_LIMIT"]


def test_nobody_writes_for_a_node_that_is_there():
    site = one()
    give(site, "b", run(entry()))
    assert site.directory.find("stream", "s") is None
    give(site, "a", run(entry()))
    assert site.directory.where("s") == "a"


def test_nobody_says_what_we_wrote():
    site = one()
    site.directory.put(0, "stream", "mine", 1, b"")
    before = site.directory.own()
    far = room.VERSIONS_PER_LIFE * 9
    give(site, "a", run(entry(writer="n", version=far), writer="n", upto=far, since=far, after=far - 1))
    assert site.refused == ["E_WRITER"]
    assert site.directory.own() == before


def test_a_node_is_only_what_it_says_itself():
    site = one()
    give(site, "a", run(entry(kind="node", name="b")))
    assert site.directory.find("node", "b") is None
    assert site.refused == ["E_WRITER"]


def test_lies_about_a_node_that_is_away_end_when_it_comes():
    site = one(peers=("b",))
    much = limits.SEQ_MAX
    give(site, "b", run(entry(version=much), since=much, after=much - 1, upto=much))
    assert site.directory.where("s") == "a"
    site.directory.peer_up(0, "a")
    for at_us, knows in ((0, "a"), (anti_entropy.ROUND_US, None)):  # The first could be an old word of it.
        site.directory.receive(at_us, "a", Digest(digest=bytes(16)), seen_to({"a": 4}))
        assert site.directory.where("s") == knows
    give(site, "a", run(entry(name="t", version=4), upto=4))
    assert site.directory.where("t") == "a"


def test_one_writer_fills_no_memory(monkeypatch):
    monkeypatch.setattr(replica_state, "ENTRIES_PER_WRITER", 3)
    monkeypatch.setattr(replica_state, "BYTES_MAX", 100)
    site = one()
    give(site, "a", run(*(entry(name=f"s{n}", version=n) for n in range(1, 9))))
    assert len(site.directory.entries("stream")) == 3
    give(site, "b", run(entry(writer="b", name="wide", body=b"x" * 101), writer="b"))
    assert site.directory.find("stream", "wide") is None
    assert site.refused == ["E_LIMIT"] * 6


def test_what_is_replaced_makes_room_for_what_replaces_it(monkeypatch):
    monkeypatch.setattr(replica_state, "BYTES_MAX", 100)
    site = one()
    give(site, "a", run(entry(body=b"x" * 100), upto=5))
    give(site, "a", run(entry(body=b"y" * 100, version=6), after=5, upto=6))
    assert site.directory.find("stream", "s").body == b"y" * 100
    assert site.refused == []
    give(site, "a", run(entry(body=b"z" * 101, version=7), after=6, upto=7))
    assert site.directory.find("stream", "s") is None, "what stood there stands no more"
    assert site.refused == ["E_LIMIT"]


def test_what_a_node_wrote_in_an_earlier_life_comes_no_more():
    site = one(peers=("b",))
    give(site, "b", run(entry(version=105), since=101, after=100, upto=105))
    before = site.directory.digest()
    give(site, "b", run(entry(name="old", version=109), upto=109))
    assert (site.directory.find("stream", "old"), site.directory.digest()) == (None, before)
    mixed = run(
        entry(name="old", version=108), entry(name="new", version=205), since=201, after=105, upto=205
    )
    give(site, "b", mixed)
    assert [each.name for each in site.directory.entries("stream")] == ["new"]


def test_the_digest_tells_lives_apart_and_forgets_what_is_forgotten():
    sites = [one(peers=("b",)) for _ in range(3)]
    bare = sites[2].directory.digest()
    for site, since in zip(sites, (1, 2), strict=False):
        give(site, "b", run(entry(), since=since))
    assert len({site.directory.digest() for site in sites}) == 3
    sites[0].directory.peer_up(0, "a")
    for at_us in (0, anti_entropy.ROUND_US):
        sites[0].directory.receive(at_us, "a", Digest(digest=bytes(16)), seen_to({"a": 0}))
    assert sites[0].directory.digest() == bare


def test_a_run_beyond_a_gap_is_asked_for_again():
    site = one()
    give(site, "a", run(entry(), after=4))
    assert site.directory.where("s") is None
    [asked] = site.outbox.take()
    assert isinstance(asked.message, Digest)
