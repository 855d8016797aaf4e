"""An archive that grows by epochs, without Spark: whatever dies, each row is in it once."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.pipeline import parts as files
from medusa.apps.pipeline.folder import LOCK, MANIFEST, ROWS, ArchiveFile, begin, open_folder
from medusa.apps.pipeline.growing import CHECKPOINT, Growing, held, reader_of
from medusa.apps.pipeline.replay import rows_from
from medusa.query.boxes import Field

SCHEMA = (Field("ts", "int64"), Field("k", "int32"))
ROWS_OF_EPOCH = 5


class Killed(BaseException):
    """Nothing runs on behind it."""


class Steps:
    """Everything that changes a disk, counted; it dies before one of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for owner, name in (
            (os, "fsync"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "mkdir"),
            (Path, "open"),
            (files._File, "add"),
            (files._File, "close"),
        ):
            patch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, step: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return step(*arguments, **options)

        return call


class Checkpoint:
    """What Spark keeps of a query: which rows an epoch has, before it is run; that it is done, behind it."""

    def __init__(self) -> None:
        self.planned: list[tuple[int, int]] = []
        self.done = 0

    def epochs(self, rows: int) -> Iterator[tuple[int, int, int]]:
        while True:
            if self.done == len(self.planned):
                start = self.planned[-1][1] if self.planned else 0
                if start == rows:
                    return
                self.planned.append((start, min(start + ROWS_OF_EPOCH, rows)))
            yield (self.done, *self.planned[self.done])
            self.done += 1


def opened(folder: Path, **more: Any) -> Growing:
    reader_of(folder, "q.rows")
    made = Growing.opened(
        folder, stream="q.rows", schema=SCHEMA, time="ts", unit="us", marks=("_late",), **more
    )
    (folder / CHECKPOINT).mkdir(exist_ok=True)
    return made


def write(growing: Growing, epoch: int, low: int, high: int) -> list[ArchiveFile]:
    """What a task of Spark does."""
    writing = files.WriteTask(
        folder=str(growing.folder), schema=SCHEMA, period_us=None, marks=("_late",), epoch=epoch
    )
    seq = np.arange(low, high)
    batch = pa.RecordBatch.from_pydict(
        {
            "c0": pa.array(seq),
            "c1": pa.array(seq % 7, pa.int32()),
            "t": pa.array(seq),
            "slot": pa.array(np.full(len(seq), epoch)),
            "_seq": pa.array(seq),
            "_late": pa.array(seq % 3 == 0),
        }
    )
    told = files._write(msgspec.msgpack.encode(writing), [batch])
    return [ArchiveFile(**row) for found in told for row in found.to_pylist()]


def run(folder: Path, checkpoint: Checkpoint, rows: int) -> None:
    """A driver: as ``md.spark.archive`` does it, with a Spark of our own."""
    with held(folder):
        growing = opened(folder)
        for epoch, low, high in checkpoint.epochs(rows):
            held_to = growing.held_to(epoch)
            low = low if held_to is None else max(low, held_to + 1)
            growing.add(epoch, write(growing, epoch, low, high) if low < high else [])
        growing.complete()


def seqs(folder: Path) -> list[int]:
    found = []
    for batch in rows_from(open_folder(folder)):
        assert batch.column("_late").to_pylist() == [seq % 3 == 0 for seq in batch.column("_seq").to_pylist()]
        found += batch.column("_seq").to_pylist()
    return found


def test_it_dies_at_each_step_and_each_row_is_there_once(tmp_path: Path, monkeypatch: Any) -> None:
    steps, rows = Steps(monkeypatch), 8
    for step in range(1000):
        folder, checkpoint = tmp_path / str(step), Checkpoint()
        steps.left = step
        died = False
        try:
            run(folder, checkpoint, rows)
        except Killed:
            died = True
        steps.left = -1
        if (folder / MANIFEST).exists():  # whoever reads it then has the rows of the first epochs
            assert seqs(folder) in [list(range(min(n, rows))) for n in range(0, rows + 5, ROWS_OF_EPOCH)]
        run(folder, checkpoint, rows)
        assert seqs(folder) == list(range(rows)), step
        manifest = open_folder(folder).manifest
        assert (manifest.complete, manifest.epoch, manifest.rows) == (True, 1, rows)
        listed = {part.path for part in manifest.files}
        assert {f"{ROWS}/{file.name}" for file in (folder / ROWS).iterdir()} == listed
        assert all(f"{ROWS}/e000000000{n}-" in path for n, path in enumerate(sorted(listed)))
        if not died:
            assert step > 30, "the whole run was gone through"
            return
    pytest.fail("it never came to the end")


def test_an_epoch_that_is_there_is_passed_over_whatever_its_files(tmp_path: Path) -> None:
    with held(tmp_path / "a") as folder:
        growing = opened(folder)
        first = growing.add(0, write(growing, 0, 0, 5))
        assert growing.held_to(0) == 4
        assert growing.held_to(1) is None
        assert growing.add(0, write(growing, 0, 0, 5)) == first
        growing.add(3, write(growing, 3, 5, 9))
        assert growing.held_to(2) == growing.held_to(3) == 8
        assert seqs(folder) == list(range(9)), "files that aren't listed don't count"
        # A power cut took the end of Spark's checkpoint: an epoch is planned anew, with more rows.
        growing.add(2, write(growing, 2, 9, 12))
        assert (seqs(folder), growing.manifest.epoch) == (list(range(12)), 3)


def test_rows_that_are_there_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    with held(tmp_path / "a") as folder:
        growing = opened(folder)
        growing.add(0, write(growing, 0, 0, 5))
        before = (folder / MANIFEST).read_bytes()
        for epoch in (0, 1):
            with pytest.raises(md.DataError, match="begins with row 4, and row 4 is there"):
                growing.add(epoch, write(growing, epoch, 4, 8))
        assert (folder / MANIFEST).read_bytes() == before


def test_an_archive_of_a_stream_is_never_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "a"

    def refused(said: str) -> None:
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for kind in ("archive", "table"):
            with pytest.raises(md.DataError, match=said):
                begin(folder, kind=kind, replace=True, made={})
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    with held(folder):
        refused("another process writes into it")
        reader_of(folder, "q.rows")
        refused("holds the archive of a stream, and isn't replaced")  # half-written
        growing = opened(folder)
        growing.add(0, write(growing, 0, 0, 5))
        refused("holds the archive of a stream, and isn't replaced")
    refused("holds the archive of a stream, and isn't replaced")
    assert seqs(folder) == list(range(5))


def test_a_folder_is_one_archive_s_and_one_process_s(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with held(folder), pytest.raises(md.DataError, match="another process writes into it"), held(folder):
        pass
    with held(folder):
        reader = reader_of(folder, "q.rows")
        assert reader_of(folder, "q.rows") == reader, "noted before it is used"
        growing = opened(folder)
        assert reader_of(folder, "q.rows") == reader
        with pytest.raises(md.DataError, match=r"is the archive of stream 'q.rows', and 'q.other' was asked"):
            reader_of(folder, "q.other")
        with pytest.raises(md.DataError, match="was begun with another period: None, and now it is 1000000"):
            opened(folder, period_us=1_000_000)
        growing.add(0, write(growing, 0, 0, 5))
        (folder / CHECKPOINT).rmdir()
        with pytest.raises(md.DataError, match="checkpoint .* is gone"):
            opened(folder)
    with held(tmp_path / "b") as other:
        assert reader_of(other, "q.rows") != reader
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(md.DataError, match="there is something else"), held(tmp_path / "mine"):
        pass
    assert [each.name for each in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_a_lock_that_cannot_be_had_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LOCK).mkdir()
    unraised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    with pytest.raises(md.DataError, match="can't be written: Is a directory"), held(tmp_path):
        pass
    gc.collect()
    assert unraised == []


def test_rows_that_are_missing_are_counted(tmp_path: Path) -> None:
    with held(tmp_path / "a") as path:
        reader_of(path, "q.out")
        growing = Growing.opened(path, stream="q.out", schema=SCHEMA, marks=("_late",))
        assert (growing.manifest.from_row, growing.manifest.missing_rows) == (None, 0)
        for epoch, first in enumerate((3, 500)):
            name = f"rows/e{epoch}.parquet"
            (path / name).write_bytes(b"x")
            growing.add(epoch, [ArchiveFile(path=name, rows=10, bytes=1, first=first, last=first + 9)])
        manifest = growing.complete().manifest
    assert (manifest.from_row, manifest.missing_rows) == (3, 487)
    told = manifest.to_json()
    assert (told["from_row"], told["missing_rows"], told["complete"]) == (3, 487, True)
