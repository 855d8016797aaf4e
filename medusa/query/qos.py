"""Quality of service of an output: what its rows are worth, late, thinned out, or of this value.

Aurora's three graphs (Carney et al., VLDB 2002, section 3.2), each piecewise linear through the points
given and flat outside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from medusa.errors import QueryError
from medusa.units import duration_text, duration_us

if TYPE_CHECKING:
    from medusa.units import Duration

__all__ = ["POINTS_MAX", "Points", "QoS", "qos_lines"]

POINTS_MAX = 100
"""Of one graph."""

Points: TypeAlias = tuple[tuple[float, float], ...]
"""Of a graph, x ascending: (x, utility)."""

EXAMPLES = {
    "latency": 'latency=[(0, 1), ("5s", 0)]',
    "loss": "loss=[(100, 1), (0, 0)]",
    "value": 'value=("speed", [(0, 0.1), (50, 1)])',
}


class QoS(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much the rows of a sink are worth: ``q.sink(name, stream, qos=md.QoS(...))``.

    Each graph is linear between its points and flat outside them; utilities are 0 to 1. Points may be
    written in any order and are kept by ascending x; no two have the same x.

    Attributes:
        latency: (delay in microseconds, utility): a row's worth by its delay, from when the row that
            caused it entered. Doesn't rise with the delay.
        loss: (percent of rows delivered, utility). Doesn't fall as more is delivered.
        value: a numeric column of the sink and (value, importance): which rows matter.
    """

    latency: tuple[tuple[int, float], ...] | None = None
    loss: Points | None = None
    value: tuple[str, Points] | None = None

    if TYPE_CHECKING:  # what people write; msgspec makes the constructor

        def __init__(
            self,
            latency: Sequence[tuple[Duration, float]] | None = None,
            loss: Sequence[tuple[float, float]] | None = None,
            value: tuple[str, Sequence[tuple[float, float]]] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check everything and put points in order; of what came over a link too.

        Raises:
            QueryError: names the graph, the point and what was expected.
        """
        if self.latency is None and self.loss is None and self.value is None:
            raise QueryError(
                "QoS: expected at least one of latency=, loss= and value=",
                hint=EXAMPLES["latency"],
                code="query.qos",
            )
        made: dict[str, Any] = {}
        if self.latency is not None:
            made["latency"] = _points("latency", self.latency, _delay)
            _refuse_wrong_way("latency", made["latency"], -1)
        if self.loss is not None:
            made["loss"] = _points("loss", self.loss, _percent)
            _refuse_wrong_way("loss", made["loss"], 1)
        if self.value is not None:
            made["value"] = _value(self.value)
        for name, value in made.items():
            msgspec.structs.force_setattr(self, name, value)


def _value(given: object) -> tuple[str, Points]:
    if not isinstance(given, list | tuple) or len(given) != 2 or not isinstance(given[0], str):
        raise QueryError(
            f"QoS: value: expected a column and its points, got {_shown(given)}",
            hint=EXAMPLES["value"],
            code="query.qos",
        )
    return given[0], _points("value", given[1], _number)


def _points(name: str, given: object, read: Callable[[object, str], Any]) -> tuple[tuple[Any, float], ...]:
    """The points of a graph, x ascending."""
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= POINTS_MAX:
        what = f"{len(given):,} points" if isinstance(given, list | tuple) else _shown(given)
        raise QueryError(
            f"QoS: {name}: expected 2 to {POINTS_MAX} points, got {what}",
            hint=EXAMPLES[name],
            code="query.qos",
        )
    made = []
    for number, point in enumerate(given, 1):
        label = f"QoS: {name}: point {number}"
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise QueryError(
                f"{label}: expected two numbers, got {_shown(point)}", hint=EXAMPLES[name], code="query.qos"
            )
        made.append((read(point[0], label), _utility(point[1], label)))
    made.sort(key=lambda point: point[0])
    for (x, _), (other, _) in pairwise(made):
        if x == other:
            raise QueryError(
                f"QoS: {name}: two points at {_x(name, x)}",
                hint="one utility for each; a step is two points that are close",
                code="query.qos",
            )
    return tuple(made)


def _delay(value: object, label: str) -> int:
    if isinstance(value, bool):
        raise QueryError(f"{label}: expected a delay, got {value!r}", code="query.qos")
    return duration_us(value, what=f"{label}: delay")  # type: ignore[arg-type]


def _percent(value: object, label: str) -> float:
    percent = _number(value, label, "percent delivered")
    if not 0 <= percent <= 100:
        raise QueryError(
            f"{label}: expected 0 to 100 percent delivered, got {percent:g}",
            hint=EXAMPLES["loss"],
            code="query.qos",
        )
    return percent


def _utility(value: object, label: str) -> float:
    utility = _number(value, label, "a utility")
    if not 0 <= utility <= 1:
        raise QueryError(f"{label}: expected a utility of 0 to 1, got {utility:g}", code="query.qos")
    return utility


def _number(value: object, label: str, what: str = "a number") -> float:
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number + 0.0  # no -0.0, which is equal and reads otherwise
    raise QueryError(f"{label}: expected {what}, got {_shown(value)}", code="query.qos")


def _refuse_wrong_way(name: str, points: Points, way: int) -> None:
    """Raises QueryError where the utility moves against ``way`` as x grows."""
    for (x, before), (other, after) in pairwise(points):
        if (after - before) * way < 0:
            rule = {
                "latency": "a row can't be worth more for coming later",
                "loss": "an output can't be worth less for delivering more",
            }[name]
            raise QueryError(
                f"QoS: {name}: {before:g} at {_x(name, x)} and {after:g} at {_x(name, other)}: {rule}",
                hint=EXAMPLES[name],
                code="query.qos",
            )


def qos_lines(qos: QoS | None) -> tuple[str, ...]:
    """One line for each graph: ``latency 1 at 0s, 0 at 5s``; none without a QoS."""
    if qos is None:
        return ()
    lines = []
    if qos.latency is not None:
        lines.append(f"latency {_text('latency', qos.latency)}")
    if qos.loss is not None:
        lines.append(f"loss {_text('loss', qos.loss)}")
    if qos.value is not None:
        lines.append(f"value of {qos.value[0]} {_text('value', qos.value[1])}")
    return tuple(lines)


def _text(name: str, points: Points) -> str:
    shown = [f"{utility:g} at {_x(name, x)}" for x, utility in points]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "...", *shown[-2:]])


def _x(name: str, x: float) -> str:
    if name == "latency":
        return duration_text(int(x))
    return f"{x:g} %" if name == "loss" else f"{x:g}"


def _shown(value: object) -> str:
    return repr(value)[:80] if isinstance(value, str | int | float) else type(value).__name__
