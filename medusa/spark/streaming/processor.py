"""What Spark calls for a group of a stateful step, and the state of the group as Spark holds it.

That is an index with the small files, and the large ones in chunks. Only chunks that have changed are
written.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.spark.streaming.packed import Packed, table
from medusa.spark.streaming.stage import RunningGroup
from medusa.spark.streaming.stages import Group, StatefulStage

if TYPE_CHECKING:
    from pyspark.sql.streaming import StatefulProcessorHandle

__all__ = ["CHUNK_BYTES", "Chunks", "Processor", "StateManifest", "index_of", "load", "save"]

_STAGES = msgpack_decoder(StatefulStage)

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


_MANIFESTS = msgpack_decoder(StateManifest)


def index_of(data: bytes) -> StateManifest:
    """An index as it was written.

    Raises:
        StateError: it isn't one.
    """
    try:
        return _MANIFESTS.decode(data)
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


HELD_MAX = 64
"""Groups that a Python process of Spark keeps from one micro-batch to the next."""

_HELD: OrderedDict[bytes, RunningGroup] = OrderedDict()
"""By token: groups whose state is in Spark's store too, so that they needn't be read from there."""


class Processor:
    """One step for Spark's ``transformWithStateInPandas``: what a ``StatefulProcessor`` of Spark's has.

    Args:
        encoded: a ``StatefulStage`` as msgpack.
    """

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls it once for a partition."""
        self._stage = _STAGES.decode(self._encoded)
        self._groups = {group.shard: group for group in self._stage.groups}
        self._index = handle.getValueState("index", "data binary")
        self._chunks = _Chunks(handle.getMapState("chunks", "file string, number int", "data binary"))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """The rows of a micro-batch for one group; those for a later step pass."""
        mine: list[Packed] = []
        passing: list[Packed] = []
        for frame in rows:
            for each in _packed(frame):
                (mine if each.stage == self._stage.number else passing).append(each)
        made = self._run(self._groups[int(key[0])], mine) if mine else []
        for each in (*passing, *made):  # each may be large
            yield table([each]).to_pandas()

    def _run(self, group: Group, rows: list[Packed]) -> list[Packed]:
        found = self._index.get()
        index = None if found is None else index_of(bytes(found[0]))
        running = None if index is None else _HELD.pop(index.token, None)
        if running is None:
            files = None if index is None else load(index, self._chunks)
            running = RunningGroup(self._stage, group, files)
        made = running.run(rows)
        after = save(running.snapshot(), index, self._chunks)
        self._index.update((after.encoded(),))
        _HELD[after.token] = running
        while len(_HELD) > HELD_MAX:
            _HELD.popitem(last=False)
        return made

    def close(self) -> None:
        """Nothing is open."""


class _Chunks:
    """Chunks in a map of Spark's."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, file: str, number: int) -> bytes | None:
        found = self._state.getValue((file, number))
        return None if found is None else bytes(found[0])

    def put(self, file: str, number: int, data: bytes) -> None:
        self._state.updateValue((file, number), (data,))

    def remove(self, file: str, number: int) -> None:
        self._state.removeKey((file, number))


def _packed(frame: Any) -> Iterator[Packed]:
    columns = [frame[name] for name in Packed._fields]
    for stage, shard, lane, number, bound, rows in zip(*columns, strict=True):
        yield Packed(int(stage), int(shard), int(lane), int(number), int(bound), rows)
