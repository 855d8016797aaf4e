"""What can't be read any more, or isn't what it was, is said: no rows go missing without a word."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import DataError, LinkError
from medusa.runtime.publishing import described
from medusa.spark.exchange import caller as calling
from medusa.spark.exchange.gateway import Gateway
from medusa.spark.options import options_from
from medusa.spark.reading import StreamReader
from medusa.spark.writing import StreamWriter, TableWriter
from tests.gateway.fake_spark import SOURCE
from tests.system.nodes import until

WAIT = "20s"


@pytest.fixture(autouse=True)
def connections(monkeypatch):
    made: dict = {}
    monkeypatch.setattr(calling, "_callers", made)
    yield
    for each in made.values():
        each.close()


@contextlib.contextmanager
def running(tmp_path, **limits):
    """A node with the query."""
    address = f"ipc://{tmp_path}/a"
    settings: dict = {"name": "a", "listen": address, "data": f"{tmp_path}/a.data"}
    settings["limits"] = {"checkpoint_every": "50ms", **limits}
    with md.node(settings), md.connect(address, timeout=WAIT) as fed:
        fed.deploy(query())
        yield fed, address


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.filter("v >= 0"))
    return q


def reader_of(gateway, stream="q.out", **more):
    given = {"endpoint": gateway.address, "stream": stream, "timeout": WAIT, **more}
    return StreamReader(options_from(given))


def publish(fed, *values):
    fed.publish("q.rows", {"ts": values, "v": values})
    fed.flush(WAIT)


def values_of(reader, start, end):
    batches = [batch for part in reader.parts(start, end) for batch in reader.rows(part)]
    return [value for batch in batches for value in batch["v"].to_pylist()]


def test_a_stream_that_was_defined_anew_is_another_one(tmp_path):
    with running(tmp_path) as (fed, address):
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
            fed.deploy(query())
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


@contextlib.contextmanager
def judging(tmp_path):
    """A node whose source lists its partitions and has the arrival times of its rows."""
    q = md.Query("p")
    columns = {"ts": "int64", "area": "utf8", "came": "int64"}
    listed = {"partition": "area", "partitions": ["a", "b"], "ahead": "1h", "arrival": "came"}
    q.sink("out", q.source("rows", columns, time="ts", unit="us", slack="1s", **listed))
    with running(tmp_path) as (fed, address):
        fed.deploy(q)
        yield fed, address


def test_rows_that_a_source_would_refuse_fail_their_task(tmp_path):
    with judging(tmp_path) as (fed, address):
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
            given = {"endpoint": gateway.address, "stream": "p.rows", "timeout": WAIT}
            writer = TableWriter(options_from(given))
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
        writer = StreamWriter(options_from({"endpoint": gateway.address, "stream": "q.in", "timeout": WAIT}))
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
