"""Medusa with Spark (``md.spark``): the same query over DataFrames, streams in and out of Spark by a gateway,
and a session that is set up for it.

Names load on first use; pyspark is loaded by what needs it (``pip install 'medusa-streams[spark]'``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medusa.spark.batch import Answers, batch
from medusa.spark.session import session
from medusa.spark.streaming import Streams, stream

if TYPE_CHECKING:
    from medusa.spark.exchange.gateway import Gateway, gateway

__all__ = ["Answers", "Gateway", "Streams", "batch", "gateway", "session", "stream"]


def __getattr__(name: str) -> Any:
    if name in ("Gateway", "gateway"):  # They speak with nodes, which the workers of a batch don't.
        from medusa.spark.exchange import gateway as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
