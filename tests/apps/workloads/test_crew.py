"""Threads of a demonstration: what ends it, and what is said of what didn't come."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from medusa.apps.workloads.demos.crew import Crew
from medusa.apps.workloads.demos.screens import DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.errors import LinkError


def crew(interruption: Interruption | None = None) -> Crew:
    progress: Any = SimpleNamespace()
    return Crew(DemoScreen(), progress, interruption or Interruption())


def test_the_first_failure_of_a_thread_ends_what_waits() -> None:
    made, go = crew(), threading.Event()

    def fails(with_what: str) -> None:
        go.wait(60)
        raise ValueError(with_what)

    thread = made.start(fails, "the disk")
    made.look()
    go.set()
    with pytest.raises(ValueError, match="the disk"):
        made.wait(lambda: False, lambda: "nothing", 60)
    assert isinstance(thread.exception(60), ValueError)
    assert isinstance(made.start(fails, "another").exception(60), ValueError)
    with pytest.raises(ValueError, match="the disk"):
        made.wait(lambda: True, lambda: "nothing", 60)


def test_an_interruption_and_the_end_of_patience_end_it() -> None:
    interruption = Interruption()
    made = crew(interruption)
    with pytest.raises(LinkError, match=r"^no end of it after 0 s$") as caught:
        made.wait(lambda: False, lambda: "no end of it", 0)
    assert caught.value.code == "link.drain"
    made.wait(lambda: True, lambda: "nothing", 0)
    interruption.asked = 1
    with pytest.raises(KeyboardInterrupt):
        made.wait(lambda: False, lambda: "nothing", 60)


def test_what_comes_bit_by_bit_is_waited_for_as_long_as_it_comes() -> None:
    made, looks = crew(), iter(range(100))
    # With no time at all: each look finds more, until the tenth.
    with pytest.raises(LinkError, match="no end of it"):
        made.wait(lambda: False, lambda: "no end of it", 0, came=lambda: min(next(looks), 10))
    assert next(looks) == 12
    looks = iter(range(100))
    made.wait(lambda: next(looks) > 20, lambda: "no end of it", 0, came=lambda: next(looks))


def test_threads_that_ended_are_forgotten() -> None:
    made, over = crew(), threading.Event()
    made.start(lambda: None).result(60)
    waits = made.start(over.wait, 60)
    assert made.running == [waits]
    over.set()
    assert made.result(waits, "end of it", 60) is True
    assert made.result(made.start(pow, 2, 5), "power", 60) == 32
