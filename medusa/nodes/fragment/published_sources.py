"""The sources that publishers feed: who is there, and what they have all promised."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from medusa.elements import END_US, START_US, Boundary
from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.query.boxes import Schema, Source

__all__ = ["PublishedSources"]

PUBLISHERS_MAX = 1000
"""Publishers of one source whose positions are remembered."""


class PublishedSources:
    """The open sources of one fragment.

    The promise of a source is the least of those of its publishers. One that went without finishing
    holds the others back for ``grace_us``, in which it may come back; then no longer.

    Args:
        names: source -> the name under which it is published.
        inputs: all inputs of the fragment, by (source, peer); shared with its owner.
        fed_us: source -> the last boundary fed, as found in a checkpoint.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        names: Mapping[str, str],
        inputs: dict[tuple[str, str], FragmentInput],
        *,
        fed_us: Mapping[str, int],
        grace_us: int,
    ) -> None:
        self.fed_us = {**dict.fromkeys(names, int(START_US)), **fed_us}
        self._sources = sources
        self._names = names
        self._inputs = inputs
        self._grace_us = grace_us
        self._announced_us: dict[str, int] = {}

    def begin(self, now_us: int) -> None:
        """The node starts: publishers known from before have some time to come back."""
        for input in self._publishers():
            input.falls_silent(now_us)

    def _publishers(self, source: str = "") -> Iterator[FragmentInput]:
        return (
            each
            for each in self._inputs.values()
            if not each.judged and (not source or each.source == source)
        )

    def check_publisher(
        self, peer: str, source: str, schema: Schema, awaited: Container[tuple[str, str]] = ()
    ) -> list[FragmentInput]:
        """Whether a new publisher may feed a source; the others that do or did.

        Args:
            awaited: (source, peer) of those that are not forgotten for it.

        Raises:
            RemoteProtocolError: other columns than the source's, or the source has ended, or there
                are too many publishers.
        """
        name = self._names[source]
        if schema != self._sources[source].schema:
            columns = ", ".join(f"{field.name} {field.type}" for field in self._sources[source].schema)
            raise RemoteProtocolError(
                f"source {name!r} has the columns {columns}", peer=peer, code="E_SCHEMA"
            )
        if self.fed_us[source] >= END_US:
            raise RemoteProtocolError(
                f"source {name!r} has ended: a publisher finished it",
                peer=peer,
                code="E_FINISHED",
                hint="deploy the query again to begin anew",
            )
        if len(others := list(self._publishers(source))) >= PUBLISHERS_MAX:
            self._forget_one(peer, name, [each for each in others if (source, each.peer) not in awaited])
        return others

    def _forget_one(self, peer: str, name: str, others: Iterable[FragmentInput]) -> None:
        """Make room: forget who went first and left nothing undurable.

        Raises:
            RemoteProtocolError: all of them may come back for something.
        """
        away = (each for each in others if each.silent_since_us is not None and not each.named)
        gone = [each for each in away if each.settled]
        if not gone:
            raise RemoteProtocolError(
                f"source {name!r} has {PUBLISHERS_MAX} publishers", peer=peer, code="E_LIMIT"
            )
        oldest = min(gone, key=lambda each: each.silent_since_us or 0)
        del self._inputs[oldest.source, oldest.peer]

    # --- promises -----------------------------------------------------------------------------

    def advance(self, source: str) -> Boundary | None:
        """A publisher promised something: what to feed, if all have."""
        return self.raised(source, Boundary(self._promised(source)))

    def raised(self, source: str, boundary: Boundary) -> Boundary | None:
        """The source takes this boundary, whatever publishers promised; None: it was there before."""
        if boundary.time_us <= self.fed_us[source]:
            return None
        self.fed_us[source] = boundary.time_us
        return boundary

    def _promised(self, source: str) -> int:
        counted = (i.fed_us for i in self._publishers(source) if not i.gone or i.fed_us >= END_US)
        return min(counted, default=int(START_US))

    def tick(self, now_us: int) -> list[Work]:
        """Stop to wait for publishers that stayed away; what the others' promises then bring."""
        works: list[Work] = []
        for input in self._publishers():
            input.wait_at_most(now_us, self._grace_us)
        for source, fed_us in self.fed_us.items():
            promised_us = self._promised(source)
            if promised_us <= max(fed_us, self._announced_us.get(source, START_US)):
                continue
            self._announced_us[source] = promised_us
            who = next(each for each in self._publishers(source) if each.fed_us >= promised_us)
            promise = Boundary(promised_us)
            works.append(Work(who, promise, next_seq=who.fed_seq, boundary_us=who.fed_us, cost=0))
        return works

    def resume(self, now_us: int) -> list[Work]:
        """As ``tick``, after a time in which what it gave was not fed."""
        self._announced_us.clear()
        return self.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return min(
            (
                each.silent_since_us + self._grace_us
                for each in self._publishers()
                if each.silent_since_us is not None and not each.gone and each.fed
            ),
            default=None,
        )
