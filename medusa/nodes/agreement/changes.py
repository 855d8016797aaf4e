"""The configuration that is to follow another one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from medusa.wire.messages.configuration import Configuration, Replicas

__all__ = [
    "begun",
    "changed",
    "given_back",
    "lent_to",
    "next_number",
    "owned_by",
    "remembering",
    "taken_from",
    "with_guest",
]


def next_number(current: Configuration) -> Configuration:
    """Nothing changes; if something was accepted before, it is that which is decided."""
    return msgspec.structs.replace(current, number=current.number + 1)


def _nobody(node: str) -> bool:
    return False


def changed(
    current: Configuration, fragments: tuple[Replicas, ...], *, abroad: Callable[[str], bool] = _nobody
) -> Configuration | None:
    """With these fragments; None: they are as they were.

    Who comes to a fragment votes, since only voters propose. Who has nothing any more votes no more once
    others do in its place: of those the last that came.

    Args:
        abroad: whether a node is of another participant: it votes on nothing.
    """
    if fragments == current.fragments:
        return None
    having = {node: None for node in _having(fragments) if not abroad(node)}
    voters = list(dict.fromkeys((*current.voters, *having)))
    idle = [node for node in voters if node not in (*having, current.coordinator, *current.witnesses)]
    while idle and len(voters) > current.voters_least > 0:
        voters.remove(idle.pop())
    return msgspec.structs.replace(
        current,
        number=current.number + 1,
        voters=tuple(voters),
        fragments=fragments,
    )


def _having(fragments: Iterable[Replicas]) -> dict[str, None]:
    """The nodes of all that have one of these, or may."""
    present = (each for each in fragments if not each.gone)
    having = (node for each in present for node in (each.owner, *each.secondaries, *each.followers))
    return dict.fromkeys(having)


def owned_by(
    replicas: Replicas, owner: str, secondaries: Iterable[str], predecessors: Iterable[str] = ()
) -> Replicas:
    """Another node has it. One that is no member takes the place of who had it: as many stand by as
    before. Where it was abroad it is home again: whoever had it there is no guest any more."""
    members = replicas.members
    if owner not in members:
        members = tuple(owner if node == replicas.owner else node for node in members)
    made = msgspec.structs.replace(
        replicas,
        owner=owner,
        epoch=replicas.epoch + 1,
        secondaries=tuple(secondaries),
        members=members,
        guest="" if replicas.guest in (owner, replicas.owner) else replicas.guest,
        predecessors=tuple(predecessors),
    )
    return remembering(replicas, made)


def lent_to(
    replicas: Replicas, host: str, secondaries: Iterable[str], predecessors: Iterable[str] = ()
) -> Replicas:
    """A node of another participant has it, as a guest: the members are those that may have it back, and each
    of the secondaries keeps all that was shown and acknowledged."""
    made = msgspec.structs.replace(
        replicas,
        owner=host,
        epoch=replicas.epoch + 1,
        secondaries=tuple(secondaries),
        guest=host,
        predecessors=tuple(predecessors),
    )
    return remembering(replicas, made)


def taken_from(replicas: Replicas, owner: str) -> Replicas:
    """One that stands by has it instead of an owner that is silent, which keeps what it has: the next one may
    have lost what it followed by the time it hears that it was chosen."""
    left = (node for node in replicas.secondaries if node != owner)
    return owned_by(replicas, owner, left, (replicas.owner, *replicas.predecessors))


def given_back(
    replicas: Replicas, *, began: bool, is_up: Callable[[str], bool], abroad: Callable[[str], bool] = _nobody
) -> Replicas | None:
    """Its owner has nothing of it; None: nobody else may have it, or none of them is heard.

    It is that of the next in order, who has all that was shown or acknowledged before. Unless the owner may
    have begun since it was chosen, it can be that of the owner before too, who has the same: the first of
    them that is heard.

    Args:
        began: the owner may have shown or acknowledged something in its epoch.
        is_up: whether a node is heard.
        abroad: whether a node is of another participant: it has a fragment again only if it had it last. All
            members that are heard are to follow it then.
    """
    before = () if began else replicas.predecessors
    home = (node for node in replicas.secondaries if not abroad(node))
    new = next(filter(is_up, (*home, *before[:1])), None)
    if new is None:
        return None
    left = tuple(node for node in replicas.secondaries if node != new)
    rest = tuple(node for node in before if node != new)
    if abroad(new):
        return lent_to(replicas, new, filter(is_up, replicas.members), rest)
    return owned_by(replicas, new, left, rest)


def begun(replicas: Replicas) -> Replicas:
    """Its owner goes on with it: what owners before it have is of no use any more."""
    return msgspec.structs.replace(replicas, predecessors=()) if replicas.predecessors else replicas


def with_guest(replicas: Replicas, guest: str) -> Replicas:
    """This node follows beside the members, or none does; one that did so before is gone."""
    kept = tuple(node for node in replicas.secondaries if node != replicas.guest or node == guest)
    made = msgspec.structs.replace(replicas, guest=guest, secondaries=kept)
    return remembering(replicas, made)


def remembering(before: Replicas, after: Replicas) -> Replicas:
    """Who is of it no more is named among those."""
    nodes = (*before.former, *before.followers)
    left = dict.fromkeys(node for node in nodes if node not in after.followers)
    return msgspec.structs.replace(after, former=tuple(left))
