"""Named publishers and named subscriptions of a fragment that a passive standby takes over."""

from __future__ import annotations

import pytest

from tests.nodes.named_clients import check_last_has_the_name, check_publisher, check_subscription
from tests.nodes.recovery.test_passive_standby import passively
from tests.nodes.taken_over import Run
from tests.nodes.test_taken_over import WHOLE, counting

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
    run, fragment = guarded(1 + after_us, reads=False)
    check_subscription(run, fragment, after_us=200_000 + after_us, restarts=restarts)


@ENDS
@MOMENTS
def test_what_a_named_publisher_hears_is_durable_a_takeover_keeps(after_us: int, restarts: bool) -> None:
    run, fragment = guarded(1 + after_us)
    check_publisher(run, fragment, after_us=after_us, restarts=restarts)


@pytest.mark.parametrize("after_us", [0, 9_000])
def test_who_opened_a_name_last_has_it_after_a_takeover_too(after_us: int) -> None:
    """The checkpoint that is held may be of the time when the first had the name."""
    run, fragment = guarded(1 + after_us)
    check_last_has_the_name(run, fragment, after_us=after_us)
