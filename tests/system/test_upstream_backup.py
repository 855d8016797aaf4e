"""A process is killed for good and recovered by upstream backup: nothing is missing, or all is as it was."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.embedded.embedded_run import collect
from tests.system.nodes import DEADLINE_S, until
from tests.system.standby_nodes import LIMITS, StandbyNodes

pytestmark = pytest.mark.system

ROWS, PIECE = 3_000, 20
SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
AT = {"e": ["rows", "some"], "m": ["per_k", "last", "out"]}
STANDBY = {"e": ["s1", "s2"], "m": ["s1", "s2"]}
FRAGMENT = "q/per_k"


def query(**wish: str) -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="some")
    counted = some.window("2s", "1s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", counted.filter("true", name="last"), **wish)
    return q


def rows(begin: int, end: int) -> pa.Table:
    """One every 10 ms: two hundred of them in each window."""
    numbers = range(begin, end)
    return pa.table(
        {
            "ts": pa.array([10_000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "k": pa.array([n % 7 for n in numbers], pa.int64()),
            "v": pa.array(numbers, pa.int64()),
        }
    )


ROLLBACK = {"recovery": "rollback"}
PRECISE = {"recovery": "precise", "method": "upstream_backup"}
PLANS = {
    "rollback": ["at least once"],
    "precise": ["exactly once", "q/rows by passive standby: source 'rows'"],
}


@pytest.mark.parametrize("wish", [ROLLBACK, PRECISE], ids=["rollback", "precise"])
def test_a_process_is_killed_for_good_and_nothing_is_missing(wish: dict[str, str], tmp_path: Any) -> None:
    limits = f'{LIMITS}\n[recovery]\nwait = "200ms"'
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(tmp_path, keyed=False, limits=limits)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            plan = str(fed.plan(query(**wish), at=AT, standby=STANDBY, witness=["w"]))
            assert all(text in plan for text in ["upstream backup", *PLANS[wish["recovery"]]])
            fed.deploy(query(**wish), at=AT, standby=STANDBY, witness=["w"])
        for fragment in ("q/rows", FRAGMENT):
            nodes.until_followed(fragment)
        publishes = held.enter_context(nodes.connect("e", "c"))
        reader = held.enter_context(nodes.connect("c", "e")).subscribe("q.out", from_="oldest")
        got: list[dict[str, Any]] = []

        def read() -> None:
            for train in reader:
                got.extend(train.batch.to_pylist())

        reading = threading.Thread(target=read)
        reading.start()
        killed_s, owner = 0.0, ""
        for begin in range(0, ROWS, PIECE):
            publishes.publish("q.rows", rows(begin, begin + PIECE))
            if begin == ROWS // 2 // PIECE * PIECE + 3 * PIECE:
                until(lambda: got, what="rows come")
                # On a busy machine m may have been taken for silent, and another has it.
                owner = nodes.replicas(FRAGMENT)["owner"]
                killed_s = time.monotonic()
                nodes.kill(owner)
        publishes.finish("q.rows")
        assert nodes.until_taken_over(FRAGMENT, owner) in {"m", "s1", "s2"} - {owner}
        reading.join(DEADLINE_S)
        assert not reading.is_alive(), f"{len(got)} rows came"
        print(f"the end came {time.monotonic() - killed_s:.2f} s after the kill")
        want = [str(row) for row in collect(query(), rows=rows(0, ROWS))["out"].to_pylist()]
        came = [str(row) for row in got]
        assert {*came} == {*want}, "a window is missing, or left in part"
        assert reader.lost_rows == 0
        if wish == PRECISE:
            assert came == want, "as if nothing had happened"
        owners = nodes.epochs(FRAGMENT)[0]
        assert owners >= 2
        assert reader.stream_version == (1 if wish == PRECISE else owners)
        print(f"{len(came) - len(want)} rows came again")
