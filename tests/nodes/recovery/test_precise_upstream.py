"""Precise by upstream backup: whoever takes over reads rows again, and gives what comes out its old numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.recovery import PASSIVE, PRECISE_UPSTREAM, UPSTREAM
from tests.nodes.recovery.upstream_run import KINDS, UpstreamRun, query, table
from tests.nodes.taken_over import ROWS, SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")
FULL = [pytest.mark.full, pytest.mark.issue(18)]
PRECISE = {"recovery": "precise", "method": UPSTREAM}


def fed(run: UpstreamRun) -> int:
    """Rows that its owner was fed."""
    hosted = run.hosted(run.fragment)
    assert hosted is not None
    return sum(input.fed_seq for input in hosted.inputs.values())


def begun(q: Any, at: Any, *others: str, rows: int = 60, **more: Any) -> UpstreamRun:
    """Some rows were fed, and the others come."""
    run = UpstreamRun(q, at, *(others or ("s1", "s2")), **more)
    run.publish(0, rows)
    run.until(lambda: fed(run) >= 30, "rows are fed")
    run.publish(rows, ROWS)
    return run


def precise(run: UpstreamRun) -> None:
    """As if nothing had happened: rows, order and numbers; nobody heard of another version, or of a loss."""
    run.check()
    assert set(run.reader.versions.values()) == {1}
    for node in run.living:
        for hosted in node.brain.fragments.values():
            assert not any(output.skips for output in hosted.outputs.values())
            assert not any(input.receiver.lost_rows or input.overdue_rows for input in hosted.inputs.values())


@pytest.mark.parametrize("after_ms", [3, 20, 45, 81, 100, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_as_if_nothing_had_happened(kind: str, after_ms: int) -> None:
    run = begun(*query(kind, recovery="precise"), seed=after_ms)
    run.fed.run(for_us=after_ms * 1_000)
    run.take_over("m", "s1")
    precise(run)
