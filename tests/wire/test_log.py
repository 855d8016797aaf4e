"""The output log beside a list of rows that forgets nothing: positions, promises and bytes agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import END_US, START_US
from medusa.errors import LocalProtocolError
from medusa.wire import limits
from medusa.wire.link.output_log import OutputLog

STEPS = st.lists(
    st.tuples(st.sampled_from(["train", "train", "boundary", "trim", "trim to"]), st.integers(0, 40)),
    max_size=80,
)
BEHIND = st.lists(st.tuples(st.sampled_from(["late", "trim", "trim to"]), st.integers(0, 40)), max_size=8)
"""After the end only late rows may come."""


class Model:
    """Every entry there ever was, as (first row, row after the last, promise before it, cost, what it is)."""

    def __init__(self):
        self.entries = []
        self.base = self.next_seq = 0
        self.boundary_us = START_US

    def train(self, rows):
        cost = rows + limits.ENTRY_BYTES
        self.entries.append((self.next_seq, self.next_seq + rows, self.boundary_us, cost, rows))
        self.next_seq += rows

    def boundary(self, time_us):
        before = self.boundary_us
        if len(self.entries) > self.base and isinstance(self.entries[-1][4], str) and time_us < END_US:
            before = self.entries.pop()[2]
        self.entries.append((self.next_seq, self.next_seq, before, limits.ENTRY_BYTES, f"to {time_us}"))
        self.boundary_us = time_us

    @property
    def held(self):
        return self.entries[self.base :]

    @property
    def stays(self):
        """What is never trimmed: the end, as long as it is the last."""
        return int(bool(self.entries) and self.entries[-1][4] == f"to {END_US}")


def shown(entry):
    what = f"to {entry.time_us}" if entry.payload is None else len(entry.payload)
    return entry.seq, entry.end, entry.promise_us, entry.cost, what


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans(), BEHIND)
def test_the_log_and_the_model_agree(steps, ends, behind):
    log, model, time_us = OutputLog(), Model(), 0
    for what, amount in [*steps, *([("end", 0), *behind] if ends else [])]:
        match what:
            case "end":
                log.append_boundary(END_US)
                model.boundary(END_US)
            case "train" | "late" if amount:
                log.append_train(b"x" * amount, amount)
                model.train(amount)
            case "boundary" if amount:
                time_us += amount
                log.append_boundary(time_us)
                model.boundary(time_us)
            case "trim":  # rows below this are durable, and nobody stands before the last but `amount % 3`
                seq, before = model.next_seq * amount // 40, max(log.end - amount % 3, log.base)
                log.trim(seq, before)
                before = min(before, len(model.entries) - model.stays)
                while model.base < before and model.entries[model.base][1] <= seq:
                    model.base += 1
            case "trim to":
                nbytes = amount * 30
                log.trim_to(nbytes, least=amount % 2)
                least = max(amount % 2, model.stays)
                while sum(e[3] for e in model.held) > nbytes and len(model.held) > least:
                    model.base += 1
        assert (log.base, log.end, log.next_seq) == (model.base, len(model.entries), model.next_seq)
        assert [shown(entry) for entry in log.entries()] == model.held
        assert [shown(log[index]) for index in range(log.base, log.end)] == model.held
        assert log.nbytes == sum(e[3] for e in model.held)
        assert log.start_seq == (model.entries[model.base - 1][1] if model.base else 0)
        assert log.promise(log.end) == log.boundary_us == model.boundary_us
        for seq in range(log.start_seq, log.next_seq + 1, 7):
            found = next((i for i, e in enumerate(model.held) if e[1] > seq), len(model.held) - model.stays)
            assert log.find(seq) == log.base + found


def test_who_comes_after_the_end_hears_first_what_was_promised_before_it():
    log = OutputLog()
    log.append_train(b"xy", 2)
    log.append_boundary(3)
    log.append_boundary(5)
    log.append_boundary(END_US)
    assert [shown(entry)[4] for entry in log.entries()] == [2, "to 5", f"to {END_US}"]
    for _ in range(2):
        found = log.find(2)
        assert (log.promise(found), log[found].time_us, found) == (5, END_US, log.end - 1)
        log.trim(2, log.end)
        log.trim_to(0)
        assert [shown(entry)[4] for entry in log.entries()] == [f"to {END_US}"]
    assert (log.nbytes, log.boundary_us) == (limits.ENTRY_BYTES, END_US)


def test_what_was_forgotten_holds_no_memory_and_can_not_be_had():
    log = OutputLog()
    for _ in range(100):
        log.append_train(b"x", 1)
    log.trim_to(60 * (1 + limits.ENTRY_BYTES))
    assert log.base == 40
    assert sum(entry.payload is not None for entry in log._entries) == 60
    with pytest.raises(AssertionError):
        log[39]


def test_trains_of_an_impossible_size_change_nothing():
    log = OutputLog()
    for payload, rows in ((b"x", 0), (b"x", limits.ROWS_MAX + 1), (bytes(limits.PAYLOAD_BYTES_MAX + 1), 1)):
        with pytest.raises(LocalProtocolError):
            log.append_train(payload, rows)
    assert (log.end, log.nbytes, log.next_seq) == (0, 0, 0)
