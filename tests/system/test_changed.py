"""Killed with -9 in the middle of a change: what goes on is the old query or the new one, wholly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.changed_query import STAYS
from tests.system.changed_run import CHANGES, FIRST
from tests.system.test_restore import ROOT, read_rows

SINKS = (*STAYS, *dict.fromkeys(f"o_{name}" for names in (FIRST, *CHANGES.values()) for name in names))


@pytest.mark.system
@pytest.mark.parametrize("moments", [10, pytest.param(100, marks=[pytest.mark.full, pytest.mark.issue(4)])])
def test_a_change_survives_kill_9(tmp_path: Path, moments: int) -> None:
    program = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.system.changed_run",
        str(tmp_path),
        str(moments),
        "7",
    ]
    done = subprocess.run(program, cwd=ROOT, timeout=600, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = read_rows(tmp_path / "whole" / "out", SINKS)
    assert all(expected.values()), "some sink gave nothing, so nothing was shown"
    ends = [0, *CHANGES, 10**9]
    killed, found = 0, set()
    for moment in range(moments):
        folder = tmp_path / str(moment)
        assert read_rows(folder / "out", SINKS) == expected, f"moment {moment}"
        if (folder / "found").exists():
            killed += 1
            told = json.loads((folder / "found").read_text())
            found.add(told["query"])
            # The query that the checkpoint holds is the one that its rows went through.
            for position in told["positions"].values():
                assert ends[told["query"]] <= position <= ends[told["query"] + 1]
    assert killed > moments // 2
    assert len(found) > 1, "it was always the same query"
