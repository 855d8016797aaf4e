"""The keys that a client gives to ``connect``: a file or the text of a key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from medusa.errors import ConfigError, LinkError
from medusa.runtime.keys import CurveKey, read_curve_key, read_public
from medusa.wire.statement import is_curve_key

__all__ = ["ClientKeys", "KeyGiven", "client_keys"]

KeyGiven = str | os.PathLike[str]
"""A path, or a key: 40 characters of Z85."""

SERVER_HINT = "server_key= takes the .pub file of the node, or its 40 characters"


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """A client's own pair, and the public key of the node that it calls."""

    own: CurveKey
    server: str


def client_keys(key: KeyGiven | None, server_key: KeyGiven | None) -> ClientKeys | None:
    """What was given to ``connect``; None where nothing was.

    Raises:
        LinkError: only one of both, or no key, or a file that can't be read or that others can read.
    """
    if key is None and server_key is None:
        return None
    if server_key is None:
        text = "connect: key= is given, server_key= is not, so anybody could pass for the node"
        raise LinkError(text, hint=SERVER_HINT, code="link.keys")
    if key is None:
        raise LinkError(
            "connect: server_key= is given, key= is not: nodes with keys speak only with those who have one",
            hint="medusa keygen client NAME.key; the node's configuration names its public key",
            code="link.keys",
        )
    return ClientKeys(_own(key), _server(server_key))


def _own(given: KeyGiven) -> CurveKey:
    try:
        if _is_text(given, "key"):
            return CurveKey(str(given))
        return read_curve_key(given, "client", "node")
    except ConfigError as error:
        raise LinkError(f"connect: key: {error.message}", hint=error.hint, code=error.code) from None


def _server(given: KeyGiven) -> str:
    if _is_text(given, "server_key"):
        if not is_curve_key(given):
            raise LinkError("connect: server_key is no key", hint=SERVER_HINT, code="link.keys")
        return str(given)
    try:
        return read_public(given, "node")
    except ConfigError as error:
        hint = error.hint or SERVER_HINT
        raise LinkError(f"connect: server_key: {error.message}", hint=hint, code=error.code) from None


def _is_text(given: object, name: str) -> bool:
    """Whether it is the key itself: 40 characters without space that are no file."""
    if isinstance(given, os.PathLike):
        return False
    if not isinstance(given, str):
        text = f"connect: {name} is a path or 40 characters, came {type(given).__name__}"
        raise LinkError(text, code="link.keys")
    return re.fullmatch(r"[!-~]{40}", given) is not None and not os.path.exists(given)
