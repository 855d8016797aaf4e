"""Medusa with Spark (``md.spark``): the same query over DataFrames, and a session that is set up for it.

Names load on first use; pyspark is loaded by what needs it (``pip install 'medusa-streams[spark]'``).
"""

from __future__ import annotations

from medusa.spark.batch import Answers, batch
from medusa.spark.session import session

__all__ = ["Answers", "batch", "session"]
