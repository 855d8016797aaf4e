"""The keys that a client gives to ``connect``: a file or the text of a key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import check_address
from medusa.runtime.keys.key_files import CurveKey, read_curve_key, read_public
from medusa.runtime.transport.first_use import ask, pinned
from medusa.wire.statement import is_curve_key

__all__ = ["ClientKeys", "FirstUse", "KeyGiven", "client_keys", "first_use"]

KeyGiven = str | os.PathLike[str]
"""A path, or a key: 40 characters of Z85."""

SERVER_HINT = "server_key= takes the .pub file of the node, or its 40 characters"


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """A client's own pair, and the public key of the node that it calls.

    Attributes:
        pins: the file in which the node's key is pinned; None: it was given.
        is_new: it isn't in there yet.
    """

    own: CurveKey
    server: str
    pins: Path | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class FirstUse:
    """That a node may say itself which key it has, once.

    Attributes:
        pins: the file that keeps what it said.
        introduction: where it says it; None: it must be in the file.
    """

    pins: Path
    introduction: str | None


def first_use(pins: str | os.PathLike[str] | None, introduction: str | None) -> FirstUse | None:
    """The flag, as it was given to ``connect``.

    Raises:
        LinkError: a place to ask, and no file to keep the answer.
    """
    if pins is not None:
        return FirstUse(Path(pins), introduction)
    if introduction is not None:
        text = "connect: introduction= goes with trust_first_use="
        raise LinkError(text, hint="a file that keeps the keys that nodes said", code="link.keys")
    return None


def client_keys(
    address: str, timeout_us: int, key: KeyGiven | None, server_key: KeyGiven | None, first: FirstUse | None
) -> ClientKeys | None:
    """What was given to ``connect``; None where nothing was.

    Raises:
        LinkError: only a part of it, or no key, or a file that can't be read or that others can read; or
            nobody introduces itself.
    """
    if first is not None:
        if key is None or server_key is not None:
            text = "connect: trust_first_use= goes with key=, and without server_key="
            raise LinkError(text, hint=SERVER_HINT, code="link.keys")
        return _first(address, timeout_us, _own(key), first)
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


def _first(address: str, timeout_us: int, own: CurveKey, first: FirstUse) -> ClientKeys:
    known = pinned(first.pins, address)
    if known:
        return ClientKeys(own, known, first.pins)
    if first.introduction is None:
        raise LinkError(
            f"connect: {first.pins} holds no key for {address}",
            hint="introduction= is where the node says it (its configuration: introduce); " + SERVER_HINT,
            code="link.pins",
        )
    return ClientKeys(own, ask(_checked(first.introduction), timeout_us / 1e6), first.pins, True)


def _checked(introduction: str) -> str:
    try:
        if not introduction.startswith("tcp://"):
            raise ConfigError(f"{introduction[:120]!r} is no address", hint="tcp://host:port")
        return check_address(introduction, bind=False, keyed=True)
    except ConfigError as error:
        text = f"connect: introduction: {error.message}"
        raise LinkError(text, hint=error.hint, code="link.address") from None


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
