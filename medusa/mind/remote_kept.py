"""Remote definitions as the catalog keeps them: those that others have here, and ours elsewhere. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from medusa.mind.spec import Feed, Fragment, fragment_to

__all__ = ["EXPIRES_MAX_US", "HeldDefinition", "MappedDefinition", "RemoteKept", "said_of", "template_of"]

EXPIRES_MAX_US = 1 << 57
"""About the year 6500; more than any duration from now on."""


class HeldDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What we keep for a node, of our or of another participant.

    Attributes:
        expires_us: by the clock, since the Unix epoch; 0: it counts until it is revoked.
    """

    participant: str
    node: str
    fragment: Fragment
    expires_us: int = 0


class MappedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What another node keeps for us: ``template`` tells whether a fragment is it."""

    node: str
    query: str
    fragment: str
    template: bytes
    expires_us: int = 0


class RemoteKept(msgspec.Struct, kw_only=True):
    """``held`` by ``participant/name``; ``mapped`` and ``revoking`` (``mind.remote_revoking``) by name."""

    held: dict[str, HeldDefinition] = {}
    mapped: dict[str, MappedDefinition] = {}
    revoking: dict[str, MappedDefinition] = {}


def template_of(fragment: Fragment) -> bytes:
    """The same for fragments that differ only in where their inputs come from and who reads them."""
    bare = msgspec.structs.replace(
        fragment,
        feeds=tuple(Feed(source=feed.source, node="-", stream="-") for feed in fragment.feeds),
        readers=dict.fromkeys(fragment.readers, ()),
    )
    return blake2b(fragment_to(bare), digest_size=16).digest()


def said_of(kept: RemoteKept) -> dict[str, dict[str, dict[str, object]]]:
    """As ``status`` says it; ``expires_us`` is since the Unix epoch, None where there is no end."""
    defined: dict[str, dict[str, object]] = {
        name: {
            "node": each.node,
            "query": each.query,
            "fragment": each.fragment,
            "expires_us": each.expires_us or None,
        }
        for name, each in kept.mapped.items()
    }
    held: dict[str, dict[str, object]] = {
        name: {
            "for": each.node,
            "participant": each.participant,
            "query": each.fragment.query,
            "fragment": each.fragment.name,
            "inputs": [feed.source for feed in each.fragment.feeds],
            "expires_us": each.expires_us or None,
        }
        for name, each in kept.held.items()
    }
    return {"defined": defined, "kept": held}
