"""Groups of files in a folder that are there whole or not at all, also after a power cut.

A group is written into ``NAME.tmp``: its files and itself synced, then the folder renamed, then the parent
synced. A sync that fails means that the group doesn't exist; nothing is retried in place, since the
kernel may have dropped the pages that it couldn't write.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping

from medusa.errors import QueryError, StateError
from medusa.ports import Buffer, Content, pieces_of
from medusa.runtime.machine.locks import FolderLock
from medusa.runtime.store.file_sync import OpenFiles

__all__ = ["FILE_MODE", "FOLDER_MODE", "FolderStore", "missing", "path_of", "read_whole", "told", "write_all"]

LOCK = "lock"
FOLDER_MODE = 0o700
FILE_MODE = 0o600

MAPPED_BYTES_MIN = 1 << 26
"""From here on a file of a group is mapped: nothing changes a group once it is there."""

TOGETHER_BYTES = 1 << 18
"""Pieces of a file are written together up to this."""

EARLY_BYTES = 1 << 23
"""So much of a file at a time is given to the disk while it is being written."""

SYNCED_TOGETHER = 64
"""Files are written before the first of them is synced, at most so many."""

_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_DRAFT = re.compile(rf"(?:{_GROUP.pattern})\.tmp")
_FILE = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@.-]{0,199}")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderStore:
    """Implements ``medusa.ports.Store`` in a folder, which one process at a time may have open.

    Args:
        path: the folder; it is made where it doesn't exist (its parent must).
        create: False: a folder that doesn't exist is an error, and one without our lock is left as it is
            until a group of it has been read: it may be another than was meant.
        shared: only groups that nobody will change are read: without a lock, so others may have the folder
            open, and it needn't be writable.
        sweep: remove drafts that a killed writer left; False: ``sweep`` does, once what is there was checked.

    Raises:
        StateError: no folder, no permission, or another process (or another run of this one) has it.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, shared: bool = False, sweep: bool = True
    ) -> None:
        self._folder = -1
        self._lock: FolderLock | None = None
        self._path = path_of(path)
        self._shared = shared
        with told(self._path, "can't be opened"):
            if create:
                self._make()
            # The folder itself may be reached over a symbolic link; what is in it may not.
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not shared and self._was_ours():
                self._take_lock()
                if sweep:
                    self.sweep()
            elif create:
                self._take_lock()
        except BaseException:
            self.close()
            raise

    def _was_ours(self) -> bool:
        """Whether some store had this folder before: whoever does takes the lock first."""
        with told(f"{self._path}/{LOCK}", "can't be read"):
            return LOCK in os.listdir(self._folder)

    def _make(self) -> None:
        try:
            os.mkdir(self._path, FOLDER_MODE)
        except FileExistsError:
            return
        parent = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def _take_lock(self) -> None:
        with told(f"{self._path}/{LOCK}", "can't be locked"):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = FolderLock(os.open(LOCK, flags, FILE_MODE, dir_fd=self._folder), self._path)

    def sweep(self) -> None:
        """Remove what a writer left that was killed; what else lies there is not ours.

        Raises:
            StateError: it can't be removed.
        """
        with told(self._path, "can't be read"):
            for name in os.listdir(self._folder):
                if _DRAFT.fullmatch(name) and self._is_folder(name) and self._holds_files_only(name):
                    self._remove(name)

    def _holds_files_only(self, name: str) -> bool:
        folder = os.open(name, _FOLDER, dir_fd=self._folder)
        try:
            with os.scandir(folder) as found:
                return all(each.is_file(follow_symlinks=False) for each in found)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Give the folder free; safe to call twice."""
        if self._lock is not None:
            self._lock.close()
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._lock = -1, None

    def __del__(self) -> None:
        self.close()

    # The port

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        """Store a new group durably; when this returns it survives a power cut.

        Raises:
            StateError: it couldn't be written, or is there already; no new group exists.
        """
        self.write_all({name: files})

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        """Store several new groups durably, in little more time than one.

        Raises:
            StateError: one couldn't be written, or is there already; none of the new groups exists.
        """
        for name in groups:
            _check(name, _GROUP)
        where = f"{self._path}/{next(iter(groups))}"
        made: set[str] = set()
        try:
            with told(where, "couldn't be written"):
                with OpenFiles(SYNCED_TOGETHER) as unsynced:
                    for name, files in groups.items():
                        with told(f"{self._path}/{name}", "couldn't be written"):
                            self._draft(name, files, unsynced)
                    unsynced.sync()
                for name in groups:
                    os.rename(f"{name}.tmp", name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
                    made.add(name)
            with told(where, "couldn't be synced"):
                os.fsync(self._folder)
        except StateError:
            for name in groups:
                with contextlib.suppress(OSError):
                    self._remove(name if name in made else f"{name}.tmp")
            raise

    def _draft(self, name: str, files: Mapping[str, Content], unsynced: OpenFiles) -> None:
        draft = f"{name}.tmp"
        if self._is_there(name):
            raise FileExistsError(errno.EEXIST, "it is there already")
        self._remove(draft)  # of an earlier write that was interrupted
        os.mkdir(draft, FOLDER_MODE, dir_fd=self._folder)
        folder = os.open(draft, _FOLDER, dir_fd=self._folder)
        try:
            for file, data in files.items():
                _check(file, _FILE)
                number = os.open(file, _WRITE, FILE_MODE, dir_fd=folder)
                try:
                    _write_early(number, data)
                except BaseException:
                    os.close(number)
                    raise
                unsynced.add(number)
        except BaseException:
            os.close(folder)
            raise
        unsynced.add(folder)

    def _is_there(self, name: str) -> bool:
        """Asked by name: a folder may hold many thousands."""
        try:
            os.lstat(name, dir_fd=self._folder)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> dict[str, Buffer]:
        """All files of a group.

        Raises:
            StateError: there is no such group, or it can't be read; names the path.
        """
        _check(name, _GROUP)
        with told(f"{self._path}/{name}", "can't be read"):
            folder = os.open(name, _FOLDER, dir_fd=self._folder)
        try:
            if self._lock is None and not self._shared:
                self._take_lock()
            with told(f"{self._path}/{name}", "can't be read"):
                files = sorted(os.listdir(folder))
            found: dict[str, Buffer] = {}
            for file in files:
                with told(f"{self._path}/{name}/{file}", "can't be read"):
                    found[file] = _read_or_map(file, folder)
            return found
        finally:
            os.close(folder)

    def size(self, name: str, file: str) -> int:
        """Bytes of a file of a group; 0: there is none.

        Raises:
            StateError: it can't be told.
        """
        _check(name, _GROUP)
        _check(file, _FILE)
        with told(f"{self._path}/{name}/{file}", "can't be read"):
            try:
                return os.stat(f"{name}/{file}", dir_fd=self._folder, follow_symlinks=False).st_size
            except FileNotFoundError:
                return 0

    def names(self) -> list[str]:
        """Names of the whole groups, ascending.

        Raises:
            StateError: the folder can't be read.
        """
        with told(self._path, "can't be read"):
            names = os.listdir(self._folder)
            return sorted(name for name in names if _GROUP.fullmatch(name) and self._is_folder(name))

    def _is_folder(self, name: str) -> bool:
        return stat.S_ISDIR(os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode)

    def delete(self, name: str) -> None:
        """Forget a group; one that isn't there is no error.

        Raises:
            StateError: it can't be removed.
        """
        _check(name, _GROUP)
        with told(f"{self._path}/{name}", "can't be removed"):
            # Renamed first: a half-removed group must not look like a whole one.
            try:
                os.rename(name, f"{name}.tmp", src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except FileNotFoundError:
                return
            self._remove(f"{name}.tmp")

    def where(self, name: str, file: str = "") -> str:
        """The group (or one file of it) as a person would look for it."""
        return "/".join(part for part in (self._path, name, file) if part)

    def _remove(self, name: str) -> None:
        """Remove a folder of files, or one file."""
        try:
            folder = os.open(name, _FOLDER, dir_fd=self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            os.unlink(name, dir_fd=self._folder)
            return
        try:
            for file in os.listdir(folder):
                os.unlink(file, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._folder)


@contextlib.contextmanager
def told(path: str, what: str) -> Iterator[None]:
    """Errors of the system as ``StateError`` with the path."""
    try:
        yield
    except OSError as error:
        raise StateError(
            f"{path} {what}: {error.strerror or error}", hint=missing(path, error), code="state.io"
        ) from error


def missing(path: str, error: Exception) -> str:
    """A hint where what isn't there is the folder that a path lies in."""
    parent = os.path.dirname(path)
    absent = isinstance(error, FileNotFoundError) and not os.path.isdir(parent)
    return f"{parent} isn't there: make it first" if absent else ""


def path_of(path: object, what: str = "path") -> str:
    """The folder that a caller names, as a whole path.

    Raises:
        QueryError: it isn't text or a path.
    """
    if not isinstance(path, str | os.PathLike) or not (text := os.fspath(path)):
        raise QueryError(
            f"{what}: expected a folder as text or a path, got {path!r:.80}", code="query.folder"
        )
    return os.path.abspath(text)


def _check(name: str, pattern: re.Pattern[str]) -> None:
    if not pattern.fullmatch(name):
        raise StateError(f"{name[:80]!r} can't be the name of a stored file or group", code="state.name")


def write_all(number: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(number, data) :]


def _write_early(number: int, data: Content) -> None:
    """Write a file; of a large one the disk has most before it is synced."""
    begun = at = 0
    for piece in _together(pieces_of(data)):
        left = memoryview(piece).cast("B")
        while len(left):
            write_all(number, left[:EARLY_BYTES])
            at += len(left[:EARLY_BYTES])
            left = left[EARLY_BYTES:]
            if at - begun >= EARLY_BYTES and hasattr(os, "posix_fadvise"):
                # The kernel begins to write what it shall forget. If it can't, fsync does, and tells.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(number, begun, at - begun, os.POSIX_FADV_DONTNEED)
                begun = at


def _together(pieces: tuple[Buffer, ...]) -> Iterator[Buffer]:
    """The same bytes in pieces that are worth a call each, and need no second copy of the whole."""
    small: list[Buffer] = []
    held = 0
    for piece in pieces:
        small.append(piece)
        held += memoryview(piece).nbytes
        if held >= TOGETHER_BYTES:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, held = [], 0
    yield b"".join(small)


def _read_or_map(file: str, folder: int) -> Buffer:
    """A file; a large one is read where it is touched, so that it needn't fit in memory."""
    number = os.open(file, _READ | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(number)
        if stat.S_ISREG(status.st_mode) and status.st_size >= MAPPED_BYTES_MIN:
            return memoryview(mmap.mmap(number, 0, prot=mmap.PROT_READ))
    finally:
        os.close(number)
    return read_whole(file, folder)


def read_whole(file: str, folder: int) -> bytes:
    number = os.open(file, _READ | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        parts, left = [], status.st_size
        while left > 0:
            part = os.read(number, min(left, 1 << 26))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(number)
