"""An owner that doesn't hear a sender hands over to a secondary that does; the fork is the second answer.

pub-a ── e ──┐                                   s, t stand by for m; w votes
             ├── m: sunion, window ── n: out ── reader
pub-b ── f ──┘
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

import medusa as md
from medusa.nodes.recovery import unheard_senders
from medusa.nodes.recovery.owner_preference import PREFERENCE, Candidate, Hears, preferred
from medusa.nodes.recovery.unheard_senders import DUE_US_MAX, UnheardSenders, due_us
from medusa.query.delay import fork_after_us
from tests.nodes.consistency.delayed_run import SCHEMA, DelayedRun, second
from tests.nodes.consistency.test_forks_amid_changes import AT, query

NODES = ("e", "f", "m", "n", "s", "t", "w")


def guarded(q: md.Query | None = None, *, span_s: float = 10, standby: Sequence[str] = ("s",)) -> DelayedRun:
    run = DelayedRun(q or query(), AT, names=NODES, read_at="n", span_us=second(span_s))
    request = run.deployer.deploy_guarded(run.q, AT, {"m": tuple(standby)}, ("w", "n"))
    reply, _ = run.fed.answer(run.deployer, request)
    assert reply.code == "", reply
    run.reader.read("q.out")
    run.fed.run(for_us=second(1))
    run.publish()
    return run


def owner(run: DelayedRun) -> str:
    """As the newest configuration says that any living node knows."""
    found = []
    for node in run.fed.nodes.values():
        current = node.brain.recovery.agreement.current("q") if node.alive else None
        replicas = None if current is None else current.replicas("q/both")
        if current is not None and replicas is not None:
            found.append((current.number, replicas.owner))
    return max(found)[1]


def cut(run: DelayedRun, ways: Sequence[tuple[str, str]], from_s: float, to_s: float) -> None:
    for way in ways:
        run.at_second(from_s, lambda way=way: run.fed.network.cut(*way))  # type: ignore[misc]
        run.at_second(to_s, lambda way=way: run.fed.network.heal(*way))  # type: ignore[misc]


def handed_over(run: DelayedRun) -> list[str]:
    """Lines that say so."""
    return [line for line in run.fed.last().split("\n") if "fragment is handed over" in line]


BOTH_WAYS = [("f", "m"), ("m", "f")]


@pytest.mark.parametrize("ways", [BOTH_WAYS, [("f", "m")], [("m", "f")]], ids=["both", "to m", "from m"])
def test_the_line_to_one_sender_is_cut_and_nothing_tentative_shows(ways: list[tuple[str, str]]) -> None:
    run = guarded()
    cut(run, ways, 3, 8)
    run.run_to(2.9)
    assert owner(run) == "m"
    run.run_to(6)
    assert owner(run) == "s"
    [said] = handed_over(run)
    assert said.split("unheard")[1].strip("=: '\"") == "f", said
    run.ends()
    assert owner(run) == "s", "it stays where it is once the line is back"
    assert run.reader.guesses == []
    assert run.late() == []


def test_who_stands_by_does_not_hear_it_either_and_the_owner_forks() -> None:
    run = guarded()
    cut(run, [*BOTH_WAYS, ("f", "s"), ("s", "f")], 3, 8)
    run.ends()
    assert owner(run) == "m"
    assert run.forks("m") == 1
    assert run.reader.guesses != []
    assert run.late() == []


def test_the_next_in_order_hears_it() -> None:
    run = guarded(standby=("s", "t"))
    cut(run, [*BOTH_WAYS, ("f", "s"), ("s", "f")], 3, 8)
    run.run_to(6)
    assert owner(run) == "t"
    run.ends()
    assert run.reader.guesses == []


def test_who_stands_by_does_not_hear_a_reader() -> None:
    """There the stream would go to nobody."""
    run = guarded()
    cut(run, [*BOTH_WAYS, ("n", "s"), ("s", "n")], 3, 8)
    run.ends()
    assert owner(run) == "m"
    assert run.forks("m") == 1


@pytest.mark.parametrize("at_s", [3, 3.05, 3.1, 3.15])
def test_a_lost_sender_is_heard_nowhere(at_s: float) -> None:
    """Whenever between two heartbeats: that the other node hasn't noticed doesn't count."""
    run = guarded()
    run.at_second(at_s, run.fed.nodes["f"].crash)
    run.at_second(8, run.fed.nodes["f"].restart)
    run.run_to(7)
    assert owner(run) == "m"
    assert handed_over(run) == []
    run.ends()
    assert run.forks("m") == 1
    assert run.late() == []


def test_what_is_lost_for_both_counts_as_heard_by_nobody() -> None:
    """The owner misses it since 1 s; another one heard it 100 ms later, and hasn't noticed yet."""
    heard = UnheardSenders._is_heard
    missing = {"f": second(1)}
    assert not heard(second(2), "f", {"f": second(0.9)}, missing)
    assert heard(second(2), "f", {"f": second(0.2)}, missing)
    assert not heard(second(2), "f", {}, missing)
    assert heard(second(2), "e", {"e": second(0.9)}, missing), "that one isn't missing at the owner"


def test_a_release_that_knows_no_such_question_keeps_standing_by(monkeypatch: pytest.MonkeyPatch) -> None:
    run = guarded()
    unheard = run.fed.nodes["s"].brain.recovery.unheard
    monkeypatch.setattr(unheard, "asked", lambda now_us, peer, message: False)
    cut(run, BOTH_WAYS, 3, 8)
    run.ends()
    assert owner(run) == "m"
    assert run.forks("m") == 1


def test_a_short_cut_moves_nothing() -> None:
    run = guarded()
    cut(run, BOTH_WAYS, 3, 3.6)
    run.ends()
    assert owner(run) == "m"
    assert run.reader.guesses == []


def test_its_new_owner_misses_it_soon_and_forks() -> None:
    """Else it would go to and fro over lines that come and go."""
    run = guarded(span_s=12)
    cut(run, BOTH_WAYS, 3, 5)
    cut(run, [("f", "s"), ("s", "f")], 6, 10)
    run.ends()
    assert owner(run) == "s"
    assert run.forks("s") == 1
    assert run.late() == []


def test_its_new_owner_misses_it_later_and_it_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unheard_senders, "STAYS_US", second(2))
    run = guarded(span_s=14)
    cut(run, BOTH_WAYS, 3, 5)
    cut(run, [("f", "s"), ("s", "f")], 8, 12)
    run.run_to(7)
    assert owner(run) == "s"
    run.run_to(11)
    assert owner(run) == "m"
    run.ends()
    assert run.reader.guesses == []


def test_without_a_bound_it_goes_after_some_seconds() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts").filter("v >= 0", name=f"f{name}") for name in "ab")
    both = md.sunion(a, b, bucket="100ms", name="both").window("500ms").group_by("k")
    counts = both.aggregate(n=md.count(), t=md.sum("v"), name="counts")
    q.sink("out", counts.filter("n > 0", name="last"))
    run = guarded(q, span_s=12)
    cut(run, BOTH_WAYS, 3, 11)
    run.run_to(5)
    assert owner(run) == "m"
    run.run_to(8)
    assert owner(run) == "s"
    assert max(run.first_seen_us()) > second(7), "it goes on before the line is back"
    run.ends()


@pytest.mark.parametrize(("owner_hears", "hears"), [*product(Hears, repeat=2)])
def test_what_moves_gains_something(owner_hears: Hears, hears: Hears) -> None:
    """By brute force: it goes exactly where more is heard."""
    order = [Hears.NONE, Hears.SOME, Hears.ALL]
    goes = order.index(hears) > order.index(owner_hears)
    assert preferred(owner_hears, [("s", hears)]) == ("s" if goes else "")
    assert preferred(owner_hears, [("r", Hears.NONE), ("s", hears), ("t", hears)]) == ("s" if goes else "")
    better = preferred(owner_hears, [("s", Hears.SOME), ("t", Hears.ALL)])
    assert better == ("" if owner_hears is Hears.ALL else "t")


def test_the_table_names_each_once_and_ends_with_the_owner() -> None:
    assert len({*PREFERENCE}) == len(PREFERENCE) == 5
    assert PREFERENCE[-1] == (Candidate.OWNER, Hears.NONE)


@pytest.mark.parametrize("delay_us", [800_000, 1_200_000, 2_000_000, 60_000_000, 3_600_000_000])
def test_it_is_due_well_before_the_fork(delay_us: int) -> None:
    assert due_us(delay_us) <= min(fork_after_us(delay_us) // 2, DUE_US_MAX)
