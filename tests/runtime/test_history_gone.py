"""A history of which nothing is left: a restore says which rows were kept there."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

import medusa as md
from tests.runtime.test_history import push, query, through

pytestmark = pytest.mark.filterwarnings("ignore::medusa.LateWarning")


@pytest.mark.parametrize("what", ["the whole folder", "that of the point", "its files"])
def test_a_history_that_is_gone_is_told(tmp_path: Path, what: str) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h") as run:
        push(run, 0, 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", md.CheckpointWarning)
        md.restore(tmp_path / "s", history=tmp_path / "h").close()
    recent = tmp_path / "h" / "recent"
    shutil.rmtree(tmp_path / "h" if what == "the whole folder" else recent)
    if what == "its files":
        recent.mkdir()
    with pytest.warns(
        md.CheckpointWarning, match=rf"{recent}: holds nothing .* rows 0 to 54 were kept"
    ) as told:
        run = md.restore(tmp_path / "s", history=tmp_path / "h")
    assert len(told) == 1
    with run:
        push(run, 60, 90)
        assert run.view("recent").equals(through(60, 90))
    with warnings.catch_warnings():  # What was kept since then is there.
        warnings.simplefilter("error", md.CheckpointWarning)
        with md.restore(tmp_path / "s", history=tmp_path / "h") as run:
            assert run.view("recent").equals(through(60, 90))


def test_a_history_that_kept_nothing_lacks_nothing(tmp_path: Path) -> None:
    with md.start(query(), checkpoint=tmp_path / "s", history=tmp_path / "h"):
        pass
    shutil.rmtree(tmp_path / "h")
    with warnings.catch_warnings():
        warnings.simplefilter("error", md.CheckpointWarning)
        md.restore(tmp_path / "s", history=tmp_path / "h").close()
