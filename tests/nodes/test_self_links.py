"""Neighbours on one node: what a node sends to itself comes as over any link, whatever dies."""

from __future__ import annotations

from random import Random

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.errors import QueryError, RemoteProtocolError
from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import SentToItself, Started
from medusa.nodes.spec.fragment_spec import check_fragment
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import OWN_MAX, NodeLoop
from medusa.sim.scenarios import run_scenario
from medusa.sim.trials.colocated import ColocatedTrial, merged
from medusa.sim.trials.queries import QueryOptions
from medusa.sim.world.clock import LocalClock
from medusa.sim.world.virtual_time import World
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.messages.links import Detach, Refuse
from medusa.wire.outbox import Outbox, Send

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def rows(seed: int, count: int = 300) -> pa.Table:
    dice = Random(seed)
    times = sorted(dice.randrange(10_000_000) for _ in range(count))
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": pa.array([dice.choice("abc") for _ in times]),
            "v": pa.array([dice.randrange(-100, 100) for _ in times]),
        }
    )


STEPS = {
    "filter": lambda stream, name: stream.filter("v > -90", name=name),
    "plus": lambda stream, name: stream.with_columns(v="v + 1", name=name),
    "window": lambda stream, name: (
        stream.window("500ms").group_by("k").aggregate(v=md.sum("v"), name=f"{name}w")
    ),
}


def chain(steps: list[str]) -> tuple[md.Query, list[str]]:
    """A query of one box behind the other, and their names; a window is the last."""
    q = md.Query("q")
    stream = q.source("flows", SCHEMA, time="ts")
    names = ["flows"]
    for place, step in enumerate(steps):
        stream = STEPS[step](stream, f"b{place}")
        names.append(f"b{place}w" if step == "window" else f"b{place}")
    q.sink("out", stream)
    return q, [*names, "out"]


def parts_of(names: list[str], cuts: set[int]) -> dict[str, list[str]]:
    """Neighbours that go over to another node at each cut."""
    parts: dict[str, list[str]] = {"p0": []}
    for place, name in enumerate(names):
        if place in cuts and place < len(names) - 1:
            parts[f"p{place}"] = []
        parts[[*parts][-1]].append(name)
    return parts


def trial(q: md.Query, parts: dict[str, list[str]], *, seed: int, crashes_us: list[int]) -> ColocatedTrial:
    """The query on one node, which dies so often."""
    world = World(seed, name="together")
    made = ColocatedTrial(
        world,
        q,
        {"flows": rows(seed % 7)},
        QueryOptions(at={"n": [box.id for box in q.graph.boxes]}, limits=Limits(checkpoint_every_us=100_000)),
        cuts=parts,
        homes=dict.fromkeys(parts, "n"),
    )
    made.start()
    for at_us in crashes_us:
        world.after(at_us, made.nodes["n"].crash)
        world.after(at_us + 60_000, made.nodes["n"].restart)
    return made


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.sampled_from(["filter", "plus"]), min_size=1, max_size=3),
    st.booleans(),
    st.sets(st.integers(1, 4), min_size=1),
    st.integers(0, 1 << 30),
    st.lists(st.integers(250_000, 2_200_000), max_size=3),
)
def test_a_chain_cut_in_pieces_on_one_node_gives_what_one_program_gives(steps, window, cuts, seed, crashes):
    q, names = chain([*steps, "window"] if window else steps)
    made = trial(q, parts_of(names, cuts), seed=seed, crashes_us=crashes)
    assert made.run(lambda: made.ended), made.last()
    made.check_end()
    for hosted in made.nodes["n"].brain.fragments.values():
        for input in hosted.inputs.values():
            assert input.receiver.lost_rows == 0


@pytest.mark.parametrize("seed", [1, 3, 4, 6, 7])
def test_under_all_faults(seed):
    outcome = run_scenario("selflinks", seed)
    assert outcome.ok, str(outcome)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize("block", range(10))
def test_more_seeds(block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        outcome = run_scenario("selflinks", seed)
        assert outcome.ok, str(outcome)


def running() -> ColocatedTrial:
    q, names = chain(["filter", "plus"])
    made = trial(q, parts_of(names, {1, 2}), seed=1, crashes_us=[])
    assert made.run(lambda: made.reader.rows.get("q.out")), made.last()
    return made


def test_it_goes_by_no_connection_and_has_credit_and_places_in_checkpoints_as_any_link():
    made = running()
    sent = made.network.sent
    brain = made.nodes["n"].brain
    streams = {feed.stream for spec in brain.catalog.fragments.values() for feed in spec.feeds}
    assert streams == {"q.flows", "q.b0"}
    inputs = [input for hosted in brain.fragments.values() for input in hosted.inputs.values()]
    own = [input.receiver for input in inputs if input.peer == "n"]
    assert [receiver.state for receiver in own] == [ReceiverState.FLOWING] * 2
    assert made.run(lambda: made.ended)
    assert all(receiver.durable_seq > 0 for receiver in own)
    assert made.network.sent > sent, "clients are elsewhere"
    assert "n" not in brain.sessions
    assert made.run(lambda: all(receiver.durable_seq == receiver.next_seq for receiver in own))
    for hosted in brain.fragments.values():
        for output in hosted.outputs.values():
            if output.stream in streams:
                assert output.sender.receivers["n"].durable == output.sender.log.next_seq


class Counting:
    """A brain that answers each message to itself with three more, up to a bound."""

    def __init__(self) -> None:
        self.settings = Settings(name="n", listen="tcp://*:1", data="d", peers={})
        self.outbox = Outbox()
        self.taken = 0
        self.depth = 0

    def say(self, count: int) -> None:
        for _ in range(count):
            self.outbox.append(Send(peer="n", message=Detach(stream="s", epoch=1)))

    def report(self, now_us, report):
        if not isinstance(report, SentToItself):
            return
        assert self.depth == 0, "a message is taken while another one is"
        self.depth += 1
        self.taken += 1
        if self.taken < 1000:
            self.say(3)
        self.depth -= 1
        if self.taken == 5:
            raise RemoteProtocolError("a rule", code="E_SEQ")

    def wake_at_us(self, now_us):
        return now_us + 1

    def __getattr__(self, name):
        return lambda *args, **named: None


class Quiet:
    """Links and fragments where nothing happens; ``wake`` is counted."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self):
        self.woken += 1

    def handled(self):
        pass

    def finished(self):
        return []

    def door(self):
        return {}


def test_a_turn_takes_so_many_of_a_nodes_words_to_itself_and_no_more():
    brain, quiet, told = Counting(), Quiet(), []
    loop = NodeLoop(
        brain, quiet, quiet, LocalClock(World(1)), parser=GraphParser(wake=quiet.wake), say=told.append
    )
    brain.say(1)
    loop.begin()
    turns = []
    while quiet.woken:
        quiet.woken = 0
        before = brain.taken
        loop.turn(())
        turns.append(brain.taken - before)
    assert turns[:4] == [1, 3, 9, 27], "what one makes it send waits for the next turn"
    assert max(turns) == OWN_MAX
    assert sum(turns) > 1000
    assert [report.what for report in told] == ["own message refused"]
    assert loop.refused == 1


def test_only_one_end_of_a_link_with_itself_hears_a_refusal():
    made = running()
    brain = made.nodes["n"].brain
    hosted = next(h for h in brain.fragments.values() if any(i.peer == "n" for i in h.inputs.values()))
    input = next(i for i in hosted.inputs.values() if i.peer == "n")
    sender = next(
        o.sender for h in brain.fragments.values() for o in h.outputs.values() if o.stream == input.stream
    )
    view = sender.receivers["n"]
    by_sender = Refuse(code="E_CUT_OFF", text="", stream=input.stream, epoch=view.epoch)
    brain.report(made.world.now_us, SentToItself(by_sender, None))
    assert input.receiver.state is ReceiverState.REFUSED
    assert view.state is SenderState.FLOWING
    brain.report(made.world.now_us, SentToItself(by_sender, None))
    assert view.state is SenderState.DETACHED, "the input rests: now it is its word"


# --- what may be a link with oneself ----------------------------------------------------------------


def test_a_fragment_reads_no_stream_of_its_own():
    q, names = chain(["filter", "plus"])
    plan = merged(cut(q.graph, parts_of(names, {1, 2})), {"p0": "n", "p1": "n", "p2": "n"})
    for fragment in plan.fragments:
        check_fragment(fragment)
    middle = plan.fragments[1]
    [stream] = middle.streams.values()
    [feed] = middle.feeds
    round_ = msgspec.structs.replace(middle, feeds=(msgspec.structs.replace(feed, stream=stream),))
    with pytest.raises(QueryError, match="reads a stream that it puts out"):
        check_fragment(round_)


def test_a_node_without_a_disk_has_no_link_with_itself():
    """Both of its ends would forget."""
    q, names = chain(["filter"])
    plan = merged(cut(q.graph, parts_of(names, {1})), {"p0": "n", "p1": "n"})
    brain = NodeMind(Settings(name="n", listen="tcp://*:1", data="", store="memory", peers={}), incarnation=1)
    brain.report(0, Started())
    brain.coordinator.deploy(0, "client", 1, plan)
    answers = [e.message for e in brain.outbox.take() if isinstance(e, Send) and e.peer == "client"]
    assert [answer.code for answer in answers] == ["E_STORE"]
    assert not brain.fragments
