"""What a run found in which all replicas of an input were cut off: windows as they came, and the checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from medusa.apps.workloads.demos.federation_outcome import TableComparison
from medusa.apps.workloads.partition.partition_check import PartitionCheck, PartitionEvent

__all__ = ["TentativeOutcome", "WindowArrival"]


@dataclass(frozen=True, slots=True)
class WindowArrival:
    """Windows that came to the reader at once.

    Attributes:
        at_s: since rows began to flow.
        tentative: else they are stable.
        numbers: of the windows, from 0 on; one ends each ``TentativeOutcome.window_s``.
    """

    at_s: float
    tentative: bool
    numbers: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TentativeOutcome:
    """A finished run.

    Attributes:
        delay_s: X, as the output was deployed.
        window_s: the length of a window, by rows and by the clock.
        states: (since when, state) of the stream, as the reader was told.
        cut_s, healed_s: when all replicas were cut off, and when they were back, since rows began to flow.
        table: what ``sub.table`` has in the end, held against the stable rows.
        tentative_left: rows of it that are tentative.
        missed_rows: tentative rows for which there was no room.
    """

    delay_s: float
    window_s: float
    events: Sequence[PartitionEvent]
    arrivals: Sequence[WindowArrival]
    states: Sequence[tuple[float, str]]
    cut_s: float
    healed_s: float
    comparison: TableComparison
    table: TableComparison
    tentative_left: int
    missed_rows: int
    seconds: float

    @property
    def corrected_s(self) -> float | None:
        """When the stream was said to be stable again, since rows began to flow; None: it never was."""
        return next((at for at, state in self.states if at > self.healed_s and state == "stable"), None)

    @property
    def added_s(self) -> tuple[float, float]:
        """From the end of a window until it first came, on either lane, at most: of those that came before
        the cut, and of all that ended from then on."""
        came = [(at, self._end_s(number)) for number, at in self._came().items()]
        calm = max((at - end for at, end in came if at < self.cut_s), default=0.0)
        return calm, max((at - end for at, end in came if end > self.cut_s), default=0.0)

    def checks(self) -> list[PartitionCheck]:
        """All that has to be so."""
        return [
            PartitionCheck("while a and b are cut off new windows come, tentative", self._new()),
            PartitionCheck(f"each at most {self.delay_s:g} s later than it would have", self._late()),
            PartitionCheck("none is tentative before, or once all is corrected", self._elsewhere()),
            PartitionCheck("each window came once on the stable lane, in order", self._repeated()),
            PartitionCheck("they are what one undisturbed process gives", self.comparison.example),
            PartitionCheck("the reader's table has these alone in the end", self._table()),
        ]

    @property
    def fine(self) -> bool:
        """Every check is passed."""
        return not any(each.fault for each in self.checks())

    def numbers(self, *, tentative: bool) -> Iterator[tuple[float, int]]:
        """When which window came on one of the lanes."""
        return ((each.at_s, n) for each in self.arrivals if each.tentative == tentative for n in each.numbers)

    def _end_s(self, number: int) -> float:
        return (number + 1) * self.window_s

    def _came(self) -> dict[int, float]:
        """Window -> when it came first, on either lane."""
        found: dict[int, float] = {}
        for arrival in self.arrivals:
            for number in arrival.numbers:
                found.setdefault(number, arrival.at_s)
        return found

    def _new(self) -> str:
        seen = {number for at, number in self.numbers(tentative=True) if at < self.healed_s}
        # The last of them are still on their way when the link heals.
        due_s = self.healed_s - self.delay_s
        missing = [
            number
            for number in range(int(self.cut_s / self.window_s) + 1, int(due_s / self.window_s))
            if number not in seen
        ]
        if missing:
            return f"window {missing[0]:,}, which ended at {self._end_s(missing[0]):.2f} s, didn't"
        return "" if seen else "none came"

    def _late(self) -> str:
        calm, cut = self.added_s
        if cut <= calm + self.delay_s:
            return ""
        return f"one came {cut:.2f} s after its end; before the cut {calm:.2f} s"

    def _elsewhere(self) -> str:
        for at, number in self.numbers(tentative=True):
            if at < self.cut_s or (self.corrected_s is not None and at > self.corrected_s):
                return f"window {number:,} was, at {at:.2f} s"
        return "" if self.corrected_s is not None else "the stream was never said to be stable again"

    def _repeated(self) -> str:
        stable = [number for _, number in self.numbers(tentative=False)]
        wrong = next(((one, other) for one, other in pairwise(stable) if other <= one), None)
        return "" if wrong is None else f"window {wrong[1]:,} came after window {wrong[0]:,}"

    def _table(self) -> str:
        left = self.tentative_left
        return f"{left:,} of its rows are tentative" if left else self.table.example

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        calm, cut = self.added_s
        corrected = self.corrected_s
        return {
            "fine": self.fine,
            "checks": [asdict(each) for each in self.checks()],
            "events": [{"at_s": round(each.at_s, 3), "what": each.what} for each in self.events],
            "states": [[round(at, 3), state] for at, state in self.states],
            "delay_s": self.delay_s,
            "stable_windows": sum(1 for _ in self.numbers(tentative=False)),
            "tentative_windows": sum(1 for _ in self.numbers(tentative=True)),
            "missed_rows": self.missed_rows,
            "cut_s": round(self.cut_s, 3),
            "healed_s": round(self.healed_s, 3),
            "corrected_s": None if corrected is None else round(corrected, 3),
            "latest_before_s": round(calm, 3),
            "latest_after_s": round(cut, 3),
            "seconds": round(self.seconds, 3),
        }
