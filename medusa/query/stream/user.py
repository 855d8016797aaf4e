"""Boxes that call functions and classes of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from medusa.query.stream.output import Output
from medusa.query.user import apply_box, process_box, remember

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["apply", "process"]


def apply(
    output: Output,
    function: Callable[[Any], Any],
    schema: Any,
    *,
    in_flight: int | None,
    by: Any,
    name: str | None,
) -> Stream:
    """As ``Stream.apply``."""
    label = output.labelled("apply", name)
    box = apply_box(output.arc, output.schema, function, schema, in_flight, by, label=label)
    return remember(output.add(box, name), function)


def process(output: Output, operator: type, schema: Any, *, by: Any, state: Any, name: str | None) -> Stream:
    """As ``Stream.process``."""
    label = output.labelled("process", name)
    box = process_box((output.arc,), output.schema, None, operator, schema, by, state, label=label)
    return remember(output.add(box, name), operator)
