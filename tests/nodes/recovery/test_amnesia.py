"""Recovered by amnesia: whoever takes over begins empty, no row comes twice, what is lost is counted."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from medusa.nodes.diskless.host import MemoryOnlyFragmentHost
from medusa.nodes.diskless.sealed_cuts import CutSealer, SealedCut
from medusa.nodes.spec.fragment_spec import NOTE_KEY_BYTES
from medusa.runtime.engine_host.group_names import GroupName
from medusa.sim.world.network import Faults
from medusa.wire.messages.links import NOW
from medusa.wire.messages.split import Split
from tests.nodes.recovery.amnesia_run import CHAINS, KINDS, WAIT_US, AmnesiaRun, by_amnesia
from tests.nodes.taken_over import PIECE, ROWS
from tests.nodes.test_handovers import moved

HALF = ROWS // 2 // PIECE * PIECE
FULL = pytest.mark.full, pytest.mark.issue(18)


@pytest.fixture(autouse=True)
def _by_amnesia(monkeypatch: pytest.MonkeyPatch) -> None:
    by_amnesia(monkeypatch)


def cut_off(run: AmnesiaRun, name: str, others: list[str]) -> None:
    for other in others:
        run.fed.network.cut(name, other)
        run.fed.network.cut(other, name)


def amid_rows(kind: str, *, after_us: int = 100_000, **more: object) -> AmnesiaRun:
    """All rows are on their way, and so much time has passed since the first."""
    run = AmnesiaRun(kind, **more)  # type: ignore[arg-type]
    run.publish()
    run.fed.run(for_us=after_us)
    return run


# --- what is missing is what is counted ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS | CHAINS)
def test_what_is_missing_is_what_is_counted(kind: str) -> None:
    run = amid_rows(kind)
    run.lose("m")
    run.until_owned(run.fragment, "s1")
    run.check_gap()


def test_windows_lose_the_rows_that_they_held() -> None:
    """Else the other tests would compare nothing with nothing."""
    run = amid_rows("windows behind a union")
    run.lose("m")
    assert run.check_gap() > 0
    assert all(rows > 0 for rows in run.told_by().values()), "of both sources"
    lost = [report.fields for report in run.fed.nodes["s1"].reports if report.what == "rows lost"]
    assert [each["rows"] for each in lost] == [run.status()["lost_rows"]]


@pytest.mark.parametrize("kind", ["row by row", "a union"])
def test_what_passes_rows_on_loses_none(kind: str) -> None:
    run = amid_rows(kind)
    run.lose("m")
    assert run.check_gap() == 0


@pytest.mark.parametrize("after_us", [0, 3_000, 60_000])
def test_what_the_first_lost_is_told_once_by_the_second(after_us: int) -> None:
    run = amid_rows("windows")
    run.lose("m")
    run.until_owned(run.fragment, "s1")
    run.fed.run(for_us=after_us)
    run.lose("s1")
    run.until_owned(run.fragment, "s2")
    run.check_gap()


def lost_twice(after_us: int) -> int:
    """The owner is lost, and its successor soon after it began."""
    run = amid_rows("windows", after_us=after_us)
    run.lose("m")
    run.until_owned(run.fragment, "s1")
    run.until(run.begun, "it begins")
    run.fed.run(for_us=60_000)
    run.lose("s1")
    run.until_owned(run.fragment, "s2")
    return run.check_gap()


def test_a_gap_that_is_counted_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: whoever takes over counts what the cut says as lost already once more."""
    assert lost_twice(80_000) > 0
    honest = MemoryOnlyFragmentHost._start

    def wrong(self: MemoryOnlyFragmentHost, now_us: int) -> None:
        honest(self, now_us)
        self.known_lost += self._base.lost if self._base is not None else 0

    monkeypatch.setattr(MemoryOnlyFragmentHost, "_start", wrong)
    with pytest.raises(AssertionError, match="counted"):
        lost_twice(80_000)


def lost_together(kind: str, lost: str) -> int:
    run = amid_rows(kind, after_us=80_000)
    for node in lost:
        run.lose(node)
    return run.check_gap()


@pytest.mark.parametrize("lost", ["em", "mc", "emc"])
@pytest.mark.parametrize("kind", CHAINS)
def test_neighbours_that_are_lost_together_begin_where_the_last_reader_knows(kind: str, lost: str) -> None:
    lost_together(kind, lost)


def test_cuts_that_say_nothing_of_the_senders_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: who succeeds in the middle of a chain hears nothing of where that stood."""
    monkeypatch.setattr(SealedCut, "note_of", lambda self, source: b"")
    with pytest.raises(AssertionError, match="nobody knows"):
        lost_together("a chain", "emc")


# --- who has it ---------------------------------------------------------------------------------------


def test_an_owner_that_is_back_in_time_keeps_it() -> None:
    run = amid_rows("windows")
    run.fed.nodes["m"].crash()
    run.fed.run(for_us=WAIT_US * 3 // 4)
    run.fed.nodes["m"].restart()
    assert run.check_gap() > 0
    assert run.replicas(run.fragment).epoch == 1


def test_a_lost_owner_is_waited_for() -> None:
    run = amid_rows("windows")
    run.lose("m")
    began_us = run.fed.world.now_us
    run.until(lambda: run.owner(run.fragment) == "s1", "it is taken over")
    assert run.fed.world.now_us - began_us >= WAIT_US


@pytest.mark.parametrize("kind", ["windows", "clients at both ends", "a union"])
def test_an_owner_that_was_paused_and_wakes_harms_nobody(kind: str) -> None:
    run = amid_rows(kind)
    run.fed.nodes["m"].pause(2 * WAIT_US)
    run.until(lambda: run.owner(run.fragment) == "s1", "it is taken over")
    run.check_gap()
    run.until(lambda: run.fragment not in run.fed.nodes["m"].brain.fragments, "it hears so")
    run.until_guarded(run.fragment, 2)


@pytest.mark.parametrize("sleeps", [3, 8], ids=["between", "later"])
@pytest.mark.parametrize("kind", ["windows", "clients at both ends", "a union"])
def test_who_was_chosen_and_knows_no_more_what_it_was_gives_it_back(kind: str, sleeps: int) -> None:
    """The owner before begins it anew: it was only paused."""
    run = amid_rows(kind, standby=("s1",))
    run.fed.nodes["m"].pause(sleeps * WAIT_US // 2)
    run.until(lambda: run.owner(run.fragment) == "s1", "it is taken over")
    run.fed.run(for_us=600)
    run.fed.nodes["s1"].crash("lost")
    run.fed.run(for_us=WAIT_US // 2)
    run.fed.restart("s1")
    run.check_gap()
    assert (run.owner(run.fragment), run.replicas(run.fragment).epoch) == ("m", 3)
    run.until_guarded(run.fragment, 1)


def test_an_owner_that_hears_no_majority_feeds_nothing() -> None:
    """Others may have taken over: what its clients gave it would be acknowledged and lost, and nobody could
    count it."""
    run = amid_rows("clients at both ends", after_us=40_000)
    cut_off(run, "m", [node for node in run.fed.nodes if node != "m"])
    hosted = run.fed.nodes["m"].brain.fragments[run.fragment]
    run.until(lambda: not run.recovery("m").leads("q"), "it notices")
    fed = hosted.rows_in
    run.fed.run(for_us=WAIT_US // 2)
    assert hosted.rows_in == fed
    run.until_owned(run.fragment, "s1")
    run.fed.network.heal_all()
    run.check_gap()


def test_a_cut_that_is_over_in_time_costs_nothing() -> None:
    run = amid_rows("windows", after_us=40_000)
    cut_off(run, "m", [node for node in run.fed.nodes if node != "m"])
    run.fed.run(for_us=WAIT_US)
    run.fed.network.heal_all()
    assert run.check_gap() == 0
    assert run.replicas(run.fragment).epoch == 1


def test_of_two_voters_the_owner_goes_on_alone() -> None:
    """Nobody can take over without it."""
    run = AmnesiaRun("windows", standby=["e"], witnesses=())
    run.lose("e")
    run.until(lambda: "e" not in run.recovery("m")._catalog.left, "it is lost")
    run.fed.run(for_us=WAIT_US)
    assert run.recovery("m").leads("q")


# --- what it costs --------------------------------------------------------------------------------------


def test_nothing_is_kept_and_nothing_is_sent() -> None:
    run = amid_rows("windows behind a union", after_us=1_000_000)
    run.until_ended()
    owner = run.fed.nodes["m"]
    assert not [name for name in owner.disk.names() if GroupName.of(name).owner]
    assert not owner.disk.journal.numbers()
    links = run.recovery("m").replication._links.values()
    assert [link.sender for link in links] == [None, None]
    assert not any(run.recovery(node).followings.shadow(run.fragment) for node in ("s1", "s2"))
    [input, _] = owner.brain.fragments[run.fragment].inputs.values()
    assert input.settled


# --- whose word counts ----------------------------------------------------------------------------------


CUT = SealedCut(
    fragment="q/f",
    life=7,
    number=3,
    inputs=(),
    outputs=(("out", 5),),
    held=2,
    lost=1,
    unknown=False,
    readers=(),
)


def test_only_who_may_have_the_fragment_makes_cuts_of_it() -> None:
    """Their key is in the spec, which goes to nobody else: a client can hand a cut back, and make none."""
    first, other = CutSealer(b"a node's secret"), CutSealer(b"another node's secret")
    key = first.key_for("q/f e 7")
    assert len(key) == NOTE_KEY_BYTES
    assert key not in (first.key_for("q/f e 8"), other.key_for("q/f e 7"))
    owner, successor = CutSealer(key), CutSealer(bytes(key))
    assert successor.cut(owner.note(CUT), "q/f") == CUT
    for forger in (first, other, CutSealer()):
        assert successor.cut(forger.note(CUT), "q/f") is None
    assert CutSealer().key_for("q/f e 7") == b""


def test_a_later_owner_has_the_newer_cut() -> None:
    later = msgspec.structs.replace(CUT, epoch=2, life=1, number=1)
    assert later.order > CUT.order


# --- what is refused ------------------------------------------------------------------------------------


def test_no_names_for_what_nobody_keeps() -> None:
    run = AmnesiaRun("clients at both ends")
    now_us, schema = run.fed.world.now_us, run.schemas["rows"]
    reader = run.fed.client("named", "m")
    reader.do(lambda mind: mind.subscribe(now_us, "q.out", NOW, name="report"))
    publisher = run.fed.client("named-pub", "m")
    publisher.do(lambda mind: mind.publish(now_us, "q.rows", schema, timed=False, name="p"))
    run.fed.run(for_us=500_000)
    said = publisher.mind.publications["q.rows"].refusal
    assert said is not None
    assert said.code == "E_STORE"
    refusal = reader.mind.subscriptions["q.out"].receiver.refusal
    assert refusal is not None
    assert refusal.code == "E_STORE"


def test_it_stays_where_it_is() -> None:
    run = AmnesiaRun("windows")
    assert moved(run, run.fragment, "s1").code == "E_STORE"
    splitter = run.fed.client("splitter", "m")
    number = splitter.mind.request(
        lambda number: Split(request=number, fragment=run.fragment, box="per_k", parts=2)
    )
    splitter.do(lambda mind: None)
    reply, _ = run.fed.answer(splitter, number)
    assert reply.code == "E_STORE"


# --- by chance ------------------------------------------------------------------------------------------


def by_chance(kind: str, seed: int) -> int:
    """Some machines are lost, come back, are paused or cut off at some moment; how many rows are lost."""
    dice = Random(seed)
    run = AmnesiaRun(kind, seed=seed, witnesses=("w",) if kind in CHAINS else ("w", "x"))
    run.publish()
    run.fed.run(for_us=dice.randrange(5_000, 220_000))
    what = dice.choice(["lost", "two", "back", "pause", "cut", "faulty", "successor back", "chain"])
    own = run.fed.nodes["m"]
    if what == "faulty":
        run.fed.network.faults = Faults(jitter_us=5_000, loss_permille=10)
    if what in ("lost", "two", "faulty", "successor back"):
        run.lose("m")
        run.until_owned(run.fragment, "s1")
        run.fed.run(for_us=dice.randrange(100_000))
    match what:
        case "two":
            run.lose("s1")
            run.until_owned(run.fragment, "s2")
        case "successor back":
            run.fed.nodes["s1"].crash()
            run.fed.run(for_us=dice.randrange(1_000_000))
            run.fed.nodes["s1"].restart()
        case "back":
            own.crash()
            run.fed.run(for_us=dice.randrange(1_000, 1_500_000))
            own.restart()
        case "pause":
            own.pause(dice.randrange(3_500_000, 7_000_000))
        case "cut":
            cut_off(run, "m", [node for node in run.fed.nodes if node != "m"])
            run.fed.run(for_us=dice.randrange(100_000, 4_000_000))
            run.fed.network.heal_all()
        case "chain":
            nodes = sorted(run.at) if kind in CHAINS else ["m"]
            for node in dice.sample(nodes, dice.randrange(1, len(nodes) + 1)):
                run.lose(node)
                run.fed.run(for_us=dice.choice([0, 0, dice.randrange(10_000), dice.randrange(3_000_000)]))
    return run.check_gap()


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=FULL) for n in range(100, 150))])
@pytest.mark.parametrize("kind", KINDS | CHAINS)
def test_whatever_happens_what_is_missing_is_what_is_counted(kind: str, seed: int) -> None:
    by_chance(kind, seed)
