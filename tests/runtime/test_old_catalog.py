"""A node that falls back to an older catalog: what the newest alone knew isn't forgotten, or waits.

Each change is made and answered; then the node dies, every catalog that knows the change is damaged in both
copies, and the one from before the change is there.
"""

from dataclasses import replace

import msgspec
import pytest

import medusa as md
from medusa.errors import StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt, InDoubt, shared_box
from medusa.nodes.migration.moved_readers import followers
from medusa.nodes.placement.placement import cut
from medusa.nodes.repair.doubtful_parts import begin_doubt
from medusa.nodes.repair.operator_decisions import OperatorDecisions
from medusa.runtime.engine_host.group_names import GroupName, catalog_names
from medusa.runtime.repair.operator_repair import repair
from medusa.wire import limits
from medusa.wire.messages.commands import Remove
from medusa.wire.messages.directory import Digest, Lookup, seen_to
from medusa.wire.messages.links import Hello
from medusa.wire.messages.move import Move
from medusa.wire.messages.remote import Instantiate
from medusa.wire.messages.split import Split
from tests.nodes.diverted import Node
from tests.nodes.keyed import SECURITY, Keyed, curve, revocation
from tests.runtime.damaged import ROWS, Damaged, flip


class OldCatalog:
    """A query that runs over three nodes; one of them is to fall back to what it has now."""

    def __init__(self, folder, victim, *, coordinator="e", named=False):
        self.run = Damaged(folder, 1, event="quiet", kind="window", victim=victim, coordinator=coordinator)
        self.run.named = named
        self.run.deploy()
        self.run.begin()
        self.run.fed.run(for_us=700_000)
        self.node = self.run.victim = self.run.fed.nodes[victim]
        self.path = folder / victim
        self.old = {name: self.node.disk.read(name) for name in self.catalogs()}

    def catalogs(self):
        return [name for name in self.node.disk.names() if GroupName.of(name).kind == "catalog"]

    def does(self, make, node="m"):
        reply, _ = self.run.fed.answer(*self.run.ask(make, node))
        assert reply.code == "", reply

    def falls_back(self):
        """Kill, damage and start."""
        self.node.reports.clear()
        self.node.crash()
        newer = [name for name in self.catalogs() if name not in self.old]
        assert newer, "the change wrote a catalog"
        for name in newer:
            flip(self.path / name / CATALOG, self.run.dice)
        for name, files in self.old.items():
            if name not in self.catalogs():
                self.node.disk.write(name, files)
        self.node.disk.close()
        self.node.restart()
        assert self.node.alive, self.node.unable
        assert self.node.brain.catalog.in_doubt.newest
        self.run.deleted = []

    def ends(self):
        fed = self.run.fed
        fed.run(lambda: "q.out" in self.run.reader.ended, for_us=10_000_000)
        return self.run.judge("the newest catalogs")


def test_boxes_that_one_fragment_reads_of_the_other_are_none_that_they_share(tmp_path):
    made = OldCatalog(tmp_path, "m")
    specs = {
        name: each.spec for node in made.run.fed.nodes.values() for name, each in node.brain.fragments.items()
    }
    made.does(lambda n: Split(request=n, fragment="q/box", box="box", parts=2, ranges="even"))
    specs |= {name: each.spec for name, each in made.node.brain.fragments.items()}
    shared = {
        (one, other): box
        for one in sorted(specs)
        for other in sorted(specs)
        if one < other and (box := shared_box(specs[one], specs[other])) is not None
    }
    assert shared == {("q/box", "q/box-out"): "box", ("q/box", "q/box-router"): "first"}


@pytest.fixture
def lost_catalog():
    """What a node of alice goes by that has lost its newest catalog, and had nothing in the one before."""
    old = Catalog("n")
    return begin_doubt(old, newest=7, data=old.to_bytes(), fragments={}, unreadable={})


def test_a_move_is_not_forgotten(tmp_path):
    made = OldCatalog(tmp_path, "m")
    made.does(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=5000))
    made.falls_back()
    assert "q/box" in made.node.brain.catalog.in_doubt.fragments
    ended = made.ends()
    assert ended.exact, ended
    assert "q/box" not in made.node.brain.fragments
    assert "q/box" in made.run.fed.nodes["c"].brain.fragments


def test_nothing_is_judged_before_all_own_peers_were_heard(tmp_path):
    """The one that is away may have it."""
    made = OldCatalog(tmp_path, "m")
    made.does(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=5000))
    made.run.fed.nodes["c"].crash()
    made.falls_back()
    made.run.fed.run(for_us=5_000_000)
    assert "q/box" in made.node.brain.catalog.in_doubt.fragments
    assert "q/box" not in made.node.brain.fragments
    made.run.fed.nodes["c"].restart()
    ended = made.ends()
    assert ended.exact, ended
    assert "q/box" not in made.node.brain.fragments


@pytest.mark.parametrize("coordinator", ["e", "c"])
def test_where_a_reader_has_moved_is_not_forgotten(tmp_path, coordinator):
    """Its sender would keep rows for a node that reads no more, and refuse the one that does."""
    made = OldCatalog(tmp_path, "e", coordinator=coordinator)
    made.does(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=5000))
    made.falls_back()
    ended = made.ends()
    assert ended.exact, ended
    spec = made.node.brain.fragments["q/left"].spec
    assert spec.readers == {"first-out": ("c",)}
    directory = made.node.brain.naming.directory
    for named in (("m",), ("m", "c")):  # As written before the move, or in the midst of it.
        [word] = followers(msgspec.structs.replace(spec, readers={"first-out": named}), directory).values()
        assert (word.like, word.reader, word.epoch) == ("m", "c", 2)
    assert followers(spec, directory) == {}


def test_where_a_sender_has_moved_is_not_forgotten(tmp_path):
    made = OldCatalog(tmp_path, "c")
    made.does(lambda n: Move(request=n, fragment="q/box", to="e", timeout_ms=5000))
    made.falls_back()
    ended = made.ends()
    assert ended.exact, ended


def test_a_split_is_not_forgotten_and_an_operator_says_which_of_the_two_counts(tmp_path):
    """The fragment and its parts are never all taken up: rows would count twice."""
    made = OldCatalog(tmp_path, "m")
    made.does(lambda n: Split(request=n, fragment="q/box", box="box", parts=2, ranges="even"))
    made.run.fed.run(for_us=200_000)
    made.falls_back()
    waiting = set(made.node.brain.catalog.in_doubt.fragments)
    assert "q/box" in waiting
    assert len(waiting) > 1
    made.run.fed.run(for_us=5_000_000)
    brain = made.node.brain
    assert not ("q/box" in brain.fragments and len(brain.fragments) > 1), list(brain.fragments)
    why = [each.why for each in brain.catalog.in_doubt.fragments.values()]
    assert why
    assert all("an operator" in each for each in why), why

    made.node.crash()
    settings = replace(made.node.settings, data=str(made.path))
    parts = tuple(sorted(waiting - {"q/box"}))
    with pytest.raises(StateError, match="one took the other's place"):
        repair(settings, OperatorDecisions(take_up=tuple(waiting), accept=True))
    repair(settings, OperatorDecisions(take_up=parts, delete=("q/box",), accept=True))
    made.node.restart()
    assert made.node.alive, made.node.unable
    ended = made.ends()
    assert ended.exact, ended
    brain = made.node.brain
    assert brain.catalog.in_doubt == InDoubt(ever=True, accepted_in=brain.incarnation)


def test_the_name_of_a_publisher_is_not_forgotten(tmp_path):
    made = OldCatalog(tmp_path, "e", coordinator="c", named=True)
    made.does(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=5000))
    made.falls_back()
    ended = made.ends()
    assert ended.exact, ended
    [publisher] = made.node.brain.status(0)["fragments"][0]["publishers"]
    assert (publisher["name"], publisher["durable_row"]) == ("pump-left", ROWS)


def test_a_revocation_is_not_forgotten_while_an_own_peer_knows_it(lost_catalog):
    """Until own peers were heard, keys of other participants don't count: any of them may be revoked."""
    node = Keyed(catalog=lost_catalog)
    assert curve("core") not in node.trusted()
    assert curve("near") in node.trusted()
    node.hello("near")
    assert node.declare("near", revocation()) == ""
    directory = node.brain.naming.directory
    for _ in range(3):
        node.say("near", Digest(digest=directory.digest()), seen_to({"near": directory.seen("near")}))
        node.now_us += 2_000_000
        node.brain.tick(node.now_us)
        node.settle()
    assert curve("core") not in node.trusted()
    assert curve("maker") in node.trusted(), "the others are let in"


def test_a_withdrawn_definition_is_not_used_until_an_operator_accepts_the_catalog(lost_catalog):
    node = Keyed(catalog=lost_catalog)
    node.hello("near")
    ask = Instantiate(request=3, fragment="q/flows", query="q", name="part", inputs=(), readers=())
    assert node.answer("near", ask) == "E_BUSY"
    whole = Keyed(catalog=Catalog("n"))
    whole.hello("near")
    assert whole.answer("near", ask, b"") != "E_BUSY"


@pytest.mark.parametrize(("state", "waits"), [("checkpoint", True), ("lost", True), ("none", False)])
def test_an_undone_deployment_ends_no_doubt_about_state_that_is_here(lost_catalog, state, waits):
    """Its coordinator may have lost its folder, and not know that the query ran before."""
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    [spec] = cut(q.graph, {"n": ["rows", "out"]}).at("n")
    each = FragmentInDoubt(spec=spec, coordinator="near", epoch=1, state=state, why="")
    lost_catalog.in_doubt.fragments[spec.name] = each
    node = Keyed(catalog=lost_catalog)
    node.hello("near")
    assert node.answer("near", Remove(request=9, query="q", since=7)) == ""
    assert (spec.name in node.brain.catalog.in_doubt.fragments) is waits
    assert node.answer("near", Remove(request=10, query="q")) == ""
    assert not node.brain.catalog.in_doubt.fragments


def test_what_is_known_is_listed_though_more_may_have_been_lost(lost_catalog):
    """A query named may be one that was lost; a list says what there is, and status what may lack."""
    node = Node(None, catalog=lost_catalog)
    node.say("client-1", Hello(version=limits.PROTOCOL_VERSION, node="client-1", incarnation=1, client=True))
    assert node.says("client-1", Lookup(request=3, name="q", kind="query")) == "E_BUSY"
    assert node.says("client-1", Lookup(request=4, name="", kind="query")) == ""


def test_an_accepted_catalog_lets_all_in_again(lost_catalog):
    lost_catalog.in_doubt = msgspec.structs.replace(lost_catalog.in_doubt, accepted=True)
    node = Keyed(SECURITY, catalog=lost_catalog)
    assert curve("core") in node.trusted()
    assert not node.on_disk().in_doubt


def test_a_deployment_that_the_older_catalog_takes_for_unfinished_stands(tmp_path):
    """Both copies are those of the version before, and nothing on the disk tells: the peers have it."""
    run = Damaged(
        tmp_path, 1, event="quiet", kind="window", victim="e", coordinator="e", checkpoint_every_us=60_000_000
    )
    node = run.fed.nodes["e"]
    run.deploy()
    _, before = sorted({name[-12:] for name in node.disk.names() if name.startswith("node")})[::-1]
    older = node.disk.read(f"node-{before}")
    assert Catalog.from_bytes(older[CATALOG], node="e", where="older").deployments["q"].state == "deploying"
    run.begin()
    run.fed.run(for_us=700_000)
    run.victim, run.deleted = node, []
    node.crash()
    for name in node.disk.names():
        if name.startswith("node"):
            node.disk.store.delete(name)
    for name in catalog_names(int(before)):
        node.disk.write(name, older)
    node.disk.close()
    node.restart()
    assert node.alive, node.unable
    assert not node.brain.catalog.in_doubt, "it can't know"
    run.fed.run(lambda: "q.out" in run.reader.ended, for_us=10_000_000)
    ended = run.judge("an older catalog")
    assert ended.exact, ended
    assert node.brain.catalog.deployments["q"].state == "running"
    assert any("query runs: every node has its part" in report.what for report in node.reports)
