"""Ctrl-C and other signals during a call of a run: handled when the call is over, so that it is done whole.

Python runs signal handlers in the main thread, between any two of its steps. An exception from one of them
in the middle of a push would leave some boxes ahead of others, with no way back. So while a run works in the
main thread, handlers are deferred, and they run, and raise, when the call has ended.

A call that never ends (a user's function in an endless loop, a join whose output explodes) must still be
interruptible: a signal of the same kind that comes ``GIVE_UP_AFTER_S`` or more after the first one is
handled at once. What it breaks off can't be finished; the run stops there.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from medusa.engine.core.signal_gate import SignalGate

__all__ = ["GIVE_UP_AFTER_S", "INTERRUPTS"]

GIVE_UP_AFTER_S = 1.0
"""How long after a deferred signal another one of its kind is handled at once."""

_SIGNALS = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
"""Those whose handlers are known to raise in programs: to end them, or to end what takes too long."""

_first_s: dict[int, float] = {}


def _passes(number: int, again: bool) -> bool:
    now_s = time.monotonic()
    if not again:
        _first_s[number] = now_s
        return False
    return now_s - _first_s[number] >= GIVE_UP_AFTER_S


def _main_thread() -> int:
    return threading.main_thread().ident or 0


INTERRUPTS = SignalGate(
    [getattr(signal, each) for each in _SIGNALS if hasattr(signal, each)], _main_thread(), _passes
)
"""That of this process: handlers of signals are the process's."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: INTERRUPTS.forked(threading.get_ident()))
