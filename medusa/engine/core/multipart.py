"""What is left of a message of many parts, dropped by the native module: some 0.1 µs a part."""

from __future__ import annotations

from dataclasses import dataclass

from medusa import _native

__all__ = ["MultipartCalls", "drop_parts"]


@dataclass(frozen=True, slots=True)
class MultipartCalls:
    """Addresses of libzmq's functions of these names, each with ``zmq_`` before it."""

    msg_init: int
    msg_recv: int
    msg_more: int
    msg_close: int


def drop_parts(calls: MultipartCalls, socket: int, most: int) -> tuple[int, bool]:
    """Take and drop the next parts of a message, without waiting and without the GIL.

    Args:
        socket: address of libzmq's socket, of which this thread has the use; more parts are to come.
        most: parts that are taken at most.

    Returns:
        how many were taken, and whether the last of them ends the message. Fewer than ``most``, and
        none that ends it: libzmq refused to give one.

    Raises:
        ValueError: an address is 0.
    """
    addresses = (calls.msg_init, calls.msg_recv, calls.msg_more, calls.msg_close)
    return _native.drop_parts(addresses, socket, most)
