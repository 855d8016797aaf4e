"""Two owners, five processes, one query that is changed while rows flow: what is found, shown and told."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from medusa.apps.workloads.demos import federation_demo, federation_query
from medusa.apps.workloads.demos.federation_outcome import (
    FederationOutcome,
    FederationStep,
    LookUps,
    TableComparison,
    compare,
    gaps_us,
)
from medusa.apps.workloads.demos.federation_screen import FederationProgress
from medusa.cli.main import main
from medusa.errors import LinkError

STEP = FederationStep(
    what="totals a3 -> a2", kind="move", seconds=0.5, gaps_us=[50_000, 70_000, 51_000], stopped_us=9
)
LOOK = LookUps(
    after="deployment", asked=["b1"], truth="a3", right=1, nothing=2, older=0, wrong=0, seconds=0.25
)
FINE = FederationOutcome(
    comparison=TableComparison(rows=3, expected=3),
    steps=[STEP],
    lookups=[LOOK],
    lost_rows=0,
    cars=100,
    seconds=2.0,
    seed=0,
    refused="E_OFFER",
)


@pytest.mark.system
def test_five_processes_of_two_owners_give_what_one_gives() -> None:
    shown = CliRunner().invoke(main, ["demo", "federation", "--json", "--rate", "400", "--rest", "0.1"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert told["equal"]
    assert told["rows"] == told["expected"] > 100
    assert told["lost_rows"] == 0
    kinds = [step["kind"] for step in told["steps"]]
    assert kinds == ["calm", "move", "split", "merge", "move", "leave", "join"]
    assert all(step["gap_max_us"] >= step["gap_p50_us"] > 0 for step in told["steps"])
    assert [step["stopped_us"] is not None for step in told["steps"]] == [
        kind in ("move", "split", "merge") for kind in kinds
    ]
    assert [each["truth"] for each in told["lookups"]] == ["a3", "a2", "a1", "a1", "a1"]
    assert [each["right"] for each in told["lookups"]] == [2, 2, 2, 2, 3]
    assert told["refused"] == "E_OFFER"


WRONG: list[Mapping[str, Any]] = [
    {"comparison": TableComparison(rows=3, expected=3, example="row 1: ...")},
    {"lookups": [replace(LOOK, seconds=None)]},
    {"lookups": [replace(LOOK, wrong=1)]},
    {"lost_rows": 1},
    {"refused": ""},
]


@pytest.mark.parametrize("changes", WRONG, ids=lambda changes: next(iter(changes)))
def test_what_differs_ends_with_1(changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert FINE.fine
    monkeypatch.setattr(federation_demo, "ran", lambda options, screen: replace(FINE, **changes))
    shown = CliRunner().invoke(main, ["demo", "federation"])
    assert shown.exit_code == 1
    assert json.loads(CliRunner().invoke(main, ["demo", "federation", "--json"]).stdout)["fine"] is False


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation_demo, "ran", lambda options, screen: FINE)
    shown = CliRunner().invoke(main, ["demo", "federation"])
    assert shown.exit_code == 0, shown.output
    [step] = [line for line in shown.output.splitlines() if STEP.what in line]
    assert [word for word in step.split() if word.isdecimal()] == ["51", "70", "0"]
    assert "beside the query in one process, 3 rows: equal, row by row and bit for bit" in shown.output
    assert "E_OFFER" in shown.output


def test_the_first_row_that_differs_is_named() -> None:
    wanted = pa.table({"k": [1, 2, 3]})
    assert compare(wanted, wanted).equal
    for rows, says in (
        (pa.table({"k": [1, 3, 2]}), "row 1: k=3, expected k=2"),
        (pa.table({"k": [1, 2]}), "row 2: nothing, expected k=3"),
        (pa.table({"k": [1, 2, 3, 4]}), "row 3: k=4, expected nothing"),
        (pa.table({"n": [1, 2, 3]}), "columns ['n'], expected ['k']"),
    ):
        found = compare(rows, wanted)
        assert not found.equal
        assert found.example == says


def test_floats_are_compared_bit_for_bit() -> None:
    other_nan = pa.array([0x7FF8000000000001]).view(pa.float64())[0].as_py()
    wanted = pa.table({"x": [1.0, 0.0, None, math.nan, other_nan]})
    cut = pa.concat_tables([wanted.slice(0, 2), wanted.slice(2)])
    assert compare(cut, wanted).equal
    for at, value, says in ((1, -0.0, "row 1: x=-0.0, expected x=0.0"), (3, other_nan, "row 3: x=nan, ")):
        column = wanted["x"].to_pylist()
        column[at] = value
        assert compare(pa.table({"x": column}), wanted).example.startswith(says)


def test_gaps_that_have_a_part_in_a_step_count_for_it() -> None:
    arrivals = [0.0, 0.1, 0.3, 0.6, 1.0]
    assert gaps_us(arrivals, 0.2, 0.5) == [200_000, 300_000]
    assert gaps_us(arrivals, 2.0, 3.0) == []
    assert replace(STEP, gaps_us=[]).longest_us == 0


def test_the_same_seed_gives_the_same_cars_whatever_comes_before() -> None:
    assert federation_query.traffic(1, 7, 50).equals(federation_query.traffic(1, 7, 50))
    assert not federation_query.traffic(1, 7, 50).equals(federation_query.traffic(2, 7, 50))
    assert not federation_query.traffic(1, 8, 50).equals(federation_query.traffic(1, 7, 50))


def test_no_car_is_late() -> None:
    made = federation_query.expected(0, 20, 100)
    cars = pa.concat_tables(federation_query.traffic(0, tick, 100) for tick in range(20))
    speeds = cars["speed"].to_pylist()
    assert sum(made["n"].to_pylist()) == sum(0 < speed < 180 for speed in speeds)


def test_every_box_has_a_node_of_its_owner() -> None:
    nodes = {node for of in federation_query.OWNERS.values() for node in of.nodes}
    assert set(federation_query.AT) == nodes
    assert set(federation_query.DEFINED.values()) == set(federation_query.OWNERS["bob"].nodes)


def test_progress_forgets_who_says_nothing() -> None:
    status = {
        "rows_in": 10,
        "queue_bytes": 0,
        "kept_bytes": 0,
        "boundary_us": None,
        "fragments": [{"fragment": "traffic/cars"}],
    }
    progress = FederationProgress(federation_query.OWNERS)
    progress.look(1.0, {**status, "node": "a1"})
    progress.look(2.0, {**status, "node": "b1", "fragments": []})
    assert "a1: cars, b1: -" in progress.line()
    progress.look(6.5, {**status, "node": "b1", "rows_in": 19})
    assert "a1" not in progress.line()
    assert [(each.node, each.rate) for each in progress.nodes] == [("b1", 2.0)]
    from rich.console import Console

    console = Console(width=100)
    with console.capture() as drawn:
        console.print(progress.drawn())
    assert "bob" in drawn.get()


def test_a_failure_of_a_node_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: object, screen: object) -> FederationOutcome:
        raise LinkError("a node refused", hint="look", code="E_X")

    monkeypatch.setattr(federation_demo, "ran", fails)
    shown = CliRunner().invoke(main, ["demo", "federation"])
    assert shown.exit_code == 1
    assert "error: a node refused" in shown.output
