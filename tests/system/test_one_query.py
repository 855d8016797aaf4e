"""One query, run in every way there is: the answers are equal.

The query and the trace of the demonstration, with its jitter. In one program results are equal as
sequences, row by row; over three nodes, as rows sorted by window and key.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.workloads import netmon
from medusa.apps.workloads.demos.netmon_demo import NetmonReplay
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.local_nodes import LocalNodes
from tests.engine.queries import numbers
from tests.system.one_query_run import TRACE_SEED, arrivals
from tests.system.test_restore import ROOT, SECONDS_MAX, read_rows

pytestmark = pytest.mark.system

Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def flows() -> pa.Table:
    return arrivals()


@pytest.fixture(scope="module")
def collected(flows: pa.Table) -> Answers:
    found = md.collect(netmon.query(), flows=flows)
    answers = {sink: numbers(found[sink]) for sink in netmon.SINKS}
    assert {sink: len(rows) for sink, rows in answers.items()} == {
        "groups": 33_531,
        "heavy": 144,
        "wide": 108,
        "both": 59,
        "clusters": 53,
    }
    return answers


def differing(got: Answers, wanted: Answers) -> list[str]:
    """The sinks that differ; their rows would fill pages."""
    return [sink for sink in netmon.SINKS if got[sink] != wanted[sink]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_started_with_random_cuts(flows: pa.Table, collected: Answers, seed: int) -> None:
    cuts, taken = random.Random(seed), {sink: [] for sink in netmon.SINKS}
    largest = cuts.choice([500, 5_000, 50_000])
    with md.start(netmon.query()) as run:
        first = 0
        while first < len(flows):
            count = cuts.randint(1, largest)
            run.push("flows", flows.slice(first, count))
            first += count
            for sink in cuts.sample(netmon.SINKS, 2):
                taken[sink] += numbers(run.take(sink))
        run.finish()
        for sink, rows in taken.items():
            rows += numbers(run.take(sink))
    assert differing(taken, collected) == []


def test_killed_and_restored_from_positions(tmp_path: Path, collected: Answers) -> None:
    out, statuses, positions = tmp_path / "out", [], []
    for seed, kill_after in enumerate([12, 15, 0]):
        program = [sys.executable, "-m", "tests.system.one_query_run", str(tmp_path / "state"), str(out)]
        done = subprocess.run(
            [*program, str(kill_after), str(seed)],
            cwd=ROOT,
            timeout=SECONDS_MAX,
            capture_output=True,
            text=True,
            check=False,
        )
        statuses.append(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        positions.append(int(done.stdout))
    assert statuses == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert 0 == positions[0] < positions[1] < positions[2] < 107_251
    assert differing(read_rows(out, netmon.SINKS), collected) == []


def test_over_three_processes(tmp_path: Path, collected: Answers) -> None:
    edges = netmon.deliveries(netmon.load_trace(), TRACE_SEED)
    with LocalNodes((*netmon.EDGES, netmon.CORE), tmp_path) as nodes, DemoScreen() as screen:
        replay = NetmonReplay(nodes.addresses, edges, 0.0, screen)
        replay.run()
    got = {sink: numbers(table) for sink, table in replay.results.items()}
    assert differing(in_order(got), in_order(collected)) == []
    assert replay.late == 0


def in_order(answers: Answers) -> Answers:
    """By window, then key."""
    return {
        sink: sorted(rows, key=lambda row: (row["window_end"], row.get("src", row.get("prefix"))))
        for sink, rows in answers.items()
    }
