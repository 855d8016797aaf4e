"""Boxes that send each row one way or another: route, the three drops, distinct."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from medusa.errors import QueryError
from medusa.query.boxes.base import BoxData, Sharing
from medusa.query.boxes.checks import check_duration, key_fields, need_time
from medusa.query.boxes.text import by_text, listed, named_text
from medusa.query.expressions.expression import Expression, Named
from medusa.query.expressions.show import show
from medusa.query.expressions.tree import reads_time
from medusa.query.shape import StreamShape, expression_type
from medusa.query.structs import Input
from medusa.units import duration_text

__all__ = ["Distinct", "RandomDrop", "Route", "SemanticDrop", "WindowDrop"]


PREDICATES_MAX = 1_000
SEED_MAX = (1 << 63) - 1


class Route(BoxData, frozen=True, tag_field="kind", tag="route", kw_only=True):
    """Aurora's many-way Filter: a row goes to the port of the first predicate it satisfies.

    Ports: ``""`` of the first predicate, ``"1"``, ``"2"`` ... of the others; ``"otherwise"``, if asked
    for, takes the rows that satisfy none.
    """

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"

    inputs: tuple[Input, ...]
    predicates: tuple[Expression, ...]
    otherwise: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        more = tuple(str(index) for index in range(1, len(self.predicates)))
        return ("", *more, "otherwise") if self.otherwise else ("", *more)

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        if not self.predicates:
            raise QueryError(
                f"{label}: needs at least one predicate", hint='cars.route("lane = 0")', code="query.route"
            )
        if len(self.predicates) > PREDICATES_MAX:
            raise QueryError(f"{label}: more than {PREDICATES_MAX:,} predicates", code="query.limit")
        for place, predicate in enumerate(self.predicates, 1):
            _need_bool(predicate, row, f"{label}: predicate {place}")
        return replace(row, box=f"{label}, {port}" if port else label)

    def describe(self) -> str:
        ways = [show(predicate, longest=60) for predicate in self.predicates]
        return listed([*ways, "otherwise"] if self.otherwise else ways)

    def reads_time(self, below: bool) -> bool:
        return below or any(map(reads_time, self.predicates))

    def column_from(self, name: str) -> str | None:
        return name

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]


class RandomDrop(BoxData, frozen=True, tag_field="kind", tag="random_drop", kw_only=True):
    """Leaves out rows at random; a hash of the seed and the row's number decides.

    Attributes:
        rate: the share of rows left out, from 0 to 1.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    keeps_state = False
    stays_whole = "the number of a row among all decides whether it goes"

    inputs: tuple[Input, ...]
    rate: float
    seed: int = 0

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        _check_chance(self.rate, self.seed, label)
        return replace(row, box=f"{label}, {port}" if port else label)

    def describe(self) -> str:
        return f"{self.rate:g} of rows, seed {self.seed}"

    def reads_time(self, below: bool) -> bool:
        return below

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]


class SemanticDrop(BoxData, frozen=True, tag_field="kind", tag="semantic_drop", kw_only=True):
    """Leaves out the rows for which the predicate is true (not false, not null)."""

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False
    when_thinned = "rows"

    inputs: tuple[Input, ...]
    predicate: Expression

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        _need_bool(self.predicate, row, f"{label}: where")
        return replace(row, box=f"{label}, {port}" if port else label)

    def describe(self) -> str:
        return show(self.predicate)

    def reads_time(self, below: bool) -> bool:
        return below or reads_time(self.predicate)

    def column_from(self, name: str) -> str | None:
        return name

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]


class WindowDrop(BoxData, frozen=True, tag_field="kind", tag="window_drop", kw_only=True):
    """Leaves out whole tumbling windows; a hash of seed, window and key decides.

    Attributes:
        rate: the share of windows (of each key) left out, from 0 to 1.
        window_us: their size; aligned to the epoch.
        keys: decide for each key by itself; may be empty.
    """

    sharing: ClassVar[Sharing] = "rows"
    keeps_state = False

    inputs: tuple[Input, ...]
    rate: float
    window_us: int
    seed: int = 0
    keys: tuple[Named, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        _check_chance(self.rate, self.seed, label)
        need_time(row, label, "a drop of whole windows")
        check_duration(self.window_us, label, "window", minimum_us=1)
        key_fields(self.keys, row, label)
        return replace(row, box=f"{label}, {port}" if port else label)

    def describe(self) -> str:
        windows = f"windows of {duration_text(self.window_us)}{by_text(self.keys)}"
        return f"{self.rate:g} of {windows}, seed {self.seed}"

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        return above[0]


class Distinct(BoxData, frozen=True, tag_field="kind", tag="distinct", kw_only=True):
    """The first row of each key, and again the first one ``within_us`` or more after it."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundary to pass the row"

    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    within_us: int

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        need_time(row, label, "distinct")
        if not self.keys:
            raise QueryError(
                f"{label}: needs at least one key", hint='distinct("vid")', code="query.distinct"
            )
        key_fields(self.keys, row, label)
        check_duration(self.within_us, label, "within", minimum_us=1)
        return replace(row, box=label)

    def describe(self) -> str:
        return f"{named_text(self.keys)} within {duration_text(self.within_us)}"


def _need_bool(predicate: Expression, row: StreamShape, label: str) -> None:
    came = expression_type(predicate, row, box=label)
    if came != "bool":
        raise QueryError(f"{label} must be bool, got {came}", hint="compare it: x > 0", code="query.type")


def _check_chance(rate: float, seed: int, label: str) -> None:
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise QueryError(
            f"{label}: rate is {rate!r}, expected a share from 0 to 1",
            hint="0.1 leaves out one row in ten",
            code="query.drop",
        )
    if not 0 <= seed <= SEED_MAX:
        raise QueryError(f"{label}: seed must be from 0 to 2^63 - 1, got {seed!r}"[:200], code="query.drop")
