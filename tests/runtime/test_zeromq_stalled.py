"""A loop that is busy while callers send and go: ZeroMQ's heartbeats must not end the process.

libzmq 4.3.5 aborts where it has stopped reading a connection that then breaks (its issues 3937, 4364, 4767).
"""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import zmq

from tests.system.nodes import first_line

MESSAGES = 2_000
BUSY_S = 0.5
"""Longer than heartbeats of ZeroMQ would wait."""

CHILD = """
import sys
from medusa.runtime.transport.zeromq import Arrival, Transport

listening = Transport(listen="tcp://127.0.0.1:*")
print(listening.endpoint, flush=True)
sys.stdin.readline()  # busy with something else
count = 0
while count < int(sys.argv[1]):
    count += sum(isinstance(event, Arrival) for event in listening.wait(1000))
listening.close()
print(count, flush=True)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_what_comes_to_a_busy_loop_and_breaks_harms_nothing(dies: bool) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(MESSAGES)], text=True, **pipes)
    context = zmq.Context()
    caller = context.socket(zmq.DEALER)
    caller.setsockopt(zmq.LINGER, 10_000)
    try:
        caller.connect(first_line(child))
        for _ in range(MESSAGES):
            caller.send(bytes(100))
        if dies:
            caller.close()
            context.term()  # All of it was handed over.
        threading.Event().wait(BUSY_S)
        out, errors = child.communicate("\n", timeout=60)
        assert (child.returncode, out) == (0, f"{MESSAGES}\n"), errors
    finally:
        child.kill()
        caller.close(linger=0)
        context.term()
