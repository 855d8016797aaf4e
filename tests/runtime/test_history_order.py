"""In which order files of a history are written and removed: what a crash in between would leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medusa.runtime.store.history_files import FolderSegments


def test_rows_are_renamed_before_anything_of_their_segment_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the segment doesn't count; rows that lost their index still do."""
    segments = FolderSegments(str(tmp_path))
    segments.begin(0, b"rows", b"index")
    gone: list[str] = []
    unlink = os.unlink

    def watched(path: str) -> None:
        assert segments.names() == []
        gone.append(Path(path).suffix)
        unlink(path)

    monkeypatch.setattr(os, "unlink", watched)
    segments.remove(0)
    assert gone == [".index", ".index-copy", ".removed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kill", range(4))
def test_a_removal_that_was_cut_off_is_finished_and_lost_indexes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: int
) -> None:
    """Rows of which the index was lost don't look as if they were being removed."""
    segments = FolderSegments(str(tmp_path))
    segments.begin(0, b"rows", b"index")
    segments.begin(5, b"\xff\xff\xff\xff\x08\0\0\0the headthe rows", b"index")
    segments.close()
    for ending in ("index", "index-copy"):
        (tmp_path / f"{5:018d}.{ending}").unlink()
    left = [kill]
    unlink = os.unlink

    def killed(path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(os, "unlink", killed)
    try:
        segments.remove(0)
    except KeyboardInterrupt:
        assert kill < 3
    monkeypatch.undo()
    again = FolderSegments(str(tmp_path))
    assert again.names() == [5]
    again.sweep()
    assert [each.name for each in tmp_path.iterdir()] == [f"{5:018d}.arrows"]
    assert again.holds_rows()


def test_a_segment_is_synced_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = FolderSegments(str(tmp_path))
    segments.begin(0, b"rows", b"index")
    segments.append(b"more", b"more")
    synced: dict[int, bool] = {}
    fsync = os.fsync

    def watched(number: int) -> None:
        synced.setdefault(os.fstat(number).st_ino, len(segments.names()) == 1)
        fsync(number)

    monkeypatch.setattr(os, "fsync", watched)
    segments.begin(5, b"rows", b"index")
    segments.close()
    first = [path.stat().st_ino for path in tmp_path.glob("*0.*")]
    assert len(first) == 3
    assert all(synced[each] for each in first)
