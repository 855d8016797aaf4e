"""Queries over nodes whose outputs bound what a failure adds (``delay=``), while inputs are missing.

    left  ── a ──┐                          left ── a ──┐
                 ├── c ── d ── z            right ─ b ──┴─ e ──┐           source ── a ──┬── c ──┐
    right ── b ──┘                          third ─ c ──┬─ f ──┴── z                     └── d ──┴── z
                                            fourth  d ──┘
        chain                                    tree                          diamond

Whoever reads has its stable rows as without failures, each once and for good; what comes by a living path
shows within X of when it would have come; what is short shows nothing; and in the end nothing is tentative.

What new rows do meanwhile is as the outputs wish (``md.Delay``). Processed ones show at once where a fork was
there before; delayed ones aren't tentative before X less the margin; where they are suspended in a failure
none is tentative, and where only while corrections come X isn't promised then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa

from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_delay import DelayRules
from medusa.nodes.consistency.approach import LAGS
from medusa.query.boxes import Schema
from medusa.query.builder import Query
from medusa.query.delay import fork_after_us, margin_us
from medusa.query.delay_policies import DELAY as DELAYED
from medusa.query.delay_policies import PROCESS, SUSPEND, Delay
from medusa.query.expressions.aggregates import count, sum
from medusa.sim.actors.client import Client
from medusa.sim.checkers.first_publishers import FirstPublishers
from medusa.sim.checkers.lanes import LaneChecks
from medusa.sim.checkers.outages import Outages
from medusa.sim.checkers.plain_table import Key
from medusa.sim.trials.queries import QueryOptions, QueryTrial
from medusa.sim.trials.trial import Scenario
from medusa.sim.world.fault_kinds import LONG, Scene
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.tentative import STABLE

__all__ = ["DELAY"]

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
ROWS = 150
"""Of each source."""

SPAN_US, FAULTS_US, SAFETY_US = 9_000_000, 5_500_000, 9_500_000
"""For how long rows are published, faults begin, and may last. Sources end once all has healed: what waits
for an input that is missing is only answered while another one goes on."""

BUCKET_US, WINDOW_US = 200_000, 1_000_000
LOOK_US = 10_000

SETTLED_US = 1_500_000
"""A path that has been whole for so long brings rows as they come: links stand again, and what waited is
through."""

SLACK_US = 700_000
"""For frames, turns of engines and copies on the way; the rest of X is what a failure may add."""

NOTICED_US = 1_000_000
"""So long after a failure has ended is everything heard again at the latest."""

EACH, PER_K = "each", "per_k"


@dataclass(frozen=True, slots=True)
class DelayedQuery:
    """A query, and where it runs.

    Attributes:
        at: node -> sources and boxes; the last one has the sinks.
        path: the nodes by which a row of a source comes to them.
        counted: source -> the column of results by window and key that counts its rows; without: ``n``.
    """

    q: Query
    at: Mapping[str, Sequence[str]]
    path: Callable[[str, int], Sequence[str]]
    counted: Mapping[str, str] = field(default_factory=dict)


def _ends(q: Query, rows: Any, delay: str | Delay) -> None:
    q.sink(EACH, rows.filter("v >= 0", name="last"), delay=delay)
    per_k = rows.window("1s").group_by("k").aggregate(n=count(), t=sum("v"), name="counts")
    q.sink(PER_K, per_k, delay=delay)


ENDS = ["last", EACH, "counts", PER_K]


def chain(delay: str | Delay) -> DelayedQuery:
    """Two sources are put into one order and go through a second node."""
    q = Query("d")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    both = left.sunion(right, bucket="200ms", name="both")
    _ends(q, both.filter("v >= 0", name="most"), delay)
    at = {"a": ["left", "l"], "b": ["right", "r"], "c": ["both"], "d": ["most"], "z": ENDS}
    return DelayedQuery(q, at, lambda source, v: ("a" if source == "left" else "b", "c", "d", "z"))


def tree(delay: str | Delay) -> DelayedQuery:
    """Pairs of four sources are put into one order, and those again."""
    q = Query("d")
    names = ["one", "two", "three", "four"]
    some = [q.source(name, SCHEMA, time="ts").filter("v >= 0", name=f"f{name}") for name in names]
    low = some[0].sunion(some[1], bucket="200ms", name="low")
    high = some[2].sunion(some[3], bucket="200ms", name="high")
    _ends(q, low.sunion(high, bucket="200ms", name="all"), delay)
    at = {place: [name, f"f{name}"] for place, name in zip("abcd", names, strict=True)}
    at |= {"e": ["low"], "f": ["high"], "z": ["all", *ENDS]}
    way = {"one": ("a", "e"), "two": ("b", "e"), "three": ("c", "f"), "four": ("d", "f")}
    return DelayedQuery(q, at, lambda source, v: (*way[source], "z"))


def diamond(delay: str | Delay) -> DelayedQuery:
    """Rows of one source go two ways and meet again."""
    q = Query("d")
    rows = q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first")
    even, odd = rows.filter("v % 2 = 0", name="even"), rows.filter("v % 2 = 1", name="odd")
    _ends(q, even.sunion(odd, bucket="200ms", name="both"), delay)
    at = {"a": ["rows", "first"], "c": ["even"], "d": ["odd"], "z": ["both", *ENDS]}
    return DelayedQuery(q, at, lambda source, v: ("a", "d" if v % 2 else "c", "z"))


def joined(delay: str | Delay) -> DelayedQuery:
    """Counts of two sources are joined by window and key: a result of both is missing while one is."""
    q = Query("d")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="l")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="r")
    lefts = left.window("1s").group_by("k").aggregate(nl=count(), name="wl")
    rights = right.window("1s").group_by("k").aggregate(nr=count(), name="wr")
    q.sink(PER_K, lefts.join(rights, on=["window", "k"], how="full", name="meet"), delay=delay)
    at = {"a": ["left", "l"], "b": ["right", "r"], "c": ["wl"], "z": ["wr", "meet", PER_K]}
    counted = {"left": "nl", "right": "nr"}
    return DelayedQuery(
        q, at, lambda source, v: ("a", "c", "z") if source == "left" else ("b", "z"), counted=counted
    )


POLICIES = (
    (PROCESS, DELAYED),
    (PROCESS, SUSPEND),
    (DELAYED, PROCESS),
    (DELAYED, DELAYED),
    (DELAYED, SUSPEND),
    (SUSPEND, SUSPEND),
)
"""In a failure, and while corrections come: all that go together but processing in both."""

SHAPES = (chain, tree, diamond, joined)
DELAYS = ("1200ms", "1200ms", "1500ms", "2s", "4s")
KEYS = {EACH: ["v"], PER_K: ["window_start", "k"]}


def table(dice: Random, rows: int, place: int, sources: int, span_us: int) -> pa.Table:
    """Rows in order of time, which come at the pace of their times; each value is there once."""
    times = sorted(dice.randrange(span_us) for _ in range(rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([dice.choice("abc") for _ in times]),
            "v": pa.array([number * sources + place for number in range(rows)], pa.int64()),
        }
    )


class DelayTrial(QueryTrial):
    """A query with ``delay=``, of which a program reads both lanes.

    Args:
        delay: X, and what becomes of new rows meanwhile, as the outputs of the query have it.
    """

    def __init__(
        self,
        world: World,
        shape: DelayedQuery,
        tables: Mapping[str, pa.Table],
        options: QueryOptions,
        *,
        delay: Delay,
    ) -> None:
        super().__init__(world, shape.q, tables, options)
        self.lanes = {
            sink: LaneChecks(f"d.{sink}", want, KEYS[sink], now=lambda: world.now_us)
            for sink, want in self.want.items()
        }
        self._shape = shape
        self._delay_us = delay.delay_us
        self._failure, self._stabilization = delay.failure, delay.stabilization
        self._promised: dict[str, list[tuple[int, int]]] = {source: [] for source in tables}
        """Source -> the time of its last row so far, and when that was published."""
        self._came: list[tuple[str, dict[str, Any], int]] = []
        """Source, row, and when it was published."""
        self._outages: Outages | None = None
        self._publishers = FirstPublishers(tables, lambda source: bool(self._known(f"d.{source}")))
        self._healed = self._overtakes = False
        self._settles_us = NOTICED_US + self._delay_us + SLACK_US
        """Once all works again every stream is stable after this."""
        self._end_us = 0
        """When the first source ended, or was to."""

    # --- what is done ---------------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        return Scene(machines=list(self.nodes), links=self.links, span_us=FAULTS_US)

    def start(self) -> None:
        """What is down while the query is deployed is down for its fragments too: they are there already."""
        super().start()
        self._outages = Outages(self._parts, self._works, self._starts)
        self._look(self._outages)

    @property
    def _common(self) -> list[str]:
        """What all rows pass before the last node could notice that something is down."""
        ends = {list(self._shape.at)[-1], self.reader.name}
        ways = [set(self._path(source, value)) for source in self.tables for value in range(2)]
        return [part for part in ways[0].intersection(*ways) if ends.isdisjoint(part.split())]

    @property
    def _parts(self) -> list[str]:
        return [*self.nodes, *(self._part(*pair) for pair in self.links)]

    @staticmethod
    def _part(*names: str) -> str:
        """A machine, or the connection of two."""
        return " ".join(sorted(names))

    def _begin_to_read(self, client: Client, stream: str) -> None:
        client.read_lanes(stream, self.lanes[stream.removeprefix("d.")])

    def _push(self, client: Client, stream: str, piece: pa.Table, schema: Schema) -> None:
        super()._push(client, stream, piece, schema)
        source, now_us = stream.removeprefix("d."), self.world.now_us
        self._promised[source].append((piece.column("ts").cast(pa.int64())[-1].as_py(), now_us))
        self._came += [(source, row, now_us) for row in piece.to_pylist()]

    def _finish(self, client: Client, stream: str, schema: Schema) -> None:
        """A source goes on until all has worked for long enough: what has ended is missed by nobody."""
        now_us = self.world.now_us
        assert self._outages is not None
        self._outages.look(now_us)
        if now_us < (settled_us := self._outages.last_us + self._settles_us):
            self.world.at(settled_us, lambda: self._finish(client, stream, schema))
            return
        self._end_us = min(now_us, self._end_us or now_us)
        super()._finish(client, stream, schema)

    # --- what is seen ---------------------------------------------------------------------------

    def _look(self, outages: Outages) -> None:
        self._publishers.look(self.world.now_us)
        if not self._healed:
            outages.look(self.world.now_us)
        if not self._healed or self._publishers.last_us is None:
            self.world.after(LOOK_US, lambda: self._look(outages))

    def heal(self) -> None:
        if self._outages is not None:
            self._outages.look(self.world.now_us)
        self._healed = True
        self._overtakes = self.network.faults.reorder_permille > 0
        super().heal()

    def _works(self, part: str) -> bool:
        names = part.split()
        if len(names) == 1:
            machine = self.nodes[part]
            return machine.alive and not machine.stands_still
        one, other = names
        return self.network.passes(one, other) and self.network.passes(other, one)

    def _starts(self, part: str) -> int:
        return self.nodes[part].lives if part in self.nodes else 0

    # --- what must hold -------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return super().ended and all(lane.settled for lane in self.lanes.values())

    def check_end(self) -> None:
        super().check_end()
        for lane in self.lanes.values():
            lane.check_end()
        self._check_masked()
        self._check_suspended()
        self._check_held()
        self._check_answered()
        self._check_corrected()
        self._check_settled()

    def _check_masked(self) -> None:
        """What is shorter than X less the margin shows nothing."""
        assert self._outages is not None
        longest_us = self._outages.longest_us(NOTICED_US)
        if longest_us + NOTICED_US > fork_after_us(self._delay_us):
            return
        for sink, lane in self.lanes.items():
            if lane.missed_us is not None or lane.tentative_rows:
                raise SimulationError(
                    f"masked: {sink}: an input was missing at {lane.missed_us} us and {lane.tentative_rows}"
                    f" rows were tentative; nothing was down for more than {longest_us} us"
                )

    def _check_answered(self) -> None:
        """What came by a path that was whole shows within X of when it would have. Not where frames overtake
        others, as ZeroMQ's never do: tentative ones that come behind a later one are dropped. Each source
        stands at a node of its own here, which waits for its first publisher however long: nobody is missing
        until then (docs/dpc.md), so X counts from when the last source has one."""
        published_us = self._publishers.last_us
        assert self._outages is not None
        assert published_us is not None, "sources end once all publish"
        if self._overtakes or self._failure == SUSPEND:
            return
        for sink, lane in self.lanes.items():
            wanted: dict[Key, tuple[int, dict[str, int]]] = {}
            for source, row, came_us in self._came:
                times = self._past_us(sink, row["ts"])
                if times is None:
                    continue
                ideal_us = max(*times, published_us)
                at_once = self._failure == PROCESS and self._is_forked(lane, ideal_us)
                due_us = ideal_us + SLACK_US + (0 if at_once else self._delay_us)
                if self._stabilization == SUSPEND and due_us > self._first_back_us:
                    continue
                if not self._has_way(source, row["v"], came_us - SETTLED_US, due_us):
                    continue
                key = self._key(sink, row)
                shown = lane.shown.get(key, [])
                if not shown or shown[0].at_us > due_us:
                    raise SimulationError(
                        f"answered: {sink} {key}: {source} had it at {came_us} us, without failures it would"
                        f" have shown at {ideal_us}, it had to by {due_us}, and did at"
                        f" {shown[0].at_us if shown else None}"
                    )
                if (name := self._counted(sink, source)) is not None:
                    count = wanted.setdefault(key, (due_us, {}))[1]
                    count[name] = count.get(name, 0) + 1
            self._check_counted_by(sink, lane, wanted)

    def _counted(self, sink: str, source: str) -> str | None:
        """The column of a sink that counts the rows of a source; None: none does."""
        if sink == EACH:
            return None
        return self._shape.counted.get(source, "n")

    def _check_counted_by(
        self, sink: str, lane: LaneChecks, wanted: Mapping[Key, tuple[int, Mapping[str, int]]]
    ) -> None:
        """A result within X has all rows in it that came by paths that were whole, and none twice.

        Args:
            wanted: key -> until when, and column -> how many rows came so.
        """
        for key, (due_us, counts) in wanted.items():
            for name, came in counts.items():
                most = max(each.row[name] or 0 for each in lane.shown[key] if each.at_us <= due_us)
                if most < came:
                    raise SimulationError(
                        f"answered: {sink} {key}: {name} was {most} at most by {due_us} us, and"
                        f" {came} rows had come by paths that were whole"
                    )
        for key, shown in lane.shown.items():
            # A fork may answer after the stable lane: that is void, and says nothing of what there is.
            right = next(each.row for each in shown if not each.tentative)
            for name in self._counts(sink):
                for each in shown:
                    if (each.row[name] or 0) > (right[name] or 0):
                        raise SimulationError(
                            f"counted twice: {sink} {key}: {name} was {each.row[name]} at {each.at_us} us,"
                            f" and is {right[name]}"
                        )

    def _counts(self, sink: str) -> set[str]:
        """The columns of a sink that count rows."""
        return {name for source in self.tables if (name := self._counted(sink, source)) is not None}

    def _check_corrected(self) -> None:
        """Who says that all is corrected has put that out: what would have shown a while ago is there, once
        all sources have had a publisher, as for X. Not while something else is down, which isn't missed for X
        less the margin; nor just after the reader couldn't hear it: that is told then how the stream was, and
        what came meanwhile is under way. Nor what is under way since all rows were held up for too short a
        time to show: nobody is told of that, and no input is ahead of another one."""
        published_us = self._publishers.last_us
        assert self._outages is not None
        assert published_us is not None, "sources end once all publish"
        wait_us = margin_us(self._delay_us) + SLACK_US
        masked_us = fork_after_us(self._delay_us) + 2 * LOOK_US
        of_reader = [part for part in self._parts if self.reader.name in part.split()]
        for sink, lane in self.lanes.items():
            for said_us, stable_rows in lane.corrected:
                if not self._outages.worked(self._parts, said_us, said_us):
                    continue
                if not self._outages.worked(of_reader, said_us - NOTICED_US, said_us):
                    continue
                left = lane.left(stable_rows)
                short = self._outages.ended(self._common, said_us - NOTICED_US, said_us, for_us=masked_us)
                held_up_us = min((begin_us for begin_us, _ in short), default=said_us)
                for source, row, came_us in self._came:
                    times = self._past_us(sink, row["ts"])
                    if times is None or self._key(sink, row) not in left:
                        continue
                    ideal_us = max(*times, published_us)
                    if ideal_us + wait_us > said_us or ideal_us >= held_up_us:
                        continue
                    raise SimulationError(
                        f"corrected: {sink} {self._key(sink, row)}: {source} had it at {came_us} us, without"
                        f" failures it would have shown at {ideal_us}; at {said_us} the stream was said to be"
                        " stable, and it hadn't come"
                    )

    def _check_settled(self) -> None:
        """Once all works again a stream is stable soon, while its sources go on. A source that is behind the
        others by itself is waited for while it comes nearer: that it doesn't shows once it was as late some
        times, and so often by how far they are apart it may be later."""
        assert self._outages is not None
        for begin_us, end_us in self._outages.quiet(self._end_us):
            due_us = begin_us + self._settles_us
            due_us += (LAGS + 1) * self._apart_us(begin_us, due_us)
            for sink, lane in self.lanes.items():
                for (at_us, state), (next_us, _) in pairwise([*lane.turns, (end_us, STABLE)]):
                    since_us, until_us = max(at_us, due_us), min(next_us, end_us)
                    if state != STABLE and since_us < until_us:
                        raise SimulationError(
                            f"settled: {sink} is {state} at {since_us} us, all has worked since {begin_us}"
                        )

    def _apart_us(self, from_us: int, to_us: int) -> int:
        """By how much later than another one a source was past the same time at most, of what one was past
        meanwhile; 0: by no more than the margin."""
        most_us = 0
        for promised in self._promised.values():
            for time_us, at_us in promised:
                if from_us <= at_us <= to_us:
                    others = [self._past_at_us(each, time_us) for each in self._promised.values()]
                    most_us = max(most_us, *(at_us - other for other in others if other is not None))
        return most_us if most_us > margin_us(self._delay_us) else 0

    @staticmethod
    def _past_at_us(promised: Sequence[tuple[int, int]], time_us: int) -> int | None:
        """When a source was past a time; None: it only is once it ends."""
        place = bisect_left(promised, (time_us, 0))
        return promised[place][1] if place < len(promised) else None

    @staticmethod
    def _length_us(sink: str) -> int:
        return BUCKET_US if sink == EACH else WINDOW_US

    def _is_forked(self, lane: LaneChecks, at_us: int) -> bool:
        """Whether a fork was there before a row was due: nothing has gone down lately, nothing is back, and
        so it is until the row should show."""
        assert self._outages is not None
        begun_us, back_us = at_us - self._delay_us - SLACK_US, at_us - SETTLED_US
        is_still = self._outages.is_still(begun_us, back_us, at_us + SLACK_US)
        return is_still and lane.has_fork(at_us - NOTICED_US // 2, at_us + SLACK_US)

    @property
    def _first_back_us(self) -> int:
        """Before this no correction comes."""
        assert self._outages is not None
        return self._outages.first_back_us(SAFETY_US * 10)

    def _check_suspended(self) -> None:
        """Where new rows wait in a failure none is tentative, and no fork is said to be there."""
        for sink, lane in self.lanes.items():
            if self._failure == SUSPEND and (lane.tentative_rows or lane.forks):
                raise SimulationError(
                    f"suspended: {sink}: {lane.tentative_rows} rows are tentative, of forks {lane.forks}"
                )

    def _check_held(self) -> None:
        """Where new rows are delayed none is tentative before X less the margin has gone by since one source
        was past it: the others may have been missing since then."""
        if self._failure != DELAYED:
            return
        for sink, lane in self.lanes.items():
            first_us = {
                self._key(sink, row): min(times)
                for _, row, _ in self._came
                if (times := self._past_us(sink, row["ts"], some=True))
            }
            for key, shown in lane.shown.items():
                guessed_us = min((each.at_us for each in shown if each.tentative), default=None)
                if guessed_us is None:
                    continue
                if self._stabilization == PROCESS and guessed_us > self._first_back_us:
                    continue
                held_us = guessed_us - first_us.get(key, 0)
                if held_us < fork_after_us(self._delay_us):
                    raise SimulationError(
                        f"held: {sink} {key}: was tentative at {guessed_us} us, {held_us} after a source was"
                        f" past it, and {fork_after_us(self._delay_us)} are to go by"
                    )

    def _past_us(self, sink: str, time: Any, *, some: bool = False) -> list[int] | None:
        """When each source is past the bucket or window of a row of this time: without failures it leaves
        once all are. None: one only is once it ends.

        Args:
            some: those that are before they end.
        """
        length_us = self._length_us(sink)
        end_us = (_micros(time) // length_us + 1) * length_us
        times = []
        for promised in self._promised.values():
            if (at_us := self._past_at_us(promised, end_us)) is not None:
                times.append(at_us)
            elif not some:
                return None
        return times

    def _has_way(self, source: str, value: int, from_us: int, to_us: int) -> bool:
        """Whether all that it passes was there."""
        assert self._outages is not None
        return self._outages.worked(self._path(source, value), from_us, to_us)

    def _path(self, source: str, value: int) -> Iterator[str]:
        """All that a row passes."""
        nodes = self._shape.path(source, value)
        places = [f"pub-{nodes[0]}-{source}-0", *nodes, self.reader.name]
        yield from nodes
        for pair in pairwise(places):
            yield self._part(*pair)

    def _key(self, sink: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        if sink == EACH:
            return (row["v"],)
        time = row["ts"]
        start_us = _micros(time) // WINDOW_US * WINDOW_US
        return (pa.scalar(start_us, pa.timestamp("us", tz="UTC")).as_py(), row["k"])


def _micros(time: Any) -> int:
    return int(pa.scalar(time, pa.timestamp("us", tz="UTC")).cast(pa.int64()).as_py())


def delayed(world: World, rows: int | None, parts: Any) -> DelayTrial:
    """What the seed decides."""
    return _decided(world, rows, PROCESS, PROCESS)


def chosen(world: World, rows: int | None, parts: Any) -> DelayTrial:
    """The same, and the policies."""
    return _decided(world, rows, *world.dice("policies").choice(POLICIES))


def _decided(world: World, rows: int | None, failure: str, stabilization: str) -> DelayTrial:
    dice = world.dice("options")
    build, delay = dice.choice(SHAPES), Delay(dice.choice(DELAYS), failure, stabilization)
    shape = build(delay)
    number = ROWS if rows is None else rows
    sources = shape.q.sources
    tables = {
        source: table(dice, number, place, len(sources), SPAN_US) for place, source in enumerate(sources)
    }
    options = QueryOptions(
        at=shape.at,
        publish_us=SPAN_US,
        piece_rows=dice.choice([2, 5]),
        sync_us=dice.choice([500, 2000, 20_000]),
        job_us=dice.choice([50, 2000]),
        delay_us=dice.choice([100, 2000, 20_000]),
        limits=Limits(checkpoint_every_us=dice.choice([50_000, 200_000, 1_000_000])),
        waits=DelayRules(memory_bytes=dice.choice([4_000, 32 << 20])),
    )
    return DelayTrial(world, shape, tables, options, delay=delay)


WEATHER = ("jitter", "repeat", "reorder")
"""What a link makes up for within X."""

DELAY: dict[str, Scenario] = {
    "delay": Scenario(
        about="inputs go missing: new results within X, marked tentative, and exact ones afterwards",
        build=delayed,
        kinds=[*WEATHER, "cut", "cut one way", "partition", "crash", "pause", *LONG, *LONG],
        count=5,
        safety_us=SAFETY_US,
        liveness_us=60_000_000,
        events_max=1_500_000,
    ),
    "policies": Scenario(
        about="the same, where new rows are delayed or suspended in a failure or while corrections come",
        build=chosen,
        kinds=[*WEATHER, "cut", "cut one way", "partition", "crash", "pause", *LONG, *LONG],
        count=5,
        safety_us=SAFETY_US,
        liveness_us=60_000_000,
        events_max=1_500_000,
    ),
}
