"""One step of an automaton that is a table ``{state: {event: state}}``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from medusa.errors import LocalProtocolError

__all__ = ["next_state"]

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def next_state(table: Mapping[S, Mapping[E, S]], state: S, event: E, *, of: str) -> S:
    """The state that follows by the table.

    Args:
        of: what has the state, for the error.

    Raises:
        LocalProtocolError: the table has no such step.
    """
    target = table[state].get(event)
    if target is None:
        raise LocalProtocolError(f"{of} is {state.value}: {event.value!r} can't happen to it")
    return target
