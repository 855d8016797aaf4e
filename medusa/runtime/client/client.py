"""Connecting to a node, or to one of several: ``md.connect``."""

from __future__ import annotations

import os
from collections.abc import Callable

from medusa.errors import LinkError
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.connecting import AddressGiven, ServerKeyGiven, followed, given_nodes
from medusa.runtime.client.federation import Federation
from medusa.runtime.keys.client_keys import KeyGiven, first_use
from medusa.runtime.transport.first_use import pin
from medusa.units import Duration, duration_us

__all__ = ["connect", "dial"]


def connect(
    address: AddressGiven,
    timeout: Duration = "5s",
    *,
    key: KeyGiven | None = None,
    server_key: ServerKeyGiven | None = None,
    trust_first_use: str | os.PathLike[str] | None = None,
    introduction: str | None = None,
) -> Federation:
    """Connect to a node, or to one of several.

    What is published and read goes on when a node is lost, be it this one, as soon as another has what it
    had: the client asks other nodes of the participant, which it knows from this one.

    Args:
        address: where it listens: ``tcp://127.0.0.1:5555`` or ``ipc:///path``; with keys any host. Or a list
            of such, of nodes of one participant: the first that answers is ours, and another becomes ours
            when that is lost. With one address orders that any node takes go to another while ours is
            away, and what only ours can do (``status``, ``declare``, ``deploy``) waits for it.
        timeout: how long to wait for it now, and for each answer later: ``"5s"``; at least 1 ms.
        key: our secret key, made by ``medusa keygen client``: its file, which nobody else may read, or
            its 40 characters.
        server_key: the public key of the node: its ``.pub`` file or its 40 characters. Only who has the
            secret half of it is spoken with. With several addresses a list, one for each.
        trust_first_use: instead of ``server_key``: a file of pinned keys. Where it has none for this address,
            the node is asked for its key, and if the connection then stands, that key is pinned. Whoever
            sits between may answer that first question.
        introduction: where a node that isn't pinned yet says its key: ``introduce`` of its configuration,
            ``tcp://host:port``.

    Raises:
        LinkError: no such address, nobody answers there, it is another than ``server_key`` says, or it
            doesn't admit us.
    """
    return dial(
        address,
        timeout,
        key=key,
        server_key=server_key,
        trust_first_use=trust_first_use,
        introduction=introduction,
    )


def dial(
    address: AddressGiven,
    timeout: Duration = "5s",
    *,
    key: KeyGiven | None = None,
    server_key: ServerKeyGiven | None = None,
    trust_first_use: str | os.PathLike[str] | None = None,
    introduction: str | None = None,
    begun: Callable[[ClientLoop], None] = lambda loop: None,
) -> Federation:
    """``connect``, for one who may want to end it before it stands.

    Args:
        begun: called with what closes it, before the node is waited for.
    """
    timeout_us = duration_us(timeout, what="connect: timeout", minimum_us=1_000, error=LinkError)
    first = first_use(trust_first_use, introduction)
    following = followed(given_nodes(address, timeout_us, key, server_key, first), timeout_us, begun)
    try:
        _pin(following.home)
        return Federation(following)
    except BaseException:  # Interrupted now, nobody else would close it.
        following.end()
        raise


def _pin(loop: ClientLoop) -> None:
    """Keep the key of our node where it was asked for it, since it is spoken with under that key.

    Raises:
        LinkError: it can't be written.
    """
    keys = loop.keys
    if keys is not None and keys.pins is not None and keys.is_new:
        pin(keys.pins, loop.address, keys.server)
