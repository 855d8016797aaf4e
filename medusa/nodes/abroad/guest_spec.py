"""Whether a fragment may run at a node of another participant: asked by its owner before anything changes,
and by the host of the spec that came. Pure."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from medusa.errors import LinkError, QueryError
from medusa.nodes.catalog.kept_permits import Allowance
from medusa.nodes.config.fields import matches
from medusa.nodes.config.settings_offers import OfferRules, check_part
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Sink, Source
from medusa.query.graph import label_of
from medusa.query.recovery import ACTIVE, PASSIVE

__all__ = ["check_guest", "check_returned", "digest_of", "why_not_abroad"]


def why_not_abroad(spec: FragmentSpec) -> tuple[str, str, str] | None:
    """Why a fragment can run at no other participant's, whoever it be: the reason, a hint and a code; None:
    it can."""
    if spec.entries:
        return (
            f"clients publish into its source {next(iter(spec.entries))!r}, and only nodes reach a host",
            "put sources in a fragment of their own at a node of your own",
            "E_MOVE",
        )
    sinks = (box.id for box in spec.graph.boxes if isinstance(box, Sink))
    shown = next((id for id in sinks if not spec.readers.get(id)), None)
    if shown is not None or spec.guests:
        return (
            f"clients or other queries read its sink {shown or next(iter(spec.guests))!r}, and only nodes of "
            "its own query reach a host",
            "put sinks in a fragment of their own at a node of your own",
            "E_MOVE",
        )
    if spec.reads():
        return "it reads a stream of another query", "leave its source with of= at home", "E_MOVE"
    if spec.method not in ("", ACTIVE, PASSIVE):
        hint = 'give the outputs that it feeds method="active_standby" or "passive_standby"'
        return f"it is recovered by {spec.method.replace('_', ' ')}", hint, "E_STANDBY"
    if spec.delay_us:
        return "it feeds an output with delay=", "leave delay= out of the outputs that it feeds", "E_MOVE"
    return None


def check_guest(spec: FragmentSpec, allows: Allowance, node: str, participant: str) -> None:
    """Whether what came may run at our node for another participant.

    Raises:
        LinkError: the contract doesn't allow it (``E_OFFER``), or no contract could (``E_SPEC``).
    """
    if (why := why_not_abroad(spec)) is not None:
        raise LinkError(f"fragment {spec.name!r}: {why[0]}", hint=why[1], code="E_SPEC")
    own = next((box for box in spec.graph.boxes if box.functions), None)
    if own is not None:
        text = f"{label_of(own)} has a function of a user's, which a host runs only by a definition"
        raise LinkError(text, hint="have that part kept (medusa remote define)", code="E_SPEC")
    if len(spec.packed) > allows.spec_bytes:
        text = f"its spec has {len(spec.packed):,} bytes, and the contract allows {allows.spec_bytes:,}"
        raise LinkError(text, hint="divide the fragment", code="E_OFFER")
    for stream in (*(feed.stream for feed in spec.feeds), *spec.streams.values()):
        if not any(matches(pattern, stream) for pattern in allows.streams):
            text = f"the contract with {participant!r} doesn't name stream {stream!r}"
            raise LinkError(text, hint=f"it names {', '.join(allows.streams)}", code="E_OFFER")
    sources = (box for box in spec.graph.boxes if isinstance(box, Source))
    for name in (field.name for box in sources for field in box.schema):
        if not any(matches(pattern, name) for pattern in allows.columns):
            text = f"the contract with {participant!r} doesn't name column {name!r}"
            raise LinkError(text, hint=f"it names {', '.join(allows.columns)}", code="E_OFFER")
    try:
        check_part(OfferRules(boxes=allows.boxes), node, participant, spec)
    except QueryError as error:
        raise LinkError(error.message, hint="the contract says which kinds are run", code="E_OFFER") from None


def digest_of(spec: FragmentSpec) -> str:
    """What a fragment is, wherever it and its neighbours stand."""
    feeds = tuple(msgspec.structs.replace(feed, node="-", epoch=1) for feed in spec.feeds)
    plain = msgspec.structs.replace(spec.as_deployed, node="-", feeds=feeds, readers={}, standby=())
    return blake2b(plain.packed, digest_size=32).hexdigest()


def check_returned(spec: FragmentSpec, lent: str | None, abroad: Callable[[str], bool]) -> None:
    """Whether what a host sends is what it was lent.

    Args:
        lent: the digest of that; None: nothing was, as far as this node knows.
        abroad: whether a node is of another participant.

    Raises:
        LinkError: it is another, or its neighbours are others' nodes (``E_SPEC``).
    """
    if lent != digest_of(spec):
        text = f"fragment {spec.name!r} isn't the one that was lent"
        raise LinkError(text, hint="its owner knows what it is", code="E_SPEC")
    beside = [feed.node for feed in spec.feeds]
    beside += [node for nodes in spec.readers.values() for node in nodes]
    if (stranger := next(filter(abroad, beside), None)) is not None:
        text = f"fragment {spec.name!r} is linked with {stranger!r}, a node of another participant"
        raise LinkError(text, hint="it is linked with nodes of its owner alone", code="E_SPEC")
