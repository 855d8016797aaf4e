"""One node stands by for fragments that read one stream, and has all of them when their owners are lost.

e (publishers, first) ── m (kind) ──┐
                      └─ s3 (other) ┴─ c (readers)          s1, s2 stand by for both
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.nodes.taken_over import HALF, Run
from tests.nodes.test_handovers import moved
from tests.nodes.test_taken_over import FORKED, check_removed, forked

KIND, OTHER = "q/kind", "q/other"
BOTH = (KIND, OTHER)
AT_ONE = {"m": ["s1"], "s3": ["s1"]}
AT_TWO = {"m": ["s1", "s2"], "s3": ["s1", "s2"]}

FULL = (pytest.mark.full, pytest.mark.issue(17))


def begun(
    standby: Mapping[str, Sequence[str]],
    *,
    seed: int = 1,
    after_us: int = 0,
    fragments: Sequence[str] = BOTH,
    reads: bool = True,
) -> Run:
    """Guarded, and the first half of the rows is on its way."""
    run = Run(forked(), FORKED, standby=standby, witnesses=("w", "x"), deploys="e", seed=seed)
    run.deploy()
    if reads:
        run.read()
    for fragment in fragments:
        run.until_guarded(fragment, max(map(len, standby.values())))
    run.publish(0, HALF)
    run.fed.run(for_us=30_000 + after_us)
    return run


def check_at(run: Run, node: str) -> None:
    """One node has both, and all that was published came through it, each row once."""
    for fragment in BOTH:
        run.until_owned(fragment, node)
    run.check()
    said = [each.what for each in run.fed.nodes[node].reports]
    assert "fragment can't be taken over" not in said


@pytest.mark.parametrize(
    "after_us",
    [pytest.param(us, marks=FULL if us % 2_000 else ()) for us in range(0, 36_000, 3_000)],
)
@pytest.mark.parametrize("apart_us", [0, 1_500, 1_200_000], ids=["at once", "soon after", "one by one"])
def test_a_node_takes_over_both_whenever_their_owners_are_lost(after_us: int, apart_us: int) -> None:
    run = begun(AT_ONE, seed=after_us + apart_us, after_us=after_us)
    run.lose("m")
    run.fed.run(for_us=apart_us)
    run.lose("s3")
    run.publish(HALF)
    check_at(run, "s1")


@pytest.mark.parametrize("after_us", range(0, 24_000, 3_000))
def test_a_node_with_both_is_lost_and_the_next_has_both(after_us: int) -> None:
    run = begun(AT_TWO, seed=after_us)
    for name in ("m", "s3"):
        run.lose(name)
    for fragment in BOTH:
        run.until_owned(fragment, "s1")
        run.until_guarded(fragment)
    run.publish(HALF)
    run.fed.run(for_us=after_us)
    run.lose("s1")
    check_at(run, "s2")


@pytest.mark.parametrize("after_us", [0, 300, 1_000, 3_000, 10_000, 100_000])
def test_a_node_with_both_that_dies_at_once_is_back_with_what_its_disk_has(after_us: int) -> None:
    run = begun(AT_ONE, seed=after_us)
    for name in ("m", "s3"):
        run.lose(name)
    for fragment in BOTH:
        run.until_owned(fragment, "s1")
    run.fed.run(for_us=after_us)
    run.fed.nodes["s1"].crash()
    run.fed.run(for_us=50_000)
    run.fed.restart("s1")
    run.publish(HALF)
    check_at(run, "s1")


@pytest.mark.parametrize("after_us", range(0, 24_000, 3_000))
def test_a_node_that_runs_one_takes_over_the_other(after_us: int) -> None:
    """It stands by for nothing else, and nobody for what it runs."""
    run = begun({"m": ["s3"]}, seed=after_us, after_us=after_us, fragments=[KIND])
    run.lose("m")
    run.publish(HALF)
    run.until_owned(KIND, "s3")
    run.check()
    assert set(run.fed.nodes["s3"].brain.fragments) == {*BOTH}


def test_two_nodes_that_stand_by_for_each_other_lose_one() -> None:
    run = begun({"m": ["s3"], "s3": ["m"]})
    run.lose("m")
    run.publish(HALF)
    check_at(run, "s3")


@pytest.mark.parametrize("back", ["m", "s3"])
def test_an_owner_that_is_back_follows_what_another_has_beside_its_own(back: str) -> None:
    run = begun(AT_ONE)
    for name in ("m", "s3"):
        run.lose(name)
    for fragment in BOTH:
        run.until_owned(fragment, "s1")
    run.lost.clear()
    for name in ("m", "s3"):
        run.fed.restart(name)
    for fragment in BOTH:
        run.until_guarded(fragment)
    assert moved(run, KIND if back == "m" else OTHER, back).code == ""
    run.publish(HALF)
    run.check()
    owners = run.owner(KIND), run.owner(OTHER)
    assert owners == (("m", "s1") if back == "m" else ("s1", "s3"))


def test_rows_are_kept_for_each_as_far_as_it_holds_them() -> None:
    """The sender of both forgets rows of one that are durable there, and keeps those of the other."""
    run = begun(AT_ONE)
    for name in ("m", "s3"):
        run.lose(name)
    for fragment in BOTH:
        run.until_owned(fragment, "s1")
    sent = run.fed.nodes["e"].brain.fragments["q/rows"].outputs.values()
    logs = {each.stream: each.sender.log for each in sent}
    taken = run.fed.nodes["s1"].brain.fragments
    streams = {name: taken[name].spec.feeds[0].stream for name in BOTH}
    assert {*streams.values()} == logs.keys()
    taken[OTHER].freeze()
    began = logs[streams[OTHER]].start_seq
    run.publish(HALF)
    run.until(lambda: logs[streams[KIND]].start_seq > HALF, "rows of one are forgotten")
    assert logs[streams[OTHER]].start_seq <= max(began, HALF)
    assert logs[streams[OTHER]].next_seq == logs[streams[KIND]].next_seq


@pytest.mark.parametrize("after_us", [0, 900_000, 970_000, 973_500, 974_000, 980_000, 1_200_000])
def test_a_query_that_is_removed_while_one_node_takes_over_both_leaves_nothing(after_us: int) -> None:
    run = begun(AT_TWO, reads=False, after_us=60_000)
    for name in ("m", "s3"):
        run.lose(name)
    run.fed.run(for_us=after_us)
    asked = run.deployer.undeploy("q")
    run.fed.run(for_us=5_000_000)
    run.lost.clear()
    for name in ("m", "s3"):
        run.fed.restart(name)
    reply, _ = run.fed.answer(run.deployer, asked)
    check_removed(run)
    if reply.code:
        run.undeploy()
    run.deploy()
    for fragment in BOTH:
        run.until_guarded(fragment, 2)


def test_one_is_moved_to_where_the_other_is_and_on() -> None:
    run = begun({"m": ["s1"], "s3": ["s2"]})
    assert moved(run, KIND, "s3").code == ""
    assert moved(run, OTHER, "m").code == ""
    assert moved(run, KIND, "m").code == ""
    run.publish(HALF)
    run.check()
    assert (run.owner(KIND), run.owner(OTHER)) == ("m", "m")
