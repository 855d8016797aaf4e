"""A node with ``store = "memory"``: what is missing after it died is what it says, row for row."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.nodes.diskless.sealed_cuts import CutSealer, SealedCut
from medusa.sim.actors.client import Client
from medusa.sim.actors.federation import Federation
from medusa.sim.world.network import Faults
from medusa.wire import limits
from medusa.wire.messages.links import NOW
from tests.nodes.volatile_run import SCHEMA, Run, Shape

SHAPES = {
    "between nodes": Shape(),
    "behind a filter": Shape(filtered=True),
    "clients at both ends": Shape(entry=True, read=True),
    "two publishers": Shape(entry=True, publishers=2),
    "a union": Shape(union=True),
    "two outputs": Shape(sinks=2),
    "row by row": Shape(windows=False),
    "row by row behind a union": Shape(windows=False, union=True, read=True),
}


def check(run: Run) -> None:
    outcome = run.outcome()
    assert not outcome.unknown, outcome
    assert outcome.want - outcome.came == outcome.told, outcome
    assert not outcome.reader_lost


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", range(1))
def test_what_is_missing_is_what_is_told(shape, seed):
    run = Run(seed, shape, rows=400)
    run.kill("m", "m")
    check(run)


@pytest.mark.full
@pytest.mark.issue(5)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", range(100, 125))
def test_what_is_missing_is_what_is_told_often(shape, seed):
    bad = seed % 2 == 0 and shape.publishers == 1 and not shape.union
    run = Run(seed, shape, faults=Faults(jitter_us=5000, loss_permille=10) if bad else None)
    run.kill(*["m"] * (seed % 4), *(["e"] if bad else []))
    check(run)


def test_nothing_is_lost_where_nobody_dies():
    run = Run(3, Shape(), rows=200)
    outcome = run.outcome()
    assert (outcome.came, outcome.told, outcome.reports) == (outcome.want, 0, [])


def test_windows_lose_rows_and_say_so():
    """Else the other tests would compare nothing with nothing."""
    run = Run(5, Shape(), rows=400)
    run.kill("m", "m")
    outcome = run.outcome()
    assert outcome.told > 0
    assert sum(report["rows"] for report in outcome.reports) == outcome.told


def test_the_last_life_dies_before_it_left_a_word():
    """Two deaths in a row: what the first lost is told once."""
    run = Run(6, Shape(), rows=400)
    world, node = run.federation.world, run.federation.nodes["m"]
    for after_us in (1_200_000, 1_260_000, 1_300_000, 1_320_000):
        world.after(after_us, node.crash)
        world.after(after_us + 10_000, node.restart)
    check(run)


@pytest.mark.parametrize("seed", range(2))
def test_its_reader_cannot_be_reached_meanwhile(seed):
    """What the reader has isn't put out under other numbers, and what it hasn't comes again."""
    run = Run(20 + seed, Shape(windows=bool(seed)), rows=400)
    world, network, node = run.federation.world, run.federation.network, run.federation.nodes["m"]

    def cut() -> None:
        network.cut("m", "c")
        network.cut("c", "m")

    world.after(1_000_000, cut)
    world.after(1_000_000 + 400_000 * seed + 5_000, node.crash)
    world.after(1_450_000, node.restart)
    world.after(2_600_000, network.heal_all)
    check(run)


def test_it_waits_for_a_reader_that_has_more_than_upstream_knows():
    run = Run(30, Shape(), rows=400, asked="e")
    network, nodes = run.federation.network, run.federation.nodes
    (link,) = next(iter(nodes["c"].brain.fragments.values())).inputs.values()
    assert run.federation.run(lambda: link.receiver.next_seq >= 20)
    nodes["m"].crash()
    network.cut("m", "c")
    network.cut("c", "m")
    nodes["m"].restart()
    run.federation.run(for_us=700_000)
    (status,) = nodes["m"].brain.status(0)["fragments"]
    assert status["rows_in"] == 0
    network.heal_all()
    check(run)


def test_it_forgets_what_it_runs_and_is_told_again():
    run = Run(7, Shape(), rows=100)
    node = run.federation.nodes["m"]
    assert "q/per_k" in node.brain.fragments
    node.crash()
    node.restart()
    assert not node.brain.fragments
    check(run)
    assert "q/per_k" in node.brain.fragments


def test_a_node_with_a_disk_and_one_without_die_together():
    run = Run(8, Shape(), rows=400)
    world = run.federation.world
    for name in ("m", "c"):
        world.after(1_300_000, run.federation.nodes[name].crash)
        world.after(1_400_000, run.federation.nodes[name].restart)
    outcome = run.outcome()
    assert outcome.want - outcome.came >= outcome.told, "what c had only in memory is told by c"
    lost = run.federation.nodes["c"].brain.status(0)["lost_rows"]
    assert (outcome.want - outcome.came == outcome.told) is (lost == 0)


def alone(q: md.Query, seed: int = 1) -> tuple[Federation, Client, Client, Client]:
    """One memory node, which coordinates its own query; who deploys, who publishes, who reads."""
    federation = Federation(seed, ["m"], memory=["m"])
    federation.start()
    federation.run(for_us=2_100_000)  # So long it waits for clients of an earlier life.
    made = [federation.client(name, "m") for name in ("deployer", "pub", "reader")]
    assert federation.answer(made[0], made[0].deploy(q, {"m": ["rows"]}))[0].code == ""
    made[2].read("q.out")
    return federation, *made


def columns(q: md.Query):
    return next(box.schema for box in q.graph.boxes if box.id == "rows")


def rows(first: int, count: int) -> pa.Table:
    """One every 100 ms."""
    times = range(first * 100_000, (first + count) * 100_000, 100_000)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": ["a"] * count,
            "v": pa.array([1] * count, pa.int64()),
        }
    )


def test_deployed_again_by_hand_it_goes_on_where_its_clients_know():
    """Its own deployments are forgotten too; nobody else has them."""
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="ts")
    q.sink("out", source.window("1s").aggregate(n=md.count(), name="w"))
    federation, deployer, publisher, reader = alone(q)
    publisher.publish("q.rows", rows(0, 25), columns(q))
    federation.run(for_us=1_000_000)
    federation.nodes["m"].crash()
    federation.nodes["m"].restart()
    publisher.publish("q.rows", rows(25, 10), columns(q))
    federation.run(for_us=1_000_000)
    assert publisher.mind.publications["q.rows"].refusal is None
    assert federation.answer(deployer, deployer.deploy(q, {"m": ["rows"]}))[0].code == ""
    publisher.finish("q.rows", columns(q))
    assert federation.run(lambda: bool(reader.ended)), federation.last()
    (status,) = federation.nodes["m"].brain.status(0)["fragments"]
    came = [n for each in reader.rows["q.out"] for n in each.column("n").to_pylist()]
    assert came == [10, 10, 5, 5], "of the third window the first half died"
    assert (status["lost_rows"], status["lost_unknown"]) == (5, False)
    assert not reader.lost


def test_what_was_late_stays_late():
    """Else a window that has left would open again."""
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="ts")
    q.sink("out", source.window("1s").aggregate(n=md.count(), name="w"))
    federation, deployer, publisher, reader = alone(q)
    publisher.publish("q.rows", rows(0, 25), columns(q))
    federation.run(for_us=1_000_000)
    federation.nodes["m"].crash()
    federation.nodes["m"].restart()
    assert federation.answer(deployer, deployer.deploy(q, {"m": ["rows"]}))[0].code == ""
    publisher.publish("q.rows", rows(3, 1), columns(q))
    publisher.publish("q.rows", rows(25, 10), columns(q))
    publisher.finish("q.rows", columns(q))
    assert federation.run(lambda: bool(reader.ended)), federation.last()
    assert [n for each in reader.rows["q.out"] for n in each.column("n").to_pylist()] == [10, 10, 5, 5]
    federation.run(for_us=1_000_000)
    (status,) = federation.nodes["m"].brain.status(0)["fragments"]
    assert (status["late"], status["lost_rows"]) == (1, 5)


def test_where_nobody_can_say_it_is_said():
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="ts")
    q.sink("out", source.group_by("k").running(n=md.count(), name="so_far"))
    federation, deployer, publisher, _ = alone(q)
    publisher.publish("q.rows", rows(0, 25), columns(q))
    federation.run(for_us=1_000_000)
    (status,) = federation.nodes["m"].brain.status(0)["fragments"]
    assert (status["uncounted"], status["lost_unknown"]) == (["so_far"], False)
    federation.nodes["m"].crash()
    federation.nodes["m"].restart()
    assert federation.answer(deployer, deployer.deploy(q, {"m": ["rows"]}))[0].code == ""
    federation.run(for_us=12_000_000)
    (status,) = federation.nodes["m"].brain.status(0)["fragments"]
    assert (status["lost_rows"], status["lost_unknown"]) == (0, True)
    why = [r.fields["why"] for r in federation.nodes["m"].reports if "nobody knows" in r.what]
    assert why == ["nobody can say how many rows so_far held"]


def test_no_name_for_rows_that_nobody_keeps():
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts").filter("v > 0", name="f"))
    federation, _, _, reader = alone(q)
    reader.do(lambda mind: mind.unsubscribe(federation.world.now_us, "q.out"))
    reader.do(lambda mind: mind.subscribe(federation.world.now_us, "q.out", NOW, name="report"))
    federation.run(for_us=500_000)
    refusal = reader.mind.subscriptions["q.out"].receiver.refusal
    assert refusal is not None
    assert refusal.code == "E_STORE"


# --- notes ----------------------------------------------------------------------------------------


CUT = SealedCut(
    fragment="q/f",
    life=7,
    number=3,
    inputs=(("a", "e", 10), ("b", "pub-1", 4)),
    outputs=(("out", 5),),
    held=2,
    lost=1,
    unknown=False,
    readers=("reader",),
    promises=(("b", 99),),
)


def test_a_note_says_what_the_cut_said():
    assert CutSealer(b"k").cut(CutSealer(b"k").note(CUT), "q/f") == CUT
    assert CUT.input_at("a", "e") == 10
    assert CUT.input_at("a", "pub-1") is None
    assert (CUT.output_at("out"), CUT.output_at("other")) == (5, 0)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"x" * 16,
        CutSealer(b"other").note(CUT),
        CutSealer(b"k").note(CUT)[:-1],
        CutSealer(b"k").note(CUT) + b"\0",
        CutSealer(b"k").note(msgspec.structs.replace(CUT, fragment="q/g")),
        CutSealer(b"k").note(msgspec.structs.replace(CUT, version=2)),
    ],
)
def test_a_note_that_is_not_ours_says_nothing(note):
    assert CutSealer(b"k").cut(note, "q/f") is None


def test_a_bit_turned_over_is_noticed():
    note = CutSealer(b"k").note(CUT)
    for place in range(len(note)):
        damaged = bytearray(note)
        damaged[place] ^= 1
        assert CutSealer(b"k").cut(bytes(damaged), "q/f") is None


def test_of_one_source_a_note_is_as_before_rows_were_counted_by_source():
    """So nodes of two releases take each other's, but for fragments of several sources."""
    data = CutSealer().note(CUT)[16:]
    fields = msgspec.structs.asdict(CUT)
    assert not fields.pop("sources")
    assert not fields.pop("unread")
    assert data == msgspec.msgpack.encode([*fields.values()])


BY_SOURCE = msgspec.structs.replace(CUT, held=3, lost=8, sources=(("a", 1, 8), ("b", 2, 0)))


def test_a_cut_says_what_is_lost_by_source():
    assert CutSealer().cut(CutSealer().note(BY_SOURCE), "q/f") == BY_SOURCE
    assert BY_SOURCE.lost_after(("a", "b")) == {"a": 9, "b": 2}
    assert sum(BY_SOURCE.lost_after(("a", "b")).values()) == BY_SOURCE.held + BY_SOURCE.lost
    one = msgspec.structs.replace(CUT, inputs=(("a", "e", 10),), held=-1, lost=8)
    assert one.lost_after(("a",)) == {"a": 8}
    assert msgspec.structs.replace(CUT, held=3, lost=8).lost_after(("a", "b")) == {}, "an earlier release"
    # Whoever published into b is gone, so that only a has an input: what b lost stays b's.
    gone = msgspec.structs.replace(BY_SOURCE, inputs=(("a", "e", 10),))
    assert gone.lost_after(("a", "b")) == {"a": 9, "b": 2}


def test_where_it_does_not_fit_a_note_says_nothing_of_sources():
    many = tuple((f"a source with a long name {number:0100}", 1, 1) for number in range(200))
    note = CutSealer().note(msgspec.structs.replace(BY_SOURCE, sources=many))
    assert CutSealer().cut(note, "q/f") == msgspec.structs.replace(BY_SOURCE, sources=())


def test_a_note_that_is_too_long_is_not_sent():
    many = tuple(("b", f"pub-{number:0200}", 1) for number in range(100))
    assert CutSealer().note(msgspec.structs.replace(CUT, inputs=many)) == b""
    assert len(CutSealer().note(CUT)) < limits.NOTE_BYTES_MAX // 100
