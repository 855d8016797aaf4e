"""Bytes over TCP from one process of this machine to another, as the kernel counts them.

The status of a node counts bytes of streams. What goes to a secondary isn't a stream, so the sockets are
asked: Linux says of each how many bytes its peer has acknowledged (netlink, ``sock_diag``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["sent_bytes"]

SOCK_DIAG_BY_FAMILY = 20
REQUEST_DUMP = 0x301
ERROR, DONE = 2, 3
NETLINK_SOCK_DIAG = 4
INFO = 2
"""The attribute that holds ``struct tcp_info``."""

ESTABLISHED = 1 << 1
HEADER = struct.Struct("=IHHII")
SOCKET = struct.Struct("=BBBB2s2s16s16s4s8sIIIII")
ATTRIBUTE = struct.Struct("=HH")
BYTES_ACKED_AT = 120
BUFFER = 1 << 16


def sent_bytes(sender: int, receiver: int) -> int | None:
    """What a process has sent to another one over the connections that they have now; None: nobody knows.

    Args:
        sender, receiver: process numbers.
    """
    try:
        mine, theirs = _sockets(sender), _sockets(receiver)
        found = list(_connections())
    except OSError:
        return None
    ends = {(local, remote) for inode, local, remote, _ in found if inode in theirs}
    return sum(acked for inode, local, remote, acked in found if inode in mine and (remote, local) in ends)


def _sockets(pid: int) -> set[int]:
    """Inodes of the sockets that a process has open."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            kind, _, number = os.readlink(each).partition(":[")
            if kind == "socket":
                found.add(int(number.rstrip("]")))
    return found


def _connections() -> Iterator[tuple[int, bytes, bytes, int]]:
    """(inode, own port, the other's port, bytes acknowledged) of each TCP connection over IPv4."""
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 1 << (INFO - 1), 0, ESTABLISHED)
    request += bytes(48)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as asked:
        asked.settimeout(1.0)
        asked.send(HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + request)
        while True:
            got = asked.recv(BUFFER)
            while got:
                length, kind, *_ = HEADER.unpack_from(got)
                if kind == DONE:
                    return
                if kind == ERROR:
                    raise OSError("the kernel tells nothing of sockets")
                fields = SOCKET.unpack_from(got, HEADER.size)
                acked = _acked(got[HEADER.size + SOCKET.size : length])
                yield fields[-1], fields[4], fields[5], acked
                got = got[(length + 3) & ~3 :]


def _acked(attributes: bytes) -> int:
    while len(attributes) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(attributes)
        if kind == INFO and length >= ATTRIBUTE.size + BYTES_ACKED_AT + 8:
            return int(struct.unpack_from("=Q", attributes, ATTRIBUTE.size + BYTES_ACKED_AT)[0])
        attributes = attributes[max((length + 3) & ~3, ATTRIBUTE.size) :]
    return 0
