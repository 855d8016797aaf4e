"""What strangers found: a kill before anything is durable, an index that is lost, an earlier checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.runtime.damaged_folders import content
from tests.runtime.test_history import push, query, through

pytestmark = pytest.mark.filterwarnings("ignore::medusa.LateWarning")


def dies(program: Callable[[], Any]) -> None:
    """Run it in a child that is killed with -9 right after."""
    child = os.fork()
    if not child:
        try:
            kept = program()
            os.kill(os.getpid(), signal.SIGKILL)
            del kept
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("rows", [0, 90])
def test_a_run_that_is_killed_before_its_first_checkpoint_is_restored(tmp_path: Path, rows: int) -> None:
    """Also with rows of a history on disk: there is a checkpoint of the start."""
    state, history = tmp_path / "s", tmp_path / "h"

    def live() -> Any:
        run = md.start(query(), checkpoint=state, checkpoint_every=None, history=history)
        push(run, 0, rows)
        run._fragment.connections.sync()
        return run

    dies(live)
    with pytest.raises(md.StateError) as told:
        md.start(query(), checkpoint=state, history=history)
    assert told.value.code == "state.exists"
    with md.restore(state, history=history) as run:
        assert run.positions() == {"cars": 0}
        assert run.history("recent").next == 0
        push(run, 0, 120)
        assert run.view("recent").equals(through(0, 120))


def segments(tmp_path: Path) -> tuple[Path, list[Path]]:
    """The history of a run with several segments, and their rows."""
    with md.start(
        query(keep=None, keep_bytes="256 KiB"), checkpoint=tmp_path / "s", history=tmp_path / "h"
    ) as run:
        push(run, 0, 6_000, 500)
        assert run.history("recent").first == 0
    found = sorted((tmp_path / "h" / "recent").glob("*.arrows"))
    assert len(found) > 3
    return tmp_path / "h", found


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_lost_index_is_that_of_its_copy(tmp_path: Path, which: int) -> None:
    history, files = segments(tmp_path)
    before = content(history)
    for ending in (".index", ".index-copy"):
        files[which].with_suffix(ending).unlink()
        assert md.read_history(history, "recent").equals(through(0, 6_000))
        with md.restore(tmp_path / "s", history=history) as run:
            assert run.view("recent").equals(through(0, 6_000))
            assert run.history("recent").trimmed == 0
        assert content(history) == before, "it is there again"


@pytest.mark.parametrize("which", [0, 1, -1])
def test_rows_of_which_both_indexes_are_lost_are_kept_and_missed(tmp_path: Path, which: int) -> None:
    history, files = segments(tmp_path)
    for ending in (".index", ".index-copy"):
        files[which].with_suffix(ending).unlink()
    kept = files[which].read_bytes()
    first = int(files[which].stem)
    whole = through(0, 6_000)
    end = int(files[which + 1].stem) if which >= 0 else len(whole)
    with pytest.raises(md.StateError, match=f"{first:018d}.index") as told:
        md.read_history(history, "recent")
    assert told.value.code == "state.corrupt"
    words = (
        f"{first:018d}.index is damaged or missing: rows {first} to {end - 1} of connection_point 'recent'"
    )
    with pytest.warns(md.CheckpointWarning, match=words):
        run = md.restore(tmp_path / "s", history=history)
    with run:
        push(run, 6_000, 6_050)
        with pytest.raises(md.StateError, match=f"rows {first} to {end - 1} are damaged"):
            run.view("recent")
        good = (0, first) if which < 0 else (end, len(whole))
        assert run.view("recent", rows=good).equals(whole.slice(good[0], good[1] - good[0]))
        assert run.view("recent", rows=(len(whole), len(whole) + 9)).num_rows == 9
    assert files[which].read_bytes() == kept


def test_a_lost_last_part_is_never_fewer_rows(tmp_path: Path) -> None:
    """Whoever reads a history without its run is told what isn't there."""
    history, files = segments(tmp_path)
    size = files[-1].stat().st_size
    for length in (0, 8, size // 2, size - 1):
        os.truncate(files[-1], length)
        with pytest.raises(md.StateError, match=r"rows \d+ to \d+ are damaged"):
            md.read_history(history, "recent")
        assert md.read_history(history, "recent", rows=(0, int(files[-1].stem))).num_rows == int(
            files[-1].stem
        )
    files[-1].unlink()
    with pytest.raises(md.StateError, match=f"{files[-1]} can't be read: No such file"):
        md.read_history(history, "recent")


# -- earlier checkpoints


def counted(tmp_path: Path) -> Path:
    """Checkpoints of 0, 10 and 20 rows, the last two of them kept."""
    with md.start(query(), checkpoint=tmp_path / "s", checkpoint_every=None) as run:
        push(run, 0, 10)
        run.checkpoint()
        push(run, 10, 20)
    return tmp_path / "s"


def names(state: Path) -> list[int]:
    return sorted(int(each.name.removeprefix("checkpoint-")) for each in state.glob("checkpoint-*"))


def test_newer_checkpoints_stay_until_the_run_has_come_as_far(tmp_path: Path) -> None:
    state = counted(tmp_path)
    assert names(state) == [2, 3]
    newest = content(state / "checkpoint-000000003")
    with md.restore(state, checkpoint="checkpoint-000000002") as run:
        for end in (12, 15, 18):
            push(run, run.positions()["cars"], end)
            run.checkpoint()
            assert 3 in names(state)
        last = names(state)[-1]
    assert names(state)[-2:] == [last, last + 1]
    assert content(state / "checkpoint-000000003") == newest
    with md.restore(state) as run:  # it is known in the next life too
        assert run.positions() == {"cars": 18}
        run.checkpoint()
        assert 3 in names(state)
    with md.restore(shutil.copytree(state, tmp_path / "back"), checkpoint="checkpoint-000000003") as run:
        assert run.positions() == {"cars": 20}
        push(run, 20, 30)
    with md.restore(state) as run:
        push(run, 18, 20)
        run.checkpoint()
        assert 3 in names(state), "one that is as far may be damaged"
        run.checkpoint()
        assert 3 not in names(state)
        assert len(names(state)) == 2


def test_newer_checkpoints_stay_with_what_they_are_deltas_on(tmp_path: Path) -> None:
    q = md.Query("large")
    cars = q.source("cars", {"ts": "int64", "vid": "int64"}, time="ts", unit="s")
    q.sink("counts", cars.window("1h").group_by("vid").aggregate(n=md.count()))
    state = tmp_path / "s"
    with md.start(q, checkpoint=state, checkpoint_every=None) as run:
        run.push("cars", {"ts": [1] * 5_000, "vid": list(range(5_000))})
        for _ in range(3):
            run.checkpoint()
            run.push("cars", {"ts": [2], "vid": [7]})
    *_, older, newest = names(state)
    assert list((state / f"checkpoint-{newest:09d}").glob("*.fresh.arrow"))
    with md.restore(state, checkpoint=f"checkpoint-{older:09d}") as run:
        for _ in range(3):
            run.checkpoint()
        with pytest.raises(md.StateError, match="in use"):
            md.restore(state)
    with md.restore(state, checkpoint=f"checkpoint-{newest:09d}") as run:
        assert run.positions() == {"cars": 5_003}


def test_a_newer_checkpoint_whose_manifest_is_damaged_goes_with_the_second_after_it(tmp_path: Path) -> None:
    state = counted(tmp_path)
    (state / "checkpoint-000000003" / "manifest.json").write_bytes(b"{}")
    with md.restore(state, checkpoint="checkpoint-000000002") as run:
        run.checkpoint()
        assert names(state) == [2, 3, 4]
        run.checkpoint()
        assert names(state) == [4, 5]


def test_decisions_stay_for_newer_checkpoints(tmp_path: Path) -> None:
    """Whoever goes back to one goes on through the logs behind it."""
    rows = {"n": "int64"}
    q = md.Query("merged")
    left, right = q.source("left", rows, time=None), q.source("right", rows, time=None)
    q.sink("all", left.union(right))
    state = tmp_path / "s"
    run = md.start(q, checkpoint=state, checkpoint_every=None)
    run.push("left", {"n": [0]})
    run.checkpoint()
    run.push("right", {"n": [1]})
    run.checkpoint()
    run.push("left", {"n": [2]})
    run.push("right", {"n": [3]})
    assert run.take("all")["n"].to_pylist() == [0, 1, 2, 3]
    shutil.copytree(state, tmp_path / "killed")
    run.close()
    with md.restore(tmp_path / "killed", checkpoint="checkpoint-000000002") as run:
        for _ in range(3):
            run.checkpoint()
        logs = [each.name for each in (tmp_path / "killed").glob("decisions-*.log")]
        assert "decisions-000000004.log" in logs
        shutil.copytree(tmp_path / "killed", tmp_path / "again")
    with md.restore(tmp_path / "again", checkpoint="checkpoint-000000003") as run:
        assert run.positions() == {"left": 1, "right": 1}
        run.push("right", {"n": [3]})
        run.push("left", {"n": [2]})
        assert run.take("all")["n"].to_pylist() == [0, 1, 2, 3]
