"""Readers of msgpack, JSON and plain data into typed structs, which any number of threads may use.

msgspec looks at the fields of a struct when one is first read, and keeps what it found with the class. It
puts that there before it is whole: a second thread that reads the same struct meanwhile ends the process with
a segmentation fault (msgspec 0.22). So each type is looked at when its module is loaded, by one thread at a
time, and only what comes of this module reads types (``tests/house.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

__all__ = ["converter", "json_decoder", "msgpack_decoder"]

T = TypeVar("T")

_LOOKING = threading.Lock()
"""Two modules may be loaded at once, by two threads, and share a struct."""


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """What reads this type from msgpack; call it when the module is loaded."""
    with _LOOKING:
        return msgspec.msgpack.Decoder(kind)


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """What reads this type from JSON; call it when the module is loaded."""
    with _LOOKING:
        return msgspec.json.Decoder(kind)


@overload
def converter(kind: type[T]) -> Callable[[Any], T]: ...
@overload
def converter(kind: Any) -> Callable[[Any], Any]: ...
def converter(kind: Any) -> Callable[[Any], Any]:
    """What makes this type of dicts, lists and scalars; call it when the module is loaded.

    What it gives raises ``msgspec.ValidationError``.
    """
    with _LOOKING:
        msgspec.json.Decoder(kind)

    def convert(plain: Any) -> Any:
        return msgspec.convert(plain, kind)

    return convert
