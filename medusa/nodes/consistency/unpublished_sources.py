"""Which sources of a fragment have no publisher, since when, and which of them hold up others. Pure.

    nobody publishes into a, b brings something ── for X - margin ──> missed ── somebody does ──> as ever

By a source that leads to nothing beside another one nobody is held up, and where no other source brings
anything there is nothing to answer: a query into which nobody publishes yet is as it should be. So the time
counts from when another source brings something, and publishers may begin long after their query, one soon
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from medusa.nodes.fragment.inputs import FragmentInput

__all__ = ["Unpublished", "UnpublishedSources"]


@dataclass(slots=True)
class Unpublished:
    """What is known of one.

    Attributes:
        since_us: since when nobody publishes into it.
        last_us: when one who did brought something last; None: nobody did.
        held_us: since when it has held up others; None: it doesn't.
        missed: it has for long enough.
    """

    since_us: int
    last_us: int | None = None
    held_us: int | None = None
    missed: bool = False


class UnpublishedSources:
    """Those of one fragment.

    Args:
        meeting: source that may hold up others -> those that it meets, itself among them.
        has_ended: whether nothing more comes by a source.
        wait_us: after so long it is missed.
    """

    def __init__(
        self, meeting: Mapping[str, Set[str]], has_ended: Callable[[str], bool], wait_us: int
    ) -> None:
        self._meeting = {source: others - {source} for source, others in meeting.items()}
        self._has_ended = has_ended
        self._wait_us = wait_us
        self._known: dict[str, Unpublished] = {}
        self._had: dict[str, list[FragmentInput]] = {}
        """Who published into each when it was looked last."""
        self._due_at_us: int | None = None

    def rest(self) -> None:
        """The fragment doesn't go on meanwhile: those that weren't missed count anew."""
        self._known = {source: each for source, each in self._known.items() if each.missed}

    def look(
        self, now_us: int, inputs: Collection[FragmentInput], came_us: Mapping[FragmentInput, int]
    ) -> None:
        """See how they are now.

        Args:
            inputs: of the fragment.
            came_us: when each brought something last, those included that have gone since the last look.
        """
        had, self._had = self._had, {source: [] for source in self._meeting}
        for input in inputs:
            if input.source in self._had:
                self._had[input.source].append(input)
        known, self._known = self._known, {}
        times: list[int] = []
        for source, others in self._meeting.items():
            if self._had[source] or not others or self._has_ended(source):
                continue
            if (one := known.get(source)) is None:
                last = (came_us[each] for each in had.get(source, ()) if each in came_us)
                one = Unpublished(now_us, max(last, default=None))
            self._known[source] = one
            if one.held_us is None:
                brought = (came_us[each] for each in inputs if each.source in others and each in came_us)
                after = [at_us for at_us in brought if one.last_us is None or at_us > one.last_us]
                one.held_us = max(one.since_us, min(after)) if after else None
            if one.held_us is not None and not one.missed:
                one.missed = now_us >= one.held_us + self._wait_us
                times += [] if one.missed else [one.held_us + self._wait_us]
        self._due_at_us = min(times, default=None)

    @property
    def sources(self) -> Set[str]:
        """Those that may hold up others."""
        return self._known.keys()

    @property
    def any(self) -> bool:
        """Whether there are some that may hold up others."""
        return bool(self._known)

    def of(self, source: str) -> Unpublished | None:
        """What was known of a source when it was looked last; None: somebody published into it."""
        return self._known.get(source)

    def held_up(self) -> set[str]:
        """Those that hold up others, for however long."""
        return {source for source, each in self._known.items() if each.held_us is not None}

    def missed(self) -> list[str]:
        """Those that hold up others, and have for long enough."""
        return [source for source, each in self._known.items() if each.missed]

    def due_at_us(self) -> int | None:
        """When the next one will have been without for long enough; None: only others may change anything."""
        return self._due_at_us
