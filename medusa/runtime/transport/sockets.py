"""ZeroMQ sockets with our options (each with its reason in docs/nodes.md), and binding one."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import zmq

from medusa.errors import LinkError
from medusa.wire import limits

__all__ = ["bind", "listening", "open_context", "open_socket"]

_T = TypeVar("_T")

LIBZMQ_MIN = (4, 3, 3)
"""Older ones can be stopped by a stranger before any handshake (CVE-2020-15166)."""

SOCKETS_MAX = 16384
"""Of one process, ZeroMQ's own limit; four for each node we call."""

FRAME_BYTES_MAX = limits.PAYLOAD_BYTES_MAX + (64 << 10)
"""Larger ones end the connection before they are read."""

HIGH_WATER = 64
"""Messages per direction of a connection. Too small: a thread switch per message."""

UNANSWERED_MS = 1500
"""A connection ends when what we sent is unacknowledged for so long; our own heartbeats see to it that there
is something, and notice a cut before. Too small: a lossy line is cut, and one whose other end reads nothing
for so long (its window is closed), and then all that was under way is sent again; too large: after a
cut TCP itself, which asks more and more seldom, takes so long to go on.

ZeroMQ's heartbeats are off: libzmq 4.3.5 aborts the process when one is due on a connection of which it reads
no more because a queue is full, and which then breaks (its issues 3937, 4364, 4767)."""

IDLE_S = 1
"""Then TCP asks by itself whether the other end is there."""

HANDSHAKE_MS = 2000
"""Who hasn't said by then who it is, is put out."""

TAKEN_S = 1.0
"""An address that is taken is tried again for so long: who had it may be ending just now, or be a child of a
fork that hasn't let go of it yet."""


def open_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context for the sockets of one transport.

    Raises:
        LinkError: libzmq is too old.
    """
    if zmq.zmq_version_info() < LIBZMQ_MIN:
        raise LinkError(
            f"libzmq {zmq.zmq_version()} is too old",
            hint="install libzmq 4.3.3 or later",
            code="link.libzmq",
        )
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
    return context


def open_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """A socket with our options, neither bound nor connected."""
    made = context.socket(kind)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.TCP_MAXRT, UNANSWERED_MS)
    made.setsockopt(zmq.TCP_KEEPALIVE, 1)
    made.setsockopt(zmq.TCP_KEEPALIVE_IDLE, IDLE_S)
    made.setsockopt(zmq.TCP_KEEPALIVE_INTVL, IDLE_S)
    made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    made.setsockopt(zmq.RECONNECT_IVL, 100)
    made.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    made.setsockopt(zmq.CONNECT_TIMEOUT, 1000)
    made.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    made.setsockopt(zmq.SNDHWM, HIGH_WATER)
    made.setsockopt(zmq.RCVHWM, HIGH_WATER)
    made.setsockopt(zmq.SNDBUF, 256 << 10)
    made.setsockopt(zmq.RCVBUF, 1 << 20)
    return made


def bind(router: zmq.Socket[bytes], address: str) -> str:
    """Bind; where it is bound, so ``*`` shows which port it took.

    Raises:
        LinkError: the address is not to be had, or taken, and still so after ``TAKEN_S``.
    """

    def bind_it() -> None:
        with _private_path(address):
            router.bind(address)

    try:
        listening(bind_it)
    except zmq.ZMQError as error:
        raise LinkError(
            f"can't listen on {address}: {_bind_reason(error.errno)}",
            hint=_BIND_HINTS.get(error.errno or 0, "check `listen` in the configuration"),
            code="link.listen",
        ) from None
    return router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


def listening(begin: Callable[[], _T]) -> _T:
    """Begin to listen at an address; where that is taken, try again for ``TAKEN_S``.

    Raises:
        OSError, zmq.ZMQError: as ``begin``.
    """
    end_s = time.monotonic() + TAKEN_S
    while True:
        try:
            return begin()
        except (OSError, zmq.ZMQError) as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= end_s:
                raise
        time.sleep(0.01)


_UMASK = threading.Lock()


@contextlib.contextmanager
def _private_path(address: str) -> Iterator[None]:
    """Inside, a socket is bound to this address; where that is ipc, only its owner can use it."""
    if not address.startswith("ipc://"):
        yield
        return
    with _UMASK:  # It is the process's: two nodes in one could give back each other's.
        before = os.umask(0o077)  # So there is no moment in which others can connect.
        try:
            yield
        finally:
            os.umask(before)
    Path(address.removeprefix("ipc://")).chmod(0o600)


def _bind_reason(number: int | None) -> str:
    return os.strerror(number) if number and number < 1 << 16 else zmq.strerror(number or 0)


_BIND_HINTS = {
    errno.EADDRINUSE: "another process listens there: stop it, or choose another port (`:*`: a free one)",
    errno.EACCES: "the port or folder needs rights you don't have: choose a port from 1024 up",
    errno.ENOENT: "the folder of the ipc path doesn't exist: make it",
    errno.EADDRNOTAVAIL: "this machine has no such address: use 127.0.0.1",
}
