"""Decision logs in the folder of the checkpoints: one file each, that only grows."""

from __future__ import annotations

import os
import re

from medusa.ports import Buffer
from medusa.runtime.files import FILE_MODE, read_whole, told, write_all

__all__ = ["FolderJournal"]

_NAME = re.compile(r"decisions-(\d{9,18})\.log")


class FolderJournal:
    """Implements ``medusa.ports.Journal`` in a folder that a ``FolderStore`` holds locked.

    Raises:
        StateError: the folder can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._open: tuple[int, int] | None = None  # (number, file) that was written last
        self._folder = -1
        with told(self._path, "can't be opened"):
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Give the folder free; safe to call twice."""
        self._shut()
        if self._folder >= 0:
            os.close(self._folder)
        self._folder = -1

    def __del__(self) -> None:
        self.close()

    def _shut(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def numbers(self) -> list[int]:
        """Those there are, ascending.

        Raises:
            StateError: the folder can't be read; so of all methods.
        """
        with told(self._path, "can't be read"):
            found = [_NAME.fullmatch(name) for name in os.listdir(self._folder)]
        return sorted(int(each[1]) for each in found if each is not None)

    def read(self, number: int) -> Buffer:
        """The whole of one."""
        with told(self.where(number), "can't be read"):
            return read_whole(_file(number), self._folder)

    def append(self, number: int, data: Buffer) -> None:
        """Add to the end of one; the first call makes it. Durable only after ``sync``."""
        with told(self.where(number), "can't be written"):
            write_all(self._file(number), memoryview(data).cast("B"))

    def _file(self, number: int) -> int:
        if self._open is None or self._open[0] != number:
            self._shut()
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                file = os.open(_file(number), flags, dir_fd=self._folder)
            except FileNotFoundError:
                file = os.open(_file(number), flags | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=self._folder)
                self._open = (number, file)
                os.fsync(self._folder)
            self._open = (number, file)
        return self._open[1]

    def sync(self, number: int) -> None:
        """When this returns, all that was appended survives a power cut."""
        with told(self.where(number), "can't be synced"):
            os.fdatasync(self._file(number))

    def cut(self, number: int, length: int) -> None:
        """Shorten one, durably."""
        with told(self.where(number), "can't be cut"):
            file = self._file(number)
            os.ftruncate(file, length)
            os.fsync(file)

    def remove(self, number: int) -> None:
        """Forget one; one that isn't there is no error."""
        if self._open is not None and self._open[0] == number:
            self._shut()
        with told(self.where(number), "can't be removed"):
            try:
                os.unlink(_file(number), dir_fd=self._folder)
            except FileNotFoundError:
                return

    def where(self, number: int) -> str:
        """One as a person would look for it."""
        return f"{self._path}/{_file(number)}"


def _file(number: int) -> str:
    return f"decisions-{number:09d}.log"
