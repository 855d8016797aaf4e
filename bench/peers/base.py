"""What the bench asks of an engine."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa


class Engine(Protocol):
    """One engine in its own process. Loading and conversion happen before the clock starts."""

    version: str
    supports: frozenset[str]
    """Names of the workloads it can express."""

    def __init__(self, table: pa.Table, threads: int) -> None: ...

    def run(self, workload: str) -> Any:
        """The timed part: from the table in memory to the whole answer in memory."""

    def answer(self, workload: str, result: Any) -> pa.Table:
        """The result as the columns of ``WORKLOADS[workload].columns``; start in int64 us."""
