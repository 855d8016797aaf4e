"""The steps between a stream and its sessions, row windows, value windows and running aggregates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import AggregateCall, Box, Running
from medusa.query.boxes.calls import LAG
from medusa.query.boxes.checks import need_time
from medusa.query.boxes.windows_per_group import RowWindow, Session, ValueWindow
from medusa.query.expressions.aggregates import AggregateSpec
from medusa.query.expressions.column import as_tree
from medusa.query.expressions.expression import Named
from medusa.query.expressions.grouping import aggregate_call, aggregate_calls, group_keys, named_values
from medusa.query.shape import expression_type
from medusa.query.suggest_methods import Suggests
from medusa.query.types import DURATION, TIMESTAMP, is_float
from medusa.units import Duration, duration_text, duration_us

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.stream.output import Output
    from medusa.query.stream.stream import Stream

__all__ = [
    "GroupWindows",
    "KeyedStream",
    "KindStream",
    "LagSpec",
    "SessionStream",
    "lag",
    "sessions",
    "whole_number",
]

DAY_US = 86_400_000_000
Size: TypeAlias = int | float | str | datetime.timedelta


@dataclass(frozen=True, slots=True, eq=False)
class LagSpec:
    """The value of an earlier row, waiting for its name: ``running(prev=md.lag("seg"))``."""

    arg: Expr | str
    offset: int = 1

    def __repr__(self) -> str:
        return f"md.lag({self.arg!r}{'' if self.offset == 1 else f', {self.offset}'})"


def lag(arg: Expr | str, offset: int = 1) -> LagSpec:
    """The value in the group's row ``offset`` rows before this one; null where there is none.

    For ``running`` only.
    """
    return LagSpec(arg, offset)


class KindStream(Suggests):
    """A stream cut into windows; ``aggregate`` makes it a stream again."""

    def __init__(
        self,
        output: Output,
        what: str,
        make: Callable[[tuple[Named, ...], tuple[AggregateCall, ...]], Box],
        keys: tuple[Named, ...] = (),
    ) -> None:
        self._output = output
        self._what = what
        self._make = make
        self._keys = keys

    def aggregate(
        self,
        *aggregates: Mapping[str, Any],
        name: str | None = None,
        **named: AggregateSpec | str,
    ) -> Stream:
        """One row per window and group: window_start, window_end, the keys, these aggregates.

        Args:
            aggregates: mappings of names to aggregates (for names that aren't Python words).
            named: ``n=md.count()``, ``v=md.avg("speed")`` or ``v="avg(speed)"``.

        Raises:
            QueryError: names the box, the aggregate, what was expected and what came.
        """
        label = f"aggregate {name!r}" if name is not None else f"aggregate after {self._output.name!r}"
        calls = aggregate_calls(aggregates, named, label=label)
        return self._output.add(self._make(self._keys, calls), name)

    def __repr__(self) -> str:
        keys = ", ".join(key.name for key in self._keys)
        by = f" by {keys}" if keys else ""
        return f"<{self._what} over {self._output.name!r}{by}: .aggregate(...) is missing>"


class SessionStream(KindStream):
    """A stream cut into sessions: group it, or take all rows as one group."""

    def __init__(self, output: Output, gap_us: int) -> None:
        def make(keys: tuple[Named, ...], calls: tuple[AggregateCall, ...]) -> Box:
            return Session(id="", inputs=(output.arc,), gap_us=gap_us, keys=keys, aggregates=calls)

        super().__init__(output, f"sessions with gaps of {duration_text(gap_us)}", make)

    def group_by(self, *keys: str | Expr | Mapping[str, Any], **named: str | Expr) -> KindStream:
        """Sessions of each group by itself.

        Args:
            keys: names of columns, expressions (called as they are written), or mappings.
            named: ``prefix="split_part(src, '.', 1)"``.
        """
        return KindStream(self._output, self._what, self._make, group_keys(self._output, keys, named))


def sessions(output: Output, gap: Duration) -> SessionStream:
    """As ``Stream.session``."""
    gap_us = duration_us(gap, what="session: gap", minimum_us=1)
    need_time(output.shape, output.labelled("session", None), "a session")
    return SessionStream(output, gap_us)


class GroupWindows(Suggests):
    """What a stream and its groups can be cut into: both have these methods. A stream is one group."""

    __slots__ = ()

    _output: Output
    _keys: tuple[Named, ...]

    def window_rows(self, size: int, advance: int | None = None) -> KindStream:
        """Windows of a number of rows of each group, in order of arrival. Go on with ``.aggregate(...)``.

        ``window_start`` and ``window_end`` count the rows of the group from 0 (int64). A window leaves
        with its last row; what is incomplete at the end isn't sent. The stream needs no time.

        Args:
            size: rows in a window.
            advance: how many rows after one window the next begins, at most ``size``; None: ``size``.
        """
        label = f"window_rows after {self._output.name!r}"
        rows = whole_number(size, f"{label}: size")
        step = rows if advance is None else whole_number(advance, f"{label}: advance")
        arc = self._output.arc

        def make(keys: tuple[Named, ...], calls: tuple[AggregateCall, ...]) -> Box:
            return RowWindow(id="", inputs=(arc,), size=rows, advance=step, keys=keys, aggregates=calls)

        return KindStream(self._output, f"windows of {rows} rows every {step}", make, self._keys)

    def window_values(self, value: str | Expr, size: Size, advance: Size | None = None) -> KindStream:
        """Windows over a number that doesn't decrease within a group. Go on with ``.aggregate(...)``.

        Window k is ``[k * advance, k * advance + size)``. It leaves when a row of its group comes at or
        beyond its end, or at the end. A row below an earlier one of its group is late.

        Args:
            value: an integer, float, date, duration or time.
            size: in units of the value; of dates, durations and times as ``"5 min"`` (dates: whole days).
            advance: at most ``size``; None: ``size``.
        """
        label = f"window_values after {self._output.name!r}"
        tree = as_tree(value, box=label)
        type = expression_type(tree, self._output.shape, box=label)
        length = _size(size, type, f"{label}: size")
        step = length if advance is None else _size(advance, type, f"{label}: advance")
        arc = self._output.arc

        def make(keys: tuple[Named, ...], calls: tuple[AggregateCall, ...]) -> Box:
            return ValueWindow(
                id="", inputs=(arc,), value=tree, size=length, advance=step, keys=keys, aggregates=calls
            )

        return KindStream(self._output, f"windows of {length} of {value!r} every {step}", make, self._keys)

    def running(
        self,
        *aggregates: Mapping[str, Any],
        name: str | None = None,
        expire: Duration | None = None,
        **named: AggregateSpec | LagSpec | str,
    ) -> Stream:
        """Every row, and the aggregates of its group so far, as new columns.

        ``md.lag`` looks at earlier rows only, the others include the row itself. Rows are taken in
        order of arrival; without ``expire`` late rows pass like all others.

        Args:
            expire: a row more than this after its group's latest row begins anew. Needs a time, and
                late rows are then left out. None: groups are kept for ever.
            named: ``n=md.count()``, ``prev=md.lag("seg")``, ``total="sum(x)"``.
        """
        label = f"running {name!r}" if name is not None else f"running after {self._output.name!r}"
        given = named_values(aggregates, named, label=label)
        box = Running(
            id="",
            inputs=(self._output.arc,),
            keys=self._keys,
            aggregates=tuple(_running_call(key, value, label) for key, value in given.items()),
            expire_us=None if expire is None else duration_us(expire, what=f"{label}: expire", minimum_us=1),
        )
        return self._output.add(box, name)


class KeyedStream(GroupWindows):
    """The groups of a stream: ``window_rows``, ``window_values`` or ``running`` makes it a stream again."""

    def __init__(self, output: Output, keys: tuple[Named, ...]) -> None:
        self._output = output
        self._keys = keys

    def __repr__(self) -> str:
        keys = ", ".join(key.name for key in self._keys)
        return f"<{self._output.name!r} by {keys}: .window_rows, .window_values or .running is missing>"


def _running_call(name: str, value: object, label: str) -> AggregateCall:
    if not isinstance(value, LagSpec):
        call = aggregate_call(name, value, box=label)
        if call.function == LAG and call.parameter is None:  # "lag(x)"
            return msgspec.structs.replace(call, parameter=1)
        return call
    what = f"{label}: aggregate {name!r}"
    return AggregateCall(
        name, LAG, as_tree(value.arg, box=what), parameter=whole_number(value.offset, f"{what}: offset")
    )


def whole_number(value: object, what: str) -> int:
    """A count of at least 1, checked."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise QueryError(
        f"{what}: expected a whole number of at least 1, got {value!r}"[:200], code="query.window"
    )


def _size(value: object, type: str, what: str) -> int | float:
    """A length on the axis of a type."""
    if type in (TIMESTAMP, DURATION):
        return duration_us(value, what=what, minimum_us=1)  # type: ignore[arg-type]
    if type == "date32":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        us = duration_us(value, what=what, minimum_us=1)  # type: ignore[arg-type]
        if us % DAY_US:
            raise QueryError(f"{what}: dates need whole days, got {duration_text(us)}", code="query.window")
        return us // DAY_US
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if is_float(type) else value
    raise QueryError(f"{what}: expected a number for {type}, got {value!r}"[:200], code="query.window")
