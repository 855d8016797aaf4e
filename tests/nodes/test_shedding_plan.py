"""What may be left out at the inputs of fragments, as placement finds it in the whole query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.shedding_plan import with_shedding
from medusa.nodes.spec.fragment_spec import fragment_from, fragment_to
from medusa.query.boxes import Source
from medusa.query.boxes.shedding_rule import SheddingRule, ThinnedOutput

SCHEMA = {"ts": "timestamp", "road": "int64", "speed": "float64"}
LOSS = md.QoS(loss=[(100, 1), (0, 0)])
WORTH = md.QoS(latency=[("1s", 1), ("4s", 0)], value=("speed", [(0, 0), (100, 1)]))


def rules(
    q: Any, at: Mapping[str, Sequence[str]], **changed: Any
) -> dict[tuple[str, str], SheddingRule | None]:
    """(node, source) -> its rule."""
    plan = cut(q.graph, at, nodes=list(at))
    fragments = tuple(msgspec.structs.replace(each, **changed) for each in plan.fragments)
    plan = with_shedding(replace(plan, fragments=fragments), q.graph)
    for each in plan.fragments:
        assert fragment_from(fragment_to(each)) == each, "it travels as it is"
    return {
        (each.node, box.id): box.shed
        for each in plan.fragments
        for box in each.graph.boxes
        if isinstance(box, Source)
    }


def shown(found: Mapping[tuple[str, str], SheddingRule | None]) -> dict[str, str]:
    """As people read it, with how many fragments there are from here to each output."""
    return {
        f"{node} {source}": "nothing"
        if rule is None
        else f"{rule.how} {rule.window_us / 1e6:g} "
        + " ".join(f"{each.sink}/{each.hops}" for each in rule.outputs)
        for (node, source), rule in found.items()
    }


def roads(alarms: md.QoS | None = WORTH, report: md.QoS | None = LOSS) -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    moving = cars.filter("speed > 0", name="moving")
    q.sink("alarms", moving, qos=alarms)
    q.sink("report", moving.window("1s").group_by("road").aggregate(n=md.count(), name="counts"), qos=report)
    return q


def test_outputs_and_windows_count_wherever_they_stand() -> None:
    at = {"a": ["cars"], "b": ["moving"], "c": ["counts", "report"], "d": ["alarms"]}
    assert shown(rules(roads(), at)) == {
        "a cars": "windows 1 alarms/3 report/3",
        "b cars": "windows 1 alarms/2 report/2",
        "c moving": "windows 1 report/1",
        "d moving": "value 0 alarms/1",
    }
    found = rules(roads(), at)["d", "moving"]
    assert found == SheddingRule((ThinnedOutput("alarms", WORTH),), value=WORTH.value)


def test_above_an_output_without_quality_of_service_nothing_is_left_out() -> None:
    at = {"a": ["cars"], "b": ["moving"], "c": ["counts", "report"], "d": ["alarms"]}
    assert shown(rules(roads(report=None), at)) == {
        "a cars": "nothing",
        "b cars": "nothing",
        "c moving": "nothing",
        "d moving": "value 0 alarms/1",
    }
    assert set(rules(roads(None, None), at).values()) == {None}


def test_windows_of_several_lengths_go_by_the_least_that_all_divide() -> None:
    q = md.Query("roads")
    cars = q.source("cars", SCHEMA, time="ts", slack="0s")
    for name, length in (("two", "2s"), ("three", "3s")):
        counts = cars.window(length).aggregate(n=md.count(), name=f"counts_{name}")
        q.sink(name, counts, qos=LOSS)
    assert (
        shown(rules(q, {"a": ["cars"], "b": ["counts_two", "counts_three"]}))["a cars"]
        == "windows 6 two/2 three/2"
    )


def sliding(cars: Any) -> Any:
    return cars.window("2s", "1s").aggregate(n=md.count(), name="box")


def sessions(cars: Any) -> Any:
    return cars.session("1s").group_by("road").aggregate(n=md.count(), name="box")


def distinct(cars: Any) -> Any:
    return cars.distinct("road", within="1s", name="box")


@pytest.mark.parametrize("box", [sliding, sessions, distinct])
def test_what_a_part_would_make_wrong_is_left_whole(box: Any) -> None:
    q = md.Query("q")
    q.sink("out", box(q.source("cars", SCHEMA, time="ts", slack="0s")), qos=LOSS)
    assert shown(rules(q, {"a": ["cars"], "b": ["box", "out"]})) == {"a cars": "nothing", "b cars": "nothing"}


def test_copies_of_a_source_are_left_whole() -> None:
    """Each would leave out other windows."""
    at = {"a": ["cars", "moving", "counts"], "b": ["cars", "moving", "counts"], "c": ["report", "alarms"]}
    assert {rule for (node, _), rule in rules(roads(), at).items() if node in "ab"} == {None}


@pytest.mark.parametrize(
    "changed", [{"delay_us": 1_000_000}, {"method": "upstream_backup"}, {"method": "amnesia"}], ids=str
)
def test_what_another_one_begins_anew_leaves_out_nothing(changed: dict[str, Any]) -> None:
    """Its forks, or who succeeds it, would leave out other rows."""
    assert set(rules(roads(), {"a": ["cars"], "b": ["moving"]}, **changed).values()) == {None}


@pytest.mark.parametrize("qos", [LOSS, None])
def test_a_rule_that_a_client_made_up_is_no_rule(qos: md.QoS | None) -> None:
    q = roads(report=None, alarms=qos)
    made = SheddingRule((ThinnedOutput("report", LOSS),))
    boxes = tuple(
        msgspec.structs.replace(each, shed=made) if isinstance(each, Source) else each
        for each in q.graph.boxes
    )
    graph = msgspec.structs.replace(q.graph, boxes=boxes)
    plan = with_shedding(cut(graph, {"a": ["cars"]}), graph)
    assert [box.shed for box in plan.fragments[0].graph.boxes if isinstance(box, Source)] == [None]
