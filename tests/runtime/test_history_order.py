"""In which order files of a history are written and removed: what a crash in between would leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from medusa.runtime.history import FolderSegments


def test_an_index_goes_before_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without an index are swept at the next start; an index without rows would be damage."""
    segments = FolderSegments(str(tmp_path))
    segments.begin(0, b"rows", b"index")
    gone: list[str] = []
    unlink = os.unlink

    def watched(path: str) -> None:
        gone.append(Path(path).suffix)
        unlink(path)

    monkeypatch.setattr(os, "unlink", watched)
    segments.remove(0)
    assert gone == [".index", ".arrows"]


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
    assert len(first) == 2
    assert all(synced[each] for each in first)
