"""What of a sink's quality of service can only be told beside its stream."""

from __future__ import annotations

from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes import Sink
from medusa.query.qos import EXAMPLES, QoS
from medusa.query.shape import Shape, types_of
from medusa.query.suggest import did_you_mean
from medusa.query.types import is_numeric

__all__ = ["sink_shape"]


def sink_shape(box: Sink, row: Shape, label: str) -> Shape:
    qos: object = box.qos  # which may be anything where a program made the box
    if qos is not None and not isinstance(qos, QoS):
        raise QueryError(
            f"{label}: qos: expected an md.QoS, got {type(qos).__name__}",
            hint=f"qos=md.QoS({EXAMPLES['latency']})",
            code="query.qos",
        )
    if qos is not None and qos.value is not None:
        _check_column(qos.value[0], types_of(row.schema), f"{label}: qos: value")
    return replace(row, box=label)


def _check_column(column: str, types: dict[str, str], label: str) -> None:
    if column not in types:
        raise QueryError(
            f"{label}: there is no column {column[:80]!r}",
            hint=did_you_mean(column, types),
            code="query.column",
        )
    if not is_numeric(types[column]):
        raise QueryError(
            f"{label}: expected a column of numbers, {column!r} is {types[column]}", code="query.qos"
        )
