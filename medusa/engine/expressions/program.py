"""Expressions as programs for native code, which runs them in one pass over the rows.

What native code can't do (texts, decimals, float32 ...) is refused here, and a program gives up on a
batch in which a row fails; both are then computed by the kernels of ``medusa.engine.expressions.evaluate``,
which say which row failed and why. So a program never changes an answer, only how long it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from medusa._native import Batch, Program, Window
from medusa.elements import Train
from medusa.query.checker import Analysis, AnalysisStep, analyse
from medusa.query.expressions.expression import Expression, Literal, Named
from medusa.query.expressions.text_casts import float_of
from medusa.query.expressions.tree import columns_of
from medusa.query.types import DURATION, TIMESTAMP

__all__ = ["LATE", "TIMES", "Builder", "NotNative", "ProgramPart", "program_of"]

TIMES = -1
"""Stands for the hidden times among the columns of a program."""

LATE = -2
"""Stands for the late marks of a train, bools."""

OPS = (
    *("column", "const", "float", "add", "sub", "mul", "div", "mod", "neg", "abs", "sqrt"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_null", "is_not_null", "is_nan"),
    *("if", "filter"),
)
"""The operations of ``native/program/program.h``, in its order."""

_CODE = {name: code for code, name in enumerate(OPS)}
_COLUMNS = {"int64": "l", "int32": "i", "float64": "g", "bool": "b", TIMESTAMP: "l", DURATION: "l"}
_FORMATS = {"int64": "l", "int32": "l", "float64": "g", "bool": "b", TIMESTAMP: "tsu:UTC", DURATION: "tDu"}
_WHOLE = ("int64", TIMESTAMP, DURATION)
_SMALL = ("int8", "int16", "int32")
REGISTERS_MAX = 200


class NotNative(Exception):
    """An expression that programs can't do."""


@dataclass
class Builder:
    """A program being written.

    Args:
        schema: column name -> type, in the order of the batches.

    Attributes:
        used: the columns that a run is given, by their positions in the batch, ``TIMES`` or ``LATE``.
    """

    schema: Mapping[str, str]
    used: list[int] = field(default_factory=list)
    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    constants: list[tuple[str, int | float]] = field(default_factory=list)
    registers: int = 0
    filters: int = 0
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def emit(self, op: str, a: int = 0, b: int = 0, c: int = 0) -> int:
        """The register of a step; one taken before is not repeated.

        Raises:
            NotNative: the program is too long.
        """
        key = (op, a, b, c)
        if key not in self._known:
            if self.registers >= REGISTERS_MAX:
                raise NotNative("too many registers")
            self._known[key] = self.registers
            self.steps.append((_CODE[op], self.registers, a, b, c))
            self.registers += 1
        return self._known[key]

    def keep(self, register: int) -> None:
        """Keep the rows for which a bool is true."""
        self.steps.append((_CODE["filter"], 0, register, 0, 0))
        self.filters += 1

    def column(self, position: int, type: str) -> int:
        """The register of a column, of ``TIMES`` or ``LATE``; all are loaded before the first filter.

        Raises:
            NotNative: a column of this type, or one not asked for before the first filter.
        """
        letter = _COLUMNS.get(type)
        if letter is None:
            raise NotNative(type)
        if position not in self.used:
            if self.filters:
                raise NotNative("a column after a filter")
            self.used.append(position)
            self.letters.append(letter)
        return self.emit("column", self.used.index(position))

    def constant(self, literal: Literal) -> int:
        """The register of a literal."""
        type, value = literal.type, literal.value
        if type == "float64":
            made: tuple[str, int | float] = ("g", 0.0 if value is None else float_of(value))
        elif type == "bool":
            made = ("b", int(bool(value)))
        elif type in _WHOLE or type in _SMALL:
            made = ("l", 0 if value is None else int(value))
        else:
            raise NotNative(type)
        # repr: 0.0 and -0.0 are equal but not the same constant.
        key = ("constant", made[0], repr(made[1]), value is None)
        if key not in self._known:
            self.constants.append(made)
            self._known[key] = self.emit("const", len(self.constants) - 1, int(value is None))
        return self._known[key]

    def expressions(
        self, columns: Sequence[Expression], types: Mapping[str, str], env: Mapping[str, int], *, box: str
    ) -> list[tuple[int, str]]:
        """(register, type) of each expression over columns that stand in registers.

        Args:
            types: of the columns, by name.
            env: column name -> register, of those that have one.
        """
        analysis = analyse(columns, types, box=box)
        made = _Translation(self, analysis, env)
        return [(made.register(root), analysis.steps[root].type) for root in analysis.roots]

    def build(self, outputs: Sequence[tuple[int, str, str]]) -> ProgramPart:
        """The program that gives ``(register, type, name)``."""
        program = Program(
            columns=self.letters,
            steps=self.steps,
            constants=self.constants,
            outputs=[(register, _FORMATS[type], name) for register, type, name in outputs],
            positions=self.used,
        )
        return ProgramPart(program, TIMES in self.used)


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """A program over the columns that it wants of a batch.

    Attributes:
        timed: it reads the hidden times.
    """

    program: Program
    timed: bool

    def run(
        self, batch: pa.RecordBatch, times: pa.Array | None, late: pa.Array | None = None
    ) -> tuple[Batch, list[int]] | None:
        """Outputs and the rows behind each filter; None: a row failed, or there is no time to read."""
        if not self.timed:
            return self.program.run(batch, None, late)
        return None if times is None else self.program.run(batch, times, late)

    def into(self, window: Window, train: Train) -> list[int] | None:
        """Add the outputs to a window; the rows behind each filter. None, and nothing added: as ``run``."""
        rows, times = train.native
        return None if times is None else self.program.into(window, rows, times, train.late, train.extent)


class _Translation:
    """The steps of one analysis as steps of a program."""

    def __init__(self, builder: Builder, analysis: Analysis, env: Mapping[str, int]) -> None:
        self._builder = builder
        self._steps = analysis.steps
        self._env = env
        self._made: dict[int, int] = {}

    def register(self, number: int) -> int:
        # Arguments stand before the steps that read them, so this needs no recursion.
        needed = {number}
        for each in range(number, -1, -1):
            if each in needed:
                needed.update(self._steps[each].args)
        for each in sorted(needed):
            if each not in self._made:
                self._made[each] = self._step(self._steps[each])
        return self._made[number]

    def _step(self, step: AnalysisStep) -> int:
        emit = self._builder.emit
        args = [self._made[arg] for arg in step.args]
        types = [self._steps[arg].type for arg in step.args]
        match step.op:
            case "column":
                if step.column not in self._env:
                    raise NotNative(step.type)
                return self._env[step.column]
            case "literal":
                assert step.literal is not None
                return self._builder.constant(step.literal)
            case "tuple_time":
                return self._builder.column(TIMES, TIMESTAMP)
            case "cast":
                return self._cast(args[0], types[0], step.type)
            case "case":
                return self._case(args, step.type)
            case "coalesce":
                _want(step.type in _COLUMNS and step.type != "int32")
                made = args[-1]
                for arg in reversed(args[:-1]):
                    made = emit("if", emit("is_not_null", arg), arg, made)
                return made
            case "and" | "or":
                made = args[0]
                for arg in args[1:]:
                    made = emit(step.op, made, arg)
                return made
            case "in":
                _comparable(types)
                equal = [emit("eq", args[0], arg) for arg in args[1:]]
                made = equal[0]
                for each in equal[1:]:
                    made = emit("or", made, each)
                return made
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                _comparable(types)
                _want(types[0] != "bool" or step.op in ("eq", "ne"))
                return emit(step.op, *args)
            case "add" | "sub" | "mul" | "neg" | "abs":
                _want(step.type == "float64" or step.type in _WHOLE)
                return emit(step.op, *args)
            case "div":
                _want(all(type == "float64" for type in types))
                return emit("div", *args)
            case "floordiv" | "mod":
                _want(all(type == "int64" for type in types))
                return emit("div" if step.op == "floordiv" else "mod", *args)
            case "sqrt" | "is_nan":
                _want(types[0] == "float64")
                return emit(step.op, *args)
            case "not" | "is_null" | "is_not_null":
                return emit(step.op, *args)
        raise NotNative(step.op)

    def _cast(self, register: int, source: str, target: str) -> int:
        if target == "float64" and source in ("int32", "int64"):
            return self._builder.emit("float", register)
        if target == "int64" and source == "int32":
            return register  # widened when loaded
        raise NotNative(f"{source} to {target}")

    def _case(self, args: Sequence[int], type: str) -> int:
        _want(type in _COLUMNS and type != "int32")
        made = args[-1]
        for index in range(len(args) - 3, -1, -2):
            made = self._builder.emit("if", args[index], args[index + 1], made)
        return made


def _want(native: bool) -> None:
    if not native:
        raise NotNative


def _comparable(types: Sequence[str]) -> None:
    one = types[0]
    known = one in _WHOLE or one in _SMALL or one in ("float64", "bool")
    _want(known and all(type == one for type in types))


def program_of(columns: Sequence[Named], schema: Mapping[str, str], *, box: str) -> ProgramPart | None:
    """A program that gives these columns, without filters; None where native code can't."""
    builder = Builder(schema)
    read = {name for each in columns for name in columns_of(each.expression)}
    try:
        env = {
            name: builder.column(position, type)
            for position, (name, type) in enumerate(schema.items())
            if name in read
        }
        made = builder.expressions([each.expression for each in columns], schema, env, box=box)
        _want(bool(builder.used) and all(type in _FORMATS and type != "int32" for _, type in made))
        return builder.build(
            [(register, type, each.name) for (register, type), each in zip(made, columns, strict=True)]
        )
    except NotNative:
        return None
