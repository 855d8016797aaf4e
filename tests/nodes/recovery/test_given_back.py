"""Who was chosen as owner and lost what it followed gives the fragment back to the owner before.

The owner before only slept. It keeps what it has until its successor says that it has begun.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes.taken_over import Run
from tests.nodes.test_taken_over import (
    CUT,
    HALF,
    WHOLE,
    counting,
    run_of,
)

BOTH = pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])


def chosen_and_killed(
    at: Any,
    *others: str,
    sleeps_us: int,
    q: Any = None,
    unsynced: str = "lost",
    **more: Any,
) -> tuple[Run, str]:
    """The owner sleeps; the first that stands by is chosen, and dies before its disk has the fragment."""
    others = others or ("s1",)
    run, fragment = run_of(q or counting(), at, {"m": list(others)}, witnesses=("w", "x"), **more)
    run.until_guarded(fragment, len(others))
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    run.fed.nodes["m"].pause(sleeps_us)
    run.until(lambda: owner_by_its_word(run, fragment) == others[0], "it is chosen")
    run.fed.nodes[others[0]].crash(unsynced)
    return run, fragment


def owner_by_its_word(run: Run, fragment: str) -> str:
    """As ``w`` knows it, which hears at once what is decided."""
    current = run.current("w")
    replicas = None if current is None else current.replicas(fragment)
    return "" if replicas is None else replicas.owner


SLEEPS_US = (1_500_000, 4_000_000)
"""It wakes while its successor is dead, and hears first that this was chosen; or after all is over, and hears
both at once."""


@pytest.mark.parametrize("sleeps_us", SLEEPS_US, ids=["wakes between", "wakes later"])
@pytest.mark.parametrize("unsynced", ["lost", "kept"])
@BOTH
def test_the_owner_before_goes_on_with_what_it_kept(at: Any, unsynced: str, sleeps_us: int) -> None:
    run, fragment = chosen_and_killed(at, sleeps_us=sleeps_us, unsynced=unsynced)
    run.fed.run(for_us=1_000_000)
    run.fed.restart("s1")
    run.publish(HALF)
    run.check()
    run.until_guarded(fragment)
    replicas = run.replicas(fragment)
    assert replicas.predecessors == ()
    if unsynced == "lost":
        assert (replicas.owner, replicas.epoch) == ("m", 3)
