"""New fragments follow the old ones, which go on, and take over where these stand then."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from medusa.elements import Boundary, Train
from medusa.errors import LocalProtocolError
from medusa.nodes.config.settings_streams import StreamRule
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.repartition import catch_up
from medusa.nodes.reports import FragmentFailed, StopRequested
from medusa.query.boxes import Field
from medusa.query.shape import StreamShape
from medusa.wire.link.automaton import LinkSettings
from medusa.wire.outbox import Outbox
from tests.nodes.parted import Parting
from tests.sim.planted_moves import new_ones_begin_one_row_too_far

HERE = {"e": ["rows", "all_rows", "box"], "c": ["last", "out"]}
"""The box is where rows are published."""


def until(world, state, node="m"):
    splits = world.fed.nodes[node].brain.orders.splits
    assert world.fed.run(lambda: [each.state for each in splits.status()] == [state], for_us=100_000)
    [job] = splits._jobs
    return job


@pytest.mark.parametrize("what", ["split", "merge"])
def test_what_was_is_fed_and_sends_while_the_new_ones_are_written_and_the_record_is(what):
    world = Parting("united")
    if what == "merge":
        assert world.told(world.split())[0].code == ""
    number = world.split() if what == "split" else world.merge()
    job = until(world, "writing")
    first = world.fed.nodes["m"].brain.fragments[job.order.fragment]
    fed, got = first.rows_in, sum(map(len, world.reader.rows["q.out"]))
    assert until(world, "switching") is job
    if what == "split":  # The other one takes 1 ms.
        assert first.rows_in > fed
        assert sum(map(len, world.reader.rows["q.out"])) > got
    assert not any(old.frozen for old in job.olds)
    assert all(new.frozen for new in job.news.values())
    assert world.told(number)[0].code == ""
    world.check()


def test_while_they_follow_upstream_keeps_all_since_they_were_copied():
    world = Parting()
    world.split()
    job = until(world, "writing")
    [old] = job.olds
    taken = old.checkpoints
    [base] = [each for new in job.news.values() for each in new._writing.positions if each[0].peer == "e"]
    until(world, "switching")
    [input] = old.inputs.values()
    assert old.checkpoints == taken
    assert input.receiver.durable_seq <= base[1] < input.fed_seq
    world.check()


def test_a_second_publisher_meanwhile_ends_it_and_the_old_one_goes_on():
    """What comes out depends on who came first then, and only one fragment can say so."""
    world = Parting(at=HERE)
    other = world.fed.client("other", "e")
    number = world.split(fragment="q/rows")
    job = until(world, "writing", "e")
    assert job.follows
    other.finish("q.rows", world.schema)
    reply, _ = world.told(number)
    assert (reply.code, "another publisher came" in reply.text) == ("E_BUSY", True)
    old = world.fed.nodes["e"].brain.fragments["q/rows"]
    assert (old.frozen, old.tap) == (False, None)
    world.fed.run(for_us=20_000)
    assert world.told(world.split(fragment="q/rows"))[0].code == ""
    world.check()


def test_where_the_order_of_arrival_is_logged_the_old_one_rests():
    world = Parting(at=HERE)
    world.fed.client("other", "e").finish("q.rows", world.schema)
    world.fed.run(for_us=20_000)
    number = world.split(fragment="q/rows")
    job = until(world, "writing", "e")
    [old] = job.olds
    assert (job.follows, old.frozen) == (False, True)
    assert world.told(number)[0].code == ""
    world.check()


@pytest.mark.parametrize("unsynced", ["lost", "kept"])
def test_a_node_that_stops_while_it_switches_finds_the_old_one_or_the_new_ones(unsynced):
    world = Parting()
    node = world.fed.nodes["m"]
    before = world.fragments
    world.split()
    until(world, "switching")
    node.order(lambda now_us: node.brain.report(now_us, StopRequested()))
    assert world.fed.run(lambda: node.brain.stopped, for_us=100_000)
    node.crash(unsynced)
    node.restart()
    assert (world.fragments == before) or "q/box-1" in world.fragments
    world.check()


def dies_after_the_switch(what, unsynced="lost"):
    """Rows have been sent by the old ones since the new ones' checkpoint, and by the new ones."""
    world, number, job = begun(what, "united")  # Each row comes out.
    assert world.told(number)[0].code == ""
    news = job.news.values()
    [first] = [new for new in news if new.outer]
    fed = first.rows_in
    assert world.fed.run(lambda: first.rows_in > fed, for_us=100_000)
    assert {new.checkpoints for new in news} == {1}
    node = world.fed.nodes["m"]
    node.crash(unsynced)
    node.restart()
    world.check()


@pytest.mark.parametrize("unsynced", ["lost", "kept"])
@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_node_that_dies_after_the_switch_goes_on_from_where_they_were_copied(what, unsynced):
    dies_after_the_switch(what, unsynced)


@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_first_checkpoint_of_a_place_behind_its_state_is_noticed(what, monkeypatch):
    new_ones_begin_one_row_too_far(monkeypatch)
    with pytest.raises(AssertionError):
        dies_after_the_switch(what)


def begun(what, kind="passing"):
    """A run in which a split or merge is switching, the number of the order, and what is under way."""
    world = Parting(kind)
    if what == "merge":
        assert world.told(world.split())[0].code == ""
    number = world.split() if what == "split" else world.merge()
    return world, number, until(world, "switching")


def fails(world, name):
    """The engine gives nothing of it from now on."""
    node = world.fed.nodes["m"]
    node.loop._host._running[name].failed = True
    node.order(lambda now_us: node.brain.report(now_us, FragmentFailed(name, "boom")))


@pytest.mark.parametrize(("what", "which"), [("split", 0), ("merge", 0), ("merge", -1)])
def test_an_old_one_that_fails_while_the_record_is_written_is_replaced_all_the_same(what, which):
    """What it was fed and gave nothing for comes of those that follow."""
    world, number, job = begun(what)
    fails(world, job.olds[which].spec.name)
    assert world.told(number)[0].code == ""
    world.check()


@pytest.mark.parametrize("what", ["split", "merge"])
def test_a_new_one_that_fails_while_the_record_is_written_begins_anew_when_the_node_does(what):
    world, number, job = begun(what)
    name = next(name for name, new in job.news.items() if new.outer)
    fails(world, name)
    assert world.told(number)[0].code == ""
    node = world.fed.nodes["m"]
    assert node.brain.fragments[name].failed == "boom"
    node.crash("lost")
    node.restart()
    world.check()


def test_a_merge_does_not_wait_for_who_reads_it():
    world, number, job = begun("merge")
    [old] = [old for old in job.olds if "q.box" in old.spec.streams.values()]
    [output] = old.outputs.values()
    output.full = lambda coming: True
    assert world.told(number)[0].code == ""
    for hosted in job.news.values():
        for each in hosted.outputs.values():
            vars(each).pop("full", None)
    world.check()


def test_while_too_much_is_kept_the_old_one_is_fed_nothing(monkeypatch):
    monkeypatch.setattr(catch_up, "KEPT_MAX", 1)
    world = Parting("passing")
    number = world.split()
    job = until(world, "writing")
    [old] = job.olds
    assert world.fed.run(lambda: old.tap.held, for_us=100_000)
    fed = old.rows_in
    until(world, "switching")
    assert old.rows_in == fed
    reply, told = world.told(number)
    assert reply.code == ""
    assert told["pause_us"] >= world.fed.world.now_us - job.following.held_us - 20_000
    world.check()


def test_where_links_between_the_new_ones_would_shed_the_old_one_rests():
    world = Parting("passing")
    splits = world.fed.nodes["m"].brain.orders.splits
    rule = StreamRule(pattern="q.box-*", weight=1, retention_bytes=None, at_limit="shed")
    splits._node = replace(splits._node, settings=replace(splits._node.settings, streams=(rule,)))
    number = world.split()
    job = until(world, "writing")
    assert (job.follows, job.olds[0].frozen) == (False, True)
    assert world.told(number)[0].code == ""
    world.check()


# --- what comes once more -----------------------------------------------------------------------------


SCHEMA = (Field("v", "int64"),)


def output(record=None, logs=None):
    return FragmentOutput(
        "out",
        "q.out",
        StreamShape("box", SCHEMA, timed=False),
        readers=["c"],
        outbox=Outbox(),
        settings=LinkSettings(),
        fragment="q/box",
        next_token=lambda: 1,
        record=record,
        logs=logs,
    )


def train(first, end):
    return Train(batch=pa.record_batch({"v": pa.array(range(first, end), pa.int64())}), first_seq=first)


def log_of(out):
    """Rows, and (row before which it stands, boundary)."""
    entries = out.sender.log.entries()
    return [(e.seq, e.end) for e in entries if e.time_us is None], [
        (e.seq, e.time_us) for e in entries if e.time_us is not None
    ]


def test_rows_that_were_sent_are_dropped_when_they_come_once_more_also_after_a_restart():
    old = output()
    old.take(0, train(0, 10), hold=False)
    old.take(0, Boundary(7), hold=False)
    new = old.for_fragment("q/new", Outbox(), lambda: 1)
    new.given = 4
    new.take(0, train(4, 6), hold=False)
    new.take(0, Boundary(7), hold=False)
    assert log_of(new) == ([(0, 10)], [(10, 7)])
    record, payloads, _ = new.record(1, 0, compact=True)
    assert record.again == 4
    again = output(record, {1: b"".join(map(bytes, payloads))})
    for each in (new, again):
        each.take(0, Boundary(7), hold=False)
        each.take(0, train(6, 13), hold=False)
        each.take(0, Boundary(8), hold=False)
        assert log_of(each) == ([(0, 10), (10, 13)], [(10, 7), (13, 8)])
        assert each.record(1, 0, compact=True)[0].again == 0
        with pytest.raises(LocalProtocolError, match="numbered without gaps: 13 is the next, and 14 came"):
            each.take(0, train(14, 15), hold=False)
