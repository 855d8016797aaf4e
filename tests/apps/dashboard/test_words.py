"""Numbers and names for people."""

from __future__ import annotations

import pytest

from medusa.apps.dashboard.words import ago, clipped, columns, count, lag, percent, plain


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "?"),
        (0, "0"),
        (0.25, "0.2"),
        (9.5, "9.5"),
        (952.4, "952"),
        (9999, "9,999"),
        (12345, "12.3k"),
        (4_560_000, "4.56M"),
        (7.1e9, "7.1G"),
    ],
)
def test_counts(number: float | None, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "?"), (0, "0 %"), (0.0001, "<0.1 %"), (0.004, "0.4 %"), (0.5, "50 %"), (1.0, "100 %")],
)
def test_shares(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_durations() -> None:
    assert [lag(us) for us in (None, 0, 400, 120_000, 4_200_000, 180_000_000)] == [
        "?",
        "0 s",
        "1 ms",
        "120 ms",
        "4.2 s",
        "3 min",
    ]
    assert [ago(seconds) for seconds in (0, 59, 7300, 200_000)] == ["0 s", "59 s", "2 h", "2 d"]


def test_names_are_cut_in_the_middle_and_are_plain() -> None:
    assert clipped("short", 10) == "short"
    for name in ("x" * 5000, "界" * 50, "query/filter-with-a-long-name-16f2", "\n" * 99):
        cut = clipped(name, 20)
        assert columns(cut) <= 20
        assert cut.isprintable()
        assert name.isprintable() is (cut[-1] == name[-1])
    assert plain("a\0b\ud800c\x1b") == "a�b�c�"
