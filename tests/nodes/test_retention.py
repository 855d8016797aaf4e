"""What a node does when an output keeps as much as it may: whole nodes in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_streams import StreamRule
from medusa.sim.actors.federation import Federation
from medusa.sim.checkers.delivery import check_node
from medusa.wire import limits

pytestmark = pytest.mark.usefixtures("trains_apart")

BOUND = 6000
ROWS = 3000
PIECE = 10
PLENTY = StreamRule(pattern="q.out", retention_bytes=1 << 20)
"""What the reader at the end reads is kept while it looks for its node."""

AT = {"edge": ["flows", "kept"], "core": ["more", "out"]}


def query() -> md.Query:
    q = md.Query("q")
    kept = q.source("flows", {"v": "int64"}, time=None).filter("v >= 0", name="kept")
    q.sink("out", kept.filter("v >= 0", name="more"))
    return q


def union() -> md.Query:
    q = md.Query("q")
    left = q.source("flows", {"v": "int64"}, time=None)
    right = q.source("others", {"v": "int64"}, time=None)
    q.sink("out", left.union(right, name="kept").filter("v >= 0", name="more"))
    return q


def check_kept(node):
    """No output between the nodes takes more than its bound and a bit: what was under way to the engine."""
    check_node(node)
    if node.loop is None:
        return
    for hosted in node.brain.fragments.values():
        for output in hosted.outputs.values():
            kept, bound = (
                output.sender.log.nbytes + output.held_bytes,
                output.sender.settings.retained_bytes_max,
            )
            assert kept <= bound + bound // 8, (output.stream, kept)


class Story:
    """A publisher at the edge, a node behind it, a reader there; ``core`` may be away."""

    def __init__(self, q, at, *, streams=(PLENTY,), every_us=200_000, watch=check_kept):
        limits = Limits(checkpoint_every_us=every_us, retention_bytes=BOUND)
        self.federation = Federation(5, ["edge", "core"], limits=limits, watch=watch)
        for node in self.federation.nodes.values():
            node.settings = replace(node.settings, streams=streams)
        self.federation.start()
        self.schema = next(box for box in q.graph.boxes if box.id == "flows").schema
        self.reader = self.federation.client("reader", "core")
        reply, _ = self.federation.answer(self.reader, self.reader.deploy(q, at))
        assert reply.code == "", reply
        self.reader.read("q.out")
        self.publisher = self.federation.client("publisher", "edge")

    def publish(self, rows=ROWS):
        for at in range(0, rows, PIECE):
            batch = pa.record_batch({"v": pa.array(range(at, at + PIECE))})
            self.publisher.publish("q.flows", batch, self.schema)
        self.publisher.finish("q.flows", self.schema)

    def wait(self, condition=lambda: False, for_us=20_000_000):
        return self.federation.run(condition, for_us=for_us)

    def hosted(self, node):
        (hosted,) = self.federation.nodes[node].brain.fragments.values()
        return hosted

    def output(self, node):
        (output,) = self.hosted(node).outputs.values()
        return output

    def taken(self):
        return self.publisher.mind.publications["q.flows"].durable

    def rows(self):
        return [v for batch in self.reader.rows.get("q.out", ()) for v in batch["v"].to_pylist()]

    def status(self, node):
        return self.federation.nodes[node].brain.status(self.federation.world.now_us)


def test_slow_the_edge_takes_no_more_until_the_next_node_is_back():
    story = Story(query(), AT)
    story.federation.nodes["core"].crash()
    story.publish()
    assert not story.wait(story.taken)
    output = story.output("edge")
    assert output.sender.full
    train = PIECE * 8 + 4 * limits.ENTRY_BYTES
    assert BOUND <= output.sender.log.nbytes <= BOUND + 4 * train
    taken = story.hosted("edge").rows_in
    assert taken < ROWS / 4
    story.wait(for_us=2_000_000)
    assert story.hosted("edge").rows_in == taken
    story.federation.restart("core")
    assert story.wait(lambda: bool(story.reader.ended))
    assert story.rows() == list(range(ROWS))
    assert story.status("edge")["shed_rows"] == 0


def test_shed_the_edge_takes_all_and_the_next_node_counts_what_it_missed():
    story = Story(query(), AT, streams=(PLENTY, StreamRule(pattern="q.*", at_limit="shed")))
    story.federation.nodes["core"].crash()
    story.publish()
    assert story.wait(story.taken)
    log = story.output("edge").sender.log
    assert log.nbytes <= BOUND
    assert log.next_seq == ROWS
    shed = log.start_seq
    assert story.status("edge")["shed_rows"] == shed > 0
    told = [r for r in story.federation.nodes["edge"].reports if r.what.startswith("rows shed")]
    assert told
    assert told[0].level == "warning"
    story.federation.restart("core")
    assert story.wait(lambda: bool(story.reader.ended))
    (input,) = story.hosted("core").inputs.values()
    (view,) = story.output("edge").sender.receivers.values()
    assert input.receiver.lost_rows == view.lost_rows == shed
    assert len(story.rows()) + input.receiver.lost_rows == ROWS
    assert story.rows() == list(range(shed, ROWS))
    assert story.status("core")["lost_rows"] == shed
    (of,) = story.status("edge")["fragments"][0]["outputs"]
    assert of["shed_rows"] == of["receivers"][0]["lost_rows"] == shed


def test_a_stream_has_the_bound_that_the_first_fitting_rule_says():
    rules = (
        StreamRule(pattern="q.out", retention_bytes=9000),
        StreamRule(pattern="*", at_limit="shed", weight=3),
    )
    story = Story(query(), AT, streams=rules)
    core, edge = (story.output(name).sender.settings for name in ("core", "edge"))
    assert (core.retained_bytes_max, core.keep_bytes, core.at_limit) == (9000, 9000, "slow")
    assert (edge.retained_bytes_max, edge.keep_bytes, edge.at_limit) == (BOUND, BOUND, "shed")


@pytest.mark.parametrize("at_limit", ["slow", "shed"])
def test_output_that_waits_for_a_disk_counts_for_the_bound(at_limit):
    """It could not be shed, so under either policy the source waits until it may leave."""
    most = 0

    def watch(node):
        nonlocal most
        if node.loop is not None:
            outputs = [out for hosted in node.brain.fragments.values() for out in hosted.outputs.values()]
            most = max([most, *(out.held_bytes for out in outputs)])
            check_node(node)

    at = {"edge": ["flows", "others", "kept"], "core": ["more", "out"]}
    rules = (PLENTY, StreamRule(pattern="q.*", at_limit=at_limit))
    story = Story(union(), at, streams=rules, every_us=600_000_000, watch=watch)
    story.publish()
    story.publisher.finish("q.others", story.schema)
    assert story.wait(lambda: bool(story.reader.ended), for_us=60_000_000)
    assert BOUND / 2 < most <= BOUND + BOUND // 8
    (input,) = story.hosted("core").inputs.values()
    assert len(story.rows()) + input.receiver.lost_rows == ROWS
    assert story.rows() == sorted(set(story.rows()))
