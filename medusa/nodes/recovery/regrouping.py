"""Guarded fragments that are split or merged: what their configuration says before and after. Pure.

    F of A, S1 S2 stand by ── a split is ordered, decided ──> F of A alone ── F becomes P, Q ──> F is no more;
    P, Q of A, S1 S2 stand by

Between the two decisions only A may have F, so what takes its place at A has no rival. An entry stays for
what is no more: whoever was away, and had it once, steps down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from medusa.nodes.agreement.changes import remembering
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import FORMER_MAX, GUARDED_MAX, Configuration, QueryParts, Replicas

__all__ = ["alone", "crowded", "is_alone", "listed", "replicas_of_spec", "unlisted"]


def is_alone(replicas: Replicas) -> bool:
    """Whether nobody but its owner may have it: it is free to be split or merged."""
    return replicas.members == (replicas.owner,)


def alone(replicas: Replicas) -> Replicas:
    """Nobody stands by for it."""
    return remembering(
        replicas, msgspec.structs.replace(replicas, members=(replicas.owner,), secondaries=(), guest="")
    )


def replicas_of_spec(spec: FragmentSpec, epoch: int) -> Replicas:
    """As its spec says, and nobody follows yet."""
    return Replicas(
        fragment=spec.name,
        owner=spec.node,
        epoch=epoch,
        members=(spec.node, *spec.standby),
        reads=tuple(feed.stream for feed in spec.feeds),
        streams=(*spec.streams.values(), *spec.entries.values()),
    )


def unlisted(
    current: Configuration, specs: Iterable[FragmentSpec], epoch: Callable[[str], int]
) -> list[FragmentSpec]:
    """Of these fragments of one node those that others are to stand by for, of which it says nothing.

    Args:
        epoch: of a fragment there. What it says of an earlier one of that name is about another fragment.
    """
    known = {each.fragment: each.epoch for each in current.fragments}
    ours = (spec for spec in specs if spec.query == current.query and spec.standby)
    return [spec for spec in ours if known.get(spec.name, 0) < epoch(spec.name)]


def listed(
    current: Configuration,
    made: Sequence[FragmentSpec],
    gone: Callable[[Replicas], bool],
    epoch: Callable[[str], int],
) -> Configuration:
    """With what was made instead of those that are ``gone``, and who of their nodes may not know it; of the
    same number."""
    if not made:
        return current
    after = {each.fragment: each for each in current.fragments}
    holders: dict[str, None] = {}
    left = [each for each in after.values() if gone(each)]
    for each in left:
        holders |= dict.fromkeys((each.owner, *each.holders))
        empty = msgspec.structs.replace(each, members=(), secondaries=(), guest="", reads=(), streams=())
        after[each.fragment] = remembering(each, empty)
    for spec in made:
        new, known = replicas_of_spec(spec, epoch(spec.name)), after.get(spec.name)
        before = holders | dict.fromkeys(() if known is None else (known.owner, *known.holders))
        former = tuple(node for node in before if node not in new.members)
        after[spec.name] = msgspec.structs.replace(new, former=former)
    names = {each.fragment: [spec.name for spec in made] for each in left}
    parts = None if current.parts is None else _renamed(current.parts, names)
    return msgspec.structs.replace(current, fragments=tuple(after.values()), parts=parts)


def _renamed(parts: QueryParts, names: Mapping[str, Sequence[str]]) -> QueryParts:
    """The ways of outputs lead through what was made."""
    ways = []
    for stream, method, fragments in parts.recovered:
        through = (new for each in fragments for new in names.get(each, (each,)))
        ways.append((stream, method, tuple(dict.fromkeys(through))))
    return msgspec.structs.replace(parts, recovered=tuple(ways))


def crowded(
    current: Configuration, made: Sequence[FragmentSpec], gone: Collection[str], epoch: Callable[[str], int]
) -> str:
    """Why a configuration can't name what would be made instead of these; empty: it can."""
    try:
        after = listed(current, made, lambda each: each.fragment in gone, epoch)
        names = {spec.name for spec in made}
        full = (
            msgspec.structs.replace(each, secondaries=each.members[1:]) if each.fragment in names else each
            for each in after.fragments
        )  # As it will be once all of them follow.
        msgspec.structs.replace(after, fragments=tuple(full))
    except ValueError as error:
        return str(error)
    if len(after.fragments) > GUARDED_MAX:
        return f"{len(after.fragments)} fragments that others stand by for, at most {GUARDED_MAX}"
    if any(len(each.former) > FORMER_MAX for each in after.fragments):
        return f"a fragment that has left more than {FORMER_MAX} nodes"
    return ""
