"""What a host is told of the query of a guest: its own fragments and those next to them. Pure.

A *host* is a node of another participant that has a fragment of ours, or follows it so that it can. It obeys
our configurations as every node of the query does, and each has the same number for it as for us. It neither
votes nor coordinates, so who does is left out; so is every fragment that it isn't linked with.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from medusa.errors import LinkError
from medusa.wire.messages.configuration import Configuration, Replicas

__all__ = ["check_told", "hosts_of", "told_to"]


def hosts_of(configuration: Configuration) -> dict[str, None]:
    """Nodes that may be hosts: guests, and all that have had one of its fragments and are no members."""
    found: dict[str, None] = {}
    for each in configuration.fragments:
        for node in (each.guest, *each.predecessors, *each.former):
            if node and node not in each.members:
                found[node] = None
    return found


def told_to(configuration: Configuration, host: str) -> Configuration:
    """The same number, as this host hears it."""
    own = [each for each in configuration.fragments if _concerns(each, host)]
    ends = {stream for each in own for stream in (*each.reads, *each.streams)}
    beside = (
        each
        for each in configuration.fragments
        if each not in own and ends.intersection((*each.reads, *each.streams))
    )
    return msgspec.structs.replace(
        configuration,
        voters=(configuration.coordinator,),
        fragments=(*own, *beside),
        parts=None,
        witnesses=(),
        voters_least=0,
    )


def _concerns(replicas: Replicas, host: str) -> bool:
    return host in (replicas.owner, *replicas.holders, *replicas.predecessors)


def check_told(told: Configuration, me: str, *, may_have: Collection[str], theirs: Collection[str]) -> None:
    """Whether another participant may have us go by this.

    Args:
        may_have: fragments of which there is a permit for us.
        theirs: nodes of that participant, as far as we know them.

    Raises:
        LinkError: it gives us a part that nobody has permitted (``E_NO_CONTRACT``).
    """
    roles = (told.coordinator, *told.voters, *told.witnesses)
    wrong = "" if told.parts is None and me not in roles else "this node is to coordinate it, or to vote"
    if told.coordinator not in theirs:
        wrong = f"{told.coordinator!r} is to coordinate it, and isn't of who says so"
    for each in told.fragments:
        active = me in (each.owner, *each.secondaries, *each.followers, *each.predecessors)
        if me in each.members or (active and each.fragment not in may_have):
            wrong = f"this node is named for fragment {each.fragment!r}"
    if wrong:
        text = f"configuration {told.number} of query {told.query!r}: {wrong}"
        raise LinkError(text, hint="only what a contract in force allows runs here", code="E_NO_CONTRACT")
