"""Whole lines of a file or of standard input, in blocks; of one that still grows, what is there."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from medusa.errors import DataError
from medusa.io.places import FilePlace

__all__ = ["BLOCK_BYTES", "LINE_BYTES_MAX", "Lines", "open_binary", "wait_for"]

BLOCK_BYTES = 1 << 22
"""Read at once: some ten thousand rows."""
LINE_BYTES_MAX = 1 << 26
"""A line longer than this is no line: a file without line ends would fill the memory."""
LOOK_EVERY_S = 0.05


def open_binary(place: FilePlace) -> Any:
    """The bytes of a place.

    Raises:
        DataError: there is no such file, or it can't be read.
    """
    if place.standard:
        return sys.stdin.buffer
    try:
        return open(place.path, "rb")
    except OSError as error:
        raise DataError(f"{place.path}: {(error.strerror or str(error)).lower()}", code="data.file") from None


class Lines:
    """Reads whole lines.

    Args:
        follow: a file that ends is waited for: ``next`` gives nothing then, and later more.
        quoted: a line end inside double quotes is none.
    """

    def __init__(self, place: FilePlace, *, follow: bool, quoted: bool) -> None:
        self.place = place
        self._raw = self._file = open_binary(place)
        if place.packed:
            self._file = pa.CompressedInputStream(self._raw, "gzip")
        self._follow = follow
        self._quoted = quoted
        self._rest = b""
        self._pending = b""
        self.ended = False
        self._taken_bytes = 0

    def waits_on(self) -> int | None:
        """The descriptor that says when there is more, or None: one has to look."""
        if self.place.standard and not self.ended:
            try:
                return int(self._file.fileno())
            except (OSError, ValueError):
                return None
        return None

    def push_back(self, block: bytes) -> None:
        """What ``next`` gives next."""
        self._pending = block

    def next(self) -> bytes:
        """Whole lines; empty: none now (``follow``), or none any more (``ended``)."""
        if self._pending:
            block, self._pending = self._pending, b""
            return block
        while not self.ended:
            data = self._read()
            if data is None:
                return b""
            self._taken_bytes += len(data)
            self.ended = not data
            whole, self._rest = self._cut(self._rest + data)
            if len(self._rest) > LINE_BYTES_MAX:
                raise DataError(
                    f"{self.place.label}: a line of more than {LINE_BYTES_MAX >> 20} MiB",
                    hint="is it another format?",
                    code="data.format",
                )
            if whole:
                return whole
        return b""

    def _read(self) -> bytes | None:
        """More bytes; empty at the end, None where more may come later."""
        if self._follow:
            descriptor = self.waits_on()
            if descriptor is not None and not select.select([descriptor], [], [], 0)[0]:
                return None
        try:
            data = bytes(self._file.read1(BLOCK_BYTES) if hasattr(self._file, "read1") else self._file.read())
        except OSError as error:
            if not self.place.packed:
                raise
            raise DataError(
                f"{self.place.label}: no whole gzip file: {str(error).splitlines()[0][:200]}",
                hint="it is damaged, cut off, or not compressed by gzip",
                code="data.format",
            ) from None
        if not data and self._follow and not self.place.standard:
            return None
        return data

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        if self.ended:
            return (data if not data or data.endswith(b"\n") else data + b"\n"), b""
        end = data.rfind(b"\n") + 1
        while end and self._quoted and data.count(b'"', 0, end) % 2:
            end = data.rfind(b"\n", 0, end - 1) + 1
        return data[:end], data[end:]

    @property
    def fraction(self) -> float | None:
        """How much of the file has been read, where its size is known."""
        try:
            size = 0 if self.place.standard else os.fstat(self._raw.fileno()).st_size
            taken = self._raw.tell() if self.place.packed else self._taken_bytes
        except (OSError, ValueError):
            return None
        return min(1.0, taken / size) if size else None

    def close(self) -> None:
        if not self.place.standard:
            self._file.close()
            self._raw.close()


def wait_for(growing: Sequence[Lines]) -> None:
    """Wait until there may be more to read: pipes say so, files have to be looked at again and again."""
    found = [each.waits_on() for each in growing]
    pipes = [each for each in found if each is not None]
    if pipes:
        select.select(pipes, [], [], 1.0 if len(pipes) == len(found) else LOOK_EVERY_S)
    else:
        time.sleep(LOOK_EVERY_S)
