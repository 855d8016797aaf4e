"""Spark's data source ``medusa``: ``spark.read.format("medusa")`` finds it here, without registration.

Spark imports every module whose name begins with ``pyspark_``, in each driver: so what does the work is
imported when it is needed. Here are only Spark's own classes around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from medusa.spark.options import Options

__all__ = ["DefaultSource"]

QUERY, GROUP = "sql.streaming.queryId", "spark.jobGroup.id"
"""What Spark tells the tasks of a query, also of what a function of ``foreachBatch`` writes."""


class DefaultSource(DataSource):
    """``format("medusa")``. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "medusa"

    def _options(self) -> Options:
        from medusa.spark.options import options_from

        return options_from(self.options)

    def schema(self) -> StructType:
        from medusa.spark.column_types import spark_type, struct
        from medusa.spark.data_source_reader import columns_of

        columns = columns_of(self._options())
        return struct((field.name, spark_type(field.type)) for field in columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._readable(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._readable(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(self._writable(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return _StreamWriter(self._writable(schema, overwrite))

    def _readable(self, schema: StructType) -> Options:
        """Spark takes a schema that the user gave for the truth: it has to be."""
        from medusa.errors import DataError

        own = self.schema()
        if schema.names != own.names or [f.dataType for f in schema] != [f.dataType for f in own]:
            raise DataError(
                f"the schema given is {schema.simpleString()}, and the stream has {own.simpleString()}",
                hint="leave .schema(...) out, and select columns afterwards",
                code="data.column",
            )
        return self._options()

    def _writable(self, schema: StructType, overwrite: bool) -> Options:
        from pyspark.sql.pandas.types import to_arrow_schema

        from medusa.errors import ConfigError
        from medusa.spark.data_source_writer import check_columns, columns_to

        if overwrite:
            raise ConfigError(
                "what a stream has put out stays: rows can only be added",
                hint='mode("append"), outputMode("append")',
                code="spark.mode",
            )
        options = self._options()
        check_columns(to_arrow_schema(schema, timezone="UTC"), columns_to(options), options.stream)
        return options


class _Reader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        from medusa.spark.data_source_reader import BatchReader

        self._does = BatchReader(options)

    def partitions(self) -> Sequence[InputPartition]:
        from medusa.spark.data_source_reader import RowRange

        return [InputPartition(each) for each in self._does.parts() or [RowRange(0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._does.rows(partition.value)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        from medusa.spark.data_source_reader import StreamReader

        self._does = StreamReader(options)

    def initialOffset(self) -> dict[str, Any]:
        return self._does.first_offset()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._does.next_offset(start, rows)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._does.options.batch_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._does.last_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._does.stop_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in self._does.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._does.rows(partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        self._does.committed(end)


class _Message(WriterCommitMessage):
    def __init__(self, staged: Any) -> None:
        self.staged = staged


def _staged(messages: list[WriterCommitMessage | None]) -> list[Any]:
    return [each.staged if isinstance(each, _Message) else None for each in messages]


def _context() -> Any:
    """Of the task that runs here."""
    from pyspark import TaskContext

    return TaskContext.get()


class _Writer(DataSourceArrowWriter):
    def __init__(self, options: Options) -> None:
        from medusa.spark.data_source_writer import TableWriter

        self._does = TableWriter(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _context()
        if task is None:
            return _Message(self._does.task(iterator, partition=0))
        query, group = (task.getLocalProperty(name) or "" for name in (QUERY, GROUP))
        return _Message(self._does.task(iterator, partition=task.partitionId(), query=query, group=group))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._does.publish(_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._does.give_up(_staged(messages))


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options) -> None:
        from medusa.spark.data_source_writer import StreamWriter

        self._does = StreamWriter(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _context()
        query = epoch = None
        if task is not None:
            query = task.getLocalProperty(QUERY)
            epoch = task.getLocalProperty("streaming.sql.batchId")
        return _Message(
            self._does.task(
                iterator,
                query=query or "",
                epoch=None if epoch is None else int(epoch),
                partition=task.partitionId() if task else 0,
            )
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._does.publish(_staged(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._does.give_up(_staged(messages), batchId)
