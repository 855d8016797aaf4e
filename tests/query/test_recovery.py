"""What may be wished for an output when a machine is lost for good, what is refused, and how it travels."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import medusa as md
from medusa.errors import QueryError
from medusa.query.boxes import Input, Sink
from medusa.query.codec import graph_from_json, graph_from_msgpack, graph_to_json, graph_to_msgpack
from medusa.query.graph import check_graph
from medusa.query.recovery import ACTIVE, AMNESIA, PASSIVE, PRECISE_UPSTREAM, UPSTREAM, strongest
from medusa.query.signature import signatures


def query(**wish: Any) -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", {"ts": "timestamp", "v": "int64"})
    q.sink("out", cars, **wish)
    return q


def test_without_a_wish_a_sink_is_what_it_was() -> None:
    said = json.loads(graph_to_json(query().graph))["boxes"][1]
    assert said == {"kind": "sink", "id": "out", "inputs": [{"box": "cars", "port": ""}]}
    assert b"recovery" not in graph_to_msgpack(query().graph)
    assert query().explain() == query(qos=None).explain()


def test_a_wish_travels_and_is_shown() -> None:
    q = query(recovery="precise", method="active_standby")
    assert q.graph.boxes[1] == Sink(
        id="out", inputs=(Input("cars"),), recovery="precise", method="active_standby"
    )
    assert graph_from_json(graph_to_json(q.graph)) == q.graph
    assert graph_from_msgpack(graph_to_msgpack(q.graph)) == q.graph
    assert "sink out: recovery precise by active standby\n" in q.explain()
    assert "by active standby" in query(recovery="precise").explain()
    precise = query(recovery="precise", method="upstream_backup").explain()
    assert "by upstream backup, and passive standby where clients publish" in precise


def test_a_checkpoint_fits_whatever_is_wished() -> None:
    with_wish = signatures(check_graph(query(recovery="precise", method="active_standby").graph))
    assert with_wish == signatures(check_graph(query().graph))


@pytest.mark.parametrize(
    ("wish", "text", "hint"),
    [
        (
            {"recovery": "exact"},
            "recovery: expected 'precise', 'rollback' or 'gap', got 'exact'",
            "method=",
        ),
        (
            {"recovery": True},
            "recovery: expected 'precise', 'rollback' or 'gap', got bool",
            'recovery="precise", method=',
        ),
        (
            {"recovery": "precise", "method": "amnesia"},
            "method: expected 'active_standby', 'passive_standby', 'upstream_backup' or 'state_backup', got "
            "'amnesia'",
            'amnesia is for recovery="gap"',
        ),
        (
            {"recovery": "rollback", "method": "amnesia"},
            "method: expected 'upstream_backup', 'passive_standby' or 'active_standby', got 'amnesia'",
            'amnesia is for recovery="gap"',
        ),
        (
            {"recovery": "gap", "method": "active_standby"},
            "method: expected 'amnesia', got 'active_standby'",
            'active_standby is for recovery="precise"; recovery="gap" goes by \'amnesia\'',
        ),
        ({"recovery": "precise", "method": "passive"}, "got 'passive'", 'recovery="precise", method='),
        ({"method": "active_standby"}, "recovery is missing", 'recovery="precise", method='),
    ],
)
def test_what_this_release_can_not_do_is_refused_with_what_it_can(
    wish: dict[str, Any], text: str, hint: str
) -> None:
    with pytest.raises(QueryError, match=text) as refused:
        query(**wish)
    assert refused.value.message.startswith("sink 'out': ")
    assert refused.value.code == "query.recovery"
    assert hint in refused.value.hint


def test_it_is_refused_in_a_file_too() -> None:
    said = json.loads(graph_to_json(query(recovery="precise").graph))
    said["boxes"][1]["recovery"] = "sometimes"
    with pytest.raises(QueryError, match="got 'sometimes'"):
        graph_from_json(json.dumps(said))


def test_inside_a_program_it_changes_nothing() -> None:
    rows = {"ts": [datetime(2026, 1, 1, tzinfo=UTC)] * 2, "v": [3, 4]}
    plain, wished = (
        md.collect(query(**wish), cars=rows)["out"]
        for wish in ({}, {"recovery": "precise", "method": "active_standby"})
    )
    assert wished.to_pydict() == plain.to_pydict()


@pytest.mark.parametrize(
    ("wished", "taken"),
    [
        ((AMNESIA, PRECISE_UPSTREAM), PRECISE_UPSTREAM),
        ((UPSTREAM, PRECISE_UPSTREAM), PRECISE_UPSTREAM),
        ((AMNESIA, UPSTREAM), PASSIVE),
        ((AMNESIA, UPSTREAM, PRECISE_UPSTREAM), PRECISE_UPSTREAM),
        ((AMNESIA, UPSTREAM, ACTIVE), ACTIVE),
        ((UPSTREAM,), UPSTREAM),
        ((), ""),
    ],
)
def test_a_fragment_goes_on_by_what_promises_all_that_its_outputs_wish(
    wished: tuple[str, ...], taken: str
) -> None:
    """Amnesia never repeats rows, and upstream backup never loses any: neither promises both."""
    assert strongest(wished) == taken
