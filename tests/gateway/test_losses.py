"""What can't be read any more, or isn't what it was, is said: no rows go missing without a word."""

from __future__ import annotations

import contextlib
import threading

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.elements import END_US, START_US, Train
from medusa.errors import ConfigError, DataError, LinkError, StateError
from medusa.query.boxes import Field
from medusa.runtime.client.publisher import described
from medusa.spark.data_source_reader import BatchReader, RowRange, StreamReader
from medusa.spark.data_source_writer import StreamWriter, TableWriter
from medusa.spark.exchange.gateway import Gateway
from medusa.spark.exchange.reader_log import ReaderLog
from medusa.spark.options import options_from
from medusa.spark.streaming.lateness import FOREVER_US, Entered, Judge
from tests.engine.segments import Disk
from tests.gateway.fake_spark import SOURCE
from tests.gateway.here import options, running, timed
from tests.system.nodes import until

WAIT = "20s"


def reader_of(gateway, **more):
    return StreamReader(options(gateway, **more))


def publish(fed, *values):
    fed.publish("q.rows", {"ts": values, "v": values})
    fed.flush(WAIT)


def values_of(reader, start, end):
    batches = [batch for part in reader.parts(start, end) for batch in reader.rows(part)]
    return [value for batch in batches for value in batch["v"].to_pylist()]


def test_a_stream_that_was_defined_anew_is_another_one(tmp_path):
    with running(tmp_path, timed()) as (fed, address):
        with md.spark.gateway(address, tmp_path / "g", report=lambda line: None) as gateway:
            reader = reader_of(gateway)
            start = reader.first_offset()
            publish(fed, 1, 2, 3, 4)
            gateway.wait("q.out", 4)
            end = reader.next_offset(start, None)
            assert values_of(reader, start, end) == [1, 2, 3, 4]
            reader.committed(end)
            unread = reader_of(gateway, reader="unread")
            unread.first_offset()
            fed.undeploy("q")
            fed.deploy(timed())
            publish(fed, 11, 12, 13, 14, 15, 16)

            def why():
                return {each["reader"]: each["why"] for each in gateway.status()["readers"]}

            until(lambda: all("was removed since" in each for each in why().values()), what="why")
            with pytest.raises(LinkError, match="was removed since 'spark' began to read it") as caught:
                reader.next_offset(end, None)
            assert caught.value.code == "E_ANEW"
            assert "medusa gateway forget q.out --reader spark" in caught.value.hint
            assert values_of(reader, start, end) == [1, 2, 3, 4], "what is here can be read again"
        with md.spark.gateway(address, tmp_path / "g", report=lambda line: None) as gateway:
            reader = reader_of(gateway)
            until(lambda: "was removed since" in gateway.status()["readers"][0]["why"], what="why")
            with pytest.raises(LinkError, match="was removed since"):
                reader.next_offset(end, None)
            gateway.forget("q.out")
            with pytest.raises(
                LinkError, match="was forgotten at the gateway since this checkpoint"
            ) as caught:
                reader.next_offset(end, None)
            assert caught.value.code == "E_ANEW"
            start = reader.first_offset()
            gateway.wait("q.out", 6)
            end = reader.next_offset(start, None)
            assert values_of(reader, start, end) == [11, 12, 13, 14, 15, 16]


def judging() -> md.Query:
    """One whose source lists its partitions and has the arrival times of its rows."""
    q = md.Query("p")
    columns = {"ts": "int64", "area": "utf8", "came": "int64"}
    listed = {"partition": "area", "partitions": ["a", "b"], "ahead": "1h", "arrival": "came"}
    q.sink("out", q.source("rows", columns, time="ts", unit="us", slack="1s", **listed))
    return q


def test_rows_that_a_source_would_refuse_fail_their_task(tmp_path):
    with running(tmp_path, judging()) as (fed, address):
        good = {"ts": [1, 2], "area": ["a", "b"], "came": [1, 2]}
        wrong = {
            "partition 'c'": {**good, "area": ["a", "c"]},
            "partition None": {**good, "area": [None, "b"]},
            "null": {**good, "came": pa.array([None, 1], pa.int64())},
        }
        for why, columns in wrong.items():
            with pytest.raises(DataError, match=why):
                fed.publish("p.rows", columns)
        with md.spark.gateway(address, tmp_path / "g") as gateway:
            writer = TableWriter(options(gateway, "p.rows"))
            for why, columns in wrong.items():
                with pytest.raises(DataError, match=why):
                    writer.task([pa.record_batch(columns)], partition=0)
            assert writer.publish([writer.task([pa.record_batch(good)], partition=0)])
            gateway.flush(WAIT)
            assert gateway.status()["sources"]["p.rows"]["published"] == 2
        inputs = [each for fragment in fed.status()["fragments"] for each in fragment["inputs"]]
        assert [each["refused_rows"] for each in inputs] == [0] * len(inputs)


def test_a_source_that_another_node_describes_wrongly_is_refused():
    good = {"columns": [("ts", "int64"), ("k", "utf8")], "time": "ts", "unit": "us", "slack_us": 0}
    for wrong in ({"partition": "x"}, {"partition": "k", "partitions": [b"", 1 << 70]}):
        with pytest.raises(LinkError, match="source 'q.rows': no such partitions"):
            described("q.rows", {**good, "partitions": ["a"], **wrong})


class Taker:
    """What takes rows; it counts those that it refuses."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.refuses: set[int] = set()
        self._refused: list[int] = []

    @property
    def next_row(self) -> int:
        return len(self.written)

    durable_row = next_row

    def publish(self, data):
        values = data["v"].to_pylist()
        self.written += values
        self._refused += [value for value in values if value in self.refuses]

    def check(self):
        refused, self._refused = self._refused, []
        if refused:
            raise DataError(f"rows {refused} were not taken", code="E_ROWS")

    def finish(self):
        pass

    def flush(self, timeout):
        self.check()


class Source:
    """A node with one source, which refuses rows when it has them."""

    def __init__(self) -> None:
        self.node = Taker()

    @contextlib.contextmanager
    def writing(self, stream):
        yield SOURCE, self.node

    def drop(self, stream):
        self.node.written.clear()

    def close(self):
        pass


def test_what_a_node_refuses_stays_here(tmp_path):
    nodes, told = Source(), []
    batch = pa.record_batch({"v": [1, 2, 3]})

    def started():
        return Gateway(nodes, "spark", f"{tmp_path}/g", listen="tcp://127.0.0.1:*", report=told.append)

    def why():
        return gateway.status()["sources"]["q.in"]["why"]

    def task(epoch):
        writer = StreamWriter(options(gateway, "q.in"))
        return writer.publish([writer.task([batch], query="id", epoch=epoch, partition=0)], epoch)

    with started() as gateway:
        assert task(0)
        gateway.flush(WAIT)
        nodes.node.refuses = {2}
        assert task(1)
        until(lambda: "has refused rows" in why(), what="why")
        assert [line for line in told if "rows [2] were not taken" in line], told
        with pytest.raises(LinkError, match=r"3 rows .* rows \[2\] were not taken"):
            gateway.flush("1ms")
        with pytest.raises(DataError, match="has refused rows"):
            task(2)
    with started() as gateway:  # The node has counted them: it says that it has them all.
        assert nodes.node.next_row == 6
        until(lambda: "has refused rows" in why(), what="why")
        assert gateway.status()["sources"]["q.in"]["waiting"] == 3
        with pytest.raises(DataError, match="has refused rows"):
            task(2)
        gateway.forget_source("q.in", waiting=True)
        nodes.node.refuses = set()
        assert task(2)
        gateway.flush(WAIT)
        assert nodes.node.written == [1, 2, 3]


class Stream:
    """A node with one stream: what it gives, in order: trains by (first row, values), and promises."""

    schema = pa.schema([("v", pa.int64())])
    timed = True

    def __init__(self, *gives) -> None:
        self.gives = list(gives)
        self.acked = 0

    @contextlib.contextmanager
    def reading(self, stream, reader, start):
        self.left = [
            each for each in self.gives if not isinstance(each, tuple) or self._end(each) > self.acked
        ]
        self.boundary_us = int(START_US)
        firsts = [each[0] for each in self.left if isinstance(each, tuple)]
        self.next_row = max(firsts[0], self.acked) if firsts else self.acked
        yield self

    def columns(self, stream):
        return (Field("v", "int64"),)

    @staticmethod
    def _end(train):
        return train[0] + len(train[1])

    def next(self, timeout):
        while self.boundary_us < END_US and self.left:
            given = self.left.pop(0)
            if isinstance(given, tuple):
                self.next_row = self._end(given)
                batch = pa.record_batch({"v": pa.array(given[1], pa.int64())})
                return Train(batch=batch, first_seq=given[0])
            self.boundary_us = given
        if self.boundary_us >= END_US:
            return None
        threading.Event().wait(0.005)
        raise LinkError("nothing comes", code="link.timeout")

    def give(self, *gives):
        self.gives += gives
        self.left += gives

    def ack(self, seq):
        self.acked = max(self.acked, seq)

    def close(self):
        pass


def with_stream(tmp_path, stream, **more):
    given = {"listen": "tcp://127.0.0.1:*", "report": lambda line: None} | more
    return Gateway(stream, "spark", f"{tmp_path}/g", **given)


def test_a_gateway_that_does_not_start_lets_go_of_what_it_has(tmp_path):
    listen = f"ipc://{tmp_path}/s"
    with with_stream(tmp_path, Stream(), listen=listen) as gateway:
        reader_of(gateway).first_offset()
    [path] = [each for each in (tmp_path / "g" / "readers").rglob("*") if each.name == "reader"]
    path.write_bytes(b"?" + path.read_bytes()[1:])
    for _ in range(2):
        with pytest.raises(StateError, match="readers"):
            with_stream(tmp_path, Stream(), listen=listen)


def test_a_gap_fails_what_reads_unless_that_is_accepted(tmp_path):
    stream = Stream((0, [0, 1, 2]), (10, [10, 11]))
    with with_stream(tmp_path, stream) as gateway:
        reader = reader_of(gateway)
        start = reader.first_offset()
        gateway.wait("q.out", 12)
        end = reader.next_offset(start, None)
        with pytest.raises(DataError, match=r"7 rows of 'q.out' are lost, from 3 on") as caught:
            values_of(reader, start, end)
        assert caught.value.code == "data.lost"
        with pytest.raises(DataError, match="5 rows"):
            list(BatchReader(reader.options).rows(RowRange(5, 12)))
        takes = reader_of(gateway, failOnDataLoss="false")
        assert values_of(takes, start, end) == [0, 1, 2, 10, 11]
        reader.committed({**end, "row": 3})
    with with_stream(tmp_path, stream) as gateway:
        assert gateway.status()["readers"][0]["missing_rows"] == 7
        assert values_of(reader_of(gateway, failOnDataLoss="false"), start, end) == [0, 1, 2, 10, 11]


def test_rows_before_the_first_that_is_kept_are_missed(tmp_path, caplog):
    told: list[str] = []
    with with_stream(tmp_path, Stream((20, [20, 21])), report=told.append) as gateway:
        reader = reader_of(gateway)
        first = reader.first_offset()
        assert first["row"] == 20
        assert "reader 'spark' begins with row 20: the rows before it are gone" in caplog.text
        assert [line for line in told if "begins with row 20: the 20 before it are gone" in line]
        arguments = ["gateway", "status", "--gateway", gateway.address]
        assert "it began with row 20: those before were gone" in CliRunner().invoke(main, arguments).stdout
        gateway.wait("q.out", 22)
        end = reader.next_offset(first, None)
        before = {**first, "row": 5}
        with pytest.raises(LinkError, match="those below 20 were let go") as caught:
            values_of(reader, before, end)
        assert (caught.value.code, "failOnDataLoss=false" in caught.value.hint) == ("E_GONE", True)
        assert values_of(reader_of(gateway, failOnDataLoss="false"), before, end) == [20, 21]
        with pytest.raises(LinkError, match="is at row 30 .* whose next is 22"):
            reader.next_offset({**first, "row": 30}, None)


def alone(reader, start, end):
    """Rows and, behind them, boundaries alone."""
    found = [
        row for part in reader.parts(start, end) for batch in reader.rows(part) for row in batch.to_pylist()
    ]
    return [
        row["v"] if row["v"] is not None else (row["_seq"], row["_late"], row["_boundary"]) for row in found
    ]


def test_promises_and_the_end_come_as_rows_that_are_boundaries_alone(tmp_path):
    stream = Stream(5, (0, [0, 1, 2]), 50)
    with with_stream(tmp_path, stream) as gateway:
        given = {"meta": "true", "boundary": "true"}
        reader, bare = reader_of(gateway, **given), reader_of(gateway)
        start = reader.first_offset()

        def promised(us):
            until(lambda: reader.last_offset().get("promised", 0) >= us, what="the promise")

        promised(50)
        first = reader.next_offset(start, 2)
        second = reader.next_offset(first, None)
        assert (first["row"], "promised" in first, second["row"], second["promised"]) == (2, False, 3, 50)
        assert alone(reader, start, first) == [0, 1]
        assert alone(reader, first, second) == [2, (2, None, 50)]
        assert alone(reader, first, second) == [2, (2, None, 50)], "replayed it is the same"
        assert reader.next_offset(second, None) == second
        stops = reader_of(gateway, **given)
        stops.stop_at_latest()
        stream.give(60, (3, [3]), int(END_US))
        promised(FOREVER_US)
        assert stops.next_offset(second, None) == second, "what it stops at is what was there"
        third = reader.next_offset(second, None)
        assert alone(reader, second, third) == [3, (3, None, FOREVER_US)]
        assert reader.next_offset(third, None) == third
        end = bare.next_offset(start, None)
        assert "promised" not in end
        assert values_of(bare, start, end) == [0, 1, 2, 3]
        assert [part.promised_us for part in BatchReader(reader.options).parts()] == [None]


def test_a_promise_counts_once_the_rows_before_it_are_shown():
    spool = ReaderLog(Disk(), Stream.schema, bytes_max=1 << 20)
    spool.promise(7)
    assert spool.promised_us == 7
    spool.append(Train(batch=pa.record_batch({"v": [1]}), first_seq=0), 7)
    spool.promise(9)
    assert spool.promised_us == 7
    spool.sync()
    assert spool.promised_us == 9


def test_a_starting_position_counts_for_a_reader_that_is_known_too(tmp_path):
    with with_stream(tmp_path, Stream((5, [5, 6, 7, 8]))) as gateway:
        assert reader_of(gateway, startingPosition="now").first_offset()["row"] == 5, "as the node says"
        gateway.wait("q.out", 9)
        reader = reader_of(gateway)
        reader.next_offset({"stream": "q.out", "row": 7}, None)
        for said, row in (("oldest", 5), ("now", 9), ("6", 6), ("9", 9)):
            assert reader_of(gateway, startingPosition=said).first_offset()["row"] == row
        with pytest.raises(LinkError, match="startingPosition 10 is beyond the end of 'q.out'.* is 9"):
            reader_of(gateway, startingPosition="10").first_offset()
        with pytest.raises(LinkError, match="startingPosition 4: rows of 'q.out' below 5 are not kept"):
            reader_of(gateway, startingPosition="4").first_offset()
        given = {"startingPosition": "4", "failOnDataLoss": "false"}
        assert reader_of(gateway, **given).first_offset()["row"] == 5
        batch = BatchReader(reader_of(gateway, startingPosition="7").options)
        assert [
            row for part in batch.parts() for each in batch.rows(part) for row in each["v"].to_pylist()
        ] == [7, 8]


class Breaking(Stream):
    """Its node goes away when it is told to."""

    breaks = False
    begun = 0

    def reading(self, stream, reader, start):
        self.begun += 1
        return super().reading(stream, reader, start)

    def next(self, timeout):
        if self.breaks:
            self.breaks = False
            raise LinkError("the node went away", code="link.down")
        return super().next(timeout)


def test_now_is_behind_what_was_read_though_node_and_gateway_were_started_anew(tmp_path):
    stream = Breaking((5, [5, 6, 7, 8]))
    with with_stream(tmp_path, stream) as gateway:
        reader = reader_of(gateway, startingPosition="now")
        start = reader.first_offset()
        gateway.wait("q.out", 9)
        reader.next_offset(reader.next_offset(start, 2), None)
        assert (start["row"], reader.first_offset()["row"]) == (5, 9)
        stream.breaks = True
        until(lambda: stream.begun > 1, what="read anew")
        assert reader.first_offset()["row"] == 9
    with with_stream(tmp_path, stream) as gateway:
        assert reader_of(gateway, startingPosition="now").first_offset()["row"] == 9


def test_a_batch_that_would_be_a_part_of_the_stream_fails(tmp_path, caplog):
    stream = Stream(*((n * 100, list(range(n * 100, n * 100 + 100))) for n in range(20)))
    with with_stream(tmp_path, stream, spool_bytes=4000) as gateway:
        reader = reader_of(gateway)
        reader.first_offset()
        until(lambda: gateway.status()["readers"][0]["full"], what="it is full")
        with pytest.raises(
            LinkError, match="the gateway is full of rows of 'q.out' .* are not here"
        ) as caught:
            BatchReader(reader.options).parts()
        assert caught.value.code == "E_FULL"
        assert BatchReader(reader_of(gateway, failOnDataLoss="false").options).parts()
        assert "are not here: it is full of rows that nobody has read" in caplog.text


def test_options_for_the_other_side_and_paths_are_refused(tmp_path):
    given = {"endpoint": "tcp://127.0.0.1:1", "stream": "q.out"}
    for name, value in (("writer", "w"), ("epoch", "1")):
        with pytest.raises(ConfigError, match=f"option '{name}' means nothing when reading"):
            StreamReader(options_from({**given, name: value}))
    for name, value in (("reader", "r"), ("failOnDataLoss", "false"), ("meta", "true")):
        with pytest.raises(ConfigError, match=f"option '{name}' means nothing when writing"):
            StreamWriter(options_from({**given, name: value}))
    with pytest.raises(ConfigError, match="has no path, came 'q.out'"):
        options_from({**given, "path": "q.out"})


def test_a_boundary_alone_is_no_row_of_a_query_without_time():
    fields, has = (("v", "int64"),), ("_seq", "_late", "_boundary")
    spec = Entered(source="rows", fields=fields, time=None, unit=None, slack_us=None, has=has)
    columns = [[7, None], [None, None], [0, 0], [False, None], [1, 50]]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, spec.carried, strict=True)]
    came = Judge(spec).judge([pa.RecordBatch.from_arrays(arrays, schema=spec.carried)])
    assert [train.batch.to_pylist() for train in came.trains] == [[{"v": 7}]]
