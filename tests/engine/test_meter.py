"""Rates: what came within the last seconds, over those seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.engine.qos.rates import EVERY_US, OVER_US, Meter

SECOND = 1_000_000


class Driver:
    """Tells a meter of rows as a fragment does: the time before each push, and of the last one."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.events: list[tuple[int, int]] = []
        self.count = 0
        self.last_us: int | None = None

    def push(self, now_us: int, rows: int) -> None:
        if now_us >= self.meter.due_us:
            self.meter.note(now_us, [self.count], self.last_us)
        self.last_us = now_us
        self.count += rows
        self.events.append((now_us, rows))

    def rate(self, now_us: int) -> float | None:
        found = self.meter.rates(now_us, [self.count], self.last_us)
        return None if found is None else found[0]

    def came_by(self, us: int) -> int:
        return sum(rows for at, rows in self.events if at <= us)


def test_no_time_no_rate() -> None:
    driver = Driver()
    assert driver.rate(0) is None
    driver.push(7, 100)
    assert driver.rate(7) is None
    assert driver.rate(7 + SECOND) == 100.0


def test_a_steady_stream_has_its_rate_from_the_second_row_on() -> None:
    driver = Driver()
    for tenth in range(200):
        driver.push(tenth * 100_000, 10)
    assert driver.rate(200 * 100_000) == pytest.approx(100, rel=0.05)


def test_a_pause_counts_as_nothing_at_all() -> None:
    driver = Driver()
    driver.push(0, 10_000)
    driver.push(55 * SECOND, 0)
    assert driver.rate(60 * SECOND) == 0
    driver.push(58 * SECOND, 500)
    assert driver.rate(60 * SECOND) == 100
    assert driver.rate(64 * SECOND) == 0


def test_what_came_before_the_first_note_is_no_rate() -> None:
    meter = Meter()
    meter.note(0, [1_000_000])
    assert meter.rates(SECOND, [1_000_010]) == [10]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 1000)), min_size=1, max_size=60),
    st.integers(1, 8 * SECOND),
)
def test_a_rate_is_what_came_in_the_window(pushes: list[tuple[int, int]], wait_us: int) -> None:
    driver, now_us = Driver(), 0
    for gap_us, rows in pushes:
        now_us += gap_us
        driver.push(now_us, rows)
    first_us = driver.events[0][0]
    now_us += wait_us
    begin_us = max(now_us - OVER_US, first_us)
    span_s = (now_us - begin_us) / SECOND
    rate = driver.rate(now_us)
    assert rate is not None
    if begin_us == first_us:
        assert rate * span_s == pytest.approx(driver.count)
        return
    # Rows are spread over at most the time between two notes.
    most = driver.count - driver.came_by(begin_us - EVERY_US - 1)
    least = driver.count - driver.came_by(begin_us + EVERY_US)
    assert least - 1e-6 <= rate * span_s <= most + 1e-6


def test_notes_are_forgotten() -> None:
    driver = Driver()
    for tick in range(10_000):
        driver.push(tick * EVERY_US, 1)
    assert len(driver.meter._notes) <= 2 * OVER_US // EVERY_US + 4
