"""FolderStore: groups are whole or absent, nothing outside the folder is touched, errors name the path."""

from __future__ import annotations

import _thread
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.engine.state.checkpoint import seal, unseal
from medusa.runtime.store import folder_store
from medusa.runtime.store.file_sync import sync_together
from medusa.runtime.store.folder_store import SYNCED_TOGETHER, FolderStore

FILES = {"a.arrow": b"alpha" * 1000, "manifest.json": b"{}", "empty": b""}


def store(path: Path, **options: Any) -> FolderStore:
    return FolderStore(path / "state", **options)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.write("g-1", {**FILES, "view": memoryview(bytearray(b"xy"))})
    assert one.read("g-1") == {**FILES, "view": b"xy"}
    assert one.names() == ["g-1"]
    one.close()
    assert store(tmp_path).read("g-1")["empty"] == b""


def test_names_ascend_and_deleted_groups_are_gone(tmp_path: Path) -> None:
    one = store(tmp_path)
    for name in ("b", "a", "c"):
        one.write(name, FILES)
    one.delete("a")
    one.delete("a")
    assert one.names() == ["b", "c"]
    assert sorted(os.listdir(tmp_path / "state")) == ["b", "c", "lock"]


def test_only_the_owner_can_read(tmp_path: Path) -> None:
    store(tmp_path).write("g", FILES)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "g").stat().st_mode) == 0o700
    for name in FILES:
        assert stat.S_IMODE((tmp_path / "state" / "g" / name).stat().st_mode) == 0o600


def test_a_folder_is_open_once(tmp_path: Path) -> None:
    one = store(tmp_path)
    with pytest.raises(md.StateError, match="in use"):
        store(tmp_path)
    one.close()
    one.close()
    store(tmp_path)


def test_drafts_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    store(tmp_path).close()
    draft = tmp_path / "state" / "checkpoint-000000007.tmp"
    draft.mkdir()
    (draft / "half").write_bytes(b"torn")
    one = store(tmp_path)
    assert one.names() == []
    assert os.listdir(tmp_path / "state") == ["lock"]


def tree(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*")}


@pytest.mark.parametrize("create", [True, False])
def test_what_others_have_in_a_folder_stays(tmp_path: Path, create: bool) -> None:
    folder = tmp_path / "state"
    (folder / "thesis.tmp").mkdir(parents=True)
    (folder / "thesis.tmp" / "chapter").write_bytes(b"1")
    (folder / "loose.tmp").write_bytes(b"x")
    (folder / "deep.tmp" / "er").mkdir(parents=True)
    before = tree(folder)
    store(tmp_path, create=create).close()
    assert tree(folder) - {"lock"} == before
    store(tmp_path).close()
    # From here on the folder is ours: what looks like a draft is one.
    store(tmp_path, create=create).close()
    assert tree(folder) - {"lock"} == before - {"thesis.tmp", "thesis.tmp/chapter"}


def test_a_folder_that_only_others_used_is_not_marked_by_reading(tmp_path: Path) -> None:
    (tmp_path / "state" / "g").mkdir(parents=True)
    one = store(tmp_path, create=False)
    assert one.names() == ["g"]
    with pytest.raises(md.StateError, match="none"):
        one.read("none")
    assert tree(tmp_path / "state") == {"g"}
    one.read("g")
    with pytest.raises(md.StateError, match="in use"):
        store(tmp_path)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a.tmp", "-x", "x" * 200, "a\0b"])
def test_names_that_are_paths_are_refused(tmp_path: Path, name: str) -> None:
    one = store(tmp_path)
    for call in (lambda: one.write(name, FILES), lambda: one.read(name), lambda: one.delete(name)):
        with pytest.raises(md.StateError):
            call()
    assert one.names() == []


@pytest.mark.parametrize("file", ["", "..", "a/b", "/etc/passwd", ".hidden"])
def test_file_names_that_are_paths_are_refused(tmp_path: Path, file: str) -> None:
    one = store(tmp_path)
    with pytest.raises(md.StateError):
        one.write("g", {"good": b"x", file: b"y"})
    assert os.listdir(tmp_path / "state") == ["lock"]


def test_symbolic_links_inside_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    one = store(tmp_path)
    one.write("g", FILES)
    (tmp_path / "state" / "g" / "linked").symlink_to(secret)
    with pytest.raises(md.StateError, match="linked"):
        one.read("g")
    (tmp_path / "state" / "h").symlink_to(tmp_path)
    assert one.names() == ["g"]
    with pytest.raises(md.StateError, match="state/h"):
        one.read("h")
    (tmp_path / "state" / "g2.tmp").symlink_to(tmp_path)
    one.close()
    store(tmp_path)
    assert secret.read_bytes() == b"s"


def test_a_pipe_in_a_group_does_not_hang_the_reader(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.write("g", FILES)
    os.mkfifo(tmp_path / "state" / "g" / "pipe")
    with pytest.raises(md.StateError, match="pipe"):
        one.read("g")


def test_a_group_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.write("g", FILES)
    with pytest.raises(md.StateError, match="there already"):
        one.write("g", {"other": b""})
    assert one.read("g") == FILES


def test_a_write_does_not_look_through_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold what thousands of tasks have staged."""
    one = store(tmp_path)
    for name in ("a", "b"):
        one.write(name, FILES)
    whole, listed = (tmp_path / "state").stat().st_ino, os.listdir

    def looking(folder: Any) -> list[str]:
        assert os.stat(folder).st_ino != whole
        return listed(folder)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", looking)
        one.write("c", FILES)
        one.delete("a")
        with pytest.raises(md.StateError, match="there already"):
            one.write("b", FILES)
    assert one.names() == ["b", "c"]
    (tmp_path / "state" / "d").symlink_to("nowhere")
    with pytest.raises(md.StateError, match="there already"):
        one.write("d", FILES)


def test_missing_folders_and_groups_are_named(tmp_path: Path) -> None:
    with pytest.raises(md.StateError, match="state"):
        store(tmp_path, create=False)
    with pytest.raises(md.StateError, match="none"):
        FolderStore(tmp_path / "none" / "state")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(md.StateError, match="file"):
        FolderStore(tmp_path / "file")
    with pytest.raises(md.StateError, match="state/g"):
        store(tmp_path).read("g")


class Failing:
    """Makes the n-th call of a function of ``os`` fail with an error."""

    def __init__(self, call: Callable[..., Any], at: int, error: int) -> None:
        self.call, self.left, self.error, self.failed = call, at, error, False

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.left == 0:
            self.failed = True
            self.left -= 1
            raise OSError(self.error, os.strerror(self.error))
        self.left -= 1
        return self.call(*args, **options)


def outcome(call: Callable[[], object]) -> md.StateError | None:
    try:
        call()
    except md.StateError as error:
        return error
    return None


@pytest.mark.parametrize("function", ["open", "write", "fsync", "mkdir", "rename"])
def test_every_failure_of_a_write_leaves_the_old_groups_and_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The k-th call fails, for every k; afterwards the folder works as if nothing had been tried."""
    one = store(tmp_path)
    one.write("old", FILES)
    for at in range(100):
        failing = Failing(getattr(os, function), at, errno.ENOSPC)
        with monkeypatch.context() as patch:
            patch.setattr(os, function, failing)
            error = outcome(lambda: one.write("new", FILES))
        if not failing.failed:
            break
        assert error is not None
        assert "No space left" in error.message
        assert "state" in error.message
        assert one.names() == ["old"]
        assert one.read("old") == FILES
    else:
        raise AssertionError("it never succeeded")
    assert at > 0
    assert one.read("new") == FILES
    assert sorted(os.listdir(tmp_path / "state")) == ["lock", "new", "old"]


def test_a_write_syncs_every_file_then_renames_then_syncs_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    one = store(tmp_path)
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def spy(*args: Any, _real: Any = real, _name: str = name, **options: Any) -> Any:
            calls.append(_name)
            return _real(*args, **options)

        monkeypatch.setattr(os, name, spy)
    one.write("g", FILES)
    assert calls == ["fsync"] * (len(FILES) + 1) + ["rename", "fsync"]


@pytest.mark.parametrize("function", ["open", "write", "fsync", "mkdir", "rename"])
def test_of_groups_that_are_written_together_none_is_there_if_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    one = store(tmp_path)
    for at in range(100):
        failing = Failing(getattr(os, function), at, errno.ENOSPC)
        with monkeypatch.context() as patch:
            patch.setattr(os, function, failing)
            error = outcome(lambda: one.write_all({"first": FILES, "second": {"other": b"2"}}))
        if not failing.failed:
            break
        assert error is not None
        assert "No space left" in error.message
        assert os.listdir(tmp_path / "state") == ["lock"]
    else:
        raise AssertionError("it never succeeded")
    assert at > 0
    assert (one.read("first"), one.read("second")) == (FILES, {"other": b"2"})


def test_a_group_that_is_there_stays_if_it_is_to_be_written_again_with_another(tmp_path: Path) -> None:
    one = store(tmp_path)
    one.write("second", FILES)
    with pytest.raises(md.StateError, match="second couldn't be written: it is there already"):
        one.write_all({"first": FILES, "second": {"other": b"2"}})
    assert one.names() == ["second"]
    assert one.read("second") == FILES


def test_groups_that_are_written_together_wait_once_for_all_their_files_and_once_for_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every descriptor is waited for while all others are: a barrier that all of them reach says so."""
    one = store(tmp_path)
    number = 2 * (len(FILES) + 1)
    together = threading.Barrier(number)
    real, calls = os.fsync, []

    def sync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) <= number:
            together.wait(60)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    one.write_all({"first": FILES, "second": FILES})
    assert len(calls) == number + 1


def test_more_files_than_are_open_at_once(tmp_path: Path) -> None:
    one = store(tmp_path)
    files = {f"f{number}": b"%d" % number for number in range(3 * SYNCED_TOGETHER + 1)}
    before = len(os.listdir("/proc/self/fd"))
    one.write("many", files)
    assert one.read("many") == files
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("threads", [0, 1, 100])
def test_files_are_synced_by_however_many_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    begun, synced, real = [], [], _thread.start_new_thread

    def begin(function: Any, arguments: Any) -> int:
        if len(begun) >= threads:
            raise RuntimeError("can't start new thread")
        begun.append(function)
        return real(function, arguments)

    monkeypatch.setattr(_thread, "start_new_thread", begin)
    monkeypatch.setattr(os, "fsync", synced.append)
    sync_together(range(30))
    assert sorted(synced) == list(range(30))


def test_a_sync_that_fails_fails_the_whole_and_the_others_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def sync(number: int) -> None:
        if number == 3:
            raise OSError(errno.EIO, "it is broken")
        synced.append(number)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="it is broken"):
        sync_together(range(7))
    assert sorted(synced) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("sizes", [(), (0,), (5,), (0, 3, 0), (100_000,) * 7, (1 << 20, 1, 1 << 18, 2)])
def test_a_file_in_pieces_is_the_same_as_in_one(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    pieces = tuple(memoryview(bytes([number + 1]) * size) for number, size in enumerate(sizes))
    whole = b"".join(pieces)
    one = store(tmp_path)
    one.write("pieces", seal({"log": pieces, "x": b"1"}, {}))
    one.write("whole", seal({"log": whole, "x": b"1"}, {}))
    assert one.read("pieces") == one.read("whole")
    assert bytes(unseal(one.read("pieces"))[1]["log"]) == whole
    one.close()


@pytest.mark.parametrize("early", ["tells the kernel", "can't", "nobody to tell"])
@pytest.mark.parametrize("together", [1, 2, 64])
def test_large_files_are_the_same_however_early_the_disk_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, early: str, together: int
) -> None:
    """Every byte was given to the disk at most once before its file is synced, and each file is synced."""
    one = store(tmp_path)
    given: list[tuple[int, int]] = []
    synced: list[int] = []
    real = os.fsync

    def advise(number: int, offset: int, length: int, advice: int) -> None:
        given.append((offset, length))
        if early == "can't":
            raise OSError(errno.EINVAL, "not here")

    def fsync(number: int) -> None:
        synced.append(os.fstat(number).st_size)
        real(number)

    monkeypatch.setattr(folder_store, "EARLY_BYTES", 1000)
    monkeypatch.setattr(folder_store, "TOGETHER_BYTES", 300)
    monkeypatch.setattr(folder_store, "SYNCED_TOGETHER", together)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    if early == "nobody to tell":
        monkeypatch.delattr(os, "posix_fadvise")
    monkeypatch.setattr(os, "fsync", fsync)
    data = os.urandom(7_777)
    pieces = tuple(memoryview(data)[at : at + 123] for at in range(0, len(data), 123))
    files = {"one": data, "pieces": pieces, "small": b"xy", "none": b""}
    one.write("g", files)
    assert one.read("g") == {"one": data, "pieces": data, "small": b"xy", "none": b""}
    assert sorted(synced)[-2:] == [len(data), len(data)]
    assert len(synced) == len(files) + 2
    if early == "nobody to tell":
        assert not given
    else:
        each = [(offset, 1_000) for offset in range(0, 7_000, 1_000)]
        assert given[:7] == each
        behind = [0, *(offset + length for offset, length in given[7:])]
        assert [offset for offset, _ in given[7:]] == behind[:-1]
        assert behind[-1] > len(data) - 2_000
    one.close()
