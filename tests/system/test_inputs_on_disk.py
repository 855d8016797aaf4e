"""Real processes: while an input is missing for long, what waits for it is on disk, and holds nobody up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Kind
from tests.system.nodes import PATIENT_READERS, Nodes, until

pytestmark = pytest.mark.system

SCHEMA = {"ts": "timestamp[us, UTC]", "n": "int64", "text": "utf8"}
AT = {"a": ["left", "of_left"], "b": ["right", "of_right"], "core": ["both", "out"]}
STEP_US = 1_000
PIECE = 500


def query() -> md.Query:
    q = md.Query("waits")
    left = q.source("left", SCHEMA, time="ts").filter("n >= 0", name="of_left")
    right = q.source("right", SCHEMA, time="ts").filter("n >= 0", name="of_right")
    q.sink("out", md.sunion(left, right, bucket="100ms", name="both"), delay="1s")
    return q


def rows(first: int, end: int) -> pa.Table:
    numbers = np.arange(first, end)
    times = pa.array(numbers * STEP_US, pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": times, "n": numbers, "text": [f"{number:0100}" for number in numbers]})


@pytest.fixture
def nodes(tmp_path_factory: Any) -> Iterator[Nodes]:
    """A credit of 5 MiB is less than what waits."""
    limits = f'checkpoint_every = "100ms"\ncredit = "5 MiB"\n{PATIENT_READERS}\n[delay]\nmemory = "256 KiB"'
    made = Nodes(tmp_path_factory.mktemp("n"), ["a", "b", "core"], limits=limits)
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize("dies", [False, True], ids=["stays", "dies"])
def test_what_waits_for_a_missing_input_is_on_disk_and_holds_nobody_up(nodes: Nodes, dies: bool) -> None:
    """More than the credit of a link comes: without the disk the reader would see the first part alone."""
    count = 80_000
    with (
        md.connect(nodes.addresses["core"], timeout="60s") as core,
        md.connect(nodes.addresses["core"], timeout="60s") as other,
        md.connect(nodes.addresses["a"], timeout="60s") as at_a,
        md.connect(nodes.addresses["b"], timeout="60s") as at_b,
    ):
        until(lambda: set(core.status()["peers"].values()) == {"up"}, what="the nodes hear each other")
        core.deploy(query(), at=AT)
        reader = core.subscribe("waits.out", from_="oldest", tentative=True)
        at_b.publish("waits.right", rows(0, PIECE))
        at_b.flush()
        nodes.processes["b"].send_signal(signal.SIGSTOP)
        at_a.publish("waits.left", rows(0, PIECE))
        until(lambda: consistency(other)["state"] == "up_failure", what="that it is missing is noticed")
        for first in range(PIECE, count, PIECE):
            at_a.publish("waits.left", rows(first, first + PIECE))
        shown = count - 1_000  # Of the first rows the stable lane has some; of the last the bucket is open.
        until(
            lambda: consistency(other)["tentative_rows"] >= shown,
            what="what comes is answered",
            deadline_s=120,
        )
        # What is answered may be answered before it is on disk for the stable lane.
        until(lambda: consistency(other)["disk_bytes"] > 2 << 20, what="what waits is on disk")
        assert consistency(other)["suspended"] == []
        if dies:
            nodes.kill("core")
            nodes.start("core")
        nodes.processes["b"].send_signal(signal.SIGCONT)
        at_a.finish("waits.left")
        at_b.publish("waits.right", rows(PIECE, count))
        at_b.finish("waits.right")
        stable = [train.batch for train in reader if train.kind is Kind.STABLE]
        found = np.concatenate([batch.column("n").to_numpy() for batch in stable])
        assert len(found) == 2 * count
        # Buckets of 100 rows of each; within one they are sorted by source, since times are equal by pairs.
        assert np.array_equal(np.sort(found), np.repeat(np.arange(count), 2))
        assert (np.diff(found // 100) >= 0).all()


def consistency(fed: Any) -> dict[str, Any]:
    [fragment] = [each for each in fed.status()["fragments"] if "both" in each["boxes"]]
    found: dict[str, Any] = fragment["outputs"][0]["consistency"]
    return found
