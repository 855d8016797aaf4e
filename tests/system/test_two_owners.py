"""Parts at a node of another participant, over real processes: kept and run within what it offers."""

from __future__ import annotations

import signal

import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_public, write_key
from tests.system.nodes import PATIENT_READERS, TIMEOUT, ForkedNodes, eventually, ordered, until

pytestmark = pytest.mark.system

OWNERS = {"edge": "alice", "side": "alice", "core": "bob", "far": "carol"}
"""Node -> whose it is. Core offers alice filters, and carol nothing."""

SCHEMA = {"ts": "int64", "v": "int64"}
ROWS = 100
AT = {"edge": ["cars", "counted", "out"], "core": ["fast"]}


class Owners(ForkedNodes):
    """Nodes and whose they are; each participant has a client that may do everything at its own nodes."""

    def __init__(self, folder):
        super().__init__(folder, list(OWNERS), limits=f'checkpoint_every = "50ms"\n{PATIENT_READERS}')
        for node in OWNERS:
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for owner in dict.fromkeys(OWNERS.values()):
            write_key(folder / f"{owner}.key", "participant", ParticipantKey.new())
            write_key(folder / f"of-{owner}.key", "client", CurveKey.new())
        for node in OWNERS:
            self.config(node).write_text(self.text(node))
        self.offer(["filter"])

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def text(self, node):
        lines = [f'name = "{node}"', f'listen = "{self.addresses[node]}"', f'data = "{node}.data"']
        lines += ['federation = "fed"', f'participant = "{OWNERS[node]}"', "[keys]", f'node = "{node}.key"']
        lines += ["[limits]", self.limits]
        for owner in dict.fromkeys(OWNERS.values()):
            lines += [f"[participants.{owner}]", f'key = "{self.public(owner)}"']
        for other, owner in OWNERS.items():
            if other != node:
                lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
                lines += [f'participant = "{owner}"', f'key = "{self.public(other)}"']
        lines += ["[clients.admin]", f'key = "{self.public(f"of-{OWNERS[node]}")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        return "\n".join(lines) + "\n"

    def offer(self, boxes):
        """What core offers alice from now on."""
        offers = f"[offers.alice]\nboxes = {boxes}\n".replace("'", '"')
        self.config("core").write_text(self.text("core") + offers)
        if "core" in self.processes:
            self.processes["core"].send_signal(signal.SIGHUP)
            with self.connect("core") as bob:
                until(lambda: bob.remote_definitions()["offers"]["alice"]["boxes"] == boxes, what="it counts")

    def connect(self, node):
        keys = {"key": self.folder / f"of-{OWNERS[node]}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.addresses[node], timeout=TIMEOUT, **keys)

    def state(self):
        """What every running node has: definitions, and fragments and queries by name."""
        found = {}
        for node in self.processes:
            with self.connect(node) as fed:
                status = fed.status()
                fragments = sorted(each["fragment"] for each in status["fragments"])
                found[node] = (status["remote"], fragments, [each["name"] for each in fed.queries()])
        return found


@pytest.fixture
def owners(tmp_path):
    made = Owners(tmp_path)
    yield made
    made.close()


def query(name="q"):
    q = md.Query(name)
    fast = q.source("cars", SCHEMA, time="ts", unit="us").filter("v > 20", name="fast")
    q.sink("out", fast.window("50us").aggregate(n=md.count(), s="sum(v)", name="counted"))
    return q


def rows(begin):
    return {"ts": list(range(begin, begin + ROWS)), "v": [n * 37 % 101 for n in range(begin, begin + ROWS)]}


def expected(count):
    """What one program makes of so many rows."""
    all_of_them = {name: [v for n in range(0, count, ROWS) for v in rows(n)[name]] for name in SCHEMA}
    return md.collect(query(), cars=all_of_them)["out"].to_pylist()


def refused(act, *arguments):
    """The code of the refusal."""
    with pytest.raises(LinkError) as refusal:
        act(*arguments)
    return refusal.value.code


class Flow:
    """Rows that are published at edge, and what is read there."""

    def __init__(self, fed):
        self._fed = fed
        self._trains = fed.subscribe("q.out", from_="oldest")
        self._got = []
        self._published = 0

    def __enter__(self):
        self._trains.__enter__()
        return self

    def __exit__(self, *failure):
        self._trains.__exit__(*failure)

    def goes_on(self):
        """Rows that are published now come through."""
        for _ in range(10):
            self._fed.publish("q.cars", rows(self._published))
            self._published += ROWS
        while len(self._got) < self._published // 50 - 2:
            self._got += self._trains.next("60s").batch.to_pylist()

    def end(self):
        self._fed.finish("q.cars")
        self._fed.flush("60s")
        for train in self._trains:
            self._got += train.batch.to_pylist()
        assert self._got == expected(self._published)


def test_a_part_runs_at_another_participants_node_until_either_takes_it_back(owners):
    owners.start("edge", "core")
    with owners.connect("edge") as alice:
        q = query()
        assert refused(alice.deploy, q, AT) == "E_NO_CONTRACT", "a spec in full is none of alice's to give"
        alice.define_remote("fast", q, AT, node="core")
        defined = alice.remote_definitions()["defined"]
        assert defined == {"fast": {"node": "core", "query": "q", "fragment": "q/fast", "expires_us": None}}
        alice.deploy(q, at=AT)
        with Flow(alice) as flow, owners.connect("core") as bob:
            flow.goes_on()
            owners.kill("core")
            owners.start("core")
            flow.goes_on()
            [(name, kept)] = bob.remote_definitions()["kept"].items()
            assert (name, kept["for"], kept["participant"]) == ("alice/fast", "edge", "alice")
            bob.revoke(name)
            assert bob.remote_definitions()["kept"] == {}
            assert bob.status()["fragments"] != []
            flow.goes_on()
            flow.end()
        alice.undeploy("q")
        before = owners.state()
        assert refused(alice.deploy, q, AT) == "E_NO_DEFINITION"
        until(lambda: owners.state() == before, what="nothing is left of it")
        alice.revoke("fast")
        alice.define_remote("fast", q, AT, node="core")
        alice.deploy(q, at=AT)
        alice.revoke("fast")
        with Flow(alice) as flow:
            flow.goes_on()
            flow.end()
        alice.undeploy("q")

        def nothing_is_left() -> dict:
            found = owners.state()
            for remote, fragments, queries in found.values():
                assert (remote["defined"], remote["kept"], fragments, queries) == ({}, {}, [], [])
            return found

        before = eventually(nothing_is_left)
        assert refused(alice.deploy, q, AT) == "E_NO_CONTRACT"
        until(lambda: owners.state() == before, what="nothing is left of it")


def test_what_is_next_to_it_moves_to_another_node_of_who_had_it_kept(owners):
    owners.start("edge", "side", "core")
    with owners.connect("edge") as alice:
        alice.define_remote("fast", query(), AT, node="core")
        alice.deploy(query(), at=AT)
        with Flow(alice) as flow:
            flow.goes_on()
            for fragment in ("q/counted", "q/cars"):
                assert ordered(lambda name=fragment: alice.move(name, to="side"))["node"] == "side"
                flow.goes_on()
            assert refused(lambda: alice.move("q/cars", to="core", timeout="60s")) in (
                "E_ROLE",
                "E_NO_CONTRACT",
            )
            owners.kill("core")
            owners.start("core")
            flow.goes_on()
            flow.end()
        alice.undeploy("q")
        until(
            lambda: all(fragments == [] for _, fragments, _ in owners.state().values()), what="all is removed"
        )


def test_who_runs_a_node_stops_anothers_part_there_and_the_other_is_told(owners):
    owners.start("edge", "core")
    with owners.connect("edge") as alice, owners.connect("core") as bob:
        alice.define_remote("fast", query(), AT, node="core")
        alice.deploy(query(), at=AT)
        with Flow(alice) as flow:
            flow.goes_on()
        found = alice.find("q/fast")
        assert (found["kind"], found["node"], found["participant"]) == ("box", "core", "bob")
        assert alice.queries()[0]["abroad"] == [["q/fast", "core", "bob", ["fast", "fast-out"]]]
        guest = {"name": "alice/q", "participant": "alice", "fragment": "q/fast", "node": "core"}
        assert (bob.queries(), bob.guests(), alice.guests()) == ([], [guest], [])
        with pytest.raises(LinkError, match="of participant 'alice'") as there:
            bob.deploy(query())
        assert "medusa remote revoke alice/q --stop" in there.value.hint
        assert refused(bob.undeploy, "q") == "E_QUERY", "the query is alice's"
        bob.revoke("alice/fast")
        assert bob.status()["fragments"] != []
        bob.revoke("alice/fast", stop=True)
        assert (bob.status()["fragments"], bob.remote_definitions()["kept"]) == ([], {})
        assert refused(lambda: bob.revoke("alice/fast", stop=True)) == "E_NO_DEFINITION"
        until(lambda: alice.queries()[0]["stopped"] == {"q/fast": "core"}, what="alice hears")
        assert refused(alice.find, "q/fast") == "E_STREAM"
        assert alice.status()["queries"]["q"]["stopped"] == {"q/fast": "core"}
        owners.kill("core")
        owners.start("core")
    with owners.connect("edge") as alice, owners.connect("core") as bob:
        assert bob.status()["fragments"] == []

        def why():
            return " ".join(each["waits_for"] for each in alice.explain("q"))

        until(lambda: "'q/fast' was stopped by the owner of node 'core'" in why(), what="explain says so")
        alice.undeploy("q")
        until(lambda: bob.remote_definitions()["stopped"] == {}, what="bob hears")
        alice.revoke("fast")
    until(
        lambda: all(fs == [] == queries for _, fs, queries in owners.state().values()), what="all is removed"
    )


def test_an_owner_is_cut_off_and_let_in_again_while_rows_flow(owners):
    owners.start("edge", "core")
    with owners.connect("edge") as alice, owners.connect("core") as bob:
        alice.define_remote("fast", query(), AT, node="core")
        alice.deploy(query(), at=AT)
        with Flow(alice) as flow:
            flow.goes_on()
            allowed = owners.config("core").read_text()
            denying = allowed.replace("[participants.alice]", "[participants.alice]\ndeny = true")
            for text, up in ((denying, "silent"), (allowed, "up")):
                owners.config("core").write_text(text)
                owners.processes["core"].send_signal(signal.SIGHUP)
                until(lambda up=up: bob.status()["peers"]["edge"] == up, what=f"edge is {up}")
                until(lambda: bob.status()["refused"].get("E_DENIED", 0) >= 1, what="edge has called")
            flow.goes_on()
            flow.end()
        alice.undeploy("q")


def test_what_is_not_offered_is_refused_and_nothing_changes_anywhere(owners):
    owners.start("edge", "core", "far")
    before = owners.state()
    windows_too = {"edge": ["cars", "out"], "core": ["fast", "counted"]}
    with owners.connect("edge") as alice:
        assert refused(alice.define_remote, "fast", query(), windows_too, "core") == "E_OFFER"
        assert refused(alice.deploy, query(), windows_too) == "E_NO_CONTRACT"
        at_far = {"edge": AT["edge"], "far": ["fast"]}
        assert refused(alice.define_remote, "fast", query(), at_far, "far") == "E_OFFER"
    with owners.connect("far") as carol:
        at = {"far": AT["edge"], "core": ["fast"]}
        assert refused(carol.define_remote, "fast", query(), at, "core") == "E_OFFER"
        assert refused(carol.deploy, query(), at) == "E_NO_CONTRACT"
        assert refused(carol.revoke, "alice/fast") == "E_NO_DEFINITION"
    until(lambda: owners.state() == before, what="nothing is left of it")


def test_an_offer_that_changes_counts_at_once(owners):
    owners.start("edge", "core")
    with owners.connect("edge") as alice:
        alice.define_remote("fast", query(), AT, node="core")
        owners.offer([])
        before = owners.state()
        assert "alice/fast" in before["core"][0]["kept"]
        assert refused(alice.deploy, query(), AT) == "E_OFFER"
        until(lambda: owners.state() == before, what="nothing is left of it")
        owners.offer(["filter"])
        alice.deploy(query(), at=AT)
        assert owners.state()["core"][1] == ["q/fast"]
