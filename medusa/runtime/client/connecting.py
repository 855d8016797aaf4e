"""Which node a client comes to: of the addresses that it was given the first that answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import check_address
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.contacts import GivenNode
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.keys.client_keys import FirstUse, KeyGiven, client_keys

__all__ = ["AddressGiven", "ServerKeyGiven", "first_to_answer", "followed", "given_nodes"]

AddressGiven = str | Sequence[str]
"""One address, or several of nodes of one participant."""

ServerKeyGiven = KeyGiven | Sequence[KeyGiven]
"""The key of all nodes, or one for each address."""

NEXT_AFTER_S = 0.1
"""An address is called so long after the one before it: who gave several would rather have the first."""


def given_nodes(
    address: AddressGiven,
    timeout_us: int,
    key: KeyGiven | None,
    server_key: ServerKeyGiven | None,
    first: FirstUse | None,
) -> list[GivenNode]:
    """What was given to ``connect``, node by node.

    Raises:
        LinkError: no addresses, or the keys don't fit them.
    """
    addresses = [address] if isinstance(address, str) else _listed(address)
    if len(addresses) > 1 and first is not None and first.introduction is not None:
        text = (
            f"connect: introduction= is where one node says its key, and {len(addresses)} addresses are given"
        )
        raise LinkError(text, hint="give one address at a time until all are pinned", code="link.keys")
    server_keys = _server_keys(server_key, len(addresses))
    keyed = key is not None or server_key is not None
    found = []
    for each, server in zip(addresses, server_keys, strict=True):
        try:
            used = check_address(each, bind=False, keyed=keyed)
        except ConfigError as error:
            raise LinkError(f"connect: {error.message}", hint=error.hint, code=error.code) from None
        found.append(GivenNode(used, client_keys(used, timeout_us, key, server, first)))
    return found


def _listed(address: object) -> list[str]:
    if not isinstance(address, list | tuple) or not address or not all(isinstance(e, str) for e in address):
        came = (
            "an empty list" if isinstance(address, list | tuple) and not address else type(address).__name__
        )
        raise LinkError(
            f"connect: an address is text, came {came}",
            hint="'tcp://127.0.0.1:5555' or 'ipc:///path', or a list of such",
            code="link.address",
        )
    return list(dict.fromkeys(address))


def _server_keys(given: ServerKeyGiven | None, count: int) -> list[KeyGiven | None]:
    if given is None or isinstance(given, str | os.PathLike) or not isinstance(given, list | tuple):
        return [given] * count  # type: ignore[list-item]
    if len(given) != count:
        text = f"connect: addresses: {count}, server keys: {len(given)}"
        raise LinkError(
            text, hint="server_key= takes one key for all, or one for each address", code="link.keys"
        )
    return list(given)


def followed(
    given: Sequence[GivenNode],
    timeout_us: int,
    begun: Callable[[ClientLoop], None] = lambda loop: None,
) -> FollowedNames:
    """The connections of a new client, whose home is the first of these nodes that answers.

    Args:
        begun: as for ``first_to_answer``.

    Raises:
        LinkError: as ``first_to_answer``.
    """
    loop = first_to_answer(given, timeout_us, begun)
    try:
        others = [each for each in given if each.address != loop.address]
        return FollowedNames(loop, loop.keys, others)
    except BaseException:  # Interrupted now, nobody else would close it.
        loop.close()
        raise


def first_to_answer(
    given: Sequence[GivenNode], timeout_us: int, begun: Callable[[ClientLoop], None]
) -> ClientLoop:
    """A connection to the first of these nodes that answers; the others are not connected to.

    Args:
        begun: called with each connection before its node is waited for, of several nodes in other threads.

    Raises:
        LinkError: none answers in time, or all refuse us.
    """
    if len(given) == 1:
        return ClientLoop(given[0].address, timeout_us, given[0].keys, begun=begun)
    answers: SimpleQueue[tuple[int, ClientLoop | BaseException]] = SimpleQueue()
    over, lock = threading.Event(), threading.Lock()
    made: list[ClientLoop] = []

    def note(loop: ClientLoop) -> None:
        with lock:
            made.append(loop)
            if over.is_set():
                raise LinkError("another node has answered", code="link.closed")
        begun(loop)

    def call(number: int, each: GivenNode) -> None:
        if number and over.wait(number * NEXT_AFTER_S):
            return
        try:
            answers.put((number, ClientLoop(each.address, timeout_us, each.keys, begun=note)))
        except BaseException as error:
            answers.put((number, error))

    threads = [threading.Thread(target=call, args=pair, daemon=True) for pair in enumerate(given)]
    chosen: ClientLoop | None = None
    failed: dict[int, BaseException] = {}
    try:
        for each in threads:
            each.start()
        while chosen is None and len(failed) < len(given):
            number, answer = answers.get()
            if isinstance(answer, ClientLoop):
                chosen = answer
            else:
                failed[number] = answer
        _end(over, lock, made, but=chosen)
        if chosen is None:
            raise _none_of(given, failed[0])
    except BaseException:
        _end(over, lock, made)
        raise
    return chosen


def _end(
    over: threading.Event, lock: threading.Lock, made: Sequence[ClientLoop], but: ClientLoop | None = None
) -> None:
    """No other connection is made, and those that are there are closed but one."""
    with lock:
        over.set()
    for loop in made:
        if loop is not but:
            loop.close()


def _none_of(given: Sequence[GivenNode], first: BaseException) -> BaseException:
    if not isinstance(first, LinkError):
        return first
    addresses = ", ".join(each.address for each in given)
    text = f"none of the {len(given)} nodes at {addresses} answers as one; the first: {first.message}"
    return LinkError(text, hint=first.hint, code=first.code)
