"""Who stands by, through a client and the command line: planned, refused, deployed, shown and removed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from tests.system.nodes import TIMEOUT, ordered, until

NAMES = ("a", "b", "c", "d")
"""d has no disk."""

AT = {"b": ["rows", "per_k"], "c": ["some"]}
EXACT = {"recovery": "precise", "method": "active_standby"}


@contextlib.contextmanager
def four_nodes(folder: Path, **more: Any) -> Iterator[dict[str, md.Node]]:
    """All are peers; what else their configurations say."""
    listens = {name: f"ipc://{folder}/{name}" for name in NAMES}
    made = {}
    for name in NAMES:
        limits = {"deploy_timeout": "30s", **more.get("limits", {})}
        config = {"name": name, "listen": listens[name], **more, "limits": limits}
        config |= {"store": "memory"} if name == "d" else {"data": str(folder / f"{name}.data")}
        config["peers"] = {other: listens[other] for other in NAMES if other != name}
        made[name] = md.node(config, report=lambda *_: None)
        made[name].start()
    yield made
    for node in made.values():
        node.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, md.Node]]:
    with four_nodes(tmp_path_factory.mktemp("n")) as made:
        yield made


@pytest.fixture
def fed(nodes: dict[str, md.Node]) -> Iterator[md.Federation]:
    with md.connect(nodes["a"].address, timeout=TIMEOUT) as made:
        until(lambda: set(made.status()["peers"].values()) == {"up"})
        yield made


def query(name: str = "q", **wish: str) -> md.Query:
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
    per_k = rows.window("10s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="some"), **wish)
    return q


def test_a_plan_says_of_each_output_who_stands_by_and_what_it_costs(fed: md.Federation) -> None:
    plan = fed.plan(query(**EXACT), AT, standby={"b": ["c"], "some": ["a"]})
    (output,) = plan.outputs
    assert (output.stream, output.method) == ("q.out", "active_standby")
    assert output.standby == {"q/rows": ("c",), "q/some": ("a",)}
    assert plan.voters == ("b", "c", "a")
    assert [text.split(":")[0] for text in plan.warnings] == ["b, c, a are on one machine"]
    assert plan.loads["a"] > fed.plan(query(), AT).loads["a"], "who stands by has to feed it too"
    shown = str(plan)
    assert "q.out: exactly once, and goes on when a node is lost for good" in shown
    assert "active standby: c for q/rows; a for q/some" in shown
    assert "is fed is sent once more to each who stands by, about" in shown
    assert "voters: b, c, a" in shown
    assert fed.queries() == []


COSTS = {
    "active_standby": "what q/rows and q/some is fed is sent once more to each who stands by, about",
    "passive_standby": "who stands by for q/rows and q/some is sent each checkpoint, and of a large",
    "upstream_backup": "who stands by for q/rows and q/some is sent some hundred bytes with each ch",
    "amnesia": "who stands by for q/rows and q/some is sent nothing, and nothing is kept; ",
}


@pytest.mark.parametrize("method", COSTS)
def test_a_plan_says_of_each_method_what_that_one_sends(method: str, fed: md.Federation) -> None:
    kind = {"upstream_backup": "rollback", "amnesia": "gap"}.get(method, "precise")
    (output,) = fed.plan(query(recovery=kind, method=method), AT, standby={"*": ["a"]}).outputs
    assert output.overhead.startswith(COSTS[method])
    assert ("is fed is sent once more" in output.overhead) is (method == "active_standby")
    assert (output.bytes_per_s > 0) is (method == "active_standby")


def test_a_plan_says_what_each_fragment_of_an_output_costs_by_its_own_method(fed: md.Federation) -> None:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
    q.sink("exact", rows.filter("k > 0", name="few"), **EXACT)
    q.sink("trend", rows.window("10s").aggregate(n=md.count(), name="per_10s"), recovery="gap")
    plan = fed.plan(q, {"b": ["rows", "few"], "c": ["per_10s"]}, standby={"*": ["a"]})
    (trend,) = (each for each in plan.outputs if each.stream == "q.trend")
    assert "what q/rows is fed is sent once more" in trend.overhead
    assert "who stands by for q/per_10s is sent nothing, and nothing is kept" in trend.overhead


def test_without_a_wish_a_plan_and_a_deployment_are_what_they_were(fed: md.Federation) -> None:
    plan = fed.plan(query(), AT)
    assert (plan.outputs, plan.voters, plan.warnings) == ((), (), ())
    assert len(str(plan).splitlines()) == 1 + len(plan.loads) + 1
    assert fed.deploy(query(), AT) is None
    (found,) = fed.queries()
    assert (found["nodes"], "configuration" in found) == (["b", "c"], False)
    assert set(fed.status()["queries"]["q"]) == {"state", "nodes", "stopped", "ended"}
    fed.undeploy("q")


def test_a_deployment_reaches_who_stands_by_and_is_removed_there(
    nodes: dict[str, md.Node], fed: md.Federation
) -> None:
    said = fed.deploy(query(**EXACT), AT, standby={"*": "auto", "per_k": ["c"]})
    assert said is not None
    assert said["standby"]["q/rows"] == ("c",)
    assert said["standby"]["q/some"][0] in ("a", "b")
    assert said["voters"] == ("b", "c", "a")
    (found,) = fed.queries()
    assert found["nodes"] == ["b", "c", *(name for name in said["standby"]["q/some"] if name != "b")]
    assert ordered(lambda: fed.move("q/rows", to="a"))["node"] == "a"
    parts = {"q/per_k-1", "q/per_k-2"}
    ordered(lambda: fed.split("q/per_k", 2))
    until(lambda: fed.queries()[0]["fragments"].keys() > parts, what="it is in parts")
    ordered(lambda: fed.merge("q/per_k"))
    until(lambda: not fed.queries()[0]["fragments"].keys() & parts, what="it is whole")
    [owner] = fed.queries()[0]["fragments"]["q/some"]
    assert owner in ("c", *said["standby"]["q/some"])
    fed.undeploy("q")
    assert fed.queries() == []


def test_a_query_that_two_would_vote_on_is_deployed_with_a_warning(fed: md.Federation) -> None:
    said = fed.deploy(query(), {"a": ["rows", "per_k", "some"]}, standby={"a": ["b"]})
    assert said is not None
    assert said["voters"] == ("a", "b")
    assert said["warnings"][0].startswith("a and b alone can't decide")
    fed.undeploy("q")
    said = fed.deploy(query(), {"a": ["rows", "per_k", "some"]}, standby={"a": ["b"]}, witness=["c"])
    assert said is not None
    assert (said["voters"], said["witnesses"]) == (("a", "b", "c"), ("c",))
    assert fed.queries()[0]["nodes"] == ["a", "b", "c"]
    fed.undeploy("q")


def test_a_flush_that_waits_for_a_sink_to_be_read_names_it(fed: md.Federation) -> None:
    """By upstream backup rows are with their sender until readers hold what came of them."""
    fed.deploy(query(recovery="rollback", method="upstream_backup"), AT, standby={"*": ["a"]})
    with fed.subscribe("q.out", "oldest", durable="r", timeout="30s") as reader:
        fed.publish("q.rows", {"ts": [1, 30], "k": [1, 2]})
        fed.finish("q.rows")
        until(lambda: any(each["rows"] == 2 for each in outputs(fed, "q.out")))
        with pytest.raises(md.LinkError) as late:
            fed.flush("500ms")
        assert late.value.code == "link.timeout"
        assert "sink 'q.out' isn't read: the name 'r' has 0 of 2 rows" in late.value.hint
        for train in reader:
            reader.ack(train.first_seq + len(train))
        fed.flush()
    fed.unsubscribe("q.out", durable="r")
    fed.undeploy("q")


def outputs(fed: md.Federation, stream: str) -> list[dict[str, Any]]:
    parts = [part for status in fed.statuses(all=True) for part in status["fragments"]]
    return [each for part in parts for each in part["outputs"] if each["stream"] == stream]


def test_a_flush_that_waits_for_somebody_to_read_a_sink_names_it(fed: md.Federation) -> None:
    """What nobody has read is kept for who may come."""
    fed.deploy(query(recovery="rollback", method="upstream_backup"), AT, standby={"*": ["a"]})
    fed.publish("q.rows", {"ts": [1, 30], "k": [1, 2]})
    fed.finish("q.rows")
    until(lambda: any(each["rows"] == 2 for each in outputs(fed, "q.out")))
    with pytest.raises(md.LinkError) as late:
        fed.flush("500ms")
    assert "sink 'q.out' is read by nobody: its 2 rows are kept for who comes" in late.value.hint
    with fed.subscribe("q.out", "oldest", timeout="30s") as reader:
        assert sum(map(len, reader)) == 2
        fed.flush()
    fed.undeploy("q")


REFUSED = [
    (EXACT, AT, None, (), "E_STANDBY"),
    (EXACT, AT, {"b": ["c"]}, (), "E_STANDBY"),
    ({}, AT, {"b": ["b"]}, (), "E_STANDBY"),
    ({}, AT, {"b": ["c", "c"]}, (), "E_STANDBY"),
    ({}, AT, {"b": ["z"]}, (), "query.placement.node"),
    ({}, AT, {"b": ["d"]}, (), "E_STORE"),
    ({}, {"d": ["rows", "per_k", "some"]}, {"d": ["b"]}, (), "E_STORE"),
    ({}, AT, {"nothing": ["c"]}, (), "query.placement.box"),
    ({}, AT, {"a": ["c"]}, (), "query.placement.node"),
    ({}, AT, None, ("c",), "E_STANDBY"),
    ({}, AT, {"b": ["c"]}, ("d",), "E_STORE"),
]


@pytest.mark.parametrize(("wish", "at", "standby", "witness", "code"), REFUSED)
def test_a_refused_deployment_and_a_refused_plan_say_the_same_and_change_nothing(
    fed: md.Federation, wish: dict, at: dict, standby: dict | None, witness: tuple, code: str
) -> None:
    said = []
    for ask in (fed.plan, fed.deploy):
        with pytest.raises(md.MedusaError) as refused:
            ask(query(**wish), at, standby=standby, witness=witness)
        said.append((refused.value.code, refused.value.message))
    assert said[0] == said[1]
    assert said[0][0] == code
    assert fed.queries() == []


@pytest.mark.parametrize(
    "standby", ["sometimes", {}, {"b": []}, {"b": "c"}, {"b": [3]}, {3: ["c"]}, {"b": [*"abcdefghi"]}, ["c"]]
)
def test_what_is_no_wish_is_refused_without_asking(fed: md.Federation, standby: object) -> None:
    with pytest.raises(md.QueryError) as refused:
        fed.deploy(query(), AT, standby=standby)  # type: ignore[arg-type]
    assert refused.value.code == "query.placement"
    with pytest.raises(md.QueryError, match="witness is the text 'c'"):
        fed.deploy(query(), AT, standby="auto", witness="c")


def test_placed_by_load_and_guarded(fed: md.Federation) -> None:
    said = fed.deploy(query(**EXACT), md.balance(nodes=["b"]), standby="auto")
    assert said is not None
    assert len(said["standby"]["q/rows"]) == 1
    fed.undeploy("q")


def test_on_the_command_line(nodes: dict[str, md.Node], fed: md.Federation, tmp_path) -> None:
    path, placed = tmp_path / "q.json", tmp_path / "at.json"
    path.write_text(query(**EXACT).to_json())
    placed.write_text(json.dumps(AT))

    def medusa(*args: str) -> Result:
        command = ["deploy", str(path), "--node", nodes["a"].address, "--at", str(placed), *args]
        return CliRunner().invoke(main, command)

    guarded = ("--standby", "b=c,a", "--standby", "auto")
    dry = medusa(*guarded, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "active standby: c, a for q/rows" in dry.output
    found = json.loads(medusa(*guarded, "--dry-run", "--json").output)
    assert found["outputs"][0]["standby"]["q/rows"] == ["c", "a"]
    assert fed.queries() == []
    assert "nobody stands by for fragment 'q/rows'" in medusa().output
    for wrong in (["--standby", "c"], ["--standby", "b="], ["--standby", "b=c", "--standby", "b=a"]):
        assert medusa(*wrong).exit_code == 2
    done = medusa(*guarded)
    assert done.exit_code == 0, done.output
    assert "q is deployed\n  q/rows  standby: c, a\n" in done.output
    fed.undeploy("q")
    said = json.loads(medusa("--standby", "auto", "--json").output)
    assert (said["deployed"], sorted(said["standby"])) == ("q", ["q/rows", "q/some"])
    fed.undeploy("q")
