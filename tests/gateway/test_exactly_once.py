"""From a stream through Spark into a stream: whatever fails, at whatever step, each row is there once.

Spark is played by ``fake_spark``; tests/spark has it with the real one.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from medusa.errors import DataError, LinkError
from medusa.spark import data_source_reader, data_source_writer
from medusa.spark.data_source_reader import BatchReader
from tests.gateway.dying_disk import ENDS
from tests.gateway.fake_spark import Faults, Query, World, lives

ROWS = 24
EXPECTED = [2 * number for number in range(ROWS)]
KINDS = ("die", "task", "tasks", "commit")


@pytest.fixture
def use(monkeypatch):
    def to(world: World) -> World:
        monkeypatch.setattr(data_source_reader, "caller", world)
        monkeypatch.setattr(data_source_writer, "caller", world)
        return world

    return to


def query(faults: Faults | None = None) -> Query:
    return Query(faults or Faults(), rows=10)


def ends_well(world: World, of: Query) -> None:
    lives(of)
    world.settle()
    assert world.node.written == EXPECTED
    assert not world.disk.groups, "nothing is left of what is done"


def test_without_faults_it_is_three_batches(use):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    assert of.batches == [0, 1, 2]
    assert [end["row"] for _, end in of.offsets.values()] == [10, 20, 24]
    assert world.rows.names(), "the last batch stays"


def test_the_driver_and_tasks_fail_at_every_step(use):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    came = 0
    for step, kind in itertools.product(range(of.faults.steps), KINDS):
        world, of = use(World(ROWS)), query(Faults(step, kind))
        ends_well(world, of)
        came += of.faults.came
    assert came > of.faults.steps


@pytest.mark.parametrize("kind", ["die", "commit"])
def test_it_fails_at_every_step_while_rows_come(use, kind):
    def run(step: int | None) -> Query:
        world, of = use(World(5)), query(Faults(step, kind))
        world.node.comes = 45
        while len(world.node.out) < 50 or of.offsets[max(of.offsets)][1]["row"] < 50:
            lives(of)
        world.settle()
        assert world.node.written == [2 * number for number in range(50)], step
        return of

    for step in range(run(None).faults.steps):
        run(step)


@pytest.mark.parametrize("end", ENDS)
def test_the_gateway_dies_at_every_step_of_its_disk(use, end):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    for step in range(world.driven):
        world, of = use(World(ROWS)), query()
        world.disk.die_at, world.disk.end = step, end
        ends_well(world, of)
        assert world.deaths == 1, step


@pytest.mark.parametrize("end", ENDS)
def test_the_disk_fails_at_every_step_and_the_gateway_goes_on(use, end):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    for step in range(world.driven):
        world, of = use(World(ROWS)), query()
        world.disk.die_at, world.disk.end, world.disk.fails = step, end, True
        ends_well(world, of)


@pytest.mark.parametrize("answer", [False, True])
def test_the_link_is_cut_at_every_request(use, answer):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    for request in range(world.requests):
        world, of = use(World(ROWS)), query()
        world.cut_at, world.cut_answer = request, answer
        ends_well(world, of)


@pytest.mark.parametrize("others", [1, 2, 3, 5, 8, 13, 21, 34])
def test_each_request_comes_once_more_later(use, others):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    for request in range(world.requests - others):
        world, of = use(World(ROWS)), query(Faults(request % of.faults.steps, KINDS[request % 4]))
        world.again_at = request, others
        lives(of)
        world.settle()
        assert world.node.written == EXPECTED, request
        world.now_s += 1000
        world.staging.collect()
        assert not world.disk.groups, "what came too late goes by its age"


def test_the_driver_dies_and_then_the_gateway(use):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    steps, disk = of.faults.steps, world.driven
    for step, at in itertools.product(range(0, steps, 3), range(1, disk, 11)):
        world, of = use(World(ROWS)), query(Faults(step, KINDS[step % 4]))
        world.disk.die_at, world.disk.end = at, ENDS[at % 4]
        ends_well(world, of)


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ENDS)
def test_any_fault_of_the_driver_and_then_any_death_of_the_gateway(use, kind, end):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    for step, at in itertools.product(range(of.faults.steps), range(world.driven)):
        world, of = use(World(ROWS)), query(Faults(step, kind))
        world.disk.die_at, world.disk.end = at, end
        ends_well(world, of)


def test_an_epoch_that_is_published_outlives_its_abort(use):
    step = next(step for step in itertools.count() if fails_at(use, step).faults.came)
    of = fails_at(use, step)
    assert of.batches[:2] == [0, 0], "Spark runs the epoch again, and it was published before"


def fails_at(use, step: int) -> Query:
    world, of = use(World(ROWS)), query(Faults(step, "commit"))
    ends_well(world, of)
    return of


def test_a_spool_that_one_batch_fills_does_not_stop(use):
    world = use(World(2000, spool_bytes=3000))
    of = Query(Faults(), rows=None)
    while world.node.acked < 2000:
        lives(of)
    lives(of)
    world.settle()
    assert world.node.written == [2 * number for number in range(2000)]
    assert len(of.offsets) > 5


def test_a_checkpoint_of_another_stream_or_gateway_is_refused(use):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    of.offsets[2] = ({"stream": "q.other", "row": 20}, {"stream": "q.other", "row": 24})
    with pytest.raises(DataError, match=r"the checkpoint is of stream 'q\.other'"):
        of.run()
    of.offsets[2] = ({"row": "1"}, {})
    with pytest.raises(DataError, match="isn't of format"):
        of.run()
    use(World(5))
    ahead = query()
    ahead.offsets = {0: ({"stream": "q.out", "row": 0}, {"stream": "q.out", "row": 10})}
    with pytest.raises(LinkError, match="there are those below 5") as caught:
        ahead.run()
    assert caught.value.code == "E_SEQ"


def test_a_fresh_checkpoint_is_another_writer_and_a_named_writer_is_held_to_one(use):
    world, of = use(World(ROWS)), query()
    ends_well(world, of)
    again = Query(Faults(), rows=10, name="id-2")
    lives(again)
    world.settle()
    kept = world.node.written[ROWS:]
    assert kept, "its epochs count from 0 again, and are rows all the same"
    assert kept == EXPECTED[-len(kept) :]
    use(world := World(ROWS))
    for name in ("id-1", "id-2"):
        named = Query(Faults(), rows=10, name=name)
        named.to = dataclasses.replace(named.to, writer="copy")
        if name == "id-1":
            lives(named)
            world.settle()
            assert world.node.written == EXPECTED
        else:
            with pytest.raises(LinkError, match="of another checkpoint") as caught:
                named.run()
            assert caught.value.code == "E_WRITER"


def test_batch_reads_take_what_is_there_in_parts(use):
    world, of = use(World(ROWS)), query()
    reader = BatchReader(dataclasses.replace(of.options, meta=True))
    parts = reader.parts()
    assert len(parts) > 1
    rows = [row for part in parts for batch in reader.rows(part) for row in batch.to_pylist()]
    assert rows == [{"v": n, "_seq": n, "_late": False} for n in range(world.node.acked)]
