"""The state of a group as Spark holds it: an index with the small files, and the large ones in chunks.

Only chunks that have changed are written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Protocol

import msgspec

from medusa.errors import StateError
from medusa.ports import Buffer

__all__ = ["CHUNK_BYTES", "Chunks", "StateManifest", "index_of", "load", "save"]

CHUNK_BYTES = 1 << 20
SMALL_BYTES = 1 << 12
"""A file up to this size stands in the index."""

DIGEST_BYTES = 16


class Chunks(Protocol):
    """Where chunks are: by file and number."""

    def get(self, file: str, number: int) -> bytes | None: ...

    def put(self, file: str, number: int, data: bytes) -> None: ...

    def remove(self, file: str, number: int) -> None: ...


class StateManifest(msgspec.Struct, frozen=True):
    """What the state of a group consists of.

    Attributes:
        token: names this state; no other has it.
        chunks: of each large file the digests of its chunks.
    """

    token: bytes
    small: dict[str, bytes]
    chunks: dict[str, tuple[bytes, ...]]

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)


def index_of(data: bytes) -> StateManifest:
    """An index as it was written.

    Raises:
        StateError: it isn't one.
    """
    try:
        return msgspec.msgpack.decode(data, type=StateManifest)
    except msgspec.DecodeError as error:
        raise StateError(f"index: not the state of a step: {error}", code="state.corrupt") from None


def load(index: StateManifest, chunks: Chunks) -> dict[str, Buffer]:
    """The files.

    Raises:
        StateError: a chunk is missing or damaged; names it.
    """
    files: dict[str, Buffer] = dict(index.small)
    for name, digests in index.chunks.items():
        made = []
        for number, digest in enumerate(digests):
            chunk = chunks.get(name, number)
            if chunk is None or _digest(chunk) != digest:
                raise StateError(f"{name}: chunk {number} is missing or damaged", code="state.corrupt")
            made.append(chunk)
        files[name] = b"".join(made)
    return files


def save(files: Mapping[str, Buffer], before: StateManifest | None, chunks: Chunks) -> StateManifest:
    """Write what of the files has changed; the index is the caller's to write."""
    old = {} if before is None else before.chunks
    small: dict[str, bytes] = {}
    large: dict[str, tuple[bytes, ...]] = {}
    for name, data in files.items():
        view = memoryview(data).cast("B")
        if len(view) <= SMALL_BYTES:
            small[name] = bytes(view)
            continue
        known = old.get(name, ())
        digests: list[bytes] = []
        for number, start in enumerate(range(0, len(view), CHUNK_BYTES)):
            chunk = bytes(view[start : start + CHUNK_BYTES])
            digests.append(_digest(chunk))
            if number >= len(known) or known[number] != digests[-1]:
                chunks.put(name, number, chunk)
        large[name] = tuple(digests)
    for name, known in old.items():
        for number in range(len(large.get(name, ())), len(known)):
            chunks.remove(name, number)
    return StateManifest(token=os.urandom(DIGEST_BYTES), small=small, chunks=large)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
