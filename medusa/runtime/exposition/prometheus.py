"""What ``stats()`` says of boxes, as metrics of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medusa.wire.status_and_metrics import BoxStatus, Metric, metrics_of

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

__all__ = ["families", "family", "number"]

_ORDER = (
    "rows_in rows_out late ahead tentative dead dropped shed busy_us rows_in_per_s rows_out_per_s load"
    " selectivity cost_us queue_rows queue_bytes state_bytes lag_us boundary finished"
)
"""In which columns come; behind them those that aren't named here."""


def family(prefix: str, of: Metric, labels: Sequence[str]) -> CounterMetricFamily | GaugeMetricFamily:
    """A metric without samples yet."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if of.counts else GaugeMetricFamily
    return kind(f"medusa_{prefix}_{of.name}", of.text, labels=labels)


def number(of: Metric, value: Any) -> float | None:
    """What is served of a value; None: nothing. Prometheus counts in seconds, and has no texts."""
    if value is None:
        return of.null
    if not isinstance(value, int | float):
        return float(bool(value))
    return float(value) * (1e-6 if of.name.endswith("_seconds") else 1)


def families(rows: Sequence[Mapping[str, Any]]) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
    """One metric for each column that the rows have.

    Args:
        rows: of each box its query, box, kind and statistics, times in microseconds; on nodes its
            fragment; of an attached query its label. What is null has no sample.
    """
    more = [label for label in ("fragment", "attached") if any(label in row for row in rows)]
    labels = ["query", "box", "kind", *more]
    known = metrics_of(BoxStatus)
    for column in dict.fromkeys([*_ORDER.split(), *known]):
        of = known[column]
        samples = [(row, value) for row in rows if (value := number(of, row.get(column))) is not None]
        if samples or column != "shed":
            made = family("box", of, labels)
            for row, value in samples:
                made.add_metric([str(row.get(label, "")) for label in labels], value)
            yield made
