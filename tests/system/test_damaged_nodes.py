"""Nodes are killed within a second of an event, and a file of one is damaged: exact, or the loss is told."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.system.damaged_nodes import EVENTS, Story

pytestmark = pytest.mark.system

FOLDERS = 12
"""Damaged folders of one story in the full run."""


def tried(folder: Path, seed: int, folders: int, event: str | None = None) -> Counter[str]:
    story = Story(folder, seed, event)
    outcomes: Counter[str] = Counter()
    try:
        for number in range(folders):
            ended = story.damaged(1000 * seed + number)
            assert ended.outcome != "silent", ended
            assert ended.deleted == [], ended
            outcomes[ended.outcome] += 1
    finally:
        story.close()
    return outcomes


@pytest.mark.parametrize(("event", "seed"), [("deploy", 0), ("move", 1)])
def test_a_sample_of_damaged_nodes(tmp_path_factory: pytest.TempPathFactory, event: str, seed: int) -> None:
    assert tried(tmp_path_factory.mktemp("d"), seed, 5, event)["exact"] > 0


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_damaged_nodes(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """360 in all, as many of each event."""
    outcomes = tried(tmp_path_factory.mktemp("d"), seed, FOLDERS)
    if path := os.environ.get("DAMAGED_FOLDERS"):
        with Path(path).open("a") as file:
            file.write(f"{EVENTS[seed % len(EVENTS)]} {sorted(outcomes.items())}\n")
