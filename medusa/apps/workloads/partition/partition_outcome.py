"""What a run over a cut network found: the rows as they came, by which replica, and the checks of it all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from medusa.apps.workloads.demos.federation_outcome import TableComparison
from medusa.apps.workloads.partition.partition_check import PartitionCheck, PartitionEvent
from medusa.apps.workloads.partition.tentative_outcome import TentativeOutcome

__all__ = ["PartitionArrival", "PartitionOutcome", "Sighting", "fault_in"]


@dataclass(frozen=True, slots=True)
class PartitionArrival:
    """Rows that came to the reader at once.

    Attributes:
        at_s: since rows began to flow.
        seq: the number of the first one, as the node says it.
        numbers: those that the rows have had since they were published.
    """

    at_s: float
    seq: int
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What c said of itself.

    Attributes:
        asked_s: when it was asked, since rows began to flow.
        origin: the node that it reads from.
        next_row: the number of the row that it wants next from there.
        configuration: the number of the newest one that it knows.
        owner: who has the guarded fragment by that.
        following: who could take it over now.
        read_version, own_version: of the stream that it reads, and of its output.
    """

    asked_s: float
    origin: str
    next_row: int
    configuration: int
    owner: str
    following: Sequence[str]
    read_version: int
    own_version: int


def fault_in(arrivals: Sequence[PartitionArrival]) -> str:
    """Where the received numbers aren't 0, 1, 2, ...; empty: each came once, in order."""
    wanted = 0
    for arrival in arrivals:
        if arrival.seq != wanted:
            return f"row {arrival.seq:,} by the node's count came where {wanted:,} was due"
        for number in arrival.numbers:
            if number < wanted:
                return f"row {number:,} came again after row {wanted - 1:,}"
            if number > wanted:
                return f"row {wanted:,} is missing: {number:,} came"
            wanted += 1
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """A finished run.

    Attributes:
        network: ``namespaces`` or ``relays``; ``network_text``: what that is.
        sightings: of c, in order.
        cut_s, healed_s: when the link of a was cut, and when it was whole again, since rows began to flow.
        published: rows.
        lost_rows: that the reader didn't get, as its client counts.
        reader_versions: of c's output, as the reader was told before the cut and at the end.
        tentative: what was found once all that has the fragment was cut off.
    """

    network: str
    network_text: str
    guarded: str
    secondary: str
    events: Sequence[PartitionEvent]
    arrivals: Sequence[PartitionArrival]
    sightings: Sequence[Sighting]
    cut_s: float
    healed_s: float
    published: int
    lost_rows: int
    reader_versions: tuple[int, int]
    comparison: TableComparison
    seconds: float
    tentative: TentativeOutcome | None = None

    @property
    def switched_row(self) -> int | None:
        """The number of the first row that c took from another node than at first; None: it never did.

        It is what c wanted next when it was asked last before it read from another one. After the cut
        nothing comes from the first any more, so c is asked often enough to tell it exactly.
        """
        origins = [each.origin for each in self.sightings]
        for before, after in pairwise(self.sightings):
            if before.origin == origins[0] != after.origin:
                return before.next_row
        return None

    @property
    def through(self) -> dict[str, int]:
        """Node -> rows that came through it."""
        received = sum(len(each.numbers) for each in self.arrivals)
        row = received if self.switched_row is None else min(self.switched_row, received)
        return {self.guarded: row, self.secondary: received - row}

    @property
    def silence_s(self) -> tuple[float, float]:
        """The longest time without a row at the reader, undisturbed until the cut, and from then on."""
        gaps = [(before.at_s, after.at_s - before.at_s) for before, after in pairwise(self.arrivals)]
        calm = max((gap for at, gap in gaps if at + gap <= self.cut_s), default=0.0)
        return calm, max((gap for at, gap in gaps if at + gap > self.cut_s), default=0.0)

    def checks(self) -> list[PartitionCheck]:
        """All that has to be so."""
        received = sum(len(each.numbers) for each in self.arrivals)
        missing = "" if received == self.published else f"{received:,} of {self.published:,} came"
        if self.lost_rows:
            missing = f"the reader's client counts {self.lost_rows:,} lost rows"
        return [
            PartitionCheck("r has each row once, in order", fault_in(self.arrivals) or missing),
            PartitionCheck("they are what one undisturbed process gives", self.comparison.example),
            PartitionCheck(f"c read from {self.guarded}, then from {self.secondary}", self._order()),
            PartitionCheck(f"after healing c stays with {self.secondary}", self._stay()),
            PartitionCheck(f"{self.guarded} is back, and stands by for {self.secondary}", self._back()),
        ]

    def _order(self) -> str:
        wanted = [self.guarded, self.secondary]
        found = [each.origin for each in self.sightings]
        changes = [one for one, before in zip(found, ["", *found], strict=False) if one != before]
        if changes != wanted:
            return f"it read from {', then '.join(changes) or 'nobody'}"
        early = any(each.origin == self.secondary and each.asked_s < self.cut_s for each in self.sightings)
        return f"it read from {self.secondary} before the cut: this machine is too busy" if early else ""

    def _stay(self) -> str:
        after = [each for each in self.sightings if each.asked_s >= self.healed_s]
        if not after:
            return "it said nothing"
        other = next((each for each in after if (each.origin, each.owner) != (self.secondary,) * 2), None)
        return "" if other is None else f"at {other.asked_s:.2f} s it read from {other.origin}"

    def _back(self) -> str:
        last = self.sightings[-1] if self.sightings else None
        return "" if last is not None and self.guarded in last.following else "it doesn't"

    @property
    def fine(self) -> bool:
        """Every check is passed."""
        return not any(each.fault for each in self.checks()) and (
            self.tentative is None or self.tentative.fine
        )

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        calm, cut = self.silence_s
        last = self.sightings[-1]
        return {
            "fine": self.fine,
            "network": self.network,
            "checks": [asdict(each) for each in self.checks()],
            "events": [{"at_s": round(each.at_s, 3), "what": each.what} for each in self.events],
            "published": self.published,
            "received": sum(len(each.numbers) for each in self.arrivals),
            "lost_rows": self.lost_rows,
            "through": self.through,
            "switched_row": self.switched_row,
            "cut_s": round(self.cut_s, 3),
            "healed_s": round(self.healed_s, 3),
            "longest_gap_before_s": round(calm, 3),
            "longest_gap_after_s": round(cut, 3),
            "configuration": last.configuration,
            "read_versions": [self.sightings[0].read_version, last.read_version],
            "output_versions": list(self.reader_versions),
            "seconds": round(self.seconds, 3),
            "tentative": None if self.tentative is None else self.tentative.to_json(),
        }
