"""Segments in a store: groups that hold output of one stream and nothing else."""

from __future__ import annotations

from medusa.engine.state.checkpoint import seal, unseal
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG
from medusa.ports import Store
from medusa.wire.outbox import Fetch, WriteSegment

__all__ = ["read_segment", "write_segment"]


def write_segment(store: Store, name: str, effect: WriteSegment) -> None:
    """Store a segment durably.

    Raises:
        StateError: it couldn't be written, and isn't there.
    """
    store.write(name, seal({LOG: effect.payloads}, {"fragment": effect.fragment, "token": effect.token}))


def read_segment(store: Store, name: str, effect: Fetch) -> tuple[bytes, ...]:
    """The payloads at these places; every byte of the segment is checked.

    Raises:
        StateError: it isn't there, can't be read, or is damaged.
    """
    facts, files = unseal(store.read(name), store.where(name))
    log = memoryview(files.get(LOG, b""))
    if (facts.get("fragment"), facts.get("token")) != (effect.fragment, effect.token):
        raise StateError(f"{store.where(name)} was written as another one", code="state.owner")
    # Copies: one payload that stays in memory must not hold the whole segment there.
    payloads = tuple(bytes(log[offset : offset + nbytes]) for offset, nbytes in effect.places)
    if any(len(payload) != nbytes for payload, (_, nbytes) in zip(payloads, effect.places, strict=True)):
        raise StateError(f"{store.where(name)} is too short", code="state.corrupt")
    return payloads
