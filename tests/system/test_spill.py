"""State larger than memory, in processes: exact, with memory bounded, also when they are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def run(program: str, *arguments: object, seconds_max: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.system.{program}", *map(str, arguments)],
        cwd=ROOT,
        timeout=seconds_max,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def measured(folder: Path, keys: int, budget: int, seconds_max: int) -> dict[str, Any]:
    done = run("spilled_run", folder / "spill", keys, budget, seconds_max=seconds_max)
    assert [path.name for path in (folder / "spill").iterdir()] == ["spill.lock"]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def joined(folder: Path, rows: int, budget: int, seconds_max: int) -> dict[str, Any]:
    done = run("spilled_join", folder / "spill", rows, budget, seconds_max=seconds_max)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.system
def test_state_of_eight_times_its_budget(tmp_path: Path) -> None:
    """800,000 keys take 64 MB; the rows that leave are compared one by one, in their order."""
    found = measured(tmp_path, 800_000, 8 * MIB, 120)
    assert found["state"] <= 8 * MIB
    assert found["spilled"] > 50 * MIB
    # What the budget doesn't count: rows on their way, buffers of pyarrow, heads of the runs that are merged.
    assert found["needed"] < 48 * MIB


@pytest.mark.system
@pytest.mark.full
@pytest.mark.issue(4)
def test_two_gigabytes_of_state_in_256_mb(tmp_path: Path) -> None:
    found = measured(tmp_path, 26_000_000, 256 * MIB, 3_600)
    assert found["state"] <= 256 * MIB
    assert found["spilled"] > 1800 * MIB
    assert found["needed"] < 768 * MIB


@pytest.mark.system
def test_rows_that_wait_in_a_join(tmp_path: Path) -> None:
    """All rows of one side wait for the other: 12 MB of them."""
    found = joined(tmp_path, 100_000, 3 * MIB, 120)
    assert found["state"] <= 4 * MIB  # the last push may be beyond
    assert found["spilled"] > 8 * MIB
    assert found["needed"] < 80 * MIB


@pytest.mark.system
@pytest.mark.full
@pytest.mark.issue(4)
def test_a_gigabyte_of_rows_that_wait_in_a_join(tmp_path: Path) -> None:
    found = joined(tmp_path, 9_000_000, 128 * MIB, 3_600)
    assert found["spilled"] > 900 * MIB
    assert found["needed"] < 512 * MIB


@pytest.mark.system
@pytest.mark.parametrize(("kind", "keys", "kills"), [("window", 6_000, 10), ("running", 2_500, 3)])
def test_killed_while_it_spills(tmp_path: Path, kind: str, keys: int, kills: int) -> None:
    done = run("spilled_killed", tmp_path, keys, 1, kills, kind, seconds_max=120)
    assert f"{kills} killed" in done.stdout


@pytest.mark.system
@pytest.mark.full
@pytest.mark.issue(4)
@pytest.mark.parametrize("kind", ["window", "running"])
def test_killed_while_it_spills_100_times(tmp_path: Path, kind: str) -> None:
    done = run("spilled_killed", tmp_path, 6_000, 2, 100, kind, seconds_max=3_600)
    assert "100 killed" in done.stdout
