"""What boxes say they hold is what their process grows by, within a factor of two."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.system.accounted import BUILDS

ROOT = Path(__file__).parents[2]
SLACK = 4 << 20
"""Of what isn't held: buffers of a train, what the allocator keeps."""

WORKS_ON_ALL = {"resample"}
"""At each boundary they compute something for all rows held, and the allocator keeps room for that."""


def check(kinds: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.system.accounted", *kinds],
        cwd=ROOT,
        timeout=600,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["kind"] for each in found] == list(kinds)
    for each in found:
        times = 4 if each["kind"] in WORKS_ON_ALL else 2
        assert each["grown"] <= times * each["held"] + SLACK, each
        assert each["held"] <= 2 * each["grown"] + SLACK, each
        assert each["held"] > SLACK, each


@pytest.mark.system
def test_some_boxes_say_what_they_hold() -> None:
    check(["window", "distinct", "table"])


@pytest.mark.system
@pytest.mark.full
@pytest.mark.issue(4)
def test_all_boxes_say_what_they_hold() -> None:
    check(list(BUILDS))
