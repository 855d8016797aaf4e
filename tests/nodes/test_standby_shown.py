"""Who stands by, where a node says it: the status, the catalog, and texts for people."""

from __future__ import annotations

import json
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from medusa.cli.explain import _lines
from medusa.cli.naming import _of_query
from medusa.cli.screens.status_screen import screen
from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import DEPLOYING, RUNNING, Catalog, Deployment
from medusa.nodes.catalog.entry_bodies import NodeBody, body_to
from medusa.nodes.deploy import standby_nodes as nodes_module
from medusa.nodes.deploy.standby_nodes import host_of, standby_nodes
from medusa.nodes.deploy.unfinished_deployments import UnfinishedDeployments
from medusa.nodes.status.fragment_status import queries_of
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.client.status.guarded_fragments import guarded_fragments
from medusa.runtime.client.status.overview import explanation
from medusa.runtime.client.status.status_tables import tables_of
from medusa.wire.messages.commands import Deploy, Reply
from medusa.wire.messages.directory import CatalogEntry, Entries, EntryRun, runs_to
from medusa.wire.messages.links import Hello
from medusa.wire.messages.load import WHOLE, Load
from medusa.wire.messages.standby import DeployGuarded, PlannedStandby
from medusa.wire.outbox import Send
from medusa.wire.status_and_metrics import (
    AgreementStatus,
    BoxStatus,
    ConfigurationStatus,
    FragmentStatus,
    NodeStatus,
    QueryStatus,
    ReplicasStatus,
    SecondaryStatus,
    plain,
    status_of,
)
from tests.nodes.keyed import Keyed
from tests.nodes.test_security import query

DEPLOYED = Deployment(
    query="q",
    nodes=("a", "b", "spare", "w"),
    state=RUNNING,
    client="c",
    request=1,
    streams=(("q.rows", "a"), ("q.out", "b")),
    idle=("spare", "w"),
    recovered=(("q.out", "active_standby", ("q/rows", "q/some")),),
)


def decided(state="following", voters=("a", "spare", "w"), **of):
    owner = {"owner": "a", "secondaries": {"spare": SecondaryStatus(state=state, since_us=2_000_000)}}
    replicas = ReplicasStatus(**(owner | of))
    some = ReplicasStatus(owner="b", secondaries={"spare": SecondaryStatus(state="following")})
    return ConfigurationStatus(
        number=3, coordinator="a", voters=voters, fragments={"q/rows": replicas, "q/some": some}
    )


# --- the status -----------------------------------------------------------------------------------------


def test_a_query_that_nobody_stands_by_for_is_told_as_ever():
    bare = msgspec.structs.replace(DEPLOYED, idle=(), recovered=())
    said = json.loads(msgspec.json.encode(queries_of([bare])["q"]))
    assert list(said) == ["state", "nodes", "stopped", "ended"]


@pytest.mark.parametrize(
    ("decided", "guarantee"),
    [
        (decided(), "exactly once, and goes on when a node is lost for good"),
        (decided("seeding"), "as without standby: would wait while the node of q/rows is away"),
        (decided("missing"), "as without standby: would wait while the node of q/rows is away"),
        (
            msgspec.structs.replace(decided(secondaries={}), away=("a",)),
            "as without standby: waits until the node of q/rows is back",
        ),
        (decided(secondaries={}), "as without standby: would wait while the node of q/rows is away"),
        (decided(voters=("a", "spare")), "exactly once; a lost node is waited for"),
    ],
)
def test_what_an_output_is_promised_follows_from_who_is_ready(decided, guarantee):
    told = queries_of([DEPLOYED], lambda query: decided)["q"]
    assert told.configuration == decided
    assert told.outputs["q.out"].method == "active_standby"
    assert told.outputs["q.out"].fragments == ("q/rows", "q/some")
    assert told.outputs["q.out"].guarantee.startswith(guarantee)
    status = NodeStatus(node="a", queries={"q": told})
    assert status_of(plain(status)) == status


def shown(status):
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(screen([plain(status)]))
    return [line.strip() for line in capture.get().splitlines()]


def test_the_screen_of_a_node_shows_who_has_what():
    told = queries_of([DEPLOYED], lambda query: decided("missing", alone_us=7_900_000))
    lines = shown(NodeStatus(node="a", queries=told))
    assert "query q: configuration 3, coordinated by a, voters a, spare, w" in lines
    assert "q/rows at a, epoch 1; standby: spare missing for 2s; ALONE for 7s" in lines
    assert "q/some at b, epoch 1; standby: spare following" in lines
    assert (
        "q.out, by active standby: as without standby: would wait while the node of q/rows is away" in lines
    )
    assert not any("standby" in line for line in shown(NodeStatus(node="a", queries=queries_of([]))))


def test_what_boxes_wait_for_says_who_stands_by_for_their_fragment():
    """By the highest number that a status has: a coordinator that was away may have an earlier one."""
    fragment = FragmentStatus(fragment="q/rows", query="q", boxes={"rows": BoxStatus(kind="source")})
    earlier = msgspec.structs.replace(decided(), number=2, fragments={})
    now = queries_of([DEPLOYED], lambda query: decided("seeding"))
    statuses = [
        NodeStatus(node="a", fragments=(fragment,), queries=now),
        NodeStatus(node="b", queries={"q": QueryStatus(configuration=earlier)}),
    ]
    for order in (statuses, statuses[::-1]):
        (box,) = explanation([plain(each) for each in order], "q")
        assert box["standby"] == {"spare": "seeding"}
        assert _lines([box])[0] == "q/rows at a; standby: spare (seeding)"
    own = msgspec.structs.replace(fragment, configuration=3, replicas=decided("missing").fragments["q/rows"])
    (box,) = explanation([plain(NodeStatus(node="b", fragments=(own,)))], "q")
    assert box["standby"] == {"spare": "missing"}
    (bare,) = explanation([plain(NodeStatus(node="a", fragments=(fragment,)))], "q")
    assert "standby" not in bare
    assert _lines([bare])[0] == "q/rows at a"


def test_a_fragment_at_another_participant_is_shown_with_its_host_and_who_holds_its_checkpoints():
    told = queries_of([DEPLOYED], lambda query: decided(owner="h", epoch=2))
    home = NodeStatus(node="a", queries=told, abroad={"h": "bob"})
    assert "q/rows at h of bob, by contract, epoch 2; standby: spare following for 2s" in shown(home)
    (lent,) = explanation([plain(home)], "q")
    assert (lent["fragment"], lent["node"], lent["box"]) == ("q/rows", "h", "")
    why = "is of participant 'bob' and runs it by contract"
    assert _lines([lent]) == [f"q/rows at h; standby: spare: {why}"]
    own = NodeStatus(node="a", queries=told)
    with pytest.raises(LinkError):
        explanation([plain(own)], "q")


def test_whose_votes_a_decision_waits_for_is_shown_where_it_is_waited_for():
    """By the node that wants it; what waits may be at another."""
    names = "w (hasn't answered), b (node 'b' has lost its disk, and doesn't vote yet)"
    open_ = AgreementStatus(
        waits=("decision",),
        why=f"configuration 7 is decided once more voters have answered: {names}",
        number=6,
        coordinator="a",
        voters=("a", "w", "b"),
        proposing="preparing",
        silent=("w",),
        refused={"b": "node 'b' has lost its disk, and doesn't vote yet"},
        waits_us=12_300_000,
    )
    wants = NodeStatus(node="a", undecided={"q": open_})
    assert status_of(plain(wants)) == wants
    assert f"UNDECIDED: query q for 12s: {open_.why}" in shown(wants)
    fragment = FragmentStatus(fragment="q/rows", query="q", boxes={"rows": BoxStatus(kind="source")})
    (box,) = explanation([plain(wants), plain(NodeStatus(node="b", fragments=(fragment,)))], "q")
    assert box["undecided"] == names
    assert _lines([box])[0] == f"q/rows at b; its next configuration waits for votes of {names}"


def owned(node, number, **of):
    """A node that has ``q/rows``, by its own word."""
    behind = SecondaryStatus(state="seeding", since_us=1_000_000, behind_bytes=2048)
    of = {"owner": node, "secondaries": {"spare": behind}, "alone_us": 4_000_000} | of
    fragment = FragmentStatus(
        fragment="q/rows", query="q", configuration=number, replicas=ReplicasStatus(**of)
    )
    return NodeStatus(node=node, fragments=(fragment,))


COORDINATOR = NodeStatus(node="c", queries=queries_of([DEPLOYED], lambda query: decided()))


def told_of_rows(*statuses, silent=()):
    for order in (statuses, statuses[::-1]):
        rows, *_ = guarded_fragments(order, silent)
        assert rows.fragment == "q/rows"
        yield rows.number, rows.replicas.owner, rows.replicas.secondaries["spare"].state, rows.alone


def test_an_owner_knows_more_of_its_secondaries_than_the_coordinator():
    assert set(told_of_rows(COORDINATOR)) == {(3, "a", "following", False)}
    assert set(told_of_rows(COORDINATOR, owned("a", 2))) == {(3, "a", "seeding", True)}
    assert set(told_of_rows(COORDINATOR, owned("a", 4))) == {(4, "a", "seeding", True)}


def test_after_a_takeover_the_newer_owner_counts_and_who_fell_silent_less():
    later = owned("d", 4, epoch=2, alone_us=None)
    assert set(told_of_rows(COORDINATOR, owned("a", 3), later)) == {(4, "d", "seeding", True)}
    assert set(told_of_rows(COORDINATOR, owned("a", 3), silent=["a"])) == {(3, "a", "following", False)}
    assert set(told_of_rows(owned("a", 3), silent=["a"])) == {(3, "a", "seeding", True)}


def test_who_owns_a_fragment_says_who_stands_by_where_another_node_coordinates():
    lines = shown(owned("a", 4))
    assert (
        "q/rows at a, epoch 1; standby: spare seeding for 1s, 2 KiB behind; ALONE for 4s; configuration 4 of "
        "query q"
    ) in lines
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(screen([plain(COORDINATOR), plain(owned("a", 4))]))
    both = [line for line in capture.get().splitlines() if "q/rows at a" in line]
    assert len(both) == 2, "each node says it"
    assert all("seeding for 1s, 2 KiB behind" in line for line in both)


def test_who_took_a_fragment_over_says_from_whom_and_how_long_ago():
    taken = owned("d", 4, alone_us=None, taken_over_us=12_900_000, taken_over_from="a")
    told = "q/rows at d, epoch 1; taken over from a 12s ago; standby: spare seeding for 1s, 2 KiB behind"
    assert any(line.startswith(told) for line in shown(taken))
    unknown = owned("d", 4, alone_us=None, taken_over_us=2_000_000)
    assert any("; taken over 2s ago; " in line for line in shown(unknown))
    assert not any("taken over" in line for line in shown(owned("d", 4)))
    (row,) = tables_of([taken])["replicas"].to_pylist()
    assert (row["taken_over_us"], row["taken_over_from"]) == (12_900_000, "a")


def test_replicas_as_a_table():
    rows, some = tables_of([COORDINATOR, owned("a", 4)])["replicas"].to_pylist()
    assert rows == {
        "node": "spare",
        "query": "q",
        "fragment": "q/rows",
        "owner": "a",
        "epoch": 1,
        "configuration": 4,
        "state": "seeding",
        "since_us": 1_000_000,
        "behind_bytes": 2048,
        "alone_us": 4_000_000,
        "taken_over_us": None,
        "taken_over_from": "",
    }
    known = ("node", "owner", "state", "since_us", "behind_bytes")
    assert [some[name] for name in known] == ["spare", "b", "following", None, None]
    (bare,) = tables_of([owned("a", 4, secondaries={})])["replicas"].to_pylist()
    assert (bare["node"], bare["owner"], bare["alone_us"]) == (None, "a", 4_000_000)


# --- deployments --------------------------------------------------------------------------------------


def test_who_only_stands_by_has_nothing_to_say_of_a_deployment_half_done():
    catalog = Catalog("n")
    deployment = msgspec.structs.replace(DEPLOYED, state=DEPLOYING)
    silent = UnfinishedDeployments(catalog, SimpleNamespace(awaits=lambda node: True))
    assert silent.away(deployment) == ["a", "b"]
    moved = msgspec.structs.replace(deployment, streams=(("q.rows", "a"), ("q.out", "spare")))
    assert silent.away(moved) == ["a", "b", "spare"], "a part has gone there since"


# --- what a node knows of others --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("ipc:///x", "localhost"),
        ("tcp://127.0.0.1:5", "localhost"),
        ("tcp://localhost:5", "localhost"),
        ("tcp://[::1]:5", "localhost"),
        ("tcp://10.0.0.1:5", "10.0.0.1"),
        ("tcp://[fe80::1]:5", "fe80::1"),
        ("tcp://*:5", ""),
        ("tcp://0.0.0.0:5", ""),
    ],
)
def test_the_machine_of_an_address(address, host):
    assert host_of(address) == host


def known(node):
    brain = node.brain
    return standby_nodes(
        brain.settings, brain.naming.directory, brain.loads, brain.sessions, brain.naming.abroad
    )


def test_what_is_known_of_nodes(monkeypatch):
    node = Keyed()
    found = known(node)
    assert list(found) == ["near", "core", "n"]
    assert (found["near"].up, found["near"].abroad, found["near"].host) == (False, "", "example.org")
    assert found["near"].agrees, "nothing is known against it"
    assert found["core"].abroad == "bob"
    assert (found["n"].up, found["n"].forgets, found["n"].peer) == (True, False, True)
    node.hello("near")
    node.say("near", Load(load=WHOLE // 2, overloaded=False, cpu_share=0, cores=1, memory_bytes=0))
    assert (known(node)["near"].up, known(node)["near"].load) == (True, 0.5)
    monkeypatch.setattr(nodes_module.limits, "AGREEING_VERSION", 99)
    assert not known(node)["near"].agrees


@pytest.mark.parametrize("told", ["hello", "catalog"])
def test_a_node_that_forgets_says_so_itself_or_in_the_catalog(told):
    node = Keyed()
    node.hello("near")
    assert not known(node)["near"].forgets
    if told == "hello":
        version = Hello.ours("near", 2, memory=True)
        node.say("near", msgspec.structs.replace(version, answer=True))
    else:
        body = NodeBody(address="tcp://x:1", participant="alice", store="memory", memory_bytes=1)
        bodies = {
            "near": msgspec.structs.replace(body, engine="spark"),
            "third": msgspec.structs.replace(body, store="disk"),
        }
        entries = tuple(
            CatalogEntry(kind="node", name=name, writer=name, epoch=1, version=7, body=body_to(body))
            for name, body in bodies.items()
        )
        runs = [EntryRun(writer=each.writer, since=1, after=0, upto=7, entries=(each,)) for each in entries]
        node.say("near", Entries(), runs_to(tuple(runs)))
        assert known(node)["near"].elsewhere
        assert not known(node)["third"].peer, "the catalog knows it, our configuration doesn't"
    assert known(node)["near"].forgets


# --- what a client asks ---------------------------------------------------------------------------------


def guarded(standby, at=(("n", ("flows",)),), **more):
    return DeployGuarded(request=9, at=at, standby=standby, **more)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (guarded((("n", ("core",)),)), "E_ROLE"),
        (guarded((("core", ("near",)),), at=(("core", ("flows",)),)), "E_ROLE"),
        (guarded((("n", ("n",)),)), "E_STANDBY"),
        (guarded((("n", ("third",)),)), "query.placement.node"),
        (guarded((("n", ("near",)),), witnesses=("core",)), "E_ROLE"),
        (guarded((), witnesses=("near",)), "E_STANDBY"),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_a_refused_wish_changes_nothing(message, code, dry):
    node = Keyed()
    node.hello("near")
    node.hello("maker")
    node.agree()
    before = node.state()
    asked = msgspec.structs.replace(message, dry=dry)
    assert node.answer("maker", asked, graph_to_msgpack(query().graph)) == code
    assert node.state() == before


def test_a_dry_question_is_answered_and_changes_nothing():
    node = Keyed()
    node.hello("near")
    node.hello("maker")
    node.agree()
    before = node.state()
    node.effects.clear()
    document = graph_to_msgpack(query().graph)
    assert node.answer("maker", guarded((("*", ()),), dry=True), document) == ""
    [payload] = [e.payload for e in node.effects if isinstance(e, Send) and isinstance(e.message, Reply)]
    said = msgspec.json.decode(payload, type=PlannedStandby)
    assert said.standby == {"q/flows": ("near",)}
    assert said.voters == ("n", "near")
    assert "alone can't decide" in said.warnings[0]
    assert node.state() == before


def test_a_deployment_keeps_who_stands_by_and_installs_nothing_there():
    node = Keyed()
    node.hello("near")
    node.hello("maker")
    node.agree()
    document = graph_to_msgpack(query().graph)
    assert node.answer("maker", guarded((("n", ("near",)),)), document) == ""
    kept = node.on_disk()
    (deployment,) = kept.deployments.values()
    assert (deployment.nodes, deployment.idle) == (("n", "near"), ("near",))
    assert deployment.recovered == (("q.out", "active_standby", ("q/flows",)),)
    assert kept.fragments["q/flows"].standby == ("near",)


def test_a_plain_deployment_is_asked_as_ever():
    """The bytes of the release before, which knew nothing of this."""
    deploy = Deploy(request=9, at=(("n", ("flows",)),))
    assert msgspec.msgpack.encode(deploy) == b"\x94\xa6deploy\x09\x91\x92\xa1n\x91\xa5flows\x90"


# --- voters that are away ---------------------------------------------------------------------------------

FOUR = ("a", "spare", "w", "x")


@pytest.mark.parametrize(
    ("voters", "away", "guarantee"),
    [
        (("a", "spare", "w"), (), "exactly once, and goes on when a node is lost for good"),
        (FOUR, ("x",), "exactly once; 1 of 4 voters is away (x), and one more loss stops it"),
        (
            FOUR,
            ("w", "x"),
            "2 of 4 voters are away (w, x): nothing is taken over until one of them is back",
        ),
        ((*FOUR, "y"), ("x",), "exactly once, and goes on when a node is lost for good"),
        (
            (*FOUR, "y"),
            ("w", "x", "y", "spare"),
            "4 of 5 voters are away (w, x, y, spare): nothing is taken over until 2 of them are back",
        ),
        (("a", "spare"), ("spare",), "1 of 2 voters is away (spare): nothing is taken over until it is back"),
        (("a", "spare", "w", "x", "y"), ("spare",), "as without standby: would wait while"),
    ],
)
def test_what_is_promised_counts_the_voters_that_are_away(voters, away, guarantee):
    now = msgspec.structs.replace(decided(voters=voters), away=away)
    told = queries_of([DEPLOYED], lambda query: now)["q"]
    assert told.outputs["q.out"].guarantee.startswith(guarantee)


def without_majority(why):
    """Too few voters are there."""
    return AgreementStatus(
        waits=("takeovers",), why=why, number=6, coordinator="a", voters=("a", "w"), waits_us=3_400_000
    )


def test_a_screen_and_an_explanation_say_that_nothing_can_be_taken_over():
    why = "2 of 4 voters are away (b, w): nothing is taken over until one of them is back"
    stuck = NodeStatus(node="spare", undecided={"q": without_majority(why)})
    status = plain(stuck)
    assert f"UNDECIDED: query q for 3s: {why}" in shown(stuck)
    placed = [{"name": "q/some", "query": "q", "node": "b", "boxes": ["some"]}]
    (box,) = explanation([status], "q", placed)
    assert box["waits_for"] == f"its node, which doesn't answer, {why}"
    part = FragmentStatus(fragment="q/rows", query="q", boxes={"rows": BoxStatus(kind="source")})
    (box,) = explanation([plain(msgspec.structs.replace(stuck, fragments=(part,)))], "q")
    assert "undecided" not in box, "no decision is under way"


def test_a_listed_query_shows_each_fragment_at_its_owner_and_why_nothing_can_be_taken_over():
    """A lost owner's own word stays in the catalog for as long as it is away."""
    query = {
        "name": "q",
        "state": "running",
        "node": "a",
        "reads": [],
        "fragments": {"q/rows": ["c", "spare"], "q/some": ["b"], "q/free": ["b", "c"]},
        "abroad": [],
        "stopped": {},
    }
    away = {"c": "c (away, seen 5 s ago)"}
    now = decided(owner="spare", epoch=2, secondaries={})
    why = "2 of 4 voters are away (b, c): nothing is taken over until one of them is back"
    status = NodeStatus(
        node="a",
        queries=queries_of([DEPLOYED], lambda query: now),
        undecided={"q": without_majority(why), "p": without_majority("no")},
    )
    lines = ["q  running  coordinated by a"]
    free = "  q/free  at b, c (away, seen 5 s ago)"
    assert list(_of_query(query, lambda node: away.get(node, node), {}, status)) == [
        *lines,
        f"  {why}",
        "  q/rows  at spare; standby: nobody",
        "  q/some  at b; standby: spare",
        free,
    ]
    assert list(_of_query(query, lambda node: away.get(node, node), {}, None)) == [
        *lines,
        "  q/rows  at c (away, seen 5 s ago), spare",
        "  q/some  at b",
        free,
    ]
