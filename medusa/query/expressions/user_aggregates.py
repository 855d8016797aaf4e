"""What the class of a user's aggregate declares, read and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from medusa.errors import QueryError
from medusa.query.structs import AggregateCall, Field, Function, Schema
from medusa.query.types import NULL, is_float, is_integer, schema_from
from medusa.query.user_registry import check_reference, resolve, versions

__all__ = ["Declared", "declared_by", "registered_aggregate"]

METHODS = ("init", "add", "merge", "finish")
ARGUMENTS_MAX = 16
STATE_MAX = 64


@dataclass(frozen=True, slots=True)
class Declared:
    """A user's aggregate.

    Attributes:
        made: the class.
        inputs: the types of its arguments.
        state: its state columns: numbers and bools, never null.
        result: the type of its column.
    """

    made: Any
    inputs: tuple[str, ...]
    state: Schema
    result: str

    def check(self, types: tuple[str, ...], *, what: str) -> str:
        """The type of the column.

        Args:
            types: of the arguments as they are.

        Raises:
            QueryError: the class takes others.
        """
        if types != self.inputs:
            raise QueryError(
                f"{what}: {self.made.__name__} takes ({', '.join(self.inputs)}), got ({', '.join(types)})",
                hint="cast the argument: CAST(x AS DOUBLE)" if NULL not in types else "",
                code="query.aggregate",
            )
        return self.result


def registered_aggregate(name: str) -> Function | None:
    """The latest version of the aggregate that is registered under a name; None where none is."""
    version = max(versions(name), default=0)
    if not version:
        return None
    made = resolve(Function(name, version), label=name)
    whole = isinstance(made, type) and all(callable(getattr(made, method, None)) for method in METHODS)
    return Function(name, version) if whole else None


def declared_by(call: AggregateCall, *, what: str) -> Declared:
    """The class that a call names, as it declares itself.

    Raises:
        QueryError: nothing is registered so, or it is no aggregate.
    """
    name, version = call.parameter, call.version
    function = Function(str(name), 1 if version is None else version)
    check_reference(function, what=what)
    made = resolve(function, label=what)
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if not isinstance(made, type) or missing:
        raise QueryError(
            f"{what}: {name!r} is no aggregate: expected a class with init, add, merge and finish",
            hint=f"missing: {', '.join(missing)}" if missing else "register the class itself",
            code="query.function",
        )
    inputs = _types(made, "inputs", what)
    state = _fields(made, what)
    (result,) = _types(made, "result", what, single=True)
    if not 1 <= len(inputs) <= ARGUMENTS_MAX:
        raise QueryError(f"{what}: inputs: from 1 to {ARGUMENTS_MAX} types", code="query.function")
    return Declared(made, inputs, state, result)


def _types(made: type, attribute: str, what: str, *, single: bool = False) -> tuple[str, ...]:
    given = getattr(made, attribute, None)
    listed = [given] if single else given
    if not isinstance(listed, list | tuple) or given is None:
        raise QueryError(
            f"{what}: {made.__name__}.{attribute} is missing",
            hint=f'{attribute} = "float64"' if single else f'{attribute} = ["float64"]',
            code="query.function",
        )
    fields = schema_from({str(i): type for i, type in enumerate(listed)}, what=f"{what}: {attribute}")
    return tuple(field.type for field in fields)


def _fields(made: type, what: str) -> Schema:
    given = getattr(made, "state", None)
    if not given:
        raise QueryError(
            f"{what}: {made.__name__}.state is missing",
            hint='state = {"total": "float64", "n": "int64"}',
            code="query.function",
        )
    fields: tuple[Field, ...] = tuple(schema_from(given, what=f"{what}: state"))
    for field in fields:
        if not (is_integer(field.type) or is_float(field.type) or field.type == "bool"):
            raise QueryError(
                f"{what}: state {field.name!r} is {field.type}; state columns are numbers and bools",
                code="query.function",
            )
    if len(fields) > STATE_MAX:
        raise QueryError(f"{what}: at most {STATE_MAX} state columns", code="query.function")
    return fields
