"""Precise by upstream backup: which fragments can, which go on by another method and why, what is refused."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.nodes.placement.estimating import traffic_of
from medusa.nodes.placement.recovered_outputs import recovered_outputs
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.nodes.upstream_backup.decisions import decision_in
from medusa.query.published_stream import PublishedStream
from medusa.query.types import schema_from
from tests.nodes.test_standby_plan import planned


def precise_by_upstream(box, *, recovery="precise"):
    """Rows come in at one node, and go through a box of this kind at the next."""
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "v": "int64"}, time="ts").filter("v > 0", name="some")
    more = q.source("more", {"ts": "timestamp", "v": "int64"}, time="ts").filter("v > 0", name="other")
    boxes = {
        "windows": lambda: rows.window("1s").group_by("v").aggregate(n=md.count(), name="kind"),
        "filter": lambda: rows.filter("v > 1", name="kind"),
        "running": lambda: rows.group_by("v").running(n=md.count(), name="kind"),
        "random": lambda: rows.drop(0.5, name="kind"),
        "timeout": lambda: rows.wsort("v", timeout="1s", name="kind"),
        "union": lambda: rows.union(more, name="kind"),
        "sunion": lambda: rows.sunion(more, bucket="1s", name="kind"),
    }
    q.sink("out", boxes[box]().filter("true", name="last"), recovery=recovery, method="upstream_backup")
    q.sink("beside", more.filter("true", name="else"))
    at = {
        "a": ["rows", "some"],
        "b": ["kind"],
        "c": ["last", "out"],
        "d": ["more", "other", "else", "beside"],
    }
    return q.graph, at


@pytest.mark.parametrize(
    ("box", "middle"),
    [
        ("windows", "precise_upstream_backup"),
        ("filter", "precise_upstream_backup"),
        ("sunion", "precise_upstream_backup"),
        ("union", "passive_standby"),
    ],
)
def test_precise_by_upstream_backup_is_passive_where_the_order_of_rows_cant_be_made_again(box, middle):
    graph, at = precise_by_upstream(box)
    plan = planned(graph, at=at, standby={"*": ("e",)})
    specs = {each.name: each for each in plan.fragments}
    assert specs["q/rows"].method == "passive_standby"
    assert "'rows' is published into" in specs["q/rows"].method_reason
    assert specs["q/kind"].method == middle
    assert ("as they arrive" in specs["q/kind"].method_reason) is (box == "union")
    assert (specs["q/last"].method, specs["q/last"].method_reason) == ("precise_upstream_backup", "")
    output = recovered_outputs(plan, graph, traffic_of(graph), voters=3)[0]
    assert (output.method, output.guarantee.startswith("exactly once")) == ("precise_upstream_backup", True)
    shown = str(output)
    assert f"q/rows by passive standby: {specs['q/rows'].method_reason}" in shown
    assert ("q/kind by passive standby: union 'kind' takes rows" in shown) is (box == "union")
    assert re.search(r"output of q/rows.* waits for that", shown)
    assert "some hundred bytes with each checkpoint" in shown
    assert fragment_from(fragment_to(specs["q/kind"])) == specs["q/kind"]


@pytest.mark.parametrize("box", ["running", "random", "timeout"])
def test_a_box_that_cant_be_read_again_is_refused_by_name_where_its_input_has_an_order(box):
    graph, at = precise_by_upstream(box)
    with pytest.raises(
        QueryError, match=r"'q/kind' at 'b'.*upstream backup: .*'kind' has a state"
    ) as refused:
        planned(graph, at=at, standby={"*": ("e",)})
    assert (refused.value.code, "passive_standby" in refused.value.hint) == ("E_STANDBY", True)


def test_upstream_backup_of_an_output_by_nothing_that_can_make_its_rows_again_is_refused():
    graph, at = precise_by_upstream("windows")
    at = {"a": [*at["a"], *at["b"], *at["c"]], "d": at["d"]}
    with pytest.raises(
        QueryError, match=r"sink 'out' .*'q/rows' at 'a' source 'rows' is published"
    ) as refused:
        planned(graph, at=at, standby={"*": ("e",)})
    assert refused.value.code == "E_STANDBY"
    assert "another node" in refused.value.hint


def test_rows_of_another_query_arent_kept_for_windows():
    q = md.Query("q")
    stream = PublishedStream(
        name="local/p.out", columns=schema_from(pa.schema({"v": pa.int64()})), timed=True
    )
    kept = q.source("read", of=stream).filter("v > 1", name="kept")
    q.sink(
        "out",
        kept.window("1s").aggregate(n=md.count(), name="n"),
        recovery="precise",
        method="upstream_backup",
    )
    assert decision_in(q.graph) == (
        "source 'read'",
        "reads 'local/p.out' of another query, which keeps no rows for our windows",
    )


@pytest.mark.parametrize(
    ("other", "methods"),
    [
        (
            {"recovery": "rollback", "method": "upstream_backup"},
            ("passive_standby", "precise_upstream_backup"),
        ),
        ({"recovery": "precise", "method": "passive_standby"}, ("passive_standby", "passive_standby")),
        ({"recovery": "precise", "method": "active_standby"}, ("", "")),
        ({"recovery": "gap"}, ("passive_standby", "precise_upstream_backup")),
        ({}, ("passive_standby", "precise_upstream_backup")),
    ],
)
def test_beside_another_output_the_stronger_method_counts(other, methods):
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "v": "int64"}, time="ts").filter("v > 0", name="some")
    kind = rows.window("1s").group_by("v").aggregate(n=md.count(), name="kind")
    q.sink("out", kind, recovery="precise", method="upstream_backup")
    q.sink("second", kind.filter("n > 1", name="many"), **other)
    plan = planned(
        q.graph, at={"a": ["rows", "some"], "b": ["kind", "out", "many", "second"]}, standby={"*": ("e",)}
    )
    assert tuple(each.method for each in plan.fragments) == methods
    why = "it feeds sink 'second' too, which asks for that"
    cant = "source 'rows' is published into, and the order in which rows arrive can't be made again"
    more = "it feeds sink 'out' too, which asks for that"
    assert [each.method_reason for each in plan.fragments] == {
        "precise": [why if methods[0] == "" else cant, why],
        "rollback": [cant, more],
        "gap": [cant, more],
    }.get(other.get("recovery"), [cant, ""])
    second = other.get("method") or ("amnesia" if other else "active_standby")
    for output in recovered_outputs(plan, q.graph, traffic_of(q.graph), voters=3):
        wish = "precise_upstream_backup" if output.stream == "q.out" else second
        told = {name: how.partition(": ")[2] for name, how in output.otherwise.items()}
        assert told == {
            each.name: each.method_reason
            for each in plan.fragments
            if each.method_reason and (each.method or "active_standby") != wish
        }
