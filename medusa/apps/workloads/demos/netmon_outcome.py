"""What a run of the demonstration found and measured: plain values for screen, report and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads.demos.screens import NodeSample
from medusa.apps.workloads.netmon_check import Comparison, Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Latency", "NetmonOutcome", "percentile"]


@dataclass(frozen=True, slots=True)
class Latency:
    """From publishing the row (or end) that lets a window close, to having all its results of a sink."""

    sink: str
    window_us: int
    latency_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetmonOutcome:
    """A finished run."""

    results: Mapping[str, pa.Table]
    rows: Mapping[str, list[Row]]
    comparisons: list[Comparison]
    checked_by: str
    flows: int
    late: int
    span_us: int
    seconds: float
    speed: float
    seed: int
    latencies: list[Latency]
    samples: list[NodeSample] = field(default_factory=list)
    bots: frozenset[str] = frozenset()
    """Sources whose flows the data set's authors label as a bot's; for the reader, not the query."""

    @property
    def equal(self) -> bool:
        return all(comparison.equal for comparison in self.comparisons)

    @property
    def flows_per_s(self) -> float:
        return self.flows / self.seconds

    def figures(self) -> dict[str, int]:
        """The figures by which a result is known."""
        both, clusters = self.rows["both"], self.rows["clusters"]
        return {
            "windows": len({row[0] for row in self.rows["groups"]}),
            **{name: len(rows) for name, rows in self.rows.items()},
            "both_sources": len({row[1] for row in both}),
            "cluster_prefixes": len({row[1] for row in clusters}),
        }

    def latency_us(self, share: float) -> int:
        return percentile([latency.latency_us for latency in self.latencies], share)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "equal": self.equal,
            "checked_by": self.checked_by,
            "figures": self.figures(),
            "results": {
                each.name: {
                    "rows": each.rows,
                    "expected": each.expected,
                    "missing": each.missing,
                    "extra": each.extra,
                    "equal": each.equal,
                }
                for each in self.comparisons
            },
            "flows": self.flows,
            "late": self.late,
            "seconds": round(self.seconds, 3),
            "flows_per_s": round(self.flows_per_s),
            "latency_p50_us": self.latency_us(0.50),
            "latency_p99_us": self.latency_us(0.99),
            "latency_samples": len(self.latencies),
            "seed": self.seed,
            "speed": self.speed,
        }


def percentile(values: list[int], share: float) -> int:
    """The smallest value that at least this share of them doesn't exceed; 0 of none."""
    if not values:
        return 0
    return sorted(values)[max(0, -(-len(values) * round(share * 100) // 100) - 1)]
