"""Named publishers and named subscriptions of a fragment that a passive standby takes over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.recovery.test_passive_standby import passively
from tests.nodes.taken_over import PIECE, ROWS, Run
from tests.nodes.test_taken_over import HALF, WHOLE, Named, Program, counting

AFTER_US = [0, 7_000, 40_000]
MOMENTS = pytest.mark.parametrize("after_us", AFTER_US)
ENDS = pytest.mark.parametrize("restarts", [False, True], ids=["stays", "dies too"])


def guarded(seed: int, *, reads: bool = True) -> tuple[Run, str]:
    """Clients publish into what s1 and s2 hold checkpoints of, and read it."""
    run = Run(
        passively(counting()),
        WHOLE,
        standby={"m": ["s1", "s2"]},
        deploys="e",
        witnesses=("w", "x"),
        seed=seed,
    )
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    if reads:
        run.read()
    run.until_guarded(fragment, 2)
    return run, fragment


@ENDS
@MOMENTS
def test_a_named_subscription_survives_its_owner(after_us: int, restarts: bool) -> None:
    """Each row is stored once; what it acknowledged never comes again where that had been heard."""
    run, fragment = guarded(1 + after_us, reads=False)
    stored: list[Any] = []
    reader = Named(run, "named-1", stored)
    run.publish(0, HALF)
    run.until(lambda: len(stored) >= HALF // 2, "half of it comes")
    acknowledged = len(stored)
    reader.ack()
    run.fed.run(for_us=200_000 + after_us)
    run.lose("m")
    if restarts:
        reader.dead = True
    run.until_owned(fragment, "s1")
    run.publish(HALF)
    if restarts:
        run.fed.run(for_us=1_000_000)
        again = Named(run, "named-2", stored)
        run.until(lambda: "q.out" in again.ended, "all rows come")
        assert again.sent_again <= HALF - acknowledged
    else:
        run.until(lambda: "q.out" in reader.ended, "all rows come")
        assert not reader.sent_again
    assert stored == run.want["out"].to_pylist()


@ENDS
@MOMENTS
def test_what_a_named_publisher_hears_is_durable_a_takeover_keeps(after_us: int, restarts: bool) -> None:
    run, fragment = guarded(1 + after_us)
    program = Program(run, "program-1", HALF)
    run.until(lambda: program.durable >= PIECE, "something is durable")
    run.fed.run(for_us=after_us)
    run.lose("m")
    durable = program.durable
    if restarts:
        program.dead = True
    run.until_owned(fragment, "s1")
    if restarts:
        program = Program(run, "program-2", ROWS)
        run.until(lambda: program.begins_at >= 0, "it is told where to go on")
        assert durable <= program.begins_at <= HALF
    program.until_row = ROWS
    run.until(lambda: program.durable == ROWS, "all is durable")
    program.finish("q.rows", run.schemas["rows"])
    run.check()


@pytest.mark.parametrize("after_us", [0, 9_000])
def test_who_opened_a_name_last_has_it_after_a_takeover_too(after_us: int) -> None:
    """The checkpoint that is held may be of the time when the first had the name."""
    run, fragment = guarded(1 + after_us)
    first = Program(run, "program-1", PIECE)
    run.until(lambda: first.durable == PIECE, "something is durable")
    second = Program(run, "program-2", HALF)
    run.until(lambda: second.begins_at == PIECE, "it is told where to go on")
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    second.until_row = ROWS
    run.until(lambda: second.durable == ROWS, "all is durable")
    second.finish("q.rows", run.schemas["rows"])
    refusal = first.publication("q.rows")
    assert refusal is not None
    assert refusal.refusal is not None
    assert refusal.refusal.code == "E_TAKEN"
    run.check()
