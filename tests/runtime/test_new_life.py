"""A node loses its data folder, its query is deployed once more; the other nodes still have their parts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.sim.actors.federation import Federation
from medusa.wire.messages.move import Move

AT = {"up": ["rows", "f"], "down": ["total", "out"]}


def query(kind):
    """Rows pass, or a window counts them."""
    q = md.Query("q")
    passed = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s").filter("v >= 0", name="f")
    if kind == "rows":
        q.sink("out", passed.filter("v >= 0", name="total"))
    else:
        q.sink("out", passed.window("10 s").aggregate(n="count(*)", name="total"))
    return q


def seconds(times):
    """Rows of these times."""
    return pa.record_batch({"ts": list(times), "v": list(times)})


class Run:
    """``up`` has the source and coordinates, ``down`` the sink."""

    def __init__(self, kind, seed=1, every_us=200_000, nodes=("up", "down")):
        self.fed = Federation(seed, nodes, limits=Limits(checkpoint_every_us=every_us))
        self.kind = kind
        self.schema = query(kind).graph.boxes[0].schema
        self.fed.start()
        self.reader = self.fed.client("reader", "down")
        self.fed.run(for_us=1_000_000)
        self.deploy()
        self.reader.read("q.out")

    def deploy(self):
        client = self.fed.client(f"maker-{self.fed.world.now_us}", "up")
        reply, _ = self.fed.answer(client, client.deploy(query(self.kind), AT))
        assert reply.code == "", reply

    def publish(self, first, count, *, ends=False, at="up"):
        """Rows of these seconds, by a program that is killed then unless it ends the stream."""
        client = self.fed.client(f"pump-{first}", at)
        client.publish("q.rows", seconds(range(first, first + count)), self.schema)
        if ends:
            client.finish("q.rows", self.schema)
        [publication] = client.mind.publications.values()
        views = publication.sender.receivers
        assert self.fed.run(
            lambda: bool(views) and all(each.durable >= count for each in views.values()), for_us=20_000_000
        )
        client.dead = not ends

    def loses_its_folder(self):
        node = self.fed.nodes["up"]
        node.crash()
        node.disk.lose()
        self.fed.run(for_us=2_000_000)
        node.restart()
        self.fed.run(for_us=2_000_000)
        self.deploy()

    def read(self, column):
        return [
            value for batch in self.reader.rows.get("q.out", []) for value in batch.column(column).to_pylist()
        ]

    def said(self, node, what):
        return [report for report in self.fed.nodes[node].reports if report.what == what]

    @property
    def input(self):
        [hosted] = self.fed.nodes["down"].brain.fragments.values()
        [found] = hosted.inputs.values()
        return found


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_the_new_life_are_not_taken_for_those_of_the_one_before(seed):
    run = Run("rows", seed)
    run.publish(0, 100)
    assert run.fed.run(lambda: len(run.read("v")) == 100)
    run.loses_its_folder()
    run.publish(100, 150, ends=True)
    assert run.fed.run(lambda: "q.out" in run.reader.ended)
    assert run.read("v") == list(range(250))
    assert not run.said("up", "receiver ahead")
    [told] = run.said("down", "stream begins anew")
    assert told.fields["had_rows"] == 100
    assert run.input.receiver.lost_rows == 0


@pytest.mark.parametrize("again", [False, True])
def test_the_state_downstream_goes_on_and_so_it_does_after_a_crash(again):
    run = Run("window")
    run.publish(0, 95)
    assert run.fed.run(lambda: len(run.read("n")) == 9, for_us=20_000_000)
    run.loses_its_folder()
    run.publish(95, 30)
    assert run.fed.run(lambda: run.input.receiver.next_seq == 30 and run.input.receiver.durable_seq == 30)
    if again:
        run.fed.nodes["down"].crash()
        run.fed.run(for_us=100_000)
        run.fed.nodes["down"].restart()
        run.fed.run(for_us=1_000_000)
    run.publish(125, 25, ends=True)
    assert run.fed.run(lambda: "q.out" in run.reader.ended)
    assert run.read("n") == [10] * 15
    assert run.input.receiver.lost_rows == 0
    assert not run.input.overdue_rows


@pytest.mark.parametrize("steps", range(0, 60, 6))
def test_who_dies_between_goes_on_with_the_new_life(steps):
    """Before the checkpoint that says so, and after it."""
    run = Run("rows", steps)
    run.publish(0, 50)
    assert run.fed.run(lambda: run.input.receiver.durable_seq == 50, for_us=20_000_000)
    run.loses_its_folder()
    run.fed.run(for_us=20_000 * steps)
    run.fed.nodes["down"].crash()
    run.fed.run(for_us=100_000)
    run.fed.nodes["down"].restart()
    run.publish(50, 50, ends=True)
    assert run.fed.run(lambda: "q.out" in run.reader.ended)
    assert run.read("v") == list(range(100))


def test_rows_below_what_was_promised_before_count_as_late_and_the_stream_goes_on():
    """The publisher goes back in time: nothing stands, and each row that comes too late is counted."""
    run = Run("window")
    run.publish(0, 95)
    assert run.fed.run(lambda: len(run.read("n")) == 9, for_us=20_000_000)
    run.loses_its_folder()
    run.publish(80, 50, ends=True)
    assert run.fed.run(lambda: "q.out" in run.reader.ended)
    promised = 94
    assert run.input.overdue_rows == promised - 80
    assert run.said("down", "rows below an earlier promise count as late")
    assert sum(run.read("n")) == 95 + 50 - run.input.overdue_rows


def test_a_lost_decision_log_lets_the_stream_go_on_and_counts_what_comes_below_a_promise():
    """What one publisher sent is lost with the log, and another one sends rows of the time before."""
    run = Run("window", every_us=60_000_000)
    [hosted] = run.fed.nodes["up"].brain.fragments.values()
    one, two = (run.fed.client(name, "up") for name in ("one", "two"))
    for client in (one, two):
        client.publish("q.rows", seconds(range(100)), run.schema)
    assert run.fed.run(lambda: run.input.receiver.next_seq == 200, for_us=20_000_000)
    assert run.fed.run(lambda: run.input.fed_us == 99_000_000, for_us=20_000_000)
    assert hosted.mixed
    node = run.fed.nodes["up"]
    node.crash()
    one.dead = True
    assert node.disk.journal.numbers()
    node.disk.journal.lose()
    run.fed.run(for_us=1_000_000)
    node.restart()
    three = run.fed.client("three", "up")
    three.publish("q.rows", seconds([60] * 150), run.schema)
    for client in (two, three):
        client.finish("q.rows", run.schema)
    assert run.fed.run(lambda: "q.out" in run.reader.ended)
    assert run.input.receiver.next_seq == 250
    assert 0 < run.input.overdue_rows <= 50, "those of the last 50 that weren't late at the source already"
    told = run.said("down", "rows below an earlier promise count as late")
    assert sum(each.fields["rows"] for each in told) == run.input.overdue_rows
    assert len(run.read("n")) == 10, "each window once"


def test_a_stream_keeps_its_life_when_its_fragment_moves_or_its_node_restarts():
    """Else readers would take what they had for what was lost."""
    run = Run("rows", nodes=("up", "down", "third"))
    run.publish(0, 50)
    fed, [name] = run.fed, run.fed.nodes["up"].brain.fragments

    def life(node):
        return fed.nodes[node].brain.fragments[name].outputs["f-out"].sender.life

    before = life("up")
    assert before
    client = fed.client("mover", "up")
    number = client.mind.request(lambda n: Move(request=n, fragment=name, to="third", timeout_ms=5000))
    client.do(lambda mind: None)
    assert fed.answer(client, number)[0].code == ""
    assert fed.run(lambda: name in fed.nodes["third"].brain.fragments)
    assert life("third") == before
    fed.run(for_us=1_000_000)
    fed.nodes["third"].crash()
    fed.nodes["third"].restart()
    assert life("third") == before
    run.publish(50, 50, ends=True, at="third")
    assert fed.run(lambda: "q.out" in run.reader.ended)
    assert run.read("v") == list(range(100))
    assert not run.said("down", "stream begins anew")
