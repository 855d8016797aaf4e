"""Who has the guarded fragments of a federation and who stands by for them, out of what nodes say. Pure.

Two nodes say it: the coordinator of the query the configuration, and the owner of a fragment, who alone knows
how far its secondaries are. After a takeover both may be of before, or gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from msgspec import UNSET

from medusa.wire.status_and_metrics import FOLLOWING, NodeStatus, ReplicasStatus

__all__ = ["GuardedFragment", "guarded_fragments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedFragment:
    """A fragment that others stand by for, or should.

    Attributes:
        number: of the newest configuration of its query that a node told.
    """

    query: str
    fragment: str
    number: int
    replicas: ReplicasStatus

    @property
    def alone(self) -> bool:
        """Nobody could take it over just now."""
        secondaries = self.replicas.secondaries
        states = [each.state for each in secondaries.values()]
        return self.replicas.alone_us is not None or FOLLOWING not in states


def guarded_fragments(
    statuses: Iterable[NodeStatus], silent: Collection[str] = ()
) -> tuple[GuardedFragment, ...]:
    """Each once, by query and name: of what is said the highest epoch counts, in it the owner's word.

    Args:
        silent: nodes that said it before they fell silent: what others say of the same epoch counts more.
    """
    # Participants may name queries alike, and none speaks of another's.
    numbers: dict[tuple[str, str], int] = {}
    best: dict[tuple[str, str, str], tuple[tuple[int, bool, bool, int], GuardedFragment]] = {}
    for status in statuses:
        for own, each in _told(status):
            of = status.participant, each.query
            numbers[of] = max(each.number, numbers.get(of, 0))
            rank = each.replicas.epoch, status.node not in silent, own, each.number
            if (*of, each.fragment) not in best or rank > best[*of, each.fragment][0]:
                best[*of, each.fragment] = rank, each
    found = (replace(each, number=numbers[key[:2]]) for key, (_, each) in best.items())
    return tuple(sorted(found, key=lambda each: (each.query, each.fragment)))


def _told(status: NodeStatus) -> Iterator[tuple[bool, GuardedFragment]]:
    """What a node says, each with whether it has the fragment itself."""
    for query, of in status.queries.items():
        if of.configuration is not UNSET:
            for name, replicas in of.configuration.fragments.items():
                number = of.configuration.number
                yield False, GuardedFragment(query=query, fragment=name, number=number, replicas=replicas)
    for one in status.fragments:
        if one.configuration is not UNSET and one.replicas is not UNSET:
            yield (
                True,
                GuardedFragment(
                    query=one.query, fragment=one.fragment, number=one.configuration, replicas=one.replicas
                ),
            )
