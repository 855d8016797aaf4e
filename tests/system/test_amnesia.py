"""A process that is killed for good and recovered by amnesia: no row twice, what is missing is counted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.embedded.embedded_run import collect
from tests.system.nodes import DEADLINE_S, until
from tests.system.standby_nodes import LIMITS, StandbyNodes, undisturbed

pytestmark = pytest.mark.system

ROWS, PIECE = 3_000, 20
SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
AT = {"e": ["rows", "some"], "m": ["per_k"], "c": ["last", "out"]}
STANDBY = {"e": ["s1", "s2"], "m": ["s1", "s2"], "c": ["s2", "s1"]}
FRAGMENT = "q/per_k"
FRAGMENTS = ("q/rows", FRAGMENT, "q/last")


def query() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="some")
    counted = some.window("1s").group_by("k").aggregate(n=md.count(), name="per_k")
    q.sink("out", counted.filter("true", name="last"), recovery="gap", method="amnesia")
    return q


def rows(begin: int, end: int) -> pa.Table:
    """One every 10 ms: a hundred of them in each window."""
    numbers = range(begin, end)
    return pa.table(
        {
            "ts": pa.array([10_000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "k": pa.array([n % 7 for n in numbers], pa.int64()),
            "v": pa.array(numbers, pa.int64()),
        }
    )


def counts(of: list[dict[str, Any]]) -> Counter[Any]:
    """Rows by window and key."""
    found: Counter[Any] = Counter()
    for row in of:
        found[tuple(value for name, value in row.items() if name != "n")] += row["n"]
    return found


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "curve"])
def test_a_process_is_killed_for_good_and_what_it_held_is_counted(
    tmp_path_factory: pytest.TempPathFactory, keyed: bool
) -> None:
    undisturbed(lambda: killed_and_counted(tmp_path_factory.mktemp("a"), keyed))


def killed_and_counted(folder: Path, keyed: bool) -> bool:
    """Whether nobody else was lost: on a busy machine another node may have been missed, and lose rows."""
    limits = f'{LIMITS}\n[recovery]\nwait = "200ms"'
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(folder, keyed=keyed, limits=limits)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            plan = fed.plan(query(), at=AT, standby=STANDBY, witness=["w"])
            assert "at most once" in str(plan)
            fed.deploy(query(), at=AT, standby=STANDBY, witness=["w"])
        for fragment in FRAGMENTS:
            nodes.until_followed(fragment)
        if (epochs := nodes.epochs(*FRAGMENTS)) != [1, 1, 1]:
            return False
        publishes = held.enter_context(nodes.connect("e", "c"))
        reader = held.enter_context(nodes.connect("c", "e")).subscribe("q.out", from_="oldest")
        got: list[dict[str, Any]] = []

        def read() -> None:
            for train in reader:
                got.extend(train.batch.to_pylist())

        reading = threading.Thread(target=read)
        reading.start()
        killed_s = 0.0
        for begin in range(0, ROWS, PIECE):
            publishes.publish("q.rows", rows(begin, begin + PIECE))
            if begin == ROWS // 2 // PIECE * PIECE + 3 * PIECE:
                until(lambda: got, what="rows come")
                killed_s = time.monotonic()
                nodes.kill("m")
        publishes.finish("q.rows")
        heir = nodes.until_taken_over(FRAGMENT, "m")
        reading.join(DEADLINE_S)
        assert not reading.is_alive(), f"{len(got)} rows came"
        print(f"the end came {time.monotonic() - killed_s:.2f} s after the kill")
        want, came = counts(collect(query(), rows=rows(0, ROWS))["out"].to_pylist()), counts(got)
        assert not came - want, "a row was counted twice"
        if nodes.epochs(*FRAGMENTS) != [
            epoch + (name == FRAGMENT) for name, epoch in zip(FRAGMENTS, epochs, strict=True)
        ]:
            return False
        assert heir in ("s1", "s2")
        assert reader.lost_rows == 0
        with nodes.connect(heir) as fed:
            [told] = [each for each in fed.status()["fragments"] if each["fragment"] == FRAGMENT]
        assert not told["lost_unknown"]
        assert told["lost_rows"] == (want - came).total()
        assert sum(told["lost_by"].values()) == told["lost_rows"]
        print(f"{told['lost_rows']} rows were lost")
    return True
