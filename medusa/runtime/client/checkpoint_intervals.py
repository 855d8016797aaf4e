"""What a client says of how often fragments take a checkpoint, checked as far as no node need be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from medusa.errors import QueryError
from medusa.nodes.placement.checkpoint_intervals import IntervalWish
from medusa.nodes.placement.fragment_keys import REST
from medusa.units import Duration, duration_text, duration_us
from medusa.wire import limits

__all__ = ["CheckpointEvery", "interval_wish"]

CheckpointEvery: TypeAlias = Duration | Mapping[str, Duration]
"""A duration for all fragments, or node, box, fragment or ``"*"`` -> a duration."""

EXAMPLE = 'checkpoint_every={"q/heavy": "200ms", "core": "2s"}, or checkpoint_every="2s"'


def interval_wish(given: CheckpointEvery | None) -> IntervalWish:
    """As a node takes it.

    Raises:
        QueryError: no durations, or one out of bounds.
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        return ((REST, _us(given, "checkpoint_every")),)
    if not given:
        raise _wrong("checkpoint_every names nothing", EXAMPLE)
    found = []
    for key, every in given.items():
        if not isinstance(key, str) or not key:
            raise _wrong(f"checkpoint_every: {key!r:.60} is no name of a node, box or fragment", EXAMPLE)
        found.append((key, _us(every, f"checkpoint_every[{key!r:.60}]")))
    return tuple(found)


def _us(every: Duration, what: str) -> int:
    found = duration_us(every, what=what)
    least, most = limits.CHECKPOINT_EVERY_US_LEAST, limits.CHECKPOINT_EVERY_US_MAX
    if not least <= found <= most:
        allowed = f"{duration_text(least)} to {duration_text(most)}"
        raise _wrong(f"{what}: {every!r} is out of range (allowed: {allowed})", EXAMPLE)
    return found


def _wrong(text: str, hint: str) -> QueryError:
    return QueryError(text, hint=hint, code="query.placement")
