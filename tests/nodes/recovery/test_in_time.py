"""Whoever is to take over does so when its time has come, whatever else happens in that moment."""

from __future__ import annotations

from tests.nodes.recovery.upstream_run import UpstreamRun, query


def test_a_message_that_comes_just_when_the_wait_is_over_puts_nothing_off() -> None:
    run = UpstreamRun(*query("rows"), "s1", "s2")
    first = run.fed.nodes["s1"].brain
    run.lose("m")
    assert run.fed.run(lambda: first.peers["m"] == "silent")
    proposals = first.recovery.proposals
    due_us = proposals.wake_at_us(run.fed.world.now_us)
    assert due_us is not None
    assert due_us > run.fed.world.now_us
    assert proposals.wake_at_us(due_us) == due_us, "asked when it hasn't done anything yet"
    run.until_owned(run.fragment, "s1")
