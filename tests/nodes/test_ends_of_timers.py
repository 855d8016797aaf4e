"""Timers that set themselves again behind a filter of another node that takes out the last rows.

    e: rows ── first (takes out the tail) ──> m: ticks ──> c: last ── out

What a class of users gives by the end depends on the boundary before the end, which comes behind the last
row. Over links, after cuts, restarts and takeovers the rows are those of one program, and those that one
reckons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import END_US, START_US
from medusa.wire.link.output_log import OutputLog
from tests.nodes.consistency.delayed_run import SCHEMA as DELAYED
from tests.nodes.consistency.delayed_run import DelayedRun, second
from tests.nodes.taken_over import EVERY_US, PIECE, Run

SCHEMA = {"ts": "timestamp", "k": "utf8", "v": "int64"}
TICK_US = 300_000
SPAN_US = 100_000
ROWS, TAIL = 48, 30
TICKS = {"k": "utf8", "tick": "int64"}


@md.register("test.ends.Ticks")
class Ticks:
    """Every 300 ms from the first row of a key on, until the end."""

    def rows(self, key: Any, batch: Any, state: Any, now: int) -> None:
        if state.ticks is None:
            state.ticks = 0
            state.wake_at(batch_first_us(batch) + TICK_US)

    def boundary(self, key: Any, time: int, state: Any) -> dict[str, Any]:
        state.ticks += 1
        state.wake_at(time + TICK_US)
        return {"k": [key], "tick": [state.ticks]}


def batch_first_us(batch: Any) -> int:
    return int(batch.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py())


def table(tail: int, rows: int = ROWS) -> pa.Table:
    """The last rows are those that the filter takes out."""
    numbers = range(rows)
    return pa.table(
        {
            "ts": pa.array([n * SPAN_US for n in numbers], pa.timestamp("us", "UTC")),
            "k": ["abc"[n % 3] for n in numbers],
            "v": pa.array([n if n < rows - tail else -1 for n in numbers], pa.int64()),
        }
    )


def reckoned(rows: pa.Table) -> list[dict[str, Any]]:
    """By hand: a tick at each time up to the last row, whatever becomes of that, and one more at the end."""
    last_us = (rows.num_rows - 1) * SPAN_US
    first_us: dict[str, int] = {}
    for number, row in enumerate(rows.to_pylist()):
        if row["v"] >= 0:
            first_us.setdefault(row["k"], number * SPAN_US)
    ticks = []
    for place, (key, begin_us) in enumerate(first_us.items()):
        count = (last_us - begin_us) // TICK_US + 1
        ticks += [(begin_us + n * TICK_US, place, key, n) for n in range(1, count + 1)]
    return [{"k": key, "tick": n} for _, _, key, n in sorted(ticks)]


def query(**wish: Any) -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", slack=0).filter("v >= 0", name="first")
    ticks = rows.process(Ticks, TICKS, by="k", state={"ticks": pa.int64()}, name="ticks")
    q.sink("out", ticks.filter("true", name="last"), **wish)
    return q


AT = {"e": ["rows", "first"], "m": ["ticks"], "c": ["last", "out"]}


class TimersRun(Run):
    """One run of so many rows, of which the last ones are taken out; the first ones have come."""

    def __init__(self, tail: int = TAIL, *, guarded: str = "m", seed: int = 1, **wish: Any) -> None:
        tables = {"rows": table(tail)}
        standby = {node: ["s1", "s2"] for node in guarded}
        super().__init__(query(**wish), AT, standby=standby, tables=tables, seed=seed, deploys="x")
        self.deploy()
        self.fragments = {node: next(iter(self.fed.nodes[node].brain.fragments)) for node in AT}
        self.read()
        for node in guarded:
            self.until_guarded(self.fragments[node], 2)
        self.publish(0, PIECE)
        self.until(lambda: self._standing() > START_US, "the publisher has found the source")

    def _standing(self) -> int:
        """What the filter has promised behind its rows."""
        hosted = self.fed.nodes["e"].brain.fragments[self.fragments["e"]]
        return max(output.boundary_us for output in hosted.outputs.values())

    def cut(self, one: str, other: str) -> None:
        self.fed.network.cut(one, other)
        self.fed.network.cut(other, one)

    def all_sent(self) -> None:
        """Until the source has ended."""
        self.publish(PIECE, ROWS)
        self.until(lambda: self._standing() == END_US, "the source ends")

    def check(self) -> None:
        super().check()
        assert self.got("out").to_pylist() == reckoned(self.tables["rows"])


def test_one_program_gives_what_one_reckons() -> None:
    for tail in (0, 1, TAIL, ROWS - 3):
        rows = table(tail)
        assert md.collect(query(), rows=rows)["out"].to_pylist() == reckoned(rows)
    assert len(reckoned(table(TAIL))) > len(reckoned(table(0, ROWS - TAIL))) + 20, "the tail tells"


@pytest.mark.parametrize("time_us", [1 << 59, (1 << 60) - 123_456, 1 << 60, (1 << 62) - 1])
def test_a_promise_beyond_all_times_runs_them_as_the_end_does(time_us: int) -> None:
    """So a fork goes on without what is missing, beside sources that have ended: it never came back."""
    rows = table(TAIL)
    with md.start(query()) as run:
        run.push("rows", rows)
        run.boundary("rows", time_us)
        assert run.take("out").to_pylist() == reckoned(rows)
        run.finish()
        assert run.take("out").num_rows == 0


def test_over_links_it_is_the_same() -> None:
    run = TimersRun()
    run.all_sent()
    run.check()


def test_a_log_that_keeps_the_end_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake, which it was once: the end takes the place of the boundary before it."""
    honest = OutputLog.append_boundary

    def wrong(self: OutputLog, time_us: int, note: bytes = b"") -> int | None:
        last = self.entries()[-1:]
        if time_us < END_US or not last or last[0].time_us is None:
            return honest(self, time_us, note)
        self.boundary_us = time_us
        self._entries[-1] = replace(last[0], time_us=time_us)
        return self.end - 1

    monkeypatch.setattr(OutputLog, "append_boundary", wrong)
    run = TimersRun()
    run.cut("e", "m")
    run.all_sent()
    run.fed.network.heal_all()
    with pytest.raises(AssertionError):
        run.check()


def cut_off(run: TimersRun, dice: Random) -> None:
    one, other = dice.choice([("e", "m"), ("m", "c")])
    run.cut(one, other)
    run.fed.run(for_us=dice.randrange(1_000, 2_000_000))
    run.fed.network.heal_all()


def back(run: TimersRun, dice: Random) -> None:
    """A node dies and comes back, soon enough that nobody takes over."""
    name = dice.choice("emc")
    run.fed.nodes[name].crash(dice.choice(["lost", "kept"]))
    run.fed.run(for_us=dice.randrange(1_000, 200_000))
    run.fed.restart(name)


def lost(run: TimersRun, dice: Random) -> None:
    name = dice.choice(sorted(run.standby))
    run.lose(name)
    run.until_owned(run.fragments[name], "s1")


def nothing(run: TimersRun, dice: Random) -> None:
    pass


HAPPENS: Mapping[str, Callable[[TimersRun, Random], None]] = {
    each.__name__: each for each in (nothing, cut_off, back, lost)
}
LAST_US = ROWS // PIECE * EVERY_US
METHODS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "active": {"recovery": "precise", "method": "active_standby"},
    "passive": {"recovery": "precise", "method": "passive_standby"},
}


def by_chance(seed: int, what: str, method: str, tail: int, after_us: int) -> None:
    """Something happens so long after the first row was published, about when the last one is."""
    dice = Random(seed)
    run = TimersRun(tail, guarded="emc" if method else "m", seed=seed, **METHODS[method])
    run.publish(PIECE, ROWS)
    run.fed.run(for_us=after_us)
    HAPPENS[what](run, dice)
    run.check()


CHANCES = {
    "seed": st.integers(0, 1 << 20),
    "what": st.sampled_from(sorted(HAPPENS)),
    "method": st.sampled_from(sorted(METHODS)),
    "tail": st.integers(0, ROWS - 12),
    "after_us": st.integers(LAST_US - 12_000, LAST_US + 60_000),
}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=6, deadline=None, suppress_health_check=SLOW)
@given(**CHANCES)
def test_whatever_happens_about_the_end_the_rows_are_those_of_one_program(**drawn: Any) -> None:
    by_chance(**drawn)


@pytest.mark.full
@pytest.mark.issue(23)
@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(**CHANCES)
def test_the_same_many_times(**drawn: Any) -> None:
    by_chance(**drawn)


@pytest.mark.parametrize("what", ["back", "lost"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_who_comes_back_or_succeeds_right_after_the_end_has_the_boundary_before_it(
    what: str, method: str
) -> None:
    run = TimersRun(guarded="emc" if method else "m", **METHODS[method])
    run.all_sent()
    HAPPENS[what](run, Random(2))
    run.check()


# --- forks ----------------------------------------------------------------------------------------------


def delayed() -> md.Query:
    """Rows of two sources meet; the last of them are taken out behind that, before the timers."""
    q = md.Query("q")
    a, b = (q.source(name, DELAYED, time="ts") for name in "ab")
    both = md.sunion(a, b, bucket="100ms", name="both").filter("v < 90", name="first")
    ticks = both.process(Ticks, TICKS, by="k", state={"ticks": pa.int64()}, name="ticks")
    q.sink("out", ticks, delay="2s")
    return q


class DelayedTimers(DelayedRun):
    """The last two seconds of both sources are taken out."""

    def __init__(self, span_us: int) -> None:
        at = {"m": ["a", "b", "both", "first"], "n": ["ticks", "out"]}
        super().__init__(delayed(), at, span_us=span_us, read_at="n")
        from_us = span_us - second(2)
        for source, rows in self.tables.items():
            times = rows["ts"].cast(pa.int64()).to_pylist()
            values = [
                v % 90 if at < from_us else 90 for at, v in zip(times, rows["v"].to_pylist(), strict=True)
            ]
            place = rows.schema.get_field_index("v")
            self.tables[source] = rows.set_column(place, rows.schema.field("v"), pa.array(values, pa.int64()))
        self.want = md.collect(self.q, **self.tables)["out"]

    def _corrected(self) -> None:
        """There are no windows."""


@pytest.mark.parametrize("until_s", [9, 15])
def test_a_fork_and_its_corrections(until_s: int) -> None:
    """A publisher is cut off, and is back before or after the other one has ended."""
    run = DelayedTimers(second(12)).begin()
    run.cut("pub-b", "m", 5, until_s)
    run.ends()
    assert run.forks("n") >= 1
    assert run.reader.guesses
    assert run.want.num_rows > 100
