"""Windows of time, sessions, groups, and windows of rows and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.query.boxes.checks import check_sizes, need_time
from medusa.query.expressions.aggregates import AggregateSpec
from medusa.query.expressions.grouping import group_keys
from medusa.query.stream.output import Output
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from medusa.query.expressions.column import Expr
    from medusa.query.stream.stream import Stream
    from medusa.query.stream.time_windows import WindowedStream
    from medusa.query.stream.window_steps import KeyedStream, KindStream, LagSpec, SessionStream, Size

__all__ = ["group_by", "running", "session", "window", "window_rows", "window_values"]


def window(output: Output, size: Duration, advance: Duration | None) -> WindowedStream:
    """As ``Stream.window``."""
    from medusa.query.stream.time_windows import WindowedStream

    size_us = duration_us(size, what="window: size", minimum_us=1)
    advance_us = size_us if advance is None else duration_us(advance, what="window: advance", minimum_us=1)
    label = output.labelled("window", None)
    need_time(output.shape, label, "a window")
    check_sizes(size_us, advance_us, label=label)
    return WindowedStream(output, size_us, advance_us)


def session(output: Output, gap: Duration) -> SessionStream:
    """As ``Stream.session``."""
    from medusa.query.stream.window_steps import SessionStream

    gap_us = duration_us(gap, what="session: gap", minimum_us=1)
    need_time(output.shape, output.labelled("session", None), "a session")
    return SessionStream(output, gap_us)


def group_by(
    output: Output, keys: Sequence[str | Expr | Mapping[str, Any]], named: Mapping[str, str | Expr]
) -> KeyedStream:
    """As ``Stream.group_by``."""
    from medusa.query.stream.window_steps import KeyedStream

    return KeyedStream(output, group_keys(output, keys, named))


def window_rows(output: Output, size: int, advance: int | None) -> KindStream:
    """As ``Stream.window_rows``."""
    from medusa.query.stream.window_steps import KeyedStream

    return KeyedStream(output, ()).window_rows(size, advance)


def window_values(output: Output, value: str | Expr, size: Size, advance: Size | None) -> KindStream:
    """As ``Stream.window_values``."""
    from medusa.query.stream.window_steps import KeyedStream

    return KeyedStream(output, ()).window_values(value, size, advance)


def running(
    output: Output,
    aggregates: Sequence[Mapping[str, Any]],
    named: Mapping[str, AggregateSpec | LagSpec | str],
    *,
    name: str | None,
    expire: Duration | None,
) -> Stream:
    """As ``Stream.running``."""
    from medusa.query.stream.window_steps import KeyedStream

    return KeyedStream(output, ()).running(*aggregates, name=name, expire=expire, **named)
