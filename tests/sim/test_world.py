"""The parts of the simulator, each alone."""

from __future__ import annotations

import msgspec
import pytest

from medusa.elements import Boundary
from medusa.errors import StateError
from medusa.nodes.node import NodeMind
from medusa.sim.actors.host import Host
from medusa.sim.actors.relay import pack_rows, unpack_rows
from medusa.sim.actors.worker import Worker
from medusa.sim.checkers.delivery import Delivered, check_receiver
from medusa.sim.scenarios import run_scenario
from medusa.sim.world.disk import Disk
from medusa.sim.world.network import Faults, Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import LostRows, ReceivedPromise, ReceivedRows
from medusa.wire.messages.links import Data, Heartbeat
from medusa.wire.outbox import Outbox, Persist, RunFragment, Send
from tests.wire.pair import SMALL, Pair


def test_events_come_by_time_then_in_the_order_of_their_making():
    world, said = World(1), []
    for name, when_us in (("c", 20), ("a", 10), ("b", 10)):
        world.at(when_us, lambda name=name: said.append((world.now_us, name)))
    assert not world.run(until_us=100, events_max=10)
    assert said == [(10, "a"), (10, "b"), (20, "c")]
    assert world.now_us == 100
    with pytest.raises(AssertionError, match="never runs back"):
        world.at(99, said.clear)


def test_a_world_without_rest_is_noticed():
    world = World(1)

    def again():
        world.after(0, again)

    again()
    with pytest.raises(SimulationError, match="livelock"):
        world.run(until_us=1, events_max=100)


def network(seed=1, **faults):
    world, came = World(seed), []
    made = Network(
        world, Faults(delay_us=100, **faults), lambda source, target, frames: came.append(frames[0])
    )
    return world, made, came


def test_a_connection_keeps_order_whatever_the_delays():
    world, net, came = network(jitter_us=5000, tail_permille=100)
    for number in range(200):
        world.at(number * 10, lambda number=number: net.send("a", "b", [number]))
    world.run(until_us=10_000_000, events_max=10_000)
    assert came == list(range(200))


def test_a_message_comes_once_more_behind_the_next_one_of_a_later_kind_that_goes_the_same_way():
    world, net, came = network()
    first, later, other = ([msgspec.msgpack.encode([tag])] for tag in ("first", "later", "other"))
    net.repeat_behind("first", "later")
    for target, frames in (("b", first), ("c", later), ("b", other), ("b", later), ("b", later)):
        net.send("a", target, frames)
    net.send("a", "b", first)
    net.heal_all()
    net.send("a", "b", later)
    world.run(until_us=1000, events_max=20)
    assert came == [each[0] for each in (first, later, other, later, first, later, first, later)]


def test_a_cut_loses_what_is_under_way_and_then_order_resumes():
    """ZeroMQ: a suffix is lost at a reconnection, never something in the middle."""
    world, net, came = network()
    for number in range(20):
        world.at(number * 50, lambda number=number: net.send("a", "b", [number]))
    world.at(510, lambda: net.cut("a", "b"))
    world.at(760, lambda: net.heal("a", "b"))
    world.run(until_us=10_000, events_max=1000)
    assert came == [*range(9), *range(16, 20)]
    assert net.lost == 7


def test_a_cut_one_way_leaves_the_other_open_and_a_short_one_loses_nothing():
    world, net, came = network()
    net.cut("a", "b")
    net.send("b", "a", ["back"])
    net.cut("c", "b", hold=True)
    net.send("c", "b", ["held"])
    world.run(until_us=1000, events_max=10)
    assert came == ["back"]
    net.heal("c", "b", hold=True)
    world.run(until_us=2000, events_max=10)
    assert came == ["back", "held"]


def test_frames_are_lost_and_repeated_as_often_as_asked():
    world, net, came = network(loss_permille=100, duplicate_permille=100)
    for number in range(2000):
        net.send("a", "b", [number])
    world.run(until_us=10_000, events_max=10_000)
    assert 100 < net.lost < 300
    repeated = len(came) - len(set(came))
    assert 100 < repeated < 300


def test_words_of_one_kind_come_late_or_once_more_and_the_others_as_before():
    world, net, came = network()
    late, other = (msgspec.msgpack.encode([tag, 7]) for tag in ("settled", "data"))
    for again, want in [(False, [other, late]), (True, [late, other, late])]:
        net.delay("settled", 5000, again=again)
        for header in (late, other):
            net.send("a", "b", [header])
        world.run(until_us=world.now_us + 10_000, events_max=10)
        assert came == want
        came.clear()
    net.delay("settled", 0)
    for header in (late, other):
        net.send("a", "b", [header])
    world.run(until_us=world.now_us + 10_000, events_max=10)
    assert came == [late, other]


def test_a_crash_loses_what_was_not_synced_and_nothing_else():
    disk = Disk("a")
    disk.write("one", {"f": b"1"})
    disk.begin("two", {"f": b"2"})
    disk.crash()
    assert not disk.sync("two")
    assert disk.names() == ["one"]
    assert disk.read("one") == {"f": b"1"}
    with pytest.raises(StateError, match="a:/two"):
        disk.read("two")
    disk.delete("one")
    disk.delete("one")
    assert disk.names() == []


def test_a_failed_write_leaves_no_group():
    disk = Disk("a")
    disk.fail_next = 1
    with pytest.raises(StateError, match="disk failed"):
        disk.write("one", {})
    assert disk.names() == []
    disk.write("one", {})
    assert disk.names() == ["one"]


class Recorder:
    """A mind that says what it is told to and remembers what happened to it."""

    def __init__(self):
        self.outbox = Outbox()
        self.log = []

    def start(self, now_us):
        self.log.append("start")

    def receive(self, now_us, peer, message, payload):
        self.log.append((now_us, peer, message))

    def tick(self, now_us):
        self.log.append(("tick", now_us))

    def persisted(self, now_us, token, ok):
        self.log.append(("persisted", now_us, token, ok))


@pytest.fixture
def hosts():
    world = World(1)
    hosts = {}
    net = Network(world, Faults(delay_us=100), lambda s, t, frames: hosts[t].deliver(s, frames))
    minds = {name: [] for name in "ab"}
    for name in "ab":

        def make(disk, life, name=name):
            minds[name].append(Recorder())
            return minds[name][-1]

        hosts[name] = Host(world, net, name, make, sync_us=1000)
        hosts[name].start()
    return world, hosts, minds


def test_a_send_waits_for_the_write_it_names(hosts):
    world, hosts, minds = hosts
    mind = minds["a"][0]

    def speak(now_us):
        mind.outbox.append(Persist(token=7, fragment="f", files={"x": b"1"}))
        mind.outbox.append(Send(peer="b", message=Heartbeat(incarnation=2), after=7))
        mind.outbox.send("b", Heartbeat(incarnation=1))

    hosts["a"].call(speak)
    world.run(until_us=10_000, events_max=100)
    came = [(entry[0], entry[2].incarnation) for entry in minds["b"][0].log[1:]]
    assert came == [(100, 1), (1100, 2)]
    assert ("persisted", 1000, 7, True) in mind.log


def test_a_failed_write_drops_what_waited_for_it(hosts):
    world, hosts, minds = hosts
    hosts["a"].disk.fail_next = 1
    mind = minds["a"][0]

    def speak(now_us):
        mind.outbox.append(Persist(token=7, fragment="f", files={}))
        mind.outbox.append(Send(peer="b", message=Heartbeat(incarnation=2), after=7))

    hosts["a"].call(speak)
    world.run(until_us=10_000, events_max=100)
    assert minds["b"][0].log == ["start"]
    assert ("persisted", 1000, 7, False) in mind.log


def test_a_crash_forgets_wakes_and_writes_and_the_next_life_is_another_mind(hosts):
    world, hosts, minds = hosts
    mind = minds["a"][0]

    def speak(now_us):
        mind.outbox.wake_at(500)
        mind.outbox.append(Persist(token=1, fragment="f", files={}))

    hosts["a"].call(speak)
    world.run(until_us=200, events_max=10)
    hosts["a"].crash()
    world.run(until_us=300, events_max=10)
    hosts["a"].start()
    world.run(until_us=5000, events_max=100)
    assert mind.log == ["start"]
    assert minds["a"][1].log == ["start"]
    assert hosts["a"].disk.names() == []
    assert hosts["a"].lives == 2


def test_a_pause_delays_everything_and_loses_nothing(hosts):
    world, hosts, minds = hosts
    mind = minds["a"][0]
    hosts["a"].call(lambda now_us: mind.outbox.wake_at(300))
    hosts["a"].pause(2000)
    hosts["b"].call(lambda now_us: minds["b"][0].outbox.send("a", Heartbeat(incarnation=3)))
    world.run(until_us=10_000, events_max=100)
    assert [entry[0] for entry in mind.log[1:]] == [2000, "tick"]


def test_a_frame_that_breaks_a_rule_is_counted_not_fatal(hosts):
    world, hosts, _ = hosts
    hosts["a"].deliver("b", [b"\xc1"])
    assert hosts["a"].refused == 1
    assert "E_FRAME" in world.lines[-1]


def test_a_host_without_an_engine_runs_no_fragment(hosts):
    _, hosts, minds = hosts
    effect = RunFragment(fragment="f", stream="s", element=Boundary(1))
    with pytest.raises(AssertionError, match="runs no fragments"):
        hosts["a"].call(lambda now_us: minds["a"][0].outbox.append(effect))


# --- the checkers notice what they are for ------------------------------------------------------


def rows(seq, *values):
    message = Data(stream="s", epoch=1, frame=1, seq=seq, rows=len(values))
    return ReceivedRows(message=message, payload=pack_rows(list(values)), skip=0, seq=seq, cost=1)


def delivered(**changes):
    return Delivered("r", [10, 20, 30], lambda each: unpack_rows(each.payload), **changes)


def test_delivered_takes_what_is_right():
    ends = delivered()
    for each in (rows(0, 10), ReceivedPromise(time_us=15, cost=0), rows(1, 20, 30)):
        assert not ends.complete
        ends.take(each)
    assert ends.complete


@pytest.mark.parametrize(
    ("deliveries", "says"),
    [
        ([rows(0, 10), rows(0, 10)], "row 0 came, row 1 is next"),
        ([rows(1, 20)], "row 1 came, row 0 is next"),
        ([rows(0, 11)], "not the expected"),
        ([rows(0, 10, 20, 30, 40)], "not the expected"),
        ([ReceivedPromise(time_us=11, cost=0), rows(0, 10)], "below the promise"),
        ([ReceivedPromise(time_us=11, cost=0), ReceivedPromise(time_us=11, cost=0)], "promise 11 after 11"),
        ([LostRows(from_seq=0, to_seq=1)], "reported lost"),
    ],
)
def test_delivered_notices(deliveries, says):
    ends = delivered()
    *fine, wrong = deliveries
    for each in fine:
        ends.take(each)
    with pytest.raises(SimulationError, match=says):
        ends.take(wrong)


def test_delivered_allows_exactly_what_was_reported_lost():
    ends = delivered(lost_ok=True)
    ends.take(LostRows(from_seq=0, to_seq=2))
    with pytest.raises(SimulationError, match="reported lost"):
        ends.take(LostRows(from_seq=0, to_seq=2))
    ends.take(rows(2, 30))
    assert (ends.complete, ends.lost) == (True, 2)


def test_a_receiver_beyond_its_window_is_noticed():
    pair = Pair().up()
    check_receiver("r", pair.receiver)
    pair.receiver.held_bytes = SMALL.window_bytes + 1
    with pytest.raises(SimulationError, match="window"):
        check_receiver("r", pair.receiver)
    pair.receiver.held_bytes = 0
    pair.receiver.durable_seq = 5
    with pytest.raises(SimulationError, match="durable"):
        check_receiver("r", pair.receiver)
    pair.receiver.peer_event(0, LinkEvent.PEER_DOWN)


class Place:
    """A machine that never dies."""

    def __init__(self, world: World) -> None:
        self.world, self.slowness = world, 1

    def in_this_life(self, call):
        return call


def done_at(changes, *, jobs=100, job_us=1000, seed=1):
    """When each job is done that a worker is given at once, where its machine's slowness changes at times."""
    world = World(seed)
    place, done = Place(world), []
    worker = Worker(place, job_us, world.dice("jobs"))

    def slow_down(times):
        before, place.slowness = place.slowness, times
        worker.slows_down(before, times)

    for at_us, times in changes:
        world.at(at_us, lambda times=times: slow_down(times))
    world.at(1, lambda: [worker.give(lambda: done.append(world.now_us)) for _ in range(jobs)])
    world.run(until_us=100_000_000, events_max=10_000)
    assert worker.free_us == done[-1]
    assert worker.cpu_us() == done[-1] - 1
    return [each - 1 for each in done]


def test_a_machine_that_is_slow_no_more_does_what_waits_as_fast_as_ever():
    """Else what was given to it while it was slow would take as long as if it were slow for ever."""
    usual = done_at([])
    assert len(usual) == 100
    slow_until_us = 50_001
    slow = done_at([(0, 30), (slow_until_us, 1)])
    assert len(slow) == 100
    was_done = (slow_until_us - 1) // 30
    for at_us, usually_us in zip(slow, usual, strict=True):
        if usually_us * 30 < slow_until_us:
            assert at_us == usually_us * 30
        else:  # A unit of time is lost where a part of one was done.
            assert at_us == pytest.approx(slow_until_us + usually_us - was_done, abs=2)


def test_a_machine_that_becomes_slow_is_so_in_what_waits_too():
    usual, slow = done_at([]), done_at([(20_001, 7)])
    assert [each for each in slow if each <= 20_000] == [each for each in usual if each <= 20_000]
    assert slow[-1] == 20_000 + 7 * (usual[-1] - 20_000)


def test_a_node_that_always_wants_to_be_woken_at_once_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was only noticed by two million events, minutes later: most such runs end before that."""
    wakes = NodeMind.wake_at_us

    def hasty(mind: NodeMind, now_us: int) -> int:
        return now_us if mind.settings.name == "core" and now_us > 300_000 else wakes(mind, now_us)

    monkeypatch.setattr(NodeMind, "wake_at_us", hasty)
    outcome = run_scenario("nodes", 0, only=[])
    assert outcome.violation == "SimulationError: spins: core wants to be woken at once, again and again"
    assert outcome.events < 20_000


def test_a_thread_has_used_no_more_than_has_gone_by() -> None:
    """What a slow machine was given counted at once: a node of three threads took eleven cores, and its owner
    sold load for as long as that was in its means (seeds 177 and 207 of ``trading``)."""
    world = World(1)
    place = Place(world)
    place.slowness = 30
    worker, done = Worker(place, 20_000, world.dice("worker")), []
    assert worker.cpu_us() == 0
    for number in range(5):
        worker.give(lambda number=number: done.append(number))
    given_us = worker.free_us
    assert worker.cpu_us() == 0
    world.run(until_us=given_us // 2, events_max=10)
    assert worker.cpu_us() == given_us // 2
    world.run(until_us=2 * given_us, events_max=10)
    assert done == [0, 1, 2, 3, 4]
    assert worker.cpu_us() == given_us
