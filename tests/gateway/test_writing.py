"""Tables that Spark writes, and tasks that fail; Spark and the way to the gateway are played."""

from __future__ import annotations

import dataclasses
import logging
import pickle

import pyarrow as pa
import pytest

from medusa.errors import LinkError
from medusa.spark import data_source_writer
from medusa.spark.data_source_writer import Staged, StreamWriter, TableWriter
from medusa.spark.exchange import requests
from medusa.spark.options import Options, options_from
from tests.gateway.fake_spark import World

TO = options_from({"endpoint": "tcp://127.0.0.1:1", "stream": "q.in", "writer": "copy"})
RUNS = ("11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(0)
    monkeypatch.setattr(data_source_writer, "caller", made)
    return made


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


def epoch(number: int) -> Options:
    return dataclasses.replace(TO, epoch=number)


def write(number: int, *values: int, query: str = "", group: str = "") -> bool:
    writer = TableWriter(epoch(number))
    return writer.publish([writer.task([batch(*values)], partition=0, query=query, group=group)])


def refused(number: int, *values: int, query: str = "", group: str = "") -> str:
    with pytest.raises(LinkError) as caught:
        write(number, *values, query=query, group=group)
    assert caught.value.code == "E_WRITER"
    return caught.value.message


def test_a_second_write_of_a_batch_is_not_taken_for_the_first(world: World) -> None:
    assert write(3, 1, 2, query="id", group=RUNS[0])
    assert "by an earlier write of the same batch" in refused(3, 8, 9, query="id", group=RUNS[0])
    assert not write(3, 1, 2, 3, query="id", group=RUNS[1]), "the query was started again"
    assert not write(3, 1, 2, query="id", group="mine"), "a group of the user's is no run"
    assert write(4, 5, query="id", group="mine")
    assert not write(4, 5, query="id", group="mine")
    world.settle()
    assert world.node.written == [1, 2, 5]


def test_epochs_of_a_table_are_held_to_the_query_that_writes_it(world: World) -> None:
    assert write(1, 1, query="id")
    assert "of another checkpoint" in refused(0, 7, query="its checkpoint was deleted")
    assert "of another checkpoint" in refused(2, 8, query="its checkpoint was deleted")
    assert write(2, 2), "by hand, in between"
    assert "of another checkpoint" in refused(3, 9, query="another"), "that doesn't make it another's"
    world.settle()
    assert world.node.written == [1, 2]


def test_a_write_that_only_its_user_numbers_is_looked_at(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert write(5, 1, 2)
    with caplog.at_level(logging.WARNING, "medusa.spark"):
        assert not write(5, 1, 2)
    assert "'q.in': these rows are not added: epoch 5 of 'copy' was published before" in caplog.text
    assert "published with 2 rows, and these are 3" in refused(5, 1, 2, 3)
    assert "or not, before epoch 5" in refused(4, 1, 2)
    assert write(6, 3)
    world.settle()
    assert world.node.written == [1, 2, 3]


def test_a_publishing_that_is_asked_again_is_the_same_one(world: World) -> None:
    writer = TableWriter(epoch(0))
    tasks: list[Staged | None] = [writer.task([batch(1)], partition=0, query="id", group=RUNS[0])]
    assert writer.publish(tasks)
    assert not writer.publish(tasks), "its answer had been lost"


def test_a_task_that_fails_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "CHUNK_BYTES", 1)

    def rows():
        yield batch(1)
        assert world.staging.nbytes > 0, "it is staged as it comes"
        yield batch(2)
        raise ValueError("a function of the user's")

    for number in (None, 0):
        with pytest.raises(ValueError, match="a function of the user's"):
            StreamWriter(TO).task(rows(), query="id", epoch=number, partition=0)
        assert not world.disk.groups
    bad = pa.record_batch({"v": pa.array(["text"])})
    with pytest.raises(Exception, match="expected int64"):
        TableWriter(TO).task([batch(1), bad], partition=0)
    assert not world.disk.groups


def test_a_write_of_which_no_task_is_through_has_nothing_to_give_up(world: World) -> None:
    """Asked all the same, a gateway that is away would be waited for a second time."""
    TableWriter(TO).give_up([None, None])
    StreamWriter(TO).give_up([None], 0)
    assert world.requests == 0


def test_attempts_tell_their_run(world: World) -> None:
    one = StreamWriter(TO)
    first, second, other = (
        writer.task([batch(1)], query="id", epoch=0, partition=0).token.rpartition("-")[2]
        for writer in (one, pickle.loads(pickle.dumps(one)), StreamWriter(TO))
    )
    assert first[:8] == second[:8] != other[:8]
    assert len({first, second, other}) == 3
