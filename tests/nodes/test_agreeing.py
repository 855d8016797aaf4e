"""How the catalog's copies come to agree, and what that costs."""

from __future__ import annotations

from collections import Counter

import pytest

from medusa.nodes.catalog.anti_entropy import NAMED_PER_ROUND, PEERS_PER_ROUND, ROUND_US
from medusa.nodes.catalog.directory import Directory
from medusa.wire import limits
from medusa.wire.codec import encode_frame
from medusa.wire.messages.directory import ALL, NEWS, US, Digest, Entries, runs_from, seen_from, seen_to
from medusa.wire.outbox import Outbox

STEP_US = 50_000


class Mesh:
    """Directories on perfect links, and what they say."""

    def __init__(self, names, links):
        self.now_us = 0
        self.outboxes = {name: Outbox() for name in names}
        self.sites = {
            name: Directory(name, incarnation=1, outbox=outbox) for name, outbox in self.outboxes.items()
        }
        self.said = Counter()
        self.nbytes = 0
        for name, site in self.sites.items():
            site.put(0, "node", name, 1, b"x" * 100)
        for one, other in links:
            self.sites[one].peer_up(0, other)
            self.sites[other].peer_up(0, one)

    def run(self, seconds):
        """Let time go by; what was said then."""
        self.said.clear()
        self.nbytes = 0
        end_us = self.now_us + int(seconds * 1_000_000)
        while self.now_us < end_us:
            self.now_us += STEP_US
            for site in self.sites.values():
                site.tick(self.now_us)
            while self.deliver():
                pass
        return self.said

    def deliver(self):
        flying = [(name, each) for name, outbox in self.outboxes.items() for each in outbox.take()]
        for name, each in flying:
            self.said[type(each.message).__name__] += 1
            self.nbytes += sum(len(bytes(part)) for part in encode_frame(each.message, each.payload))
            self.sites[each.peer].receive(self.now_us, name, each.message, each.payload)
        return flying

    def agreed(self):
        return len({site.digest() for site in self.sites.values()}) == 1


def names(count):
    return [f"n{number}" for number in range(count)]


def full(count):
    return [(a, b) for a in names(count) for b in names(count) if a < b]


def ring(count):
    return [(f"n{a}", f"n{(a + 1) % count}") for a in range(count)]


def star(count):
    return [("n0", name) for name in names(count)[1:]]


@pytest.mark.parametrize("links", [full, ring, star])
def test_at_rest_a_node_compares_with_a_few_peers_whatever_there_is_to_know(links):
    mesh = Mesh(names(24), links(24))
    mesh.run(12)
    assert mesh.agreed()
    mesh.run(5)
    assert set(mesh.said) == {"Digest"}
    assert mesh.said["Digest"] <= 24 * PEERS_PER_ROUND * 6  # Once a second each, and no answers.
    assert mesh.nbytes / mesh.said["Digest"] < 200


@pytest.mark.parametrize("links", [full, ring, star])
def test_a_change_costs_what_changed(links):
    """Each node gets it, hardly any twice; nobody names all nodes."""
    mesh = Mesh(names(24), links(24))
    mesh.run(12)
    mesh.sites["n5"].put(mesh.now_us, "stream", "s", 1, b"here")
    sent = mesh.run(8)
    assert {site.where("s") for site in mesh.sites.values()} == {"n5"}
    assert mesh.agreed()
    assert 23 <= sent["Entries"] <= 2 * 23
    assert mesh.nbytes / sum(sent.values()) < 200


def test_a_node_that_comes_back_learns_all_from_few():
    mesh = Mesh(names(12), full(12))
    mesh.run(5)
    for other in names(12)[1:]:
        mesh.sites[other].peer_down("n0")
    mesh.sites["n0"] = back = Directory("n0", incarnation=2, outbox=mesh.outboxes["n0"])
    back.put(mesh.now_us, "node", "n0", 1, b"again")
    for other in names(12)[1:]:
        mesh.sites[other].peer_up(mesh.now_us, "n0")
        back.peer_up(mesh.now_us, other)
    mesh.run(3)
    assert mesh.agreed()
    assert all(site.find("node", "n0").body == b"again" for site in mesh.sites.values())


def test_what_got_lost_after_it_was_told_is_found():
    """Both have told all they had, and differ: then all nodes are named."""
    mesh = Mesh(names(3), [("n0", "n1"), ("n1", "n2")])
    mesh.run(4)
    mesh.sites["n0"].put(mesh.now_us, "stream", "s", 1, b"")
    for _ in range(60):  # n2 hears of nothing.
        mesh.now_us += STEP_US
        for site in mesh.sites.values():
            site.tick(mesh.now_us)
        for name, outbox in mesh.outboxes.items():
            for each in outbox.take():
                if {name, each.peer} == {"n0", "n1"}:
                    mesh.sites[each.peer].receive(mesh.now_us, name, each.message, each.payload)
                elif name == "n2":
                    telling = Digest(digest=bytes(16), answer=True, covers=NEWS)
                    mesh.sites["n1"].receive(mesh.now_us, "n2", telling, seen_to({}))
    assert mesh.sites["n2"].where("s") is None
    mesh.run(4)
    assert mesh.sites["n2"].where("s") == "n0"


# --- hostile ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deaf", "other"), [("n0", "n1"), ("n1", "n0")])
def test_a_peer_whose_first_word_was_lost_speaks_again_though_both_know_the_same(deaf, other):
    """Until it has, nobody can tell whether it has said all that it wrote."""
    mesh = Mesh(names(2), full(2))
    mesh.run(12)
    assert mesh.agreed()
    mesh.sites[deaf].peer_down(other)
    mesh.sites[other].peer_down(deaf)
    mesh.sites[other].peer_up(mesh.now_us, deaf)
    mesh.outboxes[other].take()  # It is lost.
    mesh.sites[deaf].peer_up(mesh.now_us, other)
    heard = []
    receive = mesh.sites[deaf].receive

    def listen(now_us, peer, message, payload):
        heard.append(now_us)
        receive(now_us, peer, message, payload)

    mesh.sites[deaf].receive = listen
    for _ in range(120):
        mesh.now_us += STEP_US
        for name in (deaf, other):  # One that always asks first has no questions to answer.
            mesh.sites[name].tick(mesh.now_us)
            while mesh.deliver():
                pass
    assert len(heard) == 1


def crowd(count):
    """One directory that knows many nodes, and a peer."""
    mesh = Mesh(["n0", "n1"], [("n0", "n1")])
    mesh.run(3)
    for number in range(count):
        writer = Directory(f"w{number}", incarnation=1, outbox=Outbox())
        writer.put(0, "node", f"w{number}", 1, b"")
        writer.peer_up(0, "n0")
        writer.receive(0, "n0", Digest(digest=bytes(16)), seen_to({f"w{number}": 0}))
        for each in writer._agreeing._outbox.take():
            if isinstance(each.message, Entries):
                mesh.sites["n0"].receive(0, "n1", each.message, each.payload)
    assert len(mesh.sites["n0"].entries("node")) == count + 2
    mesh.outboxes["n0"].take()
    return mesh.sites["n0"], mesh.outboxes["n0"]


def test_who_makes_us_name_all_nodes_again_and_again_gets_no_more(monkeypatch):
    monkeypatch.setattr("medusa.nodes.catalog.anti_entropy.NAMED_PER_ROUND", 100)
    site, outbox = crowd(40)
    site.tick(10 * ROUND_US)  # Filled up.
    outbox.take()
    for _ in range(50):
        site.receive(0, "n1", Digest(digest=bytes(16), answer=True, covers=NEWS), seen_to({}))
    sent = [each for each in outbox.take() if each.message.covers == ALL]
    assert len(sent) == 100 // 42
    site.tick(12 * ROUND_US)
    outbox.take()
    site.receive(0, "n1", Digest(digest=bytes(16), answer=True, covers=NEWS), seen_to({}))
    assert [each.message.covers for each in outbox.take()] == [ALL]


def test_nobody_is_asked_for_what_its_writer_says_itself():
    site, outbox = crowd(3)
    site.peer_up(0, "w0")
    outbox.take()
    site.receive(0, "n1", Digest(digest=bytes(16)), seen_to({"w0": 1 << 60, "w1": 1 << 60, "n0": 1 << 60}))
    [asked] = [each for each in outbox.take() if isinstance(each.message, Digest)]
    assert asked.message.covers == US
    assert "w1" in seen_from(asked.payload)
    assert "w0" not in seen_from(asked.payload)


def test_a_stranger_is_not_answered():
    site, outbox = crowd(3)
    site.receive(0, "nobody", Digest(digest=bytes(16), answer=True, covers=ALL), seen_to({}))
    assert outbox.take() == []


def test_who_names_all_gets_what_it_lacks():
    site, outbox = crowd(5)
    site.receive(0, "n1", Digest(digest=site.digest(), covers=ALL), seen_to({"w3": 1 << 60}))
    sent = [each for each in outbox.take() if isinstance(each.message, Entries)]
    assert {run.writer for each in sent for run in runs_from(each.payload)} == {
        "n0",
        "n1",
        "w0",
        "w1",
        "w2",
        "w4",
    }
    assert NAMED_PER_ROUND >= limits.WRITERS_MAX  # Whoever may know anything can name it.
