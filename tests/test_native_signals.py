"""The gate that defers signal handlers: what it lets through, and what it leaves as it was."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from medusa._native import Locked, SignalGate
from medusa.runtime.machine import interrupts
from medusa.runtime.machine.interrupts import INTERRUPTS


def gate_of(*kinds: int) -> SignalGate:
    return SignalGate(kinds or (signal.SIGINT,), threading.get_ident(), lambda number, again: False)


def test_holds_nest() -> None:
    gate, seen = gate_of(), []

    def nested() -> None:
        with gate:
            with gate:
                signal.raise_signal(signal.SIGINT)
            seen.append(gate.held)  # the inner one let nothing through

    with pytest.raises(KeyboardInterrupt):
        nested()
    assert seen == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_check_calls_what_came_and_holds_on() -> None:
    gate = gate_of()
    gate.hold()
    try:
        gate.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            gate.check()
        gate.check()
        assert signal.getsignal(signal.SIGINT) is gate
    finally:
        gate.release()


def test_handlers_that_do_not_raise_are_called_once_each() -> None:
    calls: list[tuple[int, bool]] = []

    def note(number: int, frame: Any) -> None:
        calls.append((number, frame is not None))

    kinds = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(each, note) for each in kinds]
    try:
        gate = gate_of(*kinds)
        with gate:
            for each in (*reversed(kinds), *kinds):
                signal.raise_signal(each)
            assert not calls
        assert calls == [(signal.SIGUSR2, True), (signal.SIGUSR1, True)]
    finally:
        for each, handler in zip(kinds, before, strict=True):
            signal.signal(each, handler)


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    def mine(number: int, frame: Any) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        with gate_of(signal.SIGUSR1):
            signal.signal(signal.SIGUSR1, mine)
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_that_are_ignored_or_not_pythons_stay_so() -> None:
    for handler in (signal.SIG_IGN, signal.SIG_DFL):
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with gate_of(signal.SIGUSR1):
                assert signal.getsignal(signal.SIGUSR1) is handler
            assert signal.getsignal(signal.SIGUSR1) is handler
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_other_threads_leave_handlers_alone() -> None:
    gate = gate_of()
    seen: list[Any] = []

    def work() -> None:
        with gate:
            seen.append((gate.held, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, signal.default_int_handler)]


def test_a_child_of_a_fork_holds_nothing() -> None:
    with INTERRUPTS:
        child = os.fork()
        if not child:
            fine = not INTERRUPTS.held and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert INTERRUPTS.held


def test_what_it_takes() -> None:
    for wrong in ([], range(1, 18)):
        with pytest.raises(ValueError, match="one to 16 signals"):
            SignalGate(list(wrong), 1, lambda number, again: False)


def test_a_second_interrupt_soon_after_the_first_waits_too() -> None:
    seen: list[tuple[int, bool]] = []
    gate = SignalGate([signal.SIGINT], threading.get_ident(), lambda *came: bool(seen.append(came)))  # type: ignore[arg-type]

    def thrice() -> None:
        with gate:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            assert gate.held

    with pytest.raises(KeyboardInterrupt):
        thrice()
    assert seen == [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGINT, True)]
    assert not gate.passed


def test_when_the_second_one_is_late_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now_s)
    assert not interrupts._passes(99, False)
    now_s += interrupts.GIVE_UP_AFTER_S - 0.01
    assert not interrupts._passes(99, True)
    now_s += 0.01
    assert interrupts._passes(99, True)


def test_that_something_came_is_seen_where_it_is_held() -> None:
    gate = gate_of()
    seen = [gate.came]

    def press() -> None:
        with gate:
            seen.append(gate.came)
            signal.raise_signal(signal.SIGINT)
            seen.append(gate.came)

    with pytest.raises(KeyboardInterrupt):
        press()
    assert [*seen, gate.came] == [False, False, True, False]


def test_locks_are_given_back_whatever_comes() -> None:
    first, second = threading.Lock(), threading.RLock()
    locked = Locked(first, second)
    called: list[int] = []

    def work(number: int) -> int:
        called.append(number)
        assert first.locked()
        if number:
            signal.raise_signal(signal.SIGINT)
        return number

    for number in (0, 1, 0):
        if number:
            with pytest.raises(KeyboardInterrupt):
                locked(work, number)
        else:
            assert locked(work, number) == 0
        assert not first.locked()
    with first:
        assert locked(work, 0) is None
    assert called == [0, 1, 0]
    free = threading.Thread(target=lambda: called.append(int(second.acquire(blocking=False))))
    free.start()
    free.join()
    assert called[-1] == 1
