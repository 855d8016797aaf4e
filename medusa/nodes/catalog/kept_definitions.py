"""Remote definitions as the catalog keeps them: those that others have here, and ours elsewhere. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import cast

import msgspec

from medusa.nodes.spec.cached_attribute import lazily
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec, fragment_to
from medusa.wire.messages.remote import Terms

__all__ = [
    "EXPIRES_MAX_US",
    "HeldDefinition",
    "MappedDefinition",
    "RemoteKept",
    "StoppedPart",
    "kept_for",
    "said_of",
    "template_of",
]

EXPIRES_MAX_US = 1 << 57
"""About the year 6500; more than any duration from now on."""


class HeldDefinition(Terms, frozen=True, kw_only=True, dict=True):
    """What we keep for a node, of our or of another participant.

    Attributes:
        asked: the first ``KeepRemote`` that brought it; 0: an earlier version didn't keep it.
    """

    participant: str
    node: str
    fragment: FragmentSpec
    asked: int = 0

    @lazily
    def packed(self) -> msgspec.Raw:
        """As msgpack; made once, as that of a ``FragmentSpec``."""
        return msgspec.Raw(msgspec.msgpack.encode(self))


class MappedDefinition(Terms, frozen=True, kw_only=True):
    """What another node keeps for us: ``template`` tells whether a fragment is it.

    Attributes:
        asked: the ``KeepRemote`` that wasn't confirmed yet; 0: it was.
    """

    node: str
    query: str
    fragment: str
    template: bytes
    asked: int = 0


class StoppedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that ran here for a node, until this node's owner stopped it, or its query took too much.

    Attributes:
        names: its streams and sources.
        told: its node has heard so.
        code: ``E_MEMORY`` or ``E_BUSY``: its query took more than it may here; empty: the owner stopped it.
        why: the same in words.
        at_us: when that was, since the Unix epoch; 0: the node didn't know the time.
    """

    node: str
    query: str
    names: tuple[str, ...]
    told: bool
    code: str = ""
    why: str = ""
    at_us: int = 0


class RemoteKept(msgspec.Struct, kw_only=True):
    """``held`` by ``participant/name``; ``mapped`` and ``revoking`` (``nodes.remote.revocation``) by name.

    Attributes:
        made: fragments that run, or ran, here -> by which definition.
        stopped: fragments that this node's owner has ended (``nodes.remote.stopping``).
    """

    held: dict[str, HeldDefinition] = {}
    mapped: dict[str, MappedDefinition] = {}
    revoking: dict[str, MappedDefinition] = {}
    made: dict[str, str] = {}
    stopped: dict[str, StoppedPart] = {}

    def forget_held(self, full: str) -> HeldDefinition | None:
        """Its owner has it here no more; what was kept."""
        return self.held.pop(full, None)

    def begin_revoking(self, name: str) -> MappedDefinition:
        """No deployment of ours uses it any more, and its keeper is to forget it; also begun anew."""
        mapped = self.mapped.pop(name, None) or self.revoking[name]
        self.revoking[name] = msgspec.structs.replace(mapped, asked=0)
        return self.revoking[name]

    def end_revoking(self, name: str) -> None:
        """Its keeper has forgotten it."""
        self.revoking.pop(name, None)

    def end_made(self, fragment: str) -> None:
        """It doesn't run here any more."""
        self.made.pop(fragment, None)

    def forget_stopped(self, fragment: str) -> None:
        """It runs here again, or its owner has removed it."""
        self.stopped.pop(fragment, None)

    def packed(self) -> RemoteKept:
        """What is encoded to the same, sooner."""
        held = {name: cast(HeldDefinition, each.packed) for name, each in self.held.items()}
        return msgspec.structs.replace(self, held=held)


def template_of(fragment: FragmentSpec) -> bytes:
    """The same for fragments that differ only in where their inputs come from and who reads them."""
    bare = msgspec.structs.replace(
        fragment,
        feeds=tuple(Feed(source=feed.source, node="-", stream="-") for feed in fragment.feeds),
        readers=dict.fromkeys(fragment.readers, ()),
    )
    return blake2b(fragment_to(bare), digest_size=16).digest()


def _terms(definition: Terms) -> dict[str, object]:
    """As the status says them: None where nothing was agreed."""
    return {term: getattr(definition, term) or None for term in Terms.__struct_fields__}


def said_of(kept: RemoteKept) -> dict[str, dict[str, dict[str, object]]]:
    """As ``status`` says it; ``expires_us`` is since the Unix epoch, None where there is no end."""
    defined: dict[str, dict[str, object]] = {
        name: {
            "node": each.node,
            "query": each.query,
            "fragment": each.fragment,
            **_terms(each),
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
            **_terms(each),
        }
        for name, each in kept.held.items()
    }
    stopped: dict[str, dict[str, object]] = {
        name: {"for": each.node, "query": each.query, "told": each.told}
        for name, each in kept.stopped.items()
        if not each.code
    }
    ended: dict[str, dict[str, object]] = {
        name: {
            "query": each.query,
            "streams": list(each.names),
            "code": each.code,
            "why": each.why,
            "at_us": each.at_us or None,
        }
        for name, each in kept.stopped.items()
        if each.code
    }
    return {"defined": defined, "kept": held, "stopped": stopped, "ended": ended}


def kept_for(kept: RemoteKept, participant: str, fragment: str) -> str:
    """The node of a participant that has this fragment kept here; empty: none."""
    held = kept.held.values()
    return next((e.node for e in held if (e.participant, e.fragment.name) == (participant, fragment)), "")
