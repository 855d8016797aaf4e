"""The decision log of a node: its bytes, what is written when, and how it is done again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import END_US, START_US, Boundary, Shed, Silent, Train
from medusa.engine.recovery.decisions import framed
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.fragment.clock_decisions import ClockDecisions
from medusa.nodes.fragment.input_log import RETRY_US, InputLog
from medusa.nodes.fragment.input_log_records import (
    JOINED,
    LOST,
    PROMISE,
    ROWS,
    Decision,
    InputReplay,
    pack,
    unpack,
)
from medusa.nodes.fragment.input_queue import InputQueue
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Field, Graph, Source
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.outbox import Log, Outbox, ReportLine

names = st.sampled_from(["left", "right", "x" * 255])
arrivals = st.none() | st.integers(-(1 << 60), 1 << 60)
decisions = st.one_of(
    st.builds(Decision, st.just(ROWS), names, names, st.integers(1, 1 << 60), arrivals),
    st.builds(Decision, st.sampled_from([ROWS, LOST]), names, names, st.integers(1, 1 << 60)),
    st.builds(Decision, st.just(JOINED), names, names, st.just(0)),
    st.builds(Decision, st.just(PROMISE), names, names, st.integers(START_US + 1, END_US)),
)
logs = st.lists(st.lists(decisions, min_size=1, max_size=20), max_size=5)


# --- bytes --------------------------------------------------------------------------------------


@given(logs, st.integers(0, 1 << 50))
def test_what_is_packed_is_read_back(records, first):
    data = b"".join(pack("q/box", first + 100 * place, each) for place, each in enumerate(records))
    found, length = unpack(data)
    assert length == len(data)
    assert [each.decisions() for each in found] == records
    assert [each.first for each in found] == [first + 100 * place for place in range(len(records))]
    assert all(each.end == each.first + len(each.decisions()) for each in found)


@settings(max_examples=60)
@given(logs, st.data())
def test_a_log_that_is_cut_or_changed_gives_a_beginning_of_it(records, data):
    whole = b"".join(pack("q/box", 0, each) for each in records)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    found, length = unpack(cut)
    assert [each.decisions() for each in found] == records[: len(found)]
    assert unpack(cut[:length]) == (found, length)
    if whole:
        place = data.draw(st.integers(0, len(whole) - 1))
        bent = bytearray(whole)
        bent[place] ^= 1 << data.draw(st.integers(0, 7))
        found, _ = unpack(bent)
        assert [each.decisions() for each in found] == records[: len(found)] != records


@pytest.mark.parametrize(
    "record",
    [
        ["q/box", 0, [["left", "c"]], []],
        ["q/box", 0, [["left", "c"]], [0, 0]],
        ["q/box", 0, [["left", "c"]], [0, 1, 5]],
        ["q/box", 0, [["left", "c"]], [0, -1, 5]],
        ["q/box", 0, [["left", "c"]], [3, 0, 5]],
        ["q/box", 0, [["left", "c"]], [4, 0, 5]],
        ["q/box", 0, [["left", "c"]], [0, 0, 0]],
        ["q/box", 0, [["left", "c"]], [2, 0, START_US]],
        ["q/box", 0, [["left", "c"]], [2, 0, END_US + 1]],
        ["q/box", -1, [["left", "c"]], [0, 0, 5]],
        ["", 0, [["left", "c"]], [0, 0, 5]],
        ["q/box", 0, [["left"]], [0, 0, 5]],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], 1],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], [0]],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], [1, 7]],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], [-1, 7]],
        ["q/box", 0, [["left", "c"]], [1, 0, 5], [0, 7]],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], [0, END_US]],
        ["q/box", 0, [["left", "c"]], [0, 0, 5], [0, 7, 0, 8]],
        {"fragment": "q/box"},
    ],
)
def test_a_record_that_says_what_cant_be_is_none(record):
    import msgspec

    good = pack("q/box", 0, [Decision(ROWS, "left", "c", 5)])
    assert len(unpack(good)[0]) == 1
    assert unpack(good + framed(msgspec.msgpack.encode(record)) + good)[1] == len(good)


# --- when it is written -------------------------------------------------------------------------


class Written:
    """A ``InputLog`` and what it wanted written."""

    def __init__(self, *, at=0, usable=True):
        self.outbox = Outbox()
        self.tokens = iter(range(100, 200))
        self.decided = InputLog(
            "q/box", outbox=self.outbox, next_token=lambda: next(self.tokens), at=at, usable=usable
        )

    def note(self, *tos):
        return [self.decided.note(Decision(ROWS, "left", "c", to)) for to in tos]

    def taken(self, now_us=0):
        """(file, first number, positions) of each write."""
        self.decided.write(now_us)
        found = []
        for effect in self.outbox.take():
            if isinstance(effect, Log):
                (record,), _ = unpack(effect.data)
                found.append((effect.number, record.first, [each.to for each in record.decisions()]))
            else:
                assert isinstance(effect, ReportLine)
        return found


def test_what_comes_while_one_is_written_goes_with_the_next():
    written = Written()
    assert written.note(1) == [0]
    assert written.taken() == [(100, 0, [1])]
    assert written.note(2, 3) == [1, 2]
    assert written.taken() == []
    assert written.decided.durable == 0
    written.decided.logged(0, True)
    assert written.decided.durable == 1
    assert written.taken() == [(100, 1, [2, 3])]
    written.decided.logged(0, True)
    assert written.decided.durable == written.decided.at == 3
    assert written.taken() == []


def test_a_failed_write_is_done_again_in_another_file_with_what_came_since():
    written = Written()
    written.note(1, 2)
    assert written.taken() == [(100, 0, [1, 2])]
    written.note(3)
    written.decided.logged(0, False, "full")
    assert written.decided.durable == 0
    assert written.taken(RETRY_US - 1) == []
    assert written.decided.wake_at_us() == RETRY_US
    assert written.taken(RETRY_US) == [(101, 0, [1, 2, 3])]
    written.decided.logged(RETRY_US, True)
    assert written.decided.durable == 3
    assert written.decided.failures == 1


def test_a_checkpoint_begins_a_file_and_takes_what_it_holds():
    written = Written(at=7)
    written.note(1, 2)
    assert written.taken() == [(100, 7, [1, 2])]
    written.note(3)
    written.decided.turn(150)
    written.note(4)
    written.decided.covered(10, usable=True)
    assert written.decided.durable == 10
    written.decided.logged(0, True)
    assert written.decided.durable == 10
    assert written.taken() == [(150, 10, [4])]


def test_nothing_is_logged_before_a_checkpoint_says_that_order_matters():
    written = Written(usable=False)
    assert written.decided.note(None) == 0
    written.note(1)
    assert written.taken() == []
    written.decided.turn(150)
    written.note(2)
    written.decided.covered(2, usable=True)
    assert written.decided.durable == 2
    assert written.taken() == [(150, 2, [2])]


def test_what_cant_be_repeated_waits_for_a_checkpoint():
    written = Written(at=4)
    written.decided.begin_again(3)
    assert written.decided.durable == 7
    assert written.decided.again() == 4
    written.decided.give_up()
    assert written.note(9) == [7]
    assert written.taken() == []
    assert written.decided.durable == 7
    written.decided.turn(160)
    written.decided.covered(8, usable=True)
    assert written.decided.durable == 8


# --- doing it again -----------------------------------------------------------------------------

SCHEMA = (Field(name="t", type="int64"), Field(name="late", type="bool"))


def input_of(name, outbox, *, judged=True):
    source = Source(id=name, schema=SCHEMA, judged=judged, timed=False, time=None if judged else "t")
    return FragmentInput(source, f"q.{name}", "n", incarnation=1, outbox=outbox, settings=LinkSettings())


def works(input, positions, cuts, promises):
    """Rows 0 to the last cut, cut so, with boundaries before some of the rows."""
    made, at = [], 0
    for end in cuts:
        if at in promises:
            boundary = Boundary(promises[at])
            made.append(Work(input, boundary, next_seq=at, boundary_us=boundary.time_us, cost=1))
        rows = list(range(at, end))
        batch = pa.record_batch({"t": pa.array(rows, pa.int64()), "late": [row % 3 == 0 for row in rows]})
        late = pa.array([row % 3 == 0 for row in rows]) if any(row % 3 == 0 for row in rows) else None
        train = Train(batch=batch, first_seq=at, late=late)
        made.append(Work(input, train, next_seq=end, boundary_us=0, cost=10 * (end - at)))
        at = end
    return made


cuttings = st.sets(st.integers(1, 29), max_size=8).map(lambda cuts: [*sorted(cuts), 30])


@settings(max_examples=120)
@given(st.data())
def test_a_script_feeds_the_same_again_however_it_comes(data):
    outbox = Outbox()
    inputs = {(name, "n"): input_of(name, outbox) for name in ("left", "right")}
    script, at = [Decision(JOINED, "left", "n", 0)], {}
    for key, end in data.draw(
        st.permutations(
            [(each, end) for each in inputs for end in data.draw(cuttings, label=f"cuts then, {each[0]}")]
        ),
        label="order",
    ):
        if end > at.get(key, 0):
            at[key] = end
            script.append(Decision(ROWS, *key, end))
        if data.draw(st.booleans()):
            script.append(Decision(PROMISE, *key, 1000 + len(script)))
    coming = {
        key: works(each, None, data.draw(cuttings, label="cuts now"), {10: 5000, 20: 6000})
        for key, each in inputs.items()
    }
    cost = sum(work.cost for each in coming.values() for work in each)
    last_us = {
        key: [work.element.time_us for work in each if isinstance(work.element, Boundary)][-1:]
        for key, each in coming.items()
    }
    again, fed = InputReplay(script, inputs), []
    while not again.done:
        work = again.next()
        if work is None:
            assert not again.over
            key = data.draw(st.sampled_from([key for key, left in coming.items() if left]))
            again.add([coming[key].pop(0)])
            continue
        cost -= work.cost
        work.input.issued(work)
        fed.append(work)
    assert again.over
    assert not again.unfit
    before = dict.fromkeys(inputs, 0)
    for work, want in zip(fed, script, strict=True):
        key = (work.input.source, work.input.peer)
        assert key == (want.source, want.peer)
        if want.kind == PROMISE:
            assert work.element == Boundary(want.to)
            continue
        if want.kind == JOINED:
            assert work.element is None
            continue
        rows = list(range(before[key], want.to))
        before[key] = want.to
        assert work.element.batch.column("t").to_pylist() == rows
        assert work.element.first_seq == rows[0]
        late = [False] * len(rows) if work.element.late is None else work.element.late.to_pylist()
        assert late == [row % 3 == 0 for row in rows]
    rest = again.rest() + [work for each in coming.values() for work in each]
    assert cost == sum(work.cost for work in rest)
    for key, each in inputs.items():
        mine = [work for work in rest if work.input is each]
        rows = [row for w in mine if isinstance(w.element, Train) for row in w.element.batch["t"].to_pylist()]
        assert rows == list(range(before[key], 30))
        promised = [work.element.time_us for work in mine if isinstance(work.element, Boundary)]
        assert promised == sorted(promised)
        assert promised[-1:] == last_us[key]


def test_rows_that_are_lost_or_were_fed_end_the_script():
    outbox = Outbox()
    inputs = {("left", "n"): input_of("left", outbox)}
    (each,) = inputs.values()
    script = InputReplay([Decision(ROWS, "left", "n", 5)], inputs)
    script.add([Work(each, None, next_seq=5, boundary_us=0, cost=0)])
    assert script.next() is None
    assert "has lost some" in script.unfit
    assert script.over
    assert [work.next_seq for work in script.rest()] == [5]
    script = InputReplay([Decision(LOST, "left", "n", 5)], inputs)
    script.add([Work(each, None, next_seq=5, boundary_us=0, cost=0)])
    assert script.next().element is None
    assert script.done
    each.fed_seq = 7
    script = InputReplay([Decision(ROWS, "left", "n", 5)], inputs)
    assert script.next() is None
    assert "was fed before" in script.unfit


def test_a_publisher_that_is_gone_ends_the_script_and_what_is_missing_is_known():
    outbox = Outbox()
    inputs = {(name, "n"): input_of(name, outbox, judged=False) for name in ("left", "right")}
    left = inputs["left", "n"]
    script = InputReplay(
        [Decision(ROWS, "right", "n", 2), Decision(ROWS, "left", "n", 4), Decision(ROWS, "right", "n", 9)],
        inputs,
    )
    script.add(works(left, None, [4], {}))
    assert not script.over
    inputs["right", "n"].gone = True
    assert script.over
    assert script.missing() == [(inputs["right", "n"], 0, 9)]
    assert [work.next_seq for work in script.rest()] == [4]


class Beginning:
    """A fragment with two publishers' sources that begins after a restart."""

    def __init__(self, again, *, at=0, idle_us=None):
        self.written = Written(at=at)
        self.decided, self.outbox = self.written.decided, self.written.outbox
        self.inputs = {(name, "n"): input_of(name, self.outbox, judged=False) for name in ("left", "right")}
        sources = {
            name: Source(id=name, schema=SCHEMA, time="t", idle_us=idle_us if name == "left" else None)
            for name in ("left", "right")
        }
        streams = {name: f"q.{name}" for name in sources}
        entries = PublishedSources(sources, streams, self.inputs, fed_us={}, grace_us=1_000)
        spec = FragmentSpec(
            node="m",
            name="q/box",
            graph=Graph(name="q", boxes=()),
            feeds=(),
            entries=streams,
            streams={},
            readers={},
        )
        clocked = ClockDecisions(
            spec, sources, WallClock(), incarnation=1, outbox=self.outbox, settings=LinkSettings()
        )
        self.feeding = InputQueue(
            "q/box",
            again,
            self.inputs,
            entries,
            self.decided,
            self.outbox,
            clocked,
            next_token=iter(range(1, 1000)).__next__,
            memory_bytes_max=1 << 20,
            disk_bytes_max=0,
        )

    def came(self, name, *cuts, promises=None):
        self.feeding.came(0, works(self.inputs[name, "n"], None, cuts, promises or {}))

    def fed(self, now_us=0):
        """(source, rows or time, number) of all that can be fed now."""
        found = []
        while (work := self.feeding.next(now_us, noting=True)) is not None:
            element = work.element
            what = element.time_us if isinstance(element, Boundary) else element and len(element)
            found.append((work.input.source, what, work.number))
        return found

    def asked(self, now_us):
        """What the engine is asked now."""
        works = iter(lambda: self.feeding.next(now_us, noting=True), None)
        return [work.element for work in works if isinstance(work.element, Silent)]


def test_of_shares_that_nobody_was_told_yet_the_last_of_each_source_counts():
    begun = Beginning([])
    left, right = (begun.inputs[name, "n"] for name in ("left", "right"))
    for share_ppm in (0, 500_000, 0, 700_000):
        begun.feeding.tells(left, share_ppm)
    begun.feeding.tells(right, 1)
    works = list(iter(lambda: begun.feeding.next(0, noting=True), None))
    assert [(work.input.source, work.element, work.number) for work in works] == [
        ("left", Shed(700_000), 0),
        ("right", Shed(1), 1),
    ]


def test_live_follows_what_is_repeated():
    again = [
        Decision(ROWS, "right", "n", 2),
        Decision(PROMISE, "left", "n", 50),
        Decision(ROWS, "left", "n", 3),
    ]
    begun = Beginning(again, at=10)
    begun.came("left", 5)
    assert begun.fed() == []
    assert begun.feeding.repeating == 3
    begun.came("right", 4)
    assert begun.fed() == [
        ("right", 2, 10),
        ("left", 50, 11),
        ("left", 3, 12),
        ("left", 2, 13),
        ("right", 2, 14),
    ]
    assert begun.feeding.repeating == 0
    assert begun.decided.durable == 13
    assert begun.written.taken() == [(100, 13, [5, 4])]


def test_a_publisher_that_comes_meanwhile_is_let_in_once_the_log_knows_it():
    begun = Beginning([Decision(ROWS, "right", "n", 2)])
    left = begun.inputs["left", "n"]
    begun.feeding.joins(left)
    begun.came("right", 2)
    assert begun.feeding.joined() == []
    assert begun.fed() == [("right", 2, 0)]
    assert begun.written.taken() == [(100, 1, [0])]
    assert begun.feeding.joined() == []
    assert begun.feeding.is_joining(left)
    begun.decided.logged(0, True)
    assert begun.feeding.joined() == [left]
    assert not begun.feeding.is_joining(left)


def test_who_never_comes_back_is_waited_for_so_long_and_what_is_missing_is_told():
    begun = Beginning([Decision(ROWS, "right", "n", 2), Decision(ROWS, "left", "n", 3)])
    begun.inputs["right", "n"].silent_since_us = 0
    begun.came("left", 5)
    begun.feeding.tick(999)
    assert begun.fed(999) == []
    begun.feeding.tick(1_000)
    assert begun.fed(1_000) == [("left", 5, 2)]
    told = [(each.what, dict(each.fields)) for each in begun.outbox.take() if isinstance(each, ReportLine)]
    assert told == [
        (
            "decisions not repeated",
            {"fragment": "q/box", "count": 2, "why": "a publisher didn't come back"},
        ),
        ("rows missing", {"stream": "q.right", "peer": "n", "rows": 2, "first": 0}),
    ]
    assert begun.written.taken() == []  # Only a checkpoint lets out what is made from now on.
    assert begun.decided.durable == 2
