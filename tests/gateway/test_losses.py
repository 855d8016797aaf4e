"""What can't be read any more, or isn't what it was, is said: no rows go missing without a word."""

from __future__ import annotations

import contextlib

import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.spark.exchange import caller as calling
from medusa.spark.options import options_from
from medusa.spark.reading import StreamReader
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
