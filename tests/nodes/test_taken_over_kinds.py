"""Every kind of state is at the secondary: the owner of a fragment of each kind burns amid rows, and what
comes out is what comes out of an undisturbed run, row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.config.settings_streams import StreamRule
from medusa.wire.messages.links import OLDEST
from tests.nodes.taken_over import PIECE, ROWS, SCHEMA, Run
from tests.nodes.test_moved_kinds import KINDS as MOVED


@md.register("test.taken_over.Stays")
class Stays:
    """How often a key came before it stayed away for half a second."""

    wake_after = "500ms"

    def rows(self, key: Any, batch: Any, state: Any, now: int) -> None:
        state.seen = (state.seen or 0) + batch.num_rows
        state.cancel()
        state.wake_at(now + 500_000)

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        seen = state.seen
        state.clear()
        return {"k": [key], "seen": [seen], "until": pa.array([time], pa.timestamp("us"))}


STAYS = {"k": "utf8", "seen": "int64", "until": "timestamp"}


def process(s: md.Stream) -> md.Stream:
    return s.process(Stays, STAYS, by="k", state={"seen": pa.int64()}, name="kind")


def table(s: md.Stream) -> md.Stream:
    """Its rows are changed by some rows of the stream and seen by others."""
    totals = s.query.table("totals", key="k", schema={"k": "utf8", "t": "int64"})
    s.filter("v % 3 = 0", name="odd").update(totals, set={"t": "coalesce(table.t, 0) + v"}, insert={"t": "v"})
    return s.filter("v % 3 > 0", name="even").lookup(totals, name="kind")


def joined_as_of(s: md.Stream) -> md.Stream:
    return s.filter("v % 2 = 0", name="even").asof_join(
        s.filter("v % 2 = 1", name="odd"), on="k", within="2s", name="kind"
    )


def sunion(s: md.Stream) -> md.Stream:
    ways = s.filter("v % 2 = 0", name="even"), s.filter("v % 2 = 1", name="odd")
    return ways[0].sunion(ways[1], bucket="1s", name="kind")


KINDS: dict[str, Any] = {
    **MOVED,
    "process": process,
    "table": table,
    "asof_join": joined_as_of,
    "sunion": sunion,
    "bsort": lambda s: s.bsort("v", slack=5, by="k", name="kind"),
}
OUTSIDE = ("rows", "first", "last", "out")


def run_of(kind: str, **more: Any) -> tuple[Run, str]:
    """The run, and the fragment that is guarded."""
    q = md.Query("q")
    kept = KINDS[kind](q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first"))
    q.sink("out", kept.filter("true", name="last"))
    middle = [box.id for box in q.graph.boxes if box.id not in OUTSIDE]
    at = {"e": ["rows", "first"], "m": middle, "c": ["last", "out"]}
    run = Run(q, at, standby={"m": ["s1", "s2"]}, **more)
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    return run, fragment


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_holds_is_at_the_secondary(kind: str) -> None:
    run, fragment = run_of(kind)
    run.until_guarded(fragment, 2)
    middle = ROWS // 2 // PIECE * PIECE
    run.publish(0, middle)
    run.fed.run(for_us=120_000)
    run.publish(middle, ROWS)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.check()


SPILL_ROWS, SPILL_PIECE = 3_000, 50
SPILLS = StreamRule(pattern="q.out", retention_bytes=1 << 20, at_limit="spill")


def test_output_that_spilled_for_a_reader_is_at_the_secondary() -> None:
    """A reader with a name went away: what waits for it is on the disks of the owner and of who follows."""
    q = md.Query("q")
    schema = {"ts": "timestamp", "n": "int64", "text": "utf8"}
    q.sink("out", q.source("rows", schema, time="ts").filter("n >= 0", name="first"))
    numbers = range(SPILL_ROWS)
    table = pa.table(
        {
            "ts": pa.array([1_000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "n": pa.array(numbers, pa.int64()),
            "text": [f"{n:,} " * 150 for n in numbers],
        }
    )
    run = Run(
        q,
        {"m": ["rows", "first", "out"]},
        standby={"m": ["s1", "s2"]},
        tables={"rows": table},
        streams=(SPILLS,),
        deploys="e",
    )
    run.deploy()
    run.until_guarded("q/rows", 2)
    gone = run.fed.client("gone", "m")
    gone.do(lambda mind: mind.subscribe(run.fed.world.now_us, "q.out", OLDEST, name="r"))
    run.fed.run(for_us=500_000)
    gone.dead = True
    publisher, stream = run.publishers["rows"], "q.rows"
    for first in range(0, SPILL_ROWS, SPILL_PIECE):
        publisher.publish(stream, run.tables["rows"].slice(first, SPILL_PIECE), run.schemas["rows"])
        run.fed.run(for_us=5_000)
    run.until(lambda: spilled(run, "m") and spilled(run, "s1"), "it spills at both")
    run.lose("m")
    run.until_owned("q/rows", "s1")
    publisher.finish(stream, run.schemas["rows"])
    back = run.fed.client("back", "s1")
    back.do(lambda mind: mind.subscribe(run.fed.world.now_us, "q.out", OLDEST, name="r"))
    run.until(lambda: "q.out" in back.ended, "all that waited comes")
    assert not any(back.lost.values())
    assert run.got("out", back).to_pylist() == run.want["out"].to_pylist()


def spilled(run: Run, name: str) -> bool:
    """Whether output of the fragment is on that node's disk and not in its memory."""
    recovery, fragments = run.recovery(name), run.fed.nodes[name].brain.fragments
    hosted = fragments.get("q/rows") or recovery.followings.shadow("q/rows")
    return hosted is not None and any(output.sender.log.spilled_bytes for output in hosted.outputs.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_holds_is_at_each_further_one(kind: str) -> None:
    """Three owners in a row: the last was seeded by the second, and has what the first was fed."""
    run, fragment = run_of(kind)
    run.until_guarded(fragment, 2)
    third = ROWS // 3 // PIECE * PIECE
    for place, (owner, successor) in enumerate([("m", "s1"), ("s1", "s2")]):
        run.publish(place * third, (place + 1) * third)
        run.until_guarded(fragment, 2 - place)
        run.fed.run(for_us=30_000)
        run.lose(owner)
        run.until_owned(fragment, successor)
    run.publish(2 * third, ROWS)
    run.check()
