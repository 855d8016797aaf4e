"""What ``stats()`` says of boxes, as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["COUNTERS", "GAUGES", "families"]

# Column of the statistics: (metric, what it is, factor). Prometheus counts in seconds.
COUNTERS = {
    "rows_in": ("rows_in", "Rows that came into the box; of a source all that were accepted.", 1),
    "rows_out": ("rows_out", "Rows that left the box by its main output.", 1),
    "late": ("late_rows", "Rows judged late (at a source), or left out because they were.", 1),
    "ahead": ("ahead_rows", "Rows too far ahead of their arrival.", 1),
    "tentative": ("tentative_rows", "Early rows that came, which rows_in doesn't count.", 1),
    "dead": ("dead_rows", "Rows on which an expression or function failed.", 1),
    "dropped": ("dropped_rows", "Rows that the box was told to leave out.", 1),
    "shed": ("shed_rows", "Rows shed because of overload.", 1),
    "busy_us": ("busy_seconds", "Time spent in the box; of a chain it stands at the first box.", 1e-6),
}
GAUGES = {
    "rows_in_per_s": ("rows_in_per_second", "Rows in per second, mean of the last seconds.", 1),
    "rows_out_per_s": ("rows_out_per_second", "Rows out per second, mean of the last seconds.", 1),
    "load": ("load_ratio", "Share of time that the box was busy, mean of the last seconds.", 1),
    "selectivity": ("selectivity_ratio", "Rows out per row in, since the stream began.", 1),
    "cost_us": ("cost_seconds", "Time busy per row in, since the process took the query up.", 1e-6),
    "queue_rows": ("queue_rows", "Rows that wait, for a boundary or to be taken.", 1),
    "queue_bytes": ("queue_bytes", "Bytes of the rows that wait.", 1),
    "state_bytes": ("state_bytes", "Bytes of rows, groups and indexes held.", 1),
    "lag_us": ("lag_seconds", "How far the boundary is behind the newest time of the sources.", 1e-6),
    "boundary": ("boundary_timestamp_seconds", "The boundary: no later row has a time below it.", 1e-6),
    "finished": ("finished", "1 when the end has passed the box.", 1),
}


def families(rows: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """One metric for each column that the rows have.

    Args:
        rows: of each box its query, box, kind and statistics, times in microseconds; on nodes its
            fragment; of an attached query its label. What is null has no sample.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    more = [label for label in ("fragment", "attached") if any(label in row for row in rows)]
    labels = ["query", "box", "kind", *more]
    for columns, family in ((COUNTERS, CounterMetricFamily), (GAUGES, GaugeMetricFamily)):
        for column, (name, text, factor) in columns.items():
            samples = [(row, row[column]) for row in rows if row.get(column) is not None]
            if samples or column != "shed":
                metric = family(f"medusa_box_{name}", text, labels=labels)
                for row, value in samples:
                    metric.add_metric([str(row.get(label, "")) for label in labels], float(value) * factor)
                yield metric
