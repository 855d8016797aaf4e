"""Every kind of file of an embedded run, damaged at rest between a kill and a restore."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import medusa as md
from tests.runtime.damaged_folders import Damage, Killed, content, damages, killed, opened, outcome

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")

NEEDED = "state/decisions-000000005.log"
"""What was decided after the newest checkpoint. Those before are of earlier ones."""
KINDS = (
    "checkpoint-",
    ".log",
    NEEDED,
    ".synced",
    ".decisions",
    ".arrows",
    ".index",
    ".index-copy",
    ".spill",
    "recording/",
)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return killed(tmp_path_factory.mktemp("story"))


def kind_of(damage: Damage) -> str:
    found = [each for each in KINDS if each in damage.file]
    return max(found, key=len)


def tried(story: Killed, chosen: list[Damage], tmp_path: Path) -> Counter[tuple[str, str]]:
    made: Counter[tuple[str, str]] = Counter()
    for each in chosen:
        folder = tmp_path / "copy"
        made[kind_of(each), outcome(story, each, folder)] += 1
        shutil.rmtree(folder)
    return made


def test_what_is_not_damaged_goes_on_exactly(story: Killed, tmp_path: Path) -> None:
    names = [str(each.relative_to(story.folders)) for each in story.folders.rglob("*") if each.is_file()]
    for each in KINDS:
        assert any(each in name for name in names), f"the story left no {each}"
    assert any("fresh.arrow" in name for name in names), "no checkpoint is a delta"
    assert len([name for name in names if name.endswith(".arrows")]) > 2
    assert outcome(story, Damage("state/lock", "short"), tmp_path / "copy") == "exact"


def test_a_sample_of_damaged_folders(story: Killed, tmp_path: Path) -> None:
    chance = random.Random(15)
    every = list(damages(story, chance))
    chosen = [each for kind in KINDS for each in chance.sample([e for e in every if kind_of(e) == kind], 7)]
    made = tried(story, chosen, tmp_path)
    assert sum(made.values()) == 7 * len(KINDS)
    _check_kinds(made)


def test_a_log_that_is_gone_with_its_mark_is_refused(story: Killed, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(story.folders, folder)
    for name in (NEEDED, NEEDED.replace(".log", ".synced")):
        (folder / name).unlink()
    before = content(folder)
    with pytest.raises(md.StateError, match=r"decisions-000000005.log: is missing or empty, and \d+ bytes"):
        opened(folder)
    assert content(folder) == before
    with pytest.warns(md.CheckpointWarning, match=r"decisions-000000005.log.*the run goes on without them"):
        opened(folder, decisions="readable").close()


@pytest.mark.full
@pytest.mark.issue(15)
@pytest.mark.parametrize("part", range(4))
def test_many_damaged_folders(story: Killed, tmp_path: Path, part: int) -> None:
    every = list(damages(story, random.Random(part)))
    assert len(every) > 900
    chosen = every[part::4]
    made = tried(story, chosen, tmp_path)
    if path := os.environ.get("DAMAGED_FOLDERS"):
        with Path(path).open("a") as file:
            file.write(f"{part} {len(chosen)} {sorted(made.items())}\n")
    _check_kinds(made)


def _check_kinds(made: Counter[tuple[str, str]]) -> None:
    """What can never be otherwise."""
    assert {outcome for kind, outcome in made if kind in (".synced", ".decisions")} == {"exact"}, (
        "the log itself is whole"
    )
    assert {outcome for kind, outcome in made if kind in (".index", ".index-copy")} == {"exact"}, (
        "one is whole"
    )
    assert {outcome for kind, outcome in made if kind == ".spill"} == {"exact"}, "nothing of it is state"
    assert {outcome for kind, outcome in made if kind == ".log"} == {"exact"}, (
        "only earlier checkpoints need it"
    )
    assert {outcome for kind, outcome in made if kind == NEEDED} == {"refused"}
    assert "told" not in {outcome for kind, outcome in made if kind != ".arrows"}
    assert "exact" not in {outcome for kind, outcome in made if kind == "recording/"}
