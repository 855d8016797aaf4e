"""A command of a client and the answer of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from medusa.errors import LinkError, QueryError
from medusa.runtime.client.client_loop import ClientLoop
from medusa.wire.messages.links_and_commands import Message

__all__ = ["ask"]


def ask(
    loop: ClientLoop,
    make: Callable[[int], Message],
    payload: bytes | None = None,
    *,
    timeout_us: int | None = None,
    lost: Callable[[], bool] = lambda: False,
) -> Any:
    """Send a command and wait for its answer; it is sent again after a reconnect.

    Args:
        lost: says that nobody should wait for this node any longer.

    Raises:
        LinkError, QueryError: refused, or no answer in time; ``link.lost``: it is ``lost``.
    """
    with loop.lock:
        mind = loop.mind()
        number = mind.request(make, payload)
    try:
        wait_us = loop.timeout_us if timeout_us is None else timeout_us
        loop.wait(lambda: number in mind.replies or lost(), "an answer", wait_us)
        if number not in mind.replies:
            raise LinkError(f"node {loop.node!r} is away", code="link.lost")
        reply, document = mind.replies[number]
    finally:
        with loop.lock:
            mind.give_up(number)
    if reply.code:
        kind = QueryError if reply.code.startswith(("query", "E_SPEC")) else LinkError
        raise kind(reply.text, hint=reply.hint, code=reply.code)
    return None if document is None else msgspec.json.decode(document)
