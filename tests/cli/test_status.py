"""``medusa status`` and ``medusa explain --node``: what they say of a node whose state the test has made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import medusa as md
from medusa.apps.dashboard.block import fragment_figures
from medusa.cli.main import main
from medusa.cli.naming import _lost, _status
from medusa.cli.screens.status_screen import screen
from medusa.engine.stats import STATS_SCHEMA
from medusa.runtime.client.status.status_tables import SCHEMAS, tables_of
from medusa.runtime.exposition.prometheus_node import node_families
from medusa.sim.actors.federation import Federation
from medusa.wire.status_and_metrics import (
    ConsistencyStatus,
    FragmentStatus,
    MissingStatus,
    NodeStatus,
    OutputStatus,
    plain,
    status_of,
)
from tests.nodes.test_explaining import Three
from tests.system.nodes import until

SCHEMA = {"ts": "int64", "v": "int64"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[md.Node]:
    """It runs a join that has got rows of one side only."""
    folder = tmp_path_factory.mktemp("s")
    q = md.Query("pairs")
    a, b = (q.source(name, SCHEMA, time="ts", unit="s", slack="0s") for name in "ab")
    q.sink("out", a.filter("v > 0", name="some").join(b, on="v", within="1s", name="meet"))
    config = {
        "name": "here",
        "listen": f"ipc://{folder}/n",
        "data": folder / "d",
        "load": {"half_life": "1s"},
    }
    with md.node(config) as node, node.connect("30s") as fed:
        fed.deploy(q)
        fed.publish("pairs.a", {"ts": [1, 2, 5], "v": [1, 0, 2]})
        fed.flush()
        yield node
        for source in "ab":
            fed.finish(f"pairs.{source}")


def printed(statuses: list[dict[str, Any]]) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        console.print(screen(statuses))
    return capture.get()


def test_status_in_words(node: md.Node) -> None:
    shown = run("status", "--node", node.address)
    assert shown.exit_code == 0, shown.stderr
    first, *lines = shown.stdout.splitlines()
    assert first.startswith("node here of local: load ")
    [fragment] = [line.split() for line in lines if line.startswith("pairs/a ")]
    assert fragment[1:3] == ["here", "running"]
    [stream] = [line for line in lines if line.startswith("pairs.out ")]
    assert "nobody reads" in stream


def test_status_for_scripts_is_what_the_node_says(node: md.Node) -> None:
    one = json.loads(run("status", "--node", node.address, "--json").stdout)
    assert one["node"] == "here"
    assert one["fragments"][0]["rows_in"] == 3
    several = json.loads(run("status", "--node", node.address, "--all", "--json").stdout)
    assert [each["node"] for each in several["nodes"]] == ["here"]


def test_what_is_wrong_stands_with_its_node() -> None:
    three = Three()
    three.passes(1_000_000)
    three.federation.nodes["e2"].crash()
    three.passes(3_000_000)
    core = three.federation.nodes["core"]
    status = core.brain.status(core.clock.monotonic_us())
    status["disk_error"] = "no space left"
    status["refused"] = {"E_ROLE": 3}
    status["fragments"][0]["failed"] = "\x1b[2J"
    cause = {"fragment": "q/meet", "box": "meet", "busy_share": 0.93}
    status["load"] |= {"overloaded": ["cpu"], "overloaded_us": 12_300_000, "causes": [cause]}
    of = status["fragments"][0]["fragment"]
    status["fragments"][0] |= {"method": "passive_standby", "method_reason": "rows come in no order"}
    going = {"q/meet": {"to": "e1", "state": "copying", "attempts": 1, "bytes": 2048, "waits_for": "e1 is"}}
    status["moves"] = {"going": going, "coming": {"q/other": {"from": "e1", "state": "filling"}}}
    text = printed([status])
    assert "q/meet is being moved to e1: copying, 2 KiB sent; e1 is" in text
    assert "q/other is coming from e1: filling" in text
    assert f"{of} by passive standby: rows come in no order" in text
    assert "OVERLOADED (cpu) for 12s: q/meet meet 93%" in text
    assert "SILENT: e2 (seen 2 s ago)" in text
    assert "DISK: no space left" in text
    assert "refused: E_ROLE 3" in text
    assert "\x1b" not in text
    assert "?[2J" in text


def test_what_was_lost_with_a_disk_stands_with_its_node_and_says_what_to_do() -> None:
    three = Three()
    three.passes(1_000_000)
    core = three.federation.nodes["core"]
    status = core.brain.status(core.clock.monotonic_us())
    status["in_doubt"] = {"lost_parts": {"q/kind": ["q.out", "q.all"], "r": []}}
    text = printed([status])
    end = "nobody stood by for it. Undeploy query {}, and deploy it again"
    assert f"LOST WITH THE DISK: q/kind (q.out, q.all): {end.format('q')}" in text
    assert f"LOST WITH THE DISK: r: {end.format('r')}" in text
    assert "what to do" not in text


def test_a_fragment_that_nobody_has_is_told_from_one_that_another_may_have() -> None:
    three = Three()
    three.passes(1_000_000)
    core = three.federation.nodes["core"]
    status = core.brain.status(core.clock.monotonic_us())
    of = {"query": "q", "epoch": 3, "owner": "core", "streams": ["q.out", "q.all"]}
    status["without_state"] = {
        "q/kind": {**of, "lost": True, "may_have_it": [], "why": "undeploy the query"},
        "q/other": {**of, "streams": [], "lost": False, "may_have_it": ["s"], "why": "s may have it"},
    }
    text = printed([status])
    assert "  LOST: q/kind (q.out, q.all), epoch 3: undeploy the query" in text
    assert "  WITHOUT STATE: q/other, epoch 3: s may have it" in text


def test_a_stream_of_which_an_input_is_missing_says_which_and_for_how_long() -> None:
    of = ConsistencyStatus(
        state="up_failure",
        for_us=3_400_000,
        missing=(
            MissingStatus(
                source="b", stream="q.b", kind="node", origin="n", why="isn't heard", for_us=5_300_000
            ),
        ),
        fork=1,
        tentative_rows=1_200,
        uncorrected_rows=900,
        behind_rows=40_000,
        behind_us=5_200_400,
        dropped_rows=7,
    )
    outputs = (
        OutputStatus(sink="out", stream="q.out", consistency=of),
        OutputStatus(sink="well", stream="q.well", consistency=ConsistencyStatus()),
        OutputStatus(
            sink="none",
            stream="q.none",
            consistency=ConsistencyStatus(state="stabilization", why="no room"),
        ),
    )
    status = NodeStatus(node="a", fragments=(FragmentStatus(fragment="q/f", outputs=outputs),))
    text = " ".join(printed([plain(status)]).split())
    missing = "missing: stream q.b of node n, which isn't heard, for 5 s"
    waits = "corrections to come: of 900 rows shown; 40,000 rows wait, 5s 200ms behind"
    assert f"UP_FAILURE: q.out for 3s: {missing}; 1,200 tentative rows so far; {waits}; 7 not sent" in text
    assert "STABILIZATION: q.none: what was missing is being corrected; 0 tentative rows so far" in text
    assert "no fork: no room" in text
    assert "q.well:" not in text


def test_publishers_that_are_gone_are_told_apart() -> None:
    federation = Federation(1, ["n"])
    federation.start()
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    client, other = (federation.client(name, "n") for name in ("pump", "there"))
    federation.run(for_us=1_000_000)
    assert federation.answer(client, client.deploy(q, {"n": ["rows", "out"]}))[0].code == ""
    for each in (client, other):
        each.publish("q.rows", pa.record_batch({"v": [1, 2]}), q.graph.boxes[0].schema)
    node = federation.nodes["n"]

    def gone() -> dict[str, int | None]:
        [fragment] = node.brain.status(node.clock.monotonic_us())["fragments"]
        return fragment["gone_publishers"]

    inputs = node.brain.fragments["q/rows"].inputs
    assert federation.run(lambda: len(inputs) == 2)
    federation.run(for_us=1_000_000)
    assert gone() == {"count": 0, "last_us": None}
    assert "gone" not in printed([node.brain.status(node.clock.monotonic_us())])
    client.dead = True
    assert federation.run(lambda: gone()["count"] == 1)
    federation.run(for_us=5_000_000)
    assert 4_000_000 < (gone()["last_us"] or 0) < 6_000_000
    text = printed([node.brain.status(node.clock.monotonic_us())])
    assert "gone publishers, whose positions are kept: 1, the last for" in text


def test_a_client_that_may_only_read_sees_what_it_may() -> None:
    text = printed([{"node": "n", "sources": {}, "streams": ["q.out"], "elsewhere": {}, "fragments": []}])
    assert text.splitlines() == [
        "node n: this client sees what it may use",
        "  publishes into: nothing",
        "  reads: q.out",
    ]


def test_explain_of_what_runs(node: md.Node) -> None:
    shown = run("explain", "pairs", "--node", node.address)
    assert shown.exit_code == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == "pairs/a at here"
    [meet] = [line for line in lines if line.startswith("  join meet: ")]
    assert "b holds it: nothing has come from there yet; source b waits for a publisher" in meet
    box = json.loads(run("explain", "meet", "--node", node.address, "--json").stdout)["boxes"]
    assert [(each["box"], each["held_by"]) for each in box] == [("meet", "b")]
    wrong = run("explain", "pears", "--node", node.address)
    assert wrong.exit_code == 1
    assert "did you mean 'pairs'?" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "nothing.json"), "does not exist"),
        (("explain", __file__, "--all"), "go with --node"),
        (("explain", "q", "--svg", "--node", "ipc:///x"), "medusa draw"),
    ],
)
def test_slips_in_explain(arguments: tuple[str, ...], words: str) -> None:
    shown = run(*arguments)
    assert shown.exit_code == 2
    assert words in shown.stderr


def test_top_of_all_nodes_names_the_node_only_where_there_are_several(node: md.Node) -> None:
    shown = run("top", node.address, "--once", "--all", "--sort", "in")
    assert shown.exit_code == 0, shown.stderr
    assert any(line.startswith("a ") for line in shown.stdout.splitlines())
    refused = run("top", "http://127.0.0.1:9100", "--all")
    assert refused.exit_code == 1
    assert "--all is for nodes" in refused.stderr


def test_all_nodes_from_any_of_them_and_a_stream_by_its_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    address = {name: f"ipc://{folder}/{name}" for name in ("left", "right")}
    other = {"left": "right", "right": "left"}
    configs = [
        {
            "name": name,
            "listen": at,
            "data": folder / f"{name}.d",
            "peers": {other[name]: address[other[name]]},
        }
        for name, at in address.items()
    ]
    q = md.Query("far")
    q.sink("out", q.source("a", SCHEMA, time="ts", unit="s", slack="0s").filter("v > 0", name="some"))
    with md.node(configs[0]) as left, md.node(configs[1]), left.connect("30s") as fed:
        fed.deploy(q, at={"left": ["a"], "right": ["some"]})
        fed.publish("far.a", {"ts": [1, 2], "v": [1, 2]})
        fed.finish("far.a")
        asked = json.loads(run("status", "--node", address["left"], "--all", "--json").stdout)
        assert [each["node"] for each in asked["nodes"]] == ["left", "right"]
        assert fed.tables(all=True)["fragments"].column("node").to_pylist() == ["left", "right"]
        shown = run("explain", "far", "--node", address["left"], "--all").stdout.splitlines()
        assert [line for line in shown if line.startswith("far/")] == ["far/a at left", "far/some at right"]
        part = run("explain", "far", "--node", address["left"])
        assert "far/some" not in part.stdout
        assert part.stderr == "hint: more of it is at right: --all shows that too\n"
        missed = run("explain", "some", "--node", address["left"])
        assert (missed.exit_code, missed.stderr.splitlines()[-1]) == (
            1,
            "hint: it is at right: --all shows it",
        )
        top = run("top", address["left"], "--all", "--once", "--json")
        assert {box["node"] for box in json.loads(top.stdout)["boxes"]} == {"left", "right"}
        rows = run("tail", "far.out", "--node", address["left"], "--from", "oldest", "--json").stdout
    assert [json.loads(line)["v"] for line in rows.splitlines()] == [1, 2]


def test_what_a_node_that_is_away_has_is_named_and_since_when(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("t")
    left, right = (
        {
            "name": name,
            "listen": f"ipc://{folder}/{name}",
            "data": folder / f"{name}.d",
            "peers": {other: f"ipc://{folder}/{other}"},
        }
        for name, other in (("left", "right"), ("right", "left"))
    )
    q = md.Query("far")
    q.sink("out", q.source("a", SCHEMA, time="ts", unit="s", slack="0s").filter("v > 0", name="some"))
    at = ("--node", left["listen"])
    with md.node(left) as node, node.connect("30s") as fed:
        with md.node(right):
            fed.deploy(q, at={"left": ["a"], "right": ["some"]})
            whole = fed.explain("far", all=True)
        until(lambda: fed.status()["peers"]["right"] != "up", what="its end is noticed")
        boxes = fed.explain("far", all=True)
        shown = run("explain", "far", *at, "--all").stdout.splitlines()
        gone = ("--node", f"{right['listen']},{left['listen']}")
        assert "node left" in run("status", *gone).stdout, "the first that answers"
        assert run("explain", "far", *gone, "--all").stdout.splitlines()[0] == shown[0]
        queries, found = run("queries", *at).stdout, run("find", "far.out", *at).stdout
        says = r"^waited \d+ms for node 'right' at ipc://"
        with md.connect(left["listen"], timeout="400ms") as other, pytest.raises(md.LinkError, match=says):
            other.subscribe("far.out")
    assert [(each["fragment"], each["node"], each["box"]) for each in boxes] == [
        (each["fragment"], each["node"], each["box"]) for each in whole
    ]
    lost = [each for each in boxes if each["node"] == "right"]
    assert lost
    assert re.fullmatch(r"its node, which doesn't answer, seen \d+ s ago", lost[0]["waits_for"])
    assert [
        line for line in shown if re.fullmatch(r"far/some at right: doesn't answer, seen \d+ s ago", line)
    ]
    assert "far/a at left" in shown
    assert re.search(r"  far/some  at right \(away, seen \d+ s ago\)\n", queries)
    assert "coordinated by left\n" in queries
    assert re.search(r"^stream far.out is at right \(away, seen \d+ s ago\) ipc://", found)


# --- tables -----------------------------------------------------------------------------------------


def test_tables_have_the_rows_of_the_status(node: md.Node) -> None:
    with node.connect("60s") as fed, fed.subscribe("pairs.out", durable="store"):
        tables = fed.tables()
        status = fed.status()
        assert fed.tables(all=True)["nodes"].column("node").to_pylist() == ["here"]
    assert {name: table.schema for name, table in tables.items()} == SCHEMAS
    [one] = tables["nodes"].to_pylist()
    assert (one["node"], one["fragments"], one["boundary"]) == ("here", 1, None)
    [fragment] = tables["fragments"].to_pylist()
    assert (fragment["fragment"], fragment["state"], fragment["rows_in"]) == ("pairs/a", "running", 3)
    boxes = {box["box"]: box for box in tables["boxes"].to_pylist()}
    assert list(boxes) == list(status["fragments"][0]["boxes"])
    assert (boxes["some"]["rows_in"], boxes["some"]["rows_out"]) == (3, 2)
    assert boxes["meet"]["held_by"] == "b"
    assert boxes["a"]["boundary"].timestamp() == 5
    assert set(STATS_SCHEMA.names) <= set(tables["boxes"].schema.names)
    [stream] = tables["streams"].to_pylist()
    assert (stream["stream"], stream["name"], stream["state"], stream["rows"]) == (
        "pairs.out", "store", "flowing", 0,
    )  # fmt: skip
    assert set(tables["links"].column("state").to_pylist()) == {"client"}


def test_tables_of_three_nodes_in_the_simulator() -> None:
    three = Three()
    three.publish("e1", "a", *range(1, 500))
    three.passes(3_000_000)
    statuses = [
        status_of(node.brain.status(node.clock.monotonic_us())) for node in three.federation.nodes.values()
    ]
    tables = tables_of(statuses)
    assert tables["nodes"].num_rows == 3
    assert tables["fragments"].num_rows == 3
    assert set(tables["boxes"].column("node").to_pylist()) == {"e1", "e2", "core"}
    links = {(each["node"], each["peer"]): each for each in tables["links"].to_pylist()}
    assert links["e1", "core"]["state"] == "up"
    assert links["e1", "core"]["bytes_out_per_s"] > 0
    assert links["e1", "core"]["peer_load"] is not None
    assert statuses[0].link_state("e1") == "here", "fragments of one node have a link as well"
    readers = {(each["node"], each["reader"]) for each in tables["streams"].to_pylist()}
    assert readers == {("e1", "core"), ("e2", "core"), ("core", None)}
    empty = tables_of([])
    assert {name: (table.num_rows, table.schema) for name, table in empty.items()} == {
        name: (0, schema) for name, schema in SCHEMAS.items()
    }
    assert isinstance(empty["nodes"], pa.Table)


def test_lost_rows_are_told_by_source() -> None:
    both = FragmentStatus(fragment="q/both", query="q", lost_rows=20, lost_by={"left": 12, "right": 8})
    one = FragmentStatus(fragment="q/one", query="q", lost_rows=3, lost_by={"rows": 3}, lost_unknown=True)
    none = FragmentStatus(fragment="q/none", query="q", lost_by={"left": 0, "right": 0})
    status = NodeStatus(node="n", fragments=(both, one, none))
    text = printed([plain(status)])
    assert "20 (left 12, right 8)" in text
    assert "at least 3" in text
    assert "LOST: q/one: rows, and nobody can say how many: at least 3" in text
    fed: Any = SimpleNamespace(status=lambda: plain(status))
    assert _lost(_status(fed)) == {
        "q/both": "; rows lost: 20 (left 12, right 8)",
        "q/one": "; rows lost: at least 3",
    }
    inputs = tables_of([status])["inputs"].to_pylist()
    assert [
        (each["fragment"], each["source"], each["lost_rows"], each["lost_unknown"]) for each in inputs
    ] == [
        ("q/both", "left", 12, False),
        ("q/both", "right", 8, False),
        ("q/one", "rows", 3, True),
        ("q/none", "left", 0, False),
        ("q/none", "right", 0, False),
    ]
    [served] = [each for each in node_families(status) if each.name == "medusa_fragment_source_lost_rows"]
    assert {
        (each.labels["fragment"], each.labels["source"]): each.value
        for each in served.samples
        if each.name.endswith("_total")
    } == {(each["fragment"], each["source"]): each["lost_rows"] for each in inputs}


def test_lost_rows_that_nobody_can_count_are_unknown_and_no_zero() -> None:
    """By amnesia of a session; before the loss the status says already that nobody could count."""
    lost = FragmentStatus(
        fragment="q/hot",
        query="q",
        method="amnesia",
        lost_by={"rows": 0},
        lost_unknown=True,
        uncounted=("alarm",),
    )
    text = printed([plain(NodeStatus(node="n", fragments=(lost,)))])
    assert "LOST: q/hot: rows, and nobody can say how many: unknown; can't be counted: alarm" in text
    [row] = [line for line in text.splitlines() if line.strip().startswith("q/hot ")]
    assert "unknown" in row
    fed: Any = SimpleNamespace(status=lambda: plain(NodeStatus(node="n", fragments=(lost,))))
    assert _lost(_status(fed)) == {"q/hot": "; rows lost: unknown"}
    assert "lost: unknown" in fragment_figures(lost)
    whole = msgspec.structs.replace(lost, lost_unknown=False)
    text = printed([plain(NodeStatus(node="n", fragments=(whole,)))])
    assert "q/hot: were it lost, nobody could say how many rows; can't be counted: alarm" in text
    assert "LOST" not in text
