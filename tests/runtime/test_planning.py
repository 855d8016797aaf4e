"""Placements that a client asks for, from the status of its node."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.runtime.client.placement import expected


def query():
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "utf8", "v": "int64"}, time="ts", unit="s")
    heavy = rows.window("1s").group_by("k").aggregate(n=md.count(), name="heavy")
    other = rows.window("2s").group_by("k").aggregate(n=md.count(), name="other")
    q.sink("out", heavy)
    q.sink("more", other)
    return q


STATUS = {
    "node": "a",
    "peers": {"b": "up", "c": "silent"},
    "load": {
        "load": 0.5,
        "peers": {
            "b": {"load": 0.15, "fragments": {"q/heavy": {"busy_share": 0.05}, "p/x": {"busy_share": 0.1}}}
        },
    },
    "fragments": [
        {
            "query": "q",
            "boxes": {
                "rows": {"load": 0.1, "rows_in_per_s": 100.0, "rows_out_per_s": 100.0},
                "heavy": {"load": 0.3, "rows_in_per_s": 100.0, "rows_out_per_s": 10.0},
                "other": {"load": 0.0, "rows_in_per_s": 0.0, "rows_out_per_s": 0.0},
            },
        }
    ],
}


def test_the_query_itself_is_not_counted_as_a_load_that_is_there():
    found = expected(query().graph, md.balance(), STATUS)
    assert found.before == pytest.approx({"a": 0.1, "b": 0.1})
    assert found.measured == 2
    assert found.at == {"a": ("rows", "other", "more"), "b": ("heavy", "out")}
    assert max(found.loads.values()) == pytest.approx(found.loads["b"])
    assert "2 of 5 boxes measured" in str(found)
    assert str(found).splitlines()[1].split() == ["a", "10.0%", "20.0%", "rows", "other", "more"]


def test_nodes_of_other_owners_are_used_only_by_name():
    abroad = {**STATUS, "abroad": {"b": "bob"}, "remote": {"defined": {}}}
    assert set(expected(query().graph, md.balance(), abroad).at) == {"a"}
    assert set(expected(query().graph, md.balance(nodes=["a", "b"]), abroad).at) == {"a", "b"}
    assert set(expected(query().graph, md.balance(pins={"b": ["other"]}), abroad).at) == {"a", "b"}


def test_what_has_to_be_defined_first_is_said():
    at = {"a": ["rows", "heavy", "out"], "b": ["other", "more"]}
    status = {**STATUS, "abroad": {"b": "bob"}, "remote": {"defined": {}}}
    found = expected(query().graph, at, status)
    assert found.undefined == {"b": ("q/other",)}
    assert str(found).splitlines()[-1] == "b is another owner's: medusa remote define q/other there first"
    status["remote"] = {"defined": {"mine": {"node": "b", "fragment": "q/other"}}}
    assert expected(query().graph, at, status).undefined == {}
    assert expected(query().graph, at, STATUS).undefined == {}


def test_a_node_that_does_not_answer_is_warned_of_as_a_deployment_would_be_refused():
    at = {"b": ["rows"], "c": ["heavy", "other"]}
    found = expected(query().graph, at, STATUS)
    assert found.warnings == ("no answer from 'c': a deployment would be refused (E_TIMEOUT)",)
    assert "warning: no answer from 'c'" in str(found)
    assert expected(query().graph, {"b": ["rows", "heavy", "other"]}, STATUS).warnings == ()


def test_a_slow_line_counts_as_load():
    free = expected(query().graph, md.balance(), STATUS)
    slow = md.balance(bandwidth={"a": "1 kB", "b": "1 kB"})
    assert set(free.at) == {"a", "b"}
    assert set(expected(query().graph, slow, STATUS).at) == {"a"}, "what crosses would take longer"
    by_name = expected(query().graph, md.balance(pins={"b": ["heavy"]}, bandwidth={"b": "1 kB"}), STATUS)
    assert by_name.loads["b"] == pytest.approx(by_name.bytes_per_s / 1_000)


def test_a_placement_by_hand_and_none():
    by_hand = {"a": ["rows"], "b": ["heavy", "other", "out", "more"]}
    found = expected(query().graph, by_hand, STATUS)
    assert found.at == {node: tuple(boxes) for node, boxes in by_hand.items()}
    assert found.loads["a"] == pytest.approx(0.2, abs=1e-3)
    assert found.bytes_per_s > 0
    assert expected(query().graph, None, STATUS).bytes_per_s == 0


@pytest.mark.parametrize(
    "wish",
    [
        lambda: md.balance(nodes="ab"),
        lambda: md.balance(pins={"a": "rows"}),
        lambda: md.balance(rates={"rows": -1}),
        lambda: md.balance(bandwidth={"a": "much"}),
        lambda: expected(query().graph, md.balance(nodes=["z"]), STATUS),
        lambda: expected(query().graph, md.balance(pins={"z": ["rows"]}), STATUS),
    ],
)
def test_a_wish_that_does_not_hold_is_refused(wish):
    with pytest.raises(md.QueryError):
        wish()


def test_planned_and_deployed_at_a_node(tmp_path):
    config = {"name": "a", "listen": "tcp://127.0.0.1:*", "data": str(tmp_path / "a")}
    path = tmp_path / "q.json"
    path.write_text(query().to_json())
    with md.node(config) as node, node.connect("60s") as fed:
        assert set(fed.plan(query(), at=md.balance()).at) == {"a"}
        ran = CliRunner().invoke(
            main, ["deploy", str(path), "--node", node.address, "--balance", "--dry-run", "--json"]
        )
        assert json.loads(ran.output)["at"] == {"a": ["rows", "heavy", "out", "other", "more"]}
        command = ["deploy", str(path), "--node", node.address, "--dry-run"]
        more = ["--nodes", "a", "--bandwidth", "a=1 kB"]
        assert CliRunner().invoke(main, [*command, "--balance", *more]).exit_code == 0
        assert "go with --balance" in CliRunner().invoke(main, [*command, *more]).output
        assert "z" in CliRunner().invoke(main, [*command, "--balance", "--nodes", "z"]).output
        assert fed.status()["fragments"] == []
        fed.deploy(query(), at=md.balance())
        assert fed.status()["sources"].keys() == {"q.rows"}
