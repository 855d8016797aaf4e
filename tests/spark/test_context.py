"""What Spark tells a task of the query that it belongs to; no Java is started."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pyspark_medusa
from medusa.spark import data_source_writer
from medusa.spark.options import options_from
from tests.gateway.fake_spark import World

TO = options_from({"endpoint": "tcp://127.0.0.1:1", "stream": "q.in", "writer": "copy", "epoch": "4"})


class Task:
    """``TaskContext`` of a task of ``foreachBatch``, or of none."""

    def __init__(self, **told: str) -> None:
        self._told = {"sql.streaming.queryId": told.get("query"), "spark.jobGroup.id": told.get("group")}

    def partitionId(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str | None:
        return self._told[name]


def test_a_table_is_written_for_the_query_whose_function_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source_writer, "caller", World(0))
    run = "11111111-2222-3333-4444-555555555555"

    def staged(task: Task | None) -> Any:
        monkeypatch.setattr(pyspark_medusa, "_context", lambda: task)
        rows = iter([pa.record_batch({"v": pa.array([1], pa.int64())})])
        return pyspark_medusa._Writer(TO).write(rows).staged

    told = [staged(each) for each in (Task(query="id", group=run), Task(group=run), Task(), None)]
    assert [(each.origin, each.run) for each in told] == [("id", run), ("", ""), ("", ""), ("", "")]
