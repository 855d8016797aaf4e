"""One connection of a ZeroMQ socket, as the operating system knows it.

ZeroMQ has no call that ends one connection of a socket. It does say by which descriptor a message or
an event came, and a connection that is shut down there it takes for one that broke. A descriptor may
be closed and given to something else meanwhile; the inode of a socket is its own as long as it lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import stat
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass

import zmq

__all__ = ["Connection", "let_go", "number_of", "told_by"]

_RECEIVED = struct.Struct("=128xQ")
"""``tcpi_bytes_received`` in Linux's ``struct tcp_info``."""

_NO_ADDRESS = struct.pack("=H14x", socket.AF_UNSPEC)


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection that is or was open.

    Attributes:
        address: of the peer, without port; empty for ipc.
    """

    number: int
    inode: int
    address: str

    @classmethod
    def of(cls, number: int) -> Connection | None:
        """The one behind a descriptor; None where none is there any more."""
        with contextlib.suppress(OSError), _held(number) as held:
            peer = held.getpeername()
            address = str(peer[0]) if isinstance(peer, tuple) else ""
            return cls(number, os.fstat(held.fileno()).st_ino, address)
        return None

    @classmethod
    def that_brought(cls, frame: zmq.Frame) -> Connection | None:
        """The one by which a frame came; None where it is closed already."""
        return cls.of(number_of(frame))

    def is_open(self) -> bool:
        """Whether its descriptor is still its own."""
        # Asked without one descriptor more: there may be none left.
        with contextlib.suppress(OSError):
            return os.fstat(self.number).st_ino == self.inode
        return False

    def bytes_read(self) -> int | None:
        """So many came in and were read from it so far; None: it has ended, or isn't TCP on Linux."""
        # Of what kind it is isn't looked up, which takes as long as all the rest: no other has this option.
        tcp = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        with (
            contextlib.suppress(OSError, AttributeError),
            socket.socket(*tcp, fileno=os.dup(self.number)) as held,
        ):
            if os.fstat(held.fileno()).st_ino == self.inode:
                told = held.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
                if len(told) == _RECEIVED.size:
                    (unread,) = struct.unpack("i", fcntl.ioctl(held, termios.FIONREAD, bytes(4)))
                    return int(_RECEIVED.unpack(told)[0]) - int(unread)
        return None

    def cut(self, *, reset: bool = False) -> bool:
        """End it at once, both ways; False: it has ended already.

        Args:
            reset: drop what is under way, also what came in and wasn't read, and reset it, so that a peer
                that can't send hears it too.
        """
        with contextlib.suppress(OSError), _held(self.number) as held:
            if os.fstat(held.fileno()).st_ino == self.inode:
                if reset:
                    if _disconnected(held):
                        return True
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                held.shutdown(socket.SHUT_RDWR)
                return True
        return False


def number_of(frame: zmq.Frame) -> int:
    """The descriptor by which a frame came; -1: nobody knows."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def _disconnected(held: socket.socket) -> bool:
    """Reset a connection and drop what came in and wasn't read, which ZeroMQ would still read else.

    Linux does it where a socket is connected to no address; False: not here.
    """
    connect = getattr(ctypes.CDLL(None), "connect", None)
    return connect is not None and connect(held.fileno(), _NO_ADDRESS, len(_NO_ADDRESS)) == 0


@contextlib.contextmanager
def _held(number: int) -> Iterator[socket.socket]:
    """The socket under this number, held so that the number stays its own; OSError: it is none."""
    with socket.socket(fileno=os.dup(number)) as held:
        yield held


def let_go(address: str) -> None:
    """In a forked child: close our copies of the sockets at an address where the parent listens.

    Else it stays taken for as long as the child lives. Nobody here uses them: ZeroMQ's threads are the
    parent's.

    Args:
        address: ``tcp://host:port`` or ``ipc://path``.
    """
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/dev/fd")):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode) and _is_at(number, address):
                    os.close(number)


def _is_at(number: int, address: str) -> bool:
    """Whether a socket is bound to this address: it listens there, or was accepted there."""
    with _held(number) as held:
        here = held.getsockname()
        if held.type != socket.SOCK_STREAM:
            return False
        if isinstance(here, tuple):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            return str(here[1]) == port and host.strip("[]") in (here[0], "*", "0.0.0.0", "::")
        return f"ipc://{here}" == address


def told_by(frames: list[bytes]) -> tuple[int, int]:
    """What a monitor of ZeroMQ tells: an event, and its value, such as a descriptor.

    ``zmq.utils.monitor`` does this too, and loads asyncio, which takes longer than all else that is imported
    to ask a gateway.
    """
    event, value = struct.unpack("=Hi", frames[0])
    return event, value
