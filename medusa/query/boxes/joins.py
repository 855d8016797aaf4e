"""Joins of two streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from medusa.errors import QueryError
from medusa.query.boxes.base import NO_KEY, BoxData, Sharing, SplitPlan, Thinned
from medusa.query.boxes.checks import WINDOW_FIELDS, key_type, need_time
from medusa.query.boxes.text import where_text
from medusa.query.checker import infer
from medusa.query.expressions.expression import Column, Expression, Named
from medusa.query.expressions.show import show
from medusa.query.expressions.tree import columns_of, reads_time
from medusa.query.shape import WINDOW_COLUMNS, StreamShape, refuse_twice, types_of
from medusa.query.structs import Field, Input, Schema
from medusa.query.suggest import did_you_mean, join_called
from medusa.query.types import check_column_name, common_type
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["AsofJoin", "Join", "WindowJoin", "sides_of"]


JOIN_HOWS = ("inner", "left", "right", "full", "semi", "anti")
ASOF_HOWS = ("left", "inner")


class Join(BoxData, frozen=True, tag_field="kind", tag="join", kw_only=True):
    """Equi-join of rows at most ``within_us`` apart in time (either way, inclusive).

    ``left_keys[i]`` is matched with ``right_keys[i]``; the output has the key columns once, under
    the left names, then the other left columns, then the other right columns, with
    ``suffixes`` added to names that both sides have. ``semi`` and ``anti`` give the left columns
    as they are.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = 2
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of both inputs to pass the later time of the pair"

    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...]
    right_keys: tuple[Named, ...]
    within_us: int
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        left, right = inputs
        """The join within a length of time."""
        need_time(left, label, "a join")
        need_time(right, label, "a join")
        _check_how(self.how, JOIN_HOWS, label)
        _check_within(self.within_us, label)
        keys = _some_keys(self, left, right, label)
        _check_where(self.where, left, right, label)
        schema = _columns(self, keys, left, right, (), label)
        return StreamShape(label, schema, timed=True, no_window=f"{label} joins over time")

    def describe(self) -> str:
        return f"{_how(self.how)}{_on(self)} within {duration_text(self.within_us)}{where_text(self.where)}"

    @property
    def reach_us(self) -> int:
        return self.within_us

    @property
    def last_result(self) -> tuple[int, int, int] | None:
        return 0, 0, self.within_us if self.how == "inner" else 0  # Another stands back by it already.

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        if self.how == "semi":
            return "its rows leave by the time of their earliest partner, which isn't in them"
        return _split(self, name, 0 if self.how == "inner" else self.within_us)

    @property
    def when_thinned(self) -> Thinned:
        return "pairs" if self.how == "inner" else ""


class WindowJoin(BoxData, frozen=True, tag_field="kind", tag="window_join", kw_only=True):
    """Join of rows of equal ``window_start`` and ``window_end`` (and equal keys).

    Output: window_start, window_end, the keys, the other left columns, the other right columns;
    ``semi`` and ``anti``: the left columns as they are.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "convergent"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = 2
    sharing: ClassVar[Sharing] = "keys"
    last_result = 0, 0, 0
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of both inputs to pass the window"

    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...] = ()
    right_keys: tuple[Named, ...] = ()
    where: Expression | None = None
    how: str = "inner"
    suffixes: tuple[str, str] = ("", "_right")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        left, right = inputs
        """The join of results of equal windows."""
        _check_how(self.how, JOIN_HOWS, label)
        if left.window is None or right.window is None or left.window != right.window:
            raise QueryError(
                f'{label}: on="window" needs results of equal windows: {_origin(left)}, {_origin(right)}',
                hint="the same size and advance; between window and join only boxes that keep its rows with"
                ' window_start and window_end, such as filter, select and union, and joins on="window"',
                code="query.window_join",
            )
        for key in (*self.left_keys, *self.right_keys):
            if key.name in WINDOW_COLUMNS:
                raise QueryError(f'{label}: on="window" already means {key.name!r}', code="query.join")
        keys = _keys(self, left, right, label)
        _check_where(self.where, left, right, label)
        schema = _columns(self, (*WINDOW_FIELDS, *keys), left, right, WINDOW_COLUMNS, label)
        return StreamShape(label, schema, timed=True, window=left.window)

    def describe(self) -> str:
        keys = f", {_on(self)}" if self.left_keys else ""
        return f"{_how(self.how)}equal windows{keys}{where_text(self.where)}"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        return _split(self, name) if self.left_keys else NO_KEY

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        key = (*WINDOW_COLUMNS, *(key.name for key in self.left_keys))
        return key if all(len(side) == len(key) for side in above) else ()


class AsofJoin(BoxData, frozen=True, tag_field="kind", tag="asof_join", kw_only=True):
    """Every left row with the latest right row of its key that is not after it.

    Columns as of a ``Join``. ``within_us``: how old that right row may be; None: any age.
    """

    time_dependent: ClassVar[bool] = True
    order_dependent: ClassVar[bool] = True
    determinism: ClassVar[str] = "deterministic"
    inputs_least: ClassVar[int] = 2
    inputs_most: ClassVar[int] = 2
    sharing: ClassVar[Sharing] = "keys"
    awaits_boundary: ClassVar[bool] = True
    waits = "the boundaries of both inputs to pass the time of the left row"

    inputs: tuple[Input, ...]
    left_keys: tuple[Named, ...]
    right_keys: tuple[Named, ...]
    within_us: int | None = None
    where: Expression | None = None
    how: str = "left"
    suffixes: tuple[str, str] = ("", "_right")

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        left, right = inputs
        """Every left row with the latest right one."""
        need_time(left, label, "an as-of join")
        need_time(right, label, "an as-of join")
        _check_how(self.how, ASOF_HOWS, label)
        if self.within_us is not None:
            _check_within(self.within_us, label)
        keys = _some_keys(self, left, right, label)
        _check_where(self.where, left, right, label)
        if self.where is not None and self.within_us is None and len(sides_of(self.where)) == 2:
            raise QueryError(
                f"{label}: where reads both sides, so every older right row might be the one, for ever",
                hint='say how old it may be: within="5 min"',
                code="query.join",
            )
        schema = _columns(self, keys, left, right, (), label)
        return StreamShape(label, schema, timed=True, no_window=f"{label} joins over time")

    def describe(self) -> str:
        within = "" if self.within_us is None else f" within {duration_text(self.within_us)}"
        return f"{self.how}, latest {_on(self)}{within}{where_text(self.where)}"

    @property
    def reach_us(self) -> int:
        return self.within_us or 0

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        return _split(self, name)


_AnyJoin: TypeAlias = Join | WindowJoin | AsofJoin


def _origin(side: StreamShape) -> str:
    if side.window is not None:
        return f"{side.box} comes from {side.window}"
    return f"{side.box} doesn't" + (f" ({side.no_window})" if side.no_window else "")


def sides_of(where: Expression) -> set[str]:
    """Which of ``left`` and ``right`` a condition reads."""
    return {name.partition(".")[0] for name in columns_of(where)}


def _check_how(how: str, known: Sequence[str], label: str) -> None:
    if how not in known:
        raise QueryError(
            f"{label}: how={how[:20]!r} is none of {', '.join(known)}",
            hint=did_you_mean(join_called(how[:20]), known),
            code="query.join",
        )


def _check_within(within_us: int, label: str) -> None:
    if not 0 <= within_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: within is out of range", code="query.duration")


def _some_keys(box: Join | AsofJoin, left: StreamShape, right: StreamShape, label: str) -> tuple[Field, ...]:
    if not box.left_keys:
        raise QueryError(f"{label}: needs at least one key", hint='on="vid"', code="query.join")
    return _keys(box, left, right, label)


def _keys(box: _AnyJoin, left: StreamShape, right: StreamShape, label: str) -> tuple[Field, ...]:
    if len(box.left_keys) != len(box.right_keys):
        raise QueryError(f"{label}: left and right have different numbers of keys", code="query.join")
    keys = []
    for ours, theirs in zip(box.left_keys, box.right_keys, strict=True):
        left_type = key_type(ours, left, f"{label}: left")
        right_type = key_type(theirs, right, f"{label}: right")
        type = common_type(left_type, right_type)
        if type is None:
            raise QueryError(
                f"{label}: key {ours.name!r} is {left_type} in {left.box} and {theirs.name!r} is"
                f" {right_type} in {right.box}",
                hint="cast one side in a with_columns before",
                code="query.type",
            )
        keys.append(Field(ours.name, type))
    return tuple(keys)


def _check_where(where: Expression | None, left: StreamShape, right: StreamShape, label: str) -> None:
    if where is None:
        return
    what = f"{label}: where"
    if reads_time(where):
        raise QueryError(
            f"{what}: tuple_time is of neither side",
            hint="keep it as a column before the join: with_columns(at=md.time())",
            code="query.expression",
        )
    types = {f"left.{name}": type for name, type in types_of(left.schema).items()}
    types |= {f"right.{name}": type for name, type in types_of(right.schema).items()}
    came = infer(where, types, box=what)
    if came != "bool":
        raise QueryError(f"{what}: must be bool, got {came}", code="query.type")


def _columns(
    box: _AnyJoin,
    head: tuple[Field, ...],
    left: StreamShape,
    right: StreamShape,
    dropped: Sequence[str],
    label: str,
) -> Schema:
    """Keys, other left, other right columns, with suffixes where both have a name; or the left ones."""
    if len(box.suffixes) != 2 or not all(len(suffix) <= 100 for suffix in box.suffixes):
        raise QueryError(f"{label}: suffixes are two texts", code="query.join")
    if box.how in ("semi", "anti"):
        return left.schema
    ours = _others(left, box.left_keys, dropped)
    theirs = _others(right, box.right_keys, dropped)
    left_names, right_names = {field.name for field in ours}, {field.name for field in theirs}
    head_names = {field.name for field in head}
    columns = list(head)
    for fields, others, suffix in (
        (ours, right_names, box.suffixes[0]),
        (theirs, left_names | head_names, box.suffixes[1]),
    ):
        for field in fields:
            name = field.name + suffix if field.name in others else field.name
            columns.append(Field(check_column_name(name, what=label), field.type))
    refuse_twice(columns, label=label, hint="choose others with suffixes=(...)")
    return tuple(columns)


def _others(side: StreamShape, keys: Sequence[Named], dropped: Sequence[str]) -> list[Field]:
    gone = {key.expression.name for key in keys if isinstance(key.expression, Column)} | {*dropped}
    return [field for field in side.schema if field.name not in gone]


def _on(box: Join | WindowJoin | AsofJoin) -> str:
    pairs = []
    for left, right in zip(box.left_keys, box.right_keys, strict=True):
        ours, theirs = show(left.expression, longest=40), show(right.expression, longest=40)
        pairs.append(ours if ours == theirs else f"{ours} = {theirs}")
    return f"on {', '.join(pairs)}"


def _how(how: str) -> str:
    return "" if how == "inner" else f"{how} "


def _split(box: _AnyJoin, name: Callable[[str], str], within_us: int = 0) -> SplitPlan:
    # As-of results come by their left row; semi and anti joins give no other columns.
    left = box.how in ("semi", "anti") or isinstance(box, AsofJoin)
    numbers = (name("_left"), None if left else name("_right"))
    positions = tuple(name for name in numbers if name is not None)
    keys = [box.left_keys, box.right_keys]
    return SplitPlan(keys=keys, part=box, positions=positions, numbers=numbers, within_us=within_us)
