"""Boxes that run functions and classes of users: everything about them that can be checked before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.base import MANY, PART_OF_MERGE, BoxData, Sharing, SplitPlan, Thinned
from medusa.query.boxes.checks import check_declared, key_type, need_time, with_place
from medusa.query.boxes.text import by_text
from medusa.query.expressions.expression import Named
from medusa.query.shape import StreamShape, refuse_twice
from medusa.query.structs import Field, Function, Input, Schema
from medusa.query.types import check_column_name
from medusa.query.user_registry import check_reference

__all__ = ["IN_FLIGHT_MAX", "ROW", "TIME", "Apply", "Process"]


IN_FLIGHT_MAX = 10_000
ROW = "_row"
TIME = "_time"
NAMES_MAX = 64
STATE_NAMES = (
    "begin",
    "cancel",
    "clear",
    "drop_timer",
    "empty",
    "fields",
    "first",
    "gone",
    "next_timer",
    "restore",
    "saved",
    "timers",
    "times",
    "undo",
    "wake_at",
)
"""What the state object has besides its fields."""


class Apply(BoxData, frozen=True, tag_field="kind", tag="apply", kw_only=True):
    """A function from batches to batches, row by row: where batches are cut doesn't show.

    Attributes:
        function: what is called.
        schema: columns of the output, checked on every call.
        in_flight: of an async function: calls that run at a time; None: an ordinary function.
        keys: rows of a key go to the same part of a split; none: rows go in blocks. The function doesn't
            see them, and no answer depends on them.
        position: of a part of a split: the column (int64) with the number of the row, which is the last one
            of its input and of its output, and which the function doesn't see.
    """

    sharing: ClassVar[Sharing] = "rows"

    inputs: tuple[Input, ...]
    function: Function
    schema: Schema
    in_flight: int | None = None
    keys: tuple[Named, ...] = ()
    position: str | None = None

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        _check_function(self.function, label)
        check_declared(self.schema, label, reserved=(ROW,))
        if self.in_flight is not None and not 1 <= self.in_flight <= IN_FLIGHT_MAX:
            raise QueryError(
                f"{label}: in_flight is 1 to {IN_FLIGHT_MAX:,} calls, got {self.in_flight}",
                code="query.limit",
            )
        refuse_twice(self.keys, label=f"{label}: by")
        for key in self.keys:
            key_type(key, row, label)
        lost = f"{label} makes columns of its own" if row.window or row.no_window else ""
        schema = self.schema
        if self.position is not None:
            schema = with_place(schema, self.position, inputs, label)
        return StreamShape(label, schema, timed=row.timed, no_window=lost)

    def describe(self) -> str:
        calls = "" if self.in_flight is None else f", {self.in_flight} calls at a time"
        return f"{_function_text(self.function)}{calls}{by_text(self.keys)}"

    @property
    def keeps_state(self) -> bool:
        return self.in_flight is not None  # Async calls answer by place, which a log remembers.

    def reads_time(self, below: bool) -> bool:
        return below

    @property
    def stays_whole(self) -> str:
        return "" if self.in_flight is None else "its calls at a time are counted over all of its rows"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if self.position is not None:
            return PART_OF_MERGE
        place = name("")
        part = msgspec.structs.replace(self, position=place)
        return SplitPlan(keys=[self.keys], part=part, positions=(place,), arrival=True)

    def without(self, hidden: Sequence[str]) -> Apply:
        return msgspec.structs.replace(self, position=None)

    @property
    def when_thinned(self) -> Thinned:
        return "rows" if self.in_flight is None else ""  # By contract, row by row.

    @property
    def embedded_only(self) -> tuple[str, str] | None:
        if self.in_flight is None:
            return None
        what = "runs an async function, whose results a restarted node can't repeat yet"
        return what, "use an ordinary function, or run it embedded"


class Process(BoxData, frozen=True, tag_field="kind", tag="process", kw_only=True):
    """A class of the user's that is given the rows of a key, in order of time, with its state.

    Attributes:
        function: the class.
        schema: columns of the output.
        keys: by which rows and state are kept apart; the same expressions for every input.
        state: the fields that are kept for each key; may be empty.
        names: of the inputs, where there are several; None for one.
        positions: of a part of a split: columns (int64) that its rows have besides, by which a merge
            orders them: the microsecond at which the row is released, which is that of its call (of a timer
            the one before, since all rows below its time come first); of a timer the time of the first
            row of its key; and the place, among rows of one time, of the row that caused it (of a timer: of
            that first row). Every input has a last column called as the place, with the number of the row.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    inputs_least: ClassVar[int] = 1
    inputs_most: ClassVar[int] = MANY
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of all inputs to pass its time"

    inputs: tuple[Input, ...]
    function: Function
    schema: Schema
    keys: tuple[Named, ...]
    state: Schema = ()
    names: tuple[str, ...] | None = None
    positions: tuple[str, str, str] | None = None

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        _check_function(self.function, label)
        check_declared(self.schema, label, reserved=(ROW, TIME))
        if self.state:
            check_declared(self.state, f"{label}: state", reserved=STATE_NAMES)
            for field in self.state:
                if not field.name.isidentifier() or field.name.startswith("_"):
                    raise QueryError(
                        f"{label}: state: {field.name!r} can't be an attribute",
                        hint="a letter, then letters, digits and _",
                        code="query.name",
                    )
        if len(inputs) > NAMES_MAX:
            raise QueryError(f"{label}: at most {NAMES_MAX} inputs", code="query.arity")
        names = self.names
        if names is None and len(inputs) > 1:
            raise QueryError(f"{label}: several inputs need names", code="query.arity")
        if names is not None:
            if len(names) != len(inputs):
                raise QueryError(f"{label}: {len(names)} names for {len(inputs)} inputs", code="query.arity")
            for name in names:
                check_column_name(name, what=f"{label}: input")
            refuse_twice(names, label=f"{label}: inputs")
        if not self.keys:
            raise QueryError(f'{label}: needs a key: by="vid"', code="query.key")
        refuse_twice(self.keys, label=f"{label}: by")
        types: list[str] = []
        for number, row in enumerate(inputs):
            need_time(row, label, "process")
            came = [key_type(key, row, label) for key in self.keys]
            if number and came != types:
                raise QueryError(
                    f"{label}: the key is {', '.join(types)} in {inputs[0].box}"
                    f" and {', '.join(came)} in {row.box}",
                    hint="cast it in a with_columns before",
                    code="query.type",
                )
            types = came
        lost = (
            f"{label} makes columns of its own" if any(row.window or row.no_window for row in inputs) else ""
        )
        schema = self.schema
        if self.positions is not None:
            *more, place = self.positions
            schema = (*schema, *(Field(check_column_name(name, what=label), "int64") for name in more))
            schema = with_place(schema, place, inputs, label)
        return StreamShape(label, schema, timed=True, no_window=lost)

    def describe(self) -> str:
        return f"{_function_text(self.function)}{by_text(self.keys)}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if self.positions is not None:
            return PART_OF_MERGE
        released, first, place = name("_released"), name("_first"), name("")
        return SplitPlan(
            keys=[self.keys] * len(self.inputs),
            part=msgspec.structs.replace(self, positions=(released, first, place)),
            positions=(first, place),
            numbers=(place,) * len(self.inputs),
            release=released,
            last_time=True,
        )

    def without(self, hidden: Sequence[str]) -> Process:
        return msgspec.structs.replace(self, positions=None)


def _check_function(function: Function, label: str) -> None:
    if function.name or function.version != 1:
        check_reference(function, what=label)


def _function_text(made: Function) -> str:
    return f"{made.name} version {made.version}" if made.name else "a function that isn't registered"
