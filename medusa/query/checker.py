"""The types of an expression against a schema: every name and type is checked before anything runs.

``infer`` answers with the type; ``analyse`` gives the same tree as a list of steps in which every
conversion is explicit, which is what the engine and the emitters of other dialects work from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from medusa.errors import QueryError
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.expressions.functions import FUNCTIONS, TABLE_VERSION, castable
from medusa.query.expressions.operands import Mismatch, Operand, unify
from medusa.query.expressions.patterns import check_regex
from medusa.query.expressions.show import show
from medusa.query.expressions.text_casts import convert_literal
from medusa.query.expressions.tree import check_limits, check_literal
from medusa.query.suggest import did_you_mean
from medusa.query.types import NULL, is_type, normalise

__all__ = ["Analysis", "AnalysisStep", "analyse", "infer"]


@dataclass(frozen=True, slots=True)
class AnalysisStep:
    """One operation on the results of earlier steps.

    Attributes:
        op: ``column``, ``literal``, ``cast``, ``case`` or a function's name. ``add`` and ``mul``
            have two arguments here; ``nullif`` has become a case.
        type: of the result.
        args: numbers of the steps that give the arguments, each of exactly the type that the
            operation wants. Of a case: condition, value, condition, value, ..., otherwise.
        column: name of the column, else empty.
        literal: the constant of a ``literal``, else None.
        source: the expression this step came from, for messages.
    """

    op: str
    type: str
    args: tuple[int, ...] = ()
    column: str = ""
    literal: Literal | None = None
    source: Expression | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """Steps in an order in which arguments come first; equal parts are one step.

    Attributes:
        roots: the step that gives each of the expressions analysed.
    """

    steps: tuple[AnalysisStep, ...]
    roots: tuple[int, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Result types of the expressions."""
        return tuple(self.steps[root].type for root in self.roots)


def infer(expression: Expression, schema: Mapping[str, str], *, box: str, timed: bool = True) -> str:
    """The result type of a tree.

    Args:
        schema: column name to type, in order.
        box: who asks, for messages, e.g. ``filter 'fast'``.
        timed: whether the stream has a time, which ``tuple_time`` reads.

    Raises:
        QueryError: an unknown column or function, arguments of wrong number or types, a bare
            NULL, a literal that isn't of its type, a tree that is too deep or too
            large (``tree.check_limits``).
    """
    return analyse([expression], schema, box=box, timed=timed).types[0]


def analyse(
    expressions: Sequence[Expression], schema: Mapping[str, str], *, box: str, timed: bool = True
) -> Analysis:
    """The steps that compute several expressions over one schema; arguments and errors as ``infer``."""
    builder = _Builder(schema, box, timed)
    roots = []
    for expression in expressions:
        check_limits(expression, box=box)
        root = builder.visit(expression)
        if builder.steps[root].type == NULL:
            raise QueryError(
                f"{box}: {show(expression)} is NULL of no type",
                hint="give it one: CAST(NULL AS float64)",
                code="query.type",
            )
        roots.append(root)
    return Analysis(tuple(builder.steps), tuple(roots))


@dataclass
class _Builder:
    schema: Mapping[str, str]
    box: str
    timed: bool
    steps: list[AnalysisStep] = field(default_factory=list)
    known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def emit(self, step: AnalysisStep) -> int:
        """The number of a step; one computed before is not repeated."""
        literal = step.literal
        # repr: 0.0 and -0.0, 1 and True are equal but not the same constant.
        constant = (literal.type, repr(literal.value)) if literal is not None else None
        key = (step.op, step.type, step.args, step.column, constant)
        if key not in self.known:
            self.known[key] = len(self.steps)
            self.steps.append(step)
        return self.known[key]

    def visit(self, node: Expression) -> int:
        match node:
            case Column():
                return self.column(node)
            case Literal():
                check_literal(node, box=self.box)
                return self.emit(AnalysisStep("literal", node.type, literal=node, source=node))
            case Cast():
                return self.cast(node)
            case Case():
                return self.case(node)
            case Call():
                return self.call(node)
        raise QueryError(f"{self.box}: {type(node).__name__} is no expression", code="query.expression")

    def column(self, node: Column) -> int:
        kind = self.schema.get(node.name)
        if kind is None:
            raise QueryError(
                f"{self.box}: there is no column {node.name[:100]!r}",
                hint=did_you_mean(node.name, self.schema),
                code="query.column",
            )
        return self.emit(AnalysisStep("column", kind, column=node.name, source=node))

    def cast(self, node: Cast) -> int:
        if not is_type(node.type):
            normalise(node.type[:100], what=f"{self.box}: {show(node)}")
            raise QueryError(f"{self.box}: {node.type[:100]!r} is no type of a tree", code="query.type")
        arg = self.visit(node.arg)
        source = self.steps[arg].type
        if not castable(source, node.type):
            raise QueryError(
                f"{self.box}: {show(node)}: a {source} can't be cast to {node.type}", code="query.type"
            )
        return self.convert(arg, node.type, node)

    def convert(self, arg: int, type: str, source: Expression) -> int:
        """The step that gives ``arg`` in another type."""
        step = self.steps[arg]
        if step.type == type:
            return arg
        if step.literal is not None and (step.literal.value is None or not isinstance(source, Cast)):
            constant = convert_literal(step.literal, type)
            if constant is not None:
                return self.emit(AnalysisStep("literal", type, literal=constant, source=step.source))
        return self.emit(AnalysisStep("cast", type, (arg,), source=source))

    def operand(self, arg: int) -> Operand:
        step = self.steps[arg]
        return Operand(step.type, step.literal)

    def case(self, node: Case) -> int:
        if not node.branches:
            raise QueryError(f"{self.box}: a CASE needs at least one WHEN", code="query.expression")
        conditions, values = [], []
        for condition, value in node.branches:
            conditions.append(self.visit(condition))
            values.append(self.visit(value))
        values.append(self.visit(node.otherwise if node.otherwise is not None else Literal(NULL, None)))
        for number, condition_step in enumerate(conditions):
            if self.steps[condition_step].type not in ("bool", NULL):
                self.refuse(node, f"a bool after WHEN {number + 1}", [condition_step])
        common = unify([self.operand(value) for value in values])
        if common is None:
            self.refuse(node, "values of one type after THEN and ELSE", values)
        return self.branches(conditions, values, str(common), node)

    def branches(self, conditions: list[int], values: list[int], type: str, source: Expression) -> int:
        args: list[int] = []
        for condition, value in zip(conditions, values, strict=False):
            args += (self.convert(condition, "bool", source), self.convert(value, type, source))
        args.append(self.convert(values[-1], type, source))
        return self.emit(AnalysisStep("case", type, tuple(args), source=source))

    def refuse(self, node: Expression, expected: str, args: Sequence[int], hint: str = "") -> None:
        came = ", ".join(dict.fromkeys(self.steps[arg].type for arg in args)) or "nothing"
        raise QueryError(
            f"{self.box}: {show(node)}: expected {expected}, got {came}", hint=hint, code="query.type"
        )

    def call(self, node: Call) -> int:
        function = FUNCTIONS.get(node.function)
        if function is None:
            raise QueryError(
                f"{self.box}: there is no function {node.function[:100]!r} "
                f"(version {TABLE_VERSION} of the list)",
                hint=did_you_mean(node.function, FUNCTIONS),
                code="query.function",
            )
        count = len(node.args)
        if count < function.least or (function.most is not None and count > function.most):
            wanted = str(function.least) if function.most == function.least else f"{function.least} or more"
            if function.most not in (None, function.least):
                wanted = f"{function.least} to {function.most}"
            raise QueryError(
                f"{self.box}: {show(node)}: {function.name} takes {wanted} arguments, got {count}",
                code="query.arguments",
            )
        if function.name == "tuple_time" and not self.timed:
            raise QueryError(
                f"{self.box}: tuple_time has no value here: the stream has no time",
                hint="give the source time=",
                code="query.time",
            )
        args = [self.visit(arg) for arg in node.args]
        if function.name in ("add", "mul"):
            left = args[0]
            for right in args[1:]:
                left = self.apply(node, [left, right])
            return left
        return self.apply(node, args)

    def apply(self, node: Call, args: list[int]) -> int:
        try:
            signature = FUNCTIONS[node.function].rule([self.operand(arg) for arg in args])
        except Mismatch as mismatch:
            self.refuse(node, mismatch.expected, args, mismatch.hint)
            raise
        converted = [
            self.convert(arg, type, node) for arg, type in zip(args, signature.operands, strict=True)
        ]
        if node.function.startswith("regexp_"):
            self.check_pattern(node)
        if node.function == "nullif":
            equal = self.emit(AnalysisStep("eq", "bool", tuple(converted), source=node))
            null = self.emit(AnalysisStep("literal", NULL, literal=Literal(NULL, None)))
            return self.branches([equal], [null, converted[0]], signature.result, node)
        return self.emit(AnalysisStep(node.function, signature.result, tuple(converted), source=node))

    def check_pattern(self, node: Call) -> None:
        constants = [arg.value for arg in node.args[1:] if isinstance(arg, Literal)]
        replacement = str(constants[1]) if node.function == "regexp_replace" else None
        group = 0 if node.function == "regexp_extract" else None
        if group is not None and len(constants) == 2:
            group = int(constants[1] or 0)
        wrong = check_regex(str(constants[0]), replacement, group)
        if wrong:
            raise QueryError(f"{self.box}: {show(node)}: {wrong}", code="query.pattern")
