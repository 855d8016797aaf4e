"""Checkpoints that a thread writes while a run goes on, or rests; in folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import medusa as md
from medusa.engine.state import background_copy, delta
from medusa.runtime.machine.job_threads import JobThreads
from medusa.runtime.store.folder_store import FolderStore

KEYS = 2_000
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "ROWS_MIN", 0)
    monkeypatch.setattr(background_copy, "AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "PICKED_AT_ONCE", 8)
    monkeypatch.setattr(background_copy, "SLICE_ROWS", 64)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Future[Any]]:
    """Those that were begun."""
    made: list[Future[Any]] = []
    start = JobThreads.start

    def noted(self: JobThreads, work: Callable[[], Any]) -> Future[Any]:
        made.append(start(self, work))
        return made[-1]

    monkeypatch.setattr(JobThreads, "start", noted)
    return made


def query() -> md.Query:
    q = md.Query("sums")
    s = q.source("s", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack=0)
    q.sink("o", s.window("1 h").group_by("k").aggregate(n=md.count()))
    return q


def push(run: md.Run) -> None:
    run.push("s", {"ts": [0] * KEYS, "k": list(range(KEYS))})


def begun(folder: Path, **options: Any) -> md.Run:
    """A run of which a checkpoint is being made, of two pushes."""
    clock = md.testing.ManualClock()
    run = md.start(query(), checkpoint=folder, clock=clock, **options)
    push(run)
    run.flush()
    clock.advance("1s")
    push(run)
    run.flush()
    return run


def checkpoints(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("checkpoint-"))


@pytest.mark.parametrize("options", [{}, {"queue": "1 MiB"}], ids=str)
def test_it_is_made_while_nobody_calls_the_run(
    tmp_path: Path, jobs: list[Future[Any]], options: dict[str, Any]
) -> None:
    run = begun(tmp_path / "s", **options)
    assert jobs[0].result(PATIENCE_S) == "checkpoint-000000002"
    push(run)
    shutil.copytree(tmp_path / "s", tmp_path / "killed")
    run.close()
    for folder, pushed in (("killed", 2), ("s", 3)):
        with md.restore(tmp_path / folder) as restored:
            assert restored.positions() == {"s": pushed * KEYS}
            restored.finish()
            assert restored.take("o")["n"].to_pylist() == [pushed] * KEYS


BOXES: dict[str, Callable[[Any], Any]] = {
    "sliding window": lambda s: s.window("21 s", "6 s").group_by("k").aggregate(n=md.count(), at="last(v)"),
    "sessions": lambda s: s.session("4 s").group_by("k").aggregate(n=md.count(), at="last(v)"),
    "windows of rows": lambda s: s.group_by("k").window_rows(3).aggregate(n=md.count(), at="last(v)"),
    "lag": lambda s: s.group_by("k").running(before=md.lag("v", 2), n=md.count()),
    "left join": lambda s: s.join(s.filter("v > 9").select("k", w="v"), on="k", within="5 s", how="left"),
}


@pytest.mark.parametrize("options", [{}, {"queue": "1 MiB"}, {"threads": 3}], ids=str)
@pytest.mark.parametrize("kind", BOXES)
def test_a_run_goes_on_from_those_that_were_made_meanwhile(
    tmp_path: Path, jobs: list[Future[Any]], kind: str, options: dict[str, Any]
) -> None:
    """Killed when some are made; what it had gives what an undisturbed run does."""
    q = md.Query("q")
    s = q.source("s", {"ts": "int64", "k": "int64", "v": "int64"}, time="ts", unit="s", slack="3 s")
    q.sink("o", BOXES[kind](s))
    draw = np.random.default_rng(len(kind))
    batches = [
        {"ts": 100 + at // 3 + draw.integers(0, 3, 60), "k": draw.integers(0, 300, 60), "v": np.full(60, at)}
        for at in range(30)
    ]

    def given(run: md.Run, first: int, end: int) -> None:
        for at in range(first, end):
            run.push("s", batches[at], first=60 * at)

    with md.start(q) as run:
        given(run, 0, len(batches))
        run.finish()
        wanted = run.take("o")
    with md.start(q, checkpoint=tmp_path / "s", checkpoint_every="5ms", **options) as run:
        given(run, 0, 20)
        run.flush()
        for job in jobs:
            job.result(PATIENCE_S)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
        given(run, 20, len(batches))
        run.finish()
        assert run.take("o").equals(wanted)
    with md.restore(tmp_path / "killed") as run:
        given(run, run.positions()["s"] // 60, len(batches))
        run.finish()
        assert run.take("o").equals(wanted)


def test_it_is_made_while_somebody_always_calls_the_run(tmp_path: Path, jobs: list[Future[Any]]) -> None:
    run = begun(tmp_path / "s")
    pushes = 2
    while run._checkpoints._under_way is not None:
        push(run)
        pushes += 1
    assert jobs[0].done()
    assert checkpoints(tmp_path / "s")[-1] == "checkpoint-000000002"
    run.finish()
    assert run.take("o")["n"].to_pylist() == [pushes] * KEYS
    run.close()


def test_a_disk_that_fails_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[Future[Any]]
) -> None:
    write, failed = FolderStore.write, []

    def full_once(self: FolderStore, name: str, files: Mapping[str, Any]) -> None:
        if name == "checkpoint-000000002" and not failed:
            failed.append(name)
            raise md.StateError("No space left on device", code="state.io")
        write(self, name, files)

    monkeypatch.setattr(FolderStore, "write", full_once)
    run = begun(tmp_path / "s")
    with pytest.raises(md.StateError, match="No space left"):
        jobs[0].result(PATIENCE_S)
    with pytest.warns(md.CheckpointWarning, match="No space left"):
        push(run)
    run.close()
    with md.restore(tmp_path / "s") as restored:
        assert restored.positions() == {"s": 3 * KEYS}


def test_a_program_that_ends_waits_for_it(tmp_path: Path) -> None:
    program = f"""
        import medusa as md
        from medusa.engine.state import background_copy
        from tests.runtime.test_checkpoints_meanwhile import begun
        background_copy.AT_ONCE = background_copy.PICKED_AT_ONCE = 8
        background_copy.SLICE_ROWS = 64
        from pathlib import Path
        run = begun(Path({str(tmp_path / "s")!r}))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=PATIENCE_S)
    with md.restore(tmp_path / "s") as restored:
        assert restored.positions() == {"s": 2 * KEYS}
