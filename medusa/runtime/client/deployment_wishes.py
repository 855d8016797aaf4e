"""What a client wishes of a deployment beside its places: who stands by, how often a fragment takes a
checkpoint. Checked as far as no node need be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from medusa.errors import QueryError
from medusa.nodes.placement.checkpoint_intervals import IntervalWish
from medusa.nodes.placement.fragment_keys import REST
from medusa.nodes.placement.standby_plan import StandbyWish
from medusa.query.boxes import Graph, Sink
from medusa.units import Duration, duration_text, duration_us
from medusa.wire import limits
from medusa.wire.messages.commands import Deploy
from medusa.wire.messages.standby import DeployGuarded

__all__ = [
    "AUTO",
    "CheckpointEvery",
    "Standby",
    "asks_delay",
    "asks_recovery",
    "deployment",
    "interval_wish",
    "standby_wish",
]

AUTO = "auto"

Standby: TypeAlias = str | Mapping[str, str | Sequence[str]]
"""``"auto"``, or node, box, fragment or ``"*"`` -> ``"auto"`` or nodes."""

EXAMPLE = 'standby={"core": ["spare-1", "spare-2"]}, or standby="auto"'

CheckpointEvery: TypeAlias = Duration | Mapping[str, Duration]
"""A duration for all fragments, or node, box, fragment or ``"*"`` -> a duration."""

INTERVALS_EXAMPLE = 'checkpoint_every={"q/heavy": "200ms", "core": "2s"}, or checkpoint_every="2s"'


def asks_recovery(graph: Graph) -> bool:
    """Whether an output is to be recovered."""
    return any(isinstance(box, Sink) and box.recovery is not None for box in graph.boxes)


def asks_delay(graph: Graph) -> bool:
    """Whether an output bounds what a failure may add to it."""
    return any(isinstance(box, Sink) and box.delay_us is not None for box in graph.boxes)


def deployment(
    at: Mapping[str, Sequence[str]],
    reads: tuple[tuple[str, str, str, int], ...],
    wish: StandbyWish,
    intervals: IntervalWish = (),
    *,
    dry: bool = False,
) -> Deploy | DeployGuarded:
    """What a node is asked, still without a number; as ever where nobody wishes for anything."""
    places = tuple((node, tuple(boxes)) for node, boxes in at.items())
    if wish == StandbyWish() and not intervals and not dry:
        return Deploy(request=0, at=places, reads=reads)
    return DeployGuarded(
        request=0,
        at=places,
        reads=reads,
        standby=wish.standby,
        witnesses=wish.witnesses,
        dry=dry,
        checkpoint_every=intervals,
    )


def standby_wish(standby: Standby | None, witness: Sequence[str]) -> StandbyWish:
    """As a node takes it.

    Raises:
        QueryError: neither ``"auto"`` nor names of nodes.
    """
    given: object = {REST: AUTO} if standby == AUTO else {} if standby is None else standby
    if not isinstance(given, Mapping):
        raise _wrong(f"standby is {given!r:.60}, expected who stands by for what", EXAMPLE)
    if standby is not None and not given:
        raise _wrong("standby names nobody", EXAMPLE)
    found = []
    for key, names in given.items():
        if not isinstance(key, str) or not key:
            raise _wrong(f"standby: {key!r:.60} is no name of a node, box or fragment", EXAMPLE)
        label = f"standby[{key!r:.60}]"
        found.append((key, () if names == AUTO else _names(names, label)))
    return StandbyWish(standby=tuple(found), witnesses=_names(witness, "witness") if witness else ())


def _names(given: object, label: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise _wrong(f"{label} is the text {given!r:.60}, expected names of nodes", f"write [{given!r:.60}]")
    if not isinstance(given, Sequence) or not all(isinstance(each, str) and each for each in given):
        raise _wrong(f"{label} is {given!r:.60}, expected names of nodes", EXAMPLE)
    if not given:
        raise _wrong(f"{label} names nobody", f'"{AUTO}": the node that is asked chooses')
    if len(given) > limits.STANDBY_MAX:
        raise _wrong(f"{label} names {len(given)} nodes, at most {limits.STANDBY_MAX}", "")
    return tuple(given)


def _wrong(text: str, hint: str) -> QueryError:
    return QueryError(text, hint=hint, code="query.placement")


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
        raise _wrong("checkpoint_every names nothing", INTERVALS_EXAMPLE)
    found = []
    for key, every in given.items():
        if not isinstance(key, str) or not key:
            raise _wrong(
                f"checkpoint_every: {key!r:.60} is no name of a node, box or fragment", INTERVALS_EXAMPLE
            )
        found.append((key, _us(every, f"checkpoint_every[{key!r:.60}]")))
    return tuple(found)


def _us(every: Duration, what: str) -> int:
    found = duration_us(every, what=what)
    least, most = limits.CHECKPOINT_EVERY_US_LEAST, limits.CHECKPOINT_EVERY_US_MAX
    if not least <= found <= most:
        allowed = f"{duration_text(least)} to {duration_text(most)}"
        raise _wrong(f"{what}: {every!r} is out of range (allowed: {allowed})", INTERVALS_EXAMPLE)
    return found
