"""Ctrl-C and SIGTERM wait inside, and are not lost."""

from __future__ import annotations

import signal
import threading

import pytest

from medusa.apps.workloads.interruption import SIGNALS, Interruption


@pytest.fixture(autouse=True)
def as_in_a_command():
    """SIGTERM raises KeyboardInterrupt too, as ``medusa demo`` has it; afterwards all is as before."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in SIGNALS}
    yield
    handlers = {signal.getsignal(each) for each in SIGNALS}
    for each, was in before.items():
        signal.signal(each, was)
    assert handlers == {signal.default_int_handler}


@pytest.mark.parametrize("how", SIGNALS)
def test_it_comes_where_we_look(how):
    steps = []
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:  # noqa: PT012
        interruption.check()
        signal.raise_signal(how)
        steps.append("went on")
        interruption.check()
        steps.append("too far")
    assert steps == ["went on"]


@pytest.mark.parametrize("how", SIGNALS)
def test_it_comes_at_the_end_when_nobody_looked(how):
    steps = []
    with pytest.raises(KeyboardInterrupt), Interruption():  # noqa: PT012
        signal.raise_signal(how)
        signal.raise_signal(how)
        steps.append("went on")
    assert steps == ["went on"]


def test_inside_itself_the_outermost_end_counts():
    interruption = Interruption()
    steps = []
    with pytest.raises(KeyboardInterrupt), interruption:  # noqa: PT012
        with interruption:
            signal.raise_signal(signal.SIGINT)
        steps.append("went on")
        interruption.check()
    with interruption:
        interruption.check()  # What came before is forgotten.
    assert steps == ["went on"]


def test_an_error_under_way_gives_way():
    with pytest.raises(KeyboardInterrupt) as caught, Interruption():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        raise ValueError
    assert isinstance(caught.value.__context__, ValueError)


def test_what_was_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.asked == 0
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN


def test_in_another_thread_it_does_nothing():
    found = []

    def work():
        with Interruption() as interruption:
            found.append({signal.getsignal(each) for each in SIGNALS})
            interruption.check()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [{signal.default_int_handler}]
