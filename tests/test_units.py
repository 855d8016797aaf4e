"""Durations and byte counts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import DataError, QueryError
from medusa.units import DURATION_MAX_US, byte_count, duration_text, duration_us, size_text


@pytest.mark.parametrize(
    ("value", "expected_us"),
    [
        ("100ms", 100_000),
        ("5 min", 300_000_000),
        ("1h", 3_600_000_000),
        ("2 days", 172_800_000_000),
        ("1h 30min", 5_400_000_000),
        ("1h30min", 5_400_000_000),
        ("0.5 s", 500_000),
        ("1.000001s", 1_000_001),
        (" 7 Seconds ", 7_000_000),
        ("3µs", 3),
        ("0s", 0),
        (timedelta(minutes=1, microseconds=5), 60_000_005),
        (250, 250),
        (0, 0),
        (DURATION_MAX_US, DURATION_MAX_US),
    ],
)
def test_durations(value: str | int | timedelta, expected_us: int) -> None:
    assert duration_us(value) == expected_us


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", 'write "100ms"'),
        ("soon", "is no duration"),
        ("5 m", 'minutes are "min"'),
        ("10", 'say which unit: "10s", "10ms"'),
        ("s", "is no duration"),
        ("1h 30", "is no duration"),
        ("-5s", "is no duration"),
        ("1e3 s", "is no duration"),
        (1.5, "float 1.5 is no duration"),
        (True, "bool True is no duration"),
        (None, "NoneType None is no duration"),
        ("0.5us", "no whole number of microseconds"),
        (-1, "at least 0s"),
        (timedelta(seconds=-1), "at least 0s"),
        (DURATION_MAX_US + 1, "longer than 2,283 years"),
        ("9" * 18 + " days", "longer than 2,283 years"),
        ("9" * 200 + "s", "is no duration"),
    ],
)
def test_what_is_no_duration(value: object, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        duration_us(value, what="window: size")  # type: ignore[arg-type]
    assert str(caught.value).startswith("window: size")
    assert says in str(caught.value)
    assert caught.value.code == "query.duration"


def test_least_and_kind_of_error() -> None:
    with pytest.raises(QueryError, match="expected a duration of longer than 0, got '0s'"):
        duration_us("0s", minimum_us=1)
    with pytest.raises(QueryError, match="of at least 1s"):
        duration_us("5ms", minimum_us=1_000_000)
    with pytest.raises(DataError):
        duration_us("never", error=DataError)


@given(st.integers(0, DURATION_MAX_US))
def test_the_text_of_a_duration_reads_back(us: int) -> None:
    assert duration_us(duration_text(us)) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0s"), (300_000_000, "5 min"), (100_000, "100ms"), (90_000_001, "1 min 30s 1us"), (-1_000, "-1ms")],
)
def test_duration_texts(us: int, text: str) -> None:
    assert duration_text(us) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [("64 MiB", 64 << 20), ("1.5 GB", 1_500_000_000), ("4096", 4096), (7, 7), ("0", 0), ("2 kib", 2048)],
)
def test_byte_counts(value: str | int, expected: int) -> None:
    assert byte_count(value) == expected


@pytest.mark.parametrize("value", ["", "lots", "5 parsecs", "0.1 B", -1, True, 1.5, None, "1 MiB 2"])
def test_what_is_no_byte_count(value: object) -> None:
    with pytest.raises(QueryError, match=r"memory: .* is no number of bytes"):
        byte_count(value, what="memory")  # type: ignore[arg-type]


def test_size_texts() -> None:
    assert [size_text(count) for count in (0, 12, 1024, 1536, 64 << 20, 3 << 40)] == [
        "0 B",
        "12 B",
        "1 KiB",
        "1.5 KiB",
        "64 MiB",
        "3072 GiB",
    ]
