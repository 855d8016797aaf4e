"""Remote definitions as the catalog keeps them: those that others have here, and ours elsewhere. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from medusa.mind.spec import Feed, Fragment, fragment_to

__all__ = ["HeldDefinition", "MappedDefinition", "RemoteKept", "template_of"]


class HeldDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What we keep for a node, of our or of another participant."""

    participant: str
    node: str
    fragment: Fragment


class MappedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What another node keeps for us: ``template`` tells whether a fragment is it."""

    node: str
    query: str
    fragment: str
    template: bytes


class RemoteKept(msgspec.Struct, kw_only=True):
    """``held`` by ``participant/name``, ``mapped`` by name."""

    held: dict[str, HeldDefinition] = {}
    mapped: dict[str, MappedDefinition] = {}


def template_of(fragment: Fragment) -> bytes:
    """The same for fragments that differ only in where their inputs come from and who reads them."""
    bare = msgspec.structs.replace(
        fragment,
        feeds=tuple(Feed(source=feed.source, node="-", stream="-") for feed in fragment.feeds),
        readers=dict.fromkeys(fragment.readers, ()),
    )
    return blake2b(fragment_to(bare), digest_size=16).digest()
