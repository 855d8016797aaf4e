"""Sources whose publishers may have more to bring, since their node has started and knows of none. Pure.

    node starts, nobody publishes into a ── somebody does, or nobody did for long ──> as ever

Who published into a source is in the checkpoints of its fragment: of who came after the last one the node
knows nothing once it was down, and what that has to bring is missing all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from medusa.nodes.fragment.inputs import FragmentInput

__all__ = ["AwaitedPublishers"]


class AwaitedPublishers:
    """Those of one fragment.

    Args:
        sources: that publishers feed, and that may not bring nothing.
        has_ended: whether nothing more comes by a source.
        grace_us: publishers have so long to come back.
    """

    def __init__(self, sources: Collection[str], has_ended: Callable[[str], bool], grace_us: int) -> None:
        self._all = tuple(sources)
        self._has_ended = has_ended
        self._grace_us = grace_us
        self._awaited: frozenset[str] = frozenset()
        self._until_us = 0

    def begin(self, now_us: int, inputs: Collection[FragmentInput]) -> None:
        """The node starts with these inputs, which it knows from before."""
        known = {each.source for each in inputs}
        unknown = [each for each in self._all if each not in known]
        self._awaited = frozenset(each for each in unknown if not self._has_ended(each))
        self._until_us = now_us + self._grace_us

    def look(self, now_us: int, inputs: Collection[FragmentInput]) -> None:
        """See which are still awaited."""
        if self._awaited:
            here = frozenset(each.source for each in inputs)
            self._awaited = self._awaited - here if now_us < self._until_us else frozenset()

    @property
    def sources(self) -> Set[str]:
        """Of which nobody has come back yet."""
        return self._awaited

    def due_at_us(self) -> int | None:
        """When they are awaited no more; None: none is."""
        return self._until_us if self._awaited else None
