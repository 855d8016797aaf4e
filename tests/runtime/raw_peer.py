"""A peer that speaks ZMTP 3.0 by hand over TCP, unencrypted, and sends what no library would."""

from __future__ import annotations

import contextlib
import socket
import struct

MORE = 1


def connected(endpoint):
    """A DEALER's connection to ``tcp://host:port``, its handshake done."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=20.0)
    made.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    made.sendall(bytes([4, len(ready)]) + ready)
    answer = made.makefile("rb")  # What goes out before its READY has come breaks the protocol.
    answer.read(64)
    assert answer.read(answer.read(2)[1]).startswith(b"\x05READY")
    return made


def part(body, *, more):
    """One part of a message on the wire."""
    if len(body) < 256:
        return bytes([MORE * more, len(body)]) + body
    return bytes([2 | MORE * more]) + struct.pack(">Q", len(body)) + body


def send_parts(made, body, count):
    """Send so many parts of a message that never ends; how many went out before the connection did."""
    each = part(body, more=True)
    at_once = max(1, (1 << 20) // len(each))
    block, sent = each * at_once, 0
    with contextlib.suppress(ConnectionError):
        while sent < count:
            made.sendall(block)
            sent += at_once
    return sent


def send_until_cut(made, block):
    """Send these bytes again and again, until the connection ends."""
    with contextlib.suppress(OSError):
        while True:
            made.sendall(block)


def ended(made):
    """Whether the other end has closed the connection."""
    made.settimeout(20.0)
    try:
        while made.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True
