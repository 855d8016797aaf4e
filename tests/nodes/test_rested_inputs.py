"""What rests waits in memory and on disk; it comes back in order, each once, and gives its credit once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.elements import Boundary, Train
from medusa.nodes.fragment import rested_inputs
from medusa.nodes.fragment.inputs import Work
from medusa.nodes.fragment.rested_inputs import READS_MAX, RETRY_US, RestedInputs
from medusa.query.boxes import Field
from medusa.wire.codec import TrainCodec
from medusa.wire.outbox import Fetch, Outbox, ReportLine, WriteSegment

CODEC = TrainCodec((Field("n", "int64"), Field("text", "utf8")), timed=False)


class Input:
    """As much of a ``FragmentInput`` as is asked."""

    def __init__(self, source: str, window_bytes: int = 1 << 30) -> None:
        self.source, self.stream, self.peer, self.codec = source, f"q.{source}", "pub", CODEC
        self.given: list[int] = []
        self.receiver = SimpleNamespace(
            note=b"",
            settings=SimpleNamespace(window_bytes=window_bytes),
            consumed=lambda now_us, cost: self.given.append(cost),
        )
        self.next_seq = 0

    def train(self, rows: int) -> Work:
        numbers = range(self.next_seq, self.next_seq + rows)
        batch = pa.record_batch({"n": pa.array(numbers), "text": [f"{self.source}{n}" * 9 for n in numbers]})
        train = Train(batch=batch, first_seq=self.next_seq, arrival_us=self.next_seq * 7)
        self.next_seq += rows
        return self._work(train, batch.nbytes)

    def boundary(self) -> Work:
        return self._work(Boundary(self.next_seq), 128)

    def _work(self, element: Train | Boundary, cost: int) -> Work:
        made: Any = self
        return Work(made, element, next_seq=self.next_seq, boundary_us=0, cost=cost)


class Disk:
    """Does what is asked of it when the test says so."""

    def __init__(self, rested: RestedInputs, outbox: Outbox) -> None:
        self.rested, self.outbox = rested, outbox
        self.asked: list[WriteSegment | Fetch] = []
        self.segments: dict[int, bytes] = {}
        self.lines: list[str] = []

    def do(self, now_us: int, *, fails: bool = False) -> bool:
        """The oldest thing; whether there was one."""
        for effect in self.outbox.take():
            if isinstance(effect, ReportLine):
                self.lines.append(effect.what)
            else:
                assert isinstance(effect, WriteSegment | Fetch)
                self.asked.append(effect)
        if not self.asked:
            return False
        effect = self.asked.pop(0)
        why = "no room" if fails else ""
        if isinstance(effect, WriteSegment):
            self.segments[effect.token] = b"".join(bytes(each) for each in effect.payloads)
            assert self.rested.written(now_us, effect.token, not fails, why)
        else:
            data = self.segments[effect.token]
            payloads = [] if fails else [data[at : at + size] for at, size in effect.places]
            assert self.rested.fetched(now_us, effect.token, payloads, why)
        return True


def made(disk_bytes_max: int = 1 << 30) -> tuple[RestedInputs, Disk, list[Any]]:
    outbox, again = Outbox(), []
    rested = RestedInputs(
        "q/box",
        memory_bytes_max=1 << 30,
        disk_bytes_max=disk_bytes_max,
        next_token=iter(range(1, 10_000)).__next__,
        outbox=outbox,
        asks_again=lambda now_us, input: again.append(input),
    )
    return rested, Disk(rested, outbox), again


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rested_inputs, "SEGMENT_BYTES", 500)


def shown(work: Work) -> Any:
    """What it brings."""
    element = work.element
    if not isinstance(element, Train):
        return element
    return element.batch.to_pylist(), element.first_seq, element.arrival_us


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.sampled_from("ab"), st.integers(1, 9)),
        st.tuples(st.just("boundary"), st.sampled_from("ab")),
        st.tuples(st.just("rest"), st.sets(st.sampled_from("ab"))),
        st.just(("disk",)),
        st.just(("fails",)),
        st.just(("next",)),
    ),
    max_size=80,
)


@given(ACTS)
def test_all_comes_back_in_its_order_and_gives_its_credit_once(acts: list[Any]) -> None:
    rested, disk, again = made()
    inputs = {name: Input(name) for name in "ab"}
    wanted: dict[str, list[Any]] = {"a": [], "b": []}
    costs = {"a": 0, "b": 0}
    got: dict[str, list[Any]] = {"a": [], "b": []}
    rested.rest(frozenset("ab"))
    now_us = 0

    def take() -> bool:
        work = rested.next(now_us)
        if work is not None:
            assert work.input.source not in rested.resting
            got[work.input.source].append(shown(work))
            work.input.receiver.consumed(now_us, work.cost)
        return work is not None

    fails = 0
    for kind, *what in acts:
        now_us += RETRY_US
        if kind in ("train", "boundary"):
            input = inputs[what[0]]
            work = input.train(what[1]) if kind == "train" else input.boundary()
            wanted[what[0]].append(shown(work))
            costs[what[0]] += work.cost
            if rested.takes(work):
                rested.add(now_us, work)
            else:
                got[what[0]].append(shown(work))
                input.receiver.consumed(now_us, work.cost)
        elif kind == "rest":
            rested.rest(frozenset(what[0]))
        elif kind == "next":
            take()
        elif kind == "disk" or fails < READS_MAX - 1:
            fails += kind == "fails"
            disk.do(now_us, fails=kind == "fails")
    rested.rest(frozenset())
    while take() or disk.do(now_us) or take():
        pass
    assert got == wanted
    assert {name: sum(input.given) for name, input in inputs.items()} == costs
    assert rested.disk_bytes == 0
    assert not again
    assert list(rested.works()) == []


def test_what_is_on_disk_holds_neither_memory_nor_credit() -> None:
    rested, disk, _ = made()
    rested.rest(frozenset("a"))
    input = Input("a")
    works = [input.train(4) for _ in range(20)]
    for work in works:
        rested.add(0, work)
        while disk.do(0):
            pass
    away = [work for work in works if work.element is None]
    assert len(away) >= 18
    assert all(work.payload is None and work.cost == 0 for work in away)
    assert len(input.given) == len(away)
    assert rested.disk_rows("a") == 4 * len(away)
    on_disk = sum(len(segment) for segment in disk.segments.values())
    assert rested.disk_bytes == on_disk + len(away) * rested_inputs.WORK_BYTES
    assert set(rested.tokens) == set(disk.segments)
    assert rested.held_back == frozenset()


def test_a_segment_is_a_quarter_of_the_window_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sender has no credit left before anything is written."""
    monkeypatch.setattr(rested_inputs, "SEGMENT_BYTES", 1 << 20)
    rested, disk, _ = made()
    rested.rest(frozenset("a"))
    input = Input("a", window_bytes=4_000)
    for _ in range(20):
        rested.add(0, input.train(4))
    assert disk.do(0)
    assert sum(input.given) >= 1_000


def test_beyond_its_bound_the_rest_keeps_its_credit_and_says_so_once() -> None:
    rested, disk, _ = made(disk_bytes_max=12_000)
    rested.rest(frozenset("a"))
    input = Input("a")
    for _ in range(60):
        rested.add(0, input.train(4))
        while disk.do(0):
            pass
    assert 12_000 <= rested.disk_bytes < 16_000
    assert rested.held_back == {"a"}
    assert [line for line in disk.lines if "suspended" in line] == disk.lines
    assert len(disk.lines) == 1
    assert sum(work.cost > 0 for work in rested.works()) > 30


def test_without_a_disk_nothing_is_written() -> None:
    rested, disk, _ = made(disk_bytes_max=0)
    rested.rest(frozenset("a"))
    input = Input("a")
    for _ in range(60):
        rested.add(0, input.train(4))
        rested.add(0, input.boundary())
    assert not disk.do(0)
    assert not input.given
    assert rested.held_back == {"a"}
    assert len(disk.lines) == 1


def test_what_could_not_be_written_is_tried_again_a_little_later() -> None:
    rested, disk, _ = made()
    rested.rest(frozenset("a"))
    input = Input("a")
    for _ in range(10):
        rested.add(0, input.train(4))
    assert disk.do(0, fails=True)
    assert rested.error == "no room"
    assert rested.held_back == {"a"}
    assert rested.wake_at_us() == RETRY_US
    rested.tick(RETRY_US - 1)
    assert not disk.do(0)
    rested.tick(RETRY_US)
    assert disk.do(RETRY_US)
    assert rested.error == ""
    assert rested.held_back == frozenset()
    assert rested.wake_at_us() is None


def test_it_is_not_tried_again_once_nothing_is_left_to_write() -> None:
    """A reviewer found that the node woke without end."""
    rested, disk, _ = made()
    rested.rest(frozenset("a"))
    input = Input("a")
    for _ in range(10):
        rested.add(0, input.train(4))
    assert disk.do(0, fails=True)
    rested.rest(frozenset())
    for _ in range(10):
        assert rested.next(1) is not None
    rested.tick(RETRY_US)
    assert rested.wake_at_us() is None
    assert rested.error == ""


def test_while_too_little_is_left_to_write_it_is_looked_again_now_and_then() -> None:
    rested, disk, _ = made()
    rested.rest(frozenset("a"))
    input = Input("a")
    for _ in range(10):
        rested.add(0, input.train(4))
    assert disk.do(0, fails=True)
    rested.rest(frozenset())
    for _ in range(9):
        assert rested.next(1) is not None
    rested.tick(RETRY_US)
    assert rested.wake_at_us() == 2 * RETRY_US


def test_what_cannot_be_read_is_given_up_and_asked_for_again() -> None:
    rested, disk, again = made()
    rested.rest(frozenset("a"))
    input = Input("a")
    works = [input.train(4) for _ in range(20)]
    costs = sum(work.cost for work in works)
    for work in works:
        rested.add(0, work)
        while disk.do(0):
            pass
    rested.rest(frozenset())
    for _ in range(READS_MAX):
        assert rested.next(0) is None
        assert not again
        assert disk.do(0, fails=True)
    assert again == [input]
    assert rested.disk_bytes == 0
    assert rested.next(0) is None
    assert not rested.takes(input.train(1))
    assert sum(input.given) == costs
    assert not disk.do(0)
    assert ["asked for again" in line for line in disk.lines] == [True]
