"""A query that reads a sink is removed while the fragment that has the sink is split or merged."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.query.published_stream import PublishedStream
from tests.nodes.recovery.test_taken_over_amid_splits import BOTH, HALF, flowing, ordered
from tests.nodes.taken_over import Run


def read_by_another_query(run: Run) -> None:
    other = md.Query("p")
    hosts = run.fed.nodes["c"].brain.fragments.values()
    [columns] = [hosted.outputs["out"].sender.schema for hosted in hosts if "out" in hosted.outputs]
    stream = PublishedStream(name="local/q.out", columns=columns, timed=True)
    other.sink("seen", other.source("read", of=stream).filter("n > 0", name="kept"))
    asked = run.deployer.deploy(other, {"x": ["read", "kept", "seen"]}, [("read", "c", "q.out", 1)])
    reply, _ = run.fed.answer(run.deployer, asked)
    assert reply.code == "", reply


@pytest.mark.parametrize("state", ["asking", "cutting", "writing", "switching"])
@BOTH
def test_a_guest_that_left_amid_it_is_kept_nothing_for(what: str, state: str) -> None:
    run = flowing(what, "after")
    read_by_another_query(run)
    run.fed.run(for_us=100_000)
    node = run.fed.nodes["c"]
    node.slowness = 50 if state != "asking" else 20
    asked = ordered(run, what, "after")

    def states() -> list[str]:
        return [each.state for each in node.brain.orders.splits.status()]

    def guests() -> set[str]:
        return {id for each in node.brain.fragments.values() for id in each.spec.guests}

    assert guests()
    run.until(lambda: bool(states()) and (state == "asking" or states() == [state]), f"it is {state}")
    removal = run.deployer.undeploy("p")
    run.until(lambda: not guests() or not states(), "left or done")
    node.slowness = 1
    reply, _ = run.fed.answer(run.deployer, removal)
    assert reply.code == "", reply
    run.until(lambda: not states(), "it is done")
    assert run.fed.answer(*asked)[0].code == ""
    run.fed.run(for_us=3_000_000)
    assert not guests()
    for hosted in node.brain.fragments.values():
        assert set(hosted.outputs) == set(hosted.spec.streams)
    run.publish(HALF)
    run.check()
