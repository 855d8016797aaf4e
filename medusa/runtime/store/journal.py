"""Decision logs in the folder of the checkpoints: one file each, that only grows, with a mark beside it.

decisions-000000042.log      records; who writes them is the concern of others
decisions-000000042.synced   how much of it was synced (``medusa.engine.recovery.synced_length``), 64 bytes
begun-000000042.decisions    how much its first sync held, 32 bytes: the other two don't go unnoticed together
"""

from __future__ import annotations

import contextlib
import os
import re

from medusa.engine.recovery.synced_length import SLOT_BYTES, extended, pack_slot, read_slots
from medusa.ports import Buffer, Synced
from medusa.runtime.store.folder_store import FILE_MODE, read_whole, told, write_all

__all__ = ["FolderJournal"]

_NAME = re.compile(r"(?:decisions-(\d{9,18})\.(?:log|synced)|begun-(\d{9,18})\.decisions)")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC


class FolderJournal:
    """Implements ``medusa.ports.NodeJournal`` in a folder that a ``FolderStore`` holds locked.

    Raises:
        StateError: the folder can't be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._open: tuple[int, int] | None = None  # (number, file) that was written last
        self._mark: tuple[int, int] | None = None  # the same of its mark
        self._folder = -1
        self._ends: dict[int, Synced] = {}
        """Of each log that was written here: all of it, synced or not."""
        self._slots: dict[int, int] = {}
        """Of each mark: the slot that is written next."""
        self._witnessed: set[int] = set()
        """Those of which it is noted that they were begun."""
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
        for each in (self._open, self._mark):
            if each is not None:
                os.close(each[1])
        self._open = self._mark = None

    def numbers(self) -> list[int]:
        """Those there are, ascending; also one of which only a mark or the note of its beginning is there.

        Raises:
            StateError: the folder can't be read; so of all methods.
        """
        with told(self._path, "can't be read"):
            found = [_NAME.fullmatch(name) for name in os.listdir(self._folder)]
        return sorted({int(each[1] or each[2]) for each in found if each is not None})

    def read(self, number: int) -> Buffer:
        """The whole of one; nothing, where ``numbers`` lists it and there is no such file."""
        with told(self.where(number), "can't be read"):
            try:
                return read_whole(_file(number), self._folder)
            except FileNotFoundError:
                if self._size(_mark(number)) is None and self._size(_begun(number)) is None:
                    raise
                return b""

    def synced(self, number: int) -> Synced | None:
        """How much of one was synced, at least; None: nothing tells.

        The note of its beginning counts where there is no mark and less in the log than that holds.
        """
        marked = self._slot_in(_mark(number), number)
        if marked is not None:
            return marked
        begun = self._slot_in(_begun(number), number)
        with told(self.where(number), "can't be read"):
            size = self._size(_file(number)) or 0
        return begun if begun is not None and size < begun.length else None

    def _slot_in(self, name: str, number: int) -> Synced | None:
        with told(f"{self._path}/{name}", "can't be read"):
            try:
                data = read_whole(name, self._folder)
            except FileNotFoundError:
                return None
        return read_slots(data, number)[0]

    def _size(self, name: str) -> int | None:
        """Bytes of a file; None: it isn't there."""
        try:
            return os.lstat(name, dir_fd=self._folder).st_size
        except FileNotFoundError:
            return None

    def append(self, number: int, data: Buffer) -> None:
        """Add to the end of one; the first call makes it. Durable only after ``sync``."""
        with told(self.where(number), "can't be written"):
            file, end = self._file(number), self._end(number)
            del self._ends[number]  # what is there after a write that failed is looked at anew
            write_all(file, memoryview(data).cast("B"))
            self._ends[number] = extended(end, data)

    def _end(self, number: int) -> Synced:
        """The whole of one, as it is now."""
        if number not in self._ends:
            self._ends[number] = extended(Synced(0, 0), read_whole(_file(number), self._folder))
        return self._ends[number]

    def _file(self, number: int) -> int:
        if self._open is None or self._open[0] != number:
            flags = os.O_WRONLY | os.O_APPEND | _OPEN
            try:
                file = os.open(_file(number), flags, dir_fd=self._folder)
            except FileNotFoundError:
                if self._mark is not None:
                    os.fdatasync(self._mark[1])  # of a log that perhaps nobody writes to any more
                # The mark first, so that one sync of the folder holds both names.
                self._write_mark(number, Synced(0, 0))
                file = os.open(_file(number), flags | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=self._folder)
                self._keep_open(number, file)
                os.fsync(self._folder)
            else:
                self._keep_open(number, file)
        assert self._open is not None
        return self._open[1]

    def _keep_open(self, number: int, file: int) -> None:
        if self._open is not None:
            os.close(self._open[1])
        self._open = (number, file)

    def sync(self, number: int) -> None:
        """When this returns, all that was appended survives a power cut; its mark is written behind."""
        with told(self.where(number), "can't be synced"):
            os.fdatasync(self._file(number))
            self._write_mark(number, self._end(number))
            self._note_begun(number)

    def _note_begun(self, number: int) -> None:
        """After the first sync, and not synced: what it says after ``kill -9`` is exact, as with a mark."""
        synced = self._end(number)
        if number in self._witnessed or not synced.length:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
        with contextlib.suppress(FileExistsError):
            file = os.open(_begun(number), flags, FILE_MODE, dir_fd=self._folder)
            try:
                write_all(file, memoryview(pack_slot(number, synced)))
            finally:
                os.close(file)
        self._witnessed.add(number)

    def _write_mark(self, number: int, synced: Synced) -> None:
        if self._mark is None or self._mark[0] != number:
            if self._mark is not None:
                os.close(self._mark[1])
                self._mark = None
            flags = os.O_RDWR | os.O_CREAT | _OPEN
            self._mark = (number, os.open(_mark(number), flags, FILE_MODE, dir_fd=self._folder))
        file = self._mark[1]
        if number not in self._slots:
            self._slots[number] = read_slots(os.pread(file, 2 * SLOT_BYTES, 0), number)[1]
        slot = self._slots[number]
        os.pwrite(file, pack_slot(number, synced), slot * SLOT_BYTES)
        self._slots[number] = 1 - slot

    def cut(self, number: int, length: int) -> None:
        """Shorten one, durably; what is left counts as synced."""
        with told(self.where(number), "can't be cut"):
            file = self._file(number)
            os.ftruncate(file, length)
            os.fsync(file)
            self._ends.pop(number, None)
            for _ in range(2):  # no slot may say more than there is
                self._write_mark(number, self._end(number))
            self._unlink(_begun(number))
            self._witnessed.discard(number)
            self._note_begun(number)

    def set_aside(self, number: int) -> str:
        """Keep a copy of one under another name; where that is."""
        with told(self.where(number), "can't be copied"):
            data = self.read(number)
            taken = os.listdir(self._folder)
            names = (f"{_file(number)}.damaged{n or ''}" for n in range(len(taken) + 1))
            name = next(each for each in names if each not in taken)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, FILE_MODE, dir_fd=self._folder)
            try:
                write_all(file, memoryview(data))
                os.fsync(file)
            finally:
                os.close(file)
            os.fsync(self._folder)
        return f"{self._path}/{name}"

    def remove(self, number: int) -> None:
        """Forget one; one that isn't there is no error."""
        if number in {each[0] for each in (self._open, self._mark) if each is not None}:
            self._shut()
        self._ends.pop(number, None)
        self._slots.pop(number, None)
        self._witnessed.discard(number)
        with told(self.where(number), "can't be removed"):
            # The log last: what stands without it says that the log was lost.
            for name in (_begun(number), _mark(number), _file(number)):
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def where(self, number: int) -> str:
        """One as a person would look for it."""
        return f"{self._path}/{_file(number)}"


def _file(number: int) -> str:
    return f"decisions-{number:09d}.log"


def _mark(number: int) -> str:
    return f"decisions-{number:09d}.synced"


def _begun(number: int) -> str:
    return f"begun-{number:09d}.decisions"
