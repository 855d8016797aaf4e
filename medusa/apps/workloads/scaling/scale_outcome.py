"""What became of a box whose load rose and fell: figures for each second, an account of every row, checks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.federation_outcome import compare
from medusa.apps.workloads.demos.ha_outcome import HaAccount, HaWindow, account
from medusa.apps.workloads.scaling.scale_acts import PartsSample, ScaleAct
from medusa.apps.workloads.scaling.scale_load import SEGMENTS, ScaleLoad
from medusa.apps.workloads.scaling.scale_query import RowCost

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AIM_S", "ScaleCheck", "ScaleOutcome", "ScaleSecond"]

AIM_S = 0.25
"""What results may be late by in the seconds of scaling: SEEP's peaks were seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSecond:
    """A second of the run.

    Attributes:
        offered: cars that were due in it; ``counted``: cars in the results that came.
        results: that came in it.
        p50_s, p99_s: how late they were: from the end of their window; None: none came.
        nodes: that had parts of the box at its end; 0: not known.
        scales: an order was under way.
    """

    second: int
    offered: int
    counted: int
    results: int
    p50_s: float | None
    p99_s: float | None
    nodes: int
    scales: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleCheck:
    """Something that should be so.

    Attributes:
        exact: the demonstration fails if it isn't held. Others a busy machine may turn.
        shown: the figures that it is about.
    """

    what: str
    held: bool
    exact: bool
    shown: str


@dataclass(frozen=True, kw_only=True)
class ScaleOutcome:
    """A finished run.

    Attributes:
        rows: the result, as it came; ``at_s``: when each row did, since the first car was due.
        expected: what had to come.
        acts: what the node ordered by itself; ``said``: how many of them it says that were carried out.
        parts: where the parts were, some times a second.
        published: cars.
        seconds: how long it took.
    """

    load: ScaleLoad
    cost: RowCost
    rows: pa.Table
    at_s: Sequence[float]
    expected: pa.Table
    acts: Sequence[ScaleAct]
    said: int
    parts: Sequence[PartsSample]
    published: int
    seconds: float

    @property
    def fine(self) -> bool:
        """All that must be exact is held."""
        return all(each.held for each in self.checks() if each.exact)

    @cached_property
    def late_s(self) -> Sequence[float]:
        """How late each row of the result was: from the end of its window."""
        ends = self.rows["window_end"].cast("int64").to_pylist()
        return [at_s - end_us / 1e6 for at_s, end_us in zip(self.at_s, ends, strict=True)]

    @cached_property
    def account(self) -> HaAccount:
        """Every car by what the results say of it."""
        columns = (self.rows[name].to_pylist() for name in ("cars", "first", "last", "total"))
        windows = [
            HaWindow(at_s=0.0, rows=cars, first=first, last=last, total=total, sent_s=0.0)
            for cars, first, last, total in zip(*columns, strict=True)
        ]
        return account(windows, self.published, SEGMENTS)

    @property
    def scaling_seconds(self) -> set[int]:
        """In which an order was under way."""
        return {second for act in self.acts for second in act.seconds}

    @property
    def nodes_most(self) -> int:
        """That had parts at once."""
        return max((len(each.parts) for each in self.parts), default=0)

    def late_in_s(self, share: float, seconds: Collection[int], *, inside: bool = True) -> float | None:
        """A quantile of how late results were that came in these seconds, or in others; None: none did."""
        return _quantile(
            [
                late_s
                for at_s, late_s in zip(self.at_s, self.late_s, strict=True)
                if (int(at_s) in seconds) is inside
            ],
            share,
        )

    def by_second(self) -> list[ScaleSecond]:
        """The whole run, second by second."""
        late: dict[int, list[float]] = {}
        counted: dict[int, int] = {}
        for at_s, late_s, cars in zip(self.at_s, self.late_s, self.rows["cars"].to_pylist(), strict=True):
            late.setdefault(int(at_s), []).append(late_s)
            counted[int(at_s)] = counted.get(int(at_s), 0) + cars
        nodes = {int(each.at_s): len(each.parts) for each in self.parts}
        scales = self.scaling_seconds
        found, known = [], 0
        for second in range(int(self.seconds) + 1):
            known = nodes.get(second, known)
            due = min(self.load.rows(second + 1.0), self.published) - self.load.rows(second)
            found.append(
                ScaleSecond(
                    second=second,
                    offered=max(due, 0),
                    counted=counted.get(second, 0),
                    results=len(late.get(second, ())),
                    p50_s=_quantile(late.get(second, ()), 0.5),
                    p99_s=_quantile(late.get(second, ()), 0.99),
                    nodes=known,
                    scales=second in scales,
                )
            )
        return found

    def checks(self) -> list[ScaleCheck]:
        """What has to be so, and what should."""
        return [*self._of_rows(), *self._of_acts(), *self._of_times()]

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "fine": self.fine,
            "checks": [asdict(each) for each in self.checks()],
            "acts": [asdict(each) for each in self.acts],
            "by_second": [asdict(each) for each in self.by_second()],
            "nodes_most": self.nodes_most,
            "published": self.published,
            "results": self.rows.num_rows,
            "cost": asdict(self.cost),
            "seconds": round(self.seconds, 3),
        }

    # --- checks -----------------------------------------------------------------------------------

    def _of_rows(self) -> list[ScaleCheck]:
        same, found = compare(self.rows, self.expected), self.account
        rows = f"{same.rows:,} rows came, {same.expected:,} were expected"
        amount = f"{found.missing:,} missing, {found.doubled:,} doubled, {found.wrong:,} wrong"
        amount = f"{amount} of {found.published:,}"
        return [
            ScaleCheck(
                what="the result is that of the query in one program, row by row, in order",
                held=same.equal,
                exact=True,
                shown=": ".join(filter(None, (rows, same.example))),
            ),
            ScaleCheck(
                what="no car is lost, and none is counted twice",
                held=not (found.missing or found.doubled or found.wrong),
                exact=True,
                shown=": ".join(filter(None, (amount, found.example))),
            ),
        ]

    def _of_acts(self) -> list[ScaleCheck]:
        rises_s, falls_s = self.load.rises_s, self.load.falls_s
        splits = [each for each in self.acts if each.kind == "split" and each.done]
        merges = [each for each in self.acts if each.kind == "merge" and each.done]
        last = self.parts[-1] if self.parts else PartsSample(0.0, {})
        loads = f"it rises from {rises_s[0]:.1f} to {rises_s[1]:.1f} s, and falls from {falls_s[0]:.1f} s"
        fell = [each for each in merges if each.began_s >= falls_s[0]]
        return [
            ScaleCheck(
                what="the box is split before the load falls",
                held=any(each.began_s < falls_s[0] for each in splits),
                exact=True,
                shown=f"{_acts(splits)}; {loads}",
            ),
            ScaleCheck(
                what="parts of it run at spare nodes",
                held=self.nodes_most > 1,
                exact=True,
                shown=f"{self.nodes_most} nodes had some at once",
            ),
            ScaleCheck(
                what="parts are merged after the load has begun to fall",
                held=bool(fell),
                exact=True,
                shown=_acts(fell),
            ),
            ScaleCheck(
                what="the first split begins while the load rises",
                held=bool(splits) and rises_s[0] <= splits[0].began_s <= rises_s[1],
                exact=False,
                shown=f"{_acts(splits[:1])}; {loads}",
            ),
            ScaleCheck(
                what="nothing is merged before the load falls",
                held=len(fell) == len(merges),
                exact=False,
                shown=_acts([each for each in merges if each not in fell]),
            ),
            ScaleCheck(
                what="the box is one again at the end",
                held=sum(last.parts.values()) == 1,
                exact=False,
                shown=f"it is at {last.text}",
            ),
        ]

    def _of_times(self) -> list[ScaleCheck]:
        seconds = self.scaling_seconds
        p99_s, p50_s = (self.late_in_s(share, seconds) for share in (0.99, 0.5))
        others_s = self.late_in_s(0.99, seconds, inside=False)
        shown = (
            f"p50 {_ms(p50_s)}, p99 {_ms(p99_s)} in {len(seconds)} seconds; p99 {_ms(others_s)} in all others"
        )
        return [
            ScaleCheck(
                what=f"in the seconds of scaling results are at most {AIM_S * 1e3:.0f} ms late (p99)",
                held=p99_s is not None and p99_s <= AIM_S,
                exact=False,
                shown=shown,
            )
        ]


def _acts(of: Sequence[ScaleAct]) -> str:
    return ", ".join(f"{each.what} at {each.began_s:.1f} s" for each in of) or "never"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e3:,.0f} ms"


def _quantile(of: Sequence[float], share: float) -> float | None:
    import numpy as np

    return float(np.quantile(of, share)) if len(of) else None
