"""Superboxes: boxes that follow each other and look at one row at a time, run as one.

A chain of filters, selects and with_columns, and the window at its end, takes a train through all of
them before the scheduler goes on (Aurora's superbox, in its plainest form). Where native code knows
all its expressions, the train runs through one program: columns that nobody reads below are never
made, rows that a filter drops are never computed, and nothing is written between two boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import pyarrow as pa

from medusa._native import Batch
from medusa.elements import Kind, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import Operator
from medusa.engine.core.native_types import narrow
from medusa.engine.expressions.program import LATE, TIMES, Builder, NotNative, ProgramPart
from medusa.engine.operators.filter import FilterBox
from medusa.engine.operators.project import ProjectBox
from medusa.engine.operators.windows.aggregate import AggregateBox
from medusa.query.boxes import Aggregate, Box, Filter, Input, Schema, Select, WithColumns
from medusa.query.expressions.expression import Column, Expression, Literal, Named
from medusa.query.expressions.tree import columns_of
from medusa.query.graph import CheckedGraph
from medusa.query.shape import types_of
from medusa.query.text_growth import TEXT_CHARS, TextGrowth, grown
from medusa.query.types import DURATION, TIMESTAMP

__all__ = ["FusedRows", "link_chains"]

Row = FilterBox | ProjectBox
_ROWS = (Filter, Select, WithColumns)


@dataclass(slots=True)
class Programs:
    """The program of a chain, and that for trains with late marks, made when the first one comes."""

    on_time: ProgramPart
    make_late: Callable[[], ProgramPart | None]
    _late: ProgramPart | None = None
    _asked: bool = False

    @property
    def late(self) -> ProgramPart | None:
        if not self._asked:
            self._asked, self._late = True, self.make_late()
        return self._late


class FusedRows:
    """Some boxes in a row; the first one gives it the trains that come.

    All members run on a train before the next train: so it makes no difference to the order of rows
    whether the program took a train or, one by one, the boxes did.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        window: AggregateBox | None,
        programs: Programs | None,
        *,
        timed: bool,
        growth: float,
    ) -> None:
        self._rows = rows
        self._window = window
        self._native = window.native_window() if window is not None else None
        self._programs = programs
        last = rows[-1]
        # What each train needs of the boxes, asked for once.
        self._counted = [
            (box.passed, isinstance(box, FilterBox), box is last and window is None) for box in rows
        ]
        self._schema = last.schema
        self._types = last.types
        self._timed = timed
        self._growth = growth
        self.take = self._take if growth <= 1 else self._take_growing
        """Run a train through all members; the first has counted it as come in."""
        self._texts: list[int] | None = None
        """Columns of what comes that are texts; None: nothing came yet of which that matters."""

    @property
    def ends_in_window(self) -> bool:
        return self._window is not None

    def dissolve(self) -> None:
        """Its members take trains one by one from now on."""
        self._rows[0].lead(None)

    def _take_growing(self, train: Train) -> None:
        """Where texts may grow beyond a piece, rows leave in pieces."""
        if self._may_grow(train):
            self._rows[0].leave(self._in_pieces(train))
        else:
            self._take(train)

    def _may_grow(self, train: Train) -> bool:
        nbytes = train.batch.nbytes + TEXT_CHARS * train.batch.num_rows
        return bool(nbytes * self._growth > output_pieces.BYTES_MAX)

    def _in_pieces(self, train: Train) -> Iterator[None]:
        if self._texts is None:
            self._texts = output_pieces.text_columns(train.batch.schema)
        sizes = (output_pieces.text_bytes(train.batch, self._texts) + TEXT_CHARS) * self._growth
        for first, end in output_pieces.cuts(sizes.astype(np.int64)):
            self._take(train.part(first, end - first))
            yield

    def _take(self, train: Train) -> None:
        if self._programs is not None and train.kind is Kind.STABLE:
            part = self._programs.on_time if train.late is None else self._programs.late
            if part is not None and self._run(part, train):
                return
        self._one_by_one(train)

    def _run(self, part: ProgramPart, train: Train) -> bool:
        """False, and nothing happened: a row failed."""
        batch: Batch | None = None
        if self._native is not None:
            kept = part.into(self._native, train)
            if kept is None:
                return False
        else:
            made = part.run(train.batch, train.times, train.late)
            if made is None:
                return False
            batch, kept = made
        rows = self._count(len(train), kept)
        if self._window is not None:
            self._window.passed(rows, 0)
            if train.late is not None:
                self._window.count(late=rows - kept[-1])
        if batch is not None and len(batch):
            self._hand_on(train, batch)
        return True

    def _count(self, rows: int, kept: list[int]) -> int:
        """Rows that each box took and gave; returns those of the last one."""
        filtered = came = 0  # the first has counted what came, and what leaves the last is counted there
        for passed, filters, leaves in self._counted:
            if filters:
                rows = kept[filtered]
                filtered += 1
            passed(came, 0 if leaves else rows)
            came = rows
        return rows

    def _hand_on(self, train: Train, batch: Batch) -> None:
        if self._window is not None:
            self._window.add(batch)
            return
        columns = pa.record_batch(batch).columns
        times = columns.pop(0) if self._timed else None
        late = columns.pop() if train.late is not None else None
        arrays = [narrow(column, type) for column, type in zip(columns, self._types, strict=True)]
        self._rows[-1].emit_train(
            Train(batch=pa.RecordBatch.from_arrays(arrays, schema=self._schema), times=times, late=late)
        )

    def _one_by_one(self, train: Train) -> None:
        last = self._rows[-1]
        for box in self._rows:
            if box is not self._rows[0]:
                box.passed(len(train), 0)
            made = box.apply(train)
            if not len(made):
                return
            train = made
            if box is not last or self._window is not None:
                box.passed(0, len(train))
        if self._window is None:
            last.emit_train(train)
        else:
            self._window.receive(0, train)


def link_chains(checked: CheckedGraph, boxes: Mapping[str, Operator], timed: Mapping[str, bool]) -> None:
    """Tell the first box of every chain of a graph of its chain.

    Args:
        timed: of each box, whether anything reads the times of its output.
    """
    taken: set[str] = set()
    for spec in checked.graph.boxes:
        if spec.id in taken or not isinstance(spec, _ROWS):
            continue
        specs, window = _followers(spec, checked)
        taken.update(each.id for each in specs)
        rows = [box for each in specs if isinstance(box := boxes[each.id], FilterBox | ProjectBox)]
        end = boxes[window.id] if window is not None else None
        assert end is None or isinstance(end, AggregateBox)
        write = partial(_program, specs, window, checked, end, timed=timed[specs[-1].id])
        part = write(late=False)
        growth = prod(_growth(each) for each in specs)
        if part is None and len(specs) == 1 and window is None and growth <= 1:
            continue
        programs = Programs(part, partial(write, late=True)) if part is not None else None
        timed_end = checked.shapes[specs[0].inputs[0]].timed and timed[specs[-1].id]
        rows[0].lead(FusedRows(rows, end, programs, timed=timed_end, growth=growth))


def _growth(spec: Box) -> float:
    """How many times longer than its texts are those that a box makes."""
    assert isinstance(spec, _ROWS)
    made = [spec.predicate] if isinstance(spec, Filter) else [named.expression for named in spec.columns]
    return max((grown(expression, TextGrowth({})) for expression in made), default=1.0)


def _followers(first: Box, checked: CheckedGraph) -> tuple[list[Box], Aggregate | None]:
    """The boxes of the chain that begins here, and the window that ends it."""
    chain = [first]
    while True:
        last = chain[-1]
        readers = checked.consumers[Input(last.id)]
        if len(readers) != 1:
            return chain, None
        following = checked.boxes[readers[0][0]]
        if isinstance(following, _ROWS):
            chain.append(following)
        elif isinstance(following, Aggregate) and following.stage != "combine":
            return chain, following
        else:
            return chain, None


def _program(
    specs: Sequence[Box],
    window: Aggregate | None,
    checked: CheckedGraph,
    end: AggregateBox | None,
    *,
    timed: bool,
    late: bool,
) -> ProgramPart | None:
    """One program for the chain; None where native code can't, or would gain nothing.

    Args:
        late: for trains with late marks: a window doesn't get rows that are late, others do with their marks.
    """
    origin = checked.shapes[specs[0].inputs[0]]
    wanted: list[Named]
    if end is not None:
        arguments = end.native_columns()
        if arguments is None:
            return None
        wanted = arguments
    elif not any(isinstance(spec, Filter) for spec in specs) or len(specs) == 1:
        return None
    else:
        wanted = [Named(field.name, Column(field.name)) for field in _schema(specs[-1], checked)]
    builder = Builder(types_of(origin.schema))
    label = f"query {checked.graph.name!r}"
    try:
        timed = timed or end is not None
        return _translate(
            builder, specs, wanted, checked, label, times=timed, late=late, window=end is not None
        )
    except NotNative:
        return None


def _translate(
    builder: Builder,
    specs: Sequence[Box],
    wanted: Sequence[Named],
    checked: CheckedGraph,
    label: str,
    *,
    times: bool,
    late: bool,
    window: bool,
) -> ProgramPart:
    origin = checked.shapes[specs[0].inputs[0]]
    steps, read = _live(specs, [each.expression for each in wanted])
    types = types_of(origin.schema)
    env = {
        field.name: builder.column(position, field.type)
        for position, field in enumerate(origin.schema)
        if field.name in read
    }
    # Loaded before the first filter, like every column.
    time = builder.column(TIMES, TIMESTAMP) if origin.timed and times else None
    marks = builder.column(LATE, "bool") if late else None
    for spec, columns in zip(specs, steps, strict=True):
        made = builder.expressions([each.expression for each in columns], types, env, box=label)
        if isinstance(spec, Filter):
            builder.keep(made[0][0])
            continue
        fresh = {each.name: register for each, (register, _) in zip(columns, made, strict=True)}
        types = types_of(_schema(spec, checked))
        env = fresh if isinstance(spec, Select) else env | fresh
    if marks is not None and window:
        builder.keep(builder.emit("not", marks))
    outputs = builder.expressions([each.expression for each in wanted], types, env, box=label)
    listed = [(register, type, each.name) for (register, type), each in zip(outputs, wanted, strict=True)]
    if window:
        listed = [(register, _WIDE.get(type, type), name) for register, type, name in listed]
    if time is not None:
        listed.insert(0, (time, TIMESTAMP, "@time"))
    if marks is not None and not window:
        listed.append((marks, "bool", "@late"))
    if not builder.used or not listed:
        raise NotNative
    return builder.build(listed)


_WIDE = {TIMESTAMP: "int64", DURATION: "int64", "int32": "int64"}
"""How a window takes what is no int64."""


def _live(specs: Sequence[Box], wanted: Sequence[Expression]) -> tuple[list[list[Named]], set[str]]:
    """What each box has to compute, and the columns that must come in for it.

    A column that nobody reads below is computed only if it could fail: its row is then left out.
    """
    live = {name for tree in wanted for name in columns_of(tree)}
    steps: list[list[Named]] = []
    for spec in reversed(specs):
        if isinstance(spec, Filter):
            steps.append([Named("", spec.predicate)])
        else:
            assert isinstance(spec, Select | WithColumns)
            steps.append(
                [c for c in spec.columns if c.name in live or not isinstance(c.expression, Column | Literal)]
            )
            live = set() if isinstance(spec, Select) else live - {each.name for each in spec.columns}
        live |= {name for each in steps[-1] for name in columns_of(each.expression)}
    return steps[::-1], live


def _schema(spec: Box, checked: CheckedGraph) -> Schema:
    return checked.shapes[Input(spec.id)].schema
