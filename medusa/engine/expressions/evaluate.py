"""Evaluation of expression trees over record batches: values, and which rows failed.

An expression is compiled once into a list of kernels in registers: no recursion, equal parts run
once, constant parts are computed at compile time. A row on which some part fails (overflow, a cast,
a domain error) is marked and never disturbs its neighbours; AND, OR, CASE and coalesce forgive a
failure in a part that, evaluated left to right, they would not have looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.expressions.kernels.casts import cast
from medusa.engine.expressions.kernels.kernel import (
    Faulty,
    Kernel,
    KernelSite,
    Maker,
    Mask,
    Value,
    as_array,
    function,
    true_rows,
)
from medusa.engine.expressions.kernels.logic import LOGIC
from medusa.engine.expressions.kernels.numbers import NUMBERS
from medusa.engine.expressions.kernels.texts import TEXTS
from medusa.engine.expressions.kernels.times import TIMES
from medusa.engine.expressions.program import program_of
from medusa.query.checker import Analysis, AnalysisStep, analyse
from medusa.query.expressions.expression import Expression, Literal, Named
from medusa.query.expressions.show import show
from medusa.query.expressions.text_casts import float_of
from medusa.query.types import is_decimal, is_float, to_arrow

__all__ = [
    "Evaluated",
    "Evaluator",
    "Projection",
    "compile_expression",
    "compile_projection",
]

MAKERS: dict[str, Maker] = {**LOGIC, **NUMBERS, **TEXTS, **TIMES, "cast": cast}
"""Makers of kernels by the operation of a step; columns, literals and ``tuple_time`` have none."""


# -- which rows failed, and why -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Failures:
    """Rows that failed; of several causes the first is the one reported."""

    mask: Mask
    causes: tuple[tuple[Mask, Callable[[int], str]], ...]

    def among(self, rows: Mask) -> _Failures:
        return _Failures(self.mask & rows, tuple((mask & rows, error) for mask, error in self.causes))

    def error(self, row: int) -> str:
        """What went wrong in a failed row."""
        return next(error(row) for mask, error in self.causes if mask[row])


def _merge(failures: Sequence[_Failures]) -> _Failures | None:
    if len(failures) < 2:
        return failures[0] if failures else None
    mask = failures[0].mask.copy()
    for each in failures[1:]:
        mask |= each.mask
    return _Failures(mask, tuple(cause for each in failures for cause in each.causes))


Parts = Sequence["_Failures | None"]
_invert = function("invert")
_is_null = function("is_null")


def _strict(rows: int, args: Sequence[Value], failed: Parts) -> _Failures | None:
    return _merge([each for each in failed if each is not None])


def _until(
    decided: Callable[[Value, int], Mask],
) -> Callable[[int, Sequence[Value], Parts], _Failures | None]:
    """Of operations that look at their arguments from the left until one decides."""

    def forgive(rows: int, args: Sequence[Value], failed: Parts) -> _Failures | None:
        looking = np.ones(rows, np.bool_)
        counted = []
        for arg, each in zip(args, failed, strict=True):
            if each is not None:
                counted.append(each.among(looking))
            looking &= ~decided(arg, rows)
            if each is not None:
                looking &= ~each.mask
        return _merge([each for each in counted if each.mask.any()])

    return forgive


def _is_false(value: Value, rows: int) -> Mask:
    return true_rows(_invert([value]), rows)


def _is_valid(value: Value, rows: int) -> Mask:
    return ~true_rows(_is_null([value]), rows)


def _case_failures(rows: int, args: Sequence[Value], failed: Parts) -> _Failures | None:
    looking = np.ones(rows, np.bool_)
    counted = []
    for index in range(0, len(args) - 1, 2):
        taken = looking & true_rows(args[index], rows)
        for each, among in ((failed[index], looking), (failed[index + 1], taken)):
            if each is not None:
                counted.append(each.among(among))
        looking = looking & ~taken
        condition = failed[index]
        if condition is not None:
            looking &= ~condition.mask
    last = failed[-1]
    if last is not None:
        counted.append(last.among(looking))
    return _merge([each for each in counted if each.mask.any()])


FORGIVING = {
    "and": _until(_is_false),
    "or": _until(true_rows),
    "coalesce": _until(_is_valid),
    "case": _case_failures,
}
"""How failures of the arguments become those of the result; all other operations are strict."""


# -- constants ------------------------------------------------------------------------------------


def _scalar(literal: Literal) -> pa.Scalar:
    value: Any = literal.value
    if value is not None:
        if is_float(literal.type):
            value = float_of(value)
        elif is_decimal(literal.type):
            value = Decimal(value)
        elif literal.type == "binary":
            value = bytes.fromhex(value)
    return pa.scalar(value, to_arrow(literal.type))


def _spread(kernel: Kernel) -> Kernel:
    """For constant arguments whose kernel fails: every row fails, when and if it is looked at."""
    return lambda rows, args: kernel(rows, [as_array(arg, rows) for arg in args])


# -- programs -------------------------------------------------------------------------------------


class _Program:
    """The steps of one analysis as kernels on numbered registers."""

    def __init__(self, analysis: Analysis, schema: Mapping[str, str], box: str) -> None:
        self.steps = analysis.steps
        self.box = box
        self.registers: list[Value | None] = [None] * len(analysis.steps)
        self.columns: list[tuple[int, int]] = []
        self.times: list[int] = []
        self.work: list[tuple[int, Kernel, tuple[int, ...]]] = []
        positions = {name: position for position, name in enumerate(schema)}
        for register, step in enumerate(analysis.steps):
            if step.op == "column":
                self.columns.append((register, positions[step.column]))
            elif step.op == "tuple_time":
                self.times.append(register)
            elif step.literal is not None:
                self.registers[register] = _scalar(step.literal)
            else:
                self._add(register, step)
        self._drop_unread(analysis.roots)
        self.plain = not self.work

    def _add(self, register: int, step: AnalysisStep) -> None:
        constants = tuple(self.registers[arg] for arg in step.args)
        kernel = MAKERS[step.op](
            KernelSite(step.type, tuple(self.steps[arg].type for arg in step.args), constants)
        )
        if all(constant is not None for constant in constants):
            made = kernel(1, [as_array(constant, 1) for constant in constants])
            if not isinstance(made, Faulty):
                self.registers[register] = made[0]
                return
            kernel = _spread(kernel)
        self.work.append((register, kernel, step.args))

    def _drop_unread(self, roots: Sequence[int]) -> None:
        """Leave out steps that only constants computed already have read."""
        read = set(roots)
        kept = []
        for item in reversed(self.work):
            if item[0] in read:
                kept.append(item)
                read.update(item[2])
        self.work = kept[::-1]

    def run(self, batch: pa.RecordBatch, times: pa.Array | None) -> tuple[list[Value], dict[int, _Failures]]:
        rows = batch.num_rows
        values = self.registers.copy()
        for register, position in self.columns:
            values[register] = batch.column(position)
        for register in self.times:
            if times is None:
                raise ValueError(f"{self.box}: tuple_time of rows without a time")
            values[register] = times
        failures: dict[int, _Failures] = {}
        for register, kernel, numbers in self.work:
            args = [values[number] for number in numbers]
            made = kernel(rows, args)
            failed = None
            if failures:
                failed = self._inherited(register, args, numbers, failures, rows)
            if isinstance(made, Faulty):
                own = self._own(register, made)
                failed = own if failed is None else _merge([failed, own])
                made = made.values
            if failed is not None:
                failures[register] = failed
            values[register] = made
        return values, failures

    def _own(self, register: int, made: Faulty) -> _Failures:
        source = self.steps[register].source
        place = "" if source is None else f" in {show(source)}"
        return _Failures(made.mask, ((made.mask, lambda row: made.error(row) + place),))

    def _inherited(
        self,
        register: int,
        args: Sequence[Value],
        numbers: Sequence[int],
        failures: Mapping[int, _Failures],
        rows: int,
    ) -> _Failures | None:
        parts = [failures.get(number) for number in numbers]
        if not any(parts):
            return None
        return FORGIVING.get(self.steps[register].op, _strict)(rows, args, parts)


# -- what the boxes use ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Values of one expression.

    Attributes:
        values: one per row, of the inferred type; null where the row failed.
        failed: true where the row failed; None where none did.
        error: what went wrong in a failed row, by its number.
    """

    values: pa.Array
    failed: pa.BooleanArray | None
    error: Callable[[int], str]


def _no_error(row: int) -> str:
    raise IndexError(f"row {row} didn't fail")


class Evaluator:
    """A compiled expression, for one thread at a time; nothing is left over from one call to the next."""

    def __init__(self, expression: Expression, schema: Mapping[str, str], *, box: str, timed: bool) -> None:
        analysis = analyse([expression], schema, box=box, timed=timed)
        self.type = analysis.types[0]
        self._root = analysis.roots[0]
        self._program = _Program(analysis, schema, box)
        self._native = None if self._program.plain else program_of([Named("", expression)], schema, box=box)

    def __call__(self, batch: pa.RecordBatch, times: pa.Array | None = None) -> Evaluated:
        """Values for the rows of a batch whose columns are those of the schema, in its order.

        Args:
            times: the hidden time column; needed where the expression reads ``tuple_time``.
        """
        if self._native is not None:
            native = self._native.run(batch, times)
            if native is not None:
                return Evaluated(pa.record_batch(native[0]).column(0), None, _no_error)
        values, failures = self._program.run(batch, times)
        made = as_array(values[self._root], batch.num_rows)
        failed = failures.get(self._root)
        if failed is None:
            return Evaluated(made, None, _no_error)
        return Evaluated(made, pa.array(failed.mask), failed.error)


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns computed from rows, with the rows that failed in any of them.

    Attributes:
        columns: one array per expression, of as many rows as the batch had.
        failed, error: as in ``Evaluated``; the error names the column.
    """

    columns: list[pa.Array]
    failed: pa.BooleanArray | None
    error: Callable[[int], str]


def compile_expression(
    expression: Expression, schema: Mapping[str, str], *, box: str = "expression", timed: bool = True
) -> Evaluator:
    """An evaluator of a tree over batches of a schema (column name to type, in order).

    Raises:
        QueryError: as ``medusa.query.checker.infer``.
    """
    return Evaluator(expression, schema, box=box, timed=timed)


def compile_projection(
    columns: Sequence[Named], schema: Mapping[str, str], *, box: str = "select", timed: bool = True
) -> Callable[[pa.RecordBatch, pa.Array | None], Projection]:
    """A function of (batch, times) that computes several columns; equal parts are computed once."""
    analysis = analyse([each.expression for each in columns], schema, box=box, timed=timed)
    program = _Program(analysis, schema, box)
    names = [each.name for each in columns]
    # Columns taken as they are aren't copied, so the native program gives the others only.
    computed = [place for place, root in enumerate(analysis.roots) if analysis.steps[root].op != "column"]
    native = None if program.plain else program_of([columns[place] for place in computed], schema, box=box)
    taken = {
        place: position
        for place, root in enumerate(analysis.roots)
        for register, position in program.columns
        if register == root
    }

    def natively(batch: pa.RecordBatch, times: pa.Array | None) -> Projection | None:
        made = None if native is None else native.run(batch, times)
        if made is None:
            return None
        fresh = iter(pa.record_batch(made[0]).columns)
        arrays = [batch.column(taken[at]) if at in taken else next(fresh) for at in range(len(names))]
        return Projection(arrays, None, _no_error)

    def project(batch: pa.RecordBatch, times: pa.Array | None) -> Projection:
        found = natively(batch, times)
        if found is not None:
            return found
        values, failures = program.run(batch, times)
        made = [as_array(values[root], batch.num_rows) for root in analysis.roots]
        if not failures:
            return Projection(made, None, _no_error)
        named = [
            _renamed(failures[root], name)
            for name, root in zip(names, analysis.roots, strict=True)
            if root in failures
        ]
        failed = _merge(named)
        if failed is None:
            return Projection(made, None, _no_error)
        return Projection(made, pa.array(failed.mask), failed.error)

    return project


def _renamed(failures: _Failures, name: str) -> _Failures:
    return _Failures(failures.mask, ((failures.mask, lambda row: f"column {name!r}: {failures.error(row)}"),))
