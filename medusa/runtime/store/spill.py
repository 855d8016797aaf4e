"""A folder for what doesn't fit in memory while a run lasts.

Nothing is synced, since nothing here outlives the run: a checkpoint holds its own copy. Files that a
killed run left are removed by the next one that works there, once it is sure that it can go on.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Sequence

from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.runtime.machine.locks import FolderLock
from medusa.runtime.store.folder_store import missing, path_of

__all__ = ["FolderSpill"]

LOCK = "spill.lock"
SUFFIX = ".spill"
FOLDER_MODE = 0o700
FILE_MODE = 0o600
PARTS_MAX = 512
"""Buffers handed to the system at once."""

_NAME = re.compile(r"[0-9]{1,18}")
_OURS = re.compile(r"[0-9]{1,18}\.spill")
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderSpill:
    """Implements ``medusa.ports.Spill`` in a folder, which one run at a time may have open.

    Other files in it are left alone.

    Args:
        path: the folder; it is made where it doesn't exist (its parent must).

    Raises:
        StateError: no folder, no permission, or another run (of this or another process) has it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = -1
        self._lock: FolderLock | None = None
        self._old: list[str] = []
        """Files that a killed run left; ours have larger numbers."""
        self._path = path_of(path, "spill")
        try:
            if not os.path.isdir(self._path):
                os.mkdir(self._path, FOLDER_MODE)
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            number = os.open(LOCK, flags, FILE_MODE, dir_fd=self._folder)
            self._lock = FolderLock(number, self._path, hint="each run needs a spill= folder of its own")
            self._old = [name for name in os.listdir(self._folder) if _OURS.fullmatch(name)]
            self._before = max((int(name.removesuffix(SUFFIX)) for name in self._old), default=0)
        except StateError:
            self._give_back()
            raise
        except OSError as error:
            self._give_back()
            raise self._told("", "can't be used", error) from error

    def sweep(self) -> None:
        """Remove what a killed run left; safe to call twice.

        Raises:
            StateError: it can't be removed.
        """
        try:
            while self._old:
                self._unlink(self._old[-1])
                self._old.pop()
        except OSError as error:
            raise self._told("", "couldn't be emptied", error) from error

    def _unlink(self, file: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file, dir_fd=self._folder)

    def append(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write bytes at the end of a file, which the first call makes.

        Raises:
            StateError: they couldn't be written; the file is as before.
        """
        file = self._file(name)
        try:
            number = os.open(file, _APPEND, FILE_MODE, dir_fd=self._folder)
            try:
                before = os.fstat(number).st_size
                try:
                    _write_all(number, parts)
                except OSError:
                    os.ftruncate(number, before)
                    raise
            finally:
                os.close(number)
        except OSError as error:
            raise self._told(file, "couldn't be written", error) from error

    def read(self, name: str, start: int, length: int) -> Buffer:
        """Bytes of a file.

        Raises:
            StateError: they can't be read, or the file is shorter.
        """
        file = self._file(name)
        data = bytearray(length)
        try:
            number = os.open(file, _READ, dir_fd=self._folder)
            try:
                done = 0
                while done < length:
                    step = os.preadv(number, [memoryview(data)[done:]], start + done)
                    if step == 0:
                        raise OSError(errno.EIO, "is shorter than what was written")
                    done += step
            finally:
                os.close(number)
        except OSError as error:
            raise self._told(file, "can't be read", error) from error
        return data

    def map(self, name: str) -> Buffer:
        """The whole of a file, which is read where it is touched; it may be removed meanwhile.

        Raises:
            StateError: it isn't there, or is empty.
        """
        file = self._file(name)
        try:
            number = os.open(file, _READ, dir_fd=self._folder)
            try:
                return memoryview(mmap.mmap(number, 0, prot=mmap.PROT_READ))
            finally:
                os.close(number)
        except (OSError, ValueError) as error:
            raise self._told(file, "can't be read", error) from error

    def remove(self, name: str) -> None:
        """Forget a file; one that isn't there, or a folder that was given back, is no error."""
        if self._folder < 0:
            return
        try:
            os.unlink(self._file(name), dir_fd=self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._told(self._file(name), "can't be removed", error) from error

    def where(self, name: str) -> str:
        """The file as a person would look for it."""
        return f"{self._path}/{self._file(name)}"

    def close(self) -> None:
        """Remove what this run left and give the folder free; safe to call twice."""
        if self._folder < 0:
            return
        try:
            for name in os.listdir(self._folder):
                if _OURS.fullmatch(name) and name not in self._old:
                    self._unlink(name)
        except OSError as error:
            raise self._told("", "couldn't be emptied", error) from error
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._lock is not None:
            self._lock.close()
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._lock = -1, None

    def __del__(self) -> None:
        self._give_back()

    def _file(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise StateError(f"{name[:80]!r} can't be the name of a spilled file", code="state.name")
        return f"{int(name) + self._before}{SUFFIX}"

    def _told(self, file: str, what: str, error: OSError | ValueError) -> StateError:
        path = f"{self._path}/{file}" if file else self._path
        return StateError(
            f"{path} {what}: {getattr(error, 'strerror', None) or error}",
            hint=missing(path, error),
            code="state.io",
        )


def _write_all(number: int, parts: Sequence[Buffer]) -> None:
    left = [memoryview(part).cast("B") for part in parts if len(memoryview(part))]
    while left:
        done = os.writev(number, left[:PARTS_MAX])
        while left and done >= len(left[0]):
            done -= len(left.pop(0))
        if done:
            left[0] = left[0][done:]
