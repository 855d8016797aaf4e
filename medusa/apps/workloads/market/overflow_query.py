"""What is too much for its owner in the demonstration of Spark under contract: flows that are alike.

    flows ── part-0 ── pairs-0, same-0 ── last-0 ── out-0    and so on

Two sources that send as many bytes to the same port within some seconds may be told to by the same hand.
Each flow is compared with all that are near it in time, so there is much work for a row, and little to
remember and to say: that suits Spark, which is given the state of a task in each trigger, and gives it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusa.apps.workloads.market.market_query import TaskQuery
from medusa.query.stream.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PAIRS"]

NEAR = "20 s"


def _pairs(part: Stream, number: int) -> Stream:
    flows = part.with_columns(known="dport < 1024", name=f"pairs-{number}")
    alike = "left.bytes = right.bytes AND left.dport = right.dport AND left.src < right.src"
    return flows.join(flows, on="known", within=NEAR, where=alike, name=f"same-{number}")


def _met_us(batch: pa.RecordBatch) -> int:
    """A pair leaves as soon as no earlier row of either can come."""
    return int(max(batch.column(name)[-1].as_py() for name in ("ts_us", "ts_us_right")))


PAIRS = TaskQuery(kind="pairs", parts=2, task=_pairs, due_us=_met_us)
