"""A group of a stateful step: the engine over the rows of a micro-batch, and its state as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module

import numpy as np
import pyarrow as pa

from medusa.elements import END_US, START_US, Train
from medusa.engine.fragment import Fragment
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.query.boxes import Schema
from medusa.query.codec import graph_from_msgpack
from medusa.spark import column_types
from medusa.spark.streaming.lateness import SEQ, LatenessJudge
from medusa.spark.streaming.packed import Packed, carried, pack, pieces_of, read, trains
from medusa.spark.streaming.stages import Group, Out, StageInput, StatefulStage

__all__ = ["RunningGroup", "shown"]

_JUDGE, _SHARDS = "@judge-{}.json", "@shards"


class RunningGroup:
    """A group that goes on from micro-batch to micro-batch.

    Args:
        files: what ``snapshot`` gave behind the micro-batch before; None: this is the first.

    Raises:
        QueryError: the graph doesn't hold, or names functions that no module registers.
        StateError: the files aren't those of this group.
    """

    def __init__(self, stage: StatefulStage, group: Group, files: Mapping[str, Buffer] | None) -> None:
        for module in stage.modules:
            import_module(module)
        graph = graph_from_msgpack(group.graph)
        self._group = group
        self._shards = b"%d" % stage.shards
        if files is not None and (was := bytes(files.get(_SHARDS, b"?"))) != self._shards:
            raise StateError(
                f"this checkpoint was begun with shards={was.decode()}, and now it is {stage.shards}",
                hint="give md.spark.stream the shards it was begun with, or begin a new checkpoint; left out"
                " they are spark.sql.shuffle.partitions",
                code="state.graph",
            )
        if files is None:
            self._fragment = Fragment(graph, on_error=stage.on_error)
        else:
            self._fragment = Fragment.restore(graph, files, on_error=stage.on_error)
        self._lanes = {lane.number: lane for lane in group.lanes}
        self._judges = {
            lane.number: LatenessJudge(
                lane.judged, None if files is None else bytes(files[_JUDGE.format(lane.number)])
            )
            for lane in group.lanes
            if lane.judged is not None
        }

    def run(self, rows: Iterable[Packed]) -> list[Packed]:
        """What the rows of one micro-batch give.

        Raises:
            DataError: see ``LatenessJudge``; a failed row with ``on_error="stop"``. The group is of no use
                then.
        """
        came: dict[int, list[Packed]] = {}
        for each in rows:
            came.setdefault(each.lane, []).append(each)
        for number in sorted(came):  # ties between inputs are resolved by the boxes, by time
            lane, mine = self._lanes[number], came[number]
            if lane.judged is not None:
                self._enter(lane, mine)
            else:
                self._take(lane, sorted(mine, key=lambda each: each.number))
        made: list[Packed] = []
        for out in self._group.outs:
            made += self._left(out)
        return made

    def _enter(self, lane: StageInput, rows: list[Packed]) -> None:
        """Rows of a source of the query, in any order."""
        assert lane.judged is not None, "asked before"
        schema = lane.judged.carried
        came = self._judges[lane.number].judge([read(each.rows, schema) for each in rows if each.rows])
        if lane.source is not None:
            for train in came.trains:
                self._fragment.feed(lane.source, train)
        if lane.late is not None:
            for batch in came.late:
                self._fragment.feed(lane.late, Train(batch=batch))
        if came.bound_us is not None and lane.source is not None:
            self._fragment.promise(lane.source, came.bound_us)
        if came.bound_us == END_US and lane.late is not None:
            self._fragment.promise(lane.late, int(END_US))

    def _take(self, lane: StageInput, rows: list[Packed]) -> None:
        """Rows of another step."""
        assert lane.source is not None, "only a source of the query can have late rows alone"
        spec = self._fragment.source(lane.source).spec
        schema = carried(spec.schema, timed=spec.timed)
        for each in rows:
            if each.rows is not None:
                self._fragment.feed(lane.source, trains(each.rows, schema))
            if each.bound > START_US:
                self._fragment.promise(lane.source, each.bound)

    def _left(self, out: Out) -> list[Packed]:
        """What came to a sink since the last micro-batch."""
        elements = self._fragment.drain(out.sink)
        checked = self._fragment.checked
        shape = checked.shapes[checked.boxes[out.sink].inputs[0]]
        if out.final:
            rows = [
                _shown(each, shape.schema, numbered=out.numbered)
                for each in elements
                if isinstance(each, Train) and len(each)
            ]
            return [
                Packed(out.stage, out.shard, out.lane, number, int(START_US), piece)
                for number, piece in enumerate(pieces_of(rows))
            ]
        pieces, bound_us = pack(elements, carried(shape.schema, timed=shape.timed))
        made = [
            Packed(out.stage, out.shard, out.lane, number, int(START_US), piece)
            for number, piece in enumerate(pieces)
        ]
        if bound_us is not None and bound_us > START_US:
            made.append(Packed(out.stage, out.shard, out.lane, len(made), bound_us, None))
        return made

    def snapshot(self) -> dict[str, Buffer]:
        """The state of the group, as files."""
        judges = {_JUDGE.format(number): judge.saved() for number, judge in self._judges.items()}
        return {**self._fragment.snapshot(), **judges, _SHARDS: self._shards}


def shown(schema: Schema, *, numbered: bool) -> pa.Schema:
    """The columns of a sink's rows by place, as Spark takes them."""
    names = column_types.values(schema)
    fields = [(name, column_types.wire(field.type)) for name, field in zip(names, schema, strict=True)]
    return pa.schema([*fields, *([(SEQ, pa.int64())] if numbered else [])])


def _shown(train: Train, schema: Schema, *, numbered: bool) -> pa.RecordBatch:
    made = [
        column_types.arrow_out(column, field.type)
        for column, field in zip(train.batch.columns, schema, strict=True)
    ]
    if numbered:
        made.append(pa.array(np.arange(train.first_seq, train.first_seq + len(train))))
    return pa.RecordBatch.from_arrays(made, schema=shown(schema, numbered=numbered))
