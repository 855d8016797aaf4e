"""Loads of a node against truths that the test has made."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Boundary, Train
from medusa.engine.fragment import Fragment
from medusa.errors import RemoteProtocolError
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.load.link_loads import LinkLoads
from medusa.nodes.load.loads import LOOK_US, NodeLoads, Usage
from medusa.wire import limits
from medusa.wire.messages.links import OLDEST, Attach
from medusa.wire.messages.load import FRAGMENTS_MAX, WHOLE, FragmentLoad, Load
from medusa.wire.outbox import Outbox, ReportLine, Send
from tests.nodes.keyed import Keyed
from tests.nodes.test_decided_output import Life, union
from tests.nodes.test_explaining import Three

SECOND_US = 1_000_000
SCHEMA = {"ts": "int64", "v": "int64"}


def chain(*works: Any) -> md.Query:
    """Functions, between which every second row is dropped."""
    q = md.Query("q")
    stream = q.source("a", SCHEMA, time="ts", unit="us", slack="0s")
    for place, work in enumerate(works):
        stream = stream if not place else stream.filter("v % 4 = 0", name=f"half{place}")
        stream = stream.apply(work, SCHEMA, name=f"f{place}")
    q.sink("out", stream)
    return q


class Node:
    """The loads of one node, whose links are of a small query and whose boxes those of another, by a clock
    that says what the test wants."""

    def __init__(self, rules: LoadRules, query: md.Query, clock: Any) -> None:
        settings = Settings(name="n", listen="ipc:///n", data="n", load=rules)
        small = md.Query("q")
        small.sink("out", small.source("a", {"ts": "timestamp[us, UTC]", "v": "int64"}, time="ts"))
        self.life = Life(small)
        self.outbox = Outbox()
        self.fragment = Fragment(query.graph, clock=clock, functions=query.functions)
        self.name = self.life.spec.name
        self.loads = NodeLoads(settings, self.outbox, {self.name: self.life.hosted})

    def feed(self, *times: int) -> None:
        batch = pa.record_batch({name: pa.array(times, pa.int64()) for name in SCHEMA})
        self.fragment.feed("a", Train(batch=batch))
        self.fragment.feed("a", Boundary(times[-1]))
        self.fragment.drain("out")

    def tell(self, now_us: int) -> None:
        figures = {each.pop("box"): each for each in self.fragment.figures()}
        self.loads.told(now_us, self.name, figures)
        self.loads.tick(now_us, ())

    def reports(self) -> list[str]:
        return [
            f"{each.what} {each.fields['by']}" for each in self.outbox.take() if isinstance(each, ReportLine)
        ]


def test_boxes_of_known_cost_in_virtual_time_have_those_costs():
    """10 us a row of 5,000 rows a second and 30 us a row of every second one: 5 % and 7.5 %."""
    clock = md.testing.ManualClock()

    def takes(us: int) -> Any:
        def work(batch: Any) -> Any:
            clock.advance(us * batch.num_rows)
            return batch

        return work

    node = Node(LoadRules(), chain(takes(10), takes(30)), clock)
    node.tell(0)
    for tick in range(1, 61):
        node.feed(*range(tick * 5000, tick * 5000 + 5000, 2))
        node.tell(tick * LOOK_US)
    boxes = node.loads.boxes(node.name)
    first, second = boxes["f0"], boxes["f1"]
    assert (first.rows_in_per_s, second.rows_in_per_s) == (5000, 2500)
    assert (boxes["half1"].selectivity, boxes["half1"].rows_out_per_s) == (0.5, 2500)
    assert (first.cost_us, second.cost_us) == (10, 30)
    assert first.busy_share == pytest.approx(0.05, rel=1e-12)
    assert second.busy_share == pytest.approx(0.075, rel=1e-12)
    of_all = node.loads.fragment(node.name)
    assert of_all is not None
    assert (of_all.rows_in_per_s, of_all.rows_out_per_s) == (5000, 2500)
    assert node.loads.load == node.loads.busy_share == pytest.approx(0.125, rel=1e-12)
    assert [(each.box, round(each.busy_share, 6)) for each in node.loads.causes()] == [
        ("f1", 0.075),
        ("f0", 0.05),
    ]
    [said] = node.loads.message().fragments
    assert (said.fragment, said.busy_share) == (node.name, 125_000)
    assert (said.rows_in_per_s, said.rows_out_per_s) == (5000, 2500)


class ProcessorClock:
    """CPU time of this thread: what else runs on the machine doesn't count."""

    def monotonic_us(self) -> int:
        return time.thread_time_ns() // 1000

    now_us = monotonic_us


def test_the_cost_of_a_real_function_is_what_its_own_cpu_time_says():
    """Within 10 %, of which most is what is around the function."""
    spent = 0

    def work(batch: Any) -> Any:
        nonlocal spent
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < 500_000 * batch.num_rows:
            pass
        spent += time.thread_time_ns() - begin
        return batch

    node = Node(LoadRules(), chain(work), ProcessorClock())
    node.tell(0)
    for tick in range(1, 6):
        node.feed(*range(tick * 20, tick * 20 + 20))
        node.tell(tick * LOOK_US)
    rows, cost_us = 100, node.loads.boxes(node.name)["f0"].cost_us
    assert cost_us == pytest.approx(spent / 1000 / rows, rel=0.1)
    assert cost_us >= 500


def test_a_long_call_is_no_overload_of_the_moment_in_which_it_ends():
    """The engine tells when it has done it: then it was busy all the time, not many times over."""
    clock = md.testing.ManualClock()

    def slow(batch: Any) -> Any:
        clock.advance(8 * SECOND_US)
        return batch

    node = Node(LoadRules(), chain(slow), clock)
    node.tell(0)
    node.life.hosted._running.append(None)  # It is at work.
    for tick in range(1, 16):
        node.loads.tick(tick * LOOK_US, ())
    node.feed(1)
    node.tell(8 * SECOND_US)
    assert node.loads.busy_share == pytest.approx(1.0)


def test_the_process_and_the_engines_thread_count_too():
    node = Node(LoadRules(), chain(lambda batch: batch), md.testing.ManualClock())
    assert (node.loads.load, node.loads.cpu_share, node.loads.engine_share) == (None, None, None)
    for second in range(4):
        node.loads.used(second * SECOND_US, Usage(second * 1_200_000, second * 500_000, 7 << 20, 4))
    assert node.loads.cpu_share == pytest.approx(0.3)
    assert node.loads.engine_share == pytest.approx(0.5)
    assert node.loads.load == node.loads.engine_share
    said = node.loads.message()
    assert (said.load, said.cpu_share, said.cores, said.memory_bytes) == (500_000, 300_000, 4, 7 << 20)


def test_overload_is_reported_once_with_what_makes_it_and_once_when_it_is_over():
    clock = md.testing.ManualClock()

    def work(batch: Any) -> Any:
        clock.advance(1000 * batch.num_rows)
        return batch

    rules = LoadRules(half_life_us=SECOND_US, high_for_us=SECOND_US, low_for_us=2 * SECOND_US)
    node = Node(rules, chain(work), clock)
    node.tell(0)
    for tick in range(1, 9):  # 500 ms of work in each 500 ms.
        node.feed(*range(tick * 500, tick * 500 + 500))
        node.tell(tick * LOOK_US)
    assert node.reports() == ["overloaded cpu"]
    assert node.loads.overloaded == ["cpu"]
    assert node.loads.message().overloaded
    assert next(node.loads.causes()).box == "f0"
    for tick in range(9, 30):
        node.tell(tick * LOOK_US)
    assert node.reports() == ["not overloaded any more cpu"]
    assert node.loads.overloaded_us(0) is None


def test_of_many_fragments_the_busiest_are_told_and_the_word_is_bounded():
    most = FragmentLoad(
        fragment="q" * 129,
        busy_share=1_000 * WHOLE,
        rows_in_per_s=limits.SEQ_MAX,
        rows_out_per_s=limits.SEQ_MAX,
        bytes_out_per_s=limits.SEQ_MAX,
        queue_bytes=limits.SEQ_MAX,
    )
    whole = Load(
        load=0, overloaded=True, cpu_share=0, cores=1, memory_bytes=0, fragments=(most,) * FRAGMENTS_MAX
    )
    assert len(msgspec.msgpack.encode(whole)) < limits.HEADER_BYTES_MAX


# --- over links -------------------------------------------------------------------------------------


def test_nodes_know_the_loads_of_the_nodes_of_their_participant_a_second_late():
    three = Three()
    three.publish("e1", "a", *range(1, 200))
    three.passes(5 * SECOND_US)
    for name, node in three.federation.nodes.items():
        status = node.brain.status(node.clock.monotonic_us())
        peers = status["load"]["peers"]
        assert set(peers) == {"e1", "e2", "core"} - {name}
        assert all(0 <= said["age_us"] <= 1_300_000 for said in peers.values())
        fragments = {part for said in peers.values() for part in said["fragments"]}
        assert len(fragments) == 2
    three.federation.nodes["e2"].crash()
    three.passes(12 * SECOND_US)
    core = three.federation.nodes["core"]
    peers = core.brain.status(core.clock.monotonic_us())["load"]["peers"]
    assert set(peers) == {"e1"}, "what a dead node said doesn't count for ever"


def test_bytes_of_a_link_are_those_of_its_frames_at_both_ends():
    """What one node says that it has sent to another is what that one says has come."""
    three = Three()
    three.passes(SECOND_US)
    world = three.federation.world
    for tick in range(100):
        times = range(tick * 1000, tick * 1000 + 100)
        world.at(world.now_us + tick * 100_000, lambda times=times: three.publish("e1", "a", *times))
    three.passes(10 * SECOND_US)
    e1, core = (three.federation.nodes[name] for name in ("e1", "core"))
    sent = e1.brain.loads.links.of("core")
    came = core.brain.loads.links.of("e1")
    assert sent is not None
    assert came is not None
    assert sent[0] > 10_000
    assert sent[0] == pytest.approx(came[1], rel=0.1), "looked at at other moments"
    assert sent[1] == came[0] == 0
    link = core.brain.status(core.clock.monotonic_us())["load"]["links"]["e1"]
    assert link["bytes_in_per_s"] == came[1]
    assert link["share"] is None, "nobody said what the line carries"


def test_a_line_with_a_bandwidth_has_a_share_and_may_be_too_much():
    """One reader is sent 30,000 bytes a second over a line that carries 20,000."""
    rules = LoadRules(bandwidth={"reader": 20_000})
    node = Node(rules, chain(lambda batch: batch), md.testing.ManualClock())
    view = node.life.hosted.outputs["out"].sender.receivers["reader"]
    for tick in range(20):
        view.sent_bytes += 15_000
        node.tell(tick * LOOK_US)
    assert node.loads.links.share("reader", rules.bandwidth) == pytest.approx(1.5)
    assert node.reports() == ["overloaded link reader"]
    assert node.loads.link_status()["reader"].bandwidth == 20_000
    assert node.loads.links.out_of(node.life.hosted) == pytest.approx(30_000)


def test_how_far_a_reader_and_an_input_are_behind_is_said_of_their_links():
    """``pb`` promised a tenth of a second less than ``pa``; of 7 rows ``reader`` has all, ``slow`` 2."""
    life = Life(union())
    slow = Attach(stream="q.out", epoch=1, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True)
    life.hosted.from_reader(0, "out", "slow", slow, owner="", others=0)
    for peer, source in (("pa", "a"), ("pb", "b")):
        life.offers(peer, source)
    for value in range(7):
        while life.logs:
            life.log()
        life.publishes("pa", "a", value)
    while life.logs:
        life.log()
    life.hosted.inputs["a", "pa"].fed_us = 900_000
    life.hosted.inputs["b", "pb"].fed_us = 800_000
    readers = life.hosted.outputs["out"].sender.receivers
    readers["reader"].acked, readers["slow"].acked = 7, 2
    links = LinkLoads(1_000_000).status([life.hosted], {})
    assert {peer: (each.lag_rows, each.lag_us) for peer, each in links.items()} == {
        "pa": (0, 0),
        "pb": (0, 100_000),
        "reader": (0, 0),
        "slow": (5, 0),
    }


def test_a_load_of_a_client_or_of_another_participant_is_refused():
    node = Keyed()
    for name in ("core", "near", "reader"):
        node.hello(name)
    said = Load(load=1, overloaded=False, cpu_share=1, cores=1, memory_bytes=1)
    for name in ("core", "reader"):  # Bob's node; a client of ours.
        with pytest.raises(RemoteProtocolError) as caught:
            node.say(name, said)
        assert caught.value.code == "E_ROLE"
    assert node.brain.loads.peers == {}
    node.say("near", said)
    assert set(node.brain.loads.peers) == {"near"}


def test_another_participant_hears_nothing_of_our_load():
    node = Keyed()
    node.now_us = 900_000
    node.hello("core")
    node.hello("near")
    node.now_us = 1_100_000
    node.brain.tick(node.now_us)
    told = {each.peer for each in node.settle() if isinstance(each, Send) and isinstance(each.message, Load)}
    assert told == {"near"}


def test_who_comes_up_hears_of_our_load_at_once():
    """Before that it takes no checkpoint of what we feed at another participant."""
    node = Keyed()

    def told(*names: str, at_us: int) -> list[str]:
        """Who hears of it by the next tick, once these have come."""
        node.now_us, before = at_us, len(node.effects)
        for name in names:
            node.hello(name, incarnation=at_us)
        node.brain.tick(node.now_us)
        node.settle()
        said = node.effects[before:]
        return [each.peer for each in said if isinstance(each, Send) and isinstance(each.message, Load)]

    assert told("core", "near", at_us=700_000) == ["near"], "core is of another participant"
    assert told(at_us=800_000) == []
    assert told("core", at_us=900_000) == []
    assert told("near", at_us=950_000) == ["near"], "it was restarted"
    assert told(at_us=990_000) == []
    assert told(at_us=1_050_000) == ["near"], "and all hear when it is time"


def figures_of(busy_us: int, rows: int) -> dict[str, dict[str, Any]]:
    return {"a": {"kind": "source", "rows_in": rows, "rows_out": rows, "busy_us": busy_us}}


def test_nothing_is_said_of_a_fragment_that_has_been_known_for_a_moment():
    """A busy node is told late what the engine did, and then all at once: 80 ms of work in a millisecond."""
    node = Node(LoadRules(), chain(lambda batch: batch), md.testing.ManualClock())
    node.loads.told(0, node.name, figures_of(0, 0))
    node.loads.tick(0, ())
    node.loads.told(1_000, node.name, figures_of(80_000, 10))
    assert node.loads.fragment(node.name) is None
    node.loads.tick(LOOK_US, ())
    found = node.loads.fragment(node.name)
    assert found is not None
    assert found.busy_share == pytest.approx(80_000 / LOOK_US, rel=0.05)


def test_what_a_node_stands_by_for_is_measured_apart_and_forgotten():
    node = Node(LoadRules(), chain(lambda batch: batch), md.testing.ManualClock())
    for second in range(5):
        now_us = second * SECOND_US
        node.loads.told_followed(now_us, "other/box", figures_of(second * 200_000, second))
        node.loads.tick(now_us, ())
    assert node.loads.followed_cores() == pytest.approx(0.2)
    assert node.loads.followed_cores(["another/box"]) == pytest.approx(0.2)
    assert node.loads.followed_cores(["other/box"]) == 0
    assert node.loads.fragment("other/box") is None
    node.loads.tick(60 * SECOND_US, ())
    assert node.loads.followed_cores() == 0
