"""Whole nodes in virtual time: the answer is that of one program, whatever happens on the way."""

from __future__ import annotations

import json
import re
from random import Random

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import RemoteProtocolError
from medusa.nodes.config.settings import Limits
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.world.network import Faults
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.links import Attach, Hello
from medusa.wire.outbox import Send

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
EDGES = ("e1", "e2")
AT = {"e1": ["flows", "per_k"], "e2": ["flows", "per_k"], "core": ["big", "plus", "meet", "out", "all"]}
SOURCE = "q.flows"


def query() -> md.Query:
    q = md.Query("q")
    flows = q.source("flows", SCHEMA, time="ts", slack="50ms")
    per_k = flows.window("1s").group_by("k").aggregate(n=md.count(), s=md.sum("v"), name="per_k")
    plus = per_k.select("window_start", "window_end", "k", t="s + 1", name="plus")
    q.sink("all", per_k)
    q.sink("out", per_k.filter("n > 2", name="big").join(plus, on=["window", "k"], name="meet"))
    return q


def columns():
    return next(box for box in query().graph.boxes if box.id == "flows").schema


def trace(random: Random, rows: int = 600) -> pa.Table:
    times = sorted(random.randrange(20_000_000) for _ in range(rows))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([random.choice("abcdef") for _ in times]),
            "v": pa.array([random.randrange(-100, 100) for _ in times]),
        }
    )


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("window_end", "ascending"), ("k", "ascending")]).combine_chunks()


class Run:
    """The query over three nodes, publishers at the edges, one reader at the core."""

    def __init__(self, seed: int, **options) -> None:
        self.random = Random(seed)
        self.federation = Federation(seed, ["e1", "e2", "core"], **options)
        self.data = trace(self.random)
        self.federation.start()
        self.reader = self.federation.client("reader", "core")
        reply, _ = self.federation.answer(self.reader, self.reader.deploy(query(), AT))
        assert reply.code == "", reply
        for sink in ("out", "all"):
            self.reader.read(f"q.{sink}")
        self.edges = {edge: self.federation.client(f"pub-{edge}", edge) for edge in EDGES}

    def publish_over(self, duration_us: int) -> None:
        """Rows come slice by slice over this time, every second one at each edge."""
        world = self.federation.world
        for place, client in enumerate(self.edges.values()):
            part = self.data.take(pa.array(range(place, len(self.data), 2)))
            begin = 0
            while begin < len(part):
                count = self.random.randrange(1, 40)
                piece = part.slice(begin, count)
                at_us = world.now_us + duration_us * begin // len(part)
                world.at(at_us, lambda c=client, p=piece: c.publish(SOURCE, p, columns()))
                begin += count
            world.at(world.now_us + duration_us, lambda c=client: c.finish(SOURCE, columns()))

    def ended(self) -> bool:
        return self.reader.ended == {"q.out", "q.all"}

    def check(self) -> None:
        assert not self.reader.lost
        want = md.collect(query(), flows=self.data)
        for sink in ("all", "out"):
            got = pa.Table.from_batches(self.reader.rows.get(f"q.{sink}", []), want[sink].schema)
            assert in_order(got).equals(in_order(want[sink])), f"{sink}\n{self.federation.last()}"


def test_without_faults():
    run = Run(1)
    run.publish_over(3_000_000)
    assert run.federation.run(run.ended), run.federation.last()
    run.check()


def test_the_same_seed_gives_the_same_run():
    def trace_of(seed: int) -> str:
        run = Run(seed, faults=Faults(jitter_us=3000, loss_permille=10))
        run.publish_over(1_000_000)
        run.federation.world.after(500_000, run.federation.nodes["core"].crash)
        run.federation.world.after(800_000, lambda: run.federation.restart("core"))
        assert run.federation.run(run.ended)
        return run.federation.world.trace_hash

    assert trace_of(5) == trace_of(5)
    assert trace_of(5) != trace_of(6)


def test_two_publishers_of_one_source_lose_and_repeat_nothing():
    """Which publisher's row came first is decided by the node: what depends on it leaves only once
    a checkpoint holds the decision, so a crash can't decide it differently."""
    q = md.Query("q")
    q.sink("out", q.source("flows", SCHEMA, time="ts").filter("v > -1000", name="every"))
    federation = Federation(3, ["n"])
    federation.start()
    reader = federation.client("reader", "n")
    reply, _ = federation.answer(reader, reader.deploy(q, {"n": ["flows"]}))
    assert reply.code == ""
    reader.read("q.out")
    data = trace(Random(9), 400)
    world = federation.world
    for place in range(2):
        client = federation.client(f"pub-{place}", "n")
        part = data.take(pa.array(range(place, 400, 2)))
        for begin in range(0, 200, 10):
            piece, at_us = part.slice(begin, 10), world.now_us + begin * 10_000
            world.at(at_us, lambda c=client, p=piece: c.publish(SOURCE, p, columns()))
        world.at(world.now_us + 2_500_000, lambda c=client: c.finish(SOURCE, columns()))
    for at_us in (700_000, 1_300_000, 1_900_000):
        world.after(at_us, federation.nodes["n"].crash)
        world.after(at_us + 50_000, lambda: federation.restart("n"))
    assert federation.run(lambda: "q.out" in reader.ended), federation.last()
    got = pa.Table.from_batches(reader.rows["q.out"])
    key = [("ts", "ascending"), ("k", "ascending"), ("v", "ascending")]
    assert got.sort_by(key).equals(data.sort_by(key).combine_chunks())
    assert not reader.lost


def test_a_publisher_that_stays_away_holds_nobody_back_for_ever():
    """Its promise counts while it may come back; then the others' promises decide."""
    q = md.Query("q")
    windows = q.source("flows", SCHEMA, time="ts").window("1s").aggregate(n=md.count(), name="w")
    q.sink("out", windows)
    limits = Limits(checkpoint_every_us=100_000, subscriber_timeout_us=3_000_000)
    federation = Federation(12, ["n"], limits=limits)
    federation.start()
    reader = federation.client("reader", "n")
    assert federation.answer(reader, reader.deploy(q, {"n": ["flows"]}))[0].code == ""
    reader.read("q.out")
    data = trace(Random(3), 100)
    stays, leaves = (federation.client(name, "n") for name in ("stays", "leaves"))
    for client in (stays, leaves):
        client.publish(SOURCE, data, columns())
    federation.run(for_us=1_000_000)
    federation.network.cut("leaves", "n")
    federation.network.cut("n", "leaves")
    stays.finish(SOURCE, columns())
    federation.run(for_us=2_500_000)
    assert not reader.ended, "it may still come back"
    assert federation.run(lambda: bool(reader.ended), for_us=3_000_000), federation.last()


def test_more_credit_than_memory_is_refused():
    limits = Limits(credit_bytes=8 << 20, memory_bytes=16 << 20)
    federation = Federation(13, ["n"], limits=limits)
    federation.start()
    q = md.Query("q")
    q.sink("out", q.source("flows", SCHEMA, time="ts").filter("v > 0", name="f"))
    clients = [federation.client(f"c-{number}", "n") for number in range(3)]
    assert federation.answer(clients[0], clients[0].deploy(q, {"n": ["flows"]}))[0].code == ""
    for client in clients:
        client.publish(SOURCE, trace(Random(1), 10), columns())
    federation.run(for_us=2_000_000)
    refusals = [client.mind.publications[SOURCE].refusal for client in clients]
    assert [bool(each) for each in refusals].count(True) == 1
    assert "its memory of 16 MiB" in next(each.text for each in refusals if each)


def refused(federation: Federation, client: Client, request: int) -> str:
    reply, _ = federation.answer(client, request)
    assert reply.code
    return f"{reply.code}: {reply.text}"


def test_a_silent_node_undoes_the_deployment_everywhere():
    federation = Federation(4, ["e1", "e2", "core"])
    federation.start()
    client = federation.client("c", "core")
    federation.run(for_us=1_000_000)
    federation.nodes["e2"].crash()
    text = refused(federation, client, client.deploy(query(), AT))
    assert text.startswith("E_TIMEOUT: no answer from 'e2' in 5 s")
    federation.restart("e2")

    def empty() -> bool:
        return all(
            not n.brain.fragments and not n.brain.catalog.deployments for n in federation.nodes.values()
        )

    assert federation.run(empty), federation.last()
    reply, _ = federation.answer(client, client.deploy(query(), AT))
    assert reply.code == ""


def test_a_query_whose_node_is_silent_is_removed_once_that_is_back():
    federation = Federation(4, ["e1", "e2", "core"])
    federation.start()
    client = federation.client("c", "core")
    assert federation.answer(client, client.deploy(query(), AT))[0].code == ""
    federation.nodes["e2"].crash()
    text = refused(federation, client, client.undeploy("q"))
    assert text == (
        "E_TIMEOUT: no answer from 'e2' in 5 s: query 'q' is removing, and gone by itself once it is back"
    )
    federation.restart("e2")
    assert federation.run(lambda: not federation.nodes["core"].brain.catalog.deployments), federation.last()


def test_a_coordinator_that_dies_half_way_removes_what_it_began():
    federation = Federation(5, ["e1", "e2", "core"])
    federation.start()
    client = federation.client("c", "core")
    federation.run(for_us=1_000_000)
    federation.network.cut("core", "e2")
    client.deploy(query(), AT)
    assert federation.run(lambda: bool(federation.nodes["e1"].brain.fragments))
    federation.nodes["core"].crash()
    federation.network.heal("core", "e2")
    federation.clients.pop("c")
    federation.restart("core")
    federation.run(for_us=3_000_000)
    for node in federation.nodes.values():
        assert not node.brain.fragments
        assert not node.brain.catalog.deployments


def test_undeploying_frees_everything_also_on_disk():
    run = Run(6)
    run.publish_over(1_000_000)
    federation = run.federation
    assert federation.run(run.ended)
    reply, _ = federation.answer(run.reader, run.reader.undeploy("q"))
    assert reply.code == ""
    federation.run(for_us=1_000_000)
    for node in federation.nodes.values():
        assert not node.brain.fragments
        kinds = {name.rsplit("-", 1)[0] for name in node.disk.names()}
        assert kinds <= {"life", "life-copy", "node", "node-copy"}, kinds


def test_undeploying_while_rows_flow_is_no_error_in_any_log():
    run = Run(6)
    run.publish_over(2_000_000)
    run.federation.run(for_us=1_000_000)
    reply, _ = run.federation.answer(run.reader, run.reader.undeploy("q"))
    assert reply.code == ""
    run.federation.run(for_us=1_000_000)
    told = [report for node in run.federation.nodes.values() for report in node.reports]
    assert "E_REMOVED" in {report.fields.get("code") for report in told}
    assert not [report for report in told if report.level == "error"]


def test_a_lost_disk_is_told_and_nothing_is_invented():
    run = Run(7)
    run.publish_over(2_000_000)
    federation = run.federation
    federation.run(for_us=1_000_000)
    federation.nodes["e1"].crash()
    federation.nodes["e1"].disk.lose()
    federation.run(for_us=2_000_000)
    federation.restart("e1")
    federation.run(for_us=3_000_000)
    _, document = federation.answer(run.reader, run.reader.status())
    inputs = {each["from"]: each for each in json.loads(bytes(document))["fragments"][0]["inputs"]}
    assert "node 'e1' has no stream 'q.per_k-partial'" in inputs["e1"]["refusal"]
    assert inputs["e2"]["refusal"] == ""
    publication = run.edges["e1"].mind.publications[SOURCE]
    assert publication.refusal is not None
    assert publication.refusal.code == "E_STREAM"
    assert not run.ended()


def test_a_damaged_checkpoint_falls_back_to_the_one_before():
    run = Run(8)
    run.publish_over(3_000_000)
    federation = run.federation
    federation.run(for_us=2_000_000)
    core = federation.nodes["core"]
    core.crash()
    newest = [name for name in core.disk.names() if re.fullmatch(r"[0-9a-f]{24}-\d{12}", name)][-1]
    files = core.disk._groups[newest]
    files["positions"] = files["positions"][:-1] + bytes([files["positions"][-1] ^ 1])
    core.disk.history.harm(newest)
    federation.restart("core")
    assert any("damaged" in line and "the one before" in line for line in federation.world.lines)
    federation.run(run.ended, for_us=20_000_000)
    # Rows that the edges no longer keep are counted, exactly; without such rows the answer is whole.
    lost = sum(input.receiver.lost_rows for h in core.brain.fragments.values() for input in h.inputs.values())
    if lost == 0:
        run.check()
    else:
        assert any(report.what == "rows lost" for report in core.reports)


def test_limits_small_enough_to_bind_change_nothing():
    limits = Limits(checkpoint_every_us=100_000, retention_bytes=1 << 20, credit_bytes=5 << 20)
    run = Run(10, limits=limits)
    run.publish_over(500_000)
    assert run.federation.run(run.ended), run.federation.last()
    run.check()


def test_who_may_say_what():
    federation = Federation(11, ["n"])
    federation.start()
    client = federation.client("c", "n")
    for name, kind in (("n", True), ("stranger", False), ("../etc", True)):
        with pytest.raises(RemoteProtocolError):
            federation.nodes["n"].brain.admit(
                Hello(version=PROTOCOL_VERSION, node=name, incarnation=1, client=kind)
            )
    assert "E_QUERY: no query 'nothing'" in refused(federation, client, client.undeploy("nothing"))
    text = refused(federation, client, client.deploy(query(), {"m": ["flows"]}))
    assert "no node 'm'" in text


def test_only_the_readers_of_the_plan_have_rows_kept_back_for_them():
    """A client that says it has a disk would stall the fragment when it goes away."""
    run = Run(14)
    now_us = run.federation.world.now_us
    brain = run.federation.nodes["core"].brain
    attach = Attach(stream="q.out", epoch=99, next_seq=0, durable=0, granted=1 << 20, plain=False)
    for peer in ("reader", "e1"):
        brain.outbox.take()
        brain.receive(now_us, peer, attach)
        (refusal,) = [e.message for e in brain.outbox.take() if isinstance(e, Send)]
        assert (refusal.code, refusal.epoch) == ("E_READER", 99)
        assert f"doesn't name {peer!r} as a reader" in refusal.text
        assert "plain" in refusal.hint
    out = next(o for h in brain.fragments.values() for o in h.outputs.values() if o.stream == "q.out")
    assert out.sender.durable_positions() == {}
    run.publish_over(1_000_000)
    assert run.federation.run(run.ended), "the others are served as before"
    run.check()


def test_a_normal_deployment_says_nothing_of_errors():
    for seed in range(3):
        run = Run(seed)
        run.federation.run(for_us=2_000_000)
        for node in run.federation.nodes.values():
            assert [r for r in node.reports if r.level in ("warning", "error")] == []
            assert all(
                i.receiver.attachments for h in node.brain.fragments.values() for i in h.inputs.values()
            )
