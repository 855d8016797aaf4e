"""Boxes that send each row one way or another: route, the three drops, distinct."""

from __future__ import annotations

from typing import ClassVar

from medusa.query.boxes.base import BoxData, Input
from medusa.query.expressions.expression import Expression, Named

__all__ = ["Distinct", "RandomDrop", "Route", "SemanticDrop", "WindowDrop"]


class Route(BoxData, frozen=True, tag_field="kind", tag="route", kw_only=True):
    """Aurora's many-way Filter: a row goes to the port of the first predicate it satisfies.

    Ports: ``""`` of the first predicate, ``"1"``, ``"2"`` ... of the others; ``"otherwise"``, if asked
    for, takes the rows that satisfy none.
    """

    id: str
    inputs: tuple[Input, ...]
    predicates: tuple[Expression, ...]
    otherwise: bool = False

    @property
    def ports(self) -> tuple[str, ...]:
        more = tuple(str(index) for index in range(1, len(self.predicates)))
        return ("", *more, "otherwise") if self.otherwise else ("", *more)


class RandomDrop(BoxData, frozen=True, tag_field="kind", tag="random_drop", kw_only=True):
    """Leaves out rows at random; a hash of the seed and the row's number decides.

    Attributes:
        rate: the share of rows left out, from 0 to 1.
    """

    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    rate: float
    seed: int = 0

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")


class SemanticDrop(BoxData, frozen=True, tag_field="kind", tag="semantic_drop", kw_only=True):
    """Leaves out the rows for which the predicate is true (not false, not null)."""

    id: str
    inputs: tuple[Input, ...]
    predicate: Expression

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")


class WindowDrop(BoxData, frozen=True, tag_field="kind", tag="window_drop", kw_only=True):
    """Leaves out whole tumbling windows; a hash of seed, window and key decides.

    Attributes:
        rate: the share of windows (of each key) left out, from 0 to 1.
        window_us: their size; aligned to the epoch.
        keys: decide for each key by itself; may be empty.
    """

    id: str
    inputs: tuple[Input, ...]
    rate: float
    window_us: int
    seed: int = 0
    keys: tuple[Named, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return ("", "dropped")


class Distinct(BoxData, frozen=True, tag_field="kind", tag="distinct", kw_only=True):
    """The first row of each key, and again the first one ``within_us`` or more after it."""

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"

    id: str
    inputs: tuple[Input, ...]
    keys: tuple[Named, ...]
    within_us: int
