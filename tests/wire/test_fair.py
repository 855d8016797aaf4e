"""Which stream goes next: nothing lost, order kept, shares by weight, idle shares to the others."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import LocalProtocolError
from medusa.wire.link.fair_queue import QUANTUM_BYTES, FairQueue

STREAMS = st.sampled_from("abcde")
WEIGHTS = {"a": 1, "b": 2, "c": 4, "d": 3, "e": 1000}
COST_MAX = 5000


def drained(queue):
    out = []
    while len(queue):
        out.append(queue.take())
    assert queue.take() is None
    return out


class Plain:
    """Deficit round robin as it is in the paper: every round is walked through."""

    def __init__(self, quantum):
        self.quantum, self.ring, self.items, self.deficit = quantum, deque(), {}, {}
        self.begun = None

    def put(self, stream, cost, item):
        if stream not in self.items:
            self.items[stream] = deque()
            self.deficit[stream] = 0
            self.ring.append(stream)
        self.items[stream].append((cost, item))

    def take(self):
        while self.ring:
            stream = self.ring[0]
            if self.begun != stream:
                self.begun = stream
                self.deficit[stream] += self.quantum * WEIGHTS[stream]
            cost, item = self.items[stream][0]
            if cost <= self.deficit[stream]:
                self.items[stream].popleft()
                self.deficit[stream] -= cost
                if not self.items[stream]:
                    self.ring.popleft()
                    self.begun = None
                    del self.items[stream], self.deficit[stream]
                return item
            self.ring.rotate(-1)
            self.begun = None
        return None


STEPS = st.lists(
    st.one_of(st.tuples(STREAMS, st.integers(1, COST_MAX)), st.just("take"), st.just("first")), max_size=200
)


@given(STEPS)
def test_nothing_is_lost_and_each_stream_keeps_its_order(steps):
    queue, put, out = FairQueue(quantum_bytes=64), [], []
    for number, step in enumerate(steps):
        if step == "take":
            expected = len(queue) > 0
            item = queue.take()
            assert (item is not None) is expected
            out += [item] if expected else []
        elif step == "first":
            queue.put_first(("", number))
            put.append(("", number))
        else:
            queue.put(step[0], WEIGHTS[step[0]], step[1], (step[0], number))
            put.append((step[0], number))
    out += drained(queue)
    assert Counter(out) == Counter(put)
    assert queue.nbytes == 0
    for stream in {each for each, _ in put}:
        numbers = [number for each, number in out if each == stream]
        assert numbers == sorted(numbers)


@settings(max_examples=60)
@given(st.lists(st.tuples(STREAMS, st.integers(1, COST_MAX)), min_size=1, max_size=120), st.integers(1, 700))
def test_the_order_is_that_of_the_paper(items, quantum):
    queue, plain = FairQueue(quantum_bytes=quantum), Plain(quantum)
    for number, (stream, cost) in enumerate(items):
        queue.put(stream, WEIGHTS[stream], cost, (stream, number))
        plain.put(stream, cost, (stream, number))
    assert drained(queue) == [plain.take() for _ in items]


@given(
    st.dictionaries(STREAMS, st.lists(st.integers(1, COST_MAX), min_size=1, max_size=10), min_size=2),
    st.integers(1, 2000),
)
def test_shares_of_streams_with_enough_to_send_differ_by_less_than_a_quantum_and_a_frame(costs, quantum):
    queue, left = FairQueue(quantum_bytes=quantum), Counter()
    for round_ in range(30):
        for stream, sizes in costs.items():
            queue.put(
                stream, WEIGHTS[stream], sizes[round_ % len(sizes)], (stream, sizes[round_ % len(sizes)])
            )
            left[stream] += 1
    sent = Counter()
    while all(left[stream] > 1 for stream in costs):
        stream, cost = queue.take()
        sent[stream] += cost
        left[stream] -= 1
        shares = [(sent[each] / WEIGHTS[each], max(costs[each]) / WEIGHTS[each]) for each in costs]
        for one, slack in shares:
            for other, its_slack in shares:
                assert one - other <= quantum + slack + its_slack


def share_of(queue, streams, volume):
    sent = Counter()
    while sent.total() < volume:
        stream, cost = queue.take()
        sent[stream] += cost
        queue.put(stream, WEIGHTS[stream], cost, (stream, cost))
    return {stream: sent[stream] / sent.total() for stream in streams}


@pytest.mark.parametrize("cost", [200, 64 << 10, 512 << 10])
def test_weights_are_shares_and_those_of_an_idle_stream_go_to_the_others(cost):
    queue, volume = FairQueue(), max(1000 * cost, 2_000_000)
    for stream in "ac":
        for _ in range(3):
            queue.put(stream, WEIGHTS[stream], cost, (stream, cost))
    assert share_of(queue, "ac", volume) == pytest.approx({"a": 1 / 5, "c": 4 / 5}, abs=0.005)
    for _ in range(3):
        queue.put("b", WEIGHTS["b"], cost, ("b", cost))
    share = share_of(queue, "abc", volume)
    assert share == pytest.approx({"a": 1 / 7, "b": 2 / 7, "c": 4 / 7}, abs=0.005)
    queue.drop("c")
    assert share_of(queue, "ab", volume) == pytest.approx({"a": 1 / 3, "b": 2 / 3}, abs=0.005)


def test_an_idle_stream_saves_nothing_up():
    queue = FairQueue()
    queue.put("c", 4, 1, ("c", 1))
    assert queue.take() == ("c", 1)  # It could have sent 4095 bytes more, and has nothing.
    for _ in range(40):
        queue.put("a", 1, 1024, ("a", 1024))
        queue.put("c", 1, 1024, ("c", 1024))
    first = [queue.take()[0] for _ in range(20)]
    assert first.count("c") == 10
    assert all(one != other for one, other in pairwise(first))


def test_urgent_things_go_before_all_streams_and_in_order():
    queue = FairQueue()
    queue.put("a", 1, 10, "row")
    queue.put_first("one")
    queue.put_first("two")
    assert (len(queue), queue.heads) == (3, 3)
    assert drained(queue) == ["one", "two", "row"]


def test_what_is_dropped_is_gone_and_its_stream_begins_anew():
    queue = FairQueue()
    for number in range(3):
        queue.put("a", 1, 2000, ("a", number))
        queue.put("b", 1, 2000, ("b", number))
    assert queue.take() == ("a", 0)
    assert queue.drop("a") == 2
    assert queue.drop("a") == 0
    assert (len(queue), queue.nbytes) == (3, 6000)
    queue.put("a", 1, 10, ("a", "new"))
    assert set(drained(queue)) == {("a", "new"), ("b", 0), ("b", 1), ("b", 2)}
    queue.put("a", 1, 10, "x")
    queue.clear()
    assert (len(queue), queue.nbytes, queue.take()) == (0, 0, None)


def test_a_new_weight_counts_from_the_next_turn_on():
    queue = FairQueue()
    for weight in (1, 8):
        for stream in "ab":
            for _ in range(50):
                queue.put(stream, weight if stream == "a" else 1, QUANTUM_BYTES, (stream, QUANTUM_BYTES))
    first = [queue.take()[0] for _ in range(45)]
    assert first.count("a") in range(38, 42)


@pytest.mark.parametrize(("weight", "cost"), [(0, 1), (1, 0), (-1, 5)])
def test_impossible_weights_and_costs_change_nothing(weight, cost):
    queue = FairQueue()
    with pytest.raises(LocalProtocolError, match="at least 1"):
        queue.put("a", weight, cost, "x")
    assert len(queue) == 0
    with pytest.raises(LocalProtocolError):
        FairQueue(quantum_bytes=0)
