"""What Spark calls for a group of a stateful step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.spark.streaming import kept_state
from medusa.spark.streaming.packed import Packed, table
from medusa.spark.streaming.stage import RunningGroup
from medusa.spark.streaming.stages import Group, StatefulStage

if TYPE_CHECKING:
    from pyspark.sql.streaming import StatefulProcessorHandle

__all__ = ["Processor"]

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
        self._stage = msgspec.msgpack.decode(self._encoded, type=StatefulStage)
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
        index = None if found is None else kept_state.index_of(bytes(found[0]))
        running = None if index is None else _HELD.pop(index.token, None)
        if running is None:
            files = None if index is None else kept_state.load(index, self._chunks)
            running = RunningGroup(self._stage, group, files)
        made = running.run(rows)
        after = kept_state.save(running.snapshot(), index, self._chunks)
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
