"""What a client hears of how many parts boxes should run in, against statuses whose truth is known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import LinkError
from medusa.runtime.client.status.scale_plan import scale_plan
from medusa.wire.status_and_metrics import (
    BoxStatus,
    FragmentStatus,
    InputStatus,
    NodeStatus,
    OutputStatus,
    SmoothedLoad,
)


def box(kind: str, came: float, left: float, busy: float) -> BoxStatus:
    told = SmoothedLoad(rows_in_per_s=came, rows_out_per_s=left, busy_share=busy)
    return BoxStatus(kind=kind, smoothed=told)


def node(name: str, *fragments: FragmentStatus) -> NodeStatus:
    return NodeStatus(node=name, fragments=fragments)


def test_what_comes_counts_across_nodes_and_a_slow_box_hides_nothing_behind_it() -> None:
    """Of 400 rows a second ``slow`` does 100 with a whole thread, and ``behind`` those in a quarter."""
    edge = FragmentStatus(
        fragment="q/a",
        query="q",
        boxes={
            "a": box("source", 400, 400, 0),
            "slow": box("filter", 100, 100, 1.0),
            "slow_out": box("sink", 100, 0, 0),
        },
        arcs=(("a", "out", "slow"), ("slow", "out", "slow_out")),
        outputs=(OutputStatus(sink="slow_out", stream="q.slow"),),
    )
    core = FragmentStatus(
        fragment="q/behind",
        query="q",
        boxes={"slow": box("source", 100, 100, 0), "behind": box("window", 100, 1, 0.25)},
        arcs=(("slow", "out", "behind"),),
        inputs=(InputStatus(source="slow", stream="q.slow", origin="edge"),),
    )
    plan = {each["box"]: each for each in scale_plan([node("edge", edge), node("core", core)], "q")}
    assert (plan["q/slow"]["work"], plan["q/slow"]["wanted"]) == (4.0, 8)
    assert (plan["q/behind"]["work"], plan["q/behind"]["wanted"]) == (1.0, 2)


def named(busy: float, rows: float) -> FragmentStatus:
    boxes = {
        "flows": box("source", rows, rows, 0),
        "per_k": box("window", rows, 10, busy),
        "out": box("sink", 10, 0, 0),
    }
    arcs = (("flows", "out", "per_k"), ("per_k", "out", "out"))
    streams = (OutputStatus(sink="out", stream="q.per_k"),)
    return FragmentStatus(fragment="q/flows", query="q", boxes=boxes, arcs=arcs, outputs=streams)


def test_a_fragment_that_several_nodes_have_with_sources_of_their_own_counts_as_it_is_at_each() -> None:
    """It has one name at all of them: what one of them does was counted for each."""
    core = FragmentStatus(
        fragment="q/all",
        query="q",
        boxes={
            "x": box("source", 10, 10, 0),
            "y": box("source", 10, 10, 0),
            "all": box("window", 20, 1, 0.1),
        },
        arcs=(("x", "out", "all"), ("y", "out", "all")),
        inputs=tuple(
            InputStatus(source=source, stream="q.per_k", origin=node)
            for source, node in (("x", "e1"), ("y", "e2"))
        ),
    )
    nodes = [node("e1", named(0.9, 100)), node("e2", named(0.1, 10)), node("c", core)]
    plan = {each["box"]: each for each in scale_plan(nodes, "q")}
    assert (plan["q/per_k"]["parts"], plan["q/per_k"]["work"]) == (2, pytest.approx(1.0))
    assert plan["q/all"]["work"] == pytest.approx(0.1)


def parted(busy: float) -> FragmentStatus:
    ids = {f"w-{n}": box("window", 100, 1, busy) for n in (1, 2, 3)}
    routed: dict[str, Any] = {"a": box("source", 300, 300, 0), "w-router": box("key_router", 300, 300, 0)}
    arcs = (("a", "out", "w-router"), *(("w-router", str(n), f"w-{n}") for n in (1, 2, 3)))
    merge = {"w": box("ordered_merge", 3, 3, 0)}
    return FragmentStatus(fragment="q/a", query="q", boxes={**routed, **ids, **merge}, arcs=arcs)


@pytest.mark.parametrize(("busy", "wanted"), [(0.05, 1), (0.2, 2), (0.5, 3), (0.9, 6)])
def test_a_box_in_parts_is_one_box(busy: float, wanted: int) -> None:
    [only] = scale_plan([node("n", parted(busy))], "q")
    assert (only["box"], only["parts"], only["wanted"]) == ("q/w", 3, wanted)
    assert only["work"] == pytest.approx(3 * busy)


def test_of_a_real_node_a_box_and_its_parts_are_told_and_nothing_changes() -> None:
    q = md.Query("cars")
    cars = q.source("cars", {"ts": "int64", "seg": "int64"}, time="ts", unit="s")
    q.sink("out", cars.window("10s").group_by("seg").aggregate(n=md.count(), name="per_seg"))
    with (
        md.node({"name": "here", "listen": "tcp://127.0.0.1:*", "store": "memory"}) as here,
        here.connect() as fed,
    ):
        fed.deploy(q.split("per_seg", 2))
        before = fed.find("cars/per_seg")["parts"]
        plan = {each["box"]: each for each in fed.scale_plan("cars")}
        assert plan["cars/per_seg"]["parts"] == 2
        shown = CliRunner().invoke(main, ["scale", "cars", "--node", here.address])
        assert (shown.exit_code, shown.output.split("  ")[:2]) == (0, ["cars/per_seg", "parts: 2"])
        told = CliRunner().invoke(main, ["scale", "cars", "--node", here.address, "--json"])
        assert [each["box"] for each in json.loads(told.output)["boxes"]] == ["cars/per_seg"]
        assert fed.find("cars/per_seg")["parts"] == before
        with pytest.raises(LinkError, match="no query 'bikes' runs here"):
            fed.scale_plan("bikes")
