"""Boxes that run functions and classes of users."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Function, Input, Schema
from medusa.query.expressions.expression import Named

__all__ = ["Apply", "Process"]


class Apply(BoxData, frozen=True, tag_field="kind", tag="apply", kw_only=True):
    """A function from batches to batches, row by row: where batches are cut doesn't show.

    Attributes:
        function: what is called.
        schema: columns of the output, checked on every call.
        in_flight: of an async function: calls that run at a time; None: an ordinary function.
    """

    id: str
    inputs: tuple[Input, ...]
    function: Function
    schema: Schema
    in_flight: int | None = None

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)


class Process(BoxData, frozen=True, tag_field="kind", tag="process", kw_only=True):
    """A class of the user's that is given the rows of a key, in order of time, with its state.

    Attributes:
        function: the class.
        schema: columns of the output.
        keys: by which rows and state are kept apart; the same expressions for every input.
        state: the fields that are kept for each key; may be empty.
        names: of the inputs, where there are several; None for one.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    function: Function
    schema: Schema
    keys: tuple[Named, ...]
    state: Schema = ()
    names: tuple[str, ...] | None = None

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)
