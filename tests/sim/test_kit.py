"""What users call: a query of theirs over simulated nodes, under faults."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import medusa as md
from medusa import sim
from medusa.errors import DataError, QueryError
from medusa.nodes.fragment.outputs import FragmentOutput
from tests.sim.planted import forget_output

SCHEMA = {"ts": "timestamp", "seg": "utf8", "speed": "float64"}
AT = {"edge": ["cars"], "core": ["mean", "speeds"]}


def query():
    q = md.Query("speeds")
    cars = q.source("cars", SCHEMA)
    q.sink("speeds", cars.window("5s").group_by("seg").aggregate(v=md.avg("speed"), name="mean"))
    return q


def cars(rows=60):
    return {
        "ts": pa.array([second * 1_000_000 for second in range(rows)], pa.timestamp("us", "UTC")),
        "seg": ["ab"[second % 2] for second in range(rows)],
        "speed": [40.0 + second for second in range(rows)],
    }


@pytest.mark.parametrize("at", [None, AT])
def test_a_query_gives_its_answer_whatever_happens(at):
    outcomes = sim.check(query(), {"cars": cars()}, at=at, seeds=3)
    assert [outcome.seed for outcome in outcomes] == [0, 1, 2]
    assert all(outcome.ok and outcome.delivered == 24 for outcome in outcomes)
    assert any(outcome.faults for outcome in outcomes)
    (again,) = sim.check(query(), {"cars": cars()}, at=at, seed=1)
    assert again == outcomes[1]


def test_a_failure_names_the_call_that_shows_it_again_and_the_smallest_one(monkeypatch):
    forget_output(monkeypatch)
    with pytest.raises(sim.SimulationError) as raised:
        sim.check(query(), {"cars": cars(80)}, at=AT, kinds=["crash", "cut"], seeds=20)
    told = str(raised.value)
    assert "VIOLATED SimulationError: " in told
    assert "faults:" in told
    assert "smaller, with the same violation" in told
    replay = told.splitlines()[-1]
    assert replay.startswith("replay: medusa.sim.check(q, tables, ..., seed=")
    words = eval_call(replay)
    with pytest.raises(sim.SimulationError):
        sim.check(query(), {"cars": cars(80)}, at=AT, kinds=["crash", "cut"], **words)
    monkeypatch.undo()
    assert FragmentOutput.record is not None
    sim.check(query(), {"cars": cars(80)}, at=AT, kinds=["crash", "cut"], **words)


def eval_call(line):
    """The named numbers of a replay line."""
    words = line.partition("..., ")[2].removesuffix(")")
    found = {}
    for word in words.replace("[", "").replace("]", "").split(", "):
        name, _, value = word.partition("=")
        if value:
            found[name] = int(value) if name != "only" else [int(value)]
        else:
            found["only"].append(int(name))
    return found


def test_what_is_wrong_in_a_call_is_told():
    with pytest.raises(QueryError, match="no fault 'crush'") as raised:
        sim.check(query(), {"cars": cars()}, kinds=["crush"])
    assert "crash" in raised.value.hint
    with pytest.raises(QueryError, match="no source 'card'"):
        sim.check(query(), {"card": cars()})
    with pytest.raises(QueryError, match="no rows for source 'cars'"):
        sim.check(query(), {})
    with pytest.raises(QueryError, match="speed"):
        sim.check(query(), {"cars": cars()}, at={"edge": ["cars", "speed"]})
    with pytest.raises(DataError, match="source 'cars'"):
        sim.check(query(), {"cars": {"ts": [1]}})


def test_the_names_of_the_room_are_there_and_light():
    assert all(getattr(sim, name) is not None for name in sim.__all__)
    with pytest.raises(AttributeError, match="'chekc'"):
        sim.chekc  # noqa: B018
    code = "import sys, medusa.sim; sys.exit('pyarrow' in sys.modules or 'zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
