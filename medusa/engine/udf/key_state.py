"""The state object that a user's class gets for each key: declared fields, and timers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import index as as_index
from typing import Any

import numpy as np
import pyarrow as pa

from medusa.engine.core.rows import TIME
from medusa.engine.operators.source import TIME_MAX_US
from medusa.query.boxes import Schema
from medusa.query.expressions.text_casts import INTEGER_RANGES
from medusa.query.types import is_float, is_integer, to_arrow

__all__ = ["KeyState", "state_class"]

_TIMER_BYTES = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KeyState:
    """What is kept for one key. Fields that were declared are attributes; they begin as None.

    A value is checked when it is set: what a field can't hold raises ``TypeError`` or ``ValueError``.
    """

    __slots__ = (
        "_cleared",
        "_counted",
        "_ended",
        "_now_us",
        "_number",
        "_timers",
        "_times",
        "_values",
        "first",
    )

    fields: tuple[str, ...] = ()

    def __init__(self, first: Any) -> None:
        self.first = first
        self._times: list[int] | None = None
        self._counted = 0
        """Bytes of what has no fixed size, as the box has counted them."""
        self._number = -1
        """Among the keys of the box; -1: it isn't one of them yet."""
        self._values: list[Any] = [None] * len(self.fields)
        self._timers: list[int] = []
        self._now_us = 0
        self._ended = False
        self._cleared = False

    # For users

    def wake_at(self, time: int | datetime) -> None:
        """Call ``boundary`` for this key at a time after now; setting the same time twice is setting it once.

        Args:
            time: microseconds since 1970 in UTC, or a datetime (naive: UTC).
        """
        self._refuse_cleared()
        time_us = _micros(time)
        if time_us <= self._now_us:
            raise ValueError(f"wake_at: {time_us} is not after now, {self._now_us}")
        if time_us > TIME_MAX_US:
            raise ValueError(f"wake_at: {time_us} is too far away")
        if self._ended:
            return  # the input has ended: a timer that sets itself again would never stop
        place = bisect_left(self._timers, time_us)
        if place == len(self._timers) or self._timers[place] != time_us:
            self._timers.insert(place, time_us)

    def cancel(self, time: int | datetime | None = None) -> None:
        """Forget the timer of a time, or all of this key; one that isn't set is no error."""
        if time is None:
            self._timers.clear()
            return
        time_us = _micros(time)
        if time_us in self._timers:
            self._timers.remove(time_us)

    @property
    def times(self) -> pa.Array | None:
        """Times of the rows of this call, as an Arrow array; None when a timer runs."""
        return None if self._times is None else pa.array(self._times, TIME)

    @property
    def timers(self) -> tuple[int, ...]:
        """The times at which timers of this key are set, ascending, in microseconds."""
        return tuple(self._timers)

    def clear(self) -> None:
        """Forget this key: fields are None, no timer is set, its next row makes it anew.

        The last thing that a call does with it: fields can't be set again in the same call.
        """
        self._values[:] = [None] * len(self._values)
        self._timers.clear()
        self._cleared = True

    def _refuse_cleared(self) -> None:
        if self._cleared:
            raise ValueError("the state was cleared in this call")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self.fields, self._values, strict=True))
        return f"<state {shown}>"

    # For the box: public names are those of ``STATE_NAMES``, which no field may have

    def begin(self, now_us: int, times: list[int] | None, ended: bool) -> tuple[list[Any], list[int]]:
        """Before a call; returns what ``undo`` needs to take it back. ``ended``: no timer is set any more."""
        self._now_us, self._times, self._ended = now_us, times, ended
        self._cleared = False
        return self._values.copy(), self._timers.copy()

    def undo(self, before: tuple[list[Any], list[int]]) -> None:
        self._values, self._timers = before[0].copy(), before[1].copy()
        self._cleared = False

    @property
    def gone(self) -> bool:
        return self._cleared

    @property
    def empty(self) -> bool:
        return not self._timers and all(value is None for value in self._values)

    def _recount(self) -> int:
        """Count the bytes of what has no fixed size, texts and timers; how many more than before."""
        texts = (len(value) for value in self._values if value.__class__ is str or value.__class__ is bytes)
        before, self._counted = self._counted, sum(texts) + _TIMER_BYTES * len(self._timers)
        return self._counted - before

    def _numbered(self, number: int) -> None:
        self._number = number

    def next_timer(self) -> int | None:
        return self._timers[0] if self._timers else None

    def drop_timer(self) -> int:
        return self._timers.pop(0)

    def saved(self) -> tuple[list[Any], list[int]]:
        return self._values, self._timers

    def restore(self, values: Sequence[Any], timers: Sequence[int]) -> None:
        """Take back what ``saved`` gave.

        Raises:
            ValueError: timers that don't ascend.
        """
        times = list(timers)
        ascending = all(a < b for a, b in pairwise(times))
        if not ascending or (times and abs(times[-1]) > TIME_MAX_US):
            raise ValueError("timers that don't ascend")
        self._values, self._timers = list(values), times


def state_class(state: Schema) -> type[KeyState]:
    """A class whose objects have these fields, checked when they are set."""
    members: dict[str, Any] = {"__slots__": (), "fields": tuple(field.name for field in state)}
    for place, field in enumerate(state):
        members[field.name] = _property(place, field.name, field.type)
    return type("State", (KeyState,), members)


def _property(place: int, name: str, type: str) -> property:
    check = _check(type)

    def get(self: KeyState) -> Any:
        return self._values[place]

    def set(self: KeyState, value: Any) -> None:
        self._refuse_cleared()
        if value is not None:
            if isinstance(value, pa.Scalar):
                value = value.as_py()
            try:
                value = None if value is None else check(value)
            except (TypeError, ValueError, OverflowError, pa.ArrowException):
                raise TypeError(f"state.{name} is {type}, got {value!r:.60}") from None
        self._values[place] = value

    return property(get, set, doc=f"{name}: {type}")


def _check(type: str) -> Callable[[Any], Any]:
    """What makes a value of a field from what was given, or raises."""
    arrow = to_arrow(type)
    if is_integer(type):
        low, high = INTEGER_RANGES[type]

        def whole(value: Any) -> int:
            number = as_index(value)
            if isinstance(value, bool | np.bool_) or not low <= number <= high:
                raise ValueError
            return number

        return whole
    if is_float(type):

        def real(value: Any) -> float:
            if isinstance(value, bool | np.bool_ | str | bytes):
                raise TypeError
            return float(np.float32(value)) if type == "float32" else float(value)

        return real
    exact: dict[str, tuple[Any, ...]] = {
        "bool": (bool, np.bool_),
        "utf8": (str,),
        "binary": (bytes, bytearray, memoryview),
    }
    allowed = exact.get(type)

    def other(value: Any) -> Any:
        if allowed is not None and not isinstance(value, allowed):
            raise TypeError
        if allowed is None and isinstance(value, int | float | str):
            raise TypeError
        return pa.scalar(bool(value) if type == "bool" else value, arrow).as_py()

    return other


def _micros(time: int | datetime) -> int:
    if isinstance(time, pa.Scalar):
        time = time.as_py()
    if isinstance(time, datetime):
        aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(time, bool):
        raise TypeError("wake_at: a time is microseconds or a datetime")
    return as_index(time)
