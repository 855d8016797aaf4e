"""Ports for what must know its own before it starts.

A port that the system gives out and that is closed again may be given to somebody else before it is used:
another process of the same test run, or any connection that goes out. Those here are below the ones that
the system gives out, and each process of a run has its own.
"""

from __future__ import annotations

import os
import socket

FIRST, EACH, PROCESSES = 12_000, 2_000, 10
_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
_next = os.getpid() % EACH  # Runs beside each other begin at different ones.


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens; none comes twice before all others have."""
    global _next
    found: list[int] = []
    for _ in range(EACH):
        if len(found) == count:
            return found
        port = FIRST + EACH * _process + _next
        _next = (_next + 1) % EACH
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        found.append(port)
    raise RuntimeError(f"fewer than {count} of {EACH} ports are free")
