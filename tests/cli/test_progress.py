"""The line that says how far a run is: on a terminal only."""

from __future__ import annotations

import io
import sys

import pytest

from medusa.io.progress import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("fraction", [None, 0.5])
def test_a_terminal_sees_rows_and_what_is_left(
    fraction: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    with RunProgress(lambda: fraction, wanted=True) as bar:
        bar.rows(1_000)
        bar.rows(500)
        task = bar._bar.tasks[0]
        assert (task.completed, task.total) == (1_500, None if fraction is None else 3_000)
    assert "1,500 rows" in screen.getvalue()


@pytest.mark.parametrize("wanted", [True, False])
def test_nothing_is_written_where_nobody_looks(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO() if wanted else Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with RunProgress(lambda: 0.5, wanted=wanted) as bar:
        bar.rows(1_000)
    assert screen.getvalue() == ""
