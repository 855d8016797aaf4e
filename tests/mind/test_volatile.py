"""A node with ``store = "memory"``: what is missing after it died is what it says, row for row."""

from __future__ import annotations

import msgspec
import pytest

from medusa.mind.volatile import Cut, Seal
from medusa.sim.network import Faults
from medusa.wire import limits
from tests.mind.volatile_run import Run, Shape

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
    run.kill(*["m"] * (seed % 4), *(["e", "c"] if bad else []))
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


# --- notes ----------------------------------------------------------------------------------------


CUT = Cut(
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
    assert Seal(b"k").cut(Seal(b"k").note(CUT), "q/f") == CUT
    assert CUT.input_at("a", "e") == 10
    assert CUT.input_at("a", "pub-1") is None
    assert (CUT.output_at("out"), CUT.output_at("other")) == (5, 0)


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"x" * 16,
        Seal(b"other").note(CUT),
        Seal(b"k").note(CUT)[:-1],
        Seal(b"k").note(CUT) + b"\0",
        Seal(b"k").note(msgspec.structs.replace(CUT, fragment="q/g")),
        Seal(b"k").note(msgspec.structs.replace(CUT, version=2)),
    ],
)
def test_a_note_that_is_not_ours_says_nothing(note):
    assert Seal(b"k").cut(note, "q/f") is None


def test_a_bit_turned_over_is_noticed():
    note = Seal(b"k").note(CUT)
    for place in range(len(note)):
        damaged = bytearray(note)
        damaged[place] ^= 1
        assert Seal(b"k").cut(bytes(damaged), "q/f") is None


def test_a_note_that_is_too_long_is_not_sent():
    many = tuple(("b", f"pub-{number:0200}", 1) for number in range(100))
    assert Seal().note(msgspec.structs.replace(CUT, inputs=many)) == b""
    assert len(Seal().note(CUT)) < limits.NOTE_BYTES_MAX // 100
