"""FolderSpill: what a run spills, and what is left of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.runtime.store import spill
from medusa.runtime.store.spill import FolderSpill


def files(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_bytes_come_back_from_anywhere(tmp_path: Path) -> None:
    one = FolderSpill(tmp_path / "s")
    one.append("1", [b"abc", b"", memoryview(bytearray(b"de"))])
    one.append("1", [b"fgh"] * 3)
    one.append("2", [b"x"])
    assert one.read("1", 3, 4) == b"defg"
    assert bytes(one.map("1")) == b"abcdefghfghfgh"
    assert files(tmp_path / "s") == ["1.spill", "2.spill", "spill.lock"]
    one.remove("1")
    one.remove("1")
    assert files(tmp_path / "s") == ["2.spill", "spill.lock"]


def test_what_is_mapped_outlives_the_file(tmp_path: Path) -> None:
    one = FolderSpill(tmp_path / "s")
    one.append("1", [b"abc" * 5000])
    mapped = one.map("1")
    one.remove("1")
    one.close()
    assert bytes(mapped) == b"abc" * 5000


def test_many_small_parts_are_one_write(tmp_path: Path) -> None:
    one = FolderSpill(tmp_path / "s")
    parts = [bytes([i % 256]) * (i % 7) for i in range(5000)]
    one.append("1", parts)
    whole = b"".join(parts)
    assert one.read("1", 0, len(whole)) == whole


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    FolderSpill(tmp_path / "s").append("1", [b"x"])
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "s" / "1.spill").stat().st_mode) == 0o600


def test_a_folder_is_one_run_s(tmp_path: Path) -> None:
    one = FolderSpill(tmp_path / "s")
    with pytest.raises(md.StateError, match="in use") as error:
        FolderSpill(tmp_path / "s")
    assert error.value.code == "state.locked"
    one.close()
    one.close()
    FolderSpill(tmp_path / "s").close()


def test_leftovers_go_and_files_of_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    for name in ("7.spill", "x.spill", "7.spill.txt", "notes"):
        (folder / name).write_text("x")
    refused = FolderSpill(folder)
    refused.append("7", [b"y"])  # under another name: it may be that the run can't go on
    assert bytes(refused.read("7", 0, 1)) == b"y"
    refused.close()
    assert files(folder) == ["7.spill", "7.spill.txt", "notes", "spill.lock", "x.spill"]
    one = FolderSpill(folder)
    one.append("7", [b"y"])
    one.sweep()
    assert bytes(one.read("7", 0, 1)) == b"y"
    assert len(files(folder)) == 5
    one.close()
    assert files(folder) == ["7.spill.txt", "notes", "spill.lock", "x.spill"]
    one.remove("7")  # nothing is held any more


def test_errors_name_the_path(tmp_path: Path) -> None:
    one = FolderSpill(tmp_path / "s")
    one.append("1", [b"abc"])
    with pytest.raises(md.StateError, match=r"s/1\.spill can't be read: is shorter"):
        one.read("1", 1, 3)
    with pytest.raises(md.StateError, match=r"s/2\.spill can't be read: No such file"):
        one.read("2", 0, 1)
    with pytest.raises(md.StateError, match="can't be the name"):
        one.append("../1", [b"x"])
    with pytest.raises(md.StateError, match="can't be used: No such file"):
        FolderSpill(tmp_path / "no" / "s")
    (tmp_path / "file").write_text("")
    with pytest.raises(md.StateError, match="file can't be used"):
        FolderSpill(tmp_path / "file")


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FolderSpill(tmp_path / "s")
    one.append("1", [b"abc"])

    def full(number: int, parts: Any) -> None:
        os.write(number, b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill, "_write_all", full)
    with pytest.raises(md.StateError, match=r"1\.spill couldn't be written: No space left"):
        one.append("1", [b"half of it"])
    monkeypatch.undo()
    one.append("1", [b"def"])
    assert bytes(one.map("1")) == b"abcdef"
